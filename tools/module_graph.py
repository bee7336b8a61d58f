"""Draw the packages and who imports whom, and print what is largest.

python -m tools.module_graph            print the sizes
python -m tools.module_graph --write    also draw docs/module-graph.svg, shown in architecture.md

An arrow leads from a package to one that it imports, at the top of a module or inside a function.
An arrow that follows from others is left out: what a package imports is below it, in reach.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import pairwise

import sojourn
from tools.source import (
    ROOT,
    Module,
    classes_of,
    length_of,
    methods_of,
    module_edges,
    reachable,
    read_modules,
)

PAGE = ROOT / "docs" / "architecture.md"
PICTURE = ROOT / "docs" / "module-graph.svg"
BEGIN, END = "<!-- module graph: begin -->", "<!-- module graph: end -->"

ROW_GAP, NODE_GAP, LINE_HEIGHT, CHARACTER, PADDING = 44.0, 18.0, 14.0, 6.4, 10.0
WRAP = 28  # characters in a line of module names
SWEEPS = 12  # of the order within rows


def package_of(module: str) -> str:
    """Return the node that a module belongs to: the first part of its name below the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def contents(modules: Iterable[str]) -> dict[str, list[str]]:
    """Return the modules inside each node, without the names of node and package."""
    found: dict[str, list[str]] = {}
    for module in modules:
        inside = found.setdefault(package_of(module), [])
        rest = ".".join(module.split(".")[2:])
        if rest:
            inside.append(rest)
    return found


def package_edges(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the packages that each package imports; the root, which loads late, is left out."""
    found: dict[str, set[str]] = {package_of(name): set() for name in edges if "." in name}
    for name, targets in edges.items():
        if "." in name:
            found[package_of(name)] |= {package_of(one) for one in targets if "." in one}
    return {name: targets - {name} for name, targets in found.items()}


def reduced(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out every edge that follows from others: the transitive reduction."""
    behind = {name: reachable(name, edges) for name in edges}

    def follows(name: str, target: str) -> bool:
        # In a cycle nothing follows: all its edges stay.
        others = edges[name] - {target}
        return any(target in behind[other] and name not in behind[other] for other in others)

    return {
        name: {target for target in targets if not follows(name, target)}
        for name, targets in edges.items()
    }


def ranks(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """Return the row of each node from below: one above the highest that it imports."""
    found: dict[str, int] = {}

    def rank(name: str, above: tuple[str, ...]) -> int:
        if name not in found:
            below = [one for one in sorted(edges[name]) if one not in (*above, name)]
            found[name] = max((rank(one, (*above, name)) + 1 for one in below), default=0)
        return found[name]

    for name in sorted(edges):
        rank(name, ())
    return found


@dataclass
class Box:
    """A node of the picture, or a point through which an arrow passes a row."""

    lines: list[str] = field(default_factory=list)
    x: float = 0.0  # of the middle
    y: float = 0.0  # of the top
    row: int = 0

    @property
    def width(self) -> float:
        """Pixels."""
        longest = max(map(len, self.lines), default=0)
        return CHARACTER * longest + 2 * PADDING if self.lines else 4.0

    @property
    def height(self) -> float:
        """Pixels."""
        return LINE_HEIGHT * len(self.lines) + PADDING if self.lines else 0.0


def make_boxes(
    inside: Mapping[str, list[str]], edges: Mapping[str, set[str]]
) -> tuple[dict[str, Box], list[list[str]]]:
    """Return all boxes by name, and the arrows as chains of names from row to row."""
    row = ranks(edges)
    boxes, chains = {}, []
    for name in sorted(edges):
        lines = textwrap.wrap(", ".join(inside[name]), WRAP)
        boxes[name] = Box([name, *lines], row=row[name])
    for name in sorted(edges):
        for target in sorted(edges[name]):
            chain = [name]
            for between in range(row[name] - 1, row[target], -1):
                chain.append(f"{name}>{target}>{between}")
                boxes[chain[-1]] = Box(row=between)
            chains.append([*chain, target])
    return boxes, chains


def arrange(boxes: dict[str, Box], chains: list[list[str]]) -> None:
    """Give every box its place: neighbours near each other, rows from below."""
    neighbours: dict[str, list[str]] = {name: [] for name in boxes}
    for chain in chains:
        for one, other in pairwise(chain):
            neighbours[one].append(other)
            neighbours[other].append(one)
    rows: dict[int, list[str]] = {}
    for name in sorted(boxes):
        rows.setdefault(boxes[name].row, []).append(name)
    for sweep in range(SWEEPS):
        for row in sorted(rows, reverse=bool(sweep % 2)):
            wish = {
                name: sum(boxes[one].x for one in neighbours[name]) / len(neighbours[name])
                if neighbours[name]
                else boxes[name].x
                for name in rows[row]
            }
            rows[row].sort(key=lambda name: (wish[name], name))
            _spread([boxes[name] for name in rows[row]], [wish[name] for name in rows[row]])
    top = 0.0
    for row in sorted(rows, reverse=True):
        tallest = max(boxes[name].height for name in rows[row])
        for name in rows[row]:
            boxes[name].y = top + (tallest - boxes[name].height) / 2
        top += tallest + ROW_GAP
    left = min(box.x - box.width / 2 for box in boxes.values())
    for box in boxes.values():
        box.x -= left


def _spread(row: list[Box], wish: list[float]) -> None:
    """Place boxes side by side in their order, close to where they wish to be."""
    edge = -float("inf")
    for box, x in zip(row, wish, strict=True):
        box.x = max(x, edge + box.width / 2)
        edge = box.x + box.width / 2 + NODE_GAP
    # Pushing went to the right only: move the row back by what it went too far on average.
    shift = sum(box.x - x for box, x in zip(row, wish, strict=True)) / len(row)
    for box in row:
        box.x -= shift


def draw(inside: Mapping[str, list[str]], edges: Mapping[str, set[str]]) -> str:
    """Return the picture as SVG."""
    boxes, chains = make_boxes(inside, reduced(edges))
    arrange(boxes, chains)
    width = max(box.x + box.width / 2 for box in boxes.values()) + 2 * PADDING
    height = max(box.y + box.height for box in boxes.values()) + 2 * PADDING
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-PADDING:.0f} {-PADDING:.0f} '
        f'{width:.0f} {height:.0f}" font-family="sans-serif" font-size="11">',
        "<title>The packages of sojourn, and which imports which</title>",
        '<defs><marker id="tip" markerWidth="7" markerHeight="7" refX="6" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z" fill="#64748b"/></marker></defs>',
        # A ground of its own: pages are light or dark.
        f'<rect x="{-PADDING:.0f}" y="{-PADDING:.0f}" width="{width:.0f}" height="{height:.0f}" '
        'fill="#ffffff"/>',
        *(_arrow([boxes[name] for name in chain]) for chain in chains),
        *(_node(box) for _, box in sorted(boxes.items()) if box.lines),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _arrow(chain: list[Box]) -> str:
    x, y = chain[0].x, chain[0].y + chain[0].height
    path = f"M{x:.0f},{y:.0f}"
    for box in chain[1:]:
        half = (y + box.y) / 2
        path += f" C{x:.0f},{half:.0f} {box.x:.0f},{half:.0f} {box.x:.0f},{box.y:.0f}"
        x, y = box.x, box.y
    return f'<path d="{path}" fill="none" stroke="#94a3b8" marker-end="url(#tip)"/>'


def _node(box: Box) -> str:
    left = box.x - box.width / 2
    texts = [
        f'<text x="{box.x:.0f}" y="{box.y + LINE_HEIGHT * (n + 1):.0f}" text-anchor="middle" '
        + ('font-weight="bold" fill="#0f172a">' if n == 0 else 'fill="#475569">')
        + f"{escape(line)}</text>"
        for n, line in enumerate(box.lines)
    ]
    return (
        f'<rect x="{left:.0f}" y="{box.y:.0f}" width="{box.width:.0f}" '
        f'height="{box.height:.0f}" rx="5" fill="#f1f5f9" stroke="#64748b"/>' + "".join(texts)
    )


def picture(modules: Mapping[str, Module], homes: Mapping[str, str]) -> str:
    """Return the picture of a package."""
    return draw(contents(modules), package_edges(module_edges(modules, homes)))


def updated(page: str) -> str:
    """Return a page with the picture between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    shown = f"![The packages, and which imports which]({PICTURE.name})"
    return f"{before}{BEGIN}\n{shown}\n{END}{after}"


def sizes(modules: Mapping[str, Module], n: int = 10) -> str:
    """Return the largest modules and classes as tables in Markdown."""
    by_lines = sorted(modules.values(), key=lambda module: -module.n_lines)[:n]
    classes = [(node, name) for name, module in modules.items() for node in classes_of(module.tree)]
    classes.sort(key=lambda item: (-len(methods_of(item[0])), -length_of(item[0])))
    lines = ["| module | lines |", "|---|---|"]
    lines += [f"| `{module.name}` | {module.n_lines} |" for module in by_lines]
    lines += ["", "| class | module | methods | lines without the docstring |", "|---|---|---|---|"]
    lines += [
        f"| `{node.name}` | `{name}` | {len(methods_of(node))} | {length_of(node)} |"
        for node, name in classes[:n]
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the sizes, and draw the graph if asked to."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--write", action="store_true", help="draw into docs/architecture.md")
    arguments = parser.parse_args()
    modules = read_modules()
    print(sizes(modules))
    if arguments.write:
        PICTURE.write_text(picture(modules, sojourn._HOMES))
        PAGE.write_text(updated(PAGE.read_text()))


if __name__ == "__main__":
    main()
