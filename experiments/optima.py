"""How often `HMM` finds the best optimum of small data: one start, ten, and the defaults.

python -m experiments.optima [--fits 5] [--seed 430]

The data are those of `experiments.defaults` with at most 32,768 steps, drawn once.  `HMM` is given
the true number of states and fitted several times, with `random_state` from 0 on.  A fit has found
the best optimum if its log likelihood of the training data is within 0.0005 nats per step of the
highest one of all fits to these data.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from statistics import fmean, median
from typing import Any

import sojourn as sj
from benchmarks.results import write_result
from experiments.defaults_data import GROUPS, draw_problem
from experiments.defaults_tables import PAGE, between_marks
from sojourn.models.plan import FULL_STEPS

RESULT = Path(__file__).parent / "results" / "optima.json"
MARK = "optima"
NEAR = 5e-4  # nats per step
WAYS: dict[str, dict[str, Any]] = {
    "one start": {"n_init": 1},
    "ten starts": {"n_init": 10},
    "defaults": {},
}


def measure(name: str, seed: int, n_fits: int) -> dict[str, Any]:
    """Fit one data set in all ways, several times each."""
    cell = GROUPS["sizes"][name]
    problem = draw_problem(name, cell, seed)
    assert cell.true_states is not None
    found: dict[str, Any] = {}
    for way, options in WAYS.items():
        runs = []
        for number in range(n_fits):
            model = sj.HMM(cell.true_states, problem.family, random_state=number, **options)
            began = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(problem.train)
            seconds = time.perf_counter() - began
            score = float(model.score(problem.train, per_step=True))
            runs.append({"score": round(score, 6), "seconds": round(seconds, 3)})
        found[way] = runs
    print(name, found, flush=True)
    return found


def table(result: dict[str, Any]) -> str:
    """Say of each data set how many fits found the best optimum, what is lost, and the time."""
    lines = ["| data | " + " | ".join(WAYS) + " |", "|---|" + "---|" * len(WAYS)]
    sums = dict.fromkeys(WAYS, 0)
    for name, found in result["cells"].items():
        best = max(run["score"] for runs in found.values() for run in runs)
        columns = []
        for way in WAYS:
            losses = [best - run["score"] for run in found[way]]
            n_best = sum(loss < NEAR for loss in losses)
            sums[way] += n_best
            seconds = median(run["seconds"] for run in found[way])
            lost = f", −{fmean(losses):.4f}" if n_best < len(losses) else ""
            columns.append(f"{n_best} of {len(losses)}{lost}, {seconds:.2g} s")
        lines.append(f"| {name} | " + " | ".join(columns) + " |")
    total = sum(len(found["defaults"]) for found in result["cells"].values())
    lines.append("| all | " + " | ".join(f"{n} of {total}" for n in sums.values()) + " |")
    where = result["machine"]
    place = f"{where['cores']} cores ({where['processor']}), {result['date']}"
    return "\n".join([*lines, "", f"({place}; data seed {result['seed']}; `{result['command']}`)"])


def main() -> None:
    """Measure all small data sets, and write the result and its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fits", type=int, default=5)
    parser.add_argument("--seed", type=int, default=430)
    arguments = parser.parse_args()
    cells = {
        name: measure(name, arguments.seed, arguments.fits)
        for name, cell in GROUPS["sizes"].items()
        if cell.n_steps <= FULL_STEPS and cell.true_states is not None
    }
    command = "python -m experiments.optima"
    write_result(RESULT, {"command": command, "seed": arguments.seed, "cells": cells})
    page = between_marks(PAGE.read_text(), MARK, table(json.loads(RESULT.read_text())))
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
