"""How good forecasts are: calibration of intervals, and log scores on held-out data.

nice -n 19 python -m experiments.forecasts

Sequences are drawn from three states of three families.  Models are fitted to some, and forecast
the last steps of others: how often 90% intervals hold what came, and the mean log score of what
came, beside that of the distribution that does not know the past.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import sojourn as sj
from benchmarks.results import write_result

MATRIX = np.array([[0.9, 0.08, 0.02], [0.05, 0.9, 0.05], [0.02, 0.08, 0.9]])
N_TRAIN, N_TEST, LENGTH, STEPS = 300, 1500, 60, 5
LEVEL = 0.9

FAMILIES: dict[str, tuple[Any, Any]] = {
    "DiagonalGaussian": (
        sj.DiagonalGaussian,
        lambda z, rng: rng.normal(np.array([0.0, 3.0, 7.0])[z], np.array([1.0, 0.5, 2.0])[z]),
    ),
    "Exponential": (
        sj.Exponential,
        lambda z, rng: rng.exponential(np.array([0.2, 2.0, 20.0])[z]),
    ),
    "Poisson": (
        sj.Poisson,
        lambda z, rng: rng.poisson(np.array([20.0, 60.0, 150.0])[z]).astype(float),
    ),
}


def draw(name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Draw sequences, shape (n, LENGTH + STEPS, 1)."""
    z = np.empty((n, LENGTH + STEPS), np.int64)
    z[:, 0] = rng.integers(3, size=n)
    cumulative = np.cumsum(MATRIX, axis=1)
    for t in range(1, z.shape[1]):
        z[:, t] = np.minimum((cumulative[z[:, t - 1]] < rng.random(n)[:, None]).sum(axis=1), 2)
    return FAMILIES[name][1](z, rng)[..., None]


def measure(name: str, seed: int) -> dict[str, Any]:
    """Fit, forecast and compare with what came."""
    rng = np.random.default_rng(seed)
    train, test = draw(name, N_TRAIN, rng), draw(name, N_TEST, rng)
    model = sj.HMM(3, FAMILIES[name][0](), n_init=1, random_state=0).fit(list(train))
    tail = 0.5 * (1.0 - LEVEL)
    known, came = list(test[:, :LENGTH]), test[:, LENGTH:]
    found = model.forecast(known, steps=STEPS, quantiles=(tail, 1.0 - tail), random_state=0)
    inside = (found.quantiles[0] <= came) & (came <= found.quantiles[1])
    scores = found.log_score(list(came)).mean(axis=0)
    # The same without a past: states by their long-run shares.
    natural = model.fitted_.evidence().natural
    densities = np.exp(model.emission_.log_predictive(came.reshape(-1, 1), natural))
    plain = np.log(densities @ model.stationary_).reshape(N_TEST, STEPS).mean(axis=0)
    return {
        "held": round(float(inside.mean()), 4),
        "held_by_step": inside.mean(axis=(0, 2)).round(4).tolist(),
        "log_score": scores.round(4).tolist(),
        "unconditional": plain.round(4).tolist(),
    }


def main() -> None:
    """Measure every family."""
    table = {}
    for name in FAMILIES:
        table[name] = measure(name, 1)
        print(name, table[name], flush=True)
    write_result(
        Path(__file__).parent / "results" / "forecasts.json",
        {
            "command": "python -m experiments.forecasts",
            "level": LEVEL,
            "sequences": {"training": N_TRAIN, "test": N_TEST},
            "steps": {"known": LENGTH, "ahead": STEPS},
            "families": table,
        },
    )


if __name__ == "__main__":
    main()
