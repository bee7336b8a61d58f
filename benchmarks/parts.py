"""Where the time of a local step of symbols goes, on one core.

    python -m benchmarks.parts

Times are those of the processor, the shortest of many, all parts and sgemm in turns: others may
use the machine meanwhile.  The results are in results/parts.json and README.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import sojourn as sj
from benchmarks.cpu import equal_lengths, random_posterior, sentences
from benchmarks.results import machine, write_result, write_table
from sojourn.backends.cpu import CpuBackend
from sojourn.inference import COLLAPSED, Posterior
from sojourn.inference.local import chunk_potentials, emission_sums, prepare
from sojourn.kernels import cpu
from sojourn.kernels.ragged import longest_first
from sojourn.sources import MemorySource

RESULT = Path(__file__).parent / "results/parts.json"
BATCHES = {
    "2,000 sequences of 20, V = 1,000": (1000, (8, 16)),
    "1,000 sentences, V = 50,000": (50_000, (45,)),
}


def shortest(functions: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Call functions in turns, and return the shortest time of each."""
    times = dict.fromkeys(functions, np.inf)
    for function in functions.values():
        function()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name, function in functions.items():
            for _ in range(3):
                before = time.process_time()
                function()
                times[name] = min(times[name], time.process_time() - before)
    return times


def parts_of(
    posterior: Posterior, family: sj.Categorical, source: MemorySource
) -> tuple[int, dict[str, Callable[[], Any]]]:
    """Return the steps of a minibatch, and the parts of a local step on it."""
    backend = CpuBackend(cpu, 1)
    batch = next(iter(source.batches(0)))
    n_states = posterior.emissions.n_states
    (chunk,) = prepare(family, batch, n_states)
    chunk = chunk._replace(order=longest_first(batch.offsets))
    rows = backend.transition_potentials(posterior, COLLAPSED)

    def potentials() -> Any:
        (found,) = chunk_potentials(
            posterior, family, [chunk], rows, backend, collapsed=True, from_counts=True
        )
        return found[1:]

    factors, index = potentials()

    def forward_backward() -> Any:
        return backend.forward_backward(chunk, factors, index, summed=True)

    smoothed = forward_backward()

    def sums() -> Any:
        return emission_sums(posterior, family, COLLAPSED, chunk, smoothed, backend)[0]

    added = sums()
    return batch.n_steps, {
        "gathering sequences": lambda: next(iter(source.batches(0))),
        "numbering symbols": lambda: prepare(family, batch, n_states),
        "potentials of transitions": lambda: backend.transition_potentials(posterior, COLLAPSED),
        "forward-backward": forward_backward,
        "sums by symbol": sums,
        "blending": lambda: posterior.emissions.blend(added, keep=1.0, weight=1e-9),
        "local step": lambda: backend.statistics(
            posterior, family, COLLAPSED, prepare(family, batch, n_states)
        ),
    }


def measure(seconds: float) -> list[dict[str, Any]]:
    """Time the parts of every batch, beside sgemm on one core."""
    square = np.random.default_rng(0).random((1024, 1024), dtype=np.float32)
    rows = []
    for name, (n_symbols, states) in BATCHES.items():
        for n_states in states:
            data = equal_lengths(2000, 20, n_symbols)
            if n_symbols > 1000:
                data = sentences(4000, n_symbols)
            source = MemorySource(data, 2000 if n_symbols == 1000 else 1000, 0)
            posterior = random_posterior(n_states, n_symbols)
            n_steps, functions = parts_of(posterior, sj.Categorical(n_symbols), source)
            with threadpool_limits(1):
                times = shortest(functions | {"sgemm": lambda: square @ square}, seconds)
            sgemm = 2 * 1024**3 / times.pop("sgemm")
            work = 6 * n_states**2 * n_steps
            rows.append(
                {
                    "batch": name,
                    "states": n_states,
                    "steps": n_steps,
                    "sgemm_gflops": round(sgemm / 1e9, 1),
                    "kernel_share": round(work / times["forward-backward"] / sgemm, 3),
                    "share": round(work / times["local step"] / sgemm, 3),
                    "microseconds": {part: round(1e6 * t, 1) for part, t in times.items()},
                }
            )
            print(rows[-1], flush=True)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """Format the parts for README.md."""
    where = machine()
    heads = [f"K = {row['states']}, {row['batch']}" for row in rows]
    lines = [
        f"Measured on one core of {where['processor']}, by `python -m benchmarks.parts`; the file "
        "is [results/parts.json](results/parts.json). Microseconds of the processor:",
        "",
        f"| part | {' | '.join(heads)} |",
        "|---|" + "---|" * len(rows),
    ]
    for part in rows[0]["microseconds"]:
        cells = [f"{row['microseconds'][part]:,.0f}" for row in rows]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    shares = ", ".join(
        f"{row['share']:.2f} (K = {row['states']}; {row['kernel_share']:.2f} without what is around"
        " the kernel)"
        for row in rows
    )
    return "\n".join([*lines, "", f"Share of sgemm's rate on that core: {shares}."])


def main() -> None:
    """Measure, and write the results and the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=15.0, help="for each batch")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = measure(options.seconds)
    write_result(RESULT, {"command": "python -m benchmarks.parts", "rows": rows})
    write_table("parts", table(rows))


if __name__ == "__main__":
    main()
