"""Input data of estimators and fitted models, in memory or in files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families import Family
from sojourn.families.product import with_words, words_of
from sojourn.inference.local import CHUNK_STEPS
from sojourn.inference.long import LONG_STEPS
from sojourn.sequences import Layout, Sequences, as_sequences
from sojourn.sources import (
    DataFileError,
    MemorySource,
    Minibatches,
    ShuffledSource,
    Source,
    TiledSource,
)
from sojourn.sources import open as open_source
from sojourn.sources.ahead import read_ahead
from sojourn.sources.base import joined, reading
from sojourn.sources.frames import NOTHING_KNOWN, Frame, TableUse, is_frame, read_frame
from sojourn.sources.npy import NpySource
from sojourn.sources.shuffle import validated
from sojourn.sources.steps import FileSteps, file_steps
from sojourn.vocabulary import Vocabulary

_FILE_MARKS = set("./\\*?[")


class Data:
    """Sequences in memory or a source of them, in the form that a family expects.

    Parameters
    ----------
    X, lengths
        Data as given by the user.
    family : Family
    use : TableUse
        What is known of the columns of tables in memory.
    """

    def __init__(
        self,
        X: Any,
        lengths: ArrayLike | None,
        family: Family,
        use: TableUse = NOTHING_KNOWN,
    ) -> None:
        self.source: Source | None = None
        self.sequences: Sequences | None = None
        self.layout: Layout | None = None
        self.frame: Frame | None = None
        self._roles = use.roles
        if is_source(X):
            if lengths is not None:
                raise ValueError("lengths are not accepted with files, which contain them")
            self.source = open_source(X).encoded_by(words_of(family))
            return
        if is_frame(X):
            self.frame = read_frame(X, lengths, use, step_ndim=family.step_ndim)
        elif use.roles.names and use.names is None:
            raise TypeError(f"{', '.join(use.roles.names)}: only tables have columns with names")
        given = X if self.frame is None else self.frame.sequences
        own = lengths if self.frame is None else None
        self.sequences, self.layout = as_sequences(given, own, step_ndim=family.step_ndim)

    @property
    def names(self) -> list[str]:
        """Names of the columns, where a table in memory has some."""
        return [] if self.frame is None else self.frame.names

    def record(self) -> dict[str, Any]:
        """Return what a fitted model remembers of its data: names and roles of columns."""
        if self.frame is None:
            return {}
        reading = {**self._roles.record(), "column": self.names}
        return {"columns": self.names, "reading": reading}

    def use_for(self, family: Family) -> TableUse:
        """Return how other tables are used for the same model."""
        return TableUse.of(self.record(), words_of(family))

    @property
    def words(self) -> Mapping[int, Vocabulary]:
        """Words of the symbols in columns of vectors, by the number of the column."""
        if self.frame is not None:
            return self.frame.words
        return {} if self.source is None else self.source.words

    @property
    def n_sequences(self) -> int:
        """Total number of sequences."""
        return len(self.sequences) if self.sequences is not None else self._source.n_sequences

    @property
    def n_steps(self) -> int:
        """Total number of steps."""
        return self.sequences.n_steps if self.sequences is not None else self._source.n_steps

    @property
    def _source(self) -> Source:
        assert self.source is not None
        return self.source

    def resolve(self, family: Family, n_states: int) -> tuple[Family, Sequences]:
        """Return a family completed from the data, and a sample of the data for initial values."""
        if self.sequences is not None:
            if self.words:
                n_columns = int(self.sequences.values.shape[1])
                family = with_words(family, self.words, n_columns, self._column)
            family = family.resolve(self.sequences, n_states)
            self.sequences = family.validate(self.sequences)
            return family, self.sequences
        if self.words:
            n_columns = int(self._source.sample()[0].sequences.values.shape[1])
            family = with_words(family, self.words, n_columns, self._column)
            self.source = self._source.encoded_by(words_of(family))
        blocks = self._source.sample()
        with reading(blocks[0].place):
            blocks = [b._replace(sequences=family.as_steps(b.sequences)) for b in blocks]
        summary = self._source.summary
        family = family.with_alphabet(summary.n_symbols, summary.vocabulary)
        self._check_vocabulary(family)
        family = family.resolve(joined([block.sequences for block in blocks]), n_states)
        return family, joined(list(validated(blocks, family.accept)))

    def _column(self, n: int) -> str:
        """Describe a column by its name, where it has one."""
        names = self.names or getattr(self.source, "columns", [])
        return f"column {names[n]!r}" if names else f"column {n}"

    def validated(self, family: Family) -> Data:
        """Check data in memory at once; files are checked as they are read."""
        odd = sorted(set(self.words) - set(words_of(family)))
        if odd:
            raise ValueError(f"{self._column(odd[0])} has words, where the model has numbers")
        if self.sequences is not None:
            self.sequences = family.validate(self.sequences)
        else:
            self._check_vocabulary(family)
        return self

    def minibatches(self, family: Family, batch_size: int | None, seed: int) -> Minibatches:
        """Return minibatches for the training loop."""
        if self.sequences is not None:
            return MemorySource(self.sequences, batch_size, seed)
        return ShuffledSource(self._source, batch_size, seed, validate=family.accept)

    def tiles(
        self,
        family: Family,
        tile_length: int,
        batch_size: int | None,
        seed: int,
        whole_from: int | None = None,
    ) -> TiledSource:
        """Return minibatches of tiles of long sequences for the training loop."""
        steps: Any = self.sequences
        if steps is None:
            steps = file_steps(self._source, family.accept)
        return TiledSource(steps, tile_length, batch_size, seed, 1 + family.past, whole_from)

    def long_steps(self, family: Family) -> FileSteps | None:
        """Return a file with long sequences as one of which runs of steps are read; else None."""
        source = self.source
        if source is None or not source.is_repeatable:
            return None
        if isinstance(source, NpySource):
            longest = float(np.diff(source.offsets).max(initial=0))
        else:
            longest = source.n_steps / max(1, source.n_sequences)
        return file_steps(source, family.accept) if longest > LONG_STEPS else None

    def pieces(self, family: Family) -> Iterator[Sequences]:
        """Yield the data in order, in pieces that fit in memory."""
        if self.sequences is not None:
            return iter([self.sequences])
        pieces = validated(self._source.blocks(), family.accept)
        return (c for piece in read_ahead(pieces) for c in piece.chunks(4 * CHUNK_STEPS))

    def fingerprint(self) -> str:
        """Return a digest by which a resumed run recognizes its data."""
        if self.sequences is None:
            return self._source.fingerprint()
        digest = hashlib.blake2b(self.sequences.offsets.tobytes(), digest_size=32)
        digest.update(np.ascontiguousarray(self.sequences.values).view(np.uint8).data)
        return digest.hexdigest()

    def _check_vocabulary(self, family: Family) -> None:
        """Reject a file whose vocabulary differs from the model's."""
        theirs, ours = self._source.vocabulary, getattr(family, "vocabulary", None)
        if theirs is not None and ours is not None and theirs != ours:
            raise DataFileError(
                f"{self._source.name} has a different vocabulary from the model: ingest it with "
                "the vocabulary of the training data"
            )


def is_source(X: Any) -> bool:
    """Whether data is a source or a path; a string is one if it names a file or looks like it."""
    if isinstance(X, Source | PathLike):
        return True
    if not isinstance(X, str):
        return False
    return os.path.exists(X) or bool(_FILE_MARKS & set(X))


def check_out(out: str | PathLike[str] | None, data: Data) -> Path | None:
    """Return the file to write results to, which a source needs; None for results in memory."""
    if data.source is not None and out is None:
        raise ValueError(
            "results for a file may be larger than memory: write them to a file with "
            'out="states.parquet", or pass sj.open(path).read_all() to get them in memory'
        )
    return None if out is None else Path(out)
