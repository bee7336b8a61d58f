"""Compiled log densities of Gaussian kind: vectors of `LANES` steps, one state after another.

The NumPy forms in `sojourn.families` say what is computed, and tests hold these to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.cpu.inner import inner, loops, outer
from sojourn.kernels.cpu.lane_math import (
    SMALL,
    every,
    every_like,
    exponential,
    largest,
    log_one_plus,
    log_one_plus_small,
    subtract,
)
from sojourn.kernels.cpu.lanes import (
    LANES,
    ZIPPED,
    add,
    choose,
    get,
    lanes_not_above,
    least,
    load,
    multiply,
    multiply_add,
    narrowed,
    put,
    splat,
    store,
    transpose,
    unzip_rows,
    widened,
    zeros_of,
    zip_rows,
)
from sojourn.kernels.cpu.room import empty
from sojourn.kernels.cpu.rows import lowest_bit
from sojourn.kernels.cpu.single import LEVERAGE, LOG_2, SingleWeights, single_rows
from sojourn.kernels.interface import Floats, row_width
from sojourn.kernels.threads import run_units, take_unit

_STEPS_PER_UNIT = 1024
_MOST_DOUBTFUL = 8  # times that a unit computes steps twice, before all are in double precision
_FEW = 5  # columns from which those of `LANES` steps are transposed as a square
_TOGETHER = 4 * LANES  # steps that are computed together in single precision
_NONE = np.empty(0, np.float32)
_NO_WEIGHTS = SingleWeights(_NONE, _NONE, _NONE, _NONE, 0.0, np.empty(0))
_GROUP = 8  # factors that are multiplied before a logarithm is taken
_LARGEST = 1e37  # squared distance at which a factor is cut off, so that the product is finite
_FEW_WEIGHTS = 2**15  # to copy them takes 10 μs
_FEWEST_ZIPPED, _MOST_ZIPPED = ZIPPED[0], ZIPPED[-1]
_SQUARE = 5  # states from which the rows of `LANES` steps are transposed as a square
_GROUPS = 8  # vectors of steps whose products are summed at a time


def student_rows(
    x: Floats,
    location: Floats,
    weights: Floats,
    spans: NDArray[np.int64],
    factors: Floats,
    shares: Floats,
    powers: Floats,
    constants: Floats,
    dtype: Any,
    *,
    collapsed: bool,
    n_threads: int,
    single: SingleWeights | None = None,
) -> tuple[Floats, Floats, int]:
    """Compute ``exp(rows - rows.max(1))`` and ``rows.max(1)`` for rows of a Gaussian kind.

    With ``z = (1, x - location)`` and
    ``q[t, g, k] = sum over e of group g of (z[t] @ weights[:, e, k]) ** 2``, rows are
    ``constants - powers * sum over g of log1p(factors * q)`` (collapsed) or
    ``constants - powers * sum over g of factors * q``.  Where the last group begins with a leverage
    u, ``factors * q`` of its first coordinates, ``shares * log1p(u)`` is part of the collapsed sum.

    Parameters
    ----------
    x : (T, side - 1) float64 array
    location : (side - 1,) array
    weights : (side, E, K) array
    spans : (E, 3) integer array
        First and last row of ``weights[:, e]`` beyond row 0 that are not all zero (the last is
        exclusive), and one if a group ends with e, two if the leverage does, otherwise zero.
    factors, shares, powers, constants : (K,) arrays
    single : SingleWeights, optional
        The same for single precision, which is used where it is enough.

    Returns
    -------
    table : (T, K) array, or padded: see `row_width`
    log_scale : (T,) array
    n_missing : int
        Number of steps with a NaN, or more: their rows are ones, and their scale is one.
    """
    n_states, n_steps = weights.shape[2], len(x)
    if n_steps < LANES:
        x = np.resize(x, (LANES, x.shape[1]))
    width = row_width(n_states)
    table = (np.empty if width == n_states else np.zeros)((len(x), width), dtype)
    log_scale = np.empty(len(x))
    enough, (*narrow, offset, _) = False, single or _NO_WEIGHTS
    if table.itemsize == 4 and single is not None:
        enough = single.are_enough_for(x, location)
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
        np.ascontiguousarray(shares, dtype=np.float64),
        np.ascontiguousarray(powers, dtype=np.float64),
        np.ascontiguousarray(constants, dtype=np.float64),
        # None: the compiler leaves out what is for single precision.
        tuple(narrow) if table.itemsize == 4 else None,
        offset,
        enough,
        collapsed,
        table,
        log_scale,
        missing,
    )
    return table[:n_steps], log_scale[:n_steps], int(missing.sum())


@outer
def _student_rows(
    counter,
    n_units,
    x,
    location,
    weights,
    spans,
    factors,
    shares,
    powers,
    constants,
    single,
    offset,
    enough,
    collapsed,
    table,
    log_scale,
    missing,
):
    n_steps, n_states = table.shape[0], constants.shape[0]
    n_columns = location.shape[0]
    z, rows = empty(np.float64, (n_columns + 1) * LANES), empty(np.float64, n_states * LANES)
    # Arrays are filled by loops: zeros, ranges and the like take long to compile.
    potentials = empty(table.dtype, max(n_states, LANES) * LANES)
    for j in range(potentials.shape[0]):
        potentials[j] = 0.0
    packed = empty(table.dtype, (n_states + 1) * LANES)
    gaps, places = empty(np.int64, _TOGETHER // LANES), empty(np.int64, 2 * LANES)
    for i in range(LANES):
        places[i], places[LANES + i] = LANES * i, n_columns * i
    locations, run = (
        empty(np.float64, n_columns * LANES),
        empty(np.float32, (n_columns + 1) * LANES),
    )
    for j in range(run.shape[0]):
        run[j] = 0.0
    for j in range(locations.shape[0]):
        locations[j] = location[j % n_columns]
    narrow = empty(np.float32, n_states * _TOGETHER)
    y, tops = empty(np.float32, (n_columns + LANES) * _TOGETHER), empty(np.float32, _TOGETHER)
    lowest, none = every(-np.inf), np.int64(0)
    stride, beside = np.int64(_TOGETHER), np.int64(LANES)
    log_2, shift, next_two = every(LOG_2), every(offset), np.int64(2 * LANES)
    unit = take_unit(counter)
    while unit < n_units:
        begin, end = n_steps * unit // n_units, n_steps * (unit + 1) // n_units
        n_doubtful = 0
        for first in range(begin, end, _TOGETHER):
            doubtful, gap = -1, 0
            if single is not None and enough and n_doubtful < _MOST_DOUBTFUL:
                for at in range(0, _TOGETHER, LANES):
                    t = min(first + at, end - LANES)
                    bits = _narrow_columns(x, t, locations, places, run, y, at)
                    gaps[at // LANES] = bits
                    gap = min(gap, bits)
                doubtful = gap | single_rows(
                    y, none, stride, next_two, single, spans, collapsed, narrow, none, stride,
                    next_two, tops, none,
                )  # fmt: skip
                n_doubtful += doubtful != 0
            for at in range(0, min(_TOGETHER, end - first), LANES):
                # The last vector may repeat steps of the one before it.
                t = min(first + at, end - LANES)
                if single is not None and doubtful == 0:
                    bits = gaps[at // LANES]
                    _store_rows(narrow, at, stride, packed, places, n_states, table, t)
                    store(log_scale, t, multiply_add(widened(load(tops, at)), log_2, shift))
                else:
                    bits = lanes_not_above(_columns(x, t, location, z), lowest)
                    double_rows(
                        z, weights, spans, factors, shares, powers, constants, collapsed, rows,
                        potentials, log_scale, t,
                    )  # fmt: skip
                    _store_rows(potentials, none, beside, packed, places, n_states, table, t)
                while bits != 0:
                    i = lowest_bit(bits)
                    bits &= bits - 1
                    missing[unit] += 1
                    log_scale[t + i] = 0.0
                    for k in range(n_states):
                        table[t + i, k] = 1.0
        unit = take_unit(counter)


@inner
def double_rows(
    z, weights, spans, factors, shares, powers, constants, collapsed, rows, potentials, log_scale, t
):
    """Write potentials of `LANES` steps, relative to the largest, and its logarithm."""
    n_states, n_targets = constants.shape[0], spans.shape[0]
    side = weights.shape[0] // (n_states * n_targets)
    cut, small, zero = every(_LARGEST), every(SMALL), zeros_of(z)
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
                value = multiply_add(load(z, (i - 1) * LANES), splat(weights, at + i), value)
            square = multiply_add(value, value, square)
            if spans[e, 2] == 0:
                continue
            if not collapsed:
                total = multiply_add(factor, square, total)
                square = zero
                continue
            # (1 + a)(1 + b) − 1 = a + b + a b: many factors, and few logarithms.
            q = least(multiply(factor, square), cut)
            if spans[e, 2] == LEVERAGE:
                total = multiply_add(log_one_plus(q), splat(shares, k), total)
                continue
            product = multiply_add(product, q, add(product, q))
            square = zero
            n_factors += 1
            if n_factors == _GROUP:
                total = _add_log(total, product, small)
                product = zero
                n_factors = 0
        if n_factors > 0:
            total = _add_log(total, product, small)
        row = subtract(splat(constants, k), multiply(splat(powers, k), total))
        top = largest(row, top)
        store(rows, k * LANES, row)
    for k in range(n_states):
        row = exponential(subtract(load(rows, k * LANES), top), potentials)
        store(potentials, k * LANES, row)
    store(log_scale, t, top)


@inner
def _store_rows(source, at, stride, packed, places, n_states, table, t):
    """Write potentials of `LANES` steps to their rows; those of state k are `stride` k further."""
    width = table.shape[1]
    if n_states == width and _FEWEST_ZIPPED <= n_states <= _MOST_ZIPPED:
        zip_rows(source, at, stride, n_states, table, t * width)
    elif _SQUARE <= n_states <= LANES:
        # Rows overlap: what is beyond one is overwritten by the next.
        none = np.int64(0)
        for k in range(LANES):
            places[k] = at + min(k, n_states - 1) * stride
        transpose(source, places, none, none, packed, none, width)
        for at in range(0, n_states * LANES, LANES):
            store(table, t * width + at, load(packed, at))
    else:
        for k in range(n_states):
            for i in range(LANES):
                put(table, (t + i) * width + k, get(source, at + k * stride + i))


@inner
def _add_log(total, x, small):
    """Return ``total + log(1 + x)`` for x ≥ 0; with many data, x is small for almost all steps."""
    if lanes_not_above(small, x) == 0:
        return add(total, log_one_plus_small(x))
    return add(total, log_one_plus(x))


@inner
def _columns(x, t, location, z):
    """Write the columns of `LANES` steps, less the location; return their sum, to find a NaN."""
    n_columns = location.shape[0]
    known = zeros_of(z)
    for d in range(n_columns):
        if n_columns == 1:
            column = load(x, t)
        else:
            for i in range(LANES):
                put(z, d * LANES + i, get(x, (t + i) * n_columns + d))
            column = load(z, d * LANES)
        column = subtract(column, splat(location, d))
        store(z, d * LANES, column)
        known = add(known, column)
    return known


@inner
def _narrow_columns(x, t, locations, places, run, y, at):
    """Write the columns of `LANES` steps, less the location, in single precision.

    Missing steps are zeros there, and returned as bits; -1 if a number is too large.
    """
    n_numbers = locations.shape[0]
    n_columns = n_numbers // LANES
    begin, first, stride = t * n_columns, np.int64(LANES), np.int64(_TOGETHER)
    for j in range(0, n_numbers, LANES):
        row = narrowed(subtract(load(x, begin + j), load(locations, j)))
        if n_columns == 1:
            store(y, at, row)
        else:
            store(run, j, row)
    if 1 < n_columns < _FEW:
        for d in range(n_columns):
            for i in range(LANES):
                put(y, d * _TOGETHER + at + i, get(run, i * n_columns + d))
    elif n_columns > 1:
        for d in range(0, n_columns, LANES):
            transpose(run, places, first, np.int64(d), y, d * _TOGETHER + at, stride)
    known = load(y, at)
    for d in range(1, n_columns):
        known = add(known, load(y, d * _TOGETHER + at))
    bits = lanes_not_above(known, every_like(known, -np.inf))
    if bits != 0:
        for i in range(LANES):
            total = 0.0
            for d in range(n_columns):
                total += get(x, begin + i * n_columns + d)
            if bits >> i & 1 and total == total:
                return np.int64(-1)
        for d in range(n_columns):
            place = d * _TOGETHER + at
            store(y, place, choose(bits, zeros_of(y), load(y, place)))
    return bits


def sum_products(
    x: Floats, location: Floats, pairs: NDArray[np.int64], weights: Floats, *, n_threads: int
) -> tuple[Floats, int]:
    """Compute ``sum over t of z[t, i] * z[t, j] * weights[t]`` for every pair (i, j), (pairs, K).

    z is ``(1, x - location)``.  Steps with a NaN are left out; their number is returned too.

    The parts that are summed follow from the sizes alone, so that the number of threads does not
    change a bit.
    """
    n_states = weights.shape[1]
    n_units = max(1, min(16, len(x) // _STEPS_PER_UNIT))
    parts = np.zeros((n_units, len(pairs), n_states))
    missing = np.zeros(n_units, np.int64)
    n_steps = len(x)
    if n_steps < LANES:
        x = np.concatenate([x, np.zeros((LANES - n_steps, x.shape[1]))])
        weights = np.concatenate([weights, np.zeros_like(weights, shape=(LANES, n_states))])
    run_units(
        _sum_products,
        n_units,
        n_threads,
        n_steps,
        np.ascontiguousarray(x, dtype=np.float64),
        np.ascontiguousarray(location, dtype=np.float64),
        np.ascontiguousarray(pairs, dtype=np.int64),
        summed_weights(weights),
        parts,
        missing,
    )
    return parts.sum(axis=0), int(missing.sum())


def summed_weights(weights: Floats) -> Floats:
    """Return weights as sums take them: few are in double precision, whatever they were in.

    The sums are the same.  They are compiled for each precision, and a short fit, whose first
    weights are in double precision, then needs them once.

    Examples
    --------
    >>> summed_weights(np.ones((2, 2), np.float32)).dtype
    dtype('float64')
    """
    return np.ascontiguousarray(weights, np.float64 if weights.size <= _FEW_WEIGHTS else None)


@loops
def _sum_products(counter, n_units, n_steps, x, location, pairs, weights, parts, missing):
    n_pairs, n_states = parts.shape[1:]
    # Products of four pairs with two states are summed at a time: what is beyond is zero.
    n_rows, n_columns = -(-n_pairs // 4) * 4, -(-n_states // 2) * 2
    z = empty(np.float64, (location.shape[0] + 1) * LANES)
    products = empty(np.float64, n_rows * _GROUPS * LANES)
    shares = empty(np.float64, n_columns * _GROUPS * LANES)
    for j in range(products.shape[0]):
        products[j] = 0.0
    for j in range(shares.shape[0]):
        shares[j] = 0.0
    sums = empty(np.float64, n_rows * n_columns * LANES)
    lowest, zero = every(-np.inf), zeros_of(z)
    store(z, location.shape[0] * LANES, every(1.0))
    last, stride = location.shape[0], np.int64(LANES)
    unit = take_unit(counter)
    while unit < n_units:
        for j in range(sums.shape[0]):
            sums[j] = 0.0
        begin, end = n_steps * unit // n_units, n_steps * (unit + 1) // n_units
        group = 0
        for step in range(begin, end, LANES):
            t = max(0, min(step, end - LANES))
            bits = lanes_not_above(_columns(x, t, location, z), lowest)
            for d in range(last * min(bits, 1)):
                store(z, d * LANES, choose(bits, zero, load(z, d * LANES)))
            at = group * n_columns * LANES
            if _FEWEST_ZIPPED <= n_states <= _MOST_ZIPPED:
                unzip_rows(weights, t * n_states, n_states, shares, at, stride)
            else:
                for k in range(n_states):
                    for i in range(LANES):
                        share = np.float64(get(weights, (t + i) * n_states + k))
                        put(shares, at + k * LANES + i, share)
            # Missing steps, and those that the block before had already.
            skip = bits | ((1 << (step - t)) - 1)
            for k in range(at, at + n_states * LANES * min(skip, 1), LANES):
                store(shares, k, choose(skip, zero, load(shares, k)))
            for s in range(n_pairs):
                i, j = pairs[s, 0] - 1, pairs[s, 1] - 1
                left = load(z, (last if i < 0 else i) * LANES)
                right = load(z, (last if j < 0 else j) * LANES)
                store(products, (group * n_rows + s) * LANES, multiply(left, right))
            while bits != 0:
                missing[unit] += 1
                bits &= bits - 1
            group += 1
            if group == _GROUPS or step + LANES >= end:
                for s in range(0, n_rows, 4):
                    for k in range(0, n_columns, 2):
                        add_square(products, s, n_rows, shares, k, n_columns, group, sums)
                group = 0
        for s in range(n_pairs):
            for k in range(n_states):
                value = 0.0
                for i in range(LANES):
                    value += sums[(s * n_columns + k) * LANES + i]
                parts[unit, s, k] = value
        unit = take_unit(counter)


@inner
def add_square(left, s, n_left, right, k, n_right, n_groups, sums):
    """Add the products of four rows on the left with two on the right."""
    at = (s * n_right + k) * LANES
    down = n_right * LANES
    a, b = load(sums, at), load(sums, at + LANES)
    c, d = load(sums, at + down), load(sums, at + down + LANES)
    e, f = load(sums, at + 2 * down), load(sums, at + 2 * down + LANES)
    g, h = load(sums, at + 3 * down), load(sums, at + 3 * down + LANES)
    for group in range(n_groups):
        i, j = (group * n_left + s) * LANES, (group * n_right + k) * LANES
        x, y = load(right, j), load(right, j + LANES)
        w = load(left, i)
        a, b = multiply_add(w, x, a), multiply_add(w, y, b)
        w = load(left, i + LANES)
        c, d = multiply_add(w, x, c), multiply_add(w, y, d)
        w = load(left, i + 2 * LANES)
        e, f = multiply_add(w, x, e), multiply_add(w, y, f)
        w = load(left, i + 3 * LANES)
        g, h = multiply_add(w, x, g), multiply_add(w, y, h)
    store(sums, at, a)
    store(sums, at + LANES, b)
    store(sums, at + down, c)
    store(sums, at + down + LANES, d)
    store(sums, at + 2 * down, e)
    store(sums, at + 2 * down + LANES, f)
    store(sums, at + 3 * down, g)
    store(sums, at + 3 * down + LANES, h)
