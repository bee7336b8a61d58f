"""Tables in files, read in record batches: Parquet, Arrow, Feather and CSV."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sojourn.sequences import check_arrow
from sojourn.sources.base import PIECE_SEQUENCES, PIECE_STEPS, reading
from sojourn.sources.unpack import unpacked

Batches = Iterator[tuple[Any, str]]


class Table(ABC):
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


class ParquetTable(Table):
    """A Parquet file, whose blocks are row groups."""

    def _look(self) -> None:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path)
        self.schema, self.metadata = file.schema_arrow, file.metadata
        self.n_blocks = file.num_row_groups
        self.entries = file.metadata.metadata or {}
        file.close()

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        """Return a function that yields the record batches of a row group, with their place."""
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


class _ArrowFile(Table):
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


class _ArrowStream(Table):
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


class _Csv(Table):
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
    "parquet": ParquetTable,
    "arrow": _ArrowFile,
    "arrow stream": _ArrowStream,
    "csv": _Csv,
}


def column_types(path: Path, kind: str, max_bytes: int | None = None) -> dict[str, Any]:
    """Return the columns of a file with their PyArrow types."""
    table = TABLES[kind](path, max_bytes)  # type: ignore[abstract]
    return dict(zip(table.names, table.schema.types, strict=True))
