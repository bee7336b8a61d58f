"""Write the tables of docs/gpu.md from the result file.

python -m benchmarks.gpu_tables
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "gpu.json"
PAGE = ROOT / "docs" / "gpu.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


def table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    """Lay out a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines] + [""]


def figures(found: dict[str, Any]) -> str:
    """Say what the result file holds."""
    paper = found["paper_size"]
    passes, hdp = paper["scvi_pass_seconds"], paper["hdp_pass_seconds"]
    errors = found["relative_error"]
    lines = [
        f"{found['device']}, {found['date']}, PyTorch {found['versions']['torch']}, Triton "
        f"{found['versions']['triton']}; made by `make bench-gpu`, in "
        "`benchmarks/results/gpu.json`. Sentences of 22 words on average, "
        f"{found['symbols']:,} symbols. Expected counts differ from the float64 reference by at "
        f"most {max(errors['start'], errors['transitions']):.0e} relative to the largest, "
        f"responsibilities by {errors['responsibilities']:.0e}.",
        "",
        "End to end, gather and updates included:",
        "",
        *table(
            ["states", "minibatch", "million steps/s"],
            [
                [row["states"], f"{row['batch_size']:,}", f"{row['million_steps']:.0f}"]
                for row in found["end_to_end"]
            ],
        ),
        f"The paper's size, {paper['sentences']:,} sentences, {paper['tokens'] / 1e6:.0f} million "
        f"tokens, 45 states, minibatches of 1,000: a pass of SCVI takes {passes[-1]:.2f} s "
        f"({passes[0]:.2f} s the first), a pass of SCVI-HDP {hdp[-1]:.2f} s. Ten passes of "
        f"SCVI-HDP took {paper['hdp_seconds']:.1f} s, {hdp[0]:.1f} s of them in the first, in "
        "which kernels are compiled. Held-out log likelihood a step after passes 1 and 2: "
        + ", ".join(f"{score:.5f}" for score in paper["hdp_held_out"][:2])
        + " on the GPU, "
        + ", ".join(f"{score:.5f}" for score in paper["cpu_hdp_held_out"])
        + f" on {found['machine']['cores']} cores of the same machine, where a pass takes "
        f"{min(paper['cpu_hdp_pass_seconds']):.0f} s.",
        "",
        "Where the time of a step goes, in microseconds; the rest has its share of copying the "
        "data to the device and of sorting windows:",
        "",
        *table(
            ["part", *(f"M = {row['batch_size']:,}" for row in found["time_of_a_step"])],
            [
                [part, *(f"{row['microseconds'][part]:.0f}" for row in found["time_of_a_step"])]
                for part in found["time_of_a_step"][0]["microseconds"]
            ],
        ),
        "Single decisions, million steps/s at 45 states: "
        + "; ".join(
            f"{name} {rate:.0f}" for name, rate in found["alternatives_million_steps"].items()
        )
        + ".",
        "",
        "Many states, forward-backward alone, against a large matrix product of PyTorch in the "
        "same precision:",
        "",
        *table(
            ["states", "sequences", "precision", "TFLOP/s", "share", "million steps/s"],
            [
                [
                    row["states"],
                    f"{row['sequences']:,}",
                    row["precision"],
                    f"{row['teraflops']:.1f}",
                    f"{row['share']:.0%}",
                    f"{row['million_steps']:.1f}",
                ]
                for row in found["many_states"]
            ],
        ),
        "Held-out likelihood with products in single precision and in tf32: "
        + "; ".join(
            f"{row['states']} states, {row['precision']} {row['held_out']:.4f}"
            for row in found["precision"]
        )
        + ".",
    ]
    return "\n".join(lines)


def main() -> None:
    """Put the figures into the page."""
    head, _, rest = PAGE.read_text().partition(BEGIN)
    tail = rest.partition(END)[2]
    text = figures(json.loads(RESULT.read_text()))
    PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{tail}")


if __name__ == "__main__":
    main()
