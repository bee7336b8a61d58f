"""A source whose labels are resolved to states as they are read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from sojourn.labels import Naming, kind_of
from sojourn.sequences import Sequences
from sojourn.sources.base import Block, Reader, Source, Summary, reading
from sojourn.sources.view import SourceView
from sojourn.vocabulary import Vocabulary


class NamedSource(SourceView):
    """Another source, whose labels are rows of a table of states in place of names or numbers.

    Parameters
    ----------
    whole : Source
    naming : Naming
    """

    def __init__(self, whole: Source, naming: Naming) -> None:
        super().__init__(whole)
        self.naming = naming

    def __reduce__(self) -> Any:
        """Pickle only how to open the files; another process opens them itself."""
        return NamedSource, (self.whole, self.naming)

    def files(self) -> list[Source]:
        """Return the sources that this one consists of, in the order of their blocks."""
        return [NamedSource(file, self.naming) for file in self.whole.files()]

    @property
    def is_repeatable(self) -> bool:
        """Whether it can be read more than once."""
        return self.whole.is_repeatable

    def encoded_by(self, words: Mapping[int, Vocabulary]) -> NamedSource:
        """Return the same data with other words for the symbols in columns of vectors."""
        return NamedSource(self.whole.encoded_by(words), self.naming)

    @cached_property
    def summary(self) -> Summary:
        """Sizes and symbols."""
        return self.whole.summary

    def stretches(self) -> Iterator[tuple[Block, bool]]:
        """Yield the data in order, and whether each part goes on with the last before it."""
        return ((self._named(block), goes_on) for block, goes_on in self.whole.stretches())

    def opened(self) -> Reader:
        """Open the source."""
        read = self.whole.opened()
        return lambda block: (self._named(piece) for piece in read(block))

    def _named(self, block: Block) -> Block:
        with reading(block.place):
            return block._replace(sequences=named(block.sequences, self.naming))


def named(sequences: Sequences, naming: Naming) -> Sequences:
    """Resolve the labels of sequences, if they have any."""
    labels = sequences.labels
    if labels is None or labels.table is not None:
        return sequences
    own = naming.encode(labels.codes, sequences.offsets)
    return sequences.with_known(own, sequences.weights)


def scan_labels(source: Source) -> tuple[int, set[str]] | None:
    """Go through the labels of a source: as `kind_of`; None if it has none."""
    size, names, found = 0, set[str](), False
    for piece in source:
        if piece.labels is not None:
            found = True
            own, more = kind_of(piece.labels.codes)
            size, names = max(size, own), names | more
    return (size, names) if found else None
