"""The sums of blocks, and how they come together: see `blocks`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.cpu.inner import inner, loops
from sojourn.kernels.cpu.rows import add_row, add_scaled_sum, add_to_row, copy_row
from sojourn.kernels.cpu.symbols import (
    AHEAD,
    EVERY_ROW,
    WORTH_MOVING,
    room_for_totals,
    units_for,
)
from sojourn.kernels.interface import Floats, Integers
from sojourn.kernels.threads import prefetch_row_to_write, run_units, take_unit


class StrandSums(NamedTuple):
    """Sums by row of the table, of both strands: to be added up where they are needed.

    To add them to another table needs no more than to read them; what one core has written, and
    another reads, is slow to come.

    Attributes
    ----------
    sums : (2 U, W) array
        Those of the second strand after those of the first.
    has_sum : (2 U,) uint8 array
        Which of them are there; the others are not initialised.
    n_states : int
    n_rows : int
        How many of the rows of a strand are wanted.
    """

    sums: Floats
    has_sum: NDArray[np.uint8]
    n_states: int
    n_rows: int

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the sums."""
        return self.sums.dtype

    def first(self, n_rows: int) -> StrandSums:
        """Return the sums of the first rows alone."""
        return self._replace(n_rows=n_rows)

    def joined(self, *, n_threads: int = 1) -> Floats:
        """Return the sums of both strands together, (U, K), which are those of the first then."""
        n_units = units_for(self.sums.size, n_threads, WORTH_MOVING)
        run_units(join_sums, n_units, n_threads, self.sums, self.has_sum)
        first, second = np.split(self.has_sum, 2)
        first[:], second[:] = 1, 0
        return self.sums[: self.n_rows, : self.n_states]

    def add_to(
        self, table: Floats, rows: Integers | None, weight: float, *, n_threads: int = 1
    ) -> Floats:
        """Do as `symbols.add_rows` with the sums of both strands together, which stay apart."""
        totals = room_for_totals(self.n_rows, self.sums.shape[1])
        run_units(
            add_strands,
            len(totals),
            n_threads,
            table,
            EVERY_ROW if rows is None else rows,
            self.n_rows,
            self.sums,
            self.has_sum,
            table.dtype.type(weight),
            totals,
        )
        return totals.sum(axis=0)[: self.n_states]


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


@loops
def add_strands(counter, n_units, table, rows, n_rows, sums, has_sum, weight, totals):
    """Add the sums of both strands, times a weight, to rows of a table, and to totals."""
    n_table = sums.shape[0] // 2
    width = min(table.shape[1], sums.shape[1])
    unit = take_unit(counter)
    while unit < n_units:
        own = totals[unit]
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            row = rows[i] if rows.shape[0] > 0 else i
            if i + AHEAD < rows.shape[0]:
                prefetch_row_to_write(table, rows[i + AHEAD])
            # In numbers, not in branches, which nobody can foresee.
            has_both = has_sum.dtype.type(has_sum[i] & has_sum[n_table + i])
            first = i + n_table * (1 - np.int64(has_sum[i]))
            second = first + n_table * np.int64(has_both)
            if has_sum[first]:
                add_scaled_sum(table, row, sums, first, second, has_both, weight, own, width)
        unit = take_unit(counter)
