"""A whole pass of several models of the same counts, compiled: potentials, sweep and sums.

On a hundred counts a pass takes microseconds, and calling one function per term of it longer than
that.  It computes what `Poisson` and `Sweeps` do, for one column of counts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from sojourn.kernels.cpu.counts import gamma_poisson_tables
from sojourn.kernels.cpu.lanes import LANES
from sojourn.kernels.cpu.together import LIMITS, smooth_lanes
from sojourn.kernels.interface import Floats, Integers


class CountSums(NamedTuple):
    """Sums of a pass: log Z (M,), E[C_0] (K, M), E[C] (K, K, M) and E[t] (2, K M)."""

    log_likelihoods: Floats
    start: Floats
    transitions: Floats
    emissions: Floats


class CountSweeps:
    """Passes over one column of counts, with memory that is used again.

    Parameters
    ----------
    offsets : (N + 1,) integer array
    values : (U,) array
        Distinct counts, in increasing order; NaN is missing.
    places : (T,) integer array
        Which of them each step has.
    prior : (2,) array
        Rate and shape of the Gamma distribution of rates.
    """

    def __init__(self, offsets: Integers, values: Floats, places: Integers, prior: Floats) -> None:
        self._offsets = np.asarray(offsets, dtype=np.int64)
        self._values, self._prior = np.asarray(values, dtype=np.float64), prior
        self._places = np.ascontiguousarray(places, dtype=np.int32)
        longest = int(np.diff(self._offsets).max())
        self._repeats = np.bincount(self._places, minlength=len(values)).astype(np.float64)
        self._scales = np.empty(longest * LANES)
        self._alpha: Any = np.empty((longest, 0))

    def run(
        self, prior_start: Floats, prior_rows: Floats, start: Floats, rows: Floats, counts: Floats
    ) -> CountSums:
        """Compute the expected counts of all models, eqs (1) and (2).

        Parameters
        ----------
        prior_start, prior_rows : (K, 1) and (K, K, 1) arrays
            Prior counts.
        start, rows : (K, M) and (K, K, M) arrays
            Expected counts.
        counts : (K M, 2) array
            E[t] of every state of every model.
        """
        n_states, n_models = start.shape
        if self._alpha.shape[1] != n_states * LANES:
            self._alpha = np.empty((len(self._alpha), n_states * LANES))
        sums = CountSums(
            np.empty(n_models),
            np.empty((n_states, n_models)),
            np.empty((n_states, n_states, n_models)),
            np.empty((2, n_states * n_models)),
        )
        _pass(
            self._values,
            self._repeats,
            self._places,
            self._offsets,
            prior_start[:, 0],
            prior_rows[..., 0],
            start,
            rows,
            self._prior + counts,
            LIMITS,
            self._alpha.ravel(),
            self._scales,
            *sums,
        )
        return sums


@njit(nogil=True, cache=True)
def _pass(
    values, repeats, places, offsets, prior_start, prior_rows, start, rows, natural, limits, alpha,
    scales, log_z, start_sums, row_sums, emission_sums,
):  # fmt: skip
    n_states, n_models = start.shape
    n_values, width = values.shape[0], n_states * LANES
    first, theta = np.ones(width), np.ones(n_states * width)
    for m in range(n_models):
        total = 0.0
        for k in range(n_states):
            total += prior_start[k] + start[k, m]
        for k in range(n_states):
            first[k * LANES + m] = (prior_start[k] + start[k, m]) / total
            row = 0.0
            for j in range(n_states):
                row += prior_rows[k, j] + rows[k, j, m]
            for j in range(n_states):
                at = (k * n_states + j) * LANES + m
                theta[at] = (prior_rows[k, j] + rows[k, j, m]) / row
    table, log_scale = np.empty((n_values, n_states * n_models)), np.empty(n_values)
    gamma_poisson_tables(values, natural[:, 1].copy(), natural[:, 0].copy(), table, log_scale)
    phi, responsibilities = np.ones(n_values * width), np.zeros(n_values * width)
    factors = 0.0
    for u in range(n_values):
        factors += repeats[u] * log_scale[u]
        for k in range(n_states):
            for m in range(n_models):
                phi[u * width + k * LANES + m] = table[u, k * n_models + m]
    logs, starts, counts = np.empty(LANES), np.zeros(width), np.zeros(n_states * width)
    smooth_lanes(
        places, offsets, first, theta, phi, n_states, limits, alpha, scales, logs, places,
        responsibilities, starts, counts,
    )  # fmt: skip
    emission_sums[:] = 0.0
    for m in range(n_models):
        log_z[m] = logs[m] + factors
        for k in range(n_states):
            start_sums[k, m] = starts[k * LANES + m]
            for j in range(n_states):
                at = (k * n_states + j) * LANES + m
                row_sums[k, j, m] = counts[at] * theta[at]
    for u in range(n_values):
        if values[u] == values[u]:
            for k in range(n_states):
                for m in range(n_models):
                    share = responsibilities[u * width + k * LANES + m]
                    emission_sums[0, k * n_models + m] += share
                    emission_sums[1, k * n_models + m] += values[u] * share
