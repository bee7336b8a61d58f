"""Compiled products of emission potentials and the masks of labelled steps."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sojourn.kernels.cpu.lanes import multiply_pad
from sojourn.kernels.interface import PAD, Floats, Integers
from sojourn.kernels.threads import run_units, take_unit

_STEPS_PER_UNIT = 4096
_SMALL = {4: 1e-25, 8: 1e-200}  # a potential below has lost its last digits, by its bytes


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


def mask_all_pairs(
    table: Floats, index: Integers, masks: Floats, codes: Integers
) -> tuple[Floats, NDArray[np.int32], Integers]:
    """Multiply all rows of a table by all masks.

    Returns
    -------
    products : (M * U, K) array
        Mask by mask, so that rows of steps without a label stay together.
    numbers : (T,) int32 array
        The product of each step's row and mask.
    lost : integer array
        The products that are all but zero.

    Examples
    --------
    >>> table, masks = np.array([[0.5, 0.2], [0.4, 0.6]]), np.array([[1.0, 1.0], [0.0, 1.0]])
    >>> products, numbers, _ = mask_all_pairs(table, np.array([0, 1]), masks, np.array([0, 1]))
    >>> products[numbers]
    array([[0.5, 0.2],
           [0. , 0.6]])
    """
    products = np.empty((len(masks) * len(table), table.shape[1]), table.dtype)
    numbers, small = np.empty(len(codes), np.int32), np.empty(len(products), np.bool_)
    _mask_all_pairs(
        np.ascontiguousarray(table),
        np.asarray(index, np.int32),
        masks,
        np.asarray(codes, np.int32),
        _SMALL[table.itemsize],
        products,
        numbers,
        small,
    )
    return products, numbers, np.flatnonzero(small)


@njit(nogil=True, cache=True, fastmath={"nnan", "nsz", "reassoc"})
def _mask_all_pairs(table, index, masks, codes, least, products, numbers, small):
    n_rows, n_states = table.shape[0], masks.shape[1]
    mask = np.zeros(table.shape[1], table.dtype)
    for code in range(masks.shape[0]):
        for k in range(n_states):
            mask[k] = masks[code, k]
        for row in range(n_rows):
            total = table.dtype.type(0.0)
            for k in range(table.shape[1]):
                value = table[row, k] * mask[k]
                products[code * n_rows + row, k] = value
                total += value
            small[code * n_rows + row] = total < least
    for t in range(index.shape[0]):
        numbers[t] = np.int32(codes[t] * n_rows + index[t])


def count_labels(
    rows: Integers, labels: Integers, offsets: Integers, n_labels: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Count the labels of first steps, and which label comes after which.

    Returns
    -------
    found : (T,) int64 array
        ``labels[rows]``.
    start, pairs : (L,) and (L, L) int64 arrays

    Examples
    --------
    >>> count_labels(np.array([1, 1, 0]), np.array([0, 2]), np.array([0, 2, 3]), 3)
    (array([2, 2, 0]), array([1, 0, 1]), array([[0, 0, 0],
           [0, 0, 0],
           [0, 0, 1]]))
    """
    found = np.empty(len(rows), np.int64)
    start, pairs = np.zeros(n_labels, np.int64), np.zeros((n_labels, n_labels), np.int64)
    _count_labels(
        np.asarray(rows, np.int32), np.asarray(labels, np.int64), offsets, found, start, pairs
    )
    return found, start, pairs


@njit(nogil=True, cache=True)
def _count_labels(rows, labels, offsets, found, start, pairs):
    for n in range(offsets.shape[0] - 1):
        before = -1
        for t in range(offsets[n], offsets[n + 1]):
            label = labels[rows[t]]
            found[t] = label
            if before < 0:
                start[label] += 1
            else:
                pairs[before, label] += 1
            before = label


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
    factors = 0.5 + np.arange(1, 1 + weights.shape[1]) * 0.6180339887498949 % 1.0
    n_kinds, outside, empty = _distinct_masks(weights, factors, slots, numbers, firsts)
    if n_kinds < 0:
        return np.arange(n_rows, dtype=np.int32), np.arange(n_rows), outside, empty
    return numbers, firsts[:n_kinds].copy(), outside, empty


@njit(nogil=True, cache=True, fastmath={"reassoc", "nsz"})
def _distinct_masks(weights, factors, slots, numbers, firsts):
    """Number rows by a hash table with open addressing; look at all of them for what is wrong."""
    n_rows, n_states = weights.shape
    last = slots.shape[0] - 1
    n_kinds, outside, empty = 0, -1, -1
    for t in range(n_rows):
        inside, total, number = 0, 0.0, 0.0
        for k in range(n_states):
            weight = weights[t, k]
            inside += (weight >= 0.0) & (weight <= 1.0)
            total += weight
            number += factors[k] * weight
        if outside < 0 and inside < n_states:
            outside = t
        if empty < 0 and total == 0.0:
            empty = t
        if n_kinds < 0 or outside >= 0:
            continue
        same = t > 0
        if same:  # what is known often lasts
            for k in range(n_states):
                same &= weights[t, k] == weights[t - 1, k]
            if same:
                numbers[t] = numbers[t - 1]
                continue
        slot = np.int64(number / n_states * 1.6069380442589903e15) & last  # of the last digits
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
    """Multiply row t of a table by ``masks[codes[t]]``; return the rows that are all but zero.

    Columns of the table beyond those of the masks are padding.
    """
    small = np.zeros(len(codes), np.bool_)
    n_units = max(1, min(64, len(codes) // _STEPS_PER_UNIT))
    n_states = masks.shape[1]
    factors = np.ones((len(masks), -(-n_states // PAD) * PAD), table.dtype)
    factors[:, :n_states] = masks
    run_units(
        _mask_in_place,
        n_units,
        n_threads,
        table.reshape(-1),
        table.shape[1],
        n_states,
        factors,
        (factors == 1.0).all(axis=1),
        np.asarray(codes, np.int32),
        table.dtype.type(_SMALL[table.itemsize]),
        small,
    )
    return np.flatnonzero(small)


@njit(nogil=True, cache=True)
def _mask_in_place(
    counter, n_units, table, row_width, n_states, masks, plain, codes, least, small
):  # fmt: skip
    """Multiply in vectors; where the last one reaches into the next row, that is times one."""
    n_rows, width = codes.shape[0], masks.shape[1]
    factors = masks.reshape(masks.size)
    last = width - PAD
    own = (1 << (n_states - last)) - 1  # lanes of the last vector that belong to the row
    unit = take_unit(counter)
    while unit < n_units:
        begin, end = n_rows * unit // n_units, n_rows * (unit + 1) // n_units
        # What comes after the last rows is another thread's, or nothing: they go one by one.
        fits = max(begin, end + 1 + -width // row_width)
        for t in range(begin, fits):
            code = codes[t]
            if plain[code]:
                continue
            at, mask = t * row_width, code * width
            found = multiply_pad(table, at + last, factors, mask + last, least) & own
            for k in range(0, last, PAD):
                found |= multiply_pad(table, at + k, factors, mask + k, least)
            small[t] = found == 0
        for t in range(fits, end):
            if plain[codes[t]]:
                continue
            at, most = t * row_width, table.dtype.type(0.0)
            for k in range(n_states):
                table[at + k] *= masks[codes[t], k]
                most = max(most, table[at + k])
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
