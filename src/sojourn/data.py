"""Input data of estimators and fitted models, in memory or in files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families import Family
from sojourn.families.words import with_words, words_of
from sojourn.forms import Layout, as_sequences
from sojourn.inference.local import CHUNK_STEPS
from sojourn.inference.long import LONG_STEPS
from sojourn.labels import Naming, flattened, from_masks, kind_of
from sojourn.sequences import Sequences
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
from sojourn.sources.named import NamedSource, scan_labels
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
    y : labels of the steps, optional
        Numbers, names, sets or masks; see `HMM.fit`.
    sample_weight : (N,) array, optional
        What each sequence counts for.
    use : TableUse
        What is known of the columns of tables in memory.
    """

    def __init__(
        self,
        X: Any,
        lengths: ArrayLike | None,
        family: Family,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        use: TableUse = NOTHING_KNOWN,
    ) -> None:
        self.names: tuple[str, ...] | None = None
        self.n_labelled = 0
        self._y: NDArray[Any] | None = None
        self.source: Source | None = None
        self.sequences: Sequences | None = None
        self.layout: Layout | None = None
        self.frame: Frame | None = None
        self._roles = use.roles
        if is_source(X):
            if lengths is not None:
                raise ValueError("lengths are not accepted with files, which contain them")
            _refuse_known("y", y, "label")
            _refuse_known("sample_weight", sample_weight, "weight")
            self.source = open_source(X).encoded_by(words_of(family))
            return
        if is_frame(X):
            self.frame = read_frame(X, lengths, use, step_ndim=family.step_ndim)
        elif use.roles.names and use.names is None:
            raise TypeError(f"{', '.join(use.roles.names)}: only tables have columns with names")
        given = X if self.frame is None else self.frame.sequences
        own = lengths if self.frame is None else None
        self.sequences, self.layout = as_sequences(given, own, step_ndim=family.step_ndim)
        if y is not None:
            y = y if self.frame is None else self.frame.in_sequences(y)
            self._y = flattened(y, self.sequences.lengths)
        if sample_weight is not None:
            weights = checked_weights(sample_weight, len(self.sequences))
            self.sequences = self.sequences.with_known(self.sequences.labels, weights)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, where a table in memory has some."""
        return [] if self.frame is None else self.frame.names

    def record(self) -> dict[str, Any]:
        """Return what a fitted model remembers of its data: names and roles of columns."""
        if self.frame is None:
            return {}
        reading = {**self._roles.record(), "column": self.columns}
        return {"columns": self.columns, "reading": reading}

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

    def label(
        self, names: Sequence[str] | None, n_states: int, *, all_states: bool = False
    ) -> Data:
        """Resolve labels to states, and set how many of these have names or labels.

        Parameters
        ----------
        names : sequence of str or None
            Names of the first states; by default those among the labels, sorted.
        n_states : int
            Number of states of the model.
        all_states : bool
            Whether any state may be named, and not only those that keep their places for it.
        """
        self.names = None if names is None else tuple(names)
        y = self._y
        given = None if self.sequences is None else self.sequences.labels
        if y is None and given is not None and given.table is not None:
            self.n_labelled = given.n_labelled
            if self.n_labelled > n_states:
                raise ValueError(f"labels name {self.n_labelled} states, but n_states={n_states}")
            return self
        if y is None and given is not None:
            y = given.codes
        if y is not None and y.ndim > 1:
            assert self.sequences is not None
            labels = from_masks(y, n_states, self.sequences.offsets)
            self.sequences = self.sequences.with_known(labels, self.sequences.weights)
            self.n_labelled = n_states
            return self
        known = len(self.names or ())
        if y is not None:
            found: tuple[int, set[str]] | None = kind_of(y)
        elif self.source is not None and self.source.has_labels and names is None:
            found = scan_labels(self.source)
        else:
            found = (known, set())
        size, more = found or (0, set())
        if self.names is None and more:
            self.names = tuple(sorted(more))
        known = len(self.names or ())
        if known > n_states:
            raise ValueError(f"labels name {known} states, but n_states={n_states}")
        self.n_labelled = max(known, min(size, n_states))
        naming = Naming(self.names, n_states if all_states else self.n_labelled or n_states)
        if y is not None:
            assert self.sequences is not None
            labels = naming.encode(y, self.sequences.offsets)
            self.sequences = self.sequences.with_known(labels, self.sequences.weights)
        elif self.source is not None and self.source.has_labels:
            self.source = NamedSource(self.source, naming)
        return self

    def weigh(self, most_steps: float) -> Data:
        """Leave out sequences of weight zero, and repeat those with whole weights.

        Data that are larger than `most_steps` when repeated keep their weights.
        """
        data = self.sequences
        if data is None or data.weights is None:
            return self
        weights, whole = data.weights, np.rint(data.weights)
        if (weights == whole).all() and float((weights * data.lengths).sum()) <= most_steps:
            data = data.take(np.repeat(np.arange(len(data)), whole.astype(np.int64)))
            self.sequences = data.with_known(data.labels)
        elif not weights.all():
            self.sequences = data.take(np.flatnonzero(weights))
        return self

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
        names = self.columns or getattr(self.source, "columns", [])
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
        if self.sequences.labels is not None:
            for part in (self.sequences.labels.codes, self.sequences.labels.table):
                digest.update(np.ascontiguousarray(part).tobytes())
        if self.sequences.weights is not None:
            digest.update(self.sequences.weights.tobytes())
        return digest.hexdigest()

    def _check_vocabulary(self, family: Family) -> None:
        """Reject a file whose vocabulary differs from the model's."""
        theirs, ours = self._source.vocabulary, getattr(family, "vocabulary", None)
        if theirs is not None and ours is not None and theirs != ours:
            raise DataFileError(
                f"{self._source.name} has a different vocabulary from the model: ingest it with "
                "the vocabulary of the training data"
            )


def _refuse_known(name: str, given: Any, column: str) -> None:
    if given is not None:
        raise ValueError(
            f"{name} is not accepted with files, which may have a column for it: "
            f"sj.open(path, {column}=...)"
        )


def checked_weights(weights: ArrayLike, n_sequences: int) -> NDArray[np.float64] | None:
    """Return the weights of sequences; None if all are one.

    Examples
    --------
    >>> checked_weights([2, 0.5], 2)
    array([2. , 0.5])
    """
    given = np.asarray(weights)
    if given.dtype.kind not in "biuf" or given.shape != (n_sequences,):
        raise ValueError(
            f"sample_weight must have one number for each of {n_sequences} sequences, got "
            f"{given.dtype} of the shape {given.shape}"
        )
    own = given.astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(own) & (own >= 0.0)))
    if len(bad):
        raise ValueError(f"sequence {bad[0]} has the weight {own[bad[0]]}: weights are at least 0")
    if not own.any():
        raise ValueError("all sequences have the weight 0: there is nothing to learn from")
    return None if (own == 1.0).all() else own


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
