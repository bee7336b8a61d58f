"""The recursions on one block of sequences after another, in numba: compiled for `recursions`.

A block is a few dozen sequences of similar length, the longest first, so that the ones still
running at a step are the first rows.  One matrix product per step then moves the whole block
forward or backward, and one more collects its transition counts:

    forward    α_t = (α_{t−1} Θ) ∘ φ_t / c_t            c_t makes each row sum to one
    backward   β_{t−1} = ε_t Θᵀ,   ε_t = φ_t ∘ β_t / c_t
    counts     Θ ∘ Σ_t α_{t−1}ᵀ ε_t

Where the squares of pairs are asked for, they are collected in units of Θ² ∘, by

    squares    Θ² ∘ Σ_t (α_{t−1}²)ᵀ (ε_t²)

from every step or from one in `every`.  In the latter case the pair of the most probable states of
the two steps is still collected from every step; the matrix product is that of the others, none of
them above a quarter, and has the weight of the steps left out.

The steps of a block are taken in chunks.  A thread keeps the forward vectors of one chunk; where
there are several, it keeps those at the boundaries of chunks and computes a chunk again on the way
back.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.gemm import gemm
from sojourn.kernels.cpu.inner import inner, outer
from sojourn.kernels.cpu.room import empty, empty_rows
from sojourn.kernels.cpu.rows import (
    add_row,
    add_squares,
    dot,
    dot_and_likeliest,
    multiply_and_sum,
    scale_row,
    smooth_row,
    square_row,
)
from sojourn.kernels.threads import prefetch_row, take_unit

_PRODUCT_STEPS = 2**9  # outer products summed in single precision before they are moved out
_NEAR_BYTES = 2**19  # a larger emission table is out of the near caches, and rows are prefetched
_SHIFT = 2.0**32  # α is as much larger before it is squared, and ε smaller: both keep in range
_LARGEST = 2.0**95  # the square of this, shifted, is finite in single precision


@outer
def smooth_units(
    counter,
    n_units,
    order,
    offsets,
    index,
    block_rows,
    chunk,
    start,
    transitions,
    transposed,
    emissions,
    log_scale,
    log_z,
    backward,
    responsibilities,
    start_counts,
    transition_counts,
    every,
    weight,
    start_squares,
    pair_squares,
    long_squares,
    row_squares,
):
    """Smooth blocks u, u + n_units, ... of every unit u taken; NaN log_z marks a failed block.

    The squares of pairs are summed in `pair_squares`, in the precision of the vectors; where there
    is room in `long_squares`, long sums are moved there.
    """
    width = start.shape[0]
    n_sequences = order.shape[0]
    longest = offsets[order[0] + 1] - offsets[order[0]]
    chunk = min(longest, chunk)
    # Slot 0 holds the step before the chunk, slot 1 its first step; a slot has a row per sequence.
    alpha = empty_rows(start.dtype, (chunk + 1) * block_rows, width)
    inverse_scale = empty(start.dtype, (chunk + 1) * block_rows)
    checkpoints = empty_rows(start.dtype, -(-longest // chunk) * block_rows, width)
    beta = empty_rows(start.dtype, block_rows, width)
    epsilon = empty_rows(start.dtype, block_rows, width)
    totals = empty(start.dtype, block_rows)
    products = empty_rows(start.dtype, width, width)
    first = empty(np.int64, block_rows)
    length = empty(np.int64, block_rows)
    log_norm, scale_products = empty(np.float64, block_rows), empty(np.float64, block_rows)
    squared = empty_rows(start.dtype, 2 * block_rows, row_squares.shape[1])
    row_sums, likely = empty(start.dtype, row_squares.shape[1]), empty(np.int64, block_rows)
    for j in range(row_squares.shape[1]):
        row_sums[j] = 0.0
    for i in range(block_rows):
        likely[i] = 0
    n_blocks = -(-n_sequences // block_rows)
    # A literal in a call would have the function compiled again for each of its values.
    none, collect, again = np.int64(0), n_units > 0, n_units < 0
    unit = take_unit(counter)
    while unit < n_units:
        n_squares = none
        for block in range(unit, n_blocks, n_units):
            low = block * block_rows
            n_rows = min(block_rows, n_sequences - low)
            for i in range(n_rows):
                first[i] = offsets[order[low + i]]
                length[i] = offsets[order[low + i] + 1] - first[i]
                log_norm[i] = 0.0
            last = length[0]
            n_chunks = -(-last // chunk)
            sound = True
            for c in range(n_chunks):
                end = min(last, (c + 1) * chunk)
                sound = sound and _forward(
                    c * chunk, end, n_rows, first, length, index, block_rows, start, transitions,
                    emissions, log_scale, alpha, inverse_scale, log_norm, scale_products, collect,
                )  # fmt: skip
                if c + 1 < n_chunks:
                    carried = chunk * block_rows
                    _copy_rows(alpha, carried, checkpoints, c * block_rows, block_rows)
                    _copy_rows(alpha, carried, alpha, none, block_rows)
            for i in range(n_rows):
                log_z[order[low + i]] = log_norm[i] if sound else np.nan
            if not (sound and backward):
                continue
            for c in range(n_chunks - 1, -1, -1):
                end = min(last, (c + 1) * chunk)
                if c < n_chunks - 1:
                    if c > 0:
                        _copy_rows(checkpoints, (c - 1) * block_rows, alpha, none, block_rows)
                    _forward(
                        c * chunk, end, n_rows, first, length, index, block_rows, start,
                        transitions, emissions, log_scale, alpha, inverse_scale, log_norm,
                        scale_products, again,
                    )  # fmt: skip
                n_squares = _backward(
                    c * chunk, end, n_rows, first, length, index, block_rows, transitions,
                    transposed, emissions, alpha, inverse_scale, beta, epsilon, totals,
                    responsibilities, start_counts, unit, products, transition_counts[unit], block,
                    every, weight, squared, row_sums, n_squares, likely, start_squares[unit],
                    pair_squares[unit], long_squares[min(unit, long_squares.shape[0] - 1)],
                    row_squares[unit],
                )  # fmt: skip
        unit = take_unit(counter)


@inner
def _copy_rows(source, at, target, to, n_rows):
    """Copy rows: assigned as slices they would take seconds to compile, with their checks."""
    for i in range(n_rows):
        for j in range(target.shape[1]):
            target[to + i, j] = source[at + i, j]


@inner
def _forward(
    begin, end, n_rows, first, length, index, block_rows, start, transitions, emissions, log_scale,
    alpha, inverse_scale, log_norm, product, collect,
):  # fmt: skip
    """Forward vectors of the steps begin..end−1 in slots 1.. of alpha; slot 0 holds step begin−1.

    Returns False when a step's total underflows.  With `collect`, adds log Z to `log_norm`.
    """
    width = start.shape[0]
    smallest = np.finfo(alpha.dtype).tiny * 1e6
    is_far = emissions.nbytes > _NEAR_BYTES
    # Literals in a call would have numba compile `gemm` again for each of them.
    none, one_apart = np.int64(0), np.int64(1)
    for i in range(n_rows):
        product[i] = 1.0
    active = n_rows
    for t in range(begin, end):
        while length[active - 1] <= t:
            active -= 1
        slot = (t - begin + 1) * block_rows
        if t == 0:
            for i in range(active):
                for j in range(width):
                    alpha[slot + i, j] = start[j]
        else:
            gemm(
                alpha, (slot - block_rows) * width, width, one_apart, transitions, none, width,
                alpha, slot * width, width, active, width, width, active < 0,
            )  # fmt: skip
        for i in range(active):
            row = slot + i
            symbol = index[first[i] + t]
            if is_far and t + 1 < length[i]:
                prefetch_row(emissions, index[first[i] + t + 1])
            inverse_scale[row] = multiply_and_sum(alpha, row, emissions, symbol, width)
        # Sums first: what waits for one holds up the next.
        for i in range(active):
            row = slot + i
            total = inverse_scale[row]
            if not total > smallest:
                return False
            scale = alpha.dtype.type(1.0) / total
            inverse_scale[row] = scale
            scale_row(alpha, row, scale, width)
            if collect:
                if log_scale.shape[0] > 0:
                    log_norm[i] += log_scale[index[first[i] + t]]
                # One logarithm for many steps: the product of scales is kept within range.
                product[i] *= total
                if product[i] < 1e-200 or product[i] > 1e200:
                    log_norm[i] += np.log(product[i])
                    product[i] = 1.0
    if collect:
        for i in range(n_rows):
            log_norm[i] += np.log(product[i])
    return True


@inner
def _backward(
    begin,
    end,
    n_rows,
    first,
    length,
    index,
    block_rows,
    transitions,
    transposed,
    emissions,
    alpha,
    inverse_scale,
    beta,
    epsilon,
    totals,
    responsibilities,
    start_counts,
    unit,
    products,
    transition_counts,
    block,
    every,
    weight,
    squared,
    row_sums,
    n_squares,
    likely,
    start_squares,
    pair_squares,
    long_squares,
    row_squares,
):
    """Smooth the steps end−1..begin given beta for the sequences that go on after them.

    Takes and returns how many steps are in the sums of squares since these were last moved.
    """
    width = beta.shape[1]
    one = alpha.dtype.type(1.0)
    is_far = emissions.nbytes > _NEAR_BYTES
    none, one_apart, certain = np.int64(0), np.int64(1), np.float64(1.0)
    n_products = 0
    shift, unshift = alpha.dtype.type(_SHIFT), alpha.dtype.type(1.0 / _SHIFT)
    largest = alpha.dtype.type(_LARGEST)
    has_squares = row_squares.shape[0] > 0
    active = 0
    while active < n_rows and length[active] > end:
        active += 1
    for t in range(end - 1, begin - 1, -1):
        while active < n_rows and length[active] > t:
            for j in range(width):
                beta[active, j] = one
            active += 1
        slot = (t - begin + 1) * block_rows
        factor = (1.0 / weight - 1.0) if (t + 1 + block) % every == 1 else 1.0 / weight
        for i in range(active):
            row = slot + i
            if has_squares and every > 1:
                totals[i], state = dot_and_likeliest(alpha, row, beta, i, width)
                if length[i] > t + 1:  # epsilon is still that of the step after
                    pair = np.float64(alpha[row, state]) * epsilon[i, likely[i]]
                    pair_squares[state, likely[i]] += factor * pair * pair
                likely[i] = state
            else:
                totals[i] = dot(alpha, row, beta, i, width)
        for i in range(active):
            row = slot + i
            token = first[i] + t
            if is_far and t > 0:
                prefetch_row(emissions, index[token - 1])
            # The total is one up to rounding; dividing by it keeps long sequences from drifting.
            norm = one / totals[i]
            smooth_row(
                alpha, row, beta, i, norm, responsibilities, token, emissions, index[token],
                norm * inverse_scale[row], epsilon, width,
            )  # fmt: skip
            if t == 0:
                add_row(start_counts, unit, responsibilities, token, width)
                for j in range(start_squares.shape[0]):
                    start_squares[j] += np.float64(responsibilities[token, j]) ** 2
        if has_squares:
            going = active  # sequences that do not end here
            while going > 0 and length[going - 1] == t + 1:
                going -= 1
            add_squares(responsibilities, first, t, going, row_sums, width)
        if t > 0:
            before = slot - block_rows
            gemm(
                alpha, before * width, one_apart, width, epsilon, none, width,
                products, none, width, width, width, active, n_products > 0,
            )  # fmt: skip
            # Long sums in single precision are biased: short ones go into double precision.
            n_products += active
            if n_products >= _PRODUCT_STEPS:
                _add_matrix(products, transition_counts, certain)
                _move(row_sums, row_squares)
                n_products = 0
            gemm(
                epsilon, none, width, one_apart, transposed, none, width,
                beta, none, width, active, width, width, active < 0,
            )  # fmt: skip
            if has_squares and (every == 1 or (t + block) % every == 1):
                for i in range(active):
                    square_row(alpha, before + i, shift, one, squared, i, width)
                    square_row(epsilon, i, unshift, largest, squared, block_rows + i, width)
                gemm(
                    squared, none, one_apart, width, squared, block_rows * width, width,
                    pair_squares, none, width, width, width, active, active > 0,
                )  # fmt: skip
                n_squares += active
                if n_squares >= _PRODUCT_STEPS and long_squares.shape[0] > 0:
                    _add_matrix(pair_squares, long_squares, certain)
                    _clear(pair_squares)
                    n_squares = none
    if n_products > 0:
        _add_matrix(products, transition_counts, certain)
    _move(row_sums, row_squares)
    return n_squares


@inner
def _move(sums, total):
    """Add sums to a total in double precision, and clear them."""
    for j in range(total.shape[0]):
        total[j] += sums[j]
        sums[j] = 0.0


@inner
def _clear(matrix):
    """Set all numbers to zero: assigned as a slice they would take longer to compile."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = 0.0


@inner
def _add_matrix(part, total, weight):
    for i in range(part.shape[0]):
        for j in range(part.shape[1]):
            total[i, j] += weight * part[i, j]
