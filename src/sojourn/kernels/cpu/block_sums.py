"""The sums of blocks, and how they come together: see `blocks`."""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.inner import inner, loops
from sojourn.kernels.cpu.rows import add_row, add_to_row, copy_row
from sojourn.kernels.threads import prefetch_row_to_write, take_unit


@inner
def leave_block(
    smoothed, places, apart, first, length, n_rows, is_whole, responsibilities, counts, left_counts,
    row_totals, left_rows, pair_totals, left_pairs,
):  # fmt: skip
    """Write the sums of a block, and its responsibilities, where another thread will find them."""
    for i in range(n_rows):
        for t in range(0 if is_whole else length[i]):
            copy_row(
                responsibilities, first[i] + t, smoothed, places[i] + t * apart, smoothed.shape[1]
            )
    _copy(counts, left_counts)
    _copy(row_totals, left_rows)
    _copy(pair_totals, left_pairs)


@inner
def _copy(source, target):
    for i in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[i, j] = source[i, j]


@inner
def add_block(
    smoothed, places, apart, first, length, n_rows, index, counts, row_totals, pair_totals, strand,
    start_counts, transition_counts, start_squares, pair_squares, row_squares, table_sums, has_sum,
):  # fmt: skip
    """Add the sums of a block to those of its strand."""
    width, side = smoothed.shape[1], row_totals.shape[1]
    for i in range(n_rows):
        add_row(start_counts, strand, smoothed, places[i], width)
        for j in range(side):
            start_squares[strand, j] += np.float64(smoothed[places[i], j]) ** 2
    add_matrix(counts, transition_counts)
    add_matrix(pair_totals, pair_squares)
    for j in range(side):
        row_squares[strand, j] += row_totals[0, j]
    if table_sums.shape[0] > 0:
        _add_steps(
            smoothed, places, apart, first, length, n_rows, index, table_sums, has_sum,
            strand * (table_sums.shape[0] // 2),
        )  # fmt: skip


@inner
def _add_steps(values, places, apart, first, length, n_rows, index, table_sums, has_sum, at):
    """Add the rows of steps to the sums of their rows of the table, which begin at a row."""
    one = has_sum.dtype.type(1)
    width = values.shape[1]
    active = n_rows
    for t in range(length[0]):
        while length[active - 1] <= t:
            active -= 1
        for i in range(active):
            if t + 1 < length[i]:
                prefetch_row_to_write(table_sums, at + index[first[i] + t + 1])
            to = at + index[first[i] + t]
            add_to_row(table_sums, to, has_sum[to], values, places[i] + t * apart, width)
            has_sum[to] = one


@inner
def add_matrix(matrix, total):
    """``total += matrix``."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            total[i, j] += matrix[i, j]


@loops
def join_sums(counter, n_units, table_sums, has_sum):
    """Add the sums by row of the second strand to those of the first."""
    n_rows, width = table_sums.shape[0] // 2, table_sums.shape[1]
    unit = take_unit(counter)
    while unit < n_units:
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            other = n_rows + i
            if has_sum[i] and has_sum[other]:
                add_row(table_sums, i, table_sums, other, width)
            elif has_sum[other]:
                copy_row(table_sums, i, table_sums, other, width)
            elif not has_sum[i]:
                for j in range(width):
                    table_sums[i, j] = 0.0
        unit = take_unit(counter)
