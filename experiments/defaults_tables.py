"""Write the tables in docs/defaults.md from the result file.

python -m experiments.defaults_tables
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.results import place

RESULT = Path(__file__).parent / "results" / "defaults.json"
PAGE = Path(__file__).parent.parent / "docs" / "defaults.md"
NOT_MEASURED = "Not measured yet."
WAYS = ("defaults", "no_moves", "truth_given")
MANY_STATES, SHARE_OF_MANY = 30, 0.03
CLOSE = 0.001  # of hmmlearn's best log likelihood

Cells = dict[str, dict[str, Any]]


def is_right(states: int, true_states: int, accepted: list[int]) -> bool:
    """Say whether a number of states counts as right.

    Right is what is accepted for the data, if that is said, else the truth to within one, or to
    within 3% of more than 30 states.
    """
    if accepted:
        return states in accepted
    most = SHARE_OF_MANY * true_states if true_states > MANY_STATES else 1
    return abs(states - true_states) <= max(1, most)


def short_of(run: dict[str, Any], others: tuple[str, ...]) -> float | None:
    """Return the held-out score of the defaults minus the best one of `others`."""
    scores = [run[way]["score"] for way in others if way in run]
    if any(score is None for score in scores):
        return None
    difference: float = run["defaults"]["score"] - max(scores)
    return difference


def _mean(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{fmean(known):+.4f}".replace("-", "−") if known else "–"


def _seconds(runs: list[dict[str, Any]]) -> str:
    times = [[run[way]["seconds"] for run in runs if way in run] for way in WAYS]
    return " / ".join(f"{median(each):.3g}" if each else "–" for each in times)


def _converged(values: list[bool | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known)} of {len(known)}" if known else "–"


def _row(name: str, cell: dict[str, Any]) -> str:
    runs, settings = cell["each"], cell["settings"]
    truths = [run["true_states"] for run in runs]
    each, right = "–", "–"
    if None not in truths:
        each = f"{settings['n_steps'] / settings['true_states']:,.0f}"
        judged = [
            is_right(run["defaults"]["states"], run["true_states"], settings["accepted"])
            for run in runs
        ]
        right = f"{sum(judged)} of {len(judged)}"
    truth = ", ".join(map(str, sorted(set(truths) - {None}))) or "–"
    columns = [
        name,
        truth,
        settings["n_states"],
        each,
        ", ".join(map(str, sorted(run["defaults"]["states"] for run in runs))),
        right,
        _mean([short_of(run, WAYS) for run in runs]),
        _mean([short_of(run, ("no_moves",)) for run in runs]),
        _mean(
            [run["truth_score"] and run["defaults"]["score"] - run["truth_score"] for run in runs]
        ),
        _converged([run["defaults"]["converged"] for run in runs]),
        _seconds(runs),
    ]
    return "| " + " | ".join(map(str, columns)) + " |"


def found_table(cells: Cells) -> list[str]:
    """Say how many states were found, and how well the models predict."""
    return [
        "| data | true states | at most | steps per state | states found | right "
        "| − best of three | − without moves | − true parameters | converged | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
        *(_row(name, cell) for name, cell in cells.items()),
    ]


def peers_table(cells: Cells) -> list[str]:
    """Compare `HMM` with hmmlearn."""
    lines = [
        "| data | hmmlearn: best of ten | median | best of ten, run to the end "
        "| sojourn: best, at posterior means | median | worst | within 0.1% of hmmlearn's best "
        "| rates, median | seconds of one fit: sojourn / hmmlearn |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, cell in cells.items():
        runs, best = cell["each"], cell["theirs_best"]
        scores = [run["score"] for run in runs]
        near = sum(score >= best - CLOSE * abs(best) for score in scores)
        rates = "–"
        if "rates" in runs[0]:
            by_state = zip(*(run["rates"] for run in runs), strict=True)
            rates = ", ".join(f"{median(each):.2f}" for each in by_state)
        theirs = [cell[key] for key in ("theirs_best", "theirs_median", "theirs_best_long")]
        ours = [max(scores), median(scores), min(scores)]
        columns = [name, *(f"{score:,.1f}".replace("-", "−") for score in theirs + ours)]
        times = f"{median(run['seconds'] for run in runs):.3g} / {cell['theirs_seconds']:.3g}"
        columns += [f"{near} of {len(runs)}", rates, times]
        lines.append("| " + " | ".join(columns) + " |")
    return lines


def source(cells: Cells) -> str:
    """Say where, when and with which seeds cells were measured."""
    places = set()
    for cell in cells.values():
        where = cell["machine"]
        own = place(where)
        if "device" in where:
            own = f"{where['device']}, {own}"
        if cell["jobs"] > 1:
            own += f", {cell['jobs']} fits at a time"
        places.add(f"{own}, {cell['date']}")
    seeds = [run["seed"] for cell in cells.values() for run in cell["each"]]
    command = "python -m experiments.defaults"
    return f"({'; '.join(sorted(places))}; seeds {min(seeds)} to {max(seeds)}; `{command}`)"


SECTIONS: dict[str, tuple[tuple[str, ...], Callable[[Cells], list[str]]]] = {
    "sizes": (("sizes",), found_table),
    "known": (("known", "corpus"), found_table),
    "peers": (("peers",), peers_table),
    "large": (("large",), found_table),
}
"""Mark in the page: the groups of cells, and the function that writes the table."""


def read_cells() -> Cells:
    """Read what was measured, if anything."""
    cells: Cells = json.loads(RESULT.read_text())["cells"] if RESULT.exists() else {}
    return cells


def updated(page: str, cells: Cells) -> str:
    """Put every table between its marks."""
    for mark, (groups, table) in SECTIONS.items():
        chosen = {name: cell for name, cell in cells.items() if cell["group"] in groups}
        body = "\n".join([*table(chosen), "", source(chosen)]) if chosen else NOT_MEASURED
        page = between_marks(page, mark, body)
    return page


def between_marks(page: str, mark: str, body: str) -> str:
    """Put a table between its marks."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    head, found, rest = page.partition(begin)
    if not found or end not in rest:
        raise ValueError(f"the page has no section {mark}")
    return f"{head}{begin}\n{body}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text(), read_cells()))
