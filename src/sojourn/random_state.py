"""Seeds, and the random streams derived from them."""

from __future__ import annotations

from typing import Any

import numpy as np

INITIAL_STREAM = 2**32
"""Stream of the initial statistics, which no pass uses."""

PREDICTION_STREAM = INITIAL_STREAM + 1
"""Stream of sequences sampled from a model."""


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
