"""The shape of the source: dependencies point down, nothing is too large, nothing loads too early.

The rules are functions in tests/support/architecture.py.  Each is held to a small made-up source
that breaks it, and then to the package.
"""

import ast
import importlib
import json
import re
import subprocess
import sys
from textwrap import dedent
from xml.etree import ElementTree

import pytest

import sojourn
from tests.support import architecture as rules
from tools import thresholds
from tools.module_graph import BEGIN, END, PAGE, PICTURE, contents, draw, picture, reduced, updated
from tools.source import ROOT, Module, cycles, imports_of, read_modules

# From the ground up.  A module imports from rows below its own; layers in a row do not know each
# other.  A layer that is not named here fails.
LAYERS = (
    (
        "estimator",
        "file_values",
        "hmmlearn_names",
        "kernels",
        "memory",
        "random_state",
        "warnings",
        "whole_files",
    ),
    ("durations", "labels"),
    ("sequences",),
    ("forms",),
    ("vocabulary",),
    ("families", "sources", "transitions"),
    ("inference",),
    ("backends", "sampling"),
    ("moves",),
    ("compute", "data", "progress"),
    ("results",),
    ("analysis",),
    ("prediction",),
    ("model_checks",),
    ("interop", "matching", "persist"),
    ("report",),
    ("plot",),
    ("model_selection",),
    ("models",),
    ("demo",),
    ("cli",),
    ("__main__",),
)

# Where modules are imported by name: out of sight of these rules, and so only where it must be.
BY_NAME = {"sojourn", "persist", "sojourn.kernels.cpu.aside"}

# Kernels work on arrays: they know these libraries and no others.
LIBRARIES_OF_KERNELS = {"sojourn", "numpy", "scipy", "numba", "llvmlite", "torch", "triton"}

# Functions of a fitted model: they know no estimator.
FUNCTIONS_OF_A_MODEL = {"interop", "matching", "model_selection", "persist", "plot", "report"}

# Longer than the others may be, each with the reason.  Kernels only.
LONG_MODULES: dict[str, str] = {}
ONE_LOOP = "one loop over the steps, whose arrays a call would have to pass on"
ONE_LAUNCH = "one launch: registers and shared memory do not outlive a function that is called"
LONG_FUNCTIONS = {
    "kernels: smooth_units": ONE_LOOP,
    "kernels: strip_units": ONE_LOOP,
    "kernels: copy_units": ONE_LOOP,
    "kernels: backward_step": ONE_LOOP,
    "kernels: _backward": ONE_LOOP,
    "kernels: _student_rows": ONE_LOOP,
    "kernels: single_rows": ONE_LOOP,
    "kernels: direct_assignment_sweep": ONE_LOOP,
    "kernels: _tile": "writes the LLVM code of one tile from its first to its last instruction",
    "kernels: run_chains": ONE_LAUNCH,
    "kernels: warp_chains": ONE_LAUNCH,
    "kernels: panel_chains": ONE_LAUNCH,
    "kernels: shared_chains": ONE_LAUNCH,
    "kernels: copy_chains": ONE_LAUNCH,
    "kernels: tile_chains": ONE_LAUNCH,
    "kernels: tile_combine": ONE_LAUNCH,
    "kernels: _viterbi_kernel": ONE_LAUNCH,
}

MODULES = read_modules()
HOMES = sojourn._HOMES


def made_up(**sources):
    """Modules of a package `sojourn`; two underscores stand for a dot."""
    modules = {"sojourn": Module("sojourn", "", True)}
    for name, text in sources.items():
        whole = f"sojourn.{name.replace('__', '.')}"
        modules[whole] = Module(whole, dedent(text))
    return modules


def holds(problems):
    assert not problems, "\n" + "\n".join(problems)


# ---- the walk -----------------------------------------------------------------------------------

HIDDEN = """
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


def test_the_walk_finds_imports_wherever_they_hide():
    assert {(found.target, found.late) for found in imports_of(ast.parse(HIDDEN))} == {
        ("sojourn.models", False),
        ("typing.TYPE_CHECKING", False),
        ("sojourn.persist", False),
        ("sojourn.families.base.Family", False),
        ("sojourn.sources.MemorySource", False),
        ("sojourn.kernels.cpu", True),
    }


def test_the_files_are_found():
    assert len(MODULES) > 100
    assert {"sojourn", "sojourn.kernels", "sojourn.kernels.reference"} <= set(MODULES)


# ---- who knows whom -----------------------------------------------------------------------------


def test_a_cycle_is_found_through_a_function_and_through_a_name_of_the_package():
    modules = made_up(
        a="def f():\n    from sojourn import B", b="import sojourn.c", c="from sojourn import a"
    )
    problems = rules.import_cycles(modules, {"B": "sojourn.b"})
    assert problems == ["sojourn.a ↔ sojourn.b ↔ sojourn.c"]
    modules = made_up(a="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import sojourn.b",
                      b="import sojourn.a")  # fmt: skip
    assert not rules.import_cycles(modules, {})


def test_every_group_of_a_graph_is_found():
    edges = {"a": {"b"}, "b": {"a", "c"}, "c": {"d"}, "d": {"c"}, "e": {"a"}}
    assert cycles(edges) == [["a", "b"], ["c", "d"]]


def test_no_module_reaches_itself():
    holds(rules.import_cycles(MODULES, HOMES))


def test_layers_out_of_order_are_found():
    rows = (("low", "lower"), ("high",))
    modules = made_up(
        low__a="from sojourn.lower import x",
        lower="from sojourn import H",
        high="from sojourn.low import a\nfrom sojourn import __version__",
    )
    assert rules.layers_out_of_order(modules, {"H": "sojourn.high"}, rows) == [
        "sojourn.low.a (low) imports sojourn.lower (lower)",
        "sojourn.lower (lower) imports sojourn.high (high)",
    ]
    (problem,) = rules.layers_out_of_order(made_up(new=""), {}, rows)
    assert "'new' is in no layer" in problem


def test_dependencies_point_down_only():
    holds(rules.layers_out_of_order(MODULES, HOMES, LAYERS))


def test_importing_the_whole_package_is_found():
    modules = made_up(a="def f():\n    import sojourn as sj", b="from sojourn import a")
    assert rules.whole_package_imported(modules) == ["sojourn.a imports sojourn as a whole"]


def test_names_of_the_package_are_imported_one_by_one():
    holds(rules.whole_package_imported(MODULES))


def test_imports_by_name_are_found():
    modules = made_up(a="x = importlib.import_module('b')", persist="import_module('b')")
    assert rules.imported_by_name(modules, {"persist"}) == [
        "sojourn.a calls importlib.import_module"
    ]


def test_modules_are_imported_by_name_only_where_it_must_be():
    holds(rules.imported_by_name(MODULES, BY_NAME))


def test_imports_of_estimators_are_found():
    modules = made_up(plot="def f():\n    from sojourn import HMM", cli="from sojourn import HMM",
                      models="", report__page="import sojourn.models")  # fmt: skip
    problems = rules.imported_from(modules, {"HMM": "sojourn.models"}, {"plot", "report"}, "models")
    assert problems == [
        "sojourn.plot imports sojourn.models",
        "sojourn.report.page imports sojourn.models",
    ]


def test_functions_of_a_fitted_model_know_no_estimator():
    holds(rules.imported_from(MODULES, HOMES, FUNCTIONS_OF_A_MODEL, "models"))


def test_libraries_that_are_not_for_kernels_are_found():
    modules = made_up(kernels__a="import numpy\nimport sklearn.base", other="import sklearn")
    assert rules.libraries_imported(modules, "kernels", {"numpy"}) == [
        "sojourn.kernels.a imports sklearn.base"
    ]


def test_kernels_know_arrays_only():
    known = LIBRARIES_OF_KERNELS | sys.stdlib_module_names
    holds(rules.libraries_imported(MODULES, "kernels", known))


# ---- how large ----------------------------------------------------------------------------------

LONG_FUNCTION = '''
class A:
    def short(self):
        """Has a docstring.

        {doc}
        """
        {lines}

    def long(self):
        {lines}
        return 1
'''.format(doc="\n        ".join(["text"] * 70), lines="\n        ".join(["pass"] * 59))


def test_what_is_too_long_is_found():
    modules = made_up(a="\n" * 500, b="\n" * 501)
    assert rules.long_modules(modules) == ["sojourn.b has 501 lines"]
    assert not rules.long_modules(modules, {"sojourn.b": "reason"})
    modules = made_up(a__b=LONG_FUNCTION)
    assert rules.long_functions(modules) == ["sojourn.a.b: A.long has 61 lines"]
    assert rules.long_functions(modules, {"a: A.lo": "another"})
    assert not rules.long_functions(modules, {"a: A": "everything in it"})


def test_no_module_is_too_long():
    holds(rules.long_modules(MODULES, LONG_MODULES))


def test_no_function_is_too_long():
    holds(rules.long_functions(MODULES, LONG_FUNCTIONS))


def test_only_kernels_may_be_longer_and_only_those_that_are():
    assert all(name.startswith("sojourn.kernels.") for name in LONG_MODULES)
    assert all(name.startswith("kernels: ") for name in LONG_FUNCTIONS)
    long = {problem.split()[0] for problem in rules.long_modules(MODULES)}
    assert set(LONG_MODULES) <= long
    long = {problem.split(": ")[1].split(" has ")[0] for problem in rules.long_functions(MODULES)}
    unused = {name for name in LONG_FUNCTIONS if name.removeprefix("kernels: ") not in long}
    assert not unused, f"these are no exceptions any more: {sorted(unused)}"


def test_a_class_with_too_many_methods_is_found():
    methods = "\n".join(f"    def f{n}(self): pass" for n in range(26))
    modules = made_up(a=f"class A:\n{methods}", b=f"class B:\n{methods[:-25]}")
    assert rules.many_methods(modules) == ["sojourn.a: A has 26 methods"]


def test_no_class_has_too_many_methods():
    holds(rules.many_methods(MODULES))


def test_a_constructor_with_too_many_parameters_is_found():
    given = ", ".join(f"p{n}=0" for n in range(27))
    modules = made_up(
        models__a=f"class A:\n    def __init__(self, {given}): pass",
        models__b=f"class B:\n    def __init__(self, x, *, {given}): pass",
    )
    assert rules.many_parameters(modules, "models") == ["sojourn.models.b: B has 28 parameters"]


def test_estimators_have_at_most_as_many_parameters_as_users_can_choose():
    holds(rules.many_parameters(MODULES, "models"))


# ---- what it knows, and what it is called -------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "x = 1  # on the Device",
        "getattr(batch, 'is_complete', False)",
        "hasattr(batch, 'values')",
        "isinstance(place, ClusterEngine)",
        "isinstance(x, (int, torch.Tensor))",
    ],
)
def test_asking_for_a_place_is_found(line):
    (problem,) = rules.knows_where(made_up(inference__a=f"\n{line}", backends=line), "inference")
    assert problem.startswith("sojourn.inference.a, line 2: ")


def test_other_questions_are_fine():
    modules = made_up(inference="getattr(x, name)\nisinstance(x, int)")
    assert not rules.knows_where(modules, "inference")


def test_inference_does_not_know_where_numbers_are_computed():
    holds(rules.knows_where(MODULES, "inference"))


def test_a_name_with_two_meanings_is_found():
    modules = made_up(a="class Place: pass\nclass _P: pass", b="class Place: pass\nclass _P: pass")
    assert rules.names_with_two_meanings(modules) == [
        "Place is defined in sojourn.a and in sojourn.b"
    ]


def test_a_class_has_a_name_of_its_own():
    holds(rules.names_with_two_meanings(MODULES))


# ---- the picture --------------------------------------------------------------------------------


def test_an_edge_that_follows_from_others_is_not_drawn():
    assert reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {
        "a": {"b"},
        "b": {"c"},
        "c": set(),
    }
    cycle = {"a": {"b", "c"}, "b": {"a", "c"}, "c": set()}
    assert reduced(cycle) == cycle


def test_the_picture_has_every_module_and_every_arrow():
    modules = made_up(a="import sojourn.b.c", b="", b__c="import sojourn.d", d="")
    text = draw(contents(modules), {"a": {"b", "d"}, "b": {"d"}, "d": set()})
    tree = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert [found.text for found in tree.iter(f"{space}text")] == ["a", "b", "c", "d"]
    assert len(tree.findall(f"{space}path")) == 2


def test_the_picture_in_the_documents_is_that_of_the_source():
    again = "draw it again: python -m tools.module_graph --write"
    assert PICTURE.read_text() == picture(MODULES, HOMES), again
    page = PAGE.read_text()
    assert page.count(BEGIN) == page.count(END) == 1
    assert updated(page) == page, again


def test_the_thresholds_in_the_documents_are_those_of_the_source():
    page = PAGE.read_text()
    assert thresholds.updated(page) == page, "write them: python -m tools.thresholds --write"


# ---- the tests themselves -----------------------------------------------------------------------

TESTS = read_modules(ROOT / "tests")

# Tests of a benchmark or an experiment: they, and no others, may import one.
TESTED_PROGRAMS = {
    "tests.backends.dask.test_sums": {"benchmarks.cluster"},  # its model of the costs of a step
    "tests.benchmarks.test_gpu_page": {"benchmarks.gpu_tables"},  # its tables in the documents
    "tests.moves.test_moves": {"experiments.number_of_states_tables"},  # its tables
    "tests.moves.test_warmup": {"experiments.number_of_states"},  # its fits without moves
    "tests.test_docs": {"benchmarks.readme"},  # its figures in the documents
}


def test_what_tests_must_not_import_is_found():
    modules = {
        "tests.a.test_x": Module(
            "tests.a.test_x",
            "from tests.b import test_y\nfrom tests.b.test_y import z\nimport tests.support.c\n"
            "from experiments.d import e\nfrom benchmarks import f, g",
        )
    }
    assert rules.tests_imported(modules) == [
        "tests.a.test_x imports tests.b.test_y",
        "tests.a.test_x imports tests.b.test_y.z",
    ]
    assert rules.programs_imported(modules, {"tests.a.test_x": {"benchmarks.f"}}) == [
        "tests.a.test_x imports experiments.d.e",
        "tests.a.test_x imports benchmarks.g",
    ]


def test_no_test_imports_another():
    holds(rules.tests_imported(TESTS))


def test_programs_are_imported_only_to_test_them():
    others = {
        name: module for name, module in TESTS.items() if not name.startswith("tests.experiments.")
    }
    holds(rules.programs_imported(others, TESTED_PROGRAMS))


def test_paths_of_tests_named_in_documents_exist():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.*")]
    named = {
        (page.name, path)
        for page in pages
        if page.suffix in (".md", ".py")
        for path in re.findall(r"\btests/[\w/]+(?:\.(?:py|txt))?", page.read_text())
    }
    assert len(named) > 5
    holds([f"{page} names {path}" for page, path in named if not (ROOT / path).exists()])


# ---- what is loaded, and when -------------------------------------------------------------------


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
    assert {"scipy", "numba"} <= loaded  # the names are really there
    assert not loaded & {"torch", "matplotlib", "dask", "pyarrow", "rich", "typer", "sklearn"}


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
