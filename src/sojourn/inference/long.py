"""Predictions on long sequences: tiles side by side, with buffers that make their edges exact.

The states at the edge of a tile depend on steps far from it only through the buffer between.
Buffers are doubled until what lies beyond them makes no difference in the precision of the
computation, so that the results are those of the recursions over whole sequences, to rounding.
Memory is that of a group of tiles.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.families import Family
from sojourn.inference.backend import Chunk, LocalBackend
from sojourn.inference.local import chunk_potentials
from sojourn.inference.posterior import Posterior
from sojourn.kernels.arrays import to_host
from sojourn.kernels.durations import log_visits, n_copies
from sojourn.kernels.edges import TileKernel, written_out
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences
from sojourn.sources.tiles import Cuts, Steps

TILE_STEPS = 2**13
"""Steps of a tile: long beside the buffers that are usual."""

GROUP_STEPS = 2**16
"""Steps of the tiles that are computed together, at least."""

GROUP_NUMBERS = 2**20
"""Steps times states of these tiles, at least."""

SLOW_GROUP_STEPS = 2**20
"""The same where starting a computation takes long."""

LONG_STEPS = 4 * TILE_STEPS
"""Length from which a sequence is cut."""

_FIRST = 64  # steps of the smallest buffer
_TOLERANCE = {"float32": 2e-6, "float64": 1e-13}


def is_long(data: Steps) -> bool:
    """Whether a sequence is long enough to be cut."""
    return bool(np.diff(data.offsets).max() > LONG_STEPS)


@dataclass
class LongPrediction:
    """Results for tiles of sequences, in the order of the data.

    Attributes
    ----------
    posterior : Posterior
    family : Family
    data : Sequences, or a file of which runs of steps can be read
    backend : LocalBackend
    tile_steps : int
    """

    posterior: Posterior
    family: Family
    data: Steps
    backend: LocalBackend
    tile_steps: int = TILE_STEPS

    def __post_init__(self) -> None:
        self.posterior = self.backend.place(self.posterior)
        self._buffer = _FIRST
        least = SLOW_GROUP_STEPS if self.backend.slow_launches else GROUP_STEPS
        self._group = max(least, GROUP_NUMBERS // self.posterior.n_states)

    def log_likelihoods(self) -> Floats:
        """Return the log predictive likelihood of each sequence, (N,)."""
        offsets = np.asarray(self.data.offsets)
        found = np.zeros(len(offsets) - 1)
        for cuts, (chunk, factors, index), _ in self._groups(best=False):
            log_z = self.backend.log_normalizers(chunk, factors, index)
            of = np.searchsorted(offsets, cuts.begins, side="right") - 1
            np.add.at(found, of, log_z)
        return found

    def state_probabilities(self) -> Iterator[Floats]:
        """Yield the probabilities of the states of all steps, group by group."""
        for _, part, data in self._groups(best=False):
            rows = to_host(self.backend.forward_backward(*part).responsibilities)
            yield rows[data.counted_steps]

    def best_paths(self) -> Iterator[tuple[NDArray[np.int32], Floats, Integers]]:
        """Yield the best paths of all steps, group by group, and their log probabilities.

        Those are one number per tile, what its steps add given the state before them, and beside
        it the number of the sequence.
        """
        offsets, along = np.asarray(self.data.offsets), _Along()
        for cuts, (chunk, factors, index), data in self._groups(best=True):
            kernel = self.backend.tiles(chunk)
            assert kernel is not None
            path = to_host(kernel.best_copies(factors, index)) // n_copies(factors)
            begins = np.concatenate([[0], np.cumsum(cuts.ends - cuts.begins)[:-1]])
            starts = begins[cuts.begins == cuts.low]
            is_done = bool(cuts.ends[-1] == cuts.high[-1])
            own = to_host(index)[data.counted_steps]
            steps = along.log_joint(written_out(factors), own, path, starts, is_done)
            numbers = np.searchsorted(offsets, cuts.begins, side="right") - 1
            yield path, np.add.reduceat(steps, begins), numbers

    def _groups(self, *, best: bool) -> Iterator[tuple[Cuts, Any, Sequences]]:
        """Yield tiles of a group with their potentials, and with buffers that are large enough."""
        cuts = self._cuts()
        sizes = np.cumsum(cuts.ends - cuts.begins)
        first = 0
        while first < len(sizes):
            done = sizes[first - 1] if first else 0
            end = max(first + 1, int(np.searchsorted(sizes, done + self._group, side="right")))
            group = Cuts(*(part[first:end] for part in cuts))
            part, data = self._settled(group, best=best)
            yield group, part, data
            first = end

    def _cuts(self) -> Cuts:
        """Cut the sequences into tiles of equal length."""
        offsets = np.asarray(self.data.offsets, dtype=np.int64)
        lengths = np.diff(offsets)
        counts = -(-lengths // self.tile_steps)
        low, high = np.repeat(offsets[:-1], counts), np.repeat(offsets[1:], counts)
        number = np.arange(len(low)) - np.repeat(np.cumsum(counts) - counts, counts)
        begins = low + number * self.tile_steps
        return Cuts(begins, np.minimum(begins + self.tile_steps, high), low, high)

    def _settled(
        self, cuts: Cuts, *, best: bool
    ) -> tuple[tuple[Chunk, Potentials, Integers], Sequences]:
        """Read a group of tiles, with buffers that make their edges exact."""
        longest = int((cuts.high - cuts.low).max())
        buffer = max(_FIRST, self._buffer // 2) + self.family.past
        numbers = np.arange(len(cuts.begins))
        while True:
            data = cuts.pieces(numbers, buffer, self.data)
            part = self._potentials(data)
            kernel: TileKernel | None = self.backend.tiles(part[0])
            assert kernel is not None
            dtype = self.backend.dtype or str(self.posterior.emissions.dtype)
            is_settled = buffer >= longest or kernel.are_settled(
                part[1], part[2], _TOLERANCE[dtype], best=best
            )
            if is_settled:
                self._buffer = buffer
                return part, data
            buffer *= 2

    def _potentials(self, data: Sequences) -> tuple[Chunk, Potentials, Integers]:
        """Return a group as one chunk, with its potentials."""
        posterior, family, backend = self.posterior, self.family, self.backend
        chunk = backend.as_chunk(family, data)
        means = posterior.transitions.means(posterior.counts)
        return next(chunk_potentials(posterior, family, [chunk], means, backend, collapsed=True))


class _Along:
    """The log probability of paths and observations, with the paths a group of steps at a time."""

    def __init__(self) -> None:
        self._open = np.zeros(0, np.int32)  # steps before the group: the visit that goes on

    def log_joint(
        self,
        potentials: Potentials,
        index: Integers,
        path: NDArray[np.int32],
        starts: NDArray[np.int64],
        is_done: bool,
    ) -> Floats:
        """Return what each step adds.

        Where states last, the most probable copies count, and what a visit adds is at its end, or
        at the first step after it if that is in a later group.

        Parameters
        ----------
        path : (T,) integer array
            States of the steps.
        starts : integer array
            Steps that begin a sequence.
        is_done : bool
            Whether the last step ends one.
        """
        start, rows, table = (to_host(part).astype(np.float64) for part in potentials[:3])
        with np.errstate(divide="ignore"):
            start, rows, steps = np.log(start), np.log(rows), np.log(table[index, path])
        if potentials.log_scale is not None:
            steps += to_host(potentials.log_scale)[index]
        steps[starts] += start[path[starts]]
        n_open, path = len(self._open), np.concatenate([self._open, path])
        first = np.zeros(len(path) + 1, np.bool_)
        first[n_open + starts] = True
        first[-1] = is_done
        if potentials.durations is None:
            follows = np.flatnonzero(~first[1:-1])
            steps[follows + 1 - n_open] += rows[path[follows], path[follows + 1]]
            self._open = path[-1:] if not is_done else path[:0]
            return np.asarray(steps)
        changes = first[:-1].copy()
        changes[1:] |= path[1:] != path[:-1]
        changes[0] = True
        at = np.append(np.flatnonzero(changes), len(path))
        states, ends = path[at[:-1]], at[1:]
        whole = ~first[ends]
        seen = len(states) - (not is_done)  # the last visit may go on
        each = log_visits(potentials.durations, states[:seen], np.diff(at)[:seen], whole[:seen])
        left = np.flatnonzero(whole[:seen])
        each[left] += rows[states[left], states[left + 1]]
        np.add.at(steps, np.maximum(ends[:seen] - 1 - n_open, 0), each)
        self._open = path[at[seen] :]
        return np.asarray(steps)
