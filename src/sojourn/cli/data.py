"""Data files as given on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from sojourn.models.base import BaseHMM
from sojourn.sources import Source
from sojourn.sources import open as open_source
from sojourn.sources.open import kind_of
from sojourn.sources.tables import TABLES, column_types

_ID_COLUMNS = ("sequence", "sequence_id", "seq", "seq_id")


class Opened(NamedTuple):
    """A data file, and how it is read.

    Attributes
    ----------
    source : Source
    columns : list of str
        Names of the columns of numbers, where the file has any.
    is_symbols : bool
        Whether whole numbers are symbols: in lists they are, in columns of a table they are not.
    reading : dict
        Options with which other data is read in the same way.
    notes : list of str
        What was decided, for people.
    """

    source: Source
    columns: list[str]
    is_symbols: bool
    reading: dict[str, Any]
    notes: list[str]


def reading_options(
    column: list[str] | None,
    sequence: str | None,
    lower: bool | None,
    pattern: str | None,
    max_bytes: int | None = None,
    label: str | None = None,
    weight: str | None = None,
) -> dict[str, Any]:
    """Collect the options that were given on the command line."""
    given = {
        "column": column or None, "sequence": sequence, "lower": lower, "pattern": pattern,
        "max_bytes": max_bytes, "label": label, "weight": weight,
    }  # fmt: skip
    return {name: value for name, value in given.items() if value is not None}


def open_data(path: str, given: Mapping[str, Any]) -> Opened:
    """Open a file, folder or glob pattern; a table without lists has one row per step."""
    here = Path(path)
    kind = kind_of(here) if here.is_file() else None
    if kind in TABLES:
        options = {name: value for name, value in given.items() if name != "pattern"}
        types = column_types(here, kind, options.get("max_bytes"))
        if not any(str(of).startswith(("list", "large_list")) for of in types.values()):
            return _open_table(path, types, options)
        if len(options.get("column") or ()) == 1:
            options["column"] = options["column"][0]
    else:
        known = (
            ("lower", "pattern", "max_bytes", "label", "weight")
            if kind in ("text", "gzip", "zstd")
            else tuple(given)
        )
        options = {name: value for name, value in given.items() if name in known}
    return Opened(open_source(path, **options), [], True, _lasting(options), [])


def open_for(model: BaseHMM, path: str, given: Mapping[str, Any]) -> Opened:
    """Open data as the model's training data was read, except for the options given."""
    return open_data(path, {**model.provenance_.get("reading", {}), **given})


def _open_table(path: str, types: Mapping[str, Any], options: dict[str, Any]) -> Opened:
    """Open a table with one row per step: find the sequence's id and the columns to use."""
    notes = []
    sequence = options.pop("sequence", None)
    if sequence is None:
        sequence = next((name for name in _ID_COLUMNS if name in types), False)
        notes.append(
            f"column {sequence!r} says which sequence a row belongs to"
            if sequence
            else "all rows are taken as one sequence; --sequence COLUMN splits them into several"
        )
    asked = options.pop("column", None)
    columns = [asked] if isinstance(asked, str) else asked
    if columns is None:
        known = (sequence, options.get("label"), options.get("weight"))
        others = [name for name in types if name not in known]
        columns = [name for name in others if _is_number(types[name])] or others[:1]
        left_out = [name for name in others if name not in columns]
        if left_out:
            notes.append(f"columns left out because they are not numbers: {', '.join(left_out)}")
    is_words = len(columns) == 1 and columns[0] in types and not _is_number(types[columns[0]])
    reading: dict[str, Any] = {"column": columns, "sequence": sequence, **options}
    source = open_source(path, **{**reading, "column": columns[0] if is_words else columns})
    return Opened(source, [] if is_words else columns, False, _lasting(reading), notes)


def _lasting(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for other data, which need not have labels and weights."""
    return {name: value for name, value in options.items() if name not in ("label", "weight")}


def _is_number(kind: Any) -> bool:
    return str(kind).startswith(("int", "uint", "float", "half", "double", "bool"))
