"""Random split of a source into training and held-out data."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

import numpy as np

from sojourn.sources.base import Block, Reader, Source, Summary, scan
from sojourn.vocabulary import Vocabulary


class PartSource(Source):
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
        super().__init__(whole.paths)
        self.whole = whole
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

    @property
    def n_blocks(self) -> int:
        """Number of blocks, the same as of the complete source."""
        return self.whole.n_blocks

    @property
    def name(self) -> str:
        """Name of the source in messages."""
        return self.whole.name

    @property
    def has_labels(self) -> bool:
        """Whether steps have labels."""
        return self.whole.has_labels

    @property
    def has_weights(self) -> bool:
        """Whether sequences have weights."""
        return self.whole.has_weights

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of the symbols, if the file contains them."""
        return self.whole.vocabulary

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

    Parameters
    ----------
    source : Source
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
    train, held_out = (
        PartSource(source, share, held_out=which, seed=seed) for which in (False, True)
    )
    return train, held_out
