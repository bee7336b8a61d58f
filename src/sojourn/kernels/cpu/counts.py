"""Compiled potentials of columns with few distinct values: tables that are looked up.

A column has a row of potentials for each of its values, as a symbol has.  Several columns whose
values have few combinations share one table; where there are several tables, rows are multiplied.
"""

from __future__ import annotations

from math import lgamma
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sojourn.kernels.cpu.lane_math import largest
from sojourn.kernels.cpu.lanes import LANES, add, get, least, load, store
from sojourn.kernels.cpu.rows import copy_row, multiply_and_sum, product_of_rows
from sojourn.kernels.interface import Floats, Integers, row_width
from sojourn.kernels.threads import run_units, take_unit

_STEPS_PER_UNIT = 4096
_NEAR = 8.0  # counts from one to the next up to which a product is quicker than log Γ
_SMALL = 1e-12  # a row whose sum is below this is scaled
_TINY = 1e-150  # one whose sum is below this is computed again, and scaled after every factor


def extremes(x: Floats, *, n_threads: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return the smallest and the largest number of every column, and whether one is missing.

    Examples
    --------
    >>> extremes(np.array([[1.0, 5.0], [3.0, np.nan]]), n_threads=1)
    (array([1., 5.]), array([3., 5.]), array([False,  True]))
    """
    n_units = max(1, min(16, len(x) // _STEPS_PER_UNIT))
    found = np.empty((n_units, 3, x.shape[1]))
    run_units(_extremes, n_units, n_threads, np.ascontiguousarray(x, np.float64), found)
    return found[:, 0].min(axis=0), found[:, 1].max(axis=0), found[:, 2].max(axis=0) > 0.0


@njit(nogil=True, cache=True)
def _extremes(counter, n_units, x, found):
    n_steps, n_columns = x.shape
    size = LANES * n_columns  # numbers of `LANES` rows: a place always has the same column
    low, high, total = np.empty(size), np.empty(size), np.empty(size)
    unit = take_unit(counter)
    while unit < n_units:
        begin = n_steps * unit // n_units * n_columns
        end = n_steps * (unit + 1) // n_units * n_columns
        for j in range(size):
            low[j], high[j], total[j] = np.inf, -np.inf, 0.0
        whole = begin + (end - begin) // size * size
        for at in range(begin, whole, size):
            for j in range(0, size, LANES):
                values = load(x, at + j)
                store(low, j, least(values, load(low, j)))
                store(high, j, largest(values, load(high, j)))
                store(total, j, add(values, load(total, j)))  # not a number if one is missing
        for at in range(whole, end):
            value = get(x, at)
            j = at - whole
            low[j] = value if value < low[j] else low[j]
            high[j] = value if value > high[j] else high[j]
            total[j] += value
        for d in range(n_columns):
            least_of, most_of, sum_of = np.inf, -np.inf, 0.0
            for j in range(d, size, n_columns):
                least_of, most_of = min(least_of, low[j]), max(most_of, high[j])
                sum_of += total[j]
            found[unit, 0, d] = least_of
            found[unit, 1, d] = most_of
            found[unit, 2, d] = 1.0 if sum_of != sum_of else 0.0
        unit = take_unit(counter)


def with_totals(x: Floats, *, n_threads: int) -> Floats:
    """Return the columns, and the sums of the rows as one more.

    Examples
    --------
    >>> with_totals(np.array([[1.0, 5.0], [3.0, np.nan]]), n_threads=1)
    array([[ 1.,  5.,  6.],
           [ 3., nan, nan]])
    """
    out = np.empty((len(x), x.shape[1] + 1))
    run_units(_with_totals, max(1, min(64, len(x) // _STEPS_PER_UNIT)), n_threads, x, out)
    return out


@njit(nogil=True, cache=True)
def _with_totals(counter, n_units, x, out):
    n_steps, n_columns = x.shape
    unit = take_unit(counter)
    while unit < n_units:
        for t in range(n_steps * unit // n_units, n_steps * (unit + 1) // n_units):
            total = 0.0
            for d in range(n_columns):
                value = x[t, d]
                out[t, d] = value
                total += value
            out[t, n_columns] = total
        unit = take_unit(counter)


def codes(
    x: Floats,
    sizes: Integers,
    groups: Integers,
    strides: Integers,
    firsts: Integers,
    *,
    n_threads: int,
) -> NDArray[np.int32]:
    """Return the row of each step in every table, (T, tables); table g begins at ``firsts[g]``.

    Column d adds ``strides[d]`` times its value to the row in table ``groups[d]``; a missing value
    is ``sizes[d] - 1``.
    """
    out = np.empty((len(x), len(firsts)), np.int32)
    n_units = max(1, min(64, len(x) // _STEPS_PER_UNIT))
    columns = (np.asarray(a) for a in (sizes, groups, strides, firsts))
    run_units(_codes, n_units, n_threads, x, *columns, out)
    return out


@njit(nogil=True, cache=True)
def _codes(counter, n_units, x, sizes, groups, strides, firsts, out):
    n_steps, n_columns = x.shape
    unit = take_unit(counter)
    while unit < n_units:
        for t in range(n_steps * unit // n_units, n_steps * (unit + 1) // n_units):
            group, code = 0, firsts[0]
            for d in range(n_columns):
                if groups[d] != group:
                    out[t, group] = code
                    group += 1
                    code = firsts[group]
                value = x[t, d]
                code += strides[d] * (np.int64(value) if value == value else sizes[d] - 1)
            out[t, group] = code
        unit = take_unit(counter)


def product_rows(
    index: NDArray[np.int32],
    table: Floats,
    log_scale: Floats,
    n_states: int,
    dtype: Any,
    *,
    n_threads: int,
) -> tuple[Floats, Floats]:
    """Return products of rows of a table, up to factors, and the logarithms of the factors.

    Parameters
    ----------
    index : (T, G) array
        Rows of the table to multiply for every step.
    table : (U, padded K) float64 array
        Largest number of each row one, zeros beyond column K.
    log_scale : (U,) array
        Logarithms of the factors of the rows.

    Returns
    -------
    rows : (T, K) array, or padded: see `row_width`
    log_scale : (T,) array
    """
    rows = np.empty((len(index), row_width(n_states)), dtype)
    scales = np.empty(len(index))
    n_units = max(1, min(64, len(index) // _STEPS_PER_UNIT))
    run_units(_product_rows, n_units, n_threads, index, table, log_scale, rows, scales)
    return rows, scales


@njit(nogil=True, cache=True)
def _product_rows(counter, n_units, index, table, log_scale, rows, scales):
    n_steps, n_tables = index.shape
    width = table.shape[1]
    row = np.empty((1, width))
    unit = take_unit(counter)
    while unit < n_units:
        for t in range(n_steps * unit // n_units, n_steps * (unit + 1) // n_units):
            total, scale = product_of_rows(row, table, index, t, n_tables, width), 0.0
            for g in range(n_tables):
                scale += log_scale[index[t, g]]
            if total < _TINY:
                copy_row(row, 0, table, index[t, 0], width)
                for g in range(1, n_tables):
                    total = multiply_and_sum(row, 0, table, index[t, g], width)
                    if total < _SMALL and total > 0.0:
                        for k in range(width):
                            row[0, k] /= total
                        scale += np.log(total)
            elif total < _SMALL:
                for k in range(width):
                    row[0, k] /= total
                scale += np.log(total)
            copy_row(rows, t, row, 0, rows.shape[1])  # beyond the states there are zeros
            scales[t] = scale
        unit = take_unit(counter)


def gamma_poisson_rows(x: Floats, a: Floats, b: Floats, dtype: Any) -> tuple[Floats, Floats]:
    """Return eq (2) of counts, the largest of each row one, and the logarithms of the factors.

    Parameters
    ----------
    x : (T,) array
        Counts; NaN is missing.  Where they rise, as distinct ones do, it is quickest.
    a, b : (K,) arrays
        Shape and rate of the Gamma distributions.

    Examples
    --------
    >>> rows, scale = gamma_poisson_rows(np.array([0.0]), np.ones(1), np.ones(1), np.float64)
    >>> float(rows[0, 0]), np.exp(scale)
    (1.0, array([0.5]))
    """
    rows, log_scale = np.zeros((len(x), row_width(len(a))), dtype), np.empty(len(x))
    gamma_poisson_tables(x, a, b, rows, log_scale)
    return rows, log_scale


@njit(nogil=True, cache=True)
def gamma_poisson_tables(x, a, b, rows, log_scale):
    """Fill rows and logarithms of their factors: see `gamma_poisson_rows`."""
    n_states = a.shape[0]
    # log Γ(a + x) − log Γ(a) − log x! of the last count, which the next goes on from.
    grown, at = np.zeros(n_states), 0.0
    fixed, slope = np.empty(n_states), np.empty(n_states)
    for k in range(n_states):
        fixed[k] = -a[k] * np.log1p(1.0 / b[k])
        slope[k] = -np.log1p(b[k])
    logs = np.empty(n_states)
    for t in range(x.shape[0]):
        value = x[t]
        if value != value:
            log_scale[t] = 0.0
            rows[t, :n_states] = 1.0
            continue
        goes_on = at <= value and value - at <= _NEAR
        largest = -np.inf
        for k in range(n_states):
            if goes_on:
                factor, i = 1.0, at
                while i < value:
                    factor *= (a[k] + i) / (i + 1.0)
                    i += 1.0
                grown[k] += np.log(factor)
            else:
                grown[k] = lgamma(a[k] + value) - lgamma(a[k]) - lgamma(value + 1.0)
            logs[k] = grown[k] + fixed[k] + value * slope[k]
            largest = max(largest, logs[k])
        at = value
        log_scale[t] = largest
        for k in range(n_states):
            rows[t, k] = np.exp(logs[k] - largest)
