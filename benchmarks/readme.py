"""Write the figures in the README and in pages of the documentation from the result files.

python -m benchmarks.readme
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks import duration_tables, now_tables

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def read(path: str) -> dict[str, Any]:
    """Read a result file."""
    return json.loads((ROOT / path).read_text())


def figures() -> str:
    """Summarise the result files in a few lines."""
    cpu = read("benchmarks/results/cpu.json")
    text = read("experiments/results/collapsing.json")
    tuning = read("experiments/results/tuning.json")
    gpu = read("benchmarks/results/gpu.json")
    paper = gpu["paper_size"]
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
            f"steps per second, {row['e_step_share']:.0%} of the machine's matrix-multiplication "
            f"rate ({largest['e_step_share']:.0%} with {largest['states']} states), "
            f"{peers[fastest]['ours_is_faster_by']:.0f} times as fast as the fastest of hmmlearn, "
            f"dynamax and pomegranate ({fastest});",
            f"- `fit` in minibatches of 1000 sentences with a vocabulary of 50,000 words processes "
            f"{fit['fit_million_steps']:.1f} million words per second, updates included.",
            "",
            f"On one GPU ({gpu['device']}, {gpu['date']}; [more](docs/gpu.md)) the same fit "
            f"processes {gpu['end_to_end'][0]['million_steps']:.0f} million words "
            f"per second, and a pass over {paper['sentences'] / 1e6:.0f} million sentences takes "
            f"{paper['scvi_pass_seconds'][-1]:.2f} seconds.",
            "",
            f"On {data['sentences']:,} sentences of the English Web Treebank (45 states, "
            f"minibatches of 100, ten passes, mean of three seeds; "
            "[result](experiments/results/collapsing.json), "
            "[tuned](experiments/results/tuning.json)), held-out log likelihood per word:",
            "",
            "| SVI | SCVI | SCVI, HDP-HMM | SCVI, `tuned=True` |",
            "|---|---|---|---|",
            f"| {final['svi']:.3f} | {final['scvi']:.3f} | {final['scvi-hdp']:.3f} "
            f"| {tuning['test'][tuning['best']]['mean']:.3f} |",
        ]
    )


def peer_figures() -> str:
    """Tabulate the speed of an E-step of sojourn and of other libraries."""
    cpu = read("benchmarks/results/cpu.json")
    gaussian = read("benchmarks/results/families.json")
    where = cpu["machine"]
    rows = [
        f"| {name.split('_')[0]} {row['version']} | {row['steps_per_second'] / 1e6:.3g} | "
        f"{_times(row)} | {row.get('timed', 'One E-step of `HMM`, in float32 on all cores.')} |"
        for name, row in cpu["against_peers"].items()
        if "error" not in row
    ]
    iterations = [
        f"| `{row['family']}` | {row['scvi_over_hmmlearn']:.0f} | "
        f"{row['scvi_over_hmmlearn_scaling']:.0f} |"
        for row in gaussian["one_iteration"]
    ]
    return "\n".join(
        [
            f"One E-step with 45 states and categorical emissions, in million time steps per "
            f"second, on {where['cores']} cores ({where['processor']}, {cpu['date']}, "
            f"`{cpu['command']}`):",
            "",
            "| library | million steps/s | sojourn is faster by | what was timed |",
            "|---|---|---|---|",
            *rows,
            "",
            f"One iteration with {gaussian['states']} states and {gaussian['features']} columns of "
            f"real numbers against hmmlearn {gaussian['hmmlearn']} ({gaussian['date']}, "
            f"`{gaussian['command']}`), how many times faster:",
            "",
            '| family | hmmlearn, `implementation="log"` | `"scaling"` |',
            "|---|---|---|",
            *iterations,
        ]
    )


def _times(row: dict[str, Any]) -> str:
    return f"{row['ours_is_faster_by']:.0f}×" if "ours_is_faster_by" in row else ""


def known_figures() -> str:
    """Return what labels and constraints cost, as tables."""
    found = read("benchmarks/results/known.json")
    steps = found["sequences"] * found["length"]
    lines = [
        f"Time of training relative to training without, {found['passes']} passes over {steps:,} "
        f"steps on one core ({found['machine']['processor']}, {found['date']}, "
        f"`{found['command']}`, [result](../benchmarks/results/known.json)); on a busy "
        "machine two runs may differ by up to a fifth:",
    ]
    for kind, first in (("labels", "family"), ("constraints", "model")):
        names = [name for name in found[kind][0]["ratios"] if name != "none"]
        lines += [
            "",
            f"| {kind} | states | {' | '.join(names)} |",
            "|---|---|" + "---|" * len(names),
            *(
                f"| `{row[first]}` | {row['n_states']} | "
                + " | ".join(f"{row['ratios'][name]:.2f}" for name in names)
                + " |"
                for row in found[kind]
            ),
        ]
    return "\n".join(lines)


def hdp_figures() -> str:
    """Return what the HDP costs, as a table."""
    found = read("benchmarks/results/hdp_cost.json")
    cells = {(c["n_states"], c["n_sequences"], c["n_symbols"]): c["ratio"] for c in found["cells"]}
    states, sequences, symbols = (sorted({cell[i] for cell in cells}) for i in range(3))
    where = found["machine"]
    return "\n".join(
        [
            f"Measured on one core of {where['processor']}, {found['date']}, by "
            f"`{found['command']}`; the file is "
            "[results/hdp_cost.json](results/hdp_cost.json). In each cell, "
            + " and ".join(f"{n:,}" for n in symbols)
            + f" symbols; the largest is {max(cells.values()):.2f}.",
            "",
            "| states | " + " | ".join(f"{n:,} sequences" for n in sequences) + " |",
            "|---|" + "---|" * len(sequences),
            *(
                f"| {k} | "
                + " | ".join(", ".join(f"{cells[k, n, v]:.2f}" for v in symbols) for n in sequences)
                + " |"
                for k in states
            ),
        ]
    )


PAGES = {
    "README.md": figures,
    "docs/peers.md": peer_figures,
    "docs/now-and-next.md": now_tables.figures,
    "docs/what-is-known.md": known_figures,
    "docs/durations.md": duration_tables.figures,
    "benchmarks/README.md": hdp_figures,
}


def updated(text: str, page: str = "README.md") -> str:
    """Put the figures of a page between their marks."""
    head, _, rest = text.partition(BEGIN)
    return f"{head}{BEGIN}\n{PAGES[page]()}\n{END}{rest.partition(END)[2]}"


def main() -> None:
    """Rewrite the pages."""
    for page in PAGES:
        path = ROOT / page
        path.write_text(updated(path.read_text(), page))


if __name__ == "__main__":
    main()
