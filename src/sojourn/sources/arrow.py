"""Parquet, Arrow, Feather and CSV files: a list column, or long format with a sequence id."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.labels import Labels
from sojourn.sequences import Sequences
from sojourn.sources.arrow_arrays import (
    Roles,
    StepColumns,
    TimeOrder,
    check_together,
    count_words,
    is_text,
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
from sojourn.sources.csv_table import PLAIN, CsvOptions, CsvTable
from sojourn.sources.tables import ArrowTable, Batches, ParquetTable, StreamTable, Table
from sojourn.vocabulary import Vocabulary

METADATA = b"sojourn"
WORDS = b"sojourn.words"
"""Keys of the metadata that `ingest` writes: sizes of the data, and the vocabulary."""

TABLES: dict[str, type[Table]] = {
    "parquet": ParquetTable,
    "arrow": ArrowTable,
    "arrow stream": StreamTable,
    "csv": CsvTable,
}


def open_table(path: Path, kind: str, csv: CsvOptions = PLAIN) -> Table:
    """Open a table of one of these kinds."""
    return CsvTable(path, csv) if kind == "csv" else TABLES[kind](path)


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
    time : str, optional
        For long format: the column by which rows are ordered.
    drop : sequence of str
        Columns that are not observations.
    lower : bool
        Convert words to lower case.
    label : str, optional
        Column with the labels of steps, names or numbers: lists as those of the steps are, or in
        long format one in each row.  A missing one is unknown.
    weight : str, optional
        Column with the weight of each sequence; in long format, that of its first row.
    csv : CsvOptions
        How a table of text is read.
    words : mapping of str to Vocabulary, optional
        Words of columns of words in vectors; by default those of the file.
    table : Table, optional
        The file, where it is open already.
    """

    def __init__(
        self,
        path: Path,
        kind: str = "parquet",
        *,
        column: str | Sequence[str] | None = None,
        sequence: str | Literal[False] | None = None,
        time: str | None = None,
        drop: Sequence[str] = (),
        lower: bool = False,
        label: str | None = None,
        weight: str | None = None,
        csv: CsvOptions = PLAIN,
        words: Mapping[str, Vocabulary] | None = None,
        table: Table | None = None,
    ) -> None:
        super().__init__([path])
        self.path = path
        self.kind = kind
        self.csv = csv
        self.roles = Roles(sequence or None, time, tuple(drop), label, weight)
        self.is_long = sequence is not None or time is not None
        self.lower = lower
        self.label, self.weight = label, weight
        self._given_words = words
        self._table = open_table(path, kind, csv) if table is None else table
        self.columns, self.is_vector = self._pick(column)

    def __reduce__(self) -> Any:
        """Pickle only how to open the file; another process opens it itself."""
        options = self._options()
        options["csv"] = self.csv._replace(report=None)
        if self._texts:
            options["words"] = dict(self._words_of)
        return partial(ArrowSource, **options), (self.path.absolute(), self.kind)

    def _options(self) -> dict[str, Any]:
        return {
            "column": self.columns if self.is_vector else self.columns[0],
            "sequence": self.roles.sequence or (False if self.is_long else None),
            "time": self.roles.time,
            "drop": self.roles.drop,
            "lower": self.lower,
            "label": self.label,
            "weight": self.weight,
            "csv": self.csv,
        }

    # ---- words in columns of vectors ------------------------------------------------------

    @property
    def words(self) -> Mapping[int, Vocabulary]:
        """Words of the symbols in columns of vectors, by the number of the column."""
        return {self.columns.index(name): self._words_of[name] for name in self._texts}

    def encoded_by(self, words: Mapping[int, Vocabulary]) -> ArrowSource:
        """Return the same file with other words for the symbols."""
        if not (words and self._texts):
            return self
        named = {self.columns[n]: of for n, of in words.items() if self.columns[n] in self._texts}
        return ArrowSource(self.path, self.kind, words=named, table=self._table, **self._options())

    @property
    def _texts(self) -> list[str]:
        """Columns of vectors that are words."""
        if not (self.is_vector and self.is_long):
            return []
        return [n for n in self.columns if is_text(self._table.schema.field(n).type)]

    @cached_property
    def _words_of(self) -> Mapping[str, Vocabulary]:
        if self._given_words is not None:
            missing = [name for name in self._texts if name not in self._given_words]
            if missing:
                raise DataFileError(
                    f"{self.path}, column {missing[0]!r}: words, where the model has numbers"
                )
            return self._given_words
        read, texts = self._table.opened(self._texts), self._texts
        found: dict[str, Any] = {name: {} for name in texts}
        for block in range(self._table.n_blocks):
            for batch, place in read(block):
                with reading(place):
                    for name in texts:
                        counts = count_words([batch.column(name)], self.lower)
                        for word, n in counts.items():
                            found[name][word] = found[name].get(word, 0) + n
        return {name: Vocabulary.from_counts(counts) for name, counts in found.items()}

    @cached_property
    def _steps(self) -> StepColumns:
        words = self._words_of if self._texts else {}
        return StepColumns(self.columns, self.is_vector, self.roles, words, self.lower)

    def steps_of(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the sequence id and the steps of the rows of a record batch, in long format."""
        return self._steps.steps_of(batch)

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
        return [*dict.fromkeys([*self.columns, *self.roles.read])]

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
        if self.is_long:
            return lambda block: self._from_steps(self.batches())
        read = self._table.opened(self._names)

        def lists(block: int) -> Iterator[Block]:
            for batch, place in read(block):
                if batch.num_rows:
                    with reading(place):
                        sequences = self._from_lists(batch)
                    yield Block(sequences, place)

        return lists

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
                rows = _rows_of(self.roles, values, batch)
            sequences = _cut(self.lower, [rows], np.concatenate([[0], cuts, [len(values)]]))
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
        whole = _lowered(parts[0], self.lower)
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
                rows = _rows_of(self.roles, values, batch)
            if waiting and ids[0] != last:
                cuts = np.concatenate([[0], cuts])
            last = ids[-1]
            if len(cuts) == 0:
                waiting.append(rows)
                continue
            begin = sum(len(part.values) for part in waiting)
            done = [*waiting, rows.part(slice(cuts[-1]))]
            yield Block(_cut(self.lower, done, np.append(0, cuts + begin)), place)
            waiting, place = [rows.part(slice(cuts[-1], None))], where
        if waiting:
            n_steps = sum(len(part.values) for part in waiting)
            yield Block(_cut(self.lower, waiting, np.array([0, n_steps])), place)

    def batches(self) -> Batches:
        """Yield the record batches of the file that are not empty, with their place."""
        read, order = self._table.opened(self._names), TimeOrder(self.roles)
        for block in range(self._table.n_blocks):
            for batch, place in read(block):
                if batch.num_rows:
                    with reading(place):
                        order.check(batch)
                    yield batch, place

    def _pick(self, column: str | Sequence[str] | None) -> tuple[list[str], bool]:
        """Find the columns with the steps, and whether they make vectors."""
        names = self._table.names
        asked = [column] if isinstance(column, str) else list(column or [])
        for name in [*(asked or names), *self.roles.names]:
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
                    f"say which: a {wanted} is needed, or sequence= for long format; "
                    f"sj.open({self.path.name!r}, column=[{names[-1]!r}], sequence=False) reads a "
                    "column as one sequence"
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
            if self.is_long and name in self._table.odd_cells:
                raise DataFileError(f"{self.path}, {self._table.odd_cells[name]}")
        return asked, column is not None and not isinstance(column, str)

    def _may_be_steps(self, name: str) -> bool:
        import pyarrow as pa

        kind = self._table.schema.field(name).type
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
        if name in (self.label, self.weight):
            return False
        if not self.is_long:
            return is_list
        is_other = pa.types.is_nested(kind) or pa.types.is_temporal(kind)
        return not (is_other or name in self.roles.names or name in self._table.dates)


def _rows_of(roles: Roles, values: NDArray[Any], batch: Any) -> _Rows:
    """Return rows of the long format, with their labels and weights."""
    labels = None if roles.label is None else label_values(batch.column(roles.label))
    weights = None
    if roles.weight is not None:
        weights = weight_values(batch.column(roles.weight), roles.weight)
    return _Rows(values, labels, weights)


def _cut(lower: bool, parts: list[_Rows], offsets: NDArray[Any]) -> Sequences:
    """Make sequences of rows."""
    values, labels, weights = _Rows.joined(parts)
    own = Sequences(values, offsets)
    known = None if labels is None else Labels(labels)
    each = None if weights is None else weights[own.offsets[:-1]]
    return _lowered(own, lower).with_known(known, each)


def _lowered(sequences: Sequences, lower: bool) -> Sequences:
    if not lower or sequences.values.dtype.kind not in "UTO":
        return sequences
    values = np.empty(len(sequences.values), object)
    values[:] = [word.lower() for word in sequences.values]
    return sequences.with_values(values)
