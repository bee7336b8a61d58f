"""Compiled products of emission potentials and the masks of labelled steps."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sojourn.kernels.interface import Floats, Integers
from sojourn.kernels.threads import run_units, take_unit

_STEPS_PER_UNIT = 4096


def number_pairs(
    index: Integers, codes: Integers, n_rows: int, n_codes: int
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Number the pairs of a row and a code that occur, in the order in which they do.

    Returns
    -------
    numbers : (T,) int32 array
        The number of each step's pair.
    firsts : (P,) int64 array
        The first step of each pair.

    Examples
    --------
    >>> number_pairs(np.array([3, 3, 1, 3]), np.array([0, 1, 0, 1]), 4, 2)
    (array([0, 1, 2, 1], dtype=int32), array([0, 1, 2]))
    """
    known = np.full(n_rows * n_codes, -1, np.int32)
    numbers = np.empty(len(index), np.int32)
    firsts = np.empty(min(len(index), len(known)), np.int64)
    n_pairs = _number_pairs(
        np.asarray(index, np.int32), np.asarray(codes, np.int32), n_codes, known, numbers, firsts
    )
    return numbers, firsts[:n_pairs].copy()


@njit(nogil=True, cache=True)
def _number_pairs(index, codes, n_codes, known, numbers, firsts):
    n_pairs = 0
    for t in range(index.shape[0]):
        key = np.int64(index[t]) * n_codes + codes[t]
        if known[key] < 0:
            known[key] = n_pairs
            firsts[n_pairs] = t
            n_pairs += 1
        numbers[t] = known[key]
    return n_pairs


def mask_rows(
    table: Floats, rows: Integers, masks: Floats, codes: Integers, *, n_threads: int
) -> tuple[Floats, Floats]:
    """Return ``table[rows] * masks[codes]``, and the largest number of each row.

    Columns of the table beyond those of the masks are padding.
    """
    out = np.empty((len(rows), table.shape[1]), table.dtype)
    largest = np.empty(len(rows), table.dtype)
    n_units = max(1, min(64, len(rows) // _STEPS_PER_UNIT))
    run_units(
        _mask_rows,
        n_units,
        n_threads,
        np.ascontiguousarray(table),
        np.asarray(rows, np.int32),
        masks.astype(table.dtype),
        np.asarray(codes, np.int32),
        out,
        largest,
    )
    return out, largest


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _mask_rows(counter, n_units, table, rows, masks, codes, out, largest):
    n_rows, n_states, width = rows.shape[0], masks.shape[1], table.shape[1]
    unit = take_unit(counter)
    while unit < n_units:
        for t in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            at, code = rows[t], codes[t]
            most = table.dtype.type(0.0)
            for k in range(n_states):
                value = table[at, k] * masks[code, k]
                out[t, k] = value
                most = max(most, value)
            for k in range(n_states, width):
                out[t, k] = 0.0
            largest[t] = most
        unit = take_unit(counter)


def distinct_masks(
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.int32], NDArray[np.int64], int, int]:
    """Number the distinct rows of weights in [0, 1], in the order in which they occur.

    Returns
    -------
    numbers : (T,) int32 array
    firsts : (M,) int64 array
        The first row of each kind; all rows if more than half of them differ.
    outside, empty : int
        The first row with a weight outside of [0, 1], and the first without any; −1 for none.

    Examples
    --------
    >>> distinct_masks(np.array([[1.0, 0.0], [0.5, 1.0], [1.0, 0.0], [1.0, 0.0]]))
    (array([0, 1, 0, 0], dtype=int32), array([0, 1]), -1, -1)
    """
    n_rows = len(weights)
    slots = np.full(2 ** max(4, int(n_rows).bit_length()), -1, np.int32)
    numbers, firsts = np.empty(n_rows, np.int32), np.empty(n_rows // 2 + 1, np.int64)
    n_kinds, outside, empty = _distinct_masks(weights, slots, numbers, firsts)
    if n_kinds < 0:
        return np.arange(n_rows, dtype=np.int32), np.arange(n_rows), outside, empty
    return numbers, firsts[:n_kinds].copy(), outside, empty


@njit(nogil=True, cache=True)
def _distinct_masks(weights, slots, numbers, firsts):
    """Number rows by a hash table with open addressing; look at all of them for what is wrong."""
    n_rows, n_states = weights.shape
    last = slots.shape[0] - 1
    n_kinds, outside, empty = 0, -1, -1
    for t in range(n_rows):
        some, wrong = False, False
        number = 0.0
        for k in range(n_states):
            weight = weights[t, k]
            wrong |= not 0.0 <= weight <= 1.0
            some |= weight > 0.0
            number = 0.7548776662466927 * number + weight  # below 5: the digits are mixed below
        if outside < 0 and wrong:
            outside = t
        if empty < 0 and not some:
            empty = t
        if n_kinds < 0 or outside >= 0:
            continue
        slot = np.int64(number * 1.6069380442589903e15) & last
        slot = (slot ^ (slot >> 7)) & last
        while True:
            kind = slots[slot]
            if kind < 0:
                if n_kinds == firsts.shape[0]:
                    n_kinds = -1
                    break
                slots[slot], firsts[n_kinds], numbers[t] = n_kinds, t, n_kinds
                n_kinds += 1
                break
            same, first = True, firsts[kind]
            for k in range(n_states):
                same &= weights[t, k] == weights[first, k]
            if same:
                numbers[t] = kind
                break
            slot = (slot + 1) & last
    return n_kinds, outside, empty


def mask_in_place(table: Floats, masks: Floats, codes: Integers, *, n_threads: int) -> Integers:
    """Multiply row t of a table by ``masks[codes[t]]``; return the rows that are all but zero."""
    small = np.zeros(len(codes), np.bool_)
    least = 1e-25 if table.dtype == np.float32 else 1e-200
    n_units = max(1, min(64, len(codes) // _STEPS_PER_UNIT))
    run_units(
        _mask_in_place,
        n_units,
        n_threads,
        table,
        masks.astype(table.dtype),
        (masks == 1.0).all(axis=1),
        np.asarray(codes, np.int32),
        table.dtype.type(least),
        small,
    )
    return np.flatnonzero(small)


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _mask_in_place(counter, n_units, table, masks, plain, codes, least, small):
    n_rows, n_states = codes.shape[0], masks.shape[1]
    unit = take_unit(counter)
    while unit < n_units:
        for t in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            code = codes[t]
            if plain[code]:
                continue
            most = table.dtype.type(0.0)
            for k in range(n_states):
                value = table[t, k] * masks[code, k]
                table[t, k] = value
                most = max(most, value)
            small[t] = most < least
        unit = take_unit(counter)


def without_path(
    offsets: Integers,
    codes: Integers,
    masks: Floats,
    begins: NDArray[np.bool_],
    start: NDArray[np.bool_],
    follows: NDArray[np.bool_],
) -> tuple[int, int] | None:
    """Find the first sequence without a path through states that its masks allow.

    Parameters
    ----------
    offsets : (N + 1,) integer array
    codes : (T,) integer array
        Row of the masks for each step.
    masks : (M, K) array
        Weights of states, 0 for those that are not possible.
    begins : (N,) boolean array
        Whether a sequence begins with its first step; otherwise it may begin in any state.
    start, follows : (K,) and (K, K) boolean arrays
        The states in which a sequence may begin, and which may follow which.

    Returns
    -------
    tuple of int or None
        The sequence, and the first step that cannot be reached, from its beginning.

    Examples
    --------
    >>> masks, one = np.array([[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]]), np.ones(1, bool)
    >>> onward = np.array([[True, True], [False, True]])
    >>> without_path(np.array([0, 3]), np.array([2, 0, 1]), masks, one, np.ones(2, bool), onward)
    (0, 2)
    """
    found = _without_path(
        np.asarray(offsets, np.int64),
        np.asarray(codes, np.int32),
        np.ascontiguousarray(masks > 0.0),
        np.ascontiguousarray(begins),
        np.ascontiguousarray(start),
        np.ascontiguousarray(follows),
    )
    return None if found[0] < 0 else found


@njit(nogil=True, cache=True)
def _without_path(offsets, codes, possible, begins, start, follows):
    n_states = start.shape[0]
    now, after = np.ones(n_states, np.bool_), np.ones(n_states, np.bool_)
    for n in range(offsets.shape[0] - 1):
        for t in range(offsets[n], offsets[n + 1]):
            if t == offsets[n]:
                for k in range(n_states):
                    after[k] = start[k] or not begins[n]
            else:
                after[:] = False
                for j in range(n_states):
                    if now[j]:
                        for k in range(n_states):
                            after[k] |= follows[j, k]
            is_reached = False
            for k in range(n_states):
                after[k] &= possible[codes[t], k]
                is_reached |= after[k]
            if not is_reached:
                return n, t - offsets[n]
            now, after = after, now
    return -1, -1
