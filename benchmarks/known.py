"""What labels and constraints cost: the time of training with them, relative to without.

    python -m benchmarks.known

What is compared is trained in turn in the same process, on one thread, for some seconds.  The
quickest training of each counts, in seconds of the processor: other programs may run, which takes
caches and clock away from some of the rounds, and medians of the same code differed by a tenth.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sojourn as sj
from benchmarks.results import write_result

HERE = Path(__file__).parent
N_SEQUENCES, LENGTH, N_SYMBOLS, N_PASSES = 2_000, 40, 200, 10


def make_data(n_states: int, *, numbers: bool) -> tuple[sj.Sequences, NDArray[np.int64]]:
    """Return sequences of symbols or of two numbers, and their states."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(n_states, size=N_SEQUENCES * LENGTH // 8), 8)
    if numbers:
        values = np.stack([states % 4, states // 4], axis=1) + rng.normal(size=(len(states), 2))
    else:
        values = (states * 7 + rng.integers(20, size=len(states))) % N_SYMBOLS
    return sj.Sequences.from_lengths(values, [LENGTH] * N_SEQUENCES), states


def ratios(trainings: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the quickest time of every training relative to that of the first."""
    rounds: list[list[float]] = []
    for train in trainings.values():
        train()  # compiles what it needs
    begin = time.process_time()
    while not rounds or time.process_time() - begin < seconds:
        times = []
        for train in trainings.values():
            before = time.process_time()
            train()
            times.append(time.process_time() - before)
        rounds.append(times)
    quickest = np.min(rounds, axis=0)
    return dict(zip(trainings, (quickest / quickest[0]).round(3).tolist(), strict=True))


def make_model(kind: type, n_states: int, emission: Any, **options: Any) -> Any:
    """Return a model that makes the same updates whatever is known."""
    return kind(
        n_states, emission, batch_size=1000, n_passes=N_PASSES, moves=None, tuned=False,
        init="exponential", random_state=0, n_jobs=1, **options,
    )  # fmt: skip


def cost_of_labels(family: str, n_states: int, seconds: float) -> dict[str, float]:
    """Train without labels, and with labels of few steps, of all, and weights of states."""
    X, states = make_data(n_states, numbers=family != "Categorical")
    rng = np.random.default_rng(1)
    known = {
        "none": None,
        "a tenth of the steps": np.where(rng.random(len(states)) < 0.1, states, -1),
        "every step": states,
        "weights": np.where(np.eye(n_states)[states] > 0.0, 1.0, 0.1),
    }
    emission = sj.Categorical(N_SYMBOLS) if family == "Categorical" else sj.DiagonalGaussian()
    model = make_model(sj.HMM, n_states, emission)
    trainings = {name: partial(model.fit, X, y=y) for name, y in known.items()}
    return ratios(trainings, seconds)


def cost_of_constraints(kind: type, n_states: int, seconds: float) -> dict[str, float]:
    """Train without constraints, with some zeros, with a given number, and by name."""
    X, _ = make_data(n_states, numbers=False)
    zeros = np.full((n_states, n_states), np.nan)
    zeros[0, 1:] = np.where(np.arange(1, n_states) % 2, 0.0, np.nan)
    given = np.full((n_states, n_states), np.nan)
    given[0, 1] = 0.1
    trainings = {
        name: make_model(
            kind, n_states, sj.Categorical(N_SYMBOLS), transition_constraints=constraints
        )
        for name, constraints in {
            "none": None, "zeros": zeros, "given": given, "no-self": "no-self"
        }.items()
    }  # fmt: skip
    return ratios({name: partial(m.fit, X) for name, m in trainings.items()}, seconds)


def main() -> None:
    """Measure, print and write the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--out", type=Path, default=HERE / "results/known.json")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    labels, constraints = [], []
    for family in ("Categorical", "DiagonalGaussian"):
        for n_states in (8, 30):
            found = cost_of_labels(family, n_states, args.seconds)
            print(family, n_states, found, flush=True)
            labels.append({"family": family, "n_states": n_states, "ratios": found})
    for kind in (sj.HMM, sj.HDPHMM):
        for n_states in (10, 30):
            found = cost_of_constraints(kind, n_states, args.seconds)
            print(kind.__name__, n_states, found, flush=True)
            constraints.append({"model": kind.__name__, "n_states": n_states, "ratios": found})
    write_result(
        args.out,
        {
            "command": "python -m benchmarks.known",
            "sequences": N_SEQUENCES,
            "length": LENGTH,
            "passes": N_PASSES,
            "seconds": args.seconds,
            "labels": labels,
            "constraints": constraints,
        },
    )


if __name__ == "__main__":
    main()
