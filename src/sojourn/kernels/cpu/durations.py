"""States that last, on the CPU: `copies` has the compiled part of forward-backward.

A step costs O(K² + copies): the (K, K) products of exits alone, and a few operations for every
copy that is ever entered.  The first copy of a state is the first one whose entry is not zero.

Groups of `LANES` sequences are shared out to at most `_MAX_UNITS` units, each with its own sums, so
that the number of threads does not change a bit.

Memory per thread: one chunk of vectors, at most `_CHUNK_ELEMENTS` numbers, or two steps of a group
if that is more, and as many vectors as a step has for every chunk of the longest sequence.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from sojourn.kernels import reference
from sojourn.kernels.cpu.copies import copy_units
from sojourn.kernels.cpu.lanes import LANES
from sojourn.kernels.cpu.narrow import CONSTANTS
from sojourn.kernels.cpu.padding import add_scales, padded_table
from sojourn.kernels.cpu.underflow import add_underflowed, recompute_normalizers
from sojourn.kernels.interface import (
    DurationCounts,
    Floats,
    Integers,
    Potentials,
    Smoothed,
    Squares,
    padded_states,
)
from sojourn.kernels.ragged import longest_first
from sojourn.kernels.threads import run_units, take_unit

_MAX_UNITS = 64
_UNIT_ELEMENTS = 2**25  # numbers in all units' sums together
_CHUNK_ELEMENTS = 2**19
"""Numbers of forward vectors that a thread keeps.  With fewer, more chunks are computed twice; more
do not stay in cache.  From `python -m benchmarks.durations`, on sequences of 50 to 1,000 steps."""


def forward_backward(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    squares: bool = False,
    order: Integers | None = None,
    n_threads: int = 1,
    chunk_elements: int = _CHUNK_ELEMENTS,
) -> Smoothed:
    """Compute posterior expectations of every sequence where states last; all squares are exact.

    `chunk_elements` (numbers of forward vectors that a thread keeps) changes the memory alone.
    """
    copies = _Copies(potentials, index, offsets, order, chunk_elements)
    responsibilities = np.empty((len(index), padded_states(copies.n_states)), copies.dtype)
    totals = copies.run(n_threads, responsibilities, squares=squares)
    smoothed = copies.smoothed(totals, responsibilities, squares=squares)
    failed = np.flatnonzero(np.isnan(copies.log_z))
    if len(failed):
        add_underflowed(smoothed, failed, potentials, index, offsets)
    return smoothed


def log_normalizers(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> Floats:
    """Compute log Z of every sequence by the forward recursion alone."""
    if potentials.edges is not None:  # whose factors after the last step count
        return forward_backward(potentials, index, offsets, n_threads=n_threads).log_normalizers
    copies = _Copies(potentials, index, offsets, None, _CHUNK_ELEMENTS)
    copies.run(n_threads, None, squares=False)
    recompute_normalizers(copies.log_z, potentials, index, offsets)
    return copies.log_z


class _Copies:
    """The arguments of `copy_units` for a batch."""

    def __init__(
        self,
        potentials: Potentials,
        index: Integers,
        offsets: Integers,
        order: Integers | None,
        chunk_elements: int,
    ) -> None:
        assert potentials.durations is not None
        entry, stay, advance = potentials.durations
        self.dtype = dtype = potentials.emissions.dtype
        self.n_states, self.n_copies = n_states, n_copies = entry.shape
        used = np.where((entry > 0.0).any(axis=1), n_copies - (entry > 0.0).argmax(axis=1), 1)
        firsts = np.cumsum(used) - used
        # The copies in the order of the kernel, from the last one of a state backwards.
        states = np.repeat(np.arange(n_states), used)
        self.places = states, n_copies - 1 - (np.arange(used.sum()) - firsts[states])
        self.entry = np.ascontiguousarray(entry[self.places], dtype)
        four, wide = -(-n_states // 4) * 4, -(-n_states // LANES) * LANES
        rest = 2 * four + wide + np.cumsum(used - 1) - (used - 1)
        several = (entry > 0.0).sum(axis=1) > 1
        self.sizes = (n_states, four, wide, len(states), 2 * four + wide + len(states) - n_states)
        self.stay, self.advance = (np.ascontiguousarray(part, dtype) for part in (stay, advance))
        self.matrix = np.zeros((four, four), dtype)
        self.matrix[:n_states, :n_states] = self.advance[:, None] * potentials.transitions
        self.index, self.offsets = np.asarray(index, np.int32), np.asarray(offsets, np.int64)
        self.log_scale = potentials.log_scale
        self.log_z = np.empty(len(offsets) - 1)
        self.n_sums = 2 * four**2 + 5 * n_states + len(states)
        n_groups = -(-len(self.log_z) // LANES)
        self.n_units = max(1, min(n_groups, _MAX_UNITS, _UNIT_ELEMENTS // self.n_sums))
        self.chunk = max(1, chunk_elements // (self.sizes[-1] * LANES))
        self.potentials = (
            np.ascontiguousarray(potentials.start, dtype),
            self.matrix.ravel(),
            self.stay,
            self.advance,
            self.entry,
            padded_table(potentials).ravel(),
            padded_states(n_states),
            CONSTANTS[dtype.itemsize],
        )
        self.edges = potentials.edges
        self.around = (np.empty((0, len(states))),) * 2
        if self.edges is not None:
            before, after = (
                np.ascontiguousarray(part[:, *self.places], np.float64) for part in self.edges[1:]
            )
            before[~self.edges.inner] = np.nan
            self.around = before, after
        self.layout = np.stack([used, firsts, rest, several]).astype(np.int64)
        self.order = longest_first(offsets) if order is None else np.asarray(order, np.int64)

    def run(self, n_threads: int, responsibilities: Any, *, squares: bool) -> Floats:
        """Compute everything, and return the sums; without room for responsibilities log Z."""
        backward = responsibilities is not None
        totals = np.zeros((self.n_units, self.n_sums if backward else 0))
        n = 0 if self.edges is None else len(self.log_z)
        self.ends = np.zeros((2, n, len(self.entry)))
        run_units(
            copy_units,
            self.n_units,
            n_threads,
            self.order,
            self.offsets,
            self.index,
            self.chunk,
            self.sizes,
            self.layout,
            *self.potentials,
            *self.around,
            self.log_z,
            backward,
            squares,
            responsibilities if backward else np.empty((0, 0), self.dtype),
            totals,
            self.ends,
        )
        add_scales(
            self.log_z,
            self.log_scale,
            self.index,
            self.offsets,
            is_dense=False,
            n_threads=n_threads,
        )
        summed: Floats = totals.sum(axis=0)
        return summed

    def smoothed(self, totals: Floats, responsibilities: Floats, *, squares: bool) -> Smoothed:
        """Multiply sums by the potentials that they have in common."""
        k, four, _, n_copies, _ = self.sizes
        theta = self.matrix.astype(np.float64)[:k, :k]
        cells, totals = totals[: 2 * four**2].reshape(2, four, four), totals[2 * four**2 :]
        exits = cells[0, :k, :k] * theta
        stays, inner, row_squares = totals[: 3 * k].reshape(3, k)
        entries = np.zeros((k, self.n_copies))
        entries[self.places] = totals[3 * k : 3 * k + n_copies] * self.entry
        start, start_squares = totals[3 * k + n_copies :].reshape(2, k)
        squared = None
        if squares:
            found = cells[1, :k, :k] * theta**2
            # A sum that overflowed belongs to pairs that are as good as certain.
            pairs = np.fmax(np.fmin(found, exits), 0.0)
            squared = Squares(start_squares.copy(), pairs, row_squares.copy())
        counts = DurationCounts(
            entries, stays * self.stay, inner * self.advance + exits.sum(axis=1)
        )
        ends = None
        if self.edges is not None:
            ends = np.zeros((2, len(self.log_z), k, self.n_copies))
            ends[:, :, *self.places] = self.ends
        rows = responsibilities[:, :k]
        return Smoothed(self.log_z, start.copy(), exits, rows, squared, counts, ends)


def viterbi(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> tuple[Floats, Integers]:
    """Find the best path of every sequence through the copies, in float64, and its states.

    Memory per thread: a byte per copy and two per state, for every step of the longest sequence.
    """
    assert potentials.durations is not None
    assert potentials.edges is None, "of whole sequences"
    start, transitions, emissions = reference.logarithms(potentials)
    with np.errstate(divide="ignore"):
        entry, stay, advance = (np.log(part.astype(np.float64)) for part in potentials.durations)
    best = np.empty(len(offsets) - 1)
    path = np.empty(len(index), dtype=np.int32)
    run_units(
        _viterbi_units,
        len(best),
        n_threads,
        longest_first(offsets),
        np.asarray(offsets, np.int64),
        np.asarray(index, np.int32),
        start,
        advance[:, None] + transitions,
        emissions,
        entry,
        stay,
        advance,
        best,
        path,
    )
    return best, path


@njit(nogil=True, cache=True)
def _viterbi_units(
    counter, n_units, order, offsets, index, start, leave, emissions, entry, stay, advance, best,
    path,
):  # fmt: skip
    """Run Viterbi's algorithm on copies; a unit is a sequence.

    Of equal scores that of the lower copy counts, and of the lower state.
    """
    n_states, n_copies = entry.shape
    longest = offsets[order[0] + 1] - offsets[order[0]]
    how = np.empty((longest, n_states, n_copies), np.uint8)
    origin = np.empty((longest, n_states), np.uint16)
    score = np.empty((n_states, n_copies))
    entering, best_origin = np.empty(n_states), np.empty(n_states, np.int64)
    unit = take_unit(counter)
    while unit < n_units:
        n = order[unit]
        begin = offsets[n]
        steps = offsets[n + 1] - begin
        for k in range(n_states):
            for j in range(n_copies):
                score[k, j] = start[k] + entry[k, j] + emissions[index[begin], k]
        for t in range(1, steps):
            for k in range(n_states):
                entering[k] = -np.inf
                best_origin[k] = 0
            for k in range(n_states):
                last = score[k, n_copies - 1]
                for other in range(n_states):
                    candidate = last + leave[k, other]
                    better = candidate > entering[other]
                    entering[other] = candidate if better else entering[other]
                    best_origin[other] = k if better else best_origin[other]
            for k in range(n_states):
                origin[t, k] = best_origin[k]
                weight = emissions[index[begin + t], k]
                for j in range(n_copies - 1, -1, -1):
                    value, choice = score[k, j] + stay[k], 0
                    if j > 0 and score[k, j - 1] + advance[k] >= value:
                        value, choice = score[k, j - 1] + advance[k], 1
                    entered = entering[k] + entry[k, j]
                    if entered > value or (entered == value and best_origin[k] < k):
                        value, choice = entered, 2
                    score[k, j] = value + weight
                    how[t, k, j] = choice
        flat = np.argmax(score)
        state, copy = flat // n_copies, flat % n_copies
        best[n] = score[state, copy]
        for t in range(steps - 1, -1, -1):
            path[begin + t] = state
            if t > 0:
                choice = how[t, state, copy]
                if choice == 1:
                    copy -= 1
                elif choice == 2:
                    state, copy = np.int64(origin[t, state]), n_copies - 1
        unit = take_unit(counter)
