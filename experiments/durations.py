"""States that last: how well their durations and their number are found, and what it costs.

python -m experiments.durations

Sequences are drawn from four states with Gaussian emissions whose visits last a negative binomial
number of steps, or one of two numbers of steps.  An HDP-HMM with the right kind of durations is
fitted, and a plain one, both in full batches and otherwise with the defaults of the library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import nbinom

import sojourn as sj
from benchmarks.results import write_result

SEEDS = 5
MEANS = (0.0, 2.5, 5.0, 7.5)
SHAPES, STAYS = (6, 4, 8, 5), (0.6, 0.5, 0.5, 0.4)
LENGTHS = ((4, 12), (6, 9), (3, 15), (5, 8))
N_SEQUENCES, N_STEPS, MOST_STATES = 240, 500, 12
COST_SEQUENCES = 60

Law = Callable[[int, np.random.Generator], int]


def negative_binomial(state: int, rng: np.random.Generator) -> int:
    """Draw a length with the shape of the state."""
    return int(SHAPES[state] + rng.negative_binomial(SHAPES[state], 1.0 - STAYS[state]))


def of_two(state: int, rng: np.random.Generator) -> int:
    """Draw one of two lengths."""
    return int(rng.choice(LENGTHS[state]))


def moments(kind: str) -> list[tuple[float, float]]:
    """Return mean and variance of the true durations."""
    if kind == "negative binomial":
        laws = [nbinom(r, 1.0 - p, loc=r) for r, p in zip(SHAPES, STAYS, strict=True)]
        return [(float(law.mean()), float(law.var())) for law in laws]
    return [(float(np.mean(own)), float(np.var(own))) for own in LENGTHS]


def draw(law: Law, seed: int) -> tuple[list[NDArray[np.float64]], list[list[int]]]:
    """Draw sequences, and return with them how long the visits to each state lasted.

    The states that may follow one are equally likely.
    """
    rng = np.random.default_rng(seed)
    found, lengths = [], [[] for _ in MEANS]  # type: ignore[var-annotated]
    for _ in range(N_SEQUENCES):
        state, path = int(rng.integers(len(MEANS))), []
        while len(path) < N_STEPS:
            length = law(state, rng)
            path += [state] * length
            lengths[state] += [length] * (len(path) <= N_STEPS)  # those that are cut are not known
            state = int((state + rng.integers(1, len(MEANS))) % len(MEANS))
        found.append(rng.normal(np.array(MEANS)[path[:N_STEPS]])[:, None])
    return found, lengths


def compare(kind: str, law: Law, duration: Any) -> dict[str, Any]:
    """Fit both models to data of several seeds."""
    runs = []
    for seed in range(SEEDS):
        X, lengths = draw(law, seed)
        drawn = [(float(np.mean(part)), float(np.var(part))) for part in lengths]
        own: dict[str, Any] = {"drawn": _relative(drawn, kind)}
        for name, used in (("plain", None), ("lasting", duration)):
            before = time.perf_counter()
            model = sj.HDPHMM(
                MOST_STATES,
                sj.DiagonalGaussian(),
                duration=used,
                batch_size=None,
                tile_length=None,
                random_state=seed,
            ).fit(X)
            own[name] = {
                "states": model.n_states_,
                "score_per_step": round(model.score(X, per_step=True), 4),
                "seconds": round(time.perf_counter() - before, 2),
            }
            if used is not None:
                own[name]["errors"] = _errors(model, kind)
        runs.append(own)
        print(kind, seed, own, flush=True)
    return {"truth": moments(kind), "runs": runs, "summary": _summary(runs)}


def _errors(model: Any, kind: str) -> dict[str, Any] | None:
    """Return relative errors of mean and variance of the durations; None if states are missing."""
    if model.n_states_ != len(MEANS):
        return None
    order = np.argsort(model.means_[: len(MEANS), 0])
    found = [model.durations_[int(k)] for k in order]
    errors = _relative([(own.mean, own.variance) for own in found], kind)
    return errors | {"shapes": [own.shape for own in found]}


def _relative(found: list[tuple[float, float]], kind: str) -> dict[str, Any]:
    """Return relative errors of means and variances of all states."""
    errors = np.abs(np.array(found) / np.array(moments(kind)) - 1.0)
    means, variances = errors.round(4).T.tolist()
    return {"mean": means, "variance": variances}


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    known = [run["lasting"]["errors"] for run in runs if run["lasting"]["errors"] is not None]
    return {
        "plain_states": [run["plain"]["states"] for run in runs],
        "lasting_states": [run["lasting"]["states"] for run in runs],
        "seconds": {
            name: round(float(np.median([run[name]["seconds"] for run in runs])), 2)
            for name in ("plain", "lasting")
        },
        "median_error": {name: _of(np.median, known, name) for name in ("mean", "variance")},
        "largest_error": {name: _of(np.max, known, name) for name in ("mean", "variance")},
        "largest_error_of_drawn_visits": {
            name: _of(np.max, [run["drawn"] for run in runs], name) for name in ("mean", "variance")
        },
    }


def _of(summarize: Any, known: list[dict[str, Any]], name: str) -> float:
    return round(float(summarize([own[name] for own in known])), 4)


def cost() -> dict[str, Any]:
    """Time passes of a plain model and of one whose states last, with as many states."""
    X = draw(negative_binomial, 0)[0][:COST_SEQUENCES]
    common: dict[str, Any] = {"batch_size": None, "n_passes": 20, "n_init": 1, "random_state": 0}
    found: dict[str, list[float]] = {}
    for _ in range(5):
        for name, used in (
            ("plain", None),
            ("negative binomial, shape 8", sj.NegativeBinomialDuration(8, shape=8)),
            ("categorical, 20 steps", sj.CategoricalDuration(20)),
        ):
            model = sj.HMM(20, sj.DiagonalGaussian(), duration=used, tile_length=None, **common)
            before = time.perf_counter()
            model.fit(X)
            found.setdefault(name, []).append(time.perf_counter() - before)
    best = {name: min(own) for name, own in found.items()}
    return {
        "states": 20,
        "steps": COST_SEQUENCES * N_STEPS,
        "milliseconds_per_pass": {name: round(50.0 * own, 2) for name, own in best.items()},
        "ratio": {name: round(own / best["plain"], 2) for name, own in best.items()},
    }


def main() -> None:
    """Run everything, and write the result."""
    write_result(
        Path(__file__).parent / "results" / "durations.json",
        {
            "command": "python -m experiments.durations",
            "data": {"sequences": N_SEQUENCES, "steps": N_SEQUENCES * N_STEPS, "states": 4},
            "most_states": MOST_STATES,
            "negative_binomial": compare(
                "negative binomial", negative_binomial, sj.NegativeBinomialDuration(10)
            ),
            "categorical": compare("categorical", of_two, sj.CategoricalDuration(20)),
            "cost": cost(),
        },
    )


if __name__ == "__main__":
    main()
