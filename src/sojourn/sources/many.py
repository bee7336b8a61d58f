"""Several files as one source."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from sojourn.sources.base import Block, CodedBlock, DataFileError, Reader, Source, Summary, scan
from sojourn.vocabulary import Vocabulary

_OPEN_FILES = 16


class ManySource(Source):
    """The sequences of several sources, concatenated; shuffling mixes their blocks.

    Parameters
    ----------
    sources : sequence of Source
        All with the same kind of steps, and with the same vocabulary if the files contain one.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        super().__init__([path for source in sources for path in source.paths])
        self.sources = list(sources)
        self._begins = np.cumsum([0, *(source.n_blocks for source in sources)])

    @property
    def name(self) -> str:
        """Name of the source in messages."""
        return f"{self.sources[0].name} and {len(self.sources) - 1} more files"

    @property
    def n_blocks(self) -> int:
        """Total number of blocks."""
        return int(self._begins[-1])

    def files(self) -> list[Source]:
        """Return the sources that this one consists of, in the order of their blocks."""
        return [file for source in self.sources for file in source.files()]

    @property
    def has_labels(self) -> bool:
        """Whether steps have labels."""
        return all(source.has_labels for source in self.sources)

    @property
    def has_weights(self) -> bool:
        """Whether sequences have weights."""
        return all(source.has_weights for source in self.sources)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The words of the symbols."""
        vocabulary = self.sources[0].vocabulary
        for source in self.sources:
            if source.vocabulary != vocabulary:
                raise DataFileError(
                    f"{source.name} has a different vocabulary from {self.sources[0].name}: "
                    "ingest the texts together"
                )
        return vocabulary

    @cached_property
    def words(self) -> Mapping[int, Vocabulary]:
        """Words of the symbols in columns of vectors: those of all files, in their order."""
        found: dict[int, dict[str, None]] = {}
        for source in self.sources:
            for n, vocabulary in source.words.items():
                found.setdefault(n, {}).update(dict.fromkeys(vocabulary.words))
        return {n: Vocabulary(words, "<unk>") for n, words in found.items()}

    def encoded_by(self, words: Mapping[int, Vocabulary]) -> ManySource:
        """Return the same files with other words for the symbols in columns of vectors."""
        return ManySource([source.encoded_by(words) for source in self.sources])

    @cached_property
    def summary(self) -> Summary:
        """Sizes and symbols; words are counted over all files."""
        if any(_has_words(source) for source in self.sources):
            return scan(self)
        vocabulary = self.vocabulary
        parts = [source.summary for source in self.sources]
        counts = [part.n_symbols for part in parts if part.n_symbols is not None]
        return Summary(
            sum(part.n_sequences for part in parts),
            sum(part.n_steps for part in parts),
            max(counts) if len(counts) == len(parts) else None,
            vocabulary,
        )

    def coded_blocks(self) -> Iterator[CodedBlock] | None:
        """Yield the words of all files, one after the other, if all of them are coded."""
        parts = [source.coded_blocks() for source in self.sources]
        coded = [part for part in parts if part is not None]
        return self._coded_blocks(coded) if len(coded) == len(parts) else None

    def _coded_blocks(self, parts: Sequence[Iterator[CodedBlock]]) -> Iterator[CodedBlock]:
        for n_done, part in enumerate(parts):
            for block in part:
                yield block._replace(done=(n_done + block.done) / len(parts))

    def opened(self) -> Reader:
        """Open the sources as they are needed, a few at a time."""
        readers: OrderedDict[int, Reader] = OrderedDict()
        kind: tuple[Any, ...] | None = None
        first = ""

        def read(block: int) -> Iterator[Block]:
            nonlocal kind, first
            which = int(np.searchsorted(self._begins, block, side="right")) - 1
            if which not in readers:
                readers[which] = self.sources[which].opened()
            readers.move_to_end(which)
            if len(readers) > _OPEN_FILES:
                readers.popitem(last=False)
            for piece in readers[which](block - int(self._begins[which])):
                values = piece.sequences.values
                now = (values.dtype.kind in "UTO", values.shape[1:])
                if kind is None:
                    kind, first = now, piece.place
                if now != kind:
                    raise DataFileError(
                        f"{piece.place}: {_describe(now)}, but {_describe(kind)} in {first}"
                    )
                yield piece

        return read


def _has_words(source: Source) -> bool:
    piece = next(iter(source), None)
    return piece is not None and piece.values.dtype.kind in "UTO"


def _describe(kind: tuple[bool, tuple[int, ...]]) -> str:
    is_words, shape = kind
    return "words" if is_words else f"numbers of shape {shape}" if shape else "numbers"
