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

Blocks belong in turn to a fixed number of strands, each with sums of its own.  A thread takes
blocks of one strand as long as there are any, and then helps with another one.  It adds what it has
of a block if the one before, of the same strand, has been added, and otherwise leaves it to the
thread that adds that one.  So sums have a fixed order, whatever the number of threads, and none of
these waits.  Where responsibilities are needed summed by row of the table alone, they take the
place of forward vectors, and are added from there, near as they are: they are not written to
memory.

The steps of a block are taken in chunks.  A thread keeps the forward vectors of one chunk and its
potentials, which come from rows far apart; where there are several, it keeps the vectors at the
boundaries of chunks and computes a chunk again on the way back.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.block_sums import add_matrix, add_steps, leave_steps
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
    weigh_row,
)
from sojourn.kernels.threads import fetch_add, prefetch_row, take_unit

LINE_NUMBERS = 8  # from one counter to the next: each in a line of memory of its own
_PRODUCT_STEPS = 2**9  # outer products summed in single precision before they are moved out
_NEAR_BYTES = 2**19  # a larger emission table is out of the near caches, and rows are prefetched
_SHIFT = 2.0**32  # α is as much larger before it is squared, and ε smaller: both keep in range
_LARGEST = 2.0**95  # the square of this, shifted, is finite in single precision
_OFF = 0.01  # distance from one of a sum of probabilities that is not due to rounding


@outer
def smooth_units(
    counter,
    n_blocks,
    taken,
    arrivals,
    order,
    offsets,
    index,
    block_rows,
    chunk,
    start,
    transitions,
    transposed,
    table,
    rows,
    prior,
    scale,
    factor,
    log_scale,
    log_z,
    responsibilities,
    is_whole,
    sums,
    left,
    table_sums,
    has_sum,
    every,
    weight,
):
    """Smooth the blocks that are taken; NaN log_z marks a failed one, which adds nothing.

    The `sums` of each strand have a row for every state, of pairs, and one of starts; with squares
    of these, one more of starts, one of rows, and those of pairs.  There are none where only log Z
    is asked for.

    Responsibilities are written if all of them are wanted (`is_whole`), and else summed by row of
    the table: a block is one chunk then, and there are two strands.  In `table_sums` only rows that
    `has_sum` have a sum.

    The numbers of `taken` and `has_sum` are zero.  Those of `arrivals`, one per block, count that
    it is computed and that all before it in the strand have been added, whichever comes first: at
    the second it is added.  Of the first blocks of strands they are one, and zero otherwise.  There
    is room to leave the responsibilities and sums of every block.
    """
    width, (n_strands, n_sums) = start.shape[0], sums.shape[:2]
    backward, side = n_sums > 0, width if n_sums > width + 1 else 0
    longest = offsets[order[0] + 1] - offsets[order[0]]
    chunk = min(longest, chunk)
    # Slot 0 holds the step before the chunk, slot 1 its first step; a slot has a row per sequence.
    alpha = empty_rows(start.dtype, (chunk + 1) * block_rows, width)
    has_table = factor.shape[0] == 0
    phi = empty_rows(start.dtype, 0 if has_table else (chunk + 1) * block_rows, width)
    emissions = table if has_table else phi
    inverse_scale = empty(start.dtype, (chunk + 1) * block_rows)
    checkpoints = empty_rows(start.dtype, -(-longest // chunk) * block_rows, width)
    beta = empty_rows(start.dtype, block_rows, width)
    epsilon = empty_rows(start.dtype, block_rows, width)
    totals = empty(start.dtype, block_rows)
    products = empty_rows(start.dtype, width, width)
    own = empty_rows(np.float64, n_sums, width)
    lines, first = empty(np.int64, block_rows), empty(np.int64, block_rows)
    length, likely = empty(np.int64, block_rows), empty(np.int64, block_rows)
    log_norm, scale_products = empty(np.float64, block_rows), empty(np.float64, block_rows)
    squared = empty_rows(start.dtype, 2 * block_rows if side > 0 else 0, width)
    row_sums = empty_rows(start.dtype, 1 if side > 0 else 0, width)
    pair_sums = empty_rows(start.dtype, side, width)
    for i in range(block_rows):
        lines[i], likely[i] = block_rows + i, 0
    # The responsibilities of step t of sequence i are row places[i] + t * apart.
    smoothed, places = (responsibilities, first) if is_whole else (alpha, lines)
    apart = np.int64(1) if is_whole else block_rows
    # A literal in a call would have the function compiled again for each of its values.
    none, one, collect, again = np.int64(0), np.int64(1), n_blocks > 0, n_blocks < 0
    rank = take_unit(counter)
    for k in range(n_strands):
        strand = (rank + k) % n_strands
        block = fetch_add(taken, strand * LINE_NUMBERS, one) * n_strands + strand
        while block < n_blocks:
            low = block * block_rows
            n_rows = _runs(order, offsets, low, block_rows, first, length)
            for i in range(n_rows):
                log_norm[i] = 0.0
            last = length[0]
            n_chunks = -(-last // chunk)
            sound = True
            for c in range(n_chunks):
                end = min(last, (c + 1) * chunk)
                sound = sound and _forward(
                    c * chunk, end, n_rows, first, length, index, block_rows, start, transitions,
                    table, rows, prior, scale, factor, log_scale, phi, alpha, inverse_scale,
                    log_norm, scale_products, collect,
                )  # fmt: skip
                if c + 1 < n_chunks:
                    carried = chunk * block_rows
                    _copy_rows(alpha, carried, checkpoints, c * block_rows, block_rows)
                    _copy_rows(alpha, carried, alpha, none, block_rows)
            for i in range(n_rows):
                log_z[order[low + i]] = log_norm[i] if sound else np.nan
            kept = True
            if sound and backward:
                _clear(own)
                _clear(row_sums)
                _clear(pair_sums)
                for c in range(n_chunks - 1, -1, -1):
                    end = min(last, (c + 1) * chunk)
                    if c < n_chunks - 1:
                        if c > 0:
                            _copy_rows(checkpoints, (c - 1) * block_rows, alpha, none, block_rows)
                        _forward(
                            c * chunk, end, n_rows, first, length, index, block_rows, start,
                            transitions, table, rows, prior, scale, factor, log_scale, phi, alpha,
                            inverse_scale, log_norm, scale_products, again,
                        )  # fmt: skip
                    kept = _backward(
                        c * chunk, end, n_rows, first, length, index, has_table, block_rows,
                        transitions, transposed, emissions, alpha, inverse_scale, beta, epsilon,
                        totals, smoothed, places, apart, products, own, block, every, weight,
                        squared, row_sums, likely, pair_sums,
                    ) and kept  # fmt: skip
            for i in range(0 if kept else n_rows):
                log_z[order[low + i]] = np.nan
            # Where the block before has not been added, this one is left to the thread that does.
            is_turn = fetch_add(arrivals, block, none) == 1
            if not is_turn:
                if sound and backward:
                    _copy_rows(own, none, left[block], none, n_sums)
                    if not is_whole:
                        leave_steps(
                            alpha, lines, block_rows, first, length, n_rows, responsibilities
                        )
                is_turn = fetch_add(arrivals, block, one) == 1
            is_own = True
            while is_turn:
                if backward and not np.isnan(log_z[order[block * block_rows]]):
                    if not is_own:
                        low = block * block_rows
                        n_rows = _runs(order, offsets, low, block_rows, first, length)
                    add_matrix(own if is_own else left[block], sums[strand])
                    add_steps(
                        smoothed if is_own else responsibilities, places if is_own else first,
                        apart if is_own else one, first, length, n_rows, index, table_sums,
                        has_sum, strand,
                    )  # fmt: skip
                block += n_strands
                is_own, is_turn = False, block < n_blocks and fetch_add(arrivals, block, one) == 1
            block = fetch_add(taken, strand * LINE_NUMBERS, one) * n_strands + strand


@inner
def _runs(order, offsets, low, block_rows, first, length):
    """Find where the sequences of a block begin, and their lengths; return how many there are."""
    n_rows = min(block_rows, order.shape[0] - low)
    for i in range(n_rows):
        first[i] = offsets[order[low + i]]
        length[i] = offsets[order[low + i] + 1] - first[i]
    return n_rows


@inner
def _copy_rows(source, at, target, to, n_rows):
    """Copy rows: assigned as slices they would take seconds to compile, with their checks."""
    for i in range(n_rows):
        for j in range(target.shape[1]):
            target[to + i, j] = source[at + i, j]


@inner
def _forward(
    begin, end, n_rows, first, length, index, block_rows, start, transitions, table, rows, prior,
    scale, factor, log_scale, phi, alpha, inverse_scale, log_norm, product, collect,
):  # fmt: skip
    """Forward vectors of the steps begin..end−1 in slots 1.. of alpha; slot 0 holds step begin−1.

    Potentials from counts go to the same slots of phi.  Returns False when a step's total
    underflows.  With `collect`, adds log Z to `log_norm`.
    """
    width = start.shape[0]
    smallest = np.finfo(alpha.dtype).tiny * 1e6
    is_far, has_table = table.nbytes > _NEAR_BYTES, factor.shape[0] == 0
    is_chosen, has_own = rows.shape[0] > 0, prior.shape[0] > 1
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
        for i in range(active if has_table else 0):
            row = slot + i
            if is_far and t + 1 < length[i]:
                prefetch_row(table, index[first[i] + t + 1])
            inverse_scale[row] = multiply_and_sum(alpha, row, table, index[first[i] + t], width)
        for i in range(0 if has_table else active):
            row, at = slot + i, index[first[i] + t]
            if is_far and t + 1 < length[i]:
                ahead = index[first[i] + t + 1]
                prefetch_row(table, rows[ahead] if is_chosen else ahead)
            inverse_scale[row] = weigh_row(
                alpha, phi, row, table, rows[at] if is_chosen else at,
                prior[at if has_own else 0, 0], scale, factor, width,
            )  # fmt: skip
        for i in range(active):  # after all sums: what waits for one holds up the next
            row = slot + i
            total = inverse_scale[row]
            if not total > smallest:
                return False
            inverse = alpha.dtype.type(1.0) / total
            inverse_scale[row] = inverse
            scale_row(alpha, row, inverse, width)
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
    has_table,
    block_rows,
    transitions,
    transposed,
    emissions,
    alpha,
    inverse_scale,
    beta,
    epsilon,
    totals,
    smoothed,
    places,
    apart,
    products,
    own,
    block,
    every,
    weight,
    squared,
    row_sums,
    likely,
    pair_sums,
):
    """Smooth the steps end−1..begin given beta for the sequences that go on after them.

    Returns False where a sum over states is not one: where a state that has vanished forwards turns
    out to matter, as it may where transitions lead one way, its β is out of range.
    """
    width = beta.shape[1]
    one = alpha.dtype.type(1.0)
    none, one_apart = np.int64(0), np.int64(1)
    n_products, n_squares = 0, 0
    row_place, pair_place = width + 2, width + 3
    shift, unshift = alpha.dtype.type(_SHIFT), alpha.dtype.type(1.0 / _SHIFT)
    largest = alpha.dtype.type(_LARGEST)
    has_squares, is_far = row_sums.shape[0] > 0, has_table and emissions.nbytes > _NEAR_BYTES
    active, n_lost, most_off = 0, 0, alpha.dtype.type(_OFF)
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
                    pair_sums[state, likely[i]] += factor * pair * pair
                likely[i] = state
            else:
                totals[i] = dot(alpha, row, beta, i, width)
        for i in range(active):
            n_lost += not abs(totals[i] - one) < most_off  # as NaN is not, either
        for i in range(active):
            row = slot + i
            token = first[i] + t
            if is_far and t > 0:
                prefetch_row(emissions, index[token - 1])
            # The total is one up to rounding; dividing by it keeps long sequences from drifting.
            norm = one / totals[i]
            smooth_row(
                alpha, row, beta, i, norm, smoothed, places[i] + t * apart, emissions,
                index[token] if has_table else row,
                norm * inverse_scale[row], epsilon, width,
            )  # fmt: skip
            if t == 0:
                add_row(own, width, smoothed, places[i], width)
                for j in range(width if has_squares else 0):
                    start = np.float64(smoothed[places[i], j])
                    own[width + 1, j] += start * start
        if has_squares:
            going = active  # sequences that do not end here
            while going > 0 and length[going - 1] == t + 1:
                going -= 1
            add_squares(smoothed, places, t * apart, going, row_sums, width)
        if t > 0:
            before = slot - block_rows
            gemm(
                alpha, before * width, one_apart, width, epsilon, none, width,
                products, none, width, width, width, active, n_products > 0,
            )  # fmt: skip
            # Long sums in single precision are biased: short ones go into double precision.
            n_products += active
            if n_products >= _PRODUCT_STEPS:
                _move(products, own, none)
                _move(row_sums, own, row_place)
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
                    pair_sums, none, width, width, width, active, active > 0,
                )  # fmt: skip
                n_squares += active
                if n_squares >= _PRODUCT_STEPS:
                    _move(pair_sums, own, pair_place)
                    n_squares = 0
    if n_products > 0:
        _move(products, own, none)
    _move(row_sums, own, row_place)
    _move(pair_sums, own, pair_place)
    return n_lost == 0


@inner
def _move(sums, total, at):
    """Add sums to rows of a total in double precision, and clear them."""
    for i in range(sums.shape[0]):
        for j in range(sums.shape[1]):
            total[at + i, j] += sums[i, j]
            sums[i, j] = 0.0


@inner
def _clear(matrix):
    """Set all numbers to zero: assigned as a slice they would take longer to compile."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            matrix[i, j] = 0.0
