"""`HMM` with its defaults against ten fits of hmmlearn, on hmmlearn's examples and on counts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import sojourn as sj
from experiments.defaults_data import EARTHQUAKES

THEIR_SEEDS = range(10)
REPEATS = 3  # every fit is timed as often, ours and theirs in turn; the shortest time counts
LONG = {"n_iter": 1000, "tol": 1e-6}  # hmmlearn until nothing changes; its defaults are 10, 0.01


class Peer(NamedTuple):
    """A series, and the two models that are compared on it."""

    n_states: int
    family: Callable[[], Any]
    theirs: Callable[..., Any]
    data: Callable[[], NDArray[Any]]
    rates: bool = False


def dice() -> NDArray[Any]:
    """Throw a fair and a loaded die in turns, 15,000 times, as in hmmlearn's example."""
    model = _hmmlearn().CategoricalHMM(2, random_state=99)
    model.startprob_ = np.array([1.0, 0.0])
    model.transmat_ = np.array([[0.95, 0.05], [0.1, 0.9]])
    model.emissionprob_ = np.array([[1 / 6] * 6, [1 / 10] * 5 + [1 / 2]])
    return model.sample(15_000)[0]


def four_gaussians() -> NDArray[Any]:
    """Draw 500 points from four Gaussians, as in hmmlearn's example."""
    model = _hmmlearn().GaussianHMM(4, covariance_type="full", random_state=0)
    model.startprob_ = np.array([0.6, 0.3, 0.1, 0.0])
    model.transmat_ = np.array(
        [[0.7, 0.2, 0.0, 0.1], [0.3, 0.5, 0.2, 0.0], [0.0, 0.3, 0.5, 0.2], [0.2, 0.0, 0.2, 0.6]]
    )
    model.means_ = np.array([[0.0, 0.0], [0.0, 11.0], [9.0, 10.0], [11.0, -1.0]])
    model.covars_ = np.tile(0.5 * np.eye(2), (4, 1, 1))
    return model.sample(500)[0]


def counts() -> NDArray[Any]:
    """Draw 1,236 counts from three rates."""
    model = _hmmlearn().PoissonHMM(3, random_state=0)
    model.startprob_ = np.full(3, 1 / 3)
    model.transmat_ = np.full((3, 3), 0.05) + 0.85 * np.eye(3)
    model.lambdas_ = np.array([[2.0], [7.0], [15.0]])
    return model.sample(1236)[0]


def _hmmlearn() -> Any:
    """Load hmmlearn, which the machine with the GPU need not have."""
    from hmmlearn import hmm

    return hmm


def _categorical(n_states: int, **options: Any) -> Any:
    return _hmmlearn().CategoricalHMM(n_states, **options)


def _poisson(n_states: int, **options: Any) -> Any:
    return _hmmlearn().PoissonHMM(n_states, **options)


def _full(n_states: int, **options: Any) -> Any:
    return _hmmlearn().GaussianHMM(n_states, covariance_type="full", **options)


PEERS: dict[str, Peer] = {
    "loaded dice, 2 states": Peer(2, lambda: sj.Categorical(6), _categorical, dice),
    "four Gaussians, 4 states": Peer(4, sj.Gaussian, _full, four_gaussians),
    "Poisson counts, 3 states": Peer(3, sj.Poisson, _poisson, counts, rates=True),
    "earthquakes, 3 states": Peer(
        3, sj.Poisson, _poisson, lambda: EARTHQUAKES[:, None], rates=True
    ),
}


def fit_theirs(peer: Peer, data: NDArray[Any], seed: int, **options: Any) -> dict[str, Any]:
    """Fit and time hmmlearn's model."""
    model = peer.theirs(peer.n_states, random_state=seed, **options)
    began = time.perf_counter()
    model.fit(data)
    seconds = time.perf_counter() - began
    return {"score": float(model.score(data)), "seconds": seconds}


def fit_ours(peer: Peer, data: NDArray[Any], seed: int, n_jobs: int | None) -> dict[str, Any]:
    """Fit and time ours, and score the same data with the posterior means."""
    model = sj.HMM(peer.n_states, peer.family(), random_state=seed, n_jobs=n_jobs)
    values = data[:, 0] if data.shape[1] == 1 else data
    began = time.perf_counter()
    model.fit(values)
    seconds = time.perf_counter() - began
    found = {
        "seed": seed,
        "score": round(float(model.score(values)), 4),
        "seconds": round(seconds, 4),
        "converged": getattr(model, "converged_", None),
    }
    if peer.rates:
        found["rates"] = np.sort(np.ravel(model.lambdas_)).round(3).tolist()
    return found


def compare(name: str, seeds: list[int], n_jobs: int | None = None) -> dict[str, Any]:
    """Fit ours with every seed and hmmlearn's ten times, to the same data, in the same process."""
    peer = PEERS[name]
    data = peer.data()
    logging.getLogger("hmmlearn").setLevel(logging.ERROR)
    fit_ours(peer, data, 0, n_jobs)  # compile what is not compiled yet
    fits = [lambda seed=seed: fit_theirs(peer, data, seed) for seed in THEIR_SEEDS]
    fits += [lambda seed=seed: fit_ours(peer, data, seed, n_jobs) for seed in seeds]
    order = np.argsort([*THEIR_SEEDS, *range(len(seeds))], kind="stable")
    found: list[dict[str, Any]] = [{} for _ in fits]
    for _ in range(REPEATS):
        for at in map(int, order):
            again, before = fits[at](), found[at].get("seconds", np.inf)
            found[at] = again | {"seconds": min(before, again["seconds"])}
    theirs, ours = found[: len(THEIR_SEEDS)], found[len(THEIR_SEEDS) :]
    long = [fit_theirs(peer, data, seed, **LONG)["score"] for seed in THEIR_SEEDS]
    scores = [run["score"] for run in theirs]
    return {
        "n_steps": len(data),
        "theirs_best": round(max(scores), 4),
        "theirs_median": round(float(np.median(scores)), 4),
        "theirs_best_long": round(max(long), 4),
        "theirs_seconds": round(float(np.median([run["seconds"] for run in theirs])), 4),
        "each": ours,
    }
