"""Is the number of states found?  Data drawn from known states, recordings, and a corpus.

python -m experiments.number_of_states [FOLDER] [--seeds 10] [--only NAME ...]
                                       [--jobs N]

Every experiment is written when it ends, and the others stay as they were: a run that was stopped
goes on with `--only` and the names that are left.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.metrics import v_measure_score

import sojourn as sj
from benchmarks.results import write_result
from experiments.corpus import read_corpus
from sojourn.kernels import cpu
from sojourn.kernels.interface import Potentials
from sojourn.models.plan import BATCH_SIZE, N_PASSES
from sojourn.moves.settings import MoveSettings
from sojourn.moves.warmup import WarmUp

RESULT = Path(__file__).parent / "results" / "number_of_states.json"
FIRST_SEED = 300
SEQUENCES = 2000
SMALL_START = sj.MoveSettings(init_states=2)


class Drawn(NamedTuple):
    """Data drawn from known states, and how well the truth itself does on the held-out part."""

    train: sj.Sequences
    test: sj.Sequences
    test_states: np.ndarray
    truth_score: float
    truth_error: float
    labelled_error: float | None = None


Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
Density = Callable[[np.ndarray], np.ndarray]


def gaussian(
    n_states: int, rng: np.random.Generator, spread: float = 3.0
) -> tuple[sj.Gaussian, Draw, Density]:
    """Make Gaussian states in the plane that overlap moderately."""
    means = rng.normal(0.0, spread, (n_states, 2))
    shapes = rng.normal(size=(n_states, 2, 2))
    covariances = shapes @ shapes.transpose(0, 2, 1) + 0.3 * np.eye(2)
    covariances *= 0.8 / np.sqrt(np.linalg.det(covariances))[:, None, None]
    roots = np.linalg.cholesky(covariances)

    def draw(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
        return means[z] + np.einsum("tij,tj->ti", roots[z], rng.normal(size=(len(z), 2)))

    def density(x: np.ndarray) -> np.ndarray:
        parts = zip(means, covariances, strict=True)
        return np.stack([stats.multivariate_normal(m, c).logpdf(x) for m, c in parts], axis=1)

    return sj.Gaussian(), draw, density


def categorical(n_states: int, rng: np.random.Generator) -> tuple[sj.Categorical, Draw, Density]:
    """Make states with moderately overlapping distributions on 100 symbols, Dirichlet(0.03)."""
    shares = rng.dirichlet(np.full(100, 0.03), n_states)
    bounds = np.cumsum(shares, axis=1)

    def draw(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
        return np.minimum((bounds[z] <= rng.random(len(z))[:, None]).sum(axis=1), 99)

    return sj.Categorical(100), draw, lambda x: np.log(shares[:, x].T + 1e-300)


def poisson(n_states: int, rng: np.random.Generator) -> tuple[sj.Poisson, Draw, Density]:
    """Make vectors of four counts."""
    rates = rng.gamma(1.0, 6.0, (n_states, 4)) + 0.2

    def draw(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
        return rng.poisson(rates[z])

    return sj.Poisson(), draw, lambda x: stats.poisson(rates).logpmf(x[:, None]).sum(axis=2)


def bernoulli(n_states: int, rng: np.random.Generator) -> tuple[sj.Bernoulli, Draw, Density]:
    """Make vectors of twelve marks."""
    shares = rng.beta(0.5, 0.5, (n_states, 12)) * 0.96 + 0.02

    def draw(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
        return (rng.random((len(z), 12)) < shares[z]).astype(np.int64)

    def density(x: np.ndarray) -> np.ndarray:
        return x @ np.log(shares.T) + (1 - x) @ np.log1p(-shares.T)

    return sj.Bernoulli(), draw, density


STICKINESS = {"not sticky": 0.0, "fixed": "dwell", "learned": "learned"}
KINDS = {"gaussian": gaussian, "categorical": categorical, "poisson": poisson,
         "bernoulli": bernoulli}  # fmt: skip


def chain(start: np.ndarray, rows: np.ndarray, lengths: np.ndarray, rng: Any) -> np.ndarray:
    """Draw the states of all sequences, one after another."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = np.empty(offsets[-1], dtype=np.int64)
    last = len(start) - 1
    for t in range(lengths.max()):
        active = offsets[:-1][lengths > t] + t
        before = np.tile(start, (len(active), 1)) if t == 0 else rows[states[active - 1]]
        u = rng.random(len(active))[:, None]
        states[active] = np.minimum((np.cumsum(before, axis=1) <= u).sum(axis=1), last)
    return states


def simulate(kind: str, n_states: int, seed: int, n_train: int = SEQUENCES) -> tuple[Any, Drawn]:
    """Draw sequences of 10 to 60 steps: rows half Dirichlet(0.3), half staying.

    Settings were chosen on other seeds, below 300.
    """
    rng = np.random.default_rng([seed, n_states, len(kind)])
    family, draw, density = KINDS[kind](n_states, rng)
    rows = 0.5 * rng.dirichlet(np.full(n_states, 0.3), n_states) + 0.5 * np.eye(n_states)
    start = rng.dirichlet(np.ones(n_states))
    lengths = rng.integers(10, 61, n_train + 400)
    states = chain(start, rows, lengths, rng)
    data = sj.Sequences.from_lengths(draw(rng, states), lengths)
    drawn = with_truth(data, states, n_train, start, rows, density)
    if kind == "categorical":
        drawn = drawn._replace(labelled_error=labelled_error(data, states, n_train, n_states))
    return family, drawn


def labelled_error(
    data: sj.Sequences, states: np.ndarray, n_train: int, n_states: int, prior: float = 0.1
) -> float:
    """Decode held-out symbols with parameters counted in the others, whose states are given."""
    end = int(data.offsets[n_train])
    symbols, labels = np.asarray(data.values), states[:end]
    firsts = np.asarray(data.offsets[:n_train])
    later = np.setdiff1d(np.arange(end), firsts)
    emissions = np.full((symbols.max() + 1, n_states), prior)
    np.add.at(emissions, (symbols[:end], labels), 1.0)
    rows = np.full((n_states, n_states), prior)
    np.add.at(rows, (labels[later - 1], labels[later]), 1.0)
    start = prior + np.bincount(labels[firsts], minlength=n_states)
    test = data[n_train:]
    _, path = cpu.viterbi(
        Potentials(
            start / start.sum(),
            rows / rows.sum(axis=1, keepdims=True),
            emissions / emissions.sum(axis=0),
        ),
        np.asarray(test.values, dtype=np.int32),
        test.offsets,
        n_threads=1,
    )
    return float(np.mean(path != states[end:]))


def with_truth(
    data: sj.Sequences,
    states: np.ndarray,
    n_train: int,
    start: np.ndarray,
    rows: np.ndarray,
    density: Density,
) -> Drawn:
    """Hold sequences out, and score and decode them with the true parameters."""
    test = data[n_train:]
    logs = density(np.asarray(test.values))
    scale = logs.max(axis=1)
    table = np.exp(logs - scale[:, None])
    index = np.arange(len(table), dtype=np.int32)
    potentials = Potentials(start, rows, table, scale)
    score = cpu.log_normalizers(potentials, index, test.offsets, n_threads=1).sum() / test.n_steps
    _, path = cpu.viterbi(potentials, index, test.offsets, n_threads=1)
    labels = states[data.offsets[n_train] :]
    error = float(np.mean(path != labels))
    return Drawn(data[:n_train], test, labels, float(score), error)


def measure(
    family: Any, drawn: Drawn, truncation: int, seed: int, options: dict[str, Any]
) -> dict[str, Any]:
    """Fit with moves, and compare with the truth."""
    began = time.perf_counter()
    model = sj.HDPHMM(truncation, family, random_state=seed, **options).fit(drawn.train)
    seconds = time.perf_counter() - began
    match = sj.match_states(model, drawn.test_states, drawn.test)
    mass = model.statistics_.start + model.statistics_.transitions.sum(axis=0)
    made = [move for entry in model.history_ for move in entry["moves"]]
    labelled = drawn.labelled_error
    return {
        "states": int((mass / mass.sum() > 0.005).sum()),
        "error": round(1.0 - match.agreement, 6),
        "truth_error": round(drawn.truth_error, 6),
        **({} if labelled is None else {"labelled_error": round(labelled, 6)}),
        "score": round(model.score(drawn.test, per_step=True), 5),
        "truth_score": round(drawn.truth_score, 5),
        "seconds": round(seconds, 2),
        "move_seconds": round(sum(entry["move_seconds"] for entry in model.history_), 2),
        "accepted": sum(move["accepted"] for move in made),
        "refused": sum(not move["accepted"] for move in made),
    }


def without_moves(
    n_states: int, family: Any, train: sj.Sequences, seed: int, *, warm: bool = True, **options: Any
) -> sj.HDPHMM:
    """Fit from the same start, with the same warm-up if there was one, and keep all states."""
    options = {"batch_size": BATCH_SIZE, "n_passes": N_PASSES} | options
    model = sj.HDPHMM(n_states, family, random_state=seed, moves=None, init="segments", **options)
    plan = WarmUp.plan(
        family.resolve(train, n_states),
        n_states,
        len(train),
        train.n_steps,
        -(-len(train) // model.batch_size),
        grows=False,
        settings=MoveSettings(),
    )
    if warm and plan is not None:
        small = {"batch_size": plan.batch_size, "n_passes": plan.n_passes, "tuned": "steps"}
        begun = clone(model).set_params(**small).fit(train)
        model.set_params(init=begun.statistics_)
    return model.fit(train)


@cache
def score_without_moves(
    kind: str, true_states: int, n_states: int, n_train: int, seed: int, **options: Any
) -> float:
    """Score held-out sequences with a model that keeps all states."""
    family, drawn = simulate(kind, true_states, seed, n_train)
    model = without_moves(n_states, family, drawn.train, seed, **options)
    return round(model.score(drawn.test, per_step=True), 5)


def summary(true_states: int, truncation: int, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Say how many runs meet the aims."""
    within = [abs(run["states"] - true_states) <= 1 for run in runs]
    decoded = [run["error"] <= 1.3 * run["truth_error"] for run in runs]
    return {
        "true_states": true_states,
        "truncation": truncation,
        "within_one": sum(within),
        "decoded_within_1.3": sum(decoded),
        "runs": len(runs),
        "worst_loss": round(max(run["without_moves"] - run["score"] for run in runs), 5),
        "longest_seconds": max(run["seconds"] for run in runs),
        "share_of_time_in_moves": round(
            sum(run["move_seconds"] for run in runs) / sum(run["seconds"] for run in runs), 3
        ),
        "largest_share": round(max(run["move_seconds"] / run["seconds"] for run in runs), 3),
        "each": runs,
    }


def states_found(
    kind: str, true_states: int, truncation: int, n_train: int = SEQUENCES, **options: Any
) -> Callable[[int], Any]:
    """Make a measurement over seeds for data and fit, with the defaults but for `options`."""

    def run(seeds: int) -> dict[str, Any]:
        runs = []
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            family, drawn = simulate(kind, true_states, seed, n_train)
            if seed == FIRST_SEED:  # compile what is not compiled yet
                sj.HDPHMM(truncation, family, **options).fit(drawn.train[:500])
            found = measure(family, drawn, truncation, seed, options)
            own = {key: value for key, value in options.items() if key not in ("init", "moves")}
            own |= {"n_train": n_train, "seed": seed, "warm": "init" not in options}
            kept = partial(score_without_moves, kind, true_states, **own)
            found["without_moves"] = kept(n_states=truncation)
            if "moves" in options:
                found["small_without_moves"] = kept(n_states=options["moves"].init_states)
            runs.append(found)
            print(kind, true_states, n_train, options, seed, runs[-1], flush=True)
        return summary(true_states, truncation, runs)

    return run


def segments(path: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Positions at which a path changes its state within a sequence."""
    changes = np.flatnonzero(np.diff(path)) + 1
    return np.setdiff1d(changes, offsets)


def sticky(dwell: int) -> Callable[[int], Any]:
    """Make a measurement of recordings whose states last `dwell` steps on average."""

    def run(seeds: int) -> dict[str, Any]:
        table: dict[str, list[Any]] = {}
        for seed in range(FIRST_SEED, FIRST_SEED + min(seeds, 3)):
            family, drawn, true_segments, offsets = recording(dwell, seed)
            for name, stickiness in STICKINESS.items():
                model = sj.HDPHMM(
                    20,
                    family,
                    random_state=seed,
                    stickiness=float(dwell) if stickiness == "dwell" else stickiness,
                ).fit(drawn.train)
                found = segments(np.asarray(model.predict(drawn.test).values), offsets)
                nearest = np.abs(true_segments[:, None] - found[None]).min(axis=1)
                entry = {
                    "states": model.n_states_,
                    "segments": len(found),
                    "true_segments": len(true_segments),
                    "boundary_error": round(float(np.mean(nearest)), 2),
                    "stickiness": round(float(model.hdp_.stickiness), 2),
                }
                table.setdefault(name, []).append(entry)
                print("sticky", dwell, seed, name, entry, flush=True)
        return table

    return run


def recording(dwell: int, seed: int) -> tuple[Any, Drawn, np.ndarray, np.ndarray]:
    """Draw twelve recordings of 5,000 steps, six of them held out, with five noisy states."""
    rng = np.random.default_rng([seed, dwell, 5])
    n_states, n_sequences, length = 5, 12, 5000
    family, draw, density = gaussian(n_states, rng, spread=1.5)
    jumps = rng.dirichlet(np.ones(n_states), n_states) * (1 - np.eye(n_states))
    rows = jumps / jumps.sum(axis=1, keepdims=True) / dwell + (1 - 1 / dwell) * np.eye(n_states)
    start = np.full(n_states, 1 / n_states)
    lengths = np.full(n_sequences, length)
    states = chain(start, rows, lengths, rng)
    data = sj.Sequences.from_lengths(draw(rng, states), lengths)
    drawn = with_truth(data, states, n_sequences // 2, start, rows, density)
    offsets = np.asarray(drawn.test.offsets)
    return family, drawn, segments(drawn.test_states, offsets), offsets


def corpus(folder: Path, seeds: int) -> dict[str, Any]:
    """Compare held-out likelihood and V-measure on a corpus with tags, with and without moves."""
    vocabulary, train, test = read_corpus(folder)
    lines = (folder / "test.upos").read_text(encoding="utf-8").splitlines()
    tags = [tag for line in lines for tag in line.split()]
    family = sj.Categorical(len(vocabulary))
    ways: dict[str, Callable[[int], sj.HDPHMM]] = {
        "with moves": lambda seed: sj.HDPHMM(45, family, random_state=seed).fit(train),
        "fixed prior": lambda seed: without_moves(45, family, train, seed),
        "moves=None": lambda seed: sj.HDPHMM(45, family, random_state=seed, moves=None).fit(train),
    }
    table: dict[str, list[Any]] = {}
    for name, fitted in ways.items():
        for seed in range(FIRST_SEED, FIRST_SEED + min(seeds, 3)):
            model = fitted(seed)
            entry = {
                "states": model.n_states_,
                "score": round(model.score(test, per_step=True), 4),
                "v_measure": round(float(v_measure_score(tags, model.predict(test).values)), 4),
                "share_of_time_in_moves": round(
                    sum(passed["move_seconds"] for passed in model.history_)
                    / model.history_[-1]["seconds"],
                    3,
                ),
            }
            table.setdefault(name, []).append(entry)
            print("corpus", name, seed, entry, flush=True)
    return table


EXPERIMENTS: dict[str, Callable[[int], Any]] = {
    "gaussian 8": states_found("gaussian", 8, 30),
    "gaussian 8 from 2": states_found("gaussian", 8, 30, moves=SMALL_START),
    "categorical 3": states_found("categorical", 3, 6),
    "categorical 8": states_found("categorical", 8, 16),
    "categorical 8 from 2": states_found("categorical", 8, 16, moves=SMALL_START),
    "categorical 20": states_found("categorical", 20, 40),
    "categorical 40": states_found("categorical", 40, 80),
    "poisson 8": states_found("poisson", 8, 30),
    "bernoulli 8": states_found("bernoulli", 8, 30),
    "gaussian 8, 20,000 sequences": states_found("gaussian", 8, 30, 20_000),
    "gaussian 8, 80 passes by 100, no warm-up": states_found(
        "gaussian", 8, 30, init="segments", batch_size=100, n_passes=80
    ),
    "categorical 8, 160 passes by 100, no warm-up": states_found(
        "categorical", 8, 16, init="segments", batch_size=100, n_passes=160
    ),
    "dwell 5": sticky(5),
    "dwell 50": sticky(50),
    "dwell 500": sticky(500),
}


def run_experiment(name: str, folder: Path | None, seeds: int) -> Any:
    """Run one experiment."""
    if name != "corpus":
        return EXPERIMENTS[name](seeds)
    assert folder is not None
    return corpus(folder, seeds)


def finished(arguments: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Yield the experiments that are asked for with what they found, as they end."""
    names = [name for name in arguments.only if name != "corpus" or arguments.corpus is not None]
    if arguments.jobs == 1:
        for name in names:
            yield name, run_experiment(name, arguments.corpus, arguments.seeds)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(arguments.jobs, mp_context=context) as pool:
        futures = {
            pool.submit(run_experiment, name, arguments.corpus, arguments.seeds): name
            for name in names
        }
        for future in as_completed(futures):
            yield futures[future], future.result()


def main() -> None:
    """Run all experiments, or those named, and write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("corpus", type=Path, nargs="?", help="folder with texts and tags")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", nargs="*", default=[*EXPERIMENTS, "corpus"])
    parser.add_argument("--jobs", type=int, default=1, help="experiments at a time")
    arguments = parser.parse_args()
    found = json.loads(RESULT.read_text())["experiments"] if RESULT.exists() else {}
    for name, measured in finished(arguments):
        found[name] = measured
        write_result(
            RESULT,
            {
                "command": "python -m experiments.number_of_states FOLDER",
                "settings": {"sequences": SEQUENCES, "first_seed": FIRST_SEED},
                "jobs": arguments.jobs,
                "experiments": found,
            },
        )


if __name__ == "__main__":
    main()
