"""Open data files of any supported format."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from sojourn.sources.arrow import TABLES, ArrowSource
from sojourn.sources.arrow_arrays import listed
from sojourn.sources.base import DataFileError, Source
from sojourn.sources.csv_table import CsvOptions
from sojourn.sources.iterable import IterableSource
from sojourn.sources.many import ManySource
from sojourn.sources.npy import NpySource
from sojourn.sources.tables import Table
from sojourn.sources.text import TextSource

# First bytes of each kind of file.
_MAGIC = {
    b"PAR1": "parquet",
    b"ARROW1": "arrow",
    b"\xff\xff\xff\xff": "arrow stream",
    b"\x93NUMPY": "npy",
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
}
_CSV = ("max_bytes", "encoding", "missing")
_REFUSED = {
    b"FEA1": "an old Feather file (version 1): convert it to Feather 2 or Parquet",
    b"PK\x03\x04": "a zip archive: unpack it",
    b"BZh": "a bzip2 file: unpack it, or use gzip or zstd",
    b"\xfd7zXZ": "an xz file: unpack it, or use gzip or zstd",
    b"\x89HDF": "an HDF5 file: convert it to Parquet",
}


_OF_TABLES = {"column", "sequence", "time", "drop", "lower", "max_bytes", "label", "weight"}


def open(
    path: Any,
    *,
    column: str | Sequence[str] | None = None,
    sequence: str | Literal[False] | None = None,
    time: str | None = None,
    drop: str | Sequence[str] | None = None,
    pattern: str | None = None,
    lower: bool = False,
    encoding: str | None = None,
    missing: str | Sequence[str] | None = None,
    offsets: str | PathLike[str] | None = None,
    max_bytes: int | None = None,
    total_sequences: int | None = None,
    label: str | None = None,
    weight: str | None = None,
) -> Source:
    r"""Open data that may be larger than memory, for `fit`, `score` and `predict`.

    The format is recognized by the first bytes: Parquet, Arrow or Feather, NumPy's ``.npy``, or
    text, plain or compressed with gzip or zstd.  Tables of text are recognized by their names,
    ``.csv`` and ``.tsv``; what separates their cells, and a decimal comma, are found out.

    Parameters
    ----------
    path : str, Path or iterable
        A file, a folder, a pattern such as ``"data/*.parquet"``, or an iterable of sequences,
        which can be read only once.
    column : str or list of str, optional
        Columnar files: the column with the steps; several columns make vectors.  By default the
        only list column.
    sequence : str or False, optional
        Columnar files in long format, with one row per step: the column with the sequence id.
        False if all rows of a file are one sequence, also of ``.npy`` files.
    time : str, optional
        Long format: the column that says when a row was observed.  It is not an observation, and
        it is an error if it falls within a sequence.
    drop : str or list of str, optional
        Columnar files: columns that are not observations.
    pattern : str, optional
        Text: a regular expression whose matches are the words; by default words are separated by
        whitespace.
    lower : bool
        Convert words to lower case.
    encoding : str, optional
        Text, and tables of text: for example "latin-1"; by default UTF-8.
    missing : str or list of str, optional
        Tables of text: cells that stand for a missing value, besides empty ones, ``NA``, ``NaN``
        and ``null``.
    offsets : path, optional
        ``.npy``: the file with the offsets; by default ``x.offsets.npy`` next to ``x.npy``.
    max_bytes : int, optional
        Length of the longest line of a text, by default 64 MiB, and most bytes that a compressed
        table may unpack to, by default 128 MiB or a hundred times its size: small files from
        strangers cannot fill the memory.
    total_sequences : int, optional
        Number of sequences of an iterable; required for iterables.
    label : str, optional
        Columnar files: the column with labels of steps, numbers or names of states; missing where
        nothing is known.  See ``y`` of `HMM.fit`.
    weight : str, optional
        Columnar files: the column with the weights of sequences.  See ``sample_weight`` of
        `HMM.fit`.

    Returns
    -------
    Source
        With ``n_sequences`` and ``n_steps``; iteration yields `Sequences`, piece by piece.

    Raises
    ------
    DataFileError
        A `ValueError` that names the file and the place in it.

    Examples
    --------
    >>> import sojourn as sj, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "text.txt"
    ...     _ = path.write_text("the cat sleeps\na dog barks\n")
    ...     data = sj.open(path)
    ...     (data.n_sequences, data.n_steps)
    (2, 6)
    """
    if isinstance(path, Source):
        return path
    options = {
        "column": column, "sequence": sequence, "time": time, "drop": listed(drop) or None,
        "pattern": pattern, "lower": lower or None, "encoding": encoding,
        "missing": listed(missing) or None, "offsets": offsets, "max_bytes": max_bytes,
        "label": label, "weight": weight,
    }  # fmt: skip
    given = {name: value for name, value in options.items() if value is not None}
    if isinstance(path, str | PathLike):
        if total_sequences is not None:
            raise TypeError("total_sequences is for iterables only: files are counted")
        return open_path(path, given)
    if not isinstance(path, Iterable):
        raise TypeError(f"expected a path or an iterable of sequences, got {path!r}")
    if given:
        raise TypeError(f"{', '.join(given)}: only for files, not for iterables")
    if total_sequences is None:
        raise TypeError("an iterable needs total_sequences, the number of its sequences")
    return IterableSource(path, total_sequences)


def open_path(
    path: str | PathLike[str], options: Mapping[str, Any], table: Table | None = None
) -> Source:
    """Open a file, folder or pattern with those options of `open` that were given.

    ``report`` among them is called with what is being done and the share that is done; `table` is
    one of the files, if it is open already.
    """
    name = os.fspath(path)
    here = Path(name)
    if here.is_dir():
        files = sorted(file for file in here.iterdir() if _is_data(file))
        if not files:
            raise DataFileError(f"the folder {here} has no data files")
    elif here.exists():
        files = [here]
    else:
        files = sorted(Path(found) for found in glob.glob(name, recursive=True))
        files = [file for file in files if _is_data(file)]
        if not files:
            raise FileNotFoundError(f"there is no file, folder or pattern {name!r}")
    sources = [_open_file(file, options, table) for file in files]
    return sources[0] if len(sources) == 1 else ManySource(sources)


def _is_data(file: Path) -> bool:
    """Leave out folders, hidden files, markers such as _SUCCESS, and offsets of .npy files."""
    return file.is_file() and file.name[0] not in "._" and not file.name.endswith(".offsets.npy")


def _open_file(path: Path, options: Mapping[str, Any], table: Table | None) -> Source:
    kind = kind_of(path)
    options = dict(options)
    report = options.pop("report", None)
    if kind == "npy":
        _refuse(path, options, {"offsets", "sequence", "max_bytes"}, "a NumPy file")
        offsets, sequence = options.get("offsets"), options.get("sequence")
        if sequence not in (None, False):
            raise DataFileError(f"{path} is a NumPy file, which has no column {sequence!r}")
        return NpySource(path, None if offsets is None else Path(offsets), sequence=sequence)
    if kind in TABLES:
        _refuse(path, options, _OF_TABLES | set(_CSV if kind == "csv" else ()), "a columnar file")
        own = {name: options.pop(name) for name in _CSV if name in options}
        same = table if table is not None and table.path == path else None
        csv = CsvOptions(**own, report=report)
        return ArrowSource(path, kind, csv=csv, table=same, **options)
    _refuse(path, options, {"pattern", "lower", "encoding", "max_bytes"}, "read as text")
    return TextSource(path, None if kind == "text" else kind, **options)


def kind_of(path: Path) -> str:
    """Recognize the format of a file by its first bytes, and of text by its name."""
    with path.open("rb") as file:
        head = file.read(8)
    if not head:
        raise DataFileError(f"{path} is empty: 0 bytes")
    for magic, problem in _REFUSED.items():
        if head.startswith(magic):
            raise DataFileError(f"{path} is {problem}")
    kind = next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "text")
    is_table = kind in ("text", "gzip") and {".csv", ".tsv"} & set(path.suffixes)
    return "csv" if is_table else kind


def _refuse(path: Path, options: dict[str, Any], known: set[str], what: str) -> None:
    odd = sorted(set(options) - known)
    if odd:
        raise DataFileError(f"{path} is {what}, for which {', '.join(odd)} has no meaning")
