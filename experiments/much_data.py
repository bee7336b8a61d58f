"""How much of what states tell of new sequences a merge of much data may cost at first.

python -m experiments.much_data [--seeds 2] [--first-seed 400] [--jobs 1]

Sentences of little more than a million words are drawn from known states, as `sojourn generate`
does, and `HDPHMM` learns them with its defaults and twice as many states, but for
`MoveSettings(survey_loss=...)`: 1 judges merges by the bound alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from sojourn.inference.occupancy import USED_SHARE
from sojourn.kernels.threads import available_cores
from sojourn.sources.base import joined
from sojourn.sources.generate import draw_sentences, draw_truth

RESULT = Path(__file__).parent / "results" / "much_data.json"
LOSSES = (0.02, 0.1, 0.5, 1.0)
N_SENTENCES, N_HELD_OUT = 50_000, 2_000


class Run(NamedTuple):
    """A data set, and the share that a merge may cost."""

    n_states: int
    n_symbols: int
    survey_loss: float
    seed: int
    n_jobs: int | None


CELLS = ((30, 10_000), (60, 10_000), (45, 50_000))


def measure(run: Run) -> dict[str, Any]:
    """Fit a model; return how many states it has, and how well it predicts new sentences."""
    truth = draw_truth(run.n_states, run.n_symbols, run.seed)
    drawn = joined(list(draw_sentences(truth, N_SENTENCES + N_HELD_OUT, run.seed + 1)))
    train, test = drawn[:N_SENTENCES], drawn[N_SENTENCES:]
    shares = np.linalg.matrix_power(truth.transitions, 4096)[0]
    settings = sj.MoveSettings(survey_loss=run.survey_loss)
    model = sj.HDPHMM(
        2 * run.n_states,
        sj.Categorical(run.n_symbols),
        moves=settings,
        random_state=run.seed,
        n_jobs=run.n_jobs,
    )
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(train)
    found = {
        **run._asdict(),
        "n_steps": train.n_steps,
        "true_states": int((shares > USED_SHARE).sum()),
        "states": int(model.n_states_),
        "score": round(float(model.score(test, per_step=True)), 5),
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(found, flush=True)
    return found


def main() -> None:
    """Measure all data sets with all shares, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=400)
    parser.add_argument("--jobs", type=int, default=1, help="fits at a time; times are then worse")
    parser.add_argument("--out", type=Path, default=RESULT)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    n_jobs = None if arguments.jobs == 1 else max(1, available_cores() // arguments.jobs)
    runs = [Run(*cell, *rest, n_jobs) for cell, *rest in product(CELLS, LOSSES, seeds)]
    if arguments.jobs == 1:
        each = [measure(run) for run in runs]
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
            each = list(pool.map(measure, runs))
    command = "python -m experiments.much_data"
    write_result(arguments.out, {"command": command, "jobs": arguments.jobs, "each": each})


if __name__ == "__main__":
    main()
