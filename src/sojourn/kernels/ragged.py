"""Positions of runs of steps in flat arrays."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def flat_steps(begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of runs of steps, one run after another.

    Examples
    --------
    >>> flat_steps(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    ends = np.cumsum(lengths)
    steps = np.repeat(begins - (ends - lengths), lengths)
    steps += np.arange(len(steps))
    return steps
