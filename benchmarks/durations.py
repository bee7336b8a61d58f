"""What a step of forward-backward costs where states last, beside one of the plain model.

    python -m benchmarks.durations

Both models have the same states, data and process, and repeats alternate; the time is the least of
them, of the processor and on one core, as others may use the machine meanwhile.  "negative
binomial" enters all states at the first of their copies, "categorical" at any of them; `spread`
gives the states of the former 1, 2, ... copies up to the number of the row.  Squares are what the
HDP and the bound need.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.results import write_result
from sojourn.kernels import Potentials, cpu
from sojourn.kernels.interface import DurationPotentials, padded_states

RESULT = Path(__file__).parent / "results" / "durations.json"
KINDS = ("negative binomial", "spread", "categorical")
SHAPES = ((1280, 50), (640, 100), (64, 1000))
SYMBOLS = 1000


def models(kind: str, n_states: int, n_copies: int) -> tuple[Potentials, Potentials]:
    """Return the potentials of a plain model and of one whose states last."""
    rng = np.random.default_rng(0)
    leave = rng.dirichlet(np.ones(n_states), n_states)
    np.fill_diagonal(leave, 0.0)
    leave /= leave.sum(axis=1, keepdims=True)
    table = np.zeros((SYMBOLS, padded_states(n_states)), np.float32)
    table[:, :n_states] = rng.dirichlet(np.full(SYMBOLS, 0.3), n_states).T + 1e-6
    start = np.full(n_states, 1.0 / n_states, np.float32)
    matrix = (0.9 * np.eye(n_states) + 0.1 * leave).astype(np.float32)
    entered = np.zeros(n_states, np.int64)
    if kind == "spread":
        entered = np.arange(n_states) % n_copies
    entry = np.eye(n_copies)[entered]
    if kind == "categorical":
        entry = rng.dirichlet(np.ones(n_copies), n_states)
    stay = np.full(n_states, 0.5)
    durations = DurationPotentials(*(x.astype(np.float32) for x in (entry, stay, 1.0 - stay)))
    lasting = Potentials(start, leave.astype(np.float32), table, None, durations)
    return Potentials(start, matrix, table), lasting


def seconds(functions: list[Callable[[], Any]], repeats: int) -> list[float]:
    """Return the least time of each function, called by turns."""
    least = [np.inf] * len(functions)
    for _ in range(repeats):
        for i, function in enumerate(functions):
            before = time.process_time()
            function()
            least[i] = min(least[i], time.process_time() - before)
    return least


def measure(kind: str, n_states: int, n_copies: int, repeats: int) -> list[dict[str, Any]]:
    """Compare the two models on batches of several shapes."""
    rows = []
    plain, lasting = models(kind, n_states, n_copies)
    for n_sequences, length in SHAPES:
        n_steps = n_sequences * length
        index = np.random.default_rng(1).integers(SYMBOLS, size=n_steps).astype(np.int32)
        offsets = np.arange(0, n_steps + 1, length)
        for squares in (False, True):
            one, other = seconds(
                [
                    partial(cpu.forward_backward, model, index, offsets, squares=squares)
                    for model in (plain, lasting)
                ],
                repeats + 1,
            )
            rows.append(
                {
                    "durations": kind,
                    "states": n_states,
                    "copies": n_copies,
                    "sequences": n_sequences,
                    "length": length,
                    "squares": squares,
                    "plain_ns_a_step": round(1e9 * one / n_steps, 1),
                    "ns_a_step": round(1e9 * other / n_steps, 1),
                    "ratio": round(other / one, 2),
                }
            )
            print(*rows[-1].values(), flush=True)
    return rows


def main() -> None:
    """Measure everything, and write results/durations.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--states", type=int, default=20)
    parser.add_argument("--copies", type=int, default=8)
    parser.add_argument("--output", type=Path, default=RESULT)
    arguments = parser.parse_args()
    rows = [
        row
        for kind in KINDS
        for row in measure(kind, arguments.states, arguments.copies, arguments.repeats)
    ]
    write_result(arguments.output, {"command": "python -m benchmarks.durations", "one_step": rows})


if __name__ == "__main__":
    main()
