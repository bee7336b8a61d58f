"""Compiled work on tables with one row per symbol, touching only the symbols of a batch.

The cost of every function here grows with the steps of the batch and the states, never with the
number of symbols in the table.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sojourn.kernels.cpu.inner import loops
from sojourn.kernels.cpu.lanes import copy_run
from sojourn.kernels.cpu.rows import add_row, add_scaled_row, potential_row
from sojourn.kernels.cpu.tables import symbol_tables
from sojourn.kernels.interface import (
    CountRows,
    Floats,
    Integers,
    Potentials,
    aligned,
    padded_states,
)
from sojourn.kernels.threads import (
    prefetch,
    prefetch_row,
    prefetch_row_to_write,
    run_units,
    take_unit,
)

_MANY_A_ROW = 1024  # steps per symbol from which four are added at a time
LONG_SUM = 64  # steps per symbol from which sums are in double precision
AHEAD = 16  # rows between asking for one and using it
_SYMBOLS_AHEAD = 32  # the same of slots: numbering 22,000 symbols within `fit` takes 23 µs, not 33
_WORTH_A_THREAD = 2**16  # numbers to compute before another thread pays for its start
WORTH_MOVING = 2**17  # the same where there is little more to do than to read and to write them
_MOST_NUMBERS = 2**31 - 1  # given to symbols before slots are cleared
EVERY_ROW = np.empty(0, np.int32)  # of a table, in place of the numbers of some
_PARTS = 8  # of long sums over rows, whatever the number of threads


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
    present = np.empty(len(symbols) + 1, np.int32)
    index = np.empty(len(symbols), np.int32)
    slots = _slots.of(n_symbols, len(symbols))
    n_present = _distinct(symbols, slots, _slots.first, present, index)
    _slots.first += n_present
    return present[:n_present], index


class _Slots(threading.local):
    """Numbers that this thread has given to symbols.

    Those of every batch begin with `first`, which grows: what batches before have left in the slots
    is less, and need not be cleared.
    """

    def __init__(self) -> None:
        self.first = 0
        self._slots = np.empty(0, np.int32)

    def of(self, n_symbols: int, n_steps: int) -> NDArray[np.int32]:
        """Return a slot for every symbol; what they have given out before is less than `first`."""
        if len(self._slots) < n_symbols or self.first + n_steps >= _MOST_NUMBERS:
            self._slots = np.full(max(n_symbols, len(self._slots)), -1, np.int32)
            self.first = 0
        return self._slots


_slots = _Slots()


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


def count_rows(
    table: Floats, scale: float, rows: Integers | None, prior: Floats, totals: Floats
) -> CountRows:
    """Return potentials ``(prior + scale * table[rows]) / totals``, not computed yet, eq (2).

    Arguments are those of `predictive_rows`.
    """
    factor = np.zeros(table.shape[1], table.dtype)
    factor[: len(totals)] = 1.0 / totals
    chosen = EVERY_ROW if rows is None else rows
    return CountRows(table, chosen, np.ascontiguousarray(prior, dtype=table.dtype), scale, factor)


def with_table(potentials: Potentials, *, n_threads: int) -> Potentials:
    """Return potentials with the table of emissions, computed where it was not."""
    counts: Any = potentials.emissions
    if not isinstance(counts, CountRows):
        return potentials
    table = _computed(counts, len(potentials.start), collapsed=True, n_threads=n_threads)
    return potentials._replace(emissions=table)


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
    divisors = totals if collapsed else _exp_digamma_array(totals)
    counts = count_rows(table, scale, rows, prior, divisors)
    return _computed(counts, len(totals), collapsed=collapsed, n_threads=n_threads)


def _computed(counts: CountRows, n_states: int, *, collapsed: bool, n_threads: int) -> Floats:
    table = counts.table
    n_rows = len(counts.rows) or len(table)
    out = aligned((n_rows, table.shape[1]), table.dtype)
    n_units = units_for(out.size, n_threads, WORTH_MOVING if collapsed else _WORTH_A_THREAD)
    run_units(
        _predictive_rows,
        n_units,
        n_threads,
        table,
        table.dtype.type(counts.scale),
        counts.rows,
        counts.prior,
        counts.factor,
        n_states,
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
    n_parts = max(1, min(_PARTS, steps_a_row // 16))
    # Long sums in single precision are biased; where there are many sums they are short.
    dtype = np.float64 if steps_a_row >= LONG_SUM else values.dtype
    n_streams = 4 if steps_a_row >= _MANY_A_ROW else 1
    parts = aligned((n_parts * n_streams * n_rows, padded.shape[1]), dtype, zeros=True)
    n_threads = units_for(padded.size, n_threads)
    run_units(_sum_by_row, n_parts, n_threads, index, padded, n_streams, parts)
    total = parts if len(parts) == n_rows else parts.reshape(-1, n_rows, parts.shape[1]).sum(axis=0)
    return total[:, : values.shape[1]].astype(values.dtype, copy=False)


def add_rows(
    table: Floats,
    rows: Integers | None,
    values: Floats,
    weight: float,
    *,
    n_threads: int = 1,
) -> Floats:
    """``table[rows] += weight * values`` in place; `rows` are distinct, None means all.

    `values` have the columns of the table, or fewer: a cut of trailing padding is undone.  Returns
    ``values.sum(axis=0)`` in double precision, in parts that depend on the sizes only.
    """
    if not _has_rows(table):
        table[slice(None) if rows is None else rows] += weight * values
        return values.sum(axis=0, dtype=np.float64)
    table, padded = _full_rows(table), _full_rows(values)
    totals = room_for_totals(*padded.shape)
    run_units(
        _add_rows,
        len(totals),
        n_threads,
        table,
        EVERY_ROW if rows is None else rows,
        padded,
        table.dtype.type(weight),
        totals,
    )
    return totals.sum(axis=0)[: values.shape[1]]


def room_for_totals(n_rows: int, width: int) -> Floats:
    """Return zeros for the sums over rows, of as many parts as `add_rows` is cut into."""
    n_parts = max(1, min(_PARTS, n_rows * width // WORTH_MOVING))
    # Cores do not share the lines of their totals.
    return aligned((n_parts, padded_states(width)), np.float64, zeros=True)


def expected_tables(table: Floats, scale: float, prior: float, *, n_threads: int) -> Floats:
    """Expected tables of every row of a scaled table of counts, eq (17), shape (S,).

    With ``n = scale * table``, ``c = n**2 / n.sum(axis=1)`` and ``p = 1 - exp(-c)``, equals the sum
    over columns of
    ``prior * (p * (digamma(prior + c / p) - digamma(prior)) + log1p((n - c) / (prior + c)))``,
    except for cells below 0.001 with less than 1/10,000 of their row, which are negligible.
    Columns beyond the states are zero.
    """
    rows = np.empty(len(table))
    run_units(
        symbol_tables,
        units_for(table.size, n_threads),
        n_threads,
        _full_rows(table),
        float(scale),
        float(prior),
        rows,
    )
    return rows


def units_for(size: int, n_threads: int, worth_a_thread: int = _WORTH_A_THREAD) -> int:
    """Return on how many threads so many numbers are computed, or moved."""
    return max(1, min(n_threads, size // worth_a_thread))


def take_ragged(values: NDArray[np.generic], begins: Integers, offsets: Integers) -> Any:
    """Gather runs of `values`: run n begins at ``begins[n]`` and goes to ``offsets[n]:``."""
    out = np.empty((offsets[-1], *values.shape[1:]), values.dtype)
    _take_ragged(values, begins, offsets, out)
    return out


def _has_rows(values: Floats) -> bool:
    """Whether rows are contiguous, and at equal distances."""
    return values.strides[1] == values.itemsize and values.strides[0] % values.itemsize == 0


def _full_rows(values: Floats) -> Floats:
    """Undo a cut of trailing columns: compiled code is quickest on whole, contiguous rows."""
    if values.flags.c_contiguous:
        return values
    if not _has_rows(values):
        return np.ascontiguousarray(values)
    width = max(values.strides[0] // values.itemsize, values.shape[1])
    base = values.base
    if isinstance(base, np.ndarray) and base.flags.c_contiguous:  # much faster than `as_strided`
        begin, base_begin = (x.__array_interface__["data"][0] for x in (values, base))
        return np.ndarray((len(values), width), values.dtype, base, begin - base_begin)
    # Not read-only, which would be a type of its own and compiled again: nobody writes to it.
    return np.lib.stride_tricks.as_strided(
        values, (len(values), width), (width * values.itemsize, values.itemsize)
    )


@loops
def _distinct(symbols, slots, first, present, index):
    """Number the symbols: a slot has `first` and more for those that have been seen."""
    # Selections in place of branches: whether a symbol is new cannot be predicted.
    n_present = 0
    for t in range(symbols.shape[0]):
        symbol = symbols[t]
        if t + _SYMBOLS_AHEAD < symbols.shape[0]:
            prefetch(slots, symbols[t + _SYMBOLS_AHEAD])
        place = np.int64(slots[symbol]) - first
        is_new = place < 0
        place = n_present if is_new else place
        slots[symbol] = first + place
        present[n_present] = symbol  # where it is not new, one that is will take its place
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
def _digamma_tail(x):
    """ψ(x) − log x for large x."""
    inverse = 1.0 / x
    square = inverse * inverse
    series = 1.0 / 240.0 - square / 132.0
    series = 1.0 / 252.0 - square * series
    series = 1.0 / 120.0 - square * series
    series = 1.0 / 12.0 - square * series
    return -0.5 * inverse - square * series


@loops
def _exp_digamma_array(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out.flat[i] = _exp_digamma(x.flat[i])
    return out


@loops
def _predictive_rows(counter, n_units, table, scale, rows, prior, factor, n_states, collapsed, out):
    n_rows, width = out.shape
    unit = take_unit(counter)
    while unit < n_units:
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            row = rows[i] if rows.shape[0] > 0 else i
            if i + AHEAD < rows.shape[0]:
                prefetch_row(table, rows[i + AHEAD])
            p = i if prior.shape[0] > 1 else 0
            if collapsed and prior.shape[1] == 1:
                potential_row(out, i, table, row, prior[p, 0], scale, factor, width)
                continue
            for j in range(n_states):
                out[i, j] = prior[p, j if prior.shape[1] > 1 else 0] + scale * table[row, j]
            if not collapsed:
                for j in range(n_states):
                    out[i, j] = _exp_digamma(np.float64(out[i, j]))
            for j in range(n_states):
                out[i, j] *= factor[j]
            for j in range(n_states, width):
                out[i, j] = 0.0
        unit = take_unit(counter)


@loops
def _sum_by_row(counter, n_units, index, values, n_streams, parts):
    n_steps = index.shape[0]
    n_rows, width = parts.shape[0] // (n_units * n_streams), values.shape[1]
    unit = take_unit(counter)
    while unit < n_units:
        first = n_streams * unit * n_rows
        begin, end = n_steps * unit // n_units, n_steps * (unit + 1) // n_units
        if n_streams == 4:
            # A sum waits for the one before it: steps that are far apart go to other sums.
            run = (end - begin) // 4
            for t in range(begin, begin + run):
                add_row(parts, first + index[t], values, t, width)
                add_row(parts, first + n_rows + index[t + run], values, t + run, width)
                at = t + 2 * run
                add_row(parts, first + 2 * n_rows + index[at], values, at, width)
                at += run
                add_row(parts, first + 3 * n_rows + index[at], values, at, width)
            begin += 4 * run
        for t in range(begin, end):
            if t + AHEAD < end:
                prefetch_row_to_write(parts, first + index[t + AHEAD])
            add_row(parts, first + index[t], values, t, width)
        unit = take_unit(counter)


@loops
def _add_rows(counter, n_units, table, rows, values, weight, totals):
    n_rows = values.shape[0]
    width = min(table.shape[1], values.shape[1])
    unit = take_unit(counter)
    while unit < n_units:
        own = totals[unit]
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            row = rows[i] if rows.shape[0] > 0 else i
            if i + AHEAD < rows.shape[0]:
                prefetch_row_to_write(table, rows[i + AHEAD])
            add_scaled_row(table, row, values, i, weight, own, width)
        unit = take_unit(counter)


@loops
def _take_ragged(values, begins, offsets, out):
    for n in range(begins.shape[0]):
        if n + AHEAD < begins.shape[0]:
            prefetch(values, begins[n + AHEAD])
            prefetch(values, begins[n + AHEAD] + 64 // values.itemsize)
        length = offsets[n + 1] - offsets[n]
        copy_run(values, begins[n], out, offsets[n], length)
