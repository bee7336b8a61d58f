"""A pass of several models over steps with few distinct observations, such as symbols or counts.

On a hundred counts a pass takes microseconds, and calling one function per term of it longer than
that.  Potentials are those of the distinct observations, and responsibilities are summed over the
steps of each, so that no array is as long as the data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.cpu.inner import outer
from sojourn.kernels.cpu.lanes import LANES
from sojourn.kernels.cpu.room import empty
from sojourn.kernels.cpu.together import LIMITS, sweep_lanes
from sojourn.kernels.interface import Floats, Integers

Tables = Callable[[Floats], tuple[Floats, Floats]]
"""Maps E[t] of states (K M, S) to their potentials (U, W), W ≥ K M, and logarithms of factors."""


class ValueSums(NamedTuple):
    """Sums of a pass: log Z (M,), E[C_0] (K, M), E[C] (K, K, M) and E[t] (S, K M)."""

    log_likelihoods: Floats
    start: Floats
    transitions: Floats
    emissions: Floats


class ValueSweeps:
    """Passes over steps with few distinct observations, with memory that is used again.

    Parameters
    ----------
    offsets : (N + 1,) integer array
        Sequence n is the steps ``offsets[n]:offsets[n + 1]``.
    places : (T,) integer array
        Which of the distinct observations each step has.
    statistics : (U, S) array
        t(x) of the distinct observations.
    tables : callable
        Their potentials, eq (2).
    """

    def __init__(
        self, offsets: Integers, places: Integers, statistics: Floats, tables: Tables
    ) -> None:
        self._offsets = np.asarray(offsets, dtype=np.int64)
        self._places = np.ascontiguousarray(places, dtype=np.int32)
        self._transposed = np.ascontiguousarray(statistics.T, dtype=np.float64)
        self._tables = tables
        longest = int(np.diff(self._offsets).max())
        self._repeats = np.bincount(self._places, minlength=len(statistics)).astype(np.float64)
        self._scales = np.empty(longest * LANES)
        self._alpha: Any = np.empty((longest, 0))

    def run(
        self, prior_start: Floats, prior_rows: Floats, start: Floats, rows: Floats, counts: Floats
    ) -> ValueSums:
        """Compute the expected counts of all models, as `CompiledPasses.run` says."""
        n_states, n_models = start.shape
        if self._alpha.shape[1] != n_states * LANES:
            self._alpha = np.empty((len(self._alpha), n_states * LANES))
        table, log_scale = self._tables(counts)
        log_z, shares = np.empty(n_models), np.empty((len(table), n_states * n_models))
        start_sums, row_sums = np.empty(start.shape), np.empty(rows.shape)
        _pass(
            table,
            self._places,
            self._offsets,
            prior_start[:, 0],
            prior_rows[..., 0],
            np.ascontiguousarray(start),
            np.ascontiguousarray(rows),
            LIMITS,
            self._alpha.ravel(),
            self._scales,
            log_z,
            start_sums,
            row_sums,
            shares,
        )
        log_z += self._repeats @ log_scale
        return ValueSums(log_z, start_sums, row_sums, self._transposed @ shares)


@outer
def _pass(
    table, places, offsets, prior_start, prior_rows, start, rows, limits, alpha, scales, log_z,
    start_sums, row_sums, shares,
):  # fmt: skip
    n_states, n_models = start.shape
    n_values, width = table.shape[0], n_states * LANES
    # Arrays are filled by loops: zeros and ones take longer to compile.
    first, starts = empty(np.float64, width), empty(np.float64, width)
    for j in range(width):
        first[j], starts[j] = 1.0, 0.0
    theta, counts = empty(np.float64, n_states * width), empty(np.float64, n_states * width)
    for j in range(n_states * width):
        theta[j], counts[j] = 1.0, 0.0
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
    phi, responsibilities = empty(np.float64, n_values * width), empty(np.float64, n_values * width)
    for j in range(n_values * width):
        phi[j], responsibilities[j] = 1.0, 0.0
    for u in range(n_values):
        for k in range(n_states):
            for m in range(n_models):
                phi[u * width + k * LANES + m] = table[u, k * n_models + m]
    logs, product = empty(np.float64, LANES), empty(np.float64, LANES)
    totals = empty(np.float64, LANES)
    beta, epsilon = empty(np.float64, width), empty(np.float64, width)
    sweep_lanes(
        places, offsets, first, theta, phi, n_states, limits, alpha, scales, totals, places,
        responsibilities, starts, counts, beta, epsilon, product, logs,
    )  # fmt: skip
    for m in range(n_models):
        log_z[m] = totals[m]
        for k in range(n_states):
            start_sums[k, m] = starts[k * LANES + m]
            for j in range(n_states):
                at = (k * n_states + j) * LANES + m
                row_sums[k, j, m] = counts[at] * theta[at]
            for u in range(n_values):
                share = responsibilities[u * width + k * LANES + m]
                shares[u, k * n_models + m] = share
