"""Write the tables of docs/gpu.md, and of benchmarks/README.md, from the result files.

python -m benchmarks.gpu_tables
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "gpu.md"
README = ROOT / "benchmarks" / "README.md"
PEERS = {
    "sojourn_training": "sojourn, one training step, update included",
    "sojourn": "sojourn, an E-step called alone, steps sorted by symbol first",
    "dynamax_smoother": "dynamax, its smoother, a table of emissions and sums by symbol of ours",
    "dynamax": "dynamax, E-step of `CategoricalHMM`",
    "pomegranate_recursions": "pomegranate, `forward_backward` without sums by symbol",
    "pomegranate": "pomegranate, E-step, `summarize`",
}


def table(columns: list[str], rows: list[list[Any]]) -> list[str]:
    """Lay out a table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(str(cell) for cell in line) + " |" for line in lines] + [""]


def _first_fits(found: dict[str, Any]) -> str:
    """Say how long a first fit takes."""
    times = found["first_fit_seconds"]
    day = found.get("measured_again", {}).get("first_fit_seconds", found["date"])
    return (
        "A first fit in a new process, with nothing compiled, 20,000 sentences, 45 states "
        f"({day}): `HMM` {times['HMM']:.1f} s, `HDPHMM` {times['HDPHMM']:.1f} s, with moves "
        f"{times['HDPHMM with moves']:.1f} s."
    )


def _with_moves(found: dict[str, Any]) -> str:
    """Say how long the same takes where states may move."""
    return (
        " Where the number of states is learned, ten passes take "
        f"{found['whole_call_seconds']:.1f} s with everything around them, "
        f"{found['move_seconds']:.1f} s of these moves, and {found['states']} states are found."
    )


def figures(found: dict[str, Any]) -> str:
    """Say what the result file holds."""
    paper = found["paper_size"]
    passes, hdp = paper["scvi_pass_seconds"], paper["hdp_pass_seconds"]
    errors, steps = found["relative_error"], found["time_of_a_step"]
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
            ["states", "minibatch", "sentences", "million steps/s"],
            [
                [
                    row["states"],
                    f"{row['batch_size']:,}",
                    f"{row['sentences']:,}",
                    f"{row['million_steps']:.0f}",
                ]
                for row in found["end_to_end"]
            ],
        ),
        "Families of numbers, sequences of 100 steps, 20 states:",
        "",
        *table(
            ["family", "columns", *(f"M = {m:,}, million steps/s" for m in (1000, 10_000))],
            [
                [f"`{few['family']}`", few["columns"]]
                + [f"{row['million_steps']:.0f}" for row in (few, many)]
                for few, many in zip(found["families"][::2], found["families"][1::2], strict=True)
            ],
        ),
        f"The paper's size, {paper['sentences']:,} sentences, {paper['tokens'] / 1e6:.0f} million "
        f"tokens, 45 states, minibatches of 1,000: a pass of SCVI takes {passes[-1]:.2f} s "
        f"({passes[0]:.2f} s the first), a pass of SCVI-HDP {hdp[-1]:.2f} s. Ten passes of "
        f"SCVI-HDP took {paper['hdp_seconds']:.1f} s, {hdp[0]:.1f} s of them the first; kernels "
        "were compiled beforehand. Held-out log likelihood per step after passes 1 and 2: "
        + ", ".join(f"{score:.5f}" for score in paper["hdp_held_out"][:2])
        + " on the GPU, "
        + ", ".join(f"{score:.5f}" for score in paper["cpu_hdp_held_out"])
        + f" on {found['machine']['cores']} cores of the same machine, where a pass takes "
        f"{min(paper['cpu_hdp_pass_seconds']):.0f} s." + _with_moves(found["paper_size_moves"]),
        "",
        "Where the time of a step goes, in microseconds; planning sorts the next window at the "
        "same time, by other kernels and copies from the host, of which this is the share per "
        "step:",
        "",
        *table(
            ["part", *(f"M = {row['batch_size']:,}" for row in steps)],
            [
                *(
                    [part, *(f"{row['microseconds'][part]:.1f}" for row in steps)]
                    for part in steps[0]["microseconds"]
                ),
                ["gaps", *(f"{row['gaps_microseconds']:.0f}" for row in steps)],
                ["whole", *(f"{row['whole_step_microseconds']:.0f}" for row in steps)],
                ["planning", *(f"{row['planning_beside_microseconds']:.0f}" for row in steps)],
            ],
        ),
        "Alternatives, million steps/s at 45 states: "
        + "; ".join(
            f"{name} {rate:.0f}" for name, rate in found["alternatives_million_steps"].items()
        )
        + ".",
        "",
        "Many states, forward-backward alone, recorded as in training, against a large matrix "
        "product of PyTorch in the same precision:",
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
        _first_fits(found),
        "",
        "Four sequences of 100,000 steps, by `fit`: "
        + ", ".join(
            f"{row['million_steps']:.3g} million steps/s with {row['states']} states"
            for row in found["long_sequences"]
        )
        + ".",
        "",
        "Held-out likelihood with products in single precision and in tf32: "
        + "; ".join(
            f"{row['states']} states, {row['precision']} {row['held_out']:.4f}"
            for row in found["precision"]
        )
        + ".",
    ]
    return "\n".join(lines)


def peers(found: dict[str, Any]) -> str:
    """Say how fast others are on the same GPU."""
    runs = found["runs"]

    def rate(row: dict[str, Any] | None) -> str:
        if row is None:
            return "–"
        if "error" in row:
            return "failed: " + row["error"].partition(":")[0]
        assert row["agrees"], row
        on_cpu = " (on the CPU)" if row["device"] == "cpu" else ""
        return f"{row['steps_per_second'] / 1e6:.3g}{on_cpu}"

    versions = {
        name: row["version"]
        for run in runs
        for name, row in run["results"].items()
        if "version" in row
    }
    lines = [
        f"{found['gpu']}, {found['date']}, PyTorch {found['versions']['torch']}, JAX "
        f"{found['versions']['jax']}"
        + "".join(
            f", {name} {versions[name]}" for name in ("dynamax", "pomegranate") if name in versions
        )
        + "; made by `make peers-gpu`, in `benchmarks/results/gpu_peers.json`. One E-step of "
        f"{runs[0]['results']['sojourn']['sequences']:,} sequences of {found['length']} steps, "
        f"{found['states']} states, single precision, million steps/s:",
        "",
        *table(
            ["", *(f"{run['symbols']:,} symbols" for run in runs)],
            [
                [label, *(rate(run["results"].get(name)) for run in runs)]
                for name, label in PEERS.items()
            ],
        ),
    ]
    return "\n".join(lines).strip()


def compiling(found: dict[str, Any]) -> str:
    """Say what a first fit compiles."""
    fits = "; ".join(
        f"`{name.partition(' ')[0]}`{name.removeprefix(name.partition(' ')[0])} {row['kernels']} "
        f"kernels, {row['seconds']:.1f} s"
        for name, row in found["first_fits"].items()
    )
    return (
        f"What a first fit compiles for an H200, one kernel after another on one core "
        f"({found['machine']['processor']}, {found['date']}, Triton "
        f"{found['versions']['triton']}, no GPU needed; `python -m tools.hopper --write`, in "
        f"`benchmarks/results/gpu_compile.json`): {fits}."
    )


def moved(found: dict[str, Any]) -> str:
    """Say what it costs to find the number of states."""
    moves = found["moves"]
    first, gpu, many, cpu = (moves[name] for name in ("cuda", "again", "many_again", "cpu"))

    def spent(run: dict[str, Any]) -> str:
        share = run["move_seconds"] / run["seconds"]
        return f"{run['move_seconds']:.2f} of {run['seconds']:.1f} s ({share:.0%})"

    return (
        f"{gpu['sentences']:,} sentences drawn from {moves['true_states']} states, at most "
        f"{moves['n_states']}, 20 passes of SCVI-HDP: {gpu['states']} states on the GPU, held-out "
        f"log likelihood {gpu['held_out']:.5f}, and {cpu['states']} with {cpu['held_out']:.5f} on "
        f"{found['machine']['cores']} cores. {spent(gpu)} went into moves on the GPU, {spent(cpu)} "
        f"on the cores; of {many['sentences']:,} sentences {spent(many)}, with {many['states']} "
        f"states found. The first time, kernels are compiled for the numbers of states that come "
        f"up: {spent(first)}."
    )


def summary(found: dict[str, Any]) -> str:
    """Say the main figures in a few lines."""
    paper, errors = found["paper_size"], found["relative_error"]
    passes, hdp = paper["scvi_pass_seconds"], paper["hdp_seconds"]
    rates = [
        f"{row['million_steps']:.0f} million (K={row['states']}, M={row['batch_size']:,})"
        for row in found["end_to_end"]
    ]
    wide = [
        f"{row['teraflops']:.1f} TFLOP/s, {row['share']:.0%} (K={row['states']}, "
        f"M={row['sequences']:,})"
        for row in found["many_states"]
        if row["precision"] == "single"
    ]
    lines = [
        f"- {found['device']}, {found['date']}; sentences of 22 words, V = {found['symbols']:,}.",
        f"- Steps per second, end to end: {', '.join(rates)}.",
        f"- {paper['sentences']:,} sentences, {paper['tokens'] / 1e6:.0f} million tokens, K=45, "
        f"M=1,000: a pass {passes[-1]:.2f} s ({passes[0]:.2f} s the first), ten of SCVI-HDP "
        f"{hdp:.1f} s.",
        f"- Expected counts within {max(errors['start'], errors['transitions']):.0e} of float64.",
        f"- Forward-backward in single precision, and its share of PyTorch's own matrix product: "
        f"{', '.join(wide)}.",
    ]
    return "\n".join(lines)


SECTIONS: dict[str, tuple[Path, str, Callable[[dict[str, Any]], str]]] = {
    "figures": (PAGE, "gpu.json", figures),
    "moves": (PAGE, "gpu.json", moved),
    "compiling": (PAGE, "gpu_compile.json", compiling),
    "peers": (PAGE, "gpu_peers.json", peers),
    "gpu": (README, "gpu.json", summary),
}
"""Section: its page and result file, and the function that writes it."""


def section(name: str, page: str) -> tuple[str, str, str]:
    """Return what is before a section, the section, and what is behind it."""
    head, begin, rest = page.partition(f"<!-- {name}: begin -->\n")
    text, end, tail = rest.partition(f"\n<!-- {name}: end -->")
    if not (begin and end):
        raise ValueError(f"the page has no section {name}")
    return head + begin, text, end + tail


def main() -> None:
    """Put the figures into their pages."""
    for name, (page, file, write) in SECTIONS.items():
        head, _, tail = section(name, page.read_text())
        page.write_text(head + write(json.loads((RESULTS / file).read_text())) + tail)


if __name__ == "__main__":
    main()
