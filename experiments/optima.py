"""How often `HMM` finds the best optimum of small data: one start, ten, and the defaults.

python -m experiments.optima [--fits 5] [--seed 430] [--many]

The data are those of `experiments.defaults` with at most 32,768 steps, drawn once.  `HMM` is given
the true number of states and fitted several times, with `random_state` from 0 on.  A fit has found
the best optimum if its log likelihood of the training data is within 0.0005 nats per step of the
highest one of all fits to these data.

With `--many`, models of thousands of sequences are compared with the true parameters instead: `HMM`
and `HDPHMM` with the true number of states, and `HDPHMM` with twice as many.
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
from benchmarks.results import place, write_result
from experiments.defaults_data import GROUPS, draw_problem, several
from experiments.defaults_tables import PAGE, between_marks
from sojourn.models.plan import FULL_STEPS

RESULT = Path(__file__).parent / "results" / "optima.json"
RESULT_MANY = Path(__file__).parent / "results" / "optima_many.json"
MARK, MARK_MANY = "optima", "optima many"
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
    measured = f"{place(where)}, {result['date']}"
    return "\n".join(
        [*lines, "", f"({measured}; data seed {result['seed']}; `{result['command']}`)"]
    )


MANY = [
    (kind, n_sequences, n_states)
    for kind in ("Gaussian, 5 sigma", "Poisson", "Bernoulli", "categorical")
    for n_sequences, n_states in ((2000, 8), (5000, 20))
    if kind != "Poisson" or n_states < 20
]
"""Families, numbers of sequences and of true states."""

MODELS = (("HMM", 1), ("HDPHMM", 1), ("HDPHMM", 2))


def measure_many(kind: str, n_sequences: int, n_states: int, seed: int) -> dict[str, Any]:
    """Fit all models; return held-out nats per step below the true parameters, states and time."""
    cell = several(kind, n_sequences, n_states)
    problem = draw_problem(kind, cell, seed)
    assert problem.truth_score is not None
    found: dict[str, Any] = {
        "kind": kind, "n_sequences": n_sequences, "n_states": n_states, "seed": seed,
    }  # fmt: skip
    for name, factor in MODELS:
        model = getattr(sj, name)(factor * n_states, problem.family, random_state=seed)
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(problem.train)
        seconds = time.perf_counter() - began
        short = float(model.score(problem.test, per_step=True)) - problem.truth_score
        found[f"{name} {factor}"] = {
            "short": round(short, 5),
            "states": int(model.n_states_),
            "seconds": round(seconds, 2),
        }
    print(found, flush=True)
    return found


def table_many(result: dict[str, Any]) -> str:
    """Say how far below the true parameters each model is, in the mean and at worst."""
    names = ["`HMM(K)`", "`HDPHMM(K)`", "`HDPHMM(2 K)`"]
    lines = ["| data | K | " + " | ".join(names) + " |", "|---|---|---|---|---|"]
    for cell in MANY:
        runs = [run for run in result["each"] if [run["kind"], run["n_sequences"]] == [*cell[:2]]]
        columns = []
        for name, factor in MODELS:
            own = [run[f"{name} {factor}"] for run in runs]
            shorts = [run["short"] for run in own]
            seconds = median(run["seconds"] for run in own)
            text = f"{fmean(shorts):.4f}, at worst {min(shorts):.4f}, {seconds:.2g} s"
            columns.append(text.replace("-", "−"))
        first = f"| {cell[1]:,} sequences, {cell[0]} | {cell[2]} | "
        lines.append(first + " | ".join(columns) + " |")
    where, seeds = result["machine"], sorted({run["seed"] for run in result["each"]})
    measured = f"{place(where)}, {result['date']}"
    source = f"({measured}; seeds {seeds[0]} to {seeds[-1]}; `{result['command']}`)"
    return "\n".join([*lines, "", source])


def main() -> None:
    """Measure all data sets, and write the result and its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fits", type=int, default=5)
    parser.add_argument("--seed", type=int, default=430)
    parser.add_argument("--many", action="store_true", help="thousands of sequences instead")
    arguments = parser.parse_args()
    if arguments.many:
        seeds = range(arguments.seed, arguments.seed + 3)
        each = [measure_many(*cell, seed) for cell in MANY for seed in seeds]
        write_result(RESULT_MANY, {"command": "python -m experiments.optima --many", "each": each})
        text = table_many(json.loads(RESULT_MANY.read_text()))
        PAGE.write_text(between_marks(PAGE.read_text(), MARK_MANY, text))
        return
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
