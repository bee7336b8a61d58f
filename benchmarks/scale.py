"""Learning from a corpus on disk: speed, memory, and held-out score against time.

    make bench-scale            # 5 million sentences; SIZE=100000 for fewer

The corpus is drawn from a known HMM into a folder that is deleted afterwards, unless one is given.
Every fit runs in a process of its own, so that its memory can be told from that of the others.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import machine, write_result
from sojourn.sources.generate import Truth, generate, truth_path

HERE = Path(__file__).parent
RESULT = HERE / "results" / "scale.json"
README = HERE / "README.md"
N_HELD_OUT = 5_000
CURVE_POINTS = 10


def resident(field: str) -> float:
    """Read this process's resident memory in MiB: VmRSS now, VmHWM at its peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise KeyError(field)


def make_model(name: str, n_states: int, n_symbols: int) -> Any:
    """Make one of the three models that are compared."""
    common = {"batch_size": 1000, "n_passes": 1, "forgetting_rate": 0.5, "random_state": 0}
    emission = sj.Categorical(n_symbols)
    if name == "SCVI-HDP":
        return sj.HDPHMM(n_states, emission, moves=None, **common)
    return sj.HMM(n_states, emission, inference=name.lower(), **common)


def run_fit(task: dict[str, Any]) -> dict[str, Any]:
    """Fit one model to a file or to its content in memory; called in a process of its own."""
    model = make_model(task["model"], task["states"], task["symbols"])
    imported = resident("VmRSS")
    # Kernels and Arrow are loaded on first use: a small fit, so that they are below the base line.
    make_model(task["model"], task["states"], 50).fit(sj.open(task["warm_up"]))
    base = resident("VmRSS")
    source = sj.open(task["data"])
    data = source.read_all() if task["in_memory"] else source
    n_batches = -(-source.n_sequences // 1000)
    options: dict[str, Any] = {}
    if task["curve"]:
        held_out = sj.open(task["held_out"]).read_all()
        options = {"validation": held_out, "validation_every": max(1, n_batches // CURVE_POINTS)}
    before = time.perf_counter()
    model.fit(data, **options)
    wall = time.perf_counter() - before
    last = model.history_[-1]
    return {
        "tokens": last["steps"],
        "seconds": round(last["seconds"], 2),
        "seconds_with_start_and_scores": round(wall, 2),
        "tokens_per_second": round(last["steps"] / last["seconds"]),
        "imported_mib": round(imported, 1),
        "base_mib": round(base, 1),
        "peak_mib": round(resident("VmHWM"), 1),
        "above_import_mib": round(resident("VmHWM") - imported, 1),
        "above_base_mib": round(resident("VmHWM") - base, 1),
        "curve": [
            [round(entry["seconds"], 2), entry["sequences"], round(entry["score"], 5)]
            for entry in model.history_
            if entry["score"] is not None
        ],
    }


def in_a_process(**task: Any) -> dict[str, Any]:
    """Run a fit in a process of its own."""
    print(
        "  ", {k: v for k, v in task.items() if k in ("model", "states", "in_memory")}, flush=True
    )
    command = [sys.executable, "-m", "benchmarks.scale", "--task", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=HERE.parent)
    if done.returncode:
        raise RuntimeError(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"    {result['tokens_per_second']:,} tokens/s, {result['above_base_mib']} MiB", flush=True
    )
    return result


def true_score(corpus: Path, held_out: Path) -> float:
    """Score the held-out data under the parameters that it was drawn from."""
    truth = Truth.load(truth_path(corpus))
    big = 1e12  # counts so large that the priors do not matter
    statistics = sj.Statistics(
        big * truth.start, big * truth.transitions, big * truth.emissions.astype(np.float64)
    )
    n_states, n_symbols = truth.emissions.shape
    model = sj.HMM(
        n_states,
        sj.Categorical(n_symbols, concentration=1e-6),
        transition_concentration=1e-6,
        init=statistics,
        forgetting_rate=1.0,
        delay=1e15,
    )
    data = sj.open(held_out).read_all()
    model.partial_fit(data[:1], total_sequences=1)  # a step of size zero: the given statistics
    return model.score(data, per_step=True)


def unigram_score(corpus: Path, held_out: Path, n_symbols: int) -> float:
    """Score the held-out data with the frequencies of the words alone."""
    counts = np.full(n_symbols, 0.1)
    for piece in sj.open(corpus):
        counts += np.bincount(piece.values, minlength=n_symbols)
    log_frequencies = np.log(counts / counts.sum())
    return float(log_frequencies[sj.open(held_out).read_all().values].mean())


def measure(folder: Path, size: int, n_symbols: int) -> dict[str, Any]:
    """Draw the corpora, and run every fit."""
    corpus, smaller = folder / "corpus.parquet", folder / "smaller.parquet"
    warm_up = folder / "warm-up.parquet"
    before = time.perf_counter()
    generate(corpus, n_sequences=size, n_symbols=n_symbols, n_held_out=N_HELD_OUT)
    seconds = time.perf_counter() - before
    source = sj.open(corpus)
    print(f"{source.n_sequences:,} sentences, {source.n_steps:,} tokens in {seconds:.0f} s")
    generate(smaller, n_sequences=max(1, size // 5), n_symbols=n_symbols)
    generate(warm_up, n_sequences=2000, n_symbols=50)
    held_out = corpus.with_suffix(".held-out.parquet")
    common = {"symbols": n_symbols, "held_out": str(held_out), "warm_up": str(warm_up)}

    def fit(data: Path, model: str, states: int, curve: bool, in_memory: bool) -> dict[str, Any]:
        return in_a_process(
            data=str(data), model=model, states=states, curve=curve, in_memory=in_memory, **common
        )

    # In turns, because the machine is not always equally fast.
    speeds = [fit(corpus, "SCVI", 45, False, in_memory) for in_memory in (True, False) * 2]
    memory, files = (
        max(speeds[first::2], key=lambda run: run["tokens_per_second"]) for first in (0, 1)
    )
    small = fit(smaller, "SCVI", 45, False, False)
    runs = [
        {"model": model, "states": states, **fit(corpus, model, states, True, False)}
        for states in (45, 100)
        for model in ("SVI", "SCVI", "SCVI-HDP")
    ]
    return {
        "sentences": source.n_sequences,
        "tokens": source.n_steps,
        "symbols": n_symbols,
        "true_states": 45,
        "batch_size": 1000,
        "forgetting_rate": 0.5,
        "corpus_bytes": corpus.stat().st_size,
        "generate_seconds": round(seconds, 1),
        "from_file": files,
        "in_memory": memory,
        "speed_ratio": round(files["tokens_per_second"] / memory["tokens_per_second"], 3),
        "smaller": {"sentences": max(1, size // 5), **small},
        "memory_ratio": round(files["above_base_mib"] / small["above_base_mib"], 3),
        "peak_ratio": round(files["peak_mib"] / small["peak_mib"], 3),
        "true_score": round(true_score(corpus, held_out), 4),
        "unigram_score": round(unigram_score(corpus, held_out, n_symbols), 4),
        "runs": runs,
    }


def table(result: dict[str, Any]) -> str:
    """Say in Markdown what was measured."""
    m, files, small = result["machine"], result["from_file"], result["smaller"]
    lines = [
        f"{m['processor']}, {m['cores']} cores, {result['date']}: "
        f"{result['sentences']:,} sentences with {result['tokens']:,} tokens of "
        f"{result['symbols']:,} words on disk ({result['corpus_bytes'] / 2**20:,.0f} MiB), one "
        f"pass, minibatches of 1,000, forgetting rate 0.5.",
        "",
        f"- SCVI with 45 states from the file: {files['tokens_per_second'] / 1e6:.2f} million "
        f"tokens/s, {result['speed_ratio']:.2f} of the rate from memory.",
        f"- Peak memory: {files['above_import_mib']:.0f} MiB above the interpreter with the "
        f"package imported, {files['above_base_mib']:.0f} MiB above it once kernels and Arrow are "
        f"in use; {small['above_base_mib']:.0f} MiB for {small['sentences']:,} sentences (ratio "
        f"{result['memory_ratio']:.2f}), {result['in_memory']['above_base_mib']:.0f} MiB with all "
        "of the data in memory.",
        f"- Held-out log likelihood per token: {result['true_score']:.4f} under the true model, "
        f"{result['unigram_score']:.4f} with word frequencies alone.",
        "",
        "| model | states | seconds | million tokens/s | memory, MiB "
        "| score after a tenth | after the pass |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for run in result["runs"]:
        lines.append(
            f"| {run['model']} | {run['states']} | {run['seconds']:.0f} "
            f"| {run['tokens_per_second'] / 1e6:.2f} | {run['above_base_mib']:.0f} "
            f"| {run['curve'][0][2]:.4f} | {run['curve'][-1][2]:.4f} |"
        )
    return "\n".join(lines)


def write_readme(result: dict[str, Any]) -> None:
    """Put the figures between the markers."""
    begin, end = "<!-- scale: begin -->", "<!-- scale: end -->"
    text = README.read_text()
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    README.write_text(f"{before}{begin}\n{table(result)}\n{end}{after}")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=5_000_000, help="sentences")
    parser.add_argument("--symbols", type=int, default=200_000, help="words")
    parser.add_argument("--folder", type=Path, help="where to put the corpus; kept")
    parser.add_argument("--out", type=Path, default=RESULT, help="result file")
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.task:
        print(json.dumps(run_fit(json.loads(options.task))))
        return
    before = time.perf_counter()
    print(machine())
    with tempfile.TemporaryDirectory() as temporary:
        measured = measure(options.folder or Path(temporary), options.size, options.symbols)
    measured["benchmark_seconds"] = round(time.perf_counter() - before)
    write_result(options.out, measured)
    result = json.loads(options.out.read_text())
    print(table(result))
    if options.out == RESULT:
        write_readme(result)


if __name__ == "__main__":
    main()
