"""Write the tables in docs/references.md from the result files.

python -m experiments.reference_tables
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parent.parent / "docs" / "references.md"


def exact_table(result: dict[str, Any]) -> list[str]:
    """Say how far each method is from the exact posterior."""
    lines = [
        "| method | start | mean distance | standard error | largest |",
        "|---|---|---|---|---|",
    ]
    for row, found in result["total_variation"].items():
        name, start = row.split(", ")
        lines.append(
            f"| `{name}` | {start.split()[0]} | {found['mean']:.3f} "
            f"| {found['standard_error']:.3f} | {found['largest']:.3f} |"
        )
    counts = "; ".join(f"{text} on {n}" for text, n in result["counts"].items())
    return [*lines, "", f"Of {result['problems']} data sets: {counts}."]


def corpus_table(result: dict[str, Any], part: str) -> list[str]:
    """Give held-out score and time of each method."""
    lines = [
        "| model | inference | nats per token | between seeds | seconds | passes, sweeps "
        "| states |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, row in result[part].items():
        model, inference = name.split()
        states = "–".join(map(str, row["states"])) if "states" in row else "45"
        spread = f"{row['spread']:.3f}" if row["spread"] else "one seed"
        lines.append(
            f"| {model} | `{inference}` | {row['score']:.3f} | {spread} "
            f"| {row['seconds']:.1f} | {row['passes']} | {states} |"
        )
    return lines


def described(result: dict[str, Any]) -> str:
    """Name machine, date and command."""
    where = result["machine"]
    return f"{where['cores']} cores ({where['processor']}), {result['date']}, `{result['command']}`"


def write_tables() -> None:
    """Put every table between its marks, where its result file exists."""
    page = PAGE.read_text()
    for name, makers in {
        "exact_posterior": {"exact": exact_table},
        "references": {
            "whole": lambda result: corpus_table(result, "whole"),
            "part": lambda result: corpus_table(result, "part"),
        },
    }.items():
        path = RESULTS / f"{name}.json"
        if not path.exists():
            continue
        result = json.loads(path.read_text())
        for mark, maker in makers.items():
            begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
            head, _, rest = page.partition(begin)
            tail = rest.partition(end)[2]
            body = "\n".join([*maker(result), "", f"({described(result)})"])
            page = f"{head}{begin}\n{body}\n{end}{tail}"
    PAGE.write_text(page)


if __name__ == "__main__":
    write_tables()
