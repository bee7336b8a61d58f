"""Comma-separated values and their relatives, which are read once and converted."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from sojourn.sources.csv_text import ColumnCells, is_number, null_values, sniff, undecodable
from sojourn.sources.tables import ArrowTable, Batches, Table, sliced
from sojourn.sources.unpack import unpacked
from sojourn.whole_files import part_file

IN_MEMORY = 2**25
"""Bytes of text up to which a table is kept in memory; of a larger one, in a temporary file."""

_BLOCK = 2**23  # bytes that are parsed at a time
_HEAD = 2**18  # bytes from which it is found out how a table is written

Report = Callable[[str, float], None]
"""Called with what is being done and the share of it that is done."""


class CsvOptions(NamedTuple):
    """How a table of text is read.

    Attributes
    ----------
    max_bytes : int or None
        Most bytes that a compressed table may unpack to.
    encoding : str or None
        By default UTF-8, or UTF-16 with a byte order mark.
    missing : tuple of str
        Cells that are missing values, besides empty ones and the usual names for them.
    report : callable or None
        Called while the table is read.
    """

    max_bytes: int | None = None
    encoding: str | None = None
    missing: tuple[str, ...] = ()
    report: Report | None = None


PLAIN = CsvOptions()
"""Nothing but what is found out."""


class CsvTable(Table):
    """A table of text with a header line.

    Two passes over the text find out the types of its columns and convert them; after that it is
    not read again.

    Parameters
    ----------
    path : Path
    options : CsvOptions
    """

    def __init__(self, path: Path, options: CsvOptions = PLAIN) -> None:
        self.options = options
        super().__init__(path)

    def _look(self) -> None:
        text = unpacked(self.path, self.options.max_bytes)
        self._text = text if isinstance(text, Path) else text.read_buffer()
        usual = "\t" if ".tsv" in self.path.suffixes else ","
        self.dialect = sniff(self._head(), usual, self.options.encoding)
        cells = self._examine()
        if all(map(is_number, cells)):
            raise ValueError("the first line has numbers: it must have the names of the columns")
        self.odd_cells = {name: of.problem for name, of in cells.items() if of.problem}
        self.dates = frozenset(name for name, of in cells.items() if of.are_dates)
        self._types = {name: of.type for name, of in cells.items()}
        self._convert()

    def _head(self) -> bytes:
        if not isinstance(self._text, Path):
            return bytes(self._text.slice(0, min(_HEAD, self._text.size)))
        with self._text.open("rb") as file:
            return file.read(_HEAD)

    @property
    def n_bytes(self) -> int:
        """Size of the text."""
        text = self._text
        return int(text.stat().st_size if isinstance(text, Path) else text.size)

    def texts(self) -> Iterator[Any]:
        """Yield the rows as batches of strings, as they are written."""
        names = self._stream(None).schema.names
        yield from self._batches(dict.fromkeys(names, "string"), nulls=False, what=None)

    def _examine(self) -> dict[str, ColumnCells]:
        """Find out in one pass what the cells of each column are."""
        with self._explained():
            names = list(self._stream(None).schema.names)
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"it has {names.count(name)} columns named {name!r}")
        cells = {name: ColumnCells(name, self.dialect.decimal) for name in names}
        row = 1
        types = dict.fromkeys(names, "string")
        for batch in self._batches(types, nulls=True, what="reading"):
            for name, column in zip(names, batch.columns, strict=True):
                cells[name].add(column, row)
            row += batch.num_rows
        return cells

    def _convert(self) -> None:
        """Write the table with its types to memory, or to a temporary file."""
        import pyarrow as pa

        names = [name.strip() for name in self._types]
        batches = (
            batch.rename_columns(names)
            for batch in self._batches(self._types, nulls=True, what="converting")
        )
        self.schema = pa.schema(list(zip(names, self._types.values(), strict=True)))
        if self.n_bytes <= IN_MEMORY:
            whole = pa.Table.from_batches(list(batches), self.schema).combine_chunks()
            self._parts, self.n_blocks, self._file = whole.to_batches(), 1, None
            return
        folder = tempfile.mkdtemp(prefix="sojourn-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        converted = Path(folder) / "table.arrow"
        with (
            part_file(converted) as part,
            pa.OSFile(str(part), "wb") as sink,
            pa.ipc.new_file(sink, self.schema) as writer,
        ):
            for batch in batches:
                writer.write_batch(batch)
        self._file = ArrowTable(converted)
        self.n_blocks = self._file.n_blocks

    def opened(self, names: list[str]) -> Callable[[int], Batches]:
        """Return a function that yields the record batches of a block, with their place."""
        place = str(self.path)
        if self._file is not None:
            read = self._file.opened(names)
            return lambda block: ((batch, place) for batch, _ in read(block))
        return lambda block: (
            (part, place) for batch in self._parts for part in sliced(batch.select(names))
        )

    # ---- PyArrow's reader -----------------------------------------------------------------

    def _batches(self, types: dict[str, Any], *, nulls: bool, what: str | None) -> Iterator[Any]:
        done, report = 0, self.options.report
        with self._explained():
            for batch in self._stream(types, nulls=nulls):
                yield batch
                if report is not None and what is not None:
                    done += batch.get_total_buffer_size()
                    report(f"{what} {self.path.name}", min(1.0, done / max(1, self.n_bytes)))

    def _stream(self, types: dict[str, Any] | None, *, nulls: bool = True) -> Any:
        import pyarrow as pa
        from pyarrow import csv

        text, dialect = self._text, self.dialect
        encoding = dialect.encoding.removesuffix("-sig")
        converted = {
            name: pa.string() if kind == "string" else kind for name, kind in (types or {}).items()
        }
        return csv.open_csv(
            text if isinstance(text, Path) else pa.BufferReader(text),
            read_options=csv.ReadOptions(block_size=_BLOCK, encoding=encoding),
            parse_options=csv.ParseOptions(
                delimiter=dialect.delimiter, newlines_in_values=dialect.has_quotes
            ),
            convert_options=csv.ConvertOptions(
                column_types=converted or None,
                null_values=null_values(self.options.missing) if nulls else [],
                strings_can_be_null=nulls,
                decimal_point=dialect.decimal,
            ),
        )

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Let PyArrow's errors say what to do."""
        import pyarrow as pa

        try:
            yield
        except (pa.ArrowInvalid, UnicodeError) as error:
            if isinstance(error, UnicodeError) or "UTF8" in str(error):
                raise ValueError(undecodable(self.path, self.dialect.encoding)) from error
            raise ValueError(str(error)) from error
