"""How often intervals contain the truth: parameters at three sizes of data, four families.

python -m experiments.coverage [--jobs N]

Data are drawn from two overlapping states, a model with uniform priors on transitions and symbols
is fitted from one start, and 90% intervals of transitions and emissions are taken from
`posterior_samples`, by Gibbs sweeps and under the surrogates of training alone.  On the smallest
data of symbols the same intervals come from the library's collapsed Gibbs sampler, run from a
random start.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result
from sojourn.random_state import draw_dirichlet

START = np.array([0.6, 0.4])
MATRIX = np.array([[0.85, 0.15], [0.25, 0.75]])
LENGTH = 20
LEVEL = 0.9
RESULTS = Path(__file__).parent / "results" / "coverage.json"
REPEATS = {50: 200, 500: 150, 5000: 100}
DRAWS = 200

SYMBOLS = np.array([[0.7, 0.15, 0.05, 0.05, 0.05], [0.05, 0.05, 0.05, 0.15, 0.7]])
RATES = np.array([[2.0], [7.0]])
MEANS = np.array([[0.0], [2.5]])
SCALES = np.array([[0.1], [1.0]])  # of exponential waiting times: rates 10 and 1

FAMILIES: dict[str, tuple[Any, str, np.ndarray]] = {
    "Categorical": (lambda: sj.Categorical(5, concentration=1.0), "emissionprob_", SYMBOLS),
    "Poisson": (lambda: sj.Poisson(), "lambdas_", RATES),
    "DiagonalGaussian": (lambda: sj.DiagonalGaussian(), "means_", MEANS),
    "Exponential": (lambda: sj.Exponential(), "rates_", 1.0 / SCALES),
}


def draw_states(n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw paths of the true chain, shape (n, LENGTH)."""
    states = np.empty((n, LENGTH), np.int64)
    states[:, 0] = rng.random(n) >= START[0]
    for t in range(1, LENGTH):
        states[:, t] = rng.random(n) >= MATRIX[states[:, t - 1], 0]
    return states


def draw_data(name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw sequences of equal length from the truth."""
    z = draw_states(n, rng)
    if name == "Categorical":
        u = rng.random(z.shape)
        return (np.cumsum(SYMBOLS, axis=1)[z] < u[..., None]).sum(axis=2).astype(np.int32)
    if name == "Poisson":
        return rng.poisson(RATES[z]).astype(np.float64)
    if name == "DiagonalGaussian":
        return rng.normal(MEANS[z], 1.0)
    return rng.exponential(SCALES[z])


def as_data(values: np.ndarray) -> sj.Sequences:
    """Return rows as sequences."""
    return sj.Sequences.from_lengths(values.reshape(-1, *values.shape[2:]), [LENGTH] * len(values))


def labels(draws: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Return the states of the model in the order of the truth."""
    mean = draws.mean(axis=0)
    swap = np.abs(mean[::-1] - truth).sum() < np.abs(mean - truth).sum()
    return np.array([1, 0] if swap else [0, 1])


def inside(
    draws: np.ndarray, truth: np.ndarray, order: np.ndarray, *, square: bool
) -> tuple[list[bool], list[float]]:
    """Return for every entry whether its interval contains the truth, and how wide that is."""
    own = draws[:, order][:, :, order] if square else draws[:, order]
    tail = 0.5 * (1.0 - LEVEL)
    low, high = np.quantile(own, [tail, 1.0 - tail], axis=0)
    found, widths = (low <= truth) & (truth <= high), high - low
    if square:  # of two entries that add up to one, the second says nothing new
        found, widths = found[:, :1], widths[:, :1]
    return found.ravel().tolist(), widths.ravel().tolist()


def sampler_draws(data: sj.Sequences, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return draws of transitions and symbols from the library's own Gibbs sampler."""
    sampling = sj.Sampling("gibbs", n_samples=200, burn_in=300, n_chains=1)
    model = sj.HMM(
        2,
        sj.Categorical(5, concentration=1.0),
        transition_concentration=1.0,
        inference=sampling,
        random_state=seed,
        n_jobs=1,
    )
    model.fit(data)
    rng = np.random.default_rng(seed)
    transitions, symbols = [], []
    best = model.samples_.best
    for draw in model.samples_:
        order = np.argsort(model.samples_.relabeling(draw, best))
        counts = model.samples_.counts(draw)
        rows = (
            counts.transitions[1:][order][:, order] + model.fitted_.posterior.transitions.prior[1]
        )
        transitions.append(draw_dirichlet(rows, rng))
        symbols.append(draw_dirichlet(counts.symbols.T[order] + 1.0, rng))
    return np.array(transitions), np.array(symbols)


class Tally:
    """Collects whether intervals contained the truth, by cell of the table."""

    def __init__(self) -> None:
        self.hits: dict[tuple[str, ...], list[bool]] = defaultdict(list)
        self.widths: dict[tuple[str, ...], list[float]] = defaultdict(list)

    def add(
        self, key: tuple[str, ...], transitions: Any, emissions: Any, truth: np.ndarray
    ) -> None:
        """Add the intervals of one data set."""
        order = labels(emissions, truth)
        for what, found in (
            ("transitions", inside(transitions, MATRIX, order, square=True)),
            ("emissions", inside(emissions, truth, order, square=False)),
        ):
            self.hits[(*key, what)] += found[0]
            self.widths[(*key, what)] += found[1]

    def update(self, other: Tally) -> None:
        """Add the intervals of another tally."""
        for key, hits in other.hits.items():
            self.hits[key] += hits
            self.widths[key] += other.widths[key]

    def table(self) -> list[dict[str, Any]]:
        """Return one entry per cell."""
        names = ("family", "sequences", "method", "parameters")
        return [
            dict(zip(names, key, strict=True))
            | {
                "coverage": round(float(np.mean(hits)), 3),
                "intervals": len(hits),
                "mean_width": round(float(np.mean(self.widths[key])), 4),
            }
            for key, hits in self.hits.items()
        ]


def main() -> None:
    """Measure coverage."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=float, default=1.0, help="multiplies the repetitions")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(REPEATS))
    parser.add_argument("--families", nargs="+", choices=list(FAMILIES), default=list(FAMILIES))
    parser.add_argument("--jobs", type=int, default=1, help="data sets at a time")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    for size in arguments.sizes:
        tally = Tally()
        repeats = range(max(1, round(arguments.repeats * REPEATS[size])))
        tasks = [(name, size, repeat) for repeat in repeats for name in arguments.families]
        for done, found in enumerate(measured(tasks, arguments.jobs), 1):
            tally.update(found)
            # Again and again, so that a run that is stopped leaves what it has measured.
            if done % 20 == 0 or done == len(tasks):
                write(arguments.out, tally)
        for row in tally.table():
            print(row, flush=True)


def measured(tasks: list[tuple[str, int, int]], jobs: int) -> Iterator[Tally]:
    """Yield the intervals of the data sets, as they end."""
    if jobs == 1:
        for task in tasks:
            yield measure(*task)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for future in as_completed([pool.submit(measure, *task) for task in tasks]):
            yield future.result()


def measure(name: str, size: int, repeat: int) -> Tally:
    """Draw a data set, fit a model, and return its intervals."""
    tally = Tally()
    family, parameter, truth = FAMILIES[name]
    data = as_data(draw_data(name, size, np.random.default_rng([size, repeat])))
    model = sj.HMM(
        2, family(), transition_concentration=1.0, n_init=1, random_state=repeat, n_jobs=1
    ).fit(data)
    for method in ("gibbs", "surrogate") if size < 5000 else ("gibbs",):
        samples = model.posterior_samples(data, DRAWS, method=method)
        key = (name, f"{size:,}", method)
        tally.add(key, samples.transmat_, samples.draws(parameter), truth)
    if size == 50 and name == "Categorical":
        tally.add((name, f"{size:,}", "sampler"), *sampler_draws(data, repeat), truth)
    return tally


def write(path: Path, tally: Tally) -> None:
    """Write what has been measured so far, beside earlier runs for other sizes and families."""
    write_result(
        path,
        {
            "command": "python -m experiments.coverage",
            "level": LEVEL,
            "length": LENGTH,
            "draws": DRAWS,
            "coverage": sorted(kept(path, tally) + tally.table(), key=place),
        },
    )


def kept(path: Path, tally: Tally) -> list[dict[str, Any]]:
    """Return the entries of an earlier run for other sizes and families."""
    if not path.exists():
        return []
    now = {place(row) for row in tally.table()}
    return [row for row in json.loads(path.read_text())["coverage"] if place(row) not in now]


def place(row: dict[str, Any]) -> tuple[int, int]:
    """Return what entries are sorted by: size, and family."""
    return int(row["sequences"].replace(",", "")), list(FAMILIES).index(row["family"])


if __name__ == "__main__":
    main()
