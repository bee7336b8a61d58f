"""Tables of the gallery's pages on data that are not part of the repository.

python -m experiments.real_tables
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.real import PICTURES, RESULTS

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def mocap6(result: dict[str, Any]) -> str:
    """Tabulate Hamming distances."""
    found, published = result["found"]["mocap6"], result["published"]["mocap6"]
    low, high = published["hamming_distance"]
    rows = [
        "| | Hamming distance | states | seconds |",
        "|---|---|---|---|",
        f"| sticky HDP-HMM and beta-process HMM, published | {low} to {high} | | |",
        f"| bnpy | {published['bnpy']['hamming_distance']} | | {published['bnpy']['seconds']} |",
    ]
    rows += [
        f"| `{found['model']}`, seed {run['seed']} | {run['hamming_distance']:.2f} | "
        f"{run['states']} | {run['seconds']:.0f} |"
        for run in found["runs"]
    ]
    return "\n".join([_where(result, found["steps"]), "", *rows])


def chromatin(result: dict[str, Any]) -> str:
    """Tabulate the states."""
    found = result["found"]["chromatin"]
    rows = ["| bins | in a row | likeliest marks, with a probability above 0.1 |", "|---|---|---|"]
    rows += [
        f"| {state['share']:.1%} | {state['bins_in_a_row']:.0f} | "
        f"{', '.join(state['marks']) or 'none'} |"
        for state in found["states"]
    ]
    text = (
        f"The log likelihood per bin is {found['log_likelihood_per_step']:.3f}; with independent "
        f"marks it is {found['independent_marks']:.3f}. No likelihood is published for these data."
    )
    return "\n".join([_where(result, found["steps"]), "", *rows, "", text])


def _where(result: dict[str, Any], n_steps: int) -> str:
    machine = result["machine"]
    return (
        f"From {n_steps:,} steps, on {machine['cores']} cores ({machine['processor']}, "
        f"{result['date']}, `{result['command']}`):"
    )


PAGES: dict[str, Callable[[dict[str, Any]], str]] = {"mocap6": mocap6, "chromatin": chromatin}


def updated(text: str, name: str, result: dict[str, Any]) -> str:
    """Return a page with the figures of the result file."""
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}\n{PAGES[name](result)}\n{END}{after}"


def read_result(path: Path = RESULTS) -> dict[str, Any]:
    """Read the result file."""
    return json.loads(path.read_text())


def write_pages() -> None:
    """Write the figures into the pages whose data were measured."""
    result = read_result()
    for name in PAGES:
        if name in result["found"]:
            page = PICTURES / f"{name}.md"
            page.write_text(updated(page.read_text(), name, result))


if __name__ == "__main__":
    write_pages()
