"""Parquet, Arrow, Feather and CSV files: a list column, or long format with a sequence id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.labels import Labels
from sojourn.sequences import Sequences
from sojourn.sources.arrow_arrays import (
    check_together,
    is_numeric,
    label_values,
    list_labels,
    list_sequences,
    weight_values,
)
from sojourn.sources.base import (
    PIECE_STEPS,
    Block,
    DataFileError,
    Reader,
    Source,
    Summary,
    reading,
    scan,
)
from sojourn.sources.tables import TABLES, Batches, ParquetTable
from sojourn.vocabulary import Vocabulary

METADATA = b"sojourn"
WORDS = b"sojourn.words"
"""Keys of the metadata that `ingest` writes: sizes of the data, and the vocabulary."""


class _Rows(NamedTuple):
    """Rows of the long format: steps, and what is known about them as the file has it."""

    values: NDArray[Any]
    labels: NDArray[Any] | None
    weights: NDArray[np.float64] | None

    def part(self, rows: slice) -> _Rows:
        return _Rows(*(None if part is None else part[rows] for part in self))  # type: ignore[arg-type]

    @classmethod
    def joined(cls, parts: list[_Rows]) -> _Rows:
        columns = zip(*parts, strict=True)
        found = [None if own[0] is None else np.concatenate(own) for own in columns]
        return cls(*found)  # type: ignore[arg-type]


class ArrowSource(Source):
    """Columns of a Parquet, Arrow, Feather or CSV file.

    Parameters
    ----------
    path : Path
    kind : {"parquet", "arrow", "arrow stream", "csv"}
    column : str or list of str, optional
        Column with the steps.  By default the only list column, or in long format the only
        column besides the sequence id.  A list of columns makes vectors.
    sequence : str or False, optional
        For long format, with one row per step: the column with the id of the sequence.  Rows of a
        sequence must be adjacent.  Such a file is read in its own order.  False if all rows are
        one sequence.
    lower : bool
        Convert words to lower case.
    max_bytes : int, optional
        Most bytes that a compressed table may unpack to.
    label : str, optional
        Column with the labels of steps, names or numbers: lists as those of the steps are, or in
        long format one in each row.  A missing one is unknown.
    weight : str, optional
        Column with the weight of each sequence; in long format, that of its first row.
    """

    def __init__(
        self,
        path: Path,
        kind: str = "parquet",
        *,
        column: str | Sequence[str] | None = None,
        sequence: str | Literal[False] | None = None,
        lower: bool = False,
        max_bytes: int | None = None,
        label: str | None = None,
        weight: str | None = None,
    ) -> None:
        super().__init__([path])
        self.path = path
        self.kind = kind
        self.max_bytes = max_bytes
        self.sequence = sequence or None
        self.is_long = sequence is not None
        self.lower = lower
        self.label, self.weight = label, weight
        self._table = TABLES[kind](path, max_bytes)  # type: ignore[abstract]
        self.columns, self.is_vector = self._pick(column)

    def __reduce__(self) -> Any:
        """Pickle only how to open the file; another process opens it itself."""
        column = self.columns if self.is_vector else self.columns[0]
        rows: Literal[False] | None = False if self.is_long else None
        sequence = self.sequence or rows
        opener = partial(
            ArrowSource,
            column=column,
            sequence=sequence,
            lower=self.lower,
            max_bytes=self.max_bytes,
            label=self.label,
            weight=self.weight,
        )
        return opener, (self.path.absolute(), self.kind)

    @property
    def n_blocks(self) -> int:
        """Number of row groups or record batches; one in long format."""
        return 1 if self.is_long else self._table.n_blocks

    @property
    def has_labels(self) -> bool:
        """Whether steps have labels."""
        return self.label is not None

    @property
    def has_weights(self) -> bool:
        """Whether sequences have weights."""
        return self.weight is not None

    @property
    def _names(self) -> list[str]:
        """Columns to read."""
        return [*dict.fromkeys([*self.columns, *self._beside])]

    @property
    def _beside(self) -> list[str]:
        """Columns that are not steps: ids, labels and weights."""
        return [name for name in (self.sequence, self.label, self.weight) if name]

    @property
    def vocabulary(self) -> Vocabulary | None:
        """The vocabulary that `ingest` wrote to the file."""
        return self._words

    @cached_property
    def _words(self) -> Vocabulary | None:
        metadata = self._table.entries
        if WORDS not in metadata:
            return None
        with reading(f"{self.path}, metadata"):
            described = json.loads(metadata[METADATA])
            return Vocabulary(json.loads(metadata[WORDS]), described["unknown"])

    @cached_property
    def summary(self) -> Summary:
        """Sizes and symbols, from the metadata of a Parquet file if present."""
        return self._from_metadata() or scan(self)

    def _from_metadata(self) -> Summary | None:
        import pyarrow as pa

        table = self._table
        if self.is_long or not isinstance(table, ParquetTable):
            return None
        leaf = table.leaf(self.columns[0])
        kind = table.schema.field(self.columns[0]).type.value_type
        if leaf is None or not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            return None
        groups = [table.metadata.row_group(g).column(leaf) for g in range(table.n_blocks)]
        if not groups:
            return None
        # An empty or missing list counts as one value here; reading it raises an error anyway.
        n_steps = sum(group.num_values for group in groups)
        if self.vocabulary is not None:
            return Summary(table.metadata.num_rows, n_steps, len(self.vocabulary), self.vocabulary)
        n_symbols = None
        if pa.types.is_integer(kind) and not self.is_vector:
            bounds = [group.statistics for group in groups]
            if not all(bound is not None and bound.has_min_max for bound in bounds):
                return None
            n_symbols = max(int(bound.max) for bound in bounds) + 1
        return Summary(table.metadata.num_rows, n_steps, n_symbols, None)

    def opened(self) -> Reader:
        """Open the file."""
        read = self._table.opened(self._names)

        def lists(block: int) -> Iterator[Block]:
            for batch, place in read(block):
                if batch.num_rows:
                    with reading(place):
                        sequences = self._from_lists(batch)
                    yield Block(sequences, place)

        def steps(block: int) -> Iterator[Block]:
            batches = (part for b in range(self._table.n_blocks) for part in read(b))
            return self._from_steps(batches)

        return steps if self.is_long else lists

    def stretches(self) -> Iterator[tuple[Block, bool]]:
        """Yield the data in order; in long format, as many rows at a time as the file has."""
        if not self.is_long:
            yield from super().stretches()
            return
        self.check_unchanged()
        last = None
        for batch, where in self.batches():
            with reading(where):
                ids, values = self.steps_of(batch)
                cuts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
                check_together(ids[np.append(0, cuts)])
                rows = self._rows(values, batch)
            sequences = self._cut([rows], np.concatenate([[0], cuts, [len(values)]]))
            yield Block(sequences, where), bool(last == ids[:1])
            last = ids[-1:]
        self.check_unchanged()

    def sample(self) -> list[Block]:
        """Return some blocks; in long format, rows from all over the file."""
        if not self.is_long or self.n_steps <= PIECE_STEPS:
            return super().sample()
        every = -(-self.n_steps // PIECE_STEPS)
        return [block for n, (block, _) in enumerate(self.stretches()) if n % every == 0]

    def _from_lists(self, batch: Any) -> Sequences:
        parts = [list_sequences(batch.column(name)) for name in self.columns]
        whole = self._lowered(parts[0])
        for name, part in zip(self.columns, parts, strict=True):
            if not np.array_equal(part.offsets, parts[0].offsets):
                raise ValueError(f"column {name!r} has different lengths from {self.columns[0]!r}")
        if self.is_vector:
            whole = parts[0].with_values(np.stack([part.values for part in parts], axis=1))
        labels, weights = None, None
        if self.label is not None:
            labels = Labels(list_labels(batch.column(self.label), whole.offsets, self.label))
        if self.weight is not None:
            weights = weight_values(batch.column(self.weight), self.weight)
        return whole.with_known(labels, weights)

    def _rows(self, values: NDArray[Any], batch: Any) -> _Rows:
        """Return rows of the long format, with their labels and weights."""
        labels = None if self.label is None else label_values(batch.column(self.label))
        weights = None
        if self.weight is not None:
            weights = weight_values(batch.column(self.weight), self.weight)
        return _Rows(values, labels, weights)

    def _cut(self, parts: list[_Rows], offsets: NDArray[Any]) -> Sequences:
        """Make sequences of rows."""
        values, labels, weights = _Rows.joined(parts)
        own = Sequences(values, offsets)
        known = None if labels is None else Labels(labels)
        each = None if weights is None else weights[own.offsets[:-1]]
        return self._lowered(own).with_known(known, each)

    def _from_steps(self, batches: Batches) -> Iterator[Block]:
        """Cut rows where the sequence id changes; the last sequence may continue in the next."""
        waiting: list[_Rows] = []
        last: Any = None
        place = str(self.path)
        for batch, where in batches:
            if batch.num_rows == 0:
                continue
            with reading(where):
                ids, values = self.steps_of(batch)
                cuts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
                check_together(ids[np.append(0, cuts)])
                rows = self._rows(values, batch)
            if waiting and ids[0] != last:
                cuts = np.concatenate([[0], cuts])
            last = ids[-1]
            if len(cuts) == 0:
                waiting.append(rows)
                continue
            begin = sum(len(part.values) for part in waiting)
            done = [*waiting, rows.part(slice(cuts[-1]))]
            yield Block(self._cut(done, np.append(0, cuts + begin)), place)
            waiting, place = [rows.part(slice(cuts[-1], None))], where
        if waiting:
            n_steps = sum(len(part.values) for part in waiting)
            yield Block(self._cut(waiting, np.array([0, n_steps])), place)

    def batches(self) -> Batches:
        """Yield the record batches of the file that are not empty, with their place."""
        read = self._table.opened(self._names)
        for block in range(self._table.n_blocks):
            yield from ((batch, place) for batch, place in read(block) if batch.num_rows)

    def steps_of(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the sequence id and the steps of the rows of a record batch, in long format."""
        for name in dict.fromkeys([*self.columns, *([self.sequence] if self.sequence else [])]):
            # A missing number is NaN, which most families integrate out; a word has no such value.
            number = name != self.sequence and is_numeric(batch.schema.field(name).type)
            if batch.column(name).null_count and not number:
                raise ValueError(f"column {name!r} has missing values")
        arrays = [batch.column(name).to_numpy(zero_copy_only=False) for name in self.columns]
        if self.sequence is None:
            ids = np.zeros(batch.num_rows, np.int64)
        else:
            ids = batch.column(self.sequence).to_numpy(zero_copy_only=False)
        return ids, np.stack(arrays, axis=1) if self.is_vector else arrays[0]

    def _lowered(self, sequences: Sequences) -> Sequences:
        if not self.lower or sequences.values.dtype.kind not in "UTO":
            return sequences
        values = np.empty(len(sequences.values), object)
        values[:] = [word.lower() for word in sequences.values]
        return sequences.with_values(values)

    def _pick(self, column: str | Sequence[str] | None) -> tuple[list[str], bool]:
        """Find the columns with the steps, and whether they make vectors."""
        names = self._table.names
        asked = [column] if isinstance(column, str) else list(column or [])
        for name in [*(asked or names), *self._beside]:
            if name not in names:
                raise DataFileError(
                    f"{self.path} has no column {name!r}: there are {', '.join(names) or 'none'}"
                )
            if names.count(name) > 1:
                raise DataFileError(f"{self.path} has {names.count(name)} columns named {name!r}")
        if not asked:
            asked = [name for name in names if self._may_be_steps(name)]
            if len(asked) != 1:
                wanted = "column besides the sequence id" if self.is_long else "list column"
                raise DataFileError(
                    f"{self.path} has {len(asked)} columns that could contain the steps "
                    f"({', '.join(asked) or 'of ' + ', '.join(names)}), and column= does not "
                    f"say which: a {wanted} is needed, or sequence= for long format"
                )
        for name in asked:
            if not self._may_be_steps(name):
                kind = self._table.schema.field(name).type
                raise DataFileError(
                    f"{self.path}, column {name!r}: {kind} is not a list, and without sequence= "
                    "each row is a complete sequence"
                    if not self.is_long
                    else f"{self.path}, column {name!r}: {kind} cannot be a step of a sequence"
                )
        return asked, column is not None and not isinstance(column, str)

    def _may_be_steps(self, name: str) -> bool:
        import pyarrow as pa

        kind = self._table.schema.field(name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if name in (self.label, self.weight):
            return False
        if not self.is_long:
            return is_list
        return name != self.sequence and not pa.types.is_nested(kind)
