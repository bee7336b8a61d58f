"""Minibatches of tiles: long sequences, cut anew in every pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences
from sojourn.sources.base import Minibatches

WHOLE_STEPS = 2**18
"""Steps of a piece, with buffers, in which all tiles come if they are one minibatch."""

_STREAM = 2**34  # of random numbers, apart from those of other orders


class Steps(Protocol):
    """Sequences of which runs of steps can be taken: `Sequences`, or a file."""

    @property
    def offsets(self) -> NDArray[np.int64]:
        """Where each sequence begins, and the total number of steps."""

    def spans(
        self,
        begins: NDArray[np.int64],
        lengths: NDArray[np.int64],
        counted: NDArray[np.int64] | None = None,
    ) -> Sequences:
        """Return runs of steps as `Sequences.spans` does."""


class Spans(NamedTuple):
    """Runs of steps, without their content: what `Steps.spans` takes.

    Attributes
    ----------
    begins, lengths : (R,) integer arrays
        Flat position of the first step of each, and number of steps.
    counted : (R, 4) integer array
        Which of them count, as in `Sequences`.
    """

    begins: NDArray[np.int64]
    lengths: NDArray[np.int64]
    counted: NDArray[np.int64]


class Cuts(NamedTuple):
    """The tiles of a pass, in the order of the data.

    Attributes
    ----------
    begins, ends : (R,) integer arrays
        Flat positions of the first step of each tile, and of the first after it.
    low, high : (R,) integer arrays
        The same of the sequence that the tile belongs to.
    """

    begins: NDArray[np.int64]
    ends: NDArray[np.int64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    def spans(self, tiles: NDArray[np.int64], buffer: int) -> Spans:
        """Return where some of the tiles are, with buffers that end where the sequence does."""
        begins, ends, low, high = (part[tiles] for part in self)
        first, last = np.maximum(begins - buffer, low), np.minimum(ends + buffer, high)
        counted = np.stack([begins - first, ends - first, first - low, high - last], axis=1)
        return Spans(first, last - first, counted)

    def pieces(self, tiles: NDArray[np.int64], buffer: int, data: Steps) -> Sequences:
        """Return some of the tiles with buffers."""
        return data.spans(*self.spans(tiles, buffer))


class TiledSource(Minibatches):
    """Tiles of sequences with buffers around them, in a new order each pass.

    A sequence of T steps has R = max(1, round(T / L)) tiles of T / R steps.  Where the first of
    them ends is drawn anew in each pass, between half a tile and one and a half, and the last has
    the rest.  So every step, and every transition, is in one tile of a pass, and the number of
    tiles is always the same.

    Parameters
    ----------
    data : Sequences, or a file of which runs of steps can be read
    tile_length : int
        L.
    batch_size : int or None
        Tiles per minibatch; None for all.
    seed : int
    buffer : int
        Steps around a tile, at least one; may be changed between passes.
    whole_from : int, optional
        Pass, counted from 0, from which on all tiles are one minibatch.

    Examples
    --------
    >>> data = Sequences.from_list([np.arange(10)])
    >>> source = TiledSource(data, tile_length=3, batch_size=2, seed=0)
    >>> [batch.n_counted for batch in source.batches(0)]
    [6, 4]
    """

    def __init__(
        self,
        data: Steps,
        tile_length: int,
        batch_size: int | None,
        seed: int,
        buffer: int = 1,
        whole_from: int | None = None,
    ) -> None:
        self.data = data
        self.tile_length = tile_length
        self.batch_size = batch_size
        self.seed = seed
        self.buffer = buffer
        self.whole_from = whole_from
        lengths = np.diff(data.offsets)
        self._counts = np.maximum(1, np.rint(lengths / tile_length)).astype(np.int64)

    @property
    def n_sequences(self) -> int:
        """Number of tiles per pass."""
        return int(self._counts.sum())

    @property
    def n_steps(self) -> int:
        """Number of steps per pass."""
        return int(self.data.offsets[-1])

    @property
    def longest(self) -> int:
        """Length of the longest sequence."""
        return int(np.diff(self.data.offsets).max())

    def is_whole(self, n_pass: int) -> bool:
        """Whether all tiles of a pass are in one minibatch."""
        if self.whole_from is not None and n_pass >= self.whole_from:
            return True
        return self.batch_size is None or self.batch_size >= self.n_sequences

    def cuts(self, n_pass: int) -> Cuts:
        """Cut the sequences for pass `n_pass`; from then on the same, where they are one minibatch."""
        if self.whole_from is not None:
            n_pass = min(n_pass, self.whole_from)
        rng = np.random.default_rng([self.seed, _STREAM, n_pass])
        offsets, counts = np.asarray(self.data.offsets, np.int64), self._counts
        size = np.diff(offsets) / counts
        shift = size * rng.uniform(-0.5, 0.5, len(counts))
        shift[size < 2.0] = 0.0  # no tile may be empty
        low, high = np.repeat(offsets[:-1], counts), np.repeat(offsets[1:], counts)
        number = np.arange(len(low)) - np.repeat(np.cumsum(counts) - counts, counts)
        begins = low + np.floor(number * np.repeat(size, counts) + np.repeat(shift, counts))
        begins = np.where(number == 0, low, begins).astype(np.int64)
        ends = np.append(begins[1:], offsets[-1])
        return Cuts(begins, ends, low, high)

    def dealt(self, n_pass: int, start: int = 0) -> Iterator[NDArray[np.int64]]:
        """Yield the numbers of the tiles of each minibatch of a pass, without the first `start`."""
        n_tiles = self.n_sequences
        order = np.random.default_rng([self.seed, n_pass]).permutation(n_tiles)
        size = n_tiles if self.is_whole(n_pass) else self.batch_size
        assert size is not None
        for begin in range(start * size, n_tiles, size):
            yield order[begin : begin + size]

    def parts(self, tiles: NDArray[np.int64], n_steps: int) -> Iterator[NDArray[np.int64]]:
        """Cut the tiles of a minibatch into parts of about `n_steps` steps, with buffers."""
        size = max(1, n_steps // (self.tile_length + 2 * self.buffer))
        return (tiles[at : at + size] for at in range(0, len(tiles), size))

    def batches(self, n_pass: int, start: int = 0) -> Iterator[Sequences | Iterable[Sequences]]:
        """Yield the minibatches of pass `n_pass`, counted from 0, without the first `start`."""
        cuts, buffer = self.cuts(n_pass), self.buffer
        for tiles in self.dealt(n_pass, start):
            parts = list(self.parts(tiles, WHOLE_STEPS)) if self.is_whole(n_pass) else [tiles]
            pieces = (cuts.pieces(part, buffer, self.data) for part in parts)
            yield next(pieces) if len(parts) == 1 else pieces
