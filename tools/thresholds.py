"""Print every threshold of moves and of the warm-up as a Markdown table, with its source.

python -m tools.thresholds
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any, NamedTuple

from sojourn.inference.local import SHARED_STEPS
from sojourn.inference.occupancy import USED_SHARE
from sojourn.moves.settings import MoveSettings


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
        "inference.local.SHARED_STEPS",
        SHARED_STEPS,
        "Steps of a chunk from which the entropies that pairs of states share are estimated.",
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


def main() -> None:
    """Print the table."""
    print("| threshold | value | meaning | source |\n|---|---|---|---|")
    for name, value, meaning, source in thresholds():
        shown = f"{value:,}" if isinstance(value, int) else f"{value}"
        print(f"| `{name}` | {shown} | {meaning} | {source} |")


if __name__ == "__main__":
    main()
