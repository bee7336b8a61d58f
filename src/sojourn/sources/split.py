"""Split of a source into training and held-out data: at random, or the end of one sequence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from sojourn.sequences import Sequences
from sojourn.sources.base import PIECE_STEPS, Block, Reader, Source, Summary, joined, scan
from sojourn.sources.view import SourceView
from sojourn.vocabulary import Vocabulary

_MANY = 40
"""Sequences expected in either part from which it is certain that it has one: the probability of
none is e**-40."""


class PartSource(SourceView):
    """A random subset of the sequences of another source, or the rest.

    Whether a sequence belongs to it depends only on the seed and the position of the sequence, so
    that the two parts never overlap and are the same in every pass.

    Parameters
    ----------
    whole : Source
    share : float
        Probability that a sequence is held out.
    held_out : bool
        Whether this is the held-out part.
    seed : int
    first : int
        Number of the first block, if `whole` is itself a part of a larger source.
    """

    def __init__(
        self, whole: Source, share: float, *, held_out: bool, seed: int, first: int = 0
    ) -> None:
        super().__init__(whole)
        self.share = share
        self.held_out = held_out
        self.seed = seed
        self.first = first

    def __reduce__(self) -> Any:
        """Pickle only how to open the files; another process opens them itself."""
        opener = partial(PartSource, held_out=self.held_out, seed=self.seed, first=self.first)
        return opener, (self.whole, self.share)

    def files(self) -> list[Source]:
        """Return the sources that this one consists of, in the order of their blocks."""
        parts: list[Source] = []
        first = self.first
        for file in self.whole.files():
            part = PartSource(file, self.share, held_out=self.held_out, seed=self.seed, first=first)
            parts.append(part)
            first += file.n_blocks
        return parts

    def encoded_by(self, words: Mapping[int, Vocabulary]) -> PartSource:
        """Return the same part with other words for the symbols in columns of vectors."""
        return PartSource(
            self.whole.encoded_by(words),
            self.share,
            held_out=self.held_out,
            seed=self.seed,
            first=self.first,
        )

    @cached_property
    def summary(self) -> Summary:
        """Sizes and words of this part, from a pass over the data."""
        found = scan(self)
        known = self.vocabulary
        return found if known is None else found._replace(n_symbols=len(known), vocabulary=known)

    def opened(self) -> Reader:
        """Open the complete source."""
        read = self.whole.opened()

        def picked(block: int) -> Iterator[Block]:
            rng = np.random.default_rng([self.seed, self.first + block])
            for piece in read(block):
                is_out = rng.random(len(piece.sequences)) < self.share
                mine = np.flatnonzero(is_out == self.held_out)
                if len(mine):
                    yield piece._replace(sequences=piece.sequences.take(mine))

        return picked


def split(source: Source, share: float, seed: int = 0) -> tuple[PartSource, PartSource]:
    r"""Split the sequences of a source at random into training and held-out data.

    Each part has at least one sequence.

    Parameters
    ----------
    source : Source
        With two sequences or more; of one, `split_end` holds out the end.
    share : float
        Share to hold out, between 0 and 1.
    seed : int

    Examples
    --------
    >>> import sojourn as sj, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "text.txt"
    ...     _ = path.write_text("the cat sleeps\n" * 1000)
    ...     train, held_out = split(sj.open(path), 0.1)
    ...     (train.n_sequences, held_out.n_sequences)
    (911, 89)
    """
    if not 0.0 < share < 1.0:
        raise ValueError(f"the share to hold out must be between 0 and 1, got {share}")
    threshold = _threshold(source, share, seed)
    train, held_out = (
        PartSource(source, threshold, held_out=which, seed=seed) for which in (False, True)
    )
    return train, held_out


def _threshold(source: Source, share: float, seed: int) -> float:
    """Return the share, or of few sequences the number below which as many draws lie as it says."""
    n = source.n_sequences
    if n < 2:
        raise ValueError(f"{source.name} has one sequence, which cannot be split at random")
    if min(share, 1.0 - share) * n > _MANY:
        return share
    read, draws = source.opened(), []
    for block in range(source.n_blocks):
        n_here = sum(len(piece.sequences) for piece in read(block))
        draws.append(np.random.default_rng([seed, block]).random(n_here))
    n_out = min(max(1, round(share * n)), n - 1)
    return float(np.sort(np.concatenate(draws))[n_out])


class EndSource(SourceView):
    """The first steps of a source with one sequence, or the rest of them.

    Parameters
    ----------
    whole : Source
        With a single sequence.
    cut : int
        Number of steps before the end that is held out.
    held_out : bool
        Whether this is the held-out end.
    """

    def __init__(self, whole: Source, cut: int, *, held_out: bool) -> None:
        super().__init__(whole)
        self.cut = cut
        self.held_out = held_out

    def __reduce__(self) -> Any:
        """Pickle only how to open the files; another process opens them itself."""
        return partial(EndSource, held_out=self.held_out), (self.whole, self.cut)

    n_blocks = 1
    has_weights = False  # a sequence that is alone counts once

    def encoded_by(self, words: Mapping[int, Vocabulary]) -> EndSource:
        """Return the same part with other words for the symbols in columns of vectors."""
        return EndSource(self.whole.encoded_by(words), self.cut, held_out=self.held_out)

    def opened(self) -> Reader:
        """Return a function that reads the part; of the rest, no more than a stretch at a time."""

        def read(block: int) -> Iterator[Block]:
            parts = [own for own, _ in self.stretches()]
            if parts:
                whole = joined([own.sequences for own in parts])
                one = Sequences(whole.values, [0, whole.n_steps], labels=whole.labels)
                yield parts[0]._replace(sequences=one, done=1.0)

        return read

    def sample(self) -> list[Block]:
        """Return steps from all over the part."""
        every = -(-self.n_steps // PIECE_STEPS)
        return [block for n, (block, _) in enumerate(self.stretches()) if n % every == 0]

    def stretches(self) -> Iterator[tuple[Block, bool]]:
        """Yield the part in order, as many steps at a time as the source gives."""
        at, goes_on = 0, False
        for block, _ in self.whole.stretches():
            own = self._own(block, at)
            at += block.n_steps
            if own is not None:
                yield own, goes_on
                goes_on = True

    def _own(self, block: Block, at: int) -> Block | None:
        """Return what belongs to the part of a block that begins at step `at`."""
        cut = min(max(0, self.cut - at), block.n_steps)
        begin, end = (cut, block.n_steps) if self.held_out else (0, cut)
        if begin == end:
            return None
        return block._replace(
            sequences=block.sequences.spans(np.array([begin]), np.array([end - begin]))
        )


def split_end(source: Source, n_out: int) -> tuple[EndSource, EndSource]:
    """Split the only sequence of a source into its beginning and its last `n_out` steps.

    Examples
    --------
    >>> import sojourn as sj, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "x.npy"
    ...     np.save(path, np.arange(10.0))
    ...     train, held_out = split_end(sj.open(path, sequence=False), 3)
    ...     (train.n_steps, held_out.read_all().values)
    (7, array([7., 8., 9.]))
    """
    cut = source.n_steps - n_out
    return EndSource(source, cut, held_out=False), EndSource(source, cut, held_out=True)
