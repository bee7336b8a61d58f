"""The docstrings of public classes, which the reference is made from."""

import inspect
import re

import pytest

import sojourn as sj

CLASSES = [
    name
    for name in sj.__all__
    if inspect.isclass(getattr(sj, name))
    and not issubclass(getattr(sj, name), BaseException)
    and len(inspect.signature(getattr(sj, name)).parameters)
]


RESULTS = ("Forecast", "PosteriorSamples", "Residuals", "SegmentTable")
"""Values that the library makes, and users read."""


def documented_parameters(docstring, title="Parameters"):
    """Return the names of the entries in a section of numpydoc, in their order."""
    _, _, rest = docstring.partition(f"{title}\n----------\n")
    section = re.split(r"\n\n\S[^\n]*\n-{3,}\n", rest)[0]
    entries = [line for line in section.splitlines() if line and not line[0].isspace()]
    return [entry.partition(" : ")[0] for entry in entries]


@pytest.mark.parametrize("name", RESULTS)
def test_each_field_of_a_result_is_documented(name):
    cls = getattr(sj, name)
    fields = [field for field in inspect.signature(cls).parameters if not field.startswith("_")]
    entries = documented_parameters(inspect.getdoc(cls), "Attributes")
    named = {field for entry in entries for field in entry.split(", ")}
    assert set(fields) <= named


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in RESULTS])
def test_each_constructor_parameter_has_an_entry_of_its_own(name):
    cls = getattr(sj, name)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    parameters = inspect.signature(cls).parameters.values()
    expected = [stars.get(parameter.kind, "") + parameter.name for parameter in parameters]
    assert documented_parameters(inspect.getdoc(cls)) == expected


def test_a_grouped_entry_is_found():
    parameters = "Parameters\n----------\na, b : int\n    Both.\nc : int\n    One."
    docstring = f"Title.\n\n{parameters}\n\nNotes\n-----\nd : not a parameter"
    assert documented_parameters(docstring) == ["a, b", "c"]
