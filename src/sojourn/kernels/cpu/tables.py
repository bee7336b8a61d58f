"""Expected tables of the HDP's restaurants and their auxiliary variables, in numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels.cpu.inner import inner

_SMALLEST_SUM = 1e-200  # of an event that may occur
_LARGEST_PROBABILITY = 1.0 - 1e-8


@njit(nogil=True, cache=True)
def exchangeable_tables(prior, counts, squares, row_squares, totals, tables, log_eta):
    """Write E[s] of every cell, eq (19), and E[log η] of every row, eq (6).

    `prior` (R, K) or (1, K) has G[α π], `counts` (R, K) E[C] with the start in row 0, which
    certainly occurs, `squares` (R, K) and `row_squares` (R − 1) Σ q², and `totals` (R,) the
    concentrations of rows.
    """
    for i in range(counts.shape[0]):
        own = prior[i % prior.shape[0]]
        row = 0.0
        for j in range(counts.shape[1]):
            count, g = counts[i, j], own[j]
            certain = min(squares[i, j], count)
            row += count
            settled = 0.0
            if certain > _SMALLEST_SUM:
                p = min(certain / count, _LARGEST_PROBABILITY)
                absent = count / p * np.log1p(-p * p) if p > 1e-12 else -certain
                occurs = -np.expm1(min(absent, -certain))
                grown = _digamma(g + certain / occurs) - _digamma(g)
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


@inner
def _digamma(x):
    """ψ(x) for x > 0, by recurrence to x ≥ 10 and the asymptotic series from there."""
    shift = 0.0
    while x < 10.0:
        shift += 1.0 / x
        x += 1.0
    square = 1.0 / (x * x)
    series = 691.0 / 32760.0 - square / 12.0
    series = 1.0 / 132.0 - square * series
    series = 1.0 / 240.0 - square * series
    series = 1.0 / 252.0 - square * series
    series = 1.0 / 120.0 - square * series
    series = 1.0 / 12.0 - square * series
    return np.log(x) - 0.5 / x - square * series - shift
