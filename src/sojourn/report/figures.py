"""The figures of the report, as SVG that follows the page's colours."""

from __future__ import annotations

import math

import numpy as np

from sojourn.report.colors import PALETTE
from sojourn.report.examples import Example
from sojourn.report.gather import Contents
from sojourn.report.layout import Edge, arrow, stays, strong_transitions
from sojourn.report.markup import Markup, join, tag
from sojourn.report.text import columns_of, percent, readable, shortened, signed

MOST_CELLS = 40
"""States in the heat map of transitions."""

MOST_RING = 20
"""States in the graph of transitions."""

MOST_DWELL = 20
"""States in the figure of dwell times."""

MOST_PANELS = 12
"""Columns in the figure of a sequence."""

NUMBERED = 12
"""States with which a matrix has its numbers in its cells."""

_LETTER = 8.6  # width of a letter at the size that a phone shows


def svg(width: float, height: float, *children: str, label: str, class_: str = "figure") -> Markup:
    """Make a figure of a given size, with a label for screen readers."""
    return tag(
        "svg", *children, viewBox=f"0 0 {width:g} {height:g}", class_=class_, role="img",
        aria_label=label, width=width,
    )  # fmt: skip


def label_text(
    x: float, y: float, text: str, anchor: str = "start", class_: str = "label"
) -> Markup:
    """Write text at a place of a figure."""
    return tag("text", text, x=x, y=y, text_anchor=anchor, class_=class_)


def color_class(contents: Contents, state: int) -> str:
    """Return the class that gives a state its colour."""
    return f"c{contents.ranks[state] % len(PALETTE)}"


def nice_ticks(low: float, high: float, n: int = 4) -> list[float]:
    """Return round numbers within a range.

    Examples
    --------
    >>> nice_ticks(0.3, 9.7)
    [2.0, 4.0, 6.0, 8.0]
    """
    span = max(high - low, 1e-12)
    rough = span / n
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(m * size for m in (1.0, 2.0, 5.0, 10.0) if m * size >= rough * 0.7)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def learning_curve(contents: Contents) -> Markup:
    """Draw held-out scores, or the bound, over passes."""
    width, height, left, bottom, top = 520.0, 250.0, 58.0, 40.0, 14.0
    passes, scores = (np.array(part, dtype=float) for part in zip(*contents.curve, strict=True))
    low, high = float(scores.min()), float(scores.max())
    pad = 0.08 * (high - low) or 0.5
    low, high = low - pad, high + pad
    first, last = float(passes.min()), float(passes.max())
    span = (last - first) or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        across = left + (x - first) / span * (width - left - 16.0)
        return across, top + (high - y) / (high - low) * (height - bottom - top)

    grid = []
    for tick in nice_ticks(low, high):
        y = place(first, tick)[1]
        grid.append(tag("line", x1=left, x2=width - 16.0, y1=y, y2=y, class_="grid"))
        grid.append(label_text(left - 8, y + 4, signed(f"{tick:.6g}"), "end"))
    for tick in nice_ticks(first, last, 6):
        if tick == round(tick):
            grid.append(label_text(place(tick, low)[0], height - 22, f"{tick:.0f}", "middle"))
    points = [place(x, y) for x, y in zip(passes, scores, strict=True)]
    line = tag("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), class_="curve")
    dots = [
        tag("circle", cx=x, cy=y, r=7, class_="touch",
            data_tip=signed(f"pass {passed:g}: {score:.4f}"))
        for (x, y), passed, score in zip(points, passes, scores, strict=True)
    ]  # fmt: skip
    end = tag("circle", cx=points[-1][0], cy=points[-1][1], r=4, class_="mark")
    name = label_text((left + width) / 2, height - 4, "passes over the data", "middle", "axis")
    return svg(width, height, *grid, line, end, *dots, name,
               label=f"{contents.curve_name} over passes")  # fmt: skip


def heat_map(contents: Contents) -> Markup:
    """Draw the transition matrix of the largest states; shades follow the square root."""
    states = [entry.state for entry in contents.states[:MOST_CELLS]]
    matrix = contents.model.transmat
    n = len(states)
    names = shortened([contents.name(k) for k in states])
    numbered = n <= NUMBERED
    cell = 44.0 if numbered else max(17.0, 360.0 / n)
    left, top = margin(names), 34.0
    cells = []
    for i, k in enumerate(states):
        y = top + i * cell
        cells.append(label_text(left - 8, y + 0.5 * cell + 4, names[i], "end"))
        for j, to in enumerate(states):
            p = float(matrix[k, to])
            tip = f"from {contents.name(k)} to {contents.name(to)}: {percent(p)}"
            if contents.intervals is not None:
                low, high = (float(end[k, to]) for end in contents.intervals.transitions)
                tip += f" ({percent(low)} to {percent(high)})"
            x, shade = left + j * cell, 0.04 + 0.96 * math.sqrt(p)
            cells.append(
                tag("rect", x=x, y=y, width=cell - 1, height=cell - 1, rx=2,
                    class_="cell", fill_opacity=round(shade, 3), data_tip=tip,
                    data_row=k, data_column=to)
            )  # fmt: skip
            if numbered:
                cells.append(cell_text(x + 0.5 * cell, y + 0.5 * cell + 4, percent(p), shade))
    for j, to in enumerate(states):
        cells.append(label_text(left + (j + 0.5) * cell - 0.5, top - 6, str(to), "middle"))
    width, height = left + n * cell + 4, top + n * cell + 4
    axis = label_text(left, 12, "to state →", class_="axis")
    return svg(width, height, axis, *cells, label="transition probabilities", class_="figure heat")


def cell_text(x: float, y: float, text: str, shade: float) -> Markup:
    """Write a number into a cell, in the colour that its shade leaves readable.

    Where light and dark are equally readable depends on the colours of the page: at 0.6 of the
    accent's on a dark one, at 0.78 on a light one.
    """
    kind = "value over" if shade > 0.78 else "value middle" if shade > 0.6 else "value"
    return label_text(x, y, text, "middle", kind)


def graph(contents: Contents) -> Markup:
    """Draw the strongest transitions of the largest states around a circle."""
    model = contents.model
    found = strong_transitions(model, MOST_RING)
    labels = shortened([contents.label(k) for k in found.states.tolist()], 18)
    words = dict(zip(found.states.tolist(), labels, strict=True))
    radius, level = 185.0, 238.0
    middle = 250.0 + _LETTER * max(map(columns_of, words.values()))
    place = {
        int(k): (middle + radius * x, level - radius * y)
        for k, x, y in zip(found.states, found.x, found.y, strict=True)
    }
    shares = model.state_shares
    size = {k: 11.0 + 15.0 * math.sqrt(shares[k] / shares.max()) for k in place}
    edges = [_arrow(contents, edge, place, size, (middle, level)) for edge in found.edges]
    nodes = []
    stay = np.diagonal(model.transmat)
    for k, (x, y) in place.items():
        out = math.hypot(x - middle, y - level) or 1.0
        far = radius + size[k] + 16.0
        tx, ty = middle + (x - middle) / out * far, level + (y - level) / out * far
        side = "middle" if abs(x - middle) < 40 else ("start" if x > middle else "end")
        tip = f"state {k}: {shares[k]:.1%} of the steps, probability of staying {percent(stay[k])}"
        nodes.append(
            tag(
                "g",
                tag("circle", cx=x, cy=y, r=size[k] + 1.0 + 5.0 * float(stay[k]), class_="ring"),
                tag("circle", cx=x, cy=y, r=size[k], class_="disc"),
                label_text(x, y + 4.5, str(k), "middle", "number"),
                label_text(tx, ty + 4, words[k], side, "word") if words[k] else None,
                class_=f"node {color_class(contents, k)}", data_state=k, data_tip=tip,
            )
        )  # fmt: skip
    return svg(2 * middle, 2 * level, *edges, *nodes, label="strongest transitions between states",
               class_="figure graph")  # fmt: skip


def _arrow(
    contents: Contents,
    edge: Edge,
    place: dict[int, tuple[float, float]],
    size: dict[int, float],
    centre: tuple[float, float],
) -> Markup:
    """Draw a curve that bends towards the centre, with a head where it arrives."""
    width = 1.0 + 5.0 * edge.probability
    way, head = arrow(
        place[edge.source], place[edge.target], centre, width,
        (size[edge.source] + 7.0, size[edge.target] + 9.0),
    )  # fmt: skip
    ends = f"{contents.name(edge.source)} → {contents.name(edge.target)}"
    return tag(
        "g",
        tag("path", d=way, class_="way", stroke_width=round(width, 2)),
        tag("path", d=head, class_="head"),
        tag("path", d=way, class_="wide"),
        class_=f"edge {color_class(contents, edge.source)}", data_from=edge.source,
        data_to=edge.target, data_tip=f"{ends}: {percent(edge.probability)}",
    )  # fmt: skip


def dwell_times(contents: Contents) -> Markup:
    """Draw how long states last: in the model, and in the decoded data."""
    shown = contents.states[:MOST_DWELL]
    runs = contents.decoded.runs if contents.decoded else None
    seen = {
        entry.state: float(runs[entry.state].mean())
        for entry in shown
        if runs is not None and len(runs[entry.state])
    }
    names = shortened([contents.name(entry.state) for entry in shown])
    left, row = margin(names), 24.0
    width = max(520.0, left + 300.0)
    ends = dwell_ends(contents, [entry.state for entry in shown])
    highest = max([entry.dwell for entry in shown] + list(seen.values()))
    # Of an interval without an end only the beginning is drawn.
    highest = max([highest, *(high for _, high in ends.values() if high < 20.0 * highest)])
    is_log = highest > 30.0
    top = math.log10(highest * 1.15) if is_log else highest * 1.05

    def place(steps: float) -> float:
        share = math.log10(max(steps, 1.0)) / max(top, 1e-9) if is_log else steps / top
        return left + share * (width - left - 60.0)

    rows = []
    lasting = None if contents.model.posterior.durations is None else contents.model.durations
    base = place(1.0) if is_log else left
    for i, entry in enumerate(shown):
        y = 14.0 + i * row
        kind = color_class(contents, entry.state)
        tip = f"state {entry.state}: {entry.stay} steps in the model"
        if lasting is not None:
            own = lasting[entry.state]
            tip += f", {own.kind}, standard deviation {math.sqrt(own.variance):.1f}"
            tip += "" if own.shape is None else f", shape {own.shape}"
        if entry.state in ends:
            low, high = ends[entry.state]
            tip += f" ({readable(low)} to {readable(high)})"
        if entry.state in seen:
            tip += f", {seen[entry.state]:.2f} in the decoded data"
        rows.append(label_text(left - 8, y + 4, names[i], "end"))
        bar = max(place(entry.dwell) - base, 1.0)
        rows.append(
            tag("rect", x=base, y=y - 6, width=bar, height=12, rx=3,
                class_=f"bar {kind}", data_tip=tip)
        )  # fmt: skip
        if entry.state in ends:
            begin, end = (min(place(value), width - 50.0) for value in ends[entry.state])
            rows.append(tag("line", x1=begin, x2=end, y1=y, y2=y, class_="interval", data_tip=tip))
            bar = max(bar, end - base)
        if entry.state in seen:
            x = place(seen[entry.state])
            rows.append(tag("line", x1=x, x2=x, y1=y - 9, y2=y + 9, class_="seen", data_tip=tip))
        rows.append(
            label_text(max(base + bar, place(seen.get(entry.state, 0.0))) + 8, y + 4,
                  entry.stay)
        )  # fmt: skip
    return svg(width, 14.0 + len(shown) * row, *rows, label="how long states last, in steps")


def dwell_ends(contents: Contents, states: list[int]) -> dict[int, tuple[float, float]]:
    """Return the intervals of the dwell times of some states, where there are any."""
    if contents.intervals is None:
        return {}
    short, long = contents.intervals.dwell
    return {k: (float(short[k]), float(long[k])) for k in states}


def sticks(weights: np.ndarray, effective: float) -> Markup:
    """Draw the weights of the HDP, the largest first."""
    width, height, left, bottom = 520.0, 220.0, 50.0, 34.0
    ordered = np.sort(weights)[::-1]
    n = len(ordered)
    wide = (width - left - 10.0) / n
    high = float(ordered[0]) * 1.08
    drawn = []
    for tick in nice_ticks(0.0, high):
        y = (height - bottom) * (1.0 - tick / high)
        drawn.append(tag("line", x1=left, x2=width - 10, y1=y, y2=y, class_="grid"))
        drawn.append(label_text(left - 8, y + 4, f"{tick:.3g}", "end"))
    for i, weight in enumerate(ordered):
        tall = (height - bottom) * float(weight) / high
        drawn.append(
            tag("rect", x=left + (i + 0.12) * wide, y=height - bottom - tall, width=wide * 0.76,
                height=max(tall, 0.5), rx=min(2.0, wide / 4), class_="stick",
                data_tip=f"{i + 1}. weight: {weight:.4f}")
        )  # fmt: skip
    at = left + min(effective, n) * wide
    drawn.append(tag("line", x1=at, x2=at, y1=4, y2=height - bottom, class_="effect"))
    side = "end" if at > width / 2 else "start"
    note = f"{effective:.1f} effective states"
    drawn.append(label_text(at + (-8 if side == "end" else 8), 16, note, side, "note"))
    drawn.append(
        label_text((left + width) / 2, height - 10, "states, by weight E[π]", "middle", "axis")
    )
    return svg(width, height, *drawn, label="weights of the states")


def decoded_sequence(contents: Contents, example: Example) -> Markup:
    """Draw a sequence of numbers, one panel per column, with its states below."""
    n = len(example.path)
    columns = shown_columns(contents, example)
    panel = 88.0 if len(columns) <= 4 else 38.0
    left, width, gap = 76.0, 960.0, 30.0
    wide = (width - left - 8.0) / n
    drawn = []
    for row, d in enumerate(columns):
        top = row * (panel + gap) + 22.0
        drawn.append(_panel(example, d, left, top, wide, panel))
    top = len(columns) * (panel + gap) + 8.0
    for state, begin, end in stays(example.path):
        x = left + begin * wide
        across = (end - begin) * wide
        tip = f"state {state}, steps {example.begin + begin} to {example.begin + end - 1}"
        drawn.append(
            tag("rect", x=x, y=top, width=across, height=26, class_=f"band "
                f"{color_class(contents, state)}", data_tip=tip)
        )  # fmt: skip
        if across > 18:
            kind = f"number {color_class(contents, state)}"
            drawn.append(label_text(x + across / 2, top + 17.5, str(state), "middle", kind))
    drawn.append(label_text(left - 8, top + 17, "state", "end", "axis"))
    for tick in nice_ticks(example.begin, example.begin + n, 8):
        x = min(left + (tick - example.begin + 0.5) * wide, width - 24.0)
        drawn.append(label_text(x, top + 44, f"{tick:,.0f}", "middle"))
    return svg(width, top + 52.0, *drawn, label="a sequence with its decoded states")


def shown_columns(contents: Contents, example: Example) -> list[int]:
    """Return the columns of a sequence to draw: of too many those in which states differ most."""
    n = example.values.shape[1]
    if n <= MOST_PANELS:
        return list(range(n))
    if contents.profile is None or len(contents.profile.names) != n:
        return list(range(MOST_PANELS))
    return [int(d) for d in contents.profile.telling(MOST_PANELS)]


def _panel(
    example: Example, column: int, left: float, top: float, wide: float, panel: float
) -> Markup:
    values = example.values[:, column]
    known = values[~np.isnan(values)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    span = (high - low) or 1.0
    size = max(abs(low), abs(high))
    parts: list[str] = []
    pen_down = False
    for t, value in enumerate(values):
        if np.isnan(value):
            pen_down = False
            continue
        x, y = left + (t + 0.5) * wide, top + panel * (1.0 - (value - low) / span)
        parts.append(f"{'L' if pen_down else 'M'}{x:.1f} {y:.1f}")
        pen_down = True
    return join(
        tag("line", x1=left, x2=left + wide * len(values), y1=top + panel, y2=top + panel,
            class_="grid"),
        tag("path", d="".join(parts), class_="trace") if parts else None,
        label_text(left - 8, top + 8, readable(high, size), "end"),
        label_text(left - 8, top + panel + 2, readable(low, size), "end"),
        label_text(left, top - 6, shortened([example.columns[column]], 60)[0], class_="axis"),
    )  # fmt: skip


def margin(names: list[str]) -> float:
    """Return the room that names need on the left."""
    return 16.0 + _LETTER * max(map(columns_of, names))
