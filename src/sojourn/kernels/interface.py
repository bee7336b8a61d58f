"""What a kernel takes and gives back."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Integers = NDArray[np.integer]


PAD = 8
"""Kernels compute with the number of states rounded up to a multiple of this."""


def padded_states(n_states: int) -> int:
    """Round up to a multiple of `PAD`.

    Examples
    --------
    >>> padded_states(45)
    48
    """
    return -(-n_states // PAD) * PAD


class Potentials(NamedTuple):
    """The factors of q(z) for a batch: non-negative, rows need not sum to one.

    The emission potential of a step is a row of a table, so that symbols share rows: the step at
    flat position ``i`` has the potential ``exp(log_scale[index[i]]) * emissions[index[i]]``.

    Attributes
    ----------
    start : (K,) array
        Potential of the first state.
    transitions : (K, K) array
        ``transitions[k, l]`` is the potential of going from state k to state l.
    emissions : (U, K) array, or (U, padded_states(K)) with zeros beyond column K
        Table of emission potentials; its dtype is the precision of the computation.  The padded
        form spares a kernel a copy.
    log_scale : (U,) array or None
        Logarithm of the factor taken out of each row of the table, None for none.
    """

    start: Floats
    transitions: Floats
    emissions: Floats
    log_scale: Floats | None = None


class Absences(NamedTuple):
    """Sums over a batch that say how likely something never happens, eqs (4) and (6).

    Attributes
    ----------
    start : (K,) array
        ``Σ_n log(1 − q(z_1=k))``.
    pairs : (K, K) array
        ``Σ_n Σ_t log(1 − q(z_{t−1}=k, z_t=l))``.
    rows : (K,) array
        ``Σ_n Σ_t log(1 − q(z_{t−1}=k))``.
    start_squares : (K,) array
        ``Σ_n q(z_1=k)²``, for variances.
    pair_squares : (K, K) array
        ``Σ_n Σ_t q(z_{t−1}=k, z_t=l)²``.
    """

    start: Floats
    pairs: Floats
    rows: Floats
    start_squares: Floats
    pair_squares: Floats


class Smoothed(NamedTuple):
    """Posterior expectations of a batch under its potentials.

    Attributes
    ----------
    log_normalizers : (N,) float64 array
        log Z of each sequence; its log likelihood when the potentials are probabilities.
    start : (K,) float64 array
        ``Σ_n q(z_1 = k)``.
    transitions : (K, K) float64 array
        ``Σ_n Σ_t q(z_{t−1} = k, z_t = l)``.
    responsibilities : (T, K) array
        ``q(z_t = k)`` for every step of the flat batch.
    absences : Absences or None
        Present when asked for.
    """

    log_normalizers: Floats
    start: Floats
    transitions: Floats
    responsibilities: Floats
    absences: Absences | None
