"""Compiled log densities of Gaussian kind: vectors of `LANES` steps, one state after another.

The NumPy forms in `sojourn.families` say what is computed, and tests hold these to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sojourn.kernels.cpu.lane_math import (
    every,
    exponential,
    largest,
    log_one_plus,
    subtract,
)
from sojourn.kernels.cpu.lanes import (
    LANES,
    add,
    least,
    load,
    multiply,
    multiply_add,
    splat,
    store,
    zeros_of,
)
from sojourn.kernels.interface import Floats, padded_states
from sojourn.kernels.threads import run_units, take_unit

_STEPS_PER_UNIT = 1024
_GROUP = 8  # factors that are multiplied before a logarithm is taken
_LARGEST = 1e37  # squared distance at which a factor is cut off, so that the product is finite
_FAST = {"contract", "nsz", "arcp", "reassoc"}


def student_rows(
    x: Floats,
    location: Floats,
    weights: Floats,
    spans: NDArray[np.int64],
    factors: Floats,
    powers: Floats,
    constants: Floats,
    dtype: Any,
    *,
    collapsed: bool,
    n_threads: int,
) -> tuple[Floats, Floats, int]:
    """Compute ``exp(rows - rows.max(1))`` and ``rows.max(1)`` for rows of a Gaussian kind.

    With ``z = (1, x - location)`` and
    ``q[t, g, k] = sum over e of group g of (z[t] @ weights[:, e, k]) ** 2``, rows are
    ``constants - powers * sum over g of log1p(factors * q)`` (collapsed) or
    ``constants - powers * sum over g of factors * q``.

    Parameters
    ----------
    x : (T, side - 1) float64 array
    location : (side - 1,) array
    weights : (side, E, K) array
    spans : (E, 3) integer array
        First and last row of ``weights[:, e]`` beyond row 0 that are not all zero (the last is
        exclusive), and whether a group ends with e.
    factors, powers, constants : (K,) arrays

    Returns
    -------
    table : (T, K) array
    log_scale : (T,) array
    n_missing : int
        Number of steps with a NaN: their rows are ones, and their scale is one.
    """
    n_states = weights.shape[2]
    table = np.empty((len(x), n_states), dtype)
    log_scale = np.empty(len(x))
    n_units = max(1, -(-len(x) // _STEPS_PER_UNIT))
    missing = np.zeros(n_units, np.int64)
    run_units(
        _student_rows,
        n_units,
        n_threads,
        np.ascontiguousarray(x, dtype=np.float64),
        np.ascontiguousarray(location, dtype=np.float64),
        np.ascontiguousarray(weights.transpose(2, 1, 0)).ravel(),
        np.ascontiguousarray(spans, dtype=np.int64),
        np.ascontiguousarray(factors, dtype=np.float64),
        np.ascontiguousarray(powers, dtype=np.float64),
        np.ascontiguousarray(constants, dtype=np.float64),
        collapsed,
        table,
        log_scale,
        missing,
    )
    return table, log_scale, int(missing.sum())


@njit(nogil=True, cache=True)
def _student_rows(
    counter,
    n_units,
    x,
    location,
    weights,
    spans,
    factors,
    powers,
    constants,
    collapsed,
    table,
    log_scale,
    missing,
):
    n_steps, n_states = table.shape
    n_columns = x.shape[1]
    n_targets = spans.shape[0]
    side = n_columns + 1
    z = np.empty(n_columns * LANES)
    rows = np.empty(n_states * LANES)
    potentials = np.empty(LANES, table.dtype)
    known = np.empty(LANES)
    cut = every(_LARGEST)
    zero = zeros_of(z)
    unit = take_unit(counter)
    while unit < n_units:
        begin, end = n_steps * unit // n_units, n_steps * (unit + 1) // n_units
        for t in range(begin, end, LANES):
            n = min(LANES, end - t)
            for i in range(LANES):
                known[i] = 0.0
            for d in range(n_columns):
                for i in range(n):
                    value = x[t + i, d] - location[d]
                    z[d * LANES + i] = value
                    known[i] += value
                for i in range(n, LANES):
                    z[d * LANES + i] = 0.0
            top = every(-np.inf)
            for k in range(n_states):
                factor = splat(factors, k)
                square = zero
                product = zero
                total = zero
                n_factors = 0
                for e in range(n_targets):
                    at = (k * n_targets + e) * side
                    value = splat(weights, at)
                    for i in range(spans[e, 0], spans[e, 1]):
                        value = multiply_add(
                            load(z, (i - 1) * LANES), splat(weights, at + i), value
                        )
                    square = multiply_add(value, value, square)
                    if spans[e, 2] == 0:
                        continue
                    if not collapsed:
                        total = multiply_add(factor, square, total)
                        square = zero
                        continue
                    # (1 + a)(1 + b) − 1 = a + b + a b: many factors, and few logarithms.
                    q = least(multiply(factor, square), cut)
                    product = multiply_add(product, q, add(product, q))
                    square = zero
                    n_factors += 1
                    if n_factors == _GROUP:
                        total = add(total, log_one_plus(product))
                        product = zero
                        n_factors = 0
                if n_factors > 0:
                    total = add(total, log_one_plus(product))
                row = subtract(splat(constants, k), multiply(splat(powers, k), total))
                top = largest(row, top)
                store(rows, k * LANES, row)
            for k in range(n_states):
                row = exponential(subtract(load(rows, k * LANES), top), table)
                store(potentials, np.int64(0), row)
                for i in range(n):
                    table[t + i, k] = potentials[i]
            store(rows, np.int64(0), top)
            for i in range(n):
                log_scale[t + i] = rows[i]
                if np.isnan(known[i]):
                    missing[unit] += 1
                    log_scale[t + i] = 0.0
                    for k in range(n_states):
                        table[t + i, k] = 1.0
        unit = take_unit(counter)


def sum_products(
    x: Floats, location: Floats, pairs: NDArray[np.int64], weights: Floats, *, n_threads: int
) -> tuple[Floats, int]:
    """Compute ``sum over t of z[t, i] * z[t, j] * weights[t]`` for every pair (i, j), (pairs, K).

    z is ``(1, x - location)``.  Steps with a NaN are left out; their number is returned too.

    The parts that are summed follow from the sizes alone, so that the number of threads does not
    change a bit.
    """
    n_states = weights.shape[1]
    width = padded_states(n_states)
    n_units = max(1, min(16, len(x) // _STEPS_PER_UNIT))
    parts = np.zeros((n_units, len(pairs), width))
    missing = np.zeros(n_units, np.int64)
    run_units(
        _sum_products,
        n_units,
        n_threads,
        np.ascontiguousarray(x, dtype=np.float64),
        np.ascontiguousarray(location, dtype=np.float64),
        np.ascontiguousarray(pairs, dtype=np.int64),
        weights,
        parts,
        missing,
    )
    return np.ascontiguousarray(parts.sum(axis=0)[:, :n_states]), int(missing.sum())


@njit(nogil=True, cache=True, fastmath=_FAST)
def _sum_products(counter, n_units, x, location, pairs, weights, parts, missing):
    n_steps, n_states = weights.shape
    n_columns = x.shape[1]
    width = parts.shape[2]
    # Four steps at a time: the sums are read and written a quarter as often.
    r = np.zeros((4, width))
    z = np.ones((4, n_columns + 1))
    unit = take_unit(counter)
    while unit < n_units:
        total = parts[unit]
        end = n_steps * (unit + 1) // n_units
        for t in range(n_steps * unit // n_units, end, 4):
            for i in range(4):
                known = 0.0
                if t + i < end:
                    for d in range(n_columns):
                        z[i, d + 1] = x[t + i, d] - location[d]
                        known += 0.0 * z[i, d + 1]
                    for j in range(n_states):
                        r[i, j] = weights[t + i, j]
                else:
                    for j in range(n_states):
                        r[i, j] = 0.0
                if np.isnan(known):
                    missing[unit] += 1
                    for d in range(n_columns):
                        z[i, d + 1] = 0.0
                    for j in range(n_states):
                        r[i, j] = 0.0
            for s in range(pairs.shape[0]):
                i, j = pairs[s, 0], pairs[s, 1]
                a, b = z[0, i] * z[0, j], z[1, i] * z[1, j]
                c, d = z[2, i] * z[2, j], z[3, i] * z[3, j]
                for k in range(width):
                    total[s, k] += (a * r[0, k] + b * r[1, k]) + (c * r[2, k] + d * r[3, k])
        unit = take_unit(counter)
