"""Results as tables: the user's rows, with columns appended."""

from __future__ import annotations

import csv
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sojourn.cli.common import STANDARD

if TYPE_CHECKING:
    from sojourn.cli.data import Opened

Compute = Callable[[Path], Any]
"""Writes one result per step to a ``.npy`` file."""


def is_table(out: Path | None) -> bool:
    """Whether results go to a table of text."""
    return out is not None and (out == STANDARD or bool({".csv", ".tsv"} & set(out.suffixes)))


def check_out(out: Path, overwrite: bool, inputs: Sequence[Path]) -> None:
    """Refuse a target that exists or is an input; standard output is always there."""
    from sojourn.whole_files import check_target

    if out != STANDARD:
        check_target(out, overwrite, inputs)


def write_steps(opened: Opened, out: Path, results: dict[str, Compute]) -> None:
    """Write a table with one row per step: what was read, and results of each step.

    Parameters
    ----------
    opened : Opened
        The data.  Of a table, all its columns are written; of other data, the number of the
        sequence and of the step in it, and symbols.
    out : Path
        ``.csv``, ``.tsv`` or ``.parquet``, or "-" for standard output.
    results : dict of callables
        By the name of the column; several columns of a result are numbered.  Where "state" is not
        among them, it is that of the highest "probability".
    """
    with tempfile.TemporaryDirectory(prefix="sojourn-") as folder:
        found: dict[str, NDArray[Any]] = {}
        for name, compute in results.items():
            path = Path(folder) / f"{name}.npy"
            compute(path)
            found[name] = np.load(path, mmap_mode="r")
        names = [] if opened.table is None else opened.table.names
        with _sink(out, opened) as write:
            at = 0
            for rows in _rows(opened, out):
                n = len(next(iter(rows.values())))
                new = _columns({key: part[at : at + n] for key, part in found.items()})
                write(rows | {_free(key, names): part for key, part in new.items()})
                at += n


def write_sequences(opened: Opened, out: Path, log_likelihoods: NDArray[Any]) -> None:
    """Write a table with one row per sequence: its id, its length and its log likelihood."""
    ids, lengths = _sequences(opened)
    name = opened.reading.get("sequence") if opened.table is not None else None
    each = np.asarray(log_likelihoods)
    columns = {
        str(name or "sequence"): ids,
        "steps": lengths,
        "log_likelihood": each,
        "per_step": each / lengths,
    }
    with _sink(out, opened) as write:
        write(columns)


def _columns(found: dict[str, NDArray[Any]]) -> dict[str, Any]:
    """Name the columns of results; one per state is numbered."""
    columns: dict[str, Any] = {}
    if "state" not in found:
        columns["state"] = np.asarray(found["probability"]).argmax(axis=1)
    for name, values in found.items():
        if values.ndim == 1:
            columns[name] = np.asarray(values)
        else:
            columns |= {f"{name}_{k}": np.asarray(values[:, k]) for k in range(values.shape[1])}
    return columns


def _free(name: str, taken: Sequence[str]) -> str:
    """Return a name that no column of the table has."""
    while name in taken:
        name += "_"
    return name


def _rows(opened: Opened, out: Path) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table as they are written, or numbers of sequences and steps."""
    from sojourn.sources.csv_table import CsvTable

    table = opened.table
    if table is None:
        yield from _numbered(opened)
    elif isinstance(table, CsvTable) and out.suffix != ".parquet":
        for batch in table.texts():
            cells = [column.to_pylist() for column in batch.columns]
            yield dict(zip(table.names, cells, strict=True))
    else:
        read = table.opened(table.names)
        for block in range(table.n_blocks):
            for batch, _ in read(block):
                if batch.num_rows:
                    yield dict(zip(table.names, batch.columns, strict=True))


def _numbered(opened: Opened) -> Iterator[dict[str, Any]]:
    first = 0
    for piece in opened.source:
        lengths = piece.lengths
        rows: dict[str, Any] = {
            "sequence": np.repeat(np.arange(first, first + len(piece)), lengths),
            "step": np.arange(piece.n_steps) - np.repeat(piece.offsets[:-1], lengths),
        }
        if piece.values.ndim == 1:
            rows["value"] = piece.values
        yield rows
        first += len(piece)


def _sequences(opened: Opened) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the id and the length of every sequence."""
    name = opened.reading.get("sequence")
    if opened.table is None or not name:
        lengths = np.concatenate([piece.lengths for piece in opened.source])
        return np.arange(len(lengths)), lengths
    from sojourn.sources.arrow_arrays import plain

    ids: list[Any] = []
    ends: list[int] = []
    read, n = opened.table.opened([name]), 0
    for block in range(opened.table.n_blocks):
        for batch, _ in read(block):
            for value in plain(batch.column(name)).to_pylist():
                if not ids or value != ids[-1]:
                    ids.append(value)
                    ends.append(n)
                n += 1
    return np.array(ids, object), np.diff([*ends, n])


# ---- files --------------------------------------------------------------------------------------


@contextmanager
def _sink(out: Path, opened: Opened) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that writes columns; the file is written whole or not at all."""
    from sojourn.whole_files import naming, part_file

    if out == STANDARD:
        yield _csv_writer(sys.stdout, opened, ".csv")
        sys.stdout.flush()
        return
    with part_file(out) as part, naming(out):
        if is_table(out):
            with part.open("w", encoding="utf-8", newline="") as file:
                yield _csv_writer(file, opened, out.suffix)
            return
        writer = _ParquetWriter(part)
        try:
            yield writer
        finally:
            writer.close()


def _csv_writer(file: IO[str], opened: Opened, suffix: str) -> Callable[[dict[str, Any]], None]:
    """Return what writes columns as text, with the delimiter and the decimal sign of the data."""
    from sojourn.sources.csv_table import CsvTable

    delimiter, decimal = ("\t" if suffix == ".tsv" else ","), "."
    if isinstance(opened.table, CsvTable):
        decimal = opened.table.dialect.decimal
        delimiter = opened.table.dialect.delimiter if suffix == ".csv" else delimiter
    writer = csv.writer(file, delimiter=delimiter, lineterminator="\n")
    has_header = False

    def write(columns: dict[str, Any]) -> None:
        nonlocal has_header
        if not has_header:
            writer.writerow(columns)
            has_header = True
        cells = [_cells(column, decimal) for column in columns.values()]
        writer.writerows(zip(*cells, strict=True))

    return write


def _cells(column: Any, decimal: str) -> list[Any]:
    if isinstance(column, list):
        return column
    if isinstance(column, np.ndarray) and column.dtype.kind == "f":
        texts = [f"{value:.6g}" for value in column]
        return texts if decimal == "." else [text.replace(".", decimal) for text in texts]
    if hasattr(column, "to_pylist"):
        return ["" if value is None else value for value in column.to_pylist()]
    return list(column.tolist())


class _ParquetWriter:
    """Writes columns to a Parquet file, opened with the first of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: Any = None

    def __call__(self, columns: dict[str, Any]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        arrays = {
            name: pa.array(c.tolist()) if isinstance(c, np.ndarray) and c.dtype.hasobject else c
            for name, c in columns.items()
        }
        table = pa.table(arrays)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.path, table.schema, compression="zstd")
        self._writer.write_table(table)

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()
