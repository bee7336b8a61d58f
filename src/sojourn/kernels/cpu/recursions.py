"""Forward-backward on blocks of sequences: `blocks` has the compiled part.

Few states are left to `narrow`, and many where there are too few sequences to fill blocks.

Blocks belong to `_STRANDS` strands, in which sums are added in their order: the number of threads
does not change a bit.  States are padded with zeros to a multiple of `PAD`.

Memory per thread: one chunk of forward vectors and one of potentials, at most `_CHUNK_ELEMENTS`
numbers each, or one step of a block if that is more.  Longer sequences keep the vectors at chunk
boundaries alone and compute a chunk again on the way back, which adds a third to the work.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.cpu import durations, narrow
from sojourn.kernels.cpu.block_sums import StrandSums
from sojourn.kernels.cpu.blocks import LINE_NUMBERS, smooth_units
from sojourn.kernels.cpu.padding import padded_table
from sojourn.kernels.cpu.sweeps import Numbers
from sojourn.kernels.cpu.symbols import (
    EVERY_ROW,
    LONG_SUM,
    with_table,
)
from sojourn.kernels.cpu.underflow import (
    add_expectations,
    add_underflowed,
    leads_one_way,
    recompute_normalizers,
    times_transitions,
)
from sojourn.kernels.interface import (
    NARROW,
    SQUARE_EVERY,
    CountRows,
    Floats,
    Integers,
    Potentials,
    Smoothed,
    Squares,
    aligned,
    padded_states,
)
from sojourn.kernels.ragged import flat_steps, longest_first
from sojourn.kernels.threads import run_units

_STRANDS = 2  # each has sums of its own: more take more memory, and longer to be added
_MIN_BLOCKS = 8
_BLOCK_SUMS = 2**25  # numbers in the sums of all blocks: there is room for them, rarely touched
_MOST_ALONE = 28  # states for which `narrow` is faster where there are steps for two strips,
_MOST_SWEPT = 100  # and where potentials and sums of emissions are computed in strips, too
_FULL_ROWS = 8  # sequences that a block needs to be as fast as it can be
_MOST_WITH_FEW = 32  # states for which `narrow` is faster than blocks with fewer sequences
_MOST_WITH_LONG = 256  # states for which it is where these are long
_STEPS_A_BLOCK = 2**10  # steps of long ones, for every block that there would be
_ALL_SQUARES = 12  # states up to which the squares of pairs come from every step
_MOST_ALL_SQUARES = 32  # states up to which they do where all are asked for
_CHUNK_ELEMENTS = 2**22  # numbers of forward vectors that a thread keeps


def forward_backward(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    squares: int = False,
    summed: bool = False,
    order: Integers | None = None,
    n_threads: int = 1,
) -> Smoothed:
    """Compute posterior expectations of every sequence.

    Equals `reference.forward_backward` to the rounding of ``potentials.emissions.dtype``, and has
    its arguments.  With more than 32 states, or more than 12 where that is enough, the squares of
    pairs are estimates: those that are not of the most probable states come from one step in eight,
    always the same steps of a batch.
    `order` (the sequences, longest first) is found where not given; `n_threads`
    does not change a bit.
    """
    if potentials.durations is not None:
        potentials = with_table(potentials, n_threads=n_threads)
        return durations.forward_backward(
            potentials, index, offsets, squares=bool(squares), order=order, n_threads=n_threads
        )
    squares = _square_every(len(potentials.start), squares)
    if _suits_strips(len(potentials.start), len(index), len(offsets) - 1):
        potentials = with_table(potentials, n_threads=n_threads)
        smoothed = narrow.smooth(
            potentials, index, offsets, squares=squares, summed=summed, n_threads=n_threads
        )
        if smoothed is not None:
            return smoothed
    return smooth(
        potentials,
        index,
        offsets,
        squares=squares,
        summed=summed,
        order=order,
        n_threads=n_threads,
    )


def sweep(
    start: Floats,
    transitions: Floats,
    numbers: Numbers,
    offsets: Integers,
    *,
    squares: int = False,
    n_threads: int = 1,
) -> tuple[Smoothed, Floats] | None:
    """Compute potentials, posterior expectations and sums of products of numbers at once.

    Returns the expectations, without responsibilities, and the sums, shape (P, K); None where the
    parts have to be computed one after another.  `n_threads` does not change a bit.
    """
    n_steps, n_sequences = len(numbers.values), len(offsets) - 1
    if not _suits_strips(len(start), n_steps, n_sequences, sweep=True):
        return None
    squares = _square_every(len(start), squares)
    return narrow.sweep(start, transitions, numbers, offsets, squares=squares, n_threads=n_threads)


def _square_every(n_states: int, squares: int) -> int:
    """Return of how many steps one has the squares of improbable events; 0 without squares."""
    if not squares:
        return 0
    all_up_to = _MOST_ALL_SQUARES if squares == 1 else _ALL_SQUARES
    return 1 if n_states <= all_up_to else SQUARE_EVERY


def _suits_strips(n_states: int, n_steps: int, n_sequences: int, *, sweep: bool = False) -> bool:
    """Whether `narrow` is faster: for few states, or where blocks would have few sequences.

    A strip has as many rows however few the sequences are; it is work for one core, and begins with
    walks.  Measured by `benchmarks.strips`; `benchmarks/README.md` has the tables.
    """
    if n_states <= NARROW:
        return True
    if n_states <= (_MOST_SWEPT if sweep else _MOST_ALONE) and n_steps >= narrow.TWO_STRIPS:
        return True
    if n_sequences >= _MIN_BLOCKS * _FULL_ROWS:
        return False
    if n_states <= _MOST_WITH_FEW:
        return True
    n_blocks = min(n_sequences, _MIN_BLOCKS)
    return n_states <= _MOST_WITH_LONG and n_steps >= _STEPS_A_BLOCK * n_blocks


def log_normalizers(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> Floats:
    """Compute log Z of every sequence, by the forward recursion alone where that is enough."""
    if potentials.durations is not None:
        return durations.log_normalizers(potentials, index, offsets, n_threads=n_threads)
    if leads_one_way(potentials.transitions):
        # Forwards alone it would not be seen that a state has vanished that turns out to matter.
        return forward_backward(potentials, index, offsets, n_threads=n_threads).log_normalizers
    if _suits_strips(len(potentials.start), len(index), len(offsets) - 1):
        found = narrow.log_normalizers(potentials, index, offsets, n_threads=n_threads)
        if found is not None:
            return found
    blocks = _Blocks(potentials, index, offsets)
    nothing = np.empty((0, blocks.width), blocks.dtype)
    blocks.run(n_threads, nothing, nothing, np.empty((_STRANDS, 0, blocks.width)))
    recompute_normalizers(blocks.log_z, potentials, index, offsets)
    return blocks.log_z


def smooth(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    squares: int = False,
    summed: bool = False,
    order: Integers | None = None,
    n_threads: int = 1,
    block_rows: int | None = None,
    chunk_elements: int = _CHUNK_ELEMENTS,
) -> Smoothed:
    """Compute what `forward_backward` does, in blocks of a size that can be chosen.

    `block_rows` (sequences in a block) changes the last bits alone, and `chunk_elements` (numbers
    of forward vectors that a thread keeps) the memory alone.  Of `squares` steps, one has the
    squares of improbable pairs; 1 makes all sums of squares exact.
    """
    blocks = _Blocks(potentials, index, offsets, order, block_rows, chunk_elements)
    n_states, width = blocks.n_states, blocks.width
    n_rows = blocks.row_sums() if summed else 0
    table_sums = aligned((_STRANDS * n_rows, width), blocks.dtype)
    responsibilities = aligned((len(index), width), blocks.dtype)
    # Rows are whole lines of memory, and cores share none.
    n_sums = _sum_rows(width, squares=bool(squares))
    sums = aligned((_STRANDS * n_sums, width), np.float64, zeros=True)
    by_strand = sums.reshape(_STRANDS, n_sums, width)
    every, weight = blocks.sampling(squares)
    has_sum = blocks.run(n_threads, responsibilities, table_sums, by_strand, every, weight)
    failed = np.flatnonzero(np.isnan(blocks.log_z))
    if len(failed) and n_rows:
        return smooth(
            potentials,
            index,
            offsets,
            squares=squares,
            order=order,
            n_threads=n_threads,
            block_rows=block_rows,
            chunk_elements=chunk_elements,
        )
    whole = np.add(sums[:n_sums], sums[n_sums:])
    counts, squared = blocks.counts(whole[:width]), None
    if squares:
        starts, rows = whole[width + 1 : width + 3, :n_states]
        squared = Squares(starts, blocks.squares(whole[width + 3 :], weight, counts), rows)
    smoothed = Smoothed(
        blocks.log_z,
        whole[width, :n_states],
        counts,
        responsibilities[: 0 if n_rows else None, :n_states],
        squared,
        row_sums=StrandSums(table_sums, has_sum, n_states, n_rows) if n_rows else None,
    )
    if len(failed):
        potentials = with_table(potentials, n_threads=n_threads)
        if blocks.dtype == np.float32:
            _add_in_double(smoothed, failed, potentials, index, offsets, squares, n_threads)
        else:
            add_underflowed(smoothed, failed, potentials, index, offsets)
    return smoothed


def _add_in_double(
    smoothed: Smoothed,
    failed: Integers,
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    squares: int,
    n_threads: int,
) -> None:
    """Compute sequences again that need more than single precision, and add them."""
    begins = np.asarray(offsets, dtype=np.int64)
    lengths = np.diff(begins)[failed]
    steps = flat_steps(begins[failed], lengths)
    rows, log_scale = index[steps], potentials.log_scale
    wide = Potentials(
        np.asarray(potentials.start, np.float64),
        np.asarray(potentials.transitions, np.float64),
        np.asarray(potentials.emissions[rows], np.float64),
        None if log_scale is None else log_scale[rows],
    )
    own = np.arange(len(rows), dtype=np.int32), np.concatenate([[0], np.cumsum(lengths)])
    found = smooth(wide, *own, squares=squares, n_threads=n_threads)
    smoothed.log_normalizers[failed] = found.log_normalizers
    smoothed.responsibilities[steps] = found.responsibilities
    add_expectations(smoothed, found)


def _sum_rows(width: int, *, squares: bool) -> int:
    """Return how many rows the sums of a block have: see `blocks`."""
    return 2 * width + 3 if squares else width + 1


class _Blocks:
    """The padded potentials of a batch, and how it is cut into blocks."""

    def __init__(
        self,
        potentials: Potentials,
        index: Integers,
        offsets: Integers,
        order: Integers | None = None,
        block_rows: int | None = None,
        chunk_elements: int = _CHUNK_ELEMENTS,
    ) -> None:
        n_sequences = len(offsets) - 1
        self.n_states = len(potentials.start)
        self.width = width = padded_states(self.n_states)
        self.dtype = np.dtype(potentials.emissions.dtype)
        if block_rows is None:
            # A deeper block amortises the traffic of a large transition matrix.
            most = 32 if width <= 128 else 64
            block_rows = max(1, min(most, n_sequences // _MIN_BLOCKS))
            # Many short sequences with very many states: fewer blocks, each with sums of its own.
            room = _sum_rows(width, squares=True) * width
            most_blocks = max(_MIN_BLOCKS, _BLOCK_SUMS // room)
            block_rows = max(block_rows, -(-n_sequences // most_blocks))
        self.block_rows = block_rows
        self.n_blocks = -(-n_sequences // block_rows)
        self.log_z = np.empty(n_sequences)
        start = np.zeros(width, self.dtype)
        start[: self.n_states] = potentials.start
        self.transitions = np.zeros((width, width), self.dtype)
        self.transitions[: self.n_states, : self.n_states] = potentials.transitions
        log_scale, counts = potentials.log_scale, self._counts_of(potentials)
        self.n_rows = len(counts.rows) or len(counts.table)
        self.arguments = (
            longest_first(offsets) if order is None else np.asarray(order, dtype=np.int64),
            np.asarray(offsets, dtype=np.int64),
            np.asarray(index, dtype=np.int32),
            block_rows,
            max(1, chunk_elements // (block_rows * width)),
            start,
            self.transitions,
            np.ascontiguousarray(self.transitions.T),
            *counts,
            np.zeros(0) if log_scale is None else np.asarray(log_scale, dtype=np.float64),
            self.log_z,
        )

    def run(
        self,
        n_threads: int,
        responsibilities: Floats,
        table_sums: Floats,
        sums: Floats,
        every: int = 1,
        weight: float = 1.0,
    ) -> NDArray[np.uint8]:
        """Smooth all blocks; where there is no room for sums, only find log Z.

        Returns which of the rows of the table have a sum.
        """
        n_blocks, (_, n_sums, _) = self.n_blocks, sums.shape
        arrivals = np.zeros(n_blocks, np.int64)
        arrivals[:_STRANDS] = 1
        has_sum = np.zeros(len(table_sums), np.uint8)
        n_left = n_blocks if n_threads > 1 else 0  # most of this room is never touched
        run_units(
            smooth_units,
            n_blocks,
            n_threads,
            np.zeros(_STRANDS * LINE_NUMBERS, np.int64),
            arrivals,
            *self.arguments,
            responsibilities,
            len(table_sums) == 0,
            sums,
            np.empty((n_left, n_sums, self.width)),
            table_sums,
            has_sum,
            every,
            weight,
        )
        return has_sum

    def row_sums(self) -> int:
        """Return how many rows of the table responsibilities are summed by as they come; or none.

        Not where a block takes several chunks, and long sums need double precision.
        """
        order, offsets, index, _, chunk, *_ = self.arguments
        is_one_chunk = offsets[order[0] + 1] - offsets[order[0]] <= chunk
        is_long = len(index) >= LONG_SUM * self.n_rows
        return self.n_rows if is_one_chunk and not is_long else 0

    def _counts_of(self, potentials: Potentials) -> CountRows:
        """Return potentials as counts; those that have been computed have no factors."""
        counts: Any = potentials.emissions
        if not isinstance(counts, CountRows):
            nothing = np.zeros(0, self.dtype)
            counts = CountRows(padded_table(potentials), EVERY_ROW, nothing[:, None], 1.0, nothing)
        return counts._replace(scale=self.dtype.type(counts.scale))

    def counts(self, products: Floats) -> Floats:
        """Σ_t α_{t−1}ᵀ ε_t, times Θ: expected transition counts."""
        k = self.n_states
        return times_transitions(products[:k, :k], self.transitions[:k, :k])

    def squares(self, products: Floats, weight: float, counts: Floats) -> Floats:
        """Σ_t (α_{t−1}²)ᵀ (ε_t²), times Θ²: between 0 and the counts."""
        k = self.n_states
        theta = self.transitions[:k, :k].astype(np.float64)
        found = times_transitions(products[:k, :k], weight * theta**2)
        # A sum that overflowed belongs to pairs that are as good as certain.
        return np.fmax(np.fmin(found, counts), 0.0)

    def sampling(self, every: int) -> tuple[int, float]:
        """Return of how many steps one is sampled for squares, and the weight of a sampled one."""
        if every <= 1:
            return 1, 1.0
        order, offsets, *_ = self.arguments
        lengths = (offsets[1:] - offsets[:-1])[order]
        # Of the steps t = 1, 2, ... of a sequence `blocks` takes the ones with
        # (t + block) % every == 1.
        n_sampled = ((lengths + _before_first(len(order), self.block_rows, every)) // every).sum()
        n_pairs = int(offsets[-1] - offsets[0]) - len(order)
        return every, max(1.0, float(n_pairs / max(1, n_sampled)))


@lru_cache(maxsize=8)
def _before_first(n_sequences: int, block_rows: int, every: int) -> Integers:
    """Return how many steps more, and every so many would be a sampled one, for each sequence."""
    first = -(np.arange(n_sequences) // block_rows) % every
    return every - 2 - first
