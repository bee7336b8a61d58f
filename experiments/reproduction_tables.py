"""Write the tables in docs/reproduction.md from the result files.

python -m experiments.reproduction_tables
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.reproduce.figure2 import METHODS

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "reproduction.md"


def rise(result: dict[str, Any], row: dict[str, Any], method: str) -> float:
    """Return what the mean score of a method gained in the last pass."""
    gains = []
    for cell in result["cells"]:
        if cell["method"] == method and all(
            cell[name] == row[name] for name in ("batch_size", "forgetting_rate", "n_states")
        ):
            before = next(p for p in cell["points"] if p[0] == cell["n_passes"] - 1)
            gains.append(cell["points"][-1][2] - before[2])
    return sum(gains) / len(gains)


def figure_table(result: dict[str, Any]) -> list[str]:
    """Give the last scores of every panel, and what the last pass still added."""
    lines = [
        "| M | κ | SVI | SCVI | SCVI-HDP | SCVI − SVI | HDP − SCVI | last pass: SVI | SCVI |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    rows = sorted(result["final"], key=lambda row: (row["batch_size"], row["forgetting_rate"]))
    for row in rows:
        svi, scvi, hdp = (row[method]["mean"] for method in METHODS)
        gains = [rise(result, row, method) for method in ("SVI", "SCVI")]
        lines.append(
            f"| {row['batch_size']:,} | {row['forgetting_rate']:g} | {svi:.3f} | {scvi:.3f} "
            f"| {hdp:.3f} | {scvi - svi:+.3f} | {hdp - scvi:+.4f} "
            f"| {gains[0]:+.4f} | {gains[1]:+.4f} |"
        )
    return lines


def large_table(result: dict[str, Any]) -> list[str]:
    """Give the scores after a tenth of the first pass, after it and at the end, with the time."""
    n_passes = result["cells"][0]["n_passes"]
    lines = [
        f"| K | method | seconds | after a tenth of a pass | one pass | {n_passes} passes |",
        "|---:|---|---:|---:|---:|---:|",
    ]
    for cell in result["cells"]:
        scores = [
            next(point[2] for point in cell["points"] if point[0] >= share - 1e-9)
            for share in (0.1, 1.0, n_passes)
        ]
        lines.append(
            f"| {cell['n_states']} | {cell['method']} | {cell['points'][-1][1]:.1f} | "
            + " | ".join(f"{score:.3f}" for score in scores)
            + " |"
        )
    return lines


def tags_table(result: dict[str, Any]) -> list[str]:
    """Give the agreement with tags, mean ± deviation of the seeds."""
    lines = [
        "| method | many-to-one | one-to-one | V-measure | nats per word |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in result["methods"].items():
        cells = [
            f"{row[key]['mean']:.3f} ± {row[key]['spread']:.3f}"
            for key in ("many_to_one", "one_to_one", "v_measure", "score")
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def hdp_table(result: dict[str, Any]) -> list[str]:
    """Give every variant's margin over the best symmetric prior, and E[α], of every data set."""
    problems = result["problems"]
    lines = [
        "| | " + " | ".join(problems) + " |",
        "|---|" + "---:|" * len(problems),
        "| sequences, steps, seeds | "
        + " | ".join(f"{p['sequences']:,}, {p['steps']:,}, {p['seeds']}" for p in problems.values())
        + " |",
    ]
    best = {}
    for name, problem in problems.items():
        symmetric = {
            row.split()[1]: found
            for row, found in problem["rows"].items()
            if row.startswith("symmetric")
        }
        a = max(symmetric, key=lambda a: symmetric[a]["score"])
        best[name] = (a, symmetric[a])
    lines.append(
        "| best symmetric prior | "
        + " | ".join(
            f"{found['score']:.4f} ± {found['spread']:.4f} (a = {a})" for a, found in best.values()
        )
        + " |"
    )
    variants = [row for row in next(iter(problems.values()))["rows"] if "symmetric" not in row]
    for variant in variants:
        cells = []
        for name, problem in problems.items():
            found = problem["rows"][variant]
            margin = found["score"] - best[name][1]["score"]
            cells.append(f"{margin:+.4f} ± {found['spread']:.4f} (α {found['alpha']:.1f})")
        lines.append(f"| {variant} | " + " | ".join(cells) + " |")
    truths = [problem.get("true_score") for problem in problems.values()]
    lines.append(
        "| the true model | "
        + " | ".join("" if truth is None else f"{truth:.4f}" for truth in truths)
        + " |"
    )
    return lines


def tuning_table(result: dict[str, Any]) -> list[str]:
    """Give the scores on dev, alone and together, then the look at test."""
    base = result["dev"]["paper"]["mean"]
    lines = ["| on dev | nats per word | above the paper | seconds |", "|---|---:|---:|---:|"]
    for name, row in result["dev"].items():
        gain = row["mean"] - base
        lines.append(f"| {name} | {row['mean']:.3f} | {gain:+.3f} | {row['seconds']:.1f} |")
    equal = result["paper_at_equal_time"]
    lines.append(
        f"| paper, {equal['passes']} passes: the time of the best | {equal['mean']:.3f} "
        f"| {equal['mean'] - base:+.3f} | {equal['seconds']:.1f} |"
    )
    lines += ["", "| states | paper, dev | tuned, dev |", "|---:|---:|---:|"]
    for k, row in result["dev_by_states"].items():
        lines.append(f"| {k} | {row['paper']:.3f} | {row['tuned']:.3f} |")
    test = result["test"]
    scores = {
        name: ", ".join(f"{score:.3f}" for score in found["scores"]) for name, found in test.items()
    }
    lines += [
        "",
        f"On test, learned from train and dev, seeds 0, 1, 2: paper {scores['paper']} "
        f"(mean {test['paper']['mean']:.3f}); tuned {scores[result['best']]} "
        f"(mean {test[result['best']]['mean']:.3f}): **{result['gain_on_test']:+.3f}**.",
    ]
    return lines


TABLES: dict[str, tuple[Path, Callable[[dict[str, Any]], list[str]]]] = {
    "figure2": (HERE / "figure2" / "figure2.json", figure_table),
    "large": (HERE / "figure2" / "figure2-large.json", large_table),
    "tags": (HERE / "results" / "tags.json", tags_table),
    "hdp": (HERE / "results" / "hdp_question.json", hdp_table),
    "tuning": (HERE / "results" / "tuning.json", tuning_table),
}


def updated(page: str) -> str:
    """Put every table between its marks, where its result file exists."""
    for mark, (path, maker) in TABLES.items():
        if not path.exists():
            continue
        begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
        head, _, rest = page.partition(begin)
        body = "\n".join(maker(json.loads(path.read_text())))
        page = f"{head}{begin}\n{body}\n{end}{rest.partition(end)[2]}"
    return page


def main() -> None:
    """Rewrite the page."""
    PAGE.write_text(updated(PAGE.read_text()))


if __name__ == "__main__":
    main()
