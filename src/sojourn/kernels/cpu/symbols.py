"""Compiled work on tables with one row per symbol, touching only the symbols of a batch.

The cost of every function here grows with the steps of the batch and the states, never with the
number of symbols in the table.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sojourn.kernels.cpu.lanes import copy_run
from sojourn.kernels.interface import Floats, Integers
from sojourn.kernels.threads import prefetch, prefetch_row, run_units, take_unit

_MANY_A_ROW = 1024  # steps per symbol from which four are added at a time
_LONG_SUM = 64  # steps per symbol from which sums are in double precision
_AHEAD = 8  # rows between asking for one and using it
_WORTH_A_THREAD = 2**16  # numbers to compute before another thread pays for its start


def distinct(symbols: Integers, n_symbols: int) -> tuple[NDArray[np.int32] | None, Integers]:
    """Find the symbols present, and replace each by its place among them.

    Returns
    -------
    present : (U,) int32 array or None
        The distinct symbols in order of appearance.  None means all of them, ``0..n_symbols-1``:
        with no more symbols than steps, looking which are there does not pay.
    index : (T,) integer array
        ``present[index] == symbols``.

    Examples
    --------
    >>> distinct(np.array([7, 2, 7], dtype=np.int32), 10)
    (array([7, 2], dtype=int32), array([0, 1, 0], dtype=int32))
    """
    if n_symbols <= len(symbols):
        return None, symbols
    n_slots = 1 << max(4, int(2 * len(symbols) - 1).bit_length())
    present = np.empty(len(symbols), np.int32)
    index = np.empty(len(symbols), np.int32)
    n_present = _distinct(symbols, np.full(n_slots, -1, np.int32), present, index)
    return present[:n_present], index


_places = np.arange(2**16, dtype=np.int32)


def consecutive(n: int) -> NDArray[np.int32]:
    """Return 0, 1, ..., n − 1, not to be changed: a view of an array that is kept.

    Examples
    --------
    >>> consecutive(3)
    array([0, 1, 2], dtype=int32)
    """
    global _places
    if n > len(_places):
        _places = np.arange(n, dtype=np.int32)
    return _places[:n]


def predictive_rows(
    table: Floats,
    scale: float,
    rows: Integers | None,
    prior: Floats,
    totals: Floats,
    *,
    collapsed: bool,
    n_threads: int,
) -> Floats:
    """Compute Dirichlet potentials of the given rows of a scaled table of counts.

    With ``c = prior + scale * table[rows]``, equals ``c / totals`` (collapsed) or
    ``exp(digamma(c) - digamma(totals))`` (mean-field), in the dtype of the table.  The result has
    the width of the table, with zeros beyond the states.

    Parameters
    ----------
    table : (S, W) array
        Counts, to be multiplied by `scale`; W is `padded_states` of K.
    rows : (U,) integer array or None
        Which rows; None for all.
    prior : (1 or U, 1 or K) array
        Prior counts of these rows.
    totals : (K,) float64 array
        Prior and counts summed over the whole table.
    """
    n_rows = len(table) if rows is None else len(rows)
    factor = np.zeros(table.shape[1], table.dtype)
    factor[: len(totals)] = 1.0 / (totals if collapsed else _exp_digamma_array(totals))
    out = np.empty((n_rows, table.shape[1]), table.dtype)
    n_units = _n_units(out.size, n_threads)
    run_units(
        _predictive_rows,
        n_units,
        n_threads,
        table,
        table.dtype.type(scale),
        np.empty(0, np.int32) if rows is None else rows,
        np.ascontiguousarray(prior, dtype=table.dtype),
        factor,
        len(totals),
        collapsed,
        out,
    )
    return out


def sum_by_row(index: Integers, values: Floats, n_rows: int, *, n_threads: int) -> Floats:
    """Sum ``values`` over equal ``index``: ``out[index[t]] += values[t]``.

    Where there are many steps per row, they are summed in several parts that are then added.  The
    parts depend on the sizes only, so that the result does not depend on the number of threads.
    """
    padded = _full_rows(values)
    steps_a_row = len(index) // n_rows
    n_parts = max(1, min(8, steps_a_row // 16))
    # Long sums in single precision are biased; where there are many sums they are short.
    dtype = np.float64 if steps_a_row >= _LONG_SUM else values.dtype
    n_streams = 4 if steps_a_row >= _MANY_A_ROW else 1
    parts = np.zeros((n_parts * n_streams, n_rows, padded.shape[1]), dtype)
    n_threads = _n_units(padded.size, n_threads)
    run_units(_sum_by_row, n_parts, n_threads, index, padded, parts)
    total = parts[0] if len(parts) == 1 else parts.sum(axis=0)
    return total[:, : values.shape[1]].astype(values.dtype, copy=False)


def add_rows(
    table: Floats,
    rows: Integers | None,
    values: Floats,
    weight: float,
    *,
    n_threads: int = 1,
) -> None:
    """``table[rows] += weight * values`` in place; `rows` are distinct, None means all.

    `values` have the columns of the table, or fewer: a cut of trailing padding is undone.
    """
    padded = _full_rows(values)
    run_units(
        _add_rows,
        _n_units(padded.size, n_threads),
        n_threads,
        table,
        np.empty(0, np.int32) if rows is None else rows,
        padded,
        table.dtype.type(weight),
    )


def expected_tables(
    table: Floats, scale: float, prior: float, n_states: int, *, n_threads: int
) -> Floats:
    """Expected tables of every row of a scaled table of counts, eq (17), shape (S,).

    With ``n = scale * table[:, :n_states]``, ``c = n**2 / n.sum(axis=1)`` and ``p = 1 - exp(-c)``,
    equals the sum over columns of
    ``prior * (p * (digamma(prior + c / p) - digamma(prior)) + log1p((n - c) / (prior + c)))``,
    except for cells below 0.001 with less than 1/10,000 of their row, which are negligible.
    """
    rows = np.empty(len(table))
    run_units(
        _expected_tables,
        _n_units(table.size, n_threads),
        n_threads,
        table,
        float(scale),
        float(prior),
        n_states,
        rows,
    )
    return rows


def column_sums(values: Floats) -> Floats:
    """``values.sum(axis=0, dtype=float64)``, without NumPy's buffered casts."""
    return _column_sums(_full_rows(values))[: values.shape[1]]


def _n_units(size: int, n_threads: int) -> int:
    return max(1, min(n_threads, size // _WORTH_A_THREAD))


def take_ragged(values: NDArray[np.generic], begins: Integers, offsets: Integers) -> Any:
    """Gather runs of `values`: run n begins at ``begins[n]`` and goes to ``offsets[n]:``."""
    out = np.empty((offsets[-1], *values.shape[1:]), values.dtype)
    _take_ragged(values, begins, offsets, out)
    return out


def _full_rows(values: Floats) -> Floats:
    """Undo a cut of trailing columns: compiled code is quickest on whole, contiguous rows."""
    if values.flags.c_contiguous:
        return values
    itemsize = values.itemsize
    if values.strides[1] != itemsize or values.strides[0] % itemsize:
        values = np.ascontiguousarray(values)
    width = max(values.strides[0] // itemsize, values.shape[1])
    return np.lib.stride_tricks.as_strided(
        values, (len(values), width), (width * itemsize, itemsize), writeable=False
    )


@njit(nogil=True, cache=True)
def _distinct(symbols, slots, present, index):
    """Number the symbols by a hash table with open addressing."""
    # Selections in place of branches: whether a symbol is new cannot be predicted.
    mask = slots.shape[0] - 1
    n_present = 0
    for t in range(symbols.shape[0]):
        symbol = np.int64(symbols[t])
        slot = (symbol * 2654435769 >> 7) & mask
        place = slots[slot]
        while (place >= 0) & (present[place if place >= 0 else 0] != symbol):
            slot = (slot + 1) & mask
            place = slots[slot]
        is_new = place < 0
        place = n_present if is_new else place
        slots[slot] = place
        present[place] = symbol
        index[t] = place
        n_present += is_new
    return n_present


@njit(nogil=True)
def _exp_digamma(x):
    """exp(ψ(x)) for x > 0, by recurrence to x ≥ 10 and the asymptotic series from there."""
    shift = 0.0
    while x < 10.0:
        shift += 1.0 / x
        x += 1.0
    return x * np.exp(_digamma_tail(x) - shift)


@njit(nogil=True)
def _digamma(x):
    """ψ(x), as above, to ten digits; its exponential underflows for small x."""
    shift = 0.0
    while x < 5.0:
        shift += 1.0 / x
        x += 1.0
    return np.log(x) + _digamma_tail(x) - shift


@njit(nogil=True)
def _digamma_tail(x):
    """ψ(x) − log x for large x."""
    inverse = 1.0 / x
    square = inverse * inverse
    series = 1.0 / 240.0 - square / 132.0
    series = 1.0 / 252.0 - square * series
    series = 1.0 / 120.0 - square * series
    series = 1.0 / 12.0 - square * series
    return -0.5 * inverse - square * series


@njit(nogil=True, cache=True)
def _expected_tables(counter, n_units, table, scale, prior, n_states, out):
    n_rows = table.shape[0]
    at_prior = _digamma(prior)
    unit = take_unit(counter)
    while unit < n_units:
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            row = 0.0
            for j in range(n_states):
                row += scale * table[i, j]
            floor = min(1e-3, 1e-4 * row)
            total = 0.0
            for j in range(n_states):
                n = scale * table[i, j]
                if n <= floor:
                    continue
                certain = n * n / row
                occurs = -np.expm1(-certain)
                grown = _digamma(prior + certain / occurs) - at_prior
                total += occurs * grown + np.log1p((n - certain) / (prior + certain))
            total *= prior
            out[i] = total
        unit = take_unit(counter)


@njit(nogil=True, cache=True)
def _exp_digamma_array(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out.flat[i] = _exp_digamma(x.flat[i])
    return out


@njit(nogil=True, cache=True)
def _predictive_rows(counter, n_units, table, scale, rows, prior, factor, n_states, collapsed, out):
    n_rows, width = out.shape
    unit = take_unit(counter)
    while unit < n_units:
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            row = rows[i] if rows.shape[0] > 0 else i
            if i + _AHEAD < rows.shape[0]:
                prefetch_row(table, rows[i + _AHEAD])
            p = i if prior.shape[0] > 1 else 0
            if prior.shape[1] == 1:
                for j in range(width):
                    out[i, j] = prior[p, 0] + scale * table[row, j]
            else:
                for j in range(prior.shape[1]):
                    out[i, j] = prior[p, j] + scale * table[row, j]
                for j in range(prior.shape[1], width):
                    out[i, j] = 0.0
            if not collapsed:
                for j in range(n_states):
                    out[i, j] = _exp_digamma(np.float64(out[i, j]))
            for j in range(width):
                out[i, j] *= factor[j]
        unit = take_unit(counter)


@njit(nogil=True, cache=True)
def _sum_by_row(counter, n_units, index, values, parts):
    n_steps = index.shape[0]
    unit = take_unit(counter)
    while unit < n_units:
        begin, end = n_steps * unit // n_units, n_steps * (unit + 1) // n_units
        if parts.shape[0] > n_units:
            # A sum waits for the one before it: steps that are far apart go to other sums.
            a, b, c, d = (
                parts[4 * unit],
                parts[4 * unit + 1],
                parts[4 * unit + 2],
                parts[4 * unit + 3],
            )
            run = (end - begin) // 4
            for t in range(begin, begin + run):
                i, k = index[t], index[t + run]
                m, n = index[t + 2 * run], index[t + 3 * run]
                for j in range(values.shape[1]):
                    a[i, j] += values[t, j]
                    b[k, j] += values[t + run, j]
                    c[m, j] += values[t + 2 * run, j]
                    d[n, j] += values[t + 3 * run, j]
            begin += 4 * run
        out = parts[unit * (parts.shape[0] // n_units)]
        for t in range(begin, end):
            row = index[t]
            if t + _AHEAD < end:
                prefetch_row(out, index[t + _AHEAD])
            for j in range(values.shape[1]):
                out[row, j] += values[t, j]
        unit = take_unit(counter)


@njit(nogil=True, cache=True)
def _add_rows(counter, n_units, table, rows, values, weight):
    n_rows = values.shape[0]
    width = min(table.shape[1], values.shape[1])
    unit = take_unit(counter)
    while unit < n_units:
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            row = rows[i] if rows.shape[0] > 0 else i
            if i + _AHEAD < rows.shape[0]:
                prefetch_row(table, rows[i + _AHEAD])
            for j in range(width):
                table[row, j] += weight * values[i, j]
        unit = take_unit(counter)


@njit(nogil=True, cache=True)
def _column_sums(values):
    totals = np.zeros(values.shape[1])
    for i in range(values.shape[0]):
        for j in range(values.shape[1]):
            totals[j] += values[i, j]
    return totals


@njit(nogil=True, cache=True)
def _take_ragged(values, begins, offsets, out):
    for n in range(begins.shape[0]):
        if n + _AHEAD < begins.shape[0]:
            prefetch(values, begins[n + _AHEAD])
            prefetch(values, begins[n + _AHEAD] + 64 // values.itemsize)
        length = offsets[n + 1] - offsets[n]
        copy_run(values, begins[n], out, offsets[n], length)
