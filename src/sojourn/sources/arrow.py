"""Parquet, Arrow, Feather and CSV files: a list column, or long format with a sequence id."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences, check_arrow
from sojourn.sources.arrow_arrays import check_together, is_numeric, list_sequences
from sojourn.sources.base import (
    PIECE_SEQUENCES,
    PIECE_STEPS,
    Block,
    DataFileError,
    Reader,
    Source,
    Summary,
    reading,
    scan,
)
from sojourn.sources.unpack import unpacked
from sojourn.vocabulary import Vocabulary

METADATA = b"sojourn"
WORDS = b"sojourn.words"
"""Keys of the metadata that `ingest` writes: sizes of the data, and the vocabulary."""

Batches = Iterator[tuple[Any, str]]


class _Table(ABC):
    """A file of record batches, read in blocks."""

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        self.path = path
        self.max_bytes = max_bytes
        with reading(str(path)):
            self._look()
            self.names = list(self.schema.names)  # which may be no text at all

    schema: Any
    n_blocks: int
    entries: Mapping[bytes, bytes] = {}
    """Metadata of the file."""

    @abstractmethod
    def _look(self) -> None:
        """Read the schema and the number of blocks."""

    @abstractmethod
    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        """Return a function that yields the record batches of a block, with their place."""


class _Parquet(_Table):
    def _look(self) -> None:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path)
        self.schema, self.metadata = file.schema_arrow, file.metadata
        self.n_blocks = file.num_row_groups
        self.entries = file.metadata.metadata or {}
        file.close()

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        import pyarrow.parquet as pq

        with reading(str(self.path)):
            file = pq.ParquetFile(self.path, metadata=self.metadata)

        def read(block: int) -> Batches:
            place = f"{self.path}, row group {block}"
            with reading(place):
                if self._rows_a_piece(block) >= self.metadata.row_group(block).num_rows:
                    # One call without threads is fastest for small row groups.
                    table = file.read_row_group(block, columns=names, use_threads=False)
                    self._check_rows(block, table.num_rows)
                    yield from ((batch, place) for batch in table.combine_chunks().to_batches())
                    return
                batches = file.iter_batches(
                    self._rows_a_piece(block), row_groups=[block], columns=names, use_threads=False
                )
                n_rows = 0
                for batch in batches:
                    n_rows += batch.num_rows
                    yield batch, place
                self._check_rows(block, n_rows)

        return read

    def _check_rows(self, block: int, n_rows: int) -> None:
        stated = self.metadata.row_group(block).num_rows
        if n_rows != stated:
            raise ValueError(f"it is damaged: {n_rows} rows, where {stated} were written")

    def _rows_a_piece(self, block: int) -> int:
        group = self.metadata.row_group(block)
        n_steps = max(group.column(c).num_values for c in range(group.num_columns))
        per_row = max(1, n_steps // max(1, group.num_rows))
        return max(1, min(PIECE_SEQUENCES, PIECE_STEPS // per_row))

    def leaf(self, name: str) -> int | None:
        """Index of the only Parquet column under a list column."""
        schema = self.metadata.schema
        paths = [schema.column(c).path for c in range(len(schema))]
        leaves = [c for c, path in enumerate(paths) if path.partition(".")[0] == name]
        return leaves[0] if len(leaves) == 1 else None


class _ArrowFile(_Table):
    def _look(self) -> None:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as file:
            reader = pa.ipc.open_file(file)
            self.schema, self.n_blocks = reader.schema, reader.num_record_batches

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        import pyarrow as pa

        with reading(str(self.path)):
            # Read, not mapped: mapped pages count as memory of the process.
            reader = pa.ipc.open_file(pa.OSFile(str(self.path), "rb"))

        def read(block: int) -> Batches:
            place = f"{self.path}, record batch {block}"
            with reading(place):
                batch = reader.get_batch(block).select(names)
                check_arrow(batch)
            yield from ((part, place) for part in _sliced(batch))

        return read


class _ArrowStream(_Table):
    n_blocks = 1

    def _look(self) -> None:
        import pyarrow as pa

        with pa.OSFile(str(self.path), "rb") as file:
            self.schema = pa.ipc.open_stream(file).schema

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        import pyarrow as pa

        def read(block: int) -> Batches:
            with reading(str(self.path)), pa.OSFile(str(self.path), "rb") as file:
                stream = pa.ipc.open_stream(file)
                n_read = 0
                while True:
                    place = f"{self.path}, record batch {n_read}"
                    with reading(place):
                        try:
                            batch = stream.read_next_batch().select(names)
                        except StopIteration:
                            return
                        check_arrow(batch)
                    yield from ((part, place) for part in _sliced(batch))
                    n_read += 1

        return read


class _Csv(_Table):
    """Comma-separated values with a header line; tab-separated for ``.tsv``.

    The file is read completely, because the types of its columns are not known before.
    """

    n_blocks = 1

    def _look(self) -> None:
        self.schema = self._read().schema
        if all(map(_is_number, self.schema.names)):
            raise ValueError("the first line has numbers: it must have the names of the columns")

    def _read(self, names: list[str] | None = None) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        delimiter = "\t" if ".tsv" in self.path.suffixes else ","
        try:
            return csv.read_csv(
                unpacked(self.path, self.max_bytes),
                parse_options=csv.ParseOptions(delimiter=delimiter),
                convert_options=csv.ConvertOptions(include_columns=names),
            )
        except pa.ArrowInvalid as error:
            raise ValueError(str(error)) from error

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        def read(block: int) -> Batches:
            with reading(str(self.path)):
                table = self._read(names)
            for batch in table.combine_chunks().to_batches():
                yield from ((part, str(self.path)) for part in _sliced(batch))

        return read


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _sliced(batch: Any) -> Iterator[Any]:
    """Cut a large record batch without copying."""
    for begin in range(0, batch.num_rows, PIECE_SEQUENCES):
        yield batch.slice(begin, PIECE_SEQUENCES)


TABLES = {
    "parquet": _Parquet,
    "arrow": _ArrowFile,
    "arrow stream": _ArrowStream,
    "csv": _Csv,
}


def column_types(path: Path, kind: str, max_bytes: int | None = None) -> dict[str, Any]:
    """Return the columns of a file with their PyArrow types."""
    table = TABLES[kind](path, max_bytes)  # type: ignore[abstract]
    return dict(zip(table.names, table.schema.types, strict=True))


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
    ) -> None:
        super().__init__([path])
        self.path = path
        self.kind = kind
        self.max_bytes = max_bytes
        self.sequence = sequence or None
        self.is_long = sequence is not None
        self.lower = lower
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
        )
        return opener, (self.path.absolute(), self.kind)

    @property
    def n_blocks(self) -> int:
        """Number of row groups or record batches; one in long format."""
        return 1 if self.is_long else self._table.n_blocks

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
        if self.is_long or not isinstance(table, _Parquet):
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
        names = self.columns if not self.sequence else [self.sequence, *self.columns]
        read = self._table.opened(names)

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
            sequences = Sequences(values, np.concatenate([[0], cuts, [len(values)]]))
            yield Block(self._lowered(sequences), where), bool(last == ids[:1])
            last = ids[-1:]
        self.check_unchanged()

    def sample(self) -> list[Block]:
        """Return some blocks; in long format, rows from all over the file."""
        if not self.is_long or self.n_steps <= PIECE_STEPS:
            return super().sample()
        every = -(-self.n_steps // PIECE_STEPS)
        return [block for n, (block, _) in enumerate(self.stretches()) if n % every == 0]

    def _from_lists(self, batch: Any) -> Sequences:
        parts = [list_sequences(batch.column(c)) for c in range(batch.num_columns)]
        if not self.is_vector:
            return self._lowered(parts[0])
        for name, part in zip(self.columns, parts, strict=True):
            if not np.array_equal(part.offsets, parts[0].offsets):
                raise ValueError(f"column {name!r} has different lengths from {self.columns[0]!r}")
        return parts[0].with_values(np.stack([part.values for part in parts], axis=1))

    def _from_steps(self, batches: Batches) -> Iterator[Block]:
        """Cut rows where the sequence id changes; the last sequence may continue in the next."""
        waiting: list[NDArray[Any]] = []
        last: Any = None
        place = str(self.path)
        for batch, where in batches:
            if batch.num_rows == 0:
                continue
            with reading(where):
                ids, values = self.steps_of(batch)
                cuts = np.flatnonzero(ids[1:] != ids[:-1]) + 1
                check_together(ids[np.append(0, cuts)])
            if waiting and ids[0] != last:
                cuts = np.concatenate([[0], cuts])
            last = ids[-1]
            if len(cuts) == 0:
                waiting.append(values)
                continue
            done = np.concatenate([*waiting, values[: cuts[-1]]])
            begin = sum(map(len, waiting))
            yield Block(self._lowered(Sequences(done, np.append(0, cuts + begin))), place)
            waiting, place = [values[cuts[-1] :]], where
        if waiting:
            values = np.concatenate(waiting)
            yield Block(self._lowered(Sequences(values, [0, len(values)])), place)

    def batches(self) -> Batches:
        """Yield the record batches of the file that are not empty, with their place."""
        names = self.columns if not self.sequence else [self.sequence, *self.columns]
        read = self._table.opened(names)
        for block in range(self._table.n_blocks):
            yield from ((batch, place) for batch, place in read(block) if batch.num_rows)

    def steps_of(self, batch: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the sequence id and the steps of the rows of a record batch, in long format."""
        for name in batch.schema.names:
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
        sequence = [self.sequence] if self.sequence else []
        for name in [*(asked or names), *sequence]:
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
        if not self.is_long:
            return is_list
        return name != self.sequence and not pa.types.is_nested(kind)
