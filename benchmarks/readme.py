"""Write the figures in the project's README from the result files.

python -m benchmarks.readme
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def read(path: str) -> dict[str, Any]:
    """Read a result file."""
    return json.loads((ROOT / path).read_text())


def figures() -> str:
    """Say in a few lines what the result files hold."""
    cpu = read("benchmarks/results/cpu.json")
    text = read("experiments/results/collapsing.json")
    tuning = read("experiments/results/tuning.json")
    peers, fit = cpu["against_peers"], cpu["end_to_end"]
    row = next(row for row in cpu["against_sgemm"] if row["states"] == 45)
    largest = cpu["against_sgemm"][-1]
    fastest = max(
        (name for name in ("hmmlearn", "dynamax", "pomegranate") if "error" not in peers[name]),
        key=lambda name: peers[name]["steps_per_second"],
    )
    where = cpu["machine"]
    final, data = text["final"], text["data"]
    return "\n".join(
        [
            f"On {where['cores']} cores ({where['processor']}, {cpu['date']}; "
            "[benchmarks](benchmarks/README.md)):",
            "",
            f"- an E-step with 45 states runs at {row['e_step_million_steps']:.1f} million time "
            f"steps a second, {row['e_step_share']:.0%} of the machine's matrix rate "
            f"({largest['e_step_share']:.0%} with {largest['states']} states), "
            f"{peers[fastest]['ours_is_faster_by']:.0f} times the fastest E-step of hmmlearn, "
            f"dynamax and pomegranate ({fastest});",
            f"- `fit` in minibatches of 1000 sentences with a vocabulary of 50,000 words takes in "
            f"{fit['fit_million_steps']:.1f} million words a second, updates included.",
            "",
            f"On {data['sentences']:,} sentences of the English Web Treebank (45 states, "
            f"minibatches of 100, ten passes, mean of three seeds; "
            "[result](experiments/results/collapsing.json), "
            "[tuned](experiments/results/tuning.json)), held-out log likelihood a word:",
            "",
            "| SVI | SCVI | SCVI, HDP-HMM | SCVI, `tuned=True` |",
            "|---|---|---|---|",
            f"| {final['svi']:.3f} | {final['scvi']:.3f} | {final['scvi-hdp']:.3f} "
            f"| {tuning['test'][tuning['best']]['mean']:.3f} |",
        ]
    )


def updated(readme: str) -> str:
    """Put the figures between their marks."""
    head, _, rest = readme.partition(BEGIN)
    return f"{head}{BEGIN}\n{figures()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Rewrite README.md."""
    path = ROOT / "README.md"
    path.write_text(updated(path.read_text()))


if __name__ == "__main__":
    main()
