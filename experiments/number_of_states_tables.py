"""Write the tables in docs/number-of-states.md from the result file.

python -m experiments.number_of_states_tables
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.results import place

RESULT = Path(__file__).parent / "results" / "number_of_states.json"
PAGE = Path(__file__).parent.parent / "docs" / "number-of-states.md"


def _listed(values: list[Any]) -> str:
    return ", ".join(map(str, values))


def drawn_table(found: dict[str, Any]) -> list[str]:
    """Say how many states were found in data drawn from known ones."""
    lines = [
        "| data | at most | states found | within one | error / truth's "
        "| at most 1.3 times | score | without moves | largest loss | truth's "
        "| longest fit, s | time in moves (most) |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        if "each" not in row:
            continue
        runs = row["each"]
        mean = {key: sum(run[key] for run in runs) / len(runs) for key in runs[0]}
        errors = f"{mean['error']:.3f} / {mean['truth_error']:.3f}"
        kept = f"{mean['without_moves']:.4f}"
        if "small_without_moves" in mean:
            kept += f" ({mean['small_without_moves']:.2f})"
        lines.append(
            f"| {name} | {row['truncation']} "
            f"| {_listed([run['states'] for run in runs])} | {row['within_one']} of {row['runs']} "
            f"| {errors} | {row['decoded_within_1.3']} of {row['runs']} | {mean['score']:.4f} "
            f"| {kept} | {max(0.0, row['worst_loss']):.4f} "
            f"| {mean['truth_score']:.4f} | {row['longest_seconds']:.1f} "
            f"| {row['share_of_time_in_moves']:.0%} ({row['largest_share']:.0%}) |"
        )
    return lines


def corpus_table(found: dict[str, Any]) -> list[str]:
    """Say what moves do on text."""
    lines = [
        "| | states | held-out nats per word | V-measure | time in moves |",
        "|---|---|---|---|---|",
    ]
    for name, runs in found.get("corpus", {}).items():
        states, scores, measures = (
            _listed([run[key] for run in runs]) for key in ("states", "score", "v_measure")
        )
        shares = _listed([f"{run['share_of_time_in_moves']:.0%}" for run in runs])
        lines.append(f"| {name} | {states} | {scores} | {measures} | {shares} |")
    return lines


def sticky_table(found: dict[str, Any]) -> list[str]:
    """Say how many segments recordings were cut into."""
    lines = [
        "| mean dwell | model | states | segments found / true | boundary error, steps | κ |",
        "|---|---|---|---|---|---|",
    ]
    for dwell in (5, 50, 500):
        for name, runs in found.get(f"dwell {dwell}", {}).items():
            cut = _listed([f"{run['segments']}/{run['true_segments']}" for run in runs])
            states, errors, extra = (
                _listed([run[key] for run in runs])
                for key in ("states", "boundary_error", "stickiness")
            )
            lines.append(f"| {dwell} | {name} | {states} | {cut} | {errors} | {extra} |")
    return lines


def updated(page: str) -> str:
    """Put every table between its marks."""
    result = json.loads(RESULT.read_text())
    where = result["machine"]
    at_a_time = result.get("jobs", 1)
    busy = "" if at_a_time == 1 else f", {at_a_time} experiments at a time"
    source = f"({place(where)}{busy}, {result['date']}, `{result['command']}`)"
    makers = {"drawn": drawn_table, "corpus": corpus_table, "sticky": sticky_table}
    for mark, maker in makers.items():
        begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
        head, _, rest = page.partition(begin)
        body = "\n".join([*maker(result["experiments"]), "", source])
        page = f"{head}{begin}\n{body}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text()))
