"""Data files as given on the command line."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Mapping
from glob import glob
from pathlib import Path
from typing import Any, NamedTuple

from sojourn.cli.common import some
from sojourn.families.words import words_of
from sojourn.models.base import BaseHMM
from sojourn.sources import Source
from sojourn.sources.arrow import TABLES, open_table
from sojourn.sources.csv_table import CsvOptions, Report
from sojourn.sources.csv_text import looks_like_table
from sojourn.sources.open import kind_of, open_path
from sojourn.sources.profile import (
    ID_NAMES,
    SEQUENCE_NAMES,
    TIME_NAMES,
    ColumnProfile,
    profile,
)
from sojourn.sources.tables import Table

_TEXT = ("lower", "pattern", "encoding", "max_bytes", "label", "weight")
_OF_CSV = ("max_bytes", "encoding", "missing")
_MOSTLY_DIFFERENT = 0.5  # distinct words per row above which a column is no set of symbols


class Opened(NamedTuple):
    """A data file, and how it is read.

    Attributes
    ----------
    source : Source
    columns : list of str
        Names of the columns of the observations, where the file has any.
    is_symbols : bool
        Whether whole numbers are symbols: in lists they are, in columns of a table they are not.
    reading : dict
        Options with which other data is read in the same way.
    notes : list of str
        What was decided, for people.
    table : Table or None
        A table with one row per step, of which rows can be read.
    """

    source: Source
    columns: list[str]
    is_symbols: bool
    reading: dict[str, Any]
    notes: list[str]
    table: Table | None = None


OPTIONS = (
    "column", "sequence", "time", "drop", "lower", "pattern", "encoding", "missing", "max_bytes",
    "label", "weight",
)  # fmt: skip
"""Options for reading that commands have in common."""


def reading_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the options for reading that were given on the command line.

    Examples
    --------
    >>> reading_options({"column": [], "lower": False, "model": "m", "time": None})
    {'lower': False}
    """
    return {n: given[n] for n in OPTIONS if n in given and given[n] not in (None, [], ())}


def open_data(
    path: str,
    given: Mapping[str, Any],
    report: Report | None = None,
    *,
    usual: Mapping[str, Any] = {},
    numbers: bool = False,
) -> Opened:
    """Open a file, folder or glob pattern; a table without lists has one row per step.

    Parameters
    ----------
    path : str
    given : mapping
        Options for reading; what is not among them is found out.
    report : callable, optional
        Called while a table is converted.
    usual : mapping
        Options where none are given.
    numbers : bool
        Whether columns of words are left out.
    """
    given = {**usual, **given}
    path = from_standard_input(given) if path == "-" else path
    files = _files(path)
    kind = kind_of(files[0]) if files else None
    if kind in TABLES:
        options = {name: value for name, value in given.items() if name != "pattern"}
        if kind != "csv":
            options = {n: v for n, v in options.items() if n not in ("encoding", "missing")}
        csv = CsvOptions(**{n: options[n] for n in _OF_CSV if n in options}, report=report)
        table = open_table(files[0], kind, csv)
        types = dict(zip(table.names, table.schema.types, strict=True))
        if usual.get("time") == options.get("time", "") not in table.names:
            del options["time"]  # the order of the rows cannot be checked without
        if "drop" in usual and usual["drop"] == options.get("drop"):
            del options["drop"]  # the columns to use are known
        if not any(str(of).startswith(("list", "large_list")) for of in types.values()):
            opened = _open_table(path, table, options, report, numbers=numbers)
            return opened._replace(table=table if len(files) == 1 else None)
        if len(options.get("column") or ()) == 1:
            options["column"] = options["column"][0]
    else:
        known = _TEXT if kind in ("text", "gzip", "zstd") else ("sequence",)
        options = {name: value for name, value in given.items() if name in known}
    return Opened(open_path(path, options), [], True, _lasting(options), [])


def open_for(
    model: BaseHMM, path: str, given: Mapping[str, Any], report: Report | None = None
) -> Opened:
    """Open data as the model's training data was read, except for the options given."""
    opened = open_data(path, given, report, usual=model.provenance_.get("reading", {}))
    return opened._replace(source=opened.source.encoded_by(words_of(model.emission_)))


def from_standard_input(given: Mapping[str, Any]) -> str:
    """Keep standard input in a temporary file until the command ends, and return its path."""
    folder = tempfile.mkdtemp(prefix="sojourn-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "standard-input"
    with path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    with path.open("rb") as file:
        head = file.read(2**16)
    kind = kind_of(path)
    named = {"column", "sequence", "time", "drop"} & set(given)
    if kind == "text" and (named or looks_like_table(head)):
        path = path.rename(path.with_suffix(".csv"))
    return str(path)


def _files(path: str) -> list[Path]:
    """Return the files that a path names; those of a folder begin with its first table."""
    here = Path(path)
    if here.is_file():
        return [here]
    found = here.iterdir() if here.is_dir() else map(Path, glob(path, recursive=True))
    return sorted(file for file in found if file.is_file() and file.name[0] not in "._")


def _open_table(
    path: str, table: Table, options: dict[str, Any], report: Report | None, *, numbers: bool
) -> Opened:
    """Open a table with one row per step: find the sequence's id and the columns to use."""
    notes: list[str] = []
    drop, time = list(options.pop("drop", None) or ()), options.get("time")
    for name in drop:
        if name not in table.names:
            raise ValueError(f"{path} has no column {name!r} to drop: {some(table.names)}")
    taken = (time, options.get("label"), options.get("weight"), *drop)
    free = [name for name in table.names if name not in taken]
    sequence = options.pop("sequence", None)
    if sequence is None:
        sequence = _find_sequence(table, free, notes)
    asked = options.pop("column", None)
    columns = [asked] if isinstance(asked, str) else asked
    if columns is None:
        free = [name for name in free if name != sequence]
        columns = _pick(table, free, sequence or None, notes, numbers=numbers)
    kinds = {name: table.schema.field(name).type for name in columns if name in table.names}
    is_words = len(columns) == 1 and str(kinds.get(columns[0], "")).endswith("string")
    reading: dict[str, Any] = {"column": columns, "sequence": sequence, **options}
    unused = [n for n in table.names if n not in (*columns, sequence, time)]
    how = {**reading, "column": columns[0] if is_words else columns, "report": report}
    source = open_path(path, how, table)
    reading |= {"drop": unused} if unused else {}
    return Opened(source, [] if is_words else columns, False, _lasting(reading), notes)


def _lasting(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for other data, which need not have labels and weights."""
    return {name: value for name, value in options.items() if name not in ("label", "weight")}


def _find_sequence(table: Table, free: list[str], notes: list[str]) -> str | bool:
    """Return the column that says which sequence a row belongs to; False if there is none."""
    named = next((name for name in SEQUENCE_NAMES if name in free), None)
    if named is None:
        maybe = [n for n in free if n.lower() in ID_NAMES or n.lower().endswith("_id")]
        looked = profile(table, maybe, None) if maybe else {}
        named = next((name for name, of in looked.items() if of.is_id), None)
    notes.append(
        f"column {named!r} says which sequence a row belongs to"
        if named
        else "all rows are taken as one sequence; --sequence COLUMN splits them into several"
    )
    return named or False


def _pick(
    table: Table, others: list[str], sequence: str | None, notes: list[str], *, numbers: bool
) -> list[str]:
    """Return the columns with observations, and say which others there are."""
    found = profile(table, others, sequence)
    left_out: dict[str, list[str]] = {}
    for name, of in found.items():
        why = _why_not(name, of, numbers=numbers)
        if why is not None and name not in table.odd_cells:  # of which an error tells
            left_out.setdefault(why, []).append(name)
    columns = [name for name in others if not any(name in names for names in left_out.values())]
    if not columns:  # whatever there is, is what is to be learned
        columns = [n for n, of in found.items() if of.kind in ("numbers", "words")] or others[:1]
        return columns
    for why, names in left_out.items():
        notes.append(f"left out, because {why}: {some(names)}; --column NAME brings one back")
    for name in columns:
        if found[name].kind == "words" and found[name].is_id and sequence is None:
            notes.append(
                f"every value of column {name!r} is in one run of rows: if that is where a "
                f"sequence begins, --sequence {name} says so"
            )
        if found[name].kind == "numbers" and _rises(found[name]):
            notes.append(
                f"column {name!r} only rises: --time {name} or --drop {name} leaves it out"
            )
    return columns


def _why_not(name: str, of: ColumnProfile, *, numbers: bool) -> str | None:
    """Return why a column cannot be an observation; None if it may be."""
    if of.kind == "dates":
        return "they are dates"
    if of.kind == "empty":
        return "they are empty"
    if of.kind == "other":
        return "they are neither numbers nor words"
    if of.kind == "words" and numbers:
        return "they are not numbers"
    if of.n_second and of.is_constant:
        return "they are constant in every sequence"
    if of.kind == "numbers" and of.n_second >= _LEAST and of.is_even:
        return "they step evenly, like a time or a number of the row"
    if of.kind == "numbers" and name.lower() in TIME_NAMES and _rises(of):
        return "they are times, which only rise"
    if of.kind == "words" and len(of.values) > _MOSTLY_DIFFERENT * of.n_rows:
        return "nearly all their values are different"
    return None


def _rises(of: ColumnProfile) -> bool:
    return of.n_second >= _LEAST and of.is_rising


_LEAST = 3  # rows with two before them: fewer say nothing about how a column goes on
