"""Read the package's source: its modules, who imports whom, and how large everything is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "sojourn"

Functions = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module: its dotted name and its text."""

    name: str
    text: str
    is_package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree."""
        return ast.parse(self.text)

    @property
    def n_lines(self) -> int:
        """Number of lines."""
        return len(self.text.splitlines())


class Import(NamedTuple):
    """One imported name: `target` is the module, or the module and the name in it."""

    module: str
    name: str | None
    late: bool  # inside a function

    @property
    def target(self) -> str:
        """The name with its module."""
        return self.module if self.name is None else f"{self.module}.{self.name}"


def read_modules(package: Path = PACKAGE) -> dict[str, Module]:
    """Return the modules of a package by their names."""
    modules = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package.parent).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        modules[name] = Module(name, path.read_text(), is_package)
    return modules


def is_type_checking(node: ast.AST) -> bool:
    """Say whether a node is ``if TYPE_CHECKING``."""
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports_of(node: ast.AST, late: bool = False) -> Iterator[Import]:
    """Yield every import under a node, except those for type checkers."""
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, None, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        yield from (Import(node.module or "", alias.name, late) for alias in node.names)
    elif is_type_checking(node):
        assert isinstance(node, ast.If)
        yield from (found for child in node.orelse for found in imports_of(child, late))
    else:
        inside = late or isinstance(node, Functions | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from imports_of(child, inside)


def resolve(found: Import, modules: Mapping[str, Module], homes: Mapping[str, str]) -> str | None:
    """Return the module that an import leads to, or None where it is not the package's.

    `homes` says where the names live that the package itself loads late.
    """
    package = next(iter(modules)).split(".")[0]
    if found.module.split(".")[0] != package:
        return None
    if found.module == package and found.name is not None and found.name in homes:
        return homes[found.name]
    return found.target if found.target in modules else found.module


def module_edges(
    modules: Mapping[str, Module], homes: Mapping[str, str], *, late: bool = True
) -> dict[str, set[str]]:
    """Return the modules that each module imports, inside functions too unless `late` is False."""
    edges = {}
    for name, module in modules.items():
        found = (one for one in imports_of(module.tree) if late or not one.late)
        targets = {resolve(one, modules, homes) for one in found}
        edges[name] = {target for target in targets if target is not None} - {name}
    return edges


def cycles(edges: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the groups of names that reach each other: strongly connected, larger than one."""
    reached = {name: reachable(name, edges) for name in edges}
    groups = {
        tuple(sorted(other for other in edges if other in reached[name] and name in reached[other]))
        for name in edges
        if name in reached[name]
    }
    return sorted(map(list, groups))


def reachable(name: str, edges: Mapping[str, set[str]]) -> set[str]:
    """Return every name that can be reached in at least one step."""
    found: set[str] = set()
    ahead = list(edges.get(name, ()))
    while ahead:
        one = ahead.pop()
        if one not in found:
            found.add(one)
            ahead.extend(edges.get(one, ()))
    return found


def functions_of(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Functions]]:
    """Yield every function and method with its qualified name, those inside others too."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, Functions | ast.ClassDef):
            name = f"{prefix}{node.name}"
            if not isinstance(node, ast.ClassDef):
                yield name, node
            yield from functions_of(node, f"{name}.")
        else:
            yield from functions_of(node, prefix)


def classes_of(tree: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield every class."""
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def length_of(node: Functions | ast.ClassDef) -> int:
    """Count the lines of a function or class without its docstring."""
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if ast.get_docstring(node) is not None:
        doc = node.body[0]
        lines -= (doc.end_lineno or doc.lineno) - doc.lineno + 1
    return lines


def methods_of(node: ast.ClassDef) -> list[str]:
    """Return the names of the methods and properties that a class defines itself."""
    return [child.name for child in node.body if isinstance(child, Functions)]
