"""Positions of runs of steps in flat arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


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


def checked_offsets(offsets: ArrayLike, n_steps: int) -> NDArray[np.int64]:
    """Return where sequences begin and end, as int64; refuse what would index beyond the steps.

    Everything that says where a sequence lies goes through here: kernels index with it unchecked.

    Examples
    --------
    >>> checked_offsets([0, 3, 5], 5)
    array([0, 3, 5])
    """
    raw = np.asarray(offsets)
    if raw.ndim != 1 or len(raw) == 0 or raw.dtype.kind not in "iu":
        raise ValueError("offsets must be a one-dimensional array of integers, not empty")
    if raw[0] != 0 or raw[-1] != n_steps:
        raise ValueError(
            f"offsets run from {raw[0]} to {raw[-1]}, but there are {n_steps} steps: "
            "they must run from 0 to that number"
        )
    back = raw[1:] < raw[:-1]  # compared, not subtracted, which could overflow
    if back.any():
        at = int(np.flatnonzero(back)[0])
        raise ValueError(f"sequence {at} ends before it begins: offsets must not decrease")
    return raw.astype(np.int64, copy=False)


def longest_first(offsets: NDArray[Any]) -> NDArray[np.int64]:
    """Return the sequences in the order of their lengths, the longest first; ties stay in order."""
    lengths = np.diff(offsets)
    if lengths.max() < 2**15:
        lengths = lengths.astype(np.int16)  # NumPy sorts these by radix, several times as fast
    return np.argsort(-lengths, kind="stable")
