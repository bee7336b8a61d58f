"""Minibatches in random order from data that does not fit in memory.

Blocks are read in random order into a buffer.  When the buffer is full, its sequences are shuffled,
half of them are yielded in minibatches, and further blocks are read in their place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from sojourn.sequences import Sequences
from sojourn.sources.ahead import read_ahead
from sojourn.sources.base import Block, Minibatches, Source, joined, reading

BUFFER_SEQUENCES = 2**17
BUFFER_BYTES = 2**26
"""Size of the buffer in sequences and in bytes, whichever is reached first."""

Validate = Callable[[Sequences], Sequences]


class ShuffledSource(Minibatches):
    r"""Minibatches of a source, in a new random order each pass.

    The order depends only on the seed, the number of the pass and the source.

    Parameters
    ----------
    source : Source
    batch_size : int or None
        Sequences per minibatch; None for all in one, which then comes in pieces.
    seed : int
    validate : callable, optional
        Converts sequences to the form that the model expects.
    buffer_sequences : int, optional
        Size of the shuffle buffer; by default `BUFFER_SEQUENCES`.

    Examples
    --------
    >>> import tempfile, pathlib, sojourn as sj
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "text.txt"
    ...     _ = path.write_text("a b\nc\nd e f\n")
    ...     batches = ShuffledSource(sj.open(path), batch_size=2, seed=0).batches(0)
    ...     [len(batch) for batch in batches]
    [2, 1]
    """

    def __init__(
        self,
        source: Source,
        batch_size: int | None,
        seed: int,
        *,
        validate: Validate | None = None,
        buffer_sequences: int | None = None,
    ) -> None:
        self.source = source
        self.batch_size = batch_size
        self.seed = seed
        self.validate = validate
        self.buffer_sequences = buffer_sequences

    @property
    def n_sequences(self) -> int:
        """Number of sequences per pass."""
        return self.source.n_sequences

    def batches(self, n_pass: int, start: int = 0) -> Iterator[Sequences | Iterable[Sequences]]:
        """Yield the minibatches of pass `n_pass`, without the first `start`.

        Skipped minibatches are read and shuffled like the others, so that the rest are the same.
        """
        if self.batch_size is None or self.batch_size >= self.n_sequences:
            if start == 0:
                yield read_ahead(validated(self.source.blocks(), self.validate))
            return
        rng = pass_rng(self.seed, n_pass)
        order = rng.permutation(self.source.n_blocks)
        pieces = (
            (piece, size_in_buffer(piece))
            for piece in validated(self.source.blocks(order), self.validate)
        )
        yield from read_ahead(shuffled(pieces, self.batch_size, rng, start, self.buffer_sequences))


def pass_rng(seed: int, n_pass: int) -> np.random.Generator:
    """Return the random generator of a pass: first for the order of blocks, then for `shuffled`."""
    return np.random.default_rng([seed, n_pass])


def size_in_buffer(piece: Sequences) -> int:
    """Return the size of a piece in bytes."""
    n_bytes = piece.values.nbytes + piece.offsets.nbytes
    n_bytes += 0 if piece.labels is None else piece.labels.codes.nbytes
    return int(n_bytes + (0 if piece.weights is None else piece.weights.nbytes))


def shuffled(
    pieces: Iterable[tuple[Sequences, int]],
    batch_size: int,
    rng: np.random.Generator,
    start: int = 0,
    buffer_sequences: int | None = None,
) -> Iterator[Sequences]:
    """Yield minibatches of pieces of data, without the first `start`.

    The order depends only on sizes, so that sequences can be replaced by references to sequences
    elsewhere, with the sizes in bytes of the latter.

    Parameters
    ----------
    pieces : iterable of (Sequences, int)
        Pieces in random order, each with its size in bytes.
    """
    buffer = _Buffer(max(buffer_sequences or BUFFER_SEQUENCES, 2 * batch_size), batch_size)
    n_done = 0
    for piece, n_bytes in pieces:
        buffer.add(piece, n_bytes)
        if not buffer.is_full:
            continue
        n_out = max(1, len(buffer) // 2 // batch_size)
        yield from buffer.drawn(rng, n_out, skip=start - n_done)
        n_done += n_out
    n_out = -(-len(buffer) // batch_size)
    yield from buffer.drawn(rng, n_out, skip=start - n_done)


class _Buffer:
    """Sequences that have not been drawn yet."""

    def __init__(self, max_sequences: int, batch_size: int) -> None:
        self.max_sequences = max_sequences
        self.batch_size = batch_size
        self._pieces: list[Sequences] = []
        self._n_sequences = 0
        self._n_bytes = 0

    def __len__(self) -> int:
        return self._n_sequences

    @property
    def is_full(self) -> bool:
        too_many = len(self) >= self.max_sequences or self._n_bytes >= BUFFER_BYTES
        return too_many and len(self) > self.batch_size

    def add(self, piece: Sequences, n_bytes: int) -> None:
        self._pieces.append(piece)
        self._n_sequences += len(piece)
        self._n_bytes += n_bytes

    def drawn(self, rng: np.random.Generator, n_batches: int, skip: int) -> Iterator[Sequences]:
        """Remove minibatches at random; the first `skip` are not yielded."""
        if not self._pieces:
            return
        pool = joined(self._pieces)
        order = rng.permutation(len(pool))
        n_out = min(n_batches * self.batch_size, len(pool))
        for begin in range(max(0, skip) * self.batch_size, n_out, self.batch_size):
            yield pool.take(order[begin : min(begin + self.batch_size, n_out)])
        # The bytes of a random part are about its share, so those of each sequence are not needed.
        n_bytes = self._n_bytes * (len(pool) - n_out) // len(pool)
        self._pieces, self._n_sequences, self._n_bytes = [], 0, 0
        if n_out < len(pool):
            self.add(pool.take(order[n_out:]), n_bytes)


def validated(blocks: Iterable[Block], validate: Validate | None) -> Iterator[Sequences]:
    """Yield each block after `validate`; errors name the block."""
    for sequences, place, _ in blocks:
        if len(sequences) == 0:
            continue
        if validate is None:
            yield sequences
            continue
        with reading(place):
            valid = validate(sequences)
        yield valid
