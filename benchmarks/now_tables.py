"""The tables of docs/now-and-next.md, from the result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
COVERAGE = "experiments/results/coverage.json"


def read(path: str) -> dict[str, Any]:
    """Read a result file."""
    return json.loads((ROOT / path).read_text())


def figures() -> str:
    """Return all tables."""
    parts = [_forecasts(), _live(), _agreement()]
    if (ROOT / COVERAGE).exists():  # it takes longer to measure than the others
        parts.insert(0, _coverage())
    return "\n\n".join(parts)


def _coverage() -> str:
    found = read(COVERAGE)
    kinds = [(m, p) for m in ("gibbs", "surrogate") for p in ("transitions", "emissions")]
    sizes = list(dict.fromkeys(row["sequences"] for row in found["coverage"]))
    families = list(dict.fromkeys(row["family"] for row in found["coverage"]))
    rows = []
    for size in sizes:
        own = [row for row in found["coverage"] if row["sequences"] == size]
        for family in [*families, "all four"]:
            mine = [row for row in own if family in (row["family"], "all four")]
            if mine:
                cells = " | ".join(_share(mine, *kind) for kind in kinds)
                name = family if family == "all four" else f"`{family}`"
                rows.append(f"| {size} | {name} | {cells} |")
    text = [
        f"How often {found['level']:.0%} intervals contain the truth, on data drawn from two "
        f"overlapping states, sequences of {found['length']} steps ({found['date']}, "
        f"`{found['command']}`, [result](../experiments/results/coverage.json)); in brackets, the "
        "number of intervals:",
        "",
        "| sequences | family | transitions | emissions | surrogate: transitions | emissions |",
        "|---|---|---|---|---|---|",
        *rows,
    ]
    sampler = [row for row in found["coverage"] if row["method"] == "sampler"]
    if sampler:
        text += [
            "",
            "The collapsed Gibbs sampler of the library, from a random start on the same "
            f"{sampler[0]['sequences']} sequences of symbols, has "
            f"{_share(sampler, 'sampler', 'transitions')} for transitions and "
            f"{_share(sampler, 'sampler', 'emissions')} for emissions.",
        ]
    return "\n".join(text)


def _share(rows: list[dict[str, Any]], method: str, parameters: str) -> str:
    """Return the coverage of some entries together, weighted by their numbers of intervals."""
    own = [row for row in rows if (row["method"], row["parameters"]) == (method, parameters)]
    n = sum(row["intervals"] for row in own)
    if n == 0:
        return ""
    return f"{sum(row['coverage'] * row['intervals'] for row in own) / n:.0%} ({n})"


def _forecasts() -> str:
    found = read("experiments/results/forecasts.json")
    rows = [
        f"| `{name}` | {own['held']:.1%} | {_pair(own, 0)} | {_pair(own, -1)} |"
        for name, own in found["families"].items()
    ]
    ahead = found["steps"]["ahead"]
    return "\n".join(
        [
            f"Forecasts of {found['sequences']['test']:,} held-out sequences up to {ahead} steps "
            f"ahead ({found['date']}, `{found['command']}`, "
            "[result](../experiments/results/forecasts.json)): how often "
            f"{found['level']:.0%} intervals hold what came, and the mean log score beside that of "
            "the distribution that does not know the past:",
            "",
            f"| family | held | one step ahead | {ahead} steps ahead |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def _pair(own: dict[str, Any], step: int) -> str:
    return f"{own['log_score'][step]:.3f} / {own['unconditional'][step]:.3f}"


def _live() -> str:
    found = read("benchmarks/results/live.json")
    where = found["machine"]
    rows = [
        f"| {name} | {own['one']:,} | {own['many']:,} |"
        for name, own in found["updates_per_second"].items()
    ]
    series = [
        f"{steps} steps in {own['seconds']:.1f} seconds with {own['peak_mib']} MiB"
        for steps, own in found["filter_one_series_from_a_file"].items()
    ]
    return "\n".join(
        [
            f"Updates of streams per second with {found['states']} states, on one core "
            f"({where['processor']}, {found['date']}, `make bench-live`, "
            "[result](../benchmarks/results/live.json)):",
            "",
            f"| family | one stream | {found['side_by_side']:,} side by side |",
            "|---|---|---|",
            *rows,
            "",
            "Filtering one series from an `.npy` file, in a process with the peak of memory given: "
            f"{', '.join(series)}.",
        ]
    )


def _agreement() -> str:
    found = read("benchmarks/results/agreement.json")
    peers = ("dynamax", "deeptime", "hmmlearn", "pomegranate")
    versions = ", ".join(f"{name} {found['versions'][name]}" for name in peers)
    largest = max(found["largest_difference"].values())
    names = "; ".join(
        name.replace(",", " of") for name in found["largest_difference"] if "differ" not in name
    )
    return (
        f"At the same parameters of {found['models']} random models ({versions}; {found['date']}, "
        f"`make agreement`, [result](../benchmarks/results/agreement.json)), the largest "
        f"difference from other libraries is {largest:.0e}: {names}."
    )
