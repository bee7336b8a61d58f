"""Other numbers for the states of a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def relabel(fitted: Any, order: ArrayLike) -> None:
    """Give the states of a `FittedModel` other numbers, in place; see `HMM.relabel`."""
    if fitted.samples is not None:
        raise ValueError("draws of a sampler number their states themselves")
    posterior, numbers = fitted.posterior.fetched(), np.asarray(order)
    names = fitted.state_names
    n_states, held = posterior.n_states, max(posterior.held, len(names or ()))
    is_whole = numbers.shape == (n_states,) and numbers.dtype.kind in "iu"
    if not is_whole or (np.sort(numbers) != np.arange(n_states)).any():
        raise ValueError(f"order must have every state from 0 to {n_states - 1} once")
    if (numbers[:held] >= held).any():
        raise ValueError(f"the {held} states that have names or labels stay before the others")
    if fitted.family.prior().ndim > 1 or not posterior.transitions.is_symmetric:
        raise ValueError("states whose priors differ cannot be given other numbers")
    fitted.posterior = posterior.regrouped(np.eye(n_states)[numbers])
    if names is not None:
        fitted.state_names = tuple(names[k] for k in numbers[: len(names)])
