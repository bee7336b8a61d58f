"""Where strips of tiles are faster than blocks of sequences, from which their limits come.

    python -m benchmarks.strips

Forward-backward in both ways on one core, and a pass of `fit` in minibatches of sentences in both
ways on all cores; the quickest of several runs counts, of `fit` in turns.  Takes a minute.
"""

from __future__ import annotations

import argparse
import json
import warnings
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import sojourn as sj
from benchmarks.cpu import sentences
from benchmarks.few_states import seconds
from benchmarks.results import place, write_result, write_table
from sojourn.kernels.cpu import narrow, recursions
from sojourn.kernels.interface import Potentials

RESULT = Path(__file__).parent / "results/strips.json"
STATES = (20, 32, 45, 64, 100, 256)
SHAPES = ((1, 300), (1, 1_200), (1, 24_576), (24, 1_024), (64, 200), (1_200, 20))
FIT_STATES = (20, 28, 32, 45, 100)
FIT_SIZES = (300, 1_000, 5_000)
LENGTH = 22
MOST_SECONDS = 10.0  # for the repeats of one figure


def recursion(n_states: int, shape: tuple[int, int], repeats: int) -> dict[str, Any]:
    """Time forward-backward on random potentials, one core, in ns a step."""
    rng = np.random.default_rng(0)
    n_sequences, length = shape
    n_steps = n_sequences * length
    start, *rows = rng.dirichlet(np.ones(n_states), n_states + 1).astype(np.float32)
    emissions = rng.random((n_steps, n_states), np.float32)
    batch = (
        Potentials(start, np.array(rows), emissions),
        np.arange(n_steps, dtype=np.int32),
        np.arange(0, n_steps + 1, length),
    )
    strips, blocks = (
        seconds(partial(way, *batch), repeats, MOST_SECONDS, one_core=True)
        for way in (narrow.smooth, recursions.smooth)
    )
    return {
        "states": n_states,
        "sequences": n_sequences,
        "length": length,
        "strips_ns": round(1e9 * strips / n_steps, 1),
        "blocks_ns": round(1e9 * blocks / n_steps, 1),
    }


def fits(name: str, n_states: int, batch_size: int, repeats: int) -> dict[str, Any]:
    """Time a pass of `fit`, on all cores."""
    if name == "symbols":
        family: Any = sj.Categorical(50_000)
        data: Any = sentences(20_000, 50_000)
    else:
        family = sj.Gaussian()
        data = list(np.random.default_rng(0).normal(size=(10_000, LENGTH, 2)))
    model = sj.HMM(n_states, family, batch_size=batch_size, n_passes=1, random_state=0, moves=None)

    shortest = {True: np.inf, False: np.inf}
    for _ in range(repeats):
        for in_strips in shortest:
            with mock.patch.object(recursions, "_suits_strips", return_value=in_strips):
                passed = model.fit(data).history_[-1]["seconds"]
            shortest[in_strips] = min(shortest[in_strips], passed)
    return {
        "data": name,
        "states": n_states,
        "batch_size": batch_size,
        "strips_seconds": round(shortest[True], 4),
        "blocks_seconds": round(shortest[False], 4),
    }


def tables(found: dict[str, Any]) -> str:
    """Tabulate the result for the README of the benchmarks."""
    cells = {(c["states"], c["sequences"], c["length"]): c for c in found["recursions"]}
    passes = {(c["data"], c["states"], c["batch_size"]): c for c in found["fits"]}
    kinds = sorted({kind for kind, *_ in passes}, reverse=True)
    return "\n".join(
        [
            f"Measured on {place(found['machine'])}, {found['date']}, by `{found['command']}`; the "
            "file is [results/strips.json](results/strips.json). Forward-backward on one core, ns "
            "a step in strips and in blocks:",
            "",
            "| states | " + " | ".join(f"{n:,} × {length:,}" for n, length in SHAPES) + " |",
            "|---|" + "---|" * len(SHAPES),
            *(
                f"| {k} | "
                + " | ".join(
                    f"{cells[k, *shape]['strips_ns']:.0f}, {cells[k, *shape]['blocks_ns']:.0f}"
                    for shape in SHAPES
                )
                + " |"
                for k in STATES
            ),
            "",
            f"A pass of `fit` on sequences of {LENGTH} steps on all cores, time in blocks relative "
            f"to that in strips, in minibatches of {', '.join(f'{n:,}' for n in FIT_SIZES)}:",
            "",
            "| data | " + " | ".join(f"{k} states" for k in FIT_STATES) + " |",
            "|---|" + "---|" * len(FIT_STATES),
            *(
                f"| {kind} | "
                + " | ".join(
                    ", ".join(
                        f"{passes[kind, k, n]['blocks_seconds'] / one:.2f}"
                        for n in FIT_SIZES
                        if (one := passes[kind, k, n]["strips_seconds"])
                    )
                    for k in FIT_STATES
                )
                + " |"
                for kind in kinds
            ),
        ]
    )


def main() -> None:
    """Measure, print and write the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found: dict[str, Any] = {"command": "python -m benchmarks.strips", "recursions": [], "fits": []}
    for k in STATES:
        for shape in SHAPES:
            found["recursions"].append(recursion(k, shape, args.repeats))
            print(found["recursions"][-1], flush=True)
    for name in ("symbols", "numbers"):
        for k in FIT_STATES:
            for batch_size in FIT_SIZES:
                found["fits"].append(fits(name, k, batch_size, args.repeats))
                print(found["fits"][-1], flush=True)
    write_result(args.out, found)
    write_table("strips", tables(json.loads(args.out.read_text())))


if __name__ == "__main__":
    main()
