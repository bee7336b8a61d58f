"""Files of record batches: Parquet, Arrow and Feather."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sojourn.sequences import check_arrow
from sojourn.sources.base import PIECE_SEQUENCES, PIECE_STEPS, reading

Batches = Iterator[tuple[Any, str]]
"""Record batches, each with its place for error messages."""


class Table(ABC):
    """A file of record batches, read in blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with reading(str(path)):
            self._look()
            self.names = list(self.schema.names)  # which may be no text at all

    odd_cells: Mapping[str, str] = {}
    """Columns that are numbers but for some cells, with a sentence about the first of them."""

    dates: frozenset[str] = frozenset()
    """Columns of text that are dates or times."""

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
    """A Parquet file, read by row groups."""

    def _look(self) -> None:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(self.path)
        self.schema, self.metadata = file.schema_arrow, file.metadata
        self.n_blocks = file.num_row_groups
        self.entries = file.metadata.metadata or {}
        file.close()

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        """Return a function that yields the record batches of a block, with their place."""
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


class ArrowTable(Table):
    """An Arrow or Feather file, read by record batches."""

    def _look(self) -> None:
        import pyarrow as pa

        with pa.memory_map(str(self.path)) as file:
            reader = pa.ipc.open_file(file)
            self.schema, self.n_blocks = reader.schema, reader.num_record_batches

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        """Return a function that yields the record batches of a block, with their place."""
        import pyarrow as pa

        with reading(str(self.path)):
            # Read, not mapped: mapped pages count as memory of the process.
            reader = pa.ipc.open_file(pa.OSFile(str(self.path), "rb"))

        def read(block: int) -> Batches:
            place = f"{self.path}, record batch {block}"
            with reading(place):
                batch = reader.get_batch(block).select(names)
                check_arrow(batch)
            yield from ((part, place) for part in sliced(batch))

        return read


class StreamTable(Table):
    """An Arrow stream, read from its beginning."""

    n_blocks = 1

    def _look(self) -> None:
        import pyarrow as pa

        with pa.OSFile(str(self.path), "rb") as file:
            self.schema = pa.ipc.open_stream(file).schema

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        """Return a function that yields the record batches of a block, with their place."""
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
                    yield from ((part, place) for part in sliced(batch))
                    n_read += 1

        return read


def sliced(batch: Any) -> Iterator[Any]:
    """Cut a large record batch without copying."""
    for begin in range(0, batch.num_rows, PIECE_SEQUENCES):
        yield batch.slice(begin, PIECE_SEQUENCES)
