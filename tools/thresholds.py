"""Print every threshold of moves and of the warm-up as a Markdown table, with its source.

python -m tools.thresholds
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from sojourn.inference.occupancy import USED_SHARE
from sojourn.inference.survey import SHARED_STEPS
from sojourn.moves.sample import SHARED_STEPS as SAMPLE_SHARED_STEPS
from sojourn.moves.settings import MoveSettings
from tools.source import ROOT

PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- thresholds: begin -->", "<!-- thresholds: end -->"


class Threshold(NamedTuple):
    """A row of the table."""

    name: str
    value: Any
    meaning: str
    source: str


# What moves use too, and is not theirs alone.
ELSEWHERE = [
    Threshold(
        "inference.occupancy.USED_SHARE",
        USED_SHARE,
        "Share of the mass above which a state counts as used.",
        "no experiment: a convention of `n_states_` and of the tables",
    ),
    Threshold(
        "inference.survey.SHARED_STEPS",
        SHARED_STEPS,
        "Steps of all the data from which the entropies that pairs of states share are estimated.",
        "no experiment: keeps their cost small beside forward-backward",
    ),
    Threshold(
        "moves.sample.SHARED_STEPS",
        SAMPLE_SHARED_STEPS,
        "The same of a sample; of more than 65,536 steps it is one in 32.",
        "no experiment: keeps their cost small beside forward-backward",
    ),
]


def thresholds() -> Iterator[Threshold]:
    """List the fields of the settings, with their meaning from the docstring."""
    described = meanings()
    for own in fields(MoveSettings):
        yield Threshold(own.name, own.default, described[own.name], own.metadata["source"])
    yield from ELSEWHERE


def meanings() -> dict[str, str]:
    """Read the parameters' descriptions in the class docstring."""
    text = (inspect.getdoc(MoveSettings) or "").split("Parameters\n----------\n")[1]
    entries = re.findall(r"^(\w+) : .*\n((?: {4}.*\n)+)", text, flags=re.MULTILINE)
    return {name: " ".join(meaning.split()) for name, meaning in entries}


def table() -> str:
    """Return the table in Markdown."""
    rows = ["| threshold | value | meaning | source |", "|---|---|---|---|"]
    for name, value, meaning, source in thresholds():
        shown = f"{value:,}" if isinstance(value, int) else f"{value}"
        rows.append(f"| `{name}` | {shown} | {meaning} | {source} |")
    return "\n".join(rows)


def updated(page: str) -> str:
    """Return the page with the table between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(updated(PAGE.read_text()))
    else:
        print(table())


if __name__ == "__main__":
    main()
