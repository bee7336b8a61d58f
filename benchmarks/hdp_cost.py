"""What the HDP costs: the time of training an `HDPHMM`, relative to an `HMM`.

    python -m benchmarks.hdp_cost

Both are trained in turn in one process, on one thread, with the same minibatches and passes and
without moves; the quickest training of each counts, in seconds of the processor (`known.ratios`).
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.known import ratios
from benchmarks.results import write_result

RESULT = Path(__file__).parent / "results/hdp_cost.json"
STATES, SEQUENCES, SYMBOLS = (3, 10, 16, 45, 120), (500, 2_000, 5_000, 50_000), (100, 5_000)
LENGTH, BATCH_SIZE, MOST_PASSES = 22, 1000, 10


def make_data(n_sequences: int, n_states: int, n_symbols: int) -> sj.Sequences:
    """Return sequences of symbols, of which a state has twenty, and states that stay a step."""
    rng = np.random.default_rng(0)
    n_steps = n_sequences * LENGTH
    states = np.repeat(rng.integers(n_states, size=n_steps // 2 + 1), 2)[:n_steps]
    symbols = (states * 7 + rng.integers(20, size=n_steps)) % n_symbols
    return sj.Sequences.from_lengths(symbols, [LENGTH] * n_sequences)


def cost(n_states: int, n_sequences: int, n_symbols: int, seconds: float) -> dict[str, Any]:
    """Train both models on the same data; their updates are as many."""
    X = make_data(n_sequences, n_states, n_symbols)
    n_passes = max(1, min(MOST_PASSES, 50_000 // n_sequences))

    def train(kind: type) -> None:
        kind(
            n_states, sj.Categorical(n_symbols), batch_size=BATCH_SIZE, n_passes=n_passes,
            moves=None, tuned=False, init="exponential", random_state=0, n_jobs=1,
        ).fit(X)  # fmt: skip

    found = ratios({"HMM": partial(train, sj.HMM), "HDPHMM": partial(train, sj.HDPHMM)}, seconds)
    return {
        "n_states": n_states,
        "n_sequences": n_sequences,
        "n_symbols": n_symbols,
        "ratio": found["HDPHMM"],
    }


def main() -> None:
    """Measure, print and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of every cell, about")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    cells = []
    for n_states in STATES:
        for n_sequences in SEQUENCES:
            for n_symbols in SYMBOLS:
                cells.append(cost(n_states, n_sequences, n_symbols, args.seconds))
                print(cells[-1], flush=True)
    write_result(
        args.out,
        {
            "command": "python -m benchmarks.hdp_cost",
            "length": LENGTH,
            "batch_size": BATCH_SIZE,
            "seconds": args.seconds,
            "cells": cells,
        },
    )


if __name__ == "__main__":
    main()
