"""Quantities of Markov chains that people read: long-run shares, passage times, time scales.

All functions take one transition matrix (K, K) or many (..., K, K).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.kernels.interface import Floats


def stationary_distribution(matrix: Floats) -> Floats:
    """Return the stationary distribution π = πP, shape (..., K).

    Notes
    -----
    By the algorithm of Grassmann, Taksar and Heyman, which subtracts nothing: every entry is
    accurate to the last digits, however rare the state.

    Examples
    --------
    >>> stationary_distribution(np.array([[0.9, 0.1], [0.3, 0.7]]))
    array([0.75, 0.25])
    >>> stationary_distribution(np.array([[0.9, 0.1], [0.0, 1.0]]))  # the first is left for good
    array([0., 1.])
    """
    work = np.array(matrix, np.float64)
    n_states = work.shape[-1]
    lasting = _lasting(work)
    if not lasting.all():
        found = np.zeros(work.shape[:-1])
        found[..., lasting] = stationary_distribution(work[..., lasting, :][..., lasting])
        return found
    for n in range(n_states - 1, 0, -1):
        leaving = work[..., n, :n].sum(axis=-1)
        if (leaving <= 0.0).any():
            raise ValueError("a state is never left for another: the chain has no single long run")
        work[..., :n, n] /= leaving[..., None]
        work[..., :n, :n] += work[..., :n, n, None] * work[..., n, None, :n]
    shares = np.zeros(work.shape[:-1])
    shares[..., 0] = 1.0
    for n in range(1, n_states):
        shares[..., n] = (shares[..., :n] * work[..., :n, n]).sum(axis=-1)
    return shares / shares.sum(axis=-1, keepdims=True)


def passage_times(matrix: Floats, target: Any) -> Floats:
    """Return the expected number of steps from every state to a set of states, shape (..., K).

    Zero within the set; otherwise h = 1 + P h, and infinite where the set may never be reached.

    Examples
    --------
    >>> passage_times(np.array([[0.9, 0.1], [0.3, 0.7]]), 1)
    array([10.,  0.])
    """
    matrix = np.asarray(matrix, np.float64)
    n_states = matrix.shape[-1]
    chosen = _states(target, n_states)
    outside = np.setdiff1d(np.arange(n_states), chosen)
    out = np.zeros(matrix.shape[:-1])
    reach = _reach(matrix)
    lost = ~reach[:, chosen].any(axis=1)
    into = (reach & lost).any(axis=1)  # from where a path may come to where the set is out of reach
    into[chosen] = False
    out[..., into] = np.inf
    outside = np.setdiff1d(outside, np.flatnonzero(into))
    if len(outside):
        inner = matrix[..., outside[:, None], outside]
        system = np.eye(len(outside)) - inner
        # The diagonal from what leaves the state, so that nothing cancels.
        at = np.arange(len(outside))
        leaving = matrix[..., outside, :].sum(axis=-1) - matrix[..., outside, outside]
        system[..., at, at] = leaving
        ones = np.ones((*matrix.shape[:-2], len(outside), 1))
        out[..., outside] = np.linalg.solve(system, ones)[..., 0]
    return out


def mean_first_passage(matrix: Floats, a: Any, b: Any) -> Floats:
    """Return the expected number of steps from states `a` to states `b`, shape (...).

    From several states, it is the mean over them by their stationary shares.

    Examples
    --------
    >>> mean_first_passage(np.array([[0.9, 0.1], [0.3, 0.7]]), 0, 1)
    array(10.)
    """
    times = passage_times(matrix, b)
    origin = _states(a, times.shape[-1])
    if len(origin) == 1:
        return np.asarray(times[..., origin[0]])
    shares = stationary_distribution(matrix)[..., origin]
    return np.asarray((times[..., origin] * shares).sum(axis=-1) / shares.sum(axis=-1))


def all_passage_times(matrix: Floats) -> Floats:
    """Return the expected number of steps from every state to every other, shape (..., K, K)."""
    matrix = np.asarray(matrix, np.float64)
    found = [passage_times(matrix, state) for state in range(matrix.shape[-1])]
    return np.stack(found, axis=-1)


def timescales(matrix: Floats) -> Floats:
    """Return the implied time scales −1 / log|λ| of all eigenvalues but the first, (..., K − 1).

    In steps, the slowest first: how fast the chain forgets where it was.

    Examples
    --------
    >>> timescales(np.array([[0.9, 0.1], [0.3, 0.7]])).round(4)
    array([1.9576])
    """
    sizes = np.sort(np.abs(np.linalg.eigvals(np.asarray(matrix, np.float64))), axis=-1)
    with np.errstate(divide="ignore"):
        rates = -np.log(np.clip(sizes[..., -2::-1], 0.0, 1.0))
        return np.where(rates > 0.0, 1.0 / np.where(rates > 0.0, rates, 1.0), np.inf)


def dwell_times(matrix: Floats) -> Floats:
    """Return the expected number of steps that a visit lasts, 1 / (1 − θ_kk), shape (..., K)."""
    stay = np.diagonal(np.asarray(matrix, np.float64), axis1=-2, axis2=-1)
    return 1.0 / np.maximum(1.0 - stay, 1e-300)


def dwell_distribution(matrix: Floats, n_steps: int) -> Floats:
    """Return the probability that a visit lasts 1, ..., n steps, shape (..., K, n).

    Examples
    --------
    >>> dwell_distribution(np.array([[0.5, 0.5], [0.0, 1.0]]), 3)
    array([[0.5  , 0.25 , 0.125],
           [0.   , 0.   , 0.   ]])
    """
    if isinstance(n_steps, bool) or not isinstance(n_steps, int | np.integer) or n_steps < 1:
        raise ValueError(f"n_steps must be a whole number of at least 1, got {n_steps!r}")
    stay = np.diagonal(np.asarray(matrix, np.float64), axis1=-2, axis2=-1)[..., None]
    return stay ** np.arange(n_steps) * (1.0 - stay)


def _reach(matrix: Floats) -> Any:
    """Return which states a path from each state may come to, itself included, (K, K)."""
    n_states = matrix.shape[-1]
    reach = np.eye(n_states, dtype=np.bool_)
    steps = (np.asarray(matrix) > 0.0).reshape(-1, n_states, n_states).any(axis=0) | reach
    if steps.all():
        return steps
    for _ in range(max(1, n_states.bit_length())):
        steps = (steps.astype(np.int64) @ steps) > 0
    return steps


def _lasting(matrix: Floats) -> Any:
    """Return the states that a path comes back to for ever: those that all can come to, (K,)."""
    reach = _reach(matrix)
    lasting = reach.all(axis=0)
    if not lasting.any():
        raise ValueError("some states are never left for others: the chain has no single long run")
    return lasting


def _states(which: Any, n_states: int) -> Any:
    """Return one or several states as an array; raise an error if there is no such state."""
    chosen = np.unique(np.atleast_1d(np.asarray(which)))
    if chosen.dtype.kind not in "iu" or len(chosen) == 0:
        raise ValueError(f"expected a state or a list of states, got {which!r}")
    if chosen[0] < 0 or chosen[-1] >= n_states:
        raise ValueError(f"there is no state {which!r}: states are 0 to {n_states - 1}")
    return chosen
