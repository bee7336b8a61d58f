"""Expected tables of the HDP's restaurants, and an update of its posteriors, in numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels.cpu.inner import inner

_SMALLEST_SUM = 1e-200  # of an event that may occur
_LARGEST_PROBABILITY = 1.0 - 1e-8
_CERTAINLY = 40.0  # 1 − exp(−40) is one in double precision


@njit(nogil=True, cache=True)
def exchangeable_tables(prior, counts, squares, row_squares, totals, tables, log_eta):
    """Write E[s] of every cell, eq (19), and E[log η] of every row, eq (6).

    `prior` (R, K) or (1, K) has G[α π], `counts` (R, K) E[C] with the start in row 0, which
    certainly occurs, `squares` (R, K) and `row_squares` (R − 1) Σ q², and `totals` (R,) the
    concentrations of rows.
    """
    n_priors, n_states = prior.shape
    psi = np.empty(n_states)
    for i in range(counts.shape[0]):
        own = prior[i % n_priors]
        if i < n_priors:  # one row may stand for all
            for j in range(n_states):
                psi[j] = _digamma(own[j])
        row = 0.0
        for j in range(n_states):
            count, g = counts[i, j], own[j]
            certain = min(squares[i, j], count)
            row += count
            settled = 0.0
            if certain > _CERTAINLY:
                settled = g * (_digamma(g + certain) - psi[j])
            elif certain > _SMALLEST_SUM:
                p = min(certain / count, _LARGEST_PROBABILITY)
                absent = count / p * np.log1p(-p * p) if p > 1e-12 else -certain
                occurs = -np.expm1(min(absent, -certain))
                grown = _digamma(g + certain / occurs) - psi[j]
                settled = g * occurs * max(grown, 0.0)
            tables[i, j] = settled + g * np.log1p((count - certain) / (g + certain))
        occurs = 1.0
        if i > 0 and row > _SMALLEST_SUM:
            p = min(max(row_squares[i - 1] / row, 0.0), _LARGEST_PROBABILITY)
            absent = row / p * np.log1p(-p) if p > 1e-12 else -row
            occurs = -np.expm1(min(absent, -row))
        log_eta[i] = 0.0
        if row > _SMALLEST_SUM:
            log_eta[i] = occurs * (_digamma(totals[i]) - _digamma(totals[i] + row / occurs))


@njit(nogil=True, cache=True)
def update_posteriors(
    copies, start, transitions, start_squares, pair_squares, row_squares, step, by_size, known,
    prior, tables, posterior, weights,
):  # fmt: skip
    """Blend the posteriors with those of a large batch, eqs (5) to (8) and (19).

    `start`, `transitions` and the squares are the sums of a large batch, of which the data set is
    so many `copies`.  `known` has shape and rate of the priors on α and on γ; `prior` (1, K) has
    G[α π] before the update.

    Changed in place: `tables` (K,) has the blended tables of the states, `posterior` the blended
    E[γ] of the sticks, and shape and rate of α and of γ.  Written: `weights` (K,) has G[α π] after
    the update.
    """
    n_states, keep = start.shape[0], 1.0 - step
    counts, squares = np.empty((n_states + 1, n_states)), np.empty((n_states + 1, n_states))
    for j in range(n_states):
        counts[0, j] = copies * start[j]
        squares[0, j] = copies * start_squares[j]
        for i in range(n_states):
            counts[i + 1, j] = copies * transitions[i, j]
            squares[i + 1, j] = copies * pair_squares[i, j]
    cells, log_eta = np.empty((n_states + 1, n_states)), np.empty(n_states + 1)
    totals = np.full(n_states + 1, posterior[1] / posterior[2])
    exchangeable_tables(prior, counts, squares, copies * row_squares, totals, cells, log_eta)
    gamma = posterior[3] / posterior[4]
    # Loops, here and below: NumPy's sums and sorts take the compiler longer than all the rest.
    fresh, n_tables, log_etas = np.zeros(n_states), 0.0, 0.0
    for i in range(n_states + 1):
        log_etas += log_eta[i]
        for j in range(n_states):
            fresh[j] += cells[i, j]
    order = _stick_order(fresh, by_size)
    later, all_rest = 0.0, 0.0
    for n in range(n_states - 1, -1, -1):
        own = fresh[order[n]]
        all_rest += _digamma(gamma + later) - _digamma(1.0 + own + gamma + later)
        later += own
    for j in range(n_states):
        n_tables += fresh[j]
        tables[j] = keep * tables[j] + step * fresh[j]
    posterior[0] = keep * posterior[0] + step * gamma
    posterior[1] = keep * posterior[1] + step * (known[0] + n_tables)
    posterior[2] = keep * posterior[2] + step * (known[1] - log_etas)
    posterior[3] = keep * posterior[3] + step * (known[2] + n_states)
    posterior[4] = keep * posterior[4] + step * (known[3] - all_rest)
    # G[π] of the new sticks, whose parameters follow from the blended tables.
    geometric_prior(tables, posterior[0], posterior[1], posterior[2], by_size, weights)


@njit(nogil=True, cache=True)
def geometric_prior(tables, stick_gamma, shape, rate, by_size, weights):
    """Write G[α π] of every state, eq (8), with α Gamma(`shape`, `rate`) and blended `tables`."""
    n_states = tables.shape[0]
    log_rest = np.empty(n_states)
    order = _stick_order(tables, by_size)
    later = 0.0
    for n in range(n_states - 1, -1, -1):
        own = tables[order[n]]
        whole = _digamma(1.0 + own + stick_gamma + later)
        log_rest[n] = _digamma(stick_gamma + later) - whole
        weights[order[n]] = _digamma(1.0 + own) - whole
        later += own
    scale, before = np.exp(_digamma(shape)) / rate, 0.0
    for n in range(n_states):
        j = order[n]
        # The weight of a stick without observations underflows; the rows must stay positive.
        weights[j] = max(scale * np.exp(weights[j] + before), 1e-30)
        before += log_rest[n]


@njit(nogil=True)
def _stick_order(tables, by_size):
    """Return the state of the first stick, of the second, and so on; of equals the first first."""
    order = np.empty(tables.shape[0], np.int64)
    for j in range(tables.shape[0]):
        n = j
        while by_size and n > 0 and tables[order[n - 1]] < tables[j]:
            order[n] = order[n - 1]
            n -= 1
        order[n] = j
    return order


@inner
def _digamma(x):
    """ψ(x) for x > 0, by recurrence to x ≥ 6 and the asymptotic series from there."""
    shift = 0.0
    if x < 6.0:
        # 1 / x + ... + 1 / (x + 5) with one division: first and last term have u, and so on.
        u = x * (x + 5.0)
        v, w = u + 4.0, u + 6.0
        shift = (2.0 * x + 5.0) * (v * w + u * (v + w)) / (u * v * w)
        x += 6.0
    square = 1.0 / (x * x)
    series = 691.0 / 32760.0 - square / 12.0
    series = 1.0 / 132.0 - square * series
    series = 1.0 / 240.0 - square * series
    series = 1.0 / 252.0 - square * series
    series = 1.0 / 120.0 - square * series
    series = 1.0 / 12.0 - square * series
    return np.log(x) - 0.5 / x - square * series - shift
