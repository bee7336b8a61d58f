"""Do the defaults serve every size?  States found and held-out likelihood, from 100 steps on.

python -m experiments.defaults [--only NAME ...] [--seeds 10] [--first-seed 400]
                               [--corpus FOLDER] [--large] [--device cpu|cuda] [--jobs N] [--again]

Models are given nothing but the family and `n_states`, twice the true number.  A cell is a data
set with its size; what was measured with a seed is written when it ends, and is not measured again
with the same settings and the same source of the package, unless with `--again`.  Names may have
wildcards.  With `--large` sentences of millions of tokens are measured, on the device that is
named, and nothing else.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sojourn as sj
from benchmarks.results import machine, write_result
from experiments.defaults_data import GROUPS, Problem, draw_problem
from experiments.defaults_peers import PEERS, compare
from sojourn.kernels.threads import available_cores

RESULT = Path(__file__).parent / "results" / "defaults.json"
SMALL_GROUPS = ("sizes", "known", "peers", "corpus")
NAMES = [*(name for cells in GROUPS.values() for name in cells), *PEERS]
WARM_STEPS = 300
_warm: set[tuple[str, str]] = set()  # cells whose kernels this process has compiled


class Task(NamedTuple):
    """A cell and a seed, or all seeds of a comparison, with everything that is needed."""

    group: str
    name: str
    seeds: list[int]
    corpus: Path | None
    n_jobs: int | None
    device: str

    def settings(self) -> dict[str, Any]:
        """Return what must be equal for results to be those of one cell."""
        if self.group == "peers":
            cell: dict[str, Any] = {"n_states": PEERS[self.name].n_states}
        else:
            known = GROUPS[self.group][self.name]
            cell = known._asdict() | {"n_states": known.truncation, "n_steps": known.n_steps}
        # Through JSON and back, as what it is compared with: tuples become lists.
        settings: dict[str, Any] = json.loads(json.dumps(cell))
        return settings


def package_state() -> str:
    """Return a digest of the package's source."""
    digest = hashlib.sha256()
    root = Path(sj.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


# ---- measurements -------------------------------------------------------------------------------


def fit(problem: Problem, n_states: int, seed: int, **options: Any) -> dict[str, Any]:
    """Fit a model, and say what it found and how well it predicts."""
    model = sj.HDPHMM(n_states, problem.family, random_state=seed, **options)
    began = time.perf_counter()
    model.fit(problem.train)
    seconds = time.perf_counter() - began
    score = None
    if problem.test is not None:
        score = round(float(model.score(problem.test, per_step=True)), 5)
    return {
        "states": int(model.n_states_),
        "score": score,
        "seconds": round(seconds, 3),
        "converged": getattr(model, "converged_", None),
    }


def compile_kernels(
    problem: Problem, n_states: int, options: dict[str, Any], *, with_moves: bool
) -> None:
    """Fit to a little of the data, so that no time of compilation is measured."""
    train = problem.train
    few = train[: min(len(train), 50)]
    if len(few) == 1:
        values = few.values[:WARM_STEPS]
        few = sj.Sequences.from_lengths(values, [len(values)])
    for moves in ("auto", None) if with_moves else (None,):
        sj.HDPHMM(n_states, problem.family, random_state=0, moves=moves, **options).fit(few)


def run_cell(task: Task) -> dict[str, Any]:
    """Measure the defaults, no moves, and the true number of states, with every seed."""
    cell = GROUPS[task.group][task.name]
    options: dict[str, Any] = {"n_jobs": task.n_jobs, "device": task.device}
    runs = []
    for seed in task.seeds:
        problem = draw_problem(task.name, cell, seed, task.corpus)
        if (task.group, task.name) not in _warm:
            # Few sentences of a large vocabulary say nothing of states, and are searched for long.
            with_moves = task.group != "large"
            compile_kernels(problem, cell.truncation, options, with_moves=with_moves)
            _warm.add((task.group, task.name))
        run = {
            "seed": seed,
            "true_states": problem.true_states,
            "truth_score": problem.truth_score and round(problem.truth_score, 5),
            "defaults": fit(problem, cell.truncation, seed, **options),
            "no_moves": fit(problem, cell.truncation, seed, moves=None, **options),
        }
        if cell.true_states is not None:
            run["truth_given"] = fit(problem, cell.true_states, seed, **options)
        runs.append(run)
        print(task.name, run, flush=True)
    return {"each": runs}


def measure(task: Task) -> dict[str, Any]:
    """Measure a cell, and say where and when."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if task.group == "peers":
            found = compare(task.name, task.seeds, task.n_jobs)
        else:
            found = run_cell(task)
    where = machine()
    if task.device == "cuda":
        import torch

        where["device"] = torch.cuda.get_device_name()
    return {"machine": where, "date": date.today().isoformat(), **found}


# ---- the run ------------------------------------------------------------------------------------


def tasks(arguments: argparse.Namespace) -> Iterator[Task]:
    """Yield what is asked for, first seeds first."""
    n_jobs = None if arguments.jobs == 1 else max(1, available_cores() // arguments.jobs)
    groups = ("large",) if arguments.large else SMALL_GROUPS
    for number in range(arguments.seeds):
        seed = arguments.first_seed + number
        for group in groups:
            if group == "corpus" and arguments.corpus is None:
                continue
            for name in PEERS if group == "peers" else GROUPS[group]:
                if not any(fnmatchcase(name, pattern) for pattern in arguments.only):
                    continue
                if group == "peers" and number == 0:
                    seeds = list(range(seed, seed + arguments.seeds))
                    yield Task(group, name, seeds, arguments.corpus, n_jobs, arguments.device)
                elif group != "peers" and number < (GROUPS[group][name].most_seeds or np.inf):
                    yield Task(group, name, [seed], arguments.corpus, n_jobs, arguments.device)


def finished(todo: list[Task], jobs: int) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Yield what was measured, as it ends."""
    if jobs == 1:
        for task in todo:
            yield task, measure(task)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        futures = {pool.submit(measure, task): task for task in todo}
        for future in as_completed(futures):
            yield futures[future], future.result()


def same_cell(cell: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two results may stand in one row: all but the seeds is equal."""
    return all(cell.get(key) == other[key] for key in ("package", "settings", "jobs", "machine"))


def with_others(cell: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    """Return a result together with what other seeds have given in the same cell."""
    if cell["group"] == "peers" or not same_cell(there, cell):
        return cell
    runs = {run["seed"]: run for run in [*there["each"], *cell["each"]]}
    return {**cell, "each": [runs[seed] for seed in sorted(runs)]}


def main() -> None:
    """Measure what is not in the file yet, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=400)
    parser.add_argument("--corpus", type=Path, help="folder with train.txt and test.txt")
    parser.add_argument("--large", action="store_true", help="only millions of tokens")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time; times are then worse")
    parser.add_argument("--again", action="store_true", help="also what is in the file already")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    cells = json.loads(arguments.out.read_text())["cells"] if arguments.out.exists() else {}
    state = package_state()
    todo = []
    for task in tasks(arguments):
        there = cells.get(task.name, {})
        same = there.get("package") == state and there.get("settings") == task.settings()
        seeds = {run["seed"] for run in there.get("each", [])}
        if arguments.again or not (same and seeds.issuperset(task.seeds)):
            todo.append(task)
    for task, found in finished(todo, arguments.jobs):
        cell = {
            "group": task.group,
            "settings": task.settings(),
            "package": state,
            "jobs": arguments.jobs,
            **found,
        }
        cells[task.name] = with_others(cell, cells.get(task.name, {}))
        cells = {name: cells[name] for name in NAMES if name in cells}
        result = {"command": "python -m experiments.defaults", "cells": cells}
        write_result(arguments.out, result, packages=("hmmlearn",))


if __name__ == "__main__":
    main()
