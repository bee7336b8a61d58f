"""The number of passes after which several starts of small data are compared.

python -m experiments.starts [--seeds 4] [--first-seed 400]

On each small data set of `experiments.defaults` ten starts of `HMM` with the true number of states
are trained at once, and compared after some passes; the best of them goes on until it converges.
What is lost is the log likelihood per step, against a comparison of all starts at the end.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from experiments.defaults_data import GROUPS, draw_problem
from sojourn.data import Data
from sojourn.inference.local import prepare
from sojourn.inference.starts import best_start
from sojourn.kernels.interface import NARROW
from sojourn.models.plan import FULL_PASSES, MOST_RESTARTS
from sojourn.models.start import initial_posterior, restart_seeds

RESULT = Path(__file__).parent / "results" / "starts.json"
AFTER = (5, 10, 20, 40)
MOST_STEPS = 3000
TOL = 1e-6
LOST = 1e-3  # nats per step


def losses(name: str, seed: int) -> dict[str, float]:
    """Return what is lost by each comparison on one data set."""
    cell = GROUPS["sizes"][name]
    problem = draw_problem(name, cell, seed)
    model = sj.HMM(cell.true_states, problem.family)
    family, data = Data(problem.train, None, model.emission).resolve(model.emission, model.n_states)
    starts = [
        initial_posterior(model, family, data, len(data), data.n_steps, own)
        for own in restart_seeds(seed, MOST_RESTARTS)
    ]
    (chunk,) = prepare(family, data)
    ends = {
        after: best_start(
            family,
            starts,
            chunk,
            n_passes=FULL_PASSES,
            compare_after=after,
            tol=TOL,
            alone=True,
        )[1].log_likelihood
        for after in (*AFTER, FULL_PASSES)
    }
    best = ends[FULL_PASSES]
    assert best is not None
    return {
        str(after): round((best - (ends[after] or -np.inf)) / data.n_steps, 5) for after in AFTER
    }


def main() -> None:
    """Measure all small data sets, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--first-seed", type=int, default=400)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    cells: dict[str, Any] = {}
    for name, cell in GROUPS["sizes"].items():
        if cell.n_steps > MOST_STEPS or not cell.true_states or cell.true_states > NARROW:
            continue
        cells[name] = [losses(name, seed) for seed in seeds]
        print(name, cells[name], flush=True)
    every = [run for runs in cells.values() for run in runs]
    summary = {
        str(after): {
            "mean": round(float(np.mean([run[str(after)] for run in every])), 5),
            "worst": max(run[str(after)] for run in every),
            "lost": sum(run[str(after)] > LOST for run in every),
            "of": len(every),
        }
        for after in AFTER
    }
    print(summary)
    command = "python -m experiments.starts"
    result = {"command": command, "seeds": list(seeds), "summary": summary, "cells": cells}
    write_result(RESULT, result)


if __name__ == "__main__":
    main()
