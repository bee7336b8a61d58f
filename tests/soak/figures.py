"""The figures of the soak: joins files of results, and writes the table of docs/reliability.md.

``python -m tests.soak.figures [FILE ...]`` adds the runs of other files to the committed one.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results" / "soak.json"
PAGE = ROOT / "docs" / "reliability.md"
BEGIN, END = "<!-- soak: begin -->\n", "<!-- soak: end -->"
_NOTHING = {"cases": 0, "accepted": 0, "refused": 0, "seconds": 0.0, "failures": 0}
PARTS = ("inputs", "model_files", "data_files", "commands", "kills", "cluster")


def totals(runs):
    """Add up the runs of every part."""
    found = {}
    for name in PARTS:
        own = [run for run in runs if run["part"] == name]
        if own:
            found[name] = {key: sum(run[key] for run in own)
                           for key in ("cases", "accepted", "failures")}  # fmt: skip
            found[name]["extra_mb"] = max(run["extra_mb"] for run in own)
            found[name]["seconds"] = round(sum(run["seconds"] for run in own), 1)
    return found


def together(runs):
    """Put runs of one part, day and seed into one: a run in several processes is one run."""
    found = {}
    for run in runs:
        key = tuple(run[name] for name in ("part", "date", "seed", "boundscheck"))
        known = found.setdefault(key, run | _NOTHING)
        for name in _NOTHING:
            known[name] = round(known[name] + run.get(name, 0), 1)
        known["first"] = min(known["first"], run["first"])
        known["extra_mb"] = max(known["extra_mb"], run["extra_mb"])
    return list(found.values())


def table(results):
    """Return the table of the page."""
    lines = [
        "| part | cases | accepted | failures | memory beyond the start |",
        "|---|---|---|---|---|",
    ]
    for name, total in results["totals"].items():
        memory = f"{total['extra_mb']:.0f} MB" if total["extra_mb"] else ""
        lines.append(
            f"| `{name}` | {total['cases']:,} | {total['accepted']:,} | {total['failures']} "
            f"| {memory} |"
        )
    dates = sorted({run["date"] for run in results["runs"]})
    seeds = ", ".join(map(str, sorted({run["seed"] for run in results["runs"]})))
    minutes = sum(total["seconds"] for total in results["totals"].values()) / 60.0
    lines += ["", f"Seed {seeds}, {dates[-1]}, {results['machine']}, bounds checks on, in "
              f"{minutes:.0f} minutes of a machine that was busy with other work."]  # fmt: skip
    return "\n".join(lines) + "\n"


def page_with(text, results):
    """Return the page with the table in its place."""
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table(results) + END + rest.partition(END)[2]


def main(paths):
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"runs": []}
    for path in paths:
        other = json.loads(Path(path).read_text())
        results["machine"] = other["machine"]
        results["runs"] += other["runs"]
    results["runs"] = together(results["runs"])
    results["totals"] = totals(results["runs"])
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page_with(PAGE.read_text(), results))


if __name__ == "__main__":
    main(sys.argv[1:])
