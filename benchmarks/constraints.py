"""What constraints on transitions cost: the time of training with them, relative to without.

    python -m benchmarks.constraints

Both are timed in turn in the same process, and the best of several repetitions counts.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result

HERE = Path(__file__).parent
N_SEQUENCES, LENGTH, N_SYMBOLS = 10_000, 40, 200


def constraints_of(n_states: int) -> dict[str, Any]:
    """Return what is compared, by name: nothing, a few zeros, names, and given numbers."""
    zeros = np.full((n_states, n_states), np.nan)
    zeros[0, 1:] = np.where(np.arange(1, n_states) % 2, 0.0, np.nan)
    given = np.full((n_states, n_states), np.nan)
    given[0, 1] = 0.1
    return {"none": None, "zeros": zeros, "given": given, "no-self": "no-self"}


def measure(kind: type, n_states: int, repetitions: int) -> dict[str, float]:
    """Return the seconds of training by constraint, the best of some."""
    rng = np.random.default_rng(0)
    # Blocks of symbols, so that there is something to learn.
    states = np.repeat(rng.integers(n_states, size=N_SEQUENCES * LENGTH // 8), 8)
    symbols = (states * 7 + rng.integers(20, size=len(states))) % N_SYMBOLS
    X = sj.Sequences.from_lengths(symbols, [LENGTH] * N_SEQUENCES)
    best: dict[str, float] = {}
    for _ in range(repetitions):
        for name, constraints in constraints_of(n_states).items():
            model = kind(
                n_states, sj.Categorical(N_SYMBOLS), transition_constraints=constraints,
                batch_size=1000, n_passes=2, moves=None, tuned=False, init="exponential",
                random_state=0,
            )  # fmt: skip
            before = time.perf_counter()
            model.fit(X)
            seconds = time.perf_counter() - before
            best[name] = min(best.get(name, np.inf), seconds)
    return best


def main() -> None:
    """Measure, print and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "results/constraints.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    for kind in (sj.HMM, sj.HDPHMM):
        for n_states in (10, 50):
            seconds = measure(kind, n_states, args.repetitions)
            ratios = {name: round(own / seconds["none"], 3) for name, own in seconds.items()}
            print(kind.__name__, n_states, ratios, flush=True)
            found.append({"model": kind.__name__, "n_states": n_states, "ratios": ratios})
    write_result(args.out, {"sequences": N_SEQUENCES, "length": LENGTH, "found": found})


if __name__ == "__main__":
    main()
