"""The figures in docs/durations.md, from the result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULT = "experiments/results/durations.json"


def figures() -> str:
    """Say how many states are found, how far durations are from the truth, and what it costs."""
    found = json.loads((Path(__file__).parent.parent / RESULT).read_text())
    data, cost, where = found["data"], found["cost"], found["machine"]
    rows = [
        _row(name, found[name.replace(" ", "_")]["summary"], found[name.replace(" ", "_")]["runs"])
        for name in ("negative binomial", "categorical")
    ]
    ratios = [
        f"{value:.1f} times for {name}" for name, value in cost["ratio"].items() if name != "plain"
    ]
    return "\n".join(
        [
            f"{data['sequences']} sequences, {data['steps']:,} steps in all, from four states; "
            f"`HDPHMM` with at most {found['most_states']}, in full batches "
            f"({where['cores']} cores, {where['processor']}, {found['date']}, `{found['command']}`, "
            f"[result](../{RESULT})):",
            "",
            "| durations of the data | states, plain | states, with `duration` | error of means "
            "| error of variances | seconds, plain | with `duration` |",
            "|---|---|---|---|---|---|---|",
            *rows,
            "",
            "Errors are relative to the truth: the median over states and seeds, and the largest. "
            f"Those of the visits themselves, as they were drawn: {_drawn(found)}. "
            f"With {cost['states']} states a pass takes, relative to that of the plain "
            f"model, {' and '.join(ratios)}.",
        ]
    )


def _drawn(found: dict[str, Any]) -> str:
    """Say how far the moments of the drawn visits are from the truth."""
    parts = []
    for name in ("negative binomial", "categorical"):
        own = found[name.replace(" ", "_")]["summary"]["largest_error_of_drawn_visits"]
        parts.append(f"means at most {own['mean']:.1%}, variances {own['variance']:.1%} ({name})")
    return "; ".join(parts)


def _row(name: str, summary: dict[str, Any], runs: list[dict[str, Any]]) -> str:
    plain, lasting = (
        ", ".join(map(str, summary[f"{kind}_states"])) for kind in ("plain", "lasting")
    )
    seconds = summary["seconds"]
    return (
        f"| {name}, {len(runs)} seeds | {plain} | {lasting} "
        f"| {_errors(summary, 'mean')} | {_errors(summary, 'variance')} "
        f"| {seconds['plain']:.0f} | {seconds['lasting']:.0f} |"
    )


def _errors(summary: dict[str, Any], name: str) -> str:
    return f"{summary['median_error'][name]:.1%}, at most {summary['largest_error'][name]:.1%}"
