"""Seeds, and the random streams derived from them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

INITIAL_STREAM = 2**32
"""Stream of the initial statistics, which no pass uses."""

PREDICTION_STREAM = INITIAL_STREAM + 1
"""Stream of sequences sampled from a model."""

FORECAST_STREAM = INITIAL_STREAM + 2
"""Stream of parameters and futures drawn for forecasts, intervals and residuals."""

SPLIT_STREAM = INITIAL_STREAM + 3
"""Stream of the parts that states of small data are split into."""

SHAPE_STREAM = INITIAL_STREAM + 4
"""Stream of the paths on which the shapes of durations are learned."""


def as_seed(random_state: Any) -> int:
    """Convert what scikit-learn and NumPy accept as a seed to an integer."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**32))
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, int | np.integer) and random_state >= 0:
        return int(random_state)
    raise ValueError(f"random_state={random_state!r} is not a seed")


def draw_dirichlet(
    concentrations: NDArray[np.floating],
    rng: np.random.Generator,
    free: NDArray[np.floating] | None = None,
) -> NDArray[np.floating]:
    """Draw every row from its Dirichlet, without underflow for small concentrations.

    A Gamma(a) variable is a Gamma(a + 1) variable times U ** (1 / a), here in logarithms.  With
    `free`, only the entries that are not zero there are drawn, and the others are 0.0; a row
    without any is one of zeros.

    Examples
    --------
    >>> draw_dirichlet(np.full((2, 3), 1e-3), np.random.default_rng(0)).sum(axis=1)
    array([1., 1.])
    """
    if free is not None:
        concentrations = np.where(free > 0.0, concentrations, 1.0)
    logs = np.log(rng.standard_gamma(concentrations + 1.0))
    logs -= rng.standard_exponential(concentrations.shape) / concentrations
    if free is None:
        draws = np.exp(logs - logs.max(axis=-1, keepdims=True))
        return draws / draws.sum(axis=-1, keepdims=True)
    most = np.where(free > 0.0, logs, -np.inf).max(axis=-1, keepdims=True)
    draws = np.where(free > 0.0, np.exp(np.minimum(logs - most, 0.0)), 0.0)
    sums = draws.sum(axis=-1, keepdims=True)
    return draws / np.where(sums > 0.0, sums, 1.0)
