"""Sequences from any iterable, in a single pass."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from functools import cached_property
from itertools import chain, islice
from typing import Any

from sojourn.sequences import Sequences
from sojourn.sources.base import Block, DataFileError, Reader, Source, Summary, reading

_PIECE = 1024


class IterableSource(Source):
    """Sequences from an iterable, such as a generator, a socket or a database cursor.

    Parameters
    ----------
    sequences : iterable of arrays or lists
        One sequence each.
    total_sequences : int
        Number of sequences; each minibatch is weighted by its share of them.
    """

    def __init__(self, sequences: Iterable[Any], total_sequences: int) -> None:
        super().__init__()
        if total_sequences < 1:
            raise ValueError(f"total_sequences={total_sequences} is less than one")
        self.total_sequences = total_sequences
        self._pieces = self._cut(iter(sequences))
        self._begun = False

    @property
    def name(self) -> str:
        """Name of the source in messages."""
        return "the iterable"

    @property
    def n_blocks(self) -> int:
        """One, as there is only one order."""
        return 1

    @property
    def is_repeatable(self) -> bool:
        """False: an iterable can be read only once."""
        return False

    @cached_property
    def summary(self) -> Summary:
        """Sizes, with the number of steps estimated from the first sequences."""
        head = next(self._pieces, None)
        if head is None:
            raise DataFileError("the iterable is empty: not one sequence")
        self._pieces = chain([head], self._pieces)
        n_steps = head.sequences.n_steps / len(head.sequences) * self.total_sequences
        return Summary(self.total_sequences, round(n_steps), None, None)

    def sample(self) -> list[Block]:
        """Return the first sequences, which the pass will yield again."""
        _ = self.summary
        head = next(self._pieces)
        self._pieces = chain([head], self._pieces)
        return [head]

    def opened(self) -> Reader:
        """Start the only pass."""
        if self._begun:
            raise DataFileError(
                "an iterable can be read only once: set n_passes=1, or write it to a file"
            )
        self._begun = True

        def read(block: int) -> Iterator[Block]:
            n_read = 0
            for piece in self._pieces:
                n_read += len(piece.sequences)
                yield piece
            if n_read != self.total_sequences:
                # The model has been fitted by now, with slightly wrong weights.
                warnings.warn(
                    f"the iterable gave {n_read} sequences, but total_sequences is "
                    f"{self.total_sequences}",
                    stacklevel=2,
                )

        return read

    def fingerprint(self) -> str:
        """Return the number of sequences; nothing else is known about an iterable."""
        return f"iterable of {self.total_sequences}"

    def _cut(self, sequences: Iterator[Any]) -> Iterator[Block]:
        n_done = 0
        while True:
            place = f"the iterable, from sequence {n_done}"
            with reading(place):
                piece = Sequences.from_list(islice(sequences, _PIECE))
            if len(piece) == 0:
                return
            yield Block(piece, place)
            n_done += len(piece)
