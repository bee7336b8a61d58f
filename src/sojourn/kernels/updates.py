"""What NumPy kernels have beside the recursions: small updates of counts and potentials."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import xlogy

from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed


def log_potential(smoothed: Smoothed, potentials: Potentials, index: Integers) -> float:
    """E_q of the logarithm of the product of potentials along the path."""
    responsibilities = smoothed.responsibilities
    rows = potentials.emissions[:, : responsibilities.shape[1]]
    # A potential of zero has no responsibility: the clip only avoids 0 · log 0.
    logs = np.log(np.maximum(rows, np.finfo(rows.dtype).tiny))
    total = float(np.sum(responsibilities * logs[index], dtype=np.float64))
    if potentials.log_scale is not None:
        total += float(potentials.log_scale[index].sum(dtype=np.float64))
    total += float(xlogy(smoothed.start, potentials.start).sum())
    if potentials.durations is not None:
        assert smoothed.durations is not None
        for counts, values in zip(smoothed.durations, potentials.durations, strict=True):
            total += float(xlogy(counts, values).sum())
    return total + float(xlogy(smoothed.transitions, potentials.transitions).sum())


def transition_potentials(
    prior: tuple[Floats, Floats], total: Any, counts: tuple[Floats, Floats], dtype: Any
) -> tuple[Floats, Floats]:
    """Return prior counts plus expected counts, normalised, eq (1).

    Parameters
    ----------
    prior, counts : pairs of arrays, (K,) and (K, K)
        Of the start and of the transitions; those of the prior may be one row for all, (K,).
    total : float, pair of floats, or None
        What rows are normalised by in addition to their counts, the start by another number than
        the others if it is a pair; None to normalise by the sums of prior and counts.
    dtype : dtype
        Of the result; sums and quotients are in the precision of the counts.
    """
    start, transitions = prior[0] + counts[0], prior[1] + counts[1]
    sums, extra = ((start, transitions), 0.0) if total is None else (counts, total)
    first, others = extra if isinstance(extra, tuple) else (extra, extra)
    start = start / (first + sums[0].sum())
    transitions = transitions / (others + sums[1].sum(axis=1))[:, None]
    return start.astype(dtype, copy=False), transitions.astype(dtype, copy=False)


def blend_counts(
    counts: tuple[Floats, Floats], sums: tuple[Floats, Floats], keep: float, weight: float
) -> tuple[Floats, Floats]:
    """Return ``keep * counts + weight * sums`` for start and transitions, eq (3).

    Examples
    --------
    >>> counts, sums = (np.ones(1), np.ones((1, 1))), (np.zeros(1), np.ones((1, 1)))
    >>> blend_counts(counts, sums, 0.5, 2.0)
    (array([0.5]), array([[2.5]]))
    """
    return keep * counts[0] + weight * sums[0], keep * counts[1] + weight * sums[1]


def state_masses(start: Floats, transitions: Floats) -> Floats:
    """Return how many steps are expected in each state: those that start there or go there.

    Examples
    --------
    >>> state_masses(np.array([1.0, 0.0]), np.array([[2.0, 3.0], [0.0, 1.0]]))
    array([3., 4.])
    """
    return start + transitions.sum(axis=0)
