"""Dependencies point down only, and the package loads nothing before it is used."""

import ast
import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import sojourn

ROOT = Path(sojourn.__file__).parent

# What each layer may import of the others, from the ground up.  A layer not named here fails.
ALLOWED = {
    "warnings": set(),
    "kernels": set(),
    "sequences": set(),
    "vocabulary": {"sequences"},
    "families": {"kernels", "sequences", "vocabulary"},
    "transitions": {"kernels", "sequences"},
    "sources": {"kernels", "sequences", "vocabulary"},
    "inference": {"kernels", "sequences", "families", "transitions", "sources"},
    "moves": {"kernels", "sequences", "families", "transitions", "sources", "inference"},
    "backends": {
        "kernels",
        "sequences",
        "families",
        "transitions",
        "sources",
        "inference",
        "package",
    },
    "sampling": {"kernels", "sequences", "families", "transitions", "inference"},
    "progress": {"inference"},
    "random_state": set(),
    "data": {"sequences", "families", "sources", "inference"},
    "compute": {"kernels", "inference", "backends"},
    "results": {
        "kernels",
        "sequences",
        "families",
        "sources",
        "inference",
        "backends",
        "data",
        "compute",
        "package",
    },
}
# What was learned, and what is a function of it: none of these knows an estimator.
ALLOWED["prediction"] = set(ALLOWED) - {"progress", "warnings"}
FUNCTIONS = set(ALLOWED) - {"progress", "warnings", "results", "data"}
ALLOWED["persist"] = set(FUNCTIONS)
ALLOWED["interop"] = set(FUNCTIONS)
ALLOWED["matching"] = set(FUNCTIONS)
ALLOWED["model_selection"] = set(FUNCTIONS)
ALLOWED["report"] = FUNCTIONS | {"persist", "package"}
ALLOWED["plot"] = FUNCTIONS | {"report"}
ALLOWED["models"] = set(ALLOWED) - {"report", "plot", "model_selection", "matching"}
ALLOWED["demo"] = set(ALLOWED)
ALLOWED["reproduce"] = set(ALLOWED)
ALLOWED["cli"] = {*ALLOWED, "package"}
ALLOWED["package"] = set()  # sojourn/__init__.py loads its names late

# Imports inside functions that the order would forbid, or that would cost too much at import.
LATE = {
    "sequences": {"kernels"},
    # An estimator offers what is made of a fitted model.
    "models": {"model_selection", "report"},
    "model_selection": {"plot"},
}

# Where modules are imported by name: out of sight of this test, and so only where it must be.
BY_NAME = {"package"}

# Kernels work on arrays: they know these libraries and no others.
LIBRARIES_OF_KERNELS = {"numpy", "scipy", "numba", "llvmlite", "torch", "triton"}

MODULES = sorted(ROOT.rglob("*.py"))


def layer_of(path):
    part = path.relative_to(ROOT).parts[0]
    return "package" if part == "__init__.py" else part.removesuffix(".py")


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports_of(node, late=False):
    """Yield (module, late) for every import under a node, but those for type checkers."""
    if isinstance(node, ast.Import):
        yield from ((alias.name, late) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "imports are absolute"
        # `from sojourn import kernels` names a module: what matters is the whole name.
        whole = node.module == "sojourn"
        yield from (
            (f"{node.module}.{alias.name}" if whole else node.module, late) for alias in node.names
        )
    elif is_type_checking(node):
        for child in node.orelse:
            yield from imports_of(child, late)
    else:
        inside = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from imports_of(child, inside)


def layers_imported(path):
    """Yield (layer, late) for every import of the package by a file."""
    for name, late in imports_of(ast.parse(path.read_text())):
        first, *rest = name.split(".")
        if first != "sojourn":
            continue
        if not rest:
            yield "package", late
        elif rest[0] in sojourn.__all__:
            yield sojourn._HOMES[rest[0]].split(".")[1], late
        elif rest[0] == "__version__":
            yield "package", late
        else:
            yield rest[0], late


def test_the_walk_finds_imports_wherever_they_hide():
    source = """
import sojourn.models
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    import sojourn.hidden
else:
    from sojourn import persist
try:
    from sojourn.families.base import Family
except ImportError:
    pass
class A:
    from sojourn.sources import MemorySource
    def f(self):
        from sojourn.kernels import cpu
"""
    assert set(imports_of(ast.parse(source))) == {
        ("sojourn.models", False),
        ("typing", False),
        ("sojourn.persist", False),
        ("sojourn.families.base", False),
        ("sojourn.sources", False),
        ("sojourn.kernels", True),
    }


def test_every_module_has_a_layer():
    unknown = {layer_of(path) for path in MODULES} - set(ALLOWED)
    assert not unknown, f"give {sorted(unknown)} a place in ALLOWED"
    assert len(MODULES) > 20  # the files are found at all


def test_the_order_of_layers_has_no_cycle():
    placed = set()
    for layer, below in ALLOWED.items():
        assert below <= placed | {"package"}, layer
        placed.add(layer)


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_dependencies_point_down_only(path):
    layer = layer_of(path)
    for target, late in layers_imported(path):
        allowed = ALLOWED[layer] | {layer}
        if late:
            allowed |= LATE.get(layer, set())
        assert target in allowed, f"{path.relative_to(ROOT)} ({layer}) imports {target}"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_are_imported_by_name_only_where_it_must_be(path):
    called = {
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
    }
    by_name = called & {"import_module", "importlib.import_module", "__import__"}
    assert not by_name or layer_of(path) in BY_NAME


def test_kernels_know_arrays_only():
    for path in (ROOT / "kernels").rglob("*.py"):
        for name, _ in imports_of(ast.parse(path.read_text())):
            library = name.split(".")[0]
            known = library in LIBRARIES_OF_KERNELS | {"sojourn"} | sys.stdlib_module_names
            assert known, f"{path.name} imports {name}"


def loaded_after(statement):
    """Top-level modules in a fresh interpreter after a statement."""
    # scikit-learn loads pandas where it is installed, and pandas PyArrow: that is not ours.
    hide = "import sys\nsys.modules['pandas'] = None"
    code = f"{hide}\n{statement}\nimport json\nprint(json.dumps(sorted(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in json.loads(run.stdout)}


HEAVY = {"torch", "matplotlib", "dask", "numba", "sklearn", "pyarrow", "scipy", "rich", "typer"}


def test_importing_the_package_loads_nothing_heavy():
    loaded = loaded_after("import sojourn")
    assert "sojourn" in loaded
    assert not loaded & HEAVY


def test_the_estimators_load_neither_the_gpu_nor_plots_nor_a_cluster():
    loaded = loaded_after("from sojourn import HMM, HDPHMM, Categorical, load")
    assert {"sklearn", "numba"} <= loaded  # the names are really there
    assert not loaded & {"torch", "matplotlib", "dask", "pyarrow", "rich", "typer"}


@pytest.mark.parametrize("name", sojourn.__all__)
def test_every_public_name_is_there_and_documented(name):
    value = getattr(sojourn, name)
    assert value.__doc__
    assert value.__doc__.strip()
    # A NamedTuple or dataclass without a docstring gets its signature for one.
    assert not value.__doc__.startswith(f"{name}(")


def test_public_names_are_the_ones_that_load():
    assert set(sojourn.__all__) == set(sojourn._HOMES)
    assert set(sojourn.__all__) <= set(dir(sojourn))
    for name, home in sojourn._HOMES.items():
        assert getattr(sojourn, name) is getattr(importlib.import_module(home), name)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'sojourn' has no attribute 'GMM'"):
        _ = sojourn.GMM
