"""Time one E-step of a categorical HMM on a GPU: sojourn, dynamax and pomegranate.

    make peers-gpu

Everyone gets the same parameters and the same sequences, all of 22 steps: peers take sequences of
one length, and would lose by padding what they need not lose here.  A peer that finds no GPU runs
on the CPU, and the result says so.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sojourn as sj
from benchmarks import peers
from benchmarks.gpu import seconds
from benchmarks.results import write_result
from sojourn.kernels import Potentials, cuda
from sojourn.sequences import Sequences

ROOT = Path(__file__).parent.parent
RESULT = ROOT / "benchmarks" / "results" / "gpu_peers.json"
STATES, LENGTH, SEQUENCES = 45, 22, 1000
# pomegranate sums by symbol in a loop over symbols and states: 50,000 symbols would take minutes.
RUNS = {
    1000: ("dynamax_smoother", "dynamax", "pomegranate_recursions", "pomegranate"),
    50_000: ("dynamax_smoother", "dynamax", "pomegranate_recursions"),
}


def time_sojourn(problem: peers.Problem) -> dict[str, Any]:
    """Time sojourn: steps sorted by symbol, forward-backward, and sums by symbol."""
    n, length = problem.data.shape
    arrays = (problem.initial, problem.transition, np.ascontiguousarray(problem.emission.T))
    potentials = Potentials(*(torch.from_numpy(part.astype(np.float32)).cuda() for part in arrays))
    index = torch.from_numpy(problem.data.reshape(-1).astype(np.int32)).cuda()
    offsets = torch.arange(n + 1, device="cuda") * length
    n_symbols = problem.emission.shape[1]

    def run() -> Any:
        segments = cuda.find_segments(index, offsets[[0, -1]], n_symbols).batch(0)
        found = cuda.forward_backward(potentials, index, offsets)
        return found, cuda.sum_by_symbol(segments, found.responsibilities, n_symbols)

    log_likelihood = float(run()[0].log_normalizers.sum())
    expected = peers.reference_log_likelihood(problem, n)
    difference = abs(log_likelihood - expected) / abs(expected)
    taken = seconds(run)
    return {
        "steps_per_second": n * length / taken,
        "seconds": taken,
        "sequences": n,
        "timed": "One E-step: steps sorted by symbol, forward-backward and sums by symbol, in "
        "float32.",
        "device": "gpu",
        "relative_difference": difference,
        "agrees": bool(difference <= peers.TOLERANCE),
    }


def time_training(problem: peers.Problem) -> dict[str, Any]:
    """Time sojourn as it is used: a pass over many such minibatches, updates included."""
    n, length = problem.data.shape
    data = Sequences.from_lengths(np.tile(problem.data.reshape(-1), 200), [length] * 200 * n)
    model = sj.HMM(
        STATES,
        sj.Categorical(n_symbols=problem.emission.shape[1], concentration=0.1),
        batch_size=n,
        n_passes=4,
        device="cuda",
        random_state=0,
    ).fit(data)
    taken = min(np.diff([0.0, *(entry["seconds"] for entry in model.history_)])) / 200
    return {
        "steps_per_second": n * length / taken,
        "seconds": taken,
        "sequences": n,
        "timed": "A step of training, HMM.fit: minibatch, E-step and update, in float32.",
        "device": "gpu",
        "agrees": True,
    }


def main() -> None:
    """Time everyone, and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", type=Path, default=ROOT / ".peers", help="folder of packages")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    # Behind what is installed: torch, jax and NumPy are those of this machine.
    sys.path.append(str(arguments.peers.resolve()))
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    runs = []
    for n_symbols, names in RUNS.items():
        problem = peers.draw_problem(STATES, n_symbols, LENGTH, SEQUENCES, 0)
        results = {
            "sojourn_training": time_training(problem),
            "sojourn": time_sojourn(problem),
        }
        print(n_symbols, results, flush=True)
        torch.cuda.empty_cache()
        for name in names:
            results[name] = peers.time_apart(name, problem, 3, SEQUENCES)
            print(n_symbols, name, results[name], flush=True)
        runs.append({"symbols": n_symbols, "results": results})
        measured = {
            "gpu": torch.cuda.get_device_name(),
            "states": STATES,
            "length": LENGTH,
            "runs": runs,
        }
        write_result(arguments.out, measured, ("torch", "triton", "jax"))


if __name__ == "__main__":
    main()
