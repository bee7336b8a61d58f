"""The large batch of minibatches that a prior collects between two updates of its posterior."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.transitions.constraints import arrays_of

_PREFIX = "pending."


def step_size_of(n_updates: int, *, forgetting_rate: float, delay: float) -> float:
    """Return the step size of the update that follows `n_updates` others."""
    return float((delay + n_updates + 1) ** -forgetting_rate)


def added(pending: dict[str, Floats], parts: dict[str, Floats]) -> dict[str, Floats]:
    """Return the sums of a large batch with those of another minibatch added.

    The sums are new arrays, also those of the first minibatch.
    """
    parts_now = list(parts.values())
    before = [pending[name] for name in parts] if pending else 0.0
    sums = namespace(parts_now[0]).each_plus(parts_now, before)
    return dict(zip(parts, sums, strict=True))


def state_of(prior: Any, array: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return the state of a prior with one array and a large batch, for `Transitions.state`."""
    values = {
        entry.name: getattr(prior, entry.name)
        for entry in fields(prior)
        if entry.name not in (array, "pending", "constraints")
    }
    pending = {f"{_PREFIX}{name}": np.asarray(part) for name, part in prior.pending.items()}
    own = {array: getattr(prior, array), **pending}
    return values, own | arrays_of(prior.constraints)


def pending_of(arrays: dict[str, NDArray[Any]]) -> dict[str, Floats]:
    """Return the sums of the large batch from the arrays of `state_of`."""
    return {
        name.removeprefix(_PREFIX): part
        for name, part in arrays.items()
        if name.startswith(_PREFIX)
    }
