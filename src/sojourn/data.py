"""Input data of estimators and fitted models, in memory or in files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families import Family
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
from sojourn.sources.npy import NpySource
from sojourn.sources.shuffle import validated
from sojourn.sources.steps import FileSteps, file_steps

_FILE_MARKS = set("./\\*?[")


class Data:
    """Sequences in memory or a source of them, in the form that a family expects.

    Parameters
    ----------
    X, lengths
        Data as given by the user.
    family : Family
    """

    def __init__(self, X: Any, lengths: ArrayLike | None, family: Family) -> None:
        self.source: Source | None = None
        self.sequences: Sequences | None = None
        self.layout: Layout | None = None
        if is_source(X):
            if lengths is not None:
                raise ValueError("lengths are not accepted with files, which contain them")
            self.source = open_source(X)
        else:
            self.sequences, self.layout = as_sequences(X, lengths, step_ndim=family.step_ndim)

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
            family = family.resolve(self.sequences, n_states)
            self.sequences = family.validate(self.sequences)
            return family, self.sequences
        blocks = self._source.sample()
        with reading(blocks[0].place):
            blocks = [b._replace(sequences=family.as_steps(b.sequences)) for b in blocks]
        summary = self._source.summary
        family = family.with_alphabet(summary.n_symbols, summary.vocabulary)
        self._check_vocabulary(family)
        family = family.resolve(joined([block.sequences for block in blocks]), n_states)
        return family, joined(list(validated(blocks, family.accept)))

    def validated(self, family: Family) -> Data:
        """Check data in memory at once; files are checked as they are read."""
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
