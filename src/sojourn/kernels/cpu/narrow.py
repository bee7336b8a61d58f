"""Forward-backward for few states or few sequences: `strips` has the compiled part.

Strips are shared out to at most `_MAX_UNITS` units, as blocks are in `recursions`: tiles follow
from the sizes alone, and the number of threads does not change a bit.

Memory per thread: the forward vectors of a strip, `_LONGEST_TILE` steps of `WIDTH` tiles at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.cpu.padding import add_scales, padded_table
from sojourn.kernels.cpu.steps import STEPS, WIDTH
from sojourn.kernels.cpu.strip_edges import finish, is_consecutive, prepare
from sojourn.kernels.cpu.strips import strip_room, strip_units
from sojourn.kernels.cpu.sweeps import Numbers
from sojourn.kernels.cpu.underflow import times_transitions
from sojourn.kernels.interface import (
    Floats,
    Integers,
    Potentials,
    Smoothed,
    Squares,
    aligned,
    padded_states,
)
from sojourn.kernels.threads import run_units

_MAX_UNITS = 64
_STRIPS = 8  # strips of a batch that is not long
_SHORTEST_TILE = 512  # steps of a tile, where there are enough for two strips
TWO_STRIPS = 2 * WIDTH * 128  # steps from which two are faster on two cores than one on one
_LONGEST_TILE = 720  # as few as leave the walks to a tile short beside it: vectors stay in cache
_WORTH_PROBING = 3  # strips from which walks are found once for all of them
_SHORT = 32  # steps of sequences whose walks begin where they do
_WORTH_SUMMING = 3  # steps a row of all units' sums from which they are summed in strips
_FEW_ROWS = 64  # rows of a table up to which the same one often comes soon again
_FEW_STRIPS = 2  # strips up to which a block more in every tile costs more than it saves
CONSTANTS = {  # the smallest total that is sound, and what keeps squares in range: see `copy_steps`
    np.dtype(kind).itemsize: np.array([np.finfo(kind).tiny * 1e6, 2.0**32, 2.0**-32, 2.0**95], kind)
    for kind in (np.float32, np.float64)
}
_TOLERANCE = {4: 1e-5, 8: 1e-12}  # by which walks and edges may differ, by bytes of a number
_NO_TABLE = np.empty(0, np.int32), np.empty(0, np.float32), 0
_NO_PAIRS = np.empty((0, 2), np.int64)
_FLOOR = {4: 1e-30, 8: 1e-250}  # numbers below this are as good as zero


def tile_length(n_steps: int) -> int:
    """Return the length of tiles, a multiple of `STEPS`, from the number of steps.

    With more than a few strips it is an odd multiple: otherwise the tiles of a strip begin in few
    lines of the first cache, and drive each other out of it.  On an AMD EPYC, one core, a million
    steps, ns a step with tiles of 1,024 and of 720 steps: 2 states 5.5 and 4.7, 5 states 12.3 and
    11.0, 16 states 43.7 and 39.5; 16,384 steps, 5 states, 512 and 528 steps: 10.5 and 12.1.

    A strip is work for one core.  On another AMD EPYC, two cores, ns a step with one strip and with
    two: 8,192 steps, 3 states 7.5 and 7.8, 16 states 20.8 and 15.5, 32 states 61 and 38; 22,000
    steps, 8 states 6.5 and 5.2, 16 states 14.4 and 9.8.  One core alone needs a tenth more.

    Examples
    --------
    >>> tile_length(1_000_000), tile_length(22_000)
    (720, 352)
    """
    n_strips = min(_STRIPS, n_steps // (WIDTH * _SHORTEST_TILE))
    n_strips = max(n_strips, -(-n_steps // (WIDTH * _LONGEST_TILE)))
    if n_strips < 2:
        n_strips = 2 if n_steps >= TWO_STRIPS else 1
    n_blocks = -(-n_steps // (n_strips * WIDTH * STEPS))
    return (n_blocks | (n_strips > _FEW_STRIPS)) * STEPS


def smooth(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    squares: int = False,
    summed: bool = False,
    n_threads: int = 1,
    tile: int | None = None,
) -> Smoothed | None:
    """Compute what `Kernel.forward_backward` does; None if edges of tiles do not meet.

    Of `squares` steps, which divide a block's, one has the squares of improbable events; 1 makes
    them exact.  `tile`, the length of tiles, changes rounding and which steps these are.

    Sums by row of the table, if `summed`, take their own room and time: a table for every unit.  On
    an AMD EPYC, one core, 40,000 steps in two units, a local step of symbols, ns a step with sums
    in strips and apart: 8 states, 1,000 symbols 13.8 and 16.3, 6,000 15.3 and 17.7, 10,000 17.2 and
    18.3, 20,000 21.0 and 20.0; 16 states 33.0 and 37.6, 35.1 and 37.4, 36.5 and 38.7, 51.6 and
    43.1; 2 symbols, 8 states 13.4 and 15.5.
    """
    strips = _Strips(potentials, len(index), offsets, n_threads, tile)
    n_rows = len(potentials.emissions)
    summed = summed and strips.n_units * n_rows * _WORTH_SUMMING <= len(index)
    sums = _Sums(
        strips.n_units, strips.n_states, squares=squares, n_table_rows=n_rows if summed else 0
    )
    n_written = 0 if summed else len(index)
    responsibilities = np.empty((n_written, strips.n_states), strips.dtype)
    if not strips.run_rows(potentials, index, responsibilities.ravel(), sums):
        return None
    return sums.smoothed(strips, responsibilities)


def sweep(
    start: Floats,
    transitions: Floats,
    numbers: Numbers,
    offsets: Integers,
    *,
    squares: int = False,
    n_threads: int = 1,
    tile: int | None = None,
) -> tuple[Smoothed, Floats] | None:
    """Compute potentials, forward-backward and sums of products at once, in single precision.

    Returns the expectations, without responsibilities, and the sums, shape (P, K).  None if edges
    of tiles do not meet, a number is missing, or single precision is not enough.
    """
    if not numbers.single.are_enough_for(numbers.values, numbers.location):
        return None
    nothing = np.empty((0, len(start)), np.float32)
    potentials = Potentials(start, transitions, nothing)
    strips = _Strips(potentials, len(numbers.values), offsets, n_threads, tile)
    sums = _Sums(strips.n_units, strips.n_states, squares=squares, n_pairs=len(numbers.pairs))
    if not strips.run(_NO_TABLE, numbers.arguments(), True, nothing.ravel(), sums, numbers.pairs):
        return None
    return sums.smoothed(strips, nothing), sums.moments.sum(axis=0)


def log_normalizers(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    n_threads: int = 1,
    tile: int | None = None,
) -> Floats | None:
    """Compute log Z of every sequence; None if edges of tiles do not meet."""
    strips = _Strips(potentials, len(index), offsets, n_threads, tile)
    return strips.log_z if strips.run_rows(potentials, index) else None


class _Sums:
    """What units sum, each in a place of its own."""

    def __init__(
        self,
        n_units: int,
        n_states: int,
        *,
        squares: int,
        n_pairs: int = 0,
        n_table_rows: int = 0,
    ) -> None:
        side = n_states if squares else 0
        self.every = max(1, int(squares))
        # Every sequence adds to these.  Units have lines of memory of their own, which otherwise
        # would go to and fro between cores.
        self.start = aligned((n_units, padded_states(n_states)), np.float64, zeros=True)
        self.start_squares = aligned((n_units, padded_states(side)), np.float64, zeros=True)
        self.transitions = np.zeros((n_units, n_states * n_states))
        self.row_squares = np.zeros((n_units, side))
        self.pair_squares = np.zeros((n_units, side * side))
        self.moments = np.zeros((n_units, n_pairs, n_states))
        self.n_table_rows = n_table_rows
        n_tables = 4 if n_table_rows <= _FEW_ROWS else 1  # see `strip_rows.add_block`
        length = n_tables * n_table_rows * padded_states(n_states)
        self.table = aligned((n_units, length), np.float64, zeros=True)
        self.arrays = (
            self.start,
            self.transitions,
            self.start_squares,
            self.pair_squares,
            self.row_squares,
        )

    def smoothed(self, strips: _Strips, responsibilities: Floats) -> Smoothed:
        """Return the expectations of a batch."""
        theta = strips.transitions.astype(np.float64)
        counts = times_transitions(_total(self.transitions).reshape(theta.shape), theta)
        squared = None
        if self.pair_squares.size:
            products = _total(self.pair_squares).reshape(theta.shape)
            found = times_transitions(products, theta * theta)
            squared = Squares(
                _total(self.start_squares)[: strips.n_states],
                # A sum that overflowed belongs to pairs that are as good as certain.
                np.fmax(np.fmin(found, counts), 0.0),
                _total(self.row_squares),
            )
        return Smoothed(
            strips.log_z,
            _total(self.start)[: strips.n_states],
            counts,
            responsibilities,
            squared,
            row_sums=self.row_sums(strips.n_states, strips.dtype),
        )

    def row_sums(self, n_states: int, dtype: Any) -> Floats | None:
        """Return the responsibilities summed by row of the table, if they were."""
        if not self.n_table_rows:
            return None
        tables = self.table.reshape(-1, self.n_table_rows, padded_states(n_states))
        total = tables.sum(axis=0) if len(tables) > 1 else tables[0]
        return total[:, :n_states].astype(dtype)


def _total(parts: Floats) -> Floats:
    """Return the sum over units."""
    return parts[0] if len(parts) == 1 else parts.sum(axis=0)


class _Strips:
    """The arguments of `strip_units` for a batch."""

    def __init__(
        self,
        potentials: Potentials,
        n_steps: int,
        offsets: Integers,
        n_threads: int,
        tile: int | None,
    ) -> None:
        self.n_states = n_states = len(potentials.start)
        self.n_steps, self.n_threads = n_steps, n_threads
        self.dtype = dtype = potentials.emissions.dtype
        self.tile = tile = tile or tile_length(n_steps)
        n_strips = -(-n_steps // (tile * WIDTH))
        self.n_units = min(n_strips, _MAX_UNITS)
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.log_z = np.zeros(len(offsets) - 1)
        self.sequences = np.empty(n_strips * WIDTH, np.int64)
        self.starts = np.zeros(-(-n_steps // STEPS), np.uint16)
        self.longest = prepare(self.offsets, tile, self.sequences, self.starts)
        self.parts = np.zeros((2, n_strips * WIDTH)), np.full((2, n_strips * WIDTH), -1)
        self.edges = np.zeros((4, n_strips * WIDTH, n_states))
        self.limits = _TOLERANCE[dtype.itemsize], _FLOOR[dtype.itemsize]
        self.start = np.ascontiguousarray(potentials.start, dtype)
        self.transitions = np.ascontiguousarray(potentials.transitions, dtype)

    def run_rows(
        self,
        potentials: Potentials,
        index: Integers,
        responsibilities: Floats | None = None,
        sums: _Sums | None = None,
    ) -> bool:
        """Compute everything, or log Z alone, from rows of a table of potentials."""
        emissions, index = potentials.emissions, np.asarray(index, dtype=np.int32)
        # Rows of consecutive steps are read as they are.
        is_dense = emissions.shape == (len(index), self.n_states) and is_consecutive(index)
        rows = np.ascontiguousarray(emissions) if is_dense else padded_table(potentials)
        table = index, rows.ravel(), 0 if is_dense else padded_states(self.n_states)
        backward = responsibilities is not None
        if responsibilities is None:
            responsibilities = np.empty(0, self.dtype)
        sums = sums or _Sums(self.n_units, 0, squares=False)
        if not self.run(table, None, backward, responsibilities, sums, _NO_PAIRS):
            return False
        add_scales(
            self.log_z,
            potentials.log_scale,
            index,
            self.offsets,
            is_dense=is_dense,
            n_threads=self.n_threads,
        )
        return True

    def run(
        self,
        table: tuple[Any, ...],
        numbers: tuple[Any, ...] | None,
        backward: bool,
        responsibilities: Floats,
        sums: _Sums,
        pairs: NDArray[np.int64],
    ) -> bool:
        """Compute everything; False if an edge does not meet its neighbour, or underflows."""
        pairs = np.ascontiguousarray(pairs, dtype=np.int64)
        rest = backward, responsibilities, sums.every, *sums.arrays, pairs, sums.moments, sums.table
        n_columns = 0 if numbers is None else len(numbers[1])
        room = strip_room(self.n_states, self.tile, self.dtype, n_columns, len(pairs))
        self._units = room.units(strip_units)
        walks = np.full(2, -(-self.longest // STEPS) * STEPS if self.longest <= _SHORT else 0)
        if len(self.sequences) >= _WORTH_PROBING * WIDTH and not walks.any():
            self._call(1, table, numbers, walks, True, *rest)
            # Half of what was found is enough there, and half as much again for other places.
            walks[:] = -(-3 * walks // (4 * STEPS)) * STEPS
        if not self._call(self.n_units, table, numbers, walks, False, *rest):
            return False
        if self._meet(backward):
            return True
        if not walks.any():
            return False
        # Elsewhere states are remembered longer than where the walks were found.
        for part in (self.log_z, *self.parts, *sums.arrays, sums.moments, sums.table):
            part.fill(0)
        self.parts[1].fill(-1)
        walks.fill(0)
        return self._call(self.n_units, table, numbers, walks, False, *rest) and self._meet(
            backward
        )

    def _call(self, n_units: int, table: Any, numbers: Any, *rest: Any) -> bool:
        """Run units; False if a total underflows, or numbers do not fit."""
        failed = np.zeros(1, np.int64)
        run_units(
            self._units,
            n_units,
            self.n_threads,
            self.sequences,
            self.starts,
            self.n_steps,
            self.tile,
            self.longest,
            self.start,
            self.transitions.ravel(),
            table,
            numbers,
            CONSTANTS[self.dtype.itemsize],
            *self.limits,
            self.log_z,
            *self.parts,
            self.edges,
            failed,
            *rest,
        )
        return not failed[0]

    def _meet(self, backward: bool) -> bool:
        """Whether the edges of all tiles meet."""
        return bool(
            finish(
                self.tile,
                self.n_steps,
                self.starts,
                self.edges,
                backward,
                *self.limits,
                self.log_z,
                *self.parts,
            )
        )
