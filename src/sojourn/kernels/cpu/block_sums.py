"""The sums of blocks, and how they come together: see `blocks`."""

from __future__ import annotations

from sojourn.kernels.cpu.inner import inner, loops
from sojourn.kernels.cpu.rows import add_row, add_to_row, copy_row
from sojourn.kernels.threads import prefetch_row_to_write, take_unit


@inner
def leave_steps(values, places, apart, first, length, n_rows, responsibilities):
    """Write the responsibilities of a block where another thread will find them."""
    for i in range(n_rows):
        for t in range(length[i]):
            copy_row(responsibilities, first[i] + t, values, places[i] + t * apart, values.shape[1])


@inner
def add_matrix(matrix, total):
    """``total += matrix``."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            total[i, j] += matrix[i, j]


@inner
def add_steps(values, places, apart, first, length, n_rows, index, table_sums, has_sum, strand):
    """Add responsibilities of a block to the sums of a strand by row of the table, if wanted."""
    width, n_table = values.shape[1], table_sums.shape[0] // 2
    one, at = has_sum.dtype.type(1), strand * n_table
    active = n_rows
    for t in range(length[0] * min(n_table, 1)):
        while length[active - 1] <= t:
            active -= 1
        for i in range(active):
            if t + 1 < length[i]:
                prefetch_row_to_write(table_sums, at + index[first[i] + t + 1])
            to = at + index[first[i] + t]
            add_to_row(table_sums, to, has_sum[to], values, places[i] + t * apart, width)
            has_sum[to] = one


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
