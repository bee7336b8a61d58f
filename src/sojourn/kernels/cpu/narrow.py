"""Forward-backward for few states: `strips` has the compiled part.

Strips are shared out to at most `_MAX_UNITS` units, as blocks are in `recursions`: tiles follow
from the sizes alone, and the number of threads does not change a bit.

Memory per thread: the forward vectors of a strip, `_LONGEST_TILE` steps of `WIDTH` tiles at most.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.kernels.cpu.padding import add_scales, padded_table
from sojourn.kernels.cpu.steps import STEPS, WIDTH
from sojourn.kernels.cpu.strips import (
    finish,
    is_consecutive,
    prepare,
    strip_units,
)
from sojourn.kernels.interface import (
    Floats,
    Integers,
    Potentials,
    Smoothed,
    Squares,
    padded_states,
)
from sojourn.kernels.threads import run_units

_MAX_UNITS = 64
_STRIPS = 8  # strips of a batch that is not long
_SHORTEST_TILE = 512  # steps of a tile, where there are enough for one strip
_LONGEST_TILE = 720  # as few as leave the walks to a tile short beside it: vectors stay in cache
_FEW_STRIPS = 2  # strips up to which a block more in every tile costs more than it saves
CONSTANTS = {  # the smallest total that is sound, and what keeps squares in range: see `steps`
    np.dtype(kind).itemsize: np.array([np.finfo(kind).tiny * 1e6, 2.0**32, 2.0**-32, 2.0**95], kind)
    for kind in (np.float32, np.float64)
}
_TOLERANCE = {4: 1e-5, 8: 1e-12}  # by which walks and edges may differ, by bytes of a number
_FLOOR = {4: 1e-30, 8: 1e-250}  # numbers below this are as good as zero


def tile_length(n_steps: int) -> int:
    """Return the length of tiles, a multiple of `STEPS`, from the number of steps.

    With more than a few strips it is an odd multiple: otherwise the tiles of a strip begin in few
    lines of the first cache, and drive each other out of it.  On an AMD EPYC, one core, a million
    steps, ns a step with tiles of 1,024 and of 720 steps: 2 states 5.5 and 4.7, 5 states 12.3 and
    11.0, 16 states 43.7 and 39.5; 16,384 steps, 5 states, 512 and 528 steps: 10.5 and 12.1.

    Examples
    --------
    >>> tile_length(1_000_000)
    720
    """
    n_strips = max(1, min(_STRIPS, n_steps // (WIDTH * _SHORTEST_TILE)))
    n_strips = max(n_strips, -(-n_steps // (WIDTH * _LONGEST_TILE)))
    n_blocks = -(-n_steps // (n_strips * WIDTH * STEPS))
    return (n_blocks | (n_strips > _FEW_STRIPS)) * STEPS


def smooth(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    squares: bool = False,
    n_threads: int = 1,
    tile: int | None = None,
) -> Smoothed | None:
    """Compute what `Kernel.forward_backward` does; None if edges of tiles do not meet.

    `tile`, the length of tiles, changes rounding alone.
    """
    strips = _Strips(potentials, index, offsets, tile)
    n_states, n_units = strips.n_states, strips.n_units
    transitions = np.zeros((n_units, n_states * n_states))
    start = np.zeros((n_units, n_states))
    side = n_states if squares else 0
    pairs = np.zeros((n_units, side * side))
    start_squares, row_squares = np.zeros((2, n_units, side))
    responsibilities = np.empty(len(index) * n_states, strips.dtype)
    sums = responsibilities, start, transitions, start_squares, pairs, row_squares
    if not strips.run(n_threads, True, *sums):
        return None
    theta = np.asarray(potentials.transitions, strips.dtype).astype(np.float64)
    counts = transitions.sum(axis=0).reshape(theta.shape) * theta
    squared = None
    if squares:
        found = pairs.sum(axis=0).reshape(theta.shape) * theta**2
        squared = Squares(
            start_squares.sum(axis=0),
            # A sum that overflowed belongs to pairs that are as good as certain.
            np.fmax(np.fmin(found, counts), 0.0),
            row_squares.sum(axis=0),
        )
    rows = responsibilities.reshape(len(index), n_states)
    return Smoothed(strips.log_z, start.sum(axis=0), counts, rows, squared)


def log_normalizers(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    n_threads: int = 1,
    tile: int | None = None,
) -> Floats | None:
    """Compute log Z of every sequence; None if edges of tiles do not meet."""
    strips = _Strips(potentials, index, offsets, tile)
    vectors = np.empty((1, 0))
    nothing = np.empty(0, strips.dtype)
    found = strips.run(n_threads, False, nothing, *(vectors,) * 5)
    return strips.log_z if found else None


class _Strips:
    """The arguments of `strip_units` for a batch."""

    def __init__(
        self, potentials: Potentials, index: Integers, offsets: Integers, tile: int | None
    ) -> None:
        self.n_states = n_states = len(potentials.start)
        emissions = potentials.emissions
        self.dtype = dtype = emissions.dtype
        self.tile = tile = tile or tile_length(len(index))
        n_strips = -(-len(index) // (tile * WIDTH))
        self.n_units = min(n_strips, _MAX_UNITS)
        self.index = np.asarray(index, dtype=np.int32)
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self.log_scale = potentials.log_scale
        self.log_z = np.zeros(len(offsets) - 1)
        self.sequences = np.empty(n_strips * WIDTH, np.int64)
        self.starts = np.zeros(-(-len(index) // STEPS), np.uint16)
        self.longest = prepare(self.offsets, tile, self.sequences, self.starts)
        width = padded_states(n_states)
        # Rows of consecutive steps are read as they are.
        is_dense = emissions.shape == (len(index), n_states) and is_consecutive(self.index)
        self.row_width = 0 if is_dense else width
        self.emissions = np.ascontiguousarray(emissions) if is_dense else padded_table(potentials)
        self.parts = np.zeros((2, n_strips * WIDTH)), np.full((2, n_strips * WIDTH), -1)
        self.edges = np.zeros((4, n_strips * WIDTH, n_states))
        self.limits = _TOLERANCE[dtype.itemsize], _FLOOR[dtype.itemsize]
        self.potentials = (
            np.ascontiguousarray(potentials.start, dtype),
            np.ascontiguousarray(potentials.transitions, dtype).ravel(),
        )

    def run(self, n_threads: int, backward: bool, *sums: Any) -> bool:
        """Compute everything; False if an edge does not meet its neighbour, or underflows."""
        failed = np.zeros(1, np.int64)
        run_units(
            strip_units,
            self.n_units,
            n_threads,
            self.sequences,
            self.starts,
            self.index,
            self.tile,
            self.longest,
            *self.potentials,
            self.emissions.ravel(),
            self.row_width,
            CONSTANTS[self.dtype.itemsize],
            *self.limits,
            self.log_z,
            *self.parts,
            self.edges,
            failed,
            backward,
            *sums,
        )
        met = not failed[0] and finish(
            self.tile,
            len(self.index),
            self.starts,
            self.edges,
            backward,
            *self.limits,
            self.log_z,
            *self.parts,
        )
        if met:
            is_dense = self.row_width == 0
            add_scales(
                self.log_z,
                self.log_scale,
                self.index,
                self.offsets,
                is_dense=is_dense,
                n_threads=n_threads,
            )
        return bool(met)
