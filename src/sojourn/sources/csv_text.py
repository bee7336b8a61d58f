"""Tables as text: what separates their cells, and what their cells are."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

MOSTLY = 0.95
"""Share of numbers from which a column is one of numbers, and other cells are mistakes."""

NULLS = ("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND",
         "1.#QNAN", "N/A", "NA", "NULL", "NaN", "n/a", "nan", "null")  # fmt: skip
"""Cells that are missing values."""

_DELIMITERS = ",;\t|"
_HEAD_ROWS = 200
_BOMS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}

_NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|(?i:inf|infinity|nan))$"
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+")
_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_CLOCK = r"\d{1,2}:\d{2}(:\d{2}([.,]\d+)?)?"
_DATE = (
    rf"^((\d{{4}}[-/.]\d{{1,2}}[-/.]\d{{1,2}}|\d{{1,2}}[-/.]\d{{1,2}}[-/.]\d{{2,4}})"
    rf"([T ]{_CLOCK}\s*(Z|[+-]\d{{2}}:?\d{{2}})?)?|{_CLOCK})$"
)


class Dialect(NamedTuple):
    """How a table is written.

    Attributes
    ----------
    delimiter : str
    decimal : str
        "." or ",".
    encoding : str
    has_quotes : bool
        Whether there are quotation marks, in which a cell may go on in the next line.
    """

    delimiter: str = ","
    decimal: str = "."
    encoding: str = "utf-8"
    has_quotes: bool = False


def sniff(head: bytes, usual: str = ",", encoding: str | None = None) -> Dialect:
    r"""Find out how a table is written from its first bytes.

    Parameters
    ----------
    head : bytes
        The first lines of the file.
    usual : str
        The delimiter where nothing speaks for another.
    encoding : str, optional
        As given; by default UTF-8, or what a byte order mark says.

    Examples
    --------
    >>> sniff(b"a;b\n1,5;2\n2,5;3\n")
    Dialect(delimiter=';', decimal=',', encoding='utf-8', has_quotes=False)
    """
    found = encoding
    if found is None:
        found = next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")
    text = head.decode(found, errors="replace")
    lines = text.splitlines()
    if len(lines) > 1 and not text.endswith(("\n", "\r")):
        lines.pop()  # it may not be complete
    lines = lines[:_HEAD_ROWS]
    delimiter, rows = _delimiter(lines, usual)
    cells = [cell.strip() for row in rows[1:] for cell in row]
    commas = [cell for cell in cells if _COMMA_NUMBER.fullmatch(cell)]
    if delimiter == ",":
        commas = [cell for cell in commas if not _THOUSANDS.fullmatch(cell)]
    has_points = any(_POINT_NUMBER.fullmatch(cell) for cell in cells)
    return Dialect(
        delimiter, "," if commas and not has_points else ".", found, any('"' in x for x in lines)
    )


def looks_like_table(head: bytes) -> bool:
    r"""Whether text has named columns of which one at least is numbers.

    Examples
    --------
    >>> looks_like_table(b"t,x\n1,2\n2,3\n"), looks_like_table(b"the cat sleeps\n")
    (True, False)
    """
    dialect = sniff(head)
    lines = head.decode(dialect.encoding, errors="replace").splitlines()[:_HEAD_ROWS]
    rows = [row for row in csv.reader(lines, delimiter=dialect.delimiter) if row]
    if len(rows) < 2 or any(map(is_number, rows[0])):
        return False
    complete = rows[1:-1] or rows[1:]
    if any(len(row) != len(rows[0]) for row in complete):
        return False
    columns = zip(*complete, strict=True)
    point = dialect.decimal
    return any(all(is_number(c.replace(point, ".")) for c in column) for column in columns)


def is_number(text: str) -> bool:
    """Whether a cell is a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def _delimiter(lines: list[str], usual: str) -> tuple[str, list[list[str]]]:
    """Return the delimiter that cuts most rows as it cuts the first, and the rows."""
    best, best_score = usual, (0.0, 0)
    for delimiter in usual + _DELIMITERS.replace(usual, ""):
        rows = _rows(lines, delimiter)
        if not rows or len(rows[0]) < 2:
            continue
        same = float(np.mean([len(row) == len(rows[0]) for row in rows]))
        if (same, len(rows[0])) > best_score:
            best, best_score = delimiter, (same, len(rows[0]))
    if best_score == (0.0, 0) and lines[1:]:
        commas = [bool(_COMMA_NUMBER.fullmatch(line.strip().strip('"'))) for line in lines[1:]]
        if np.mean(commas) >= MOSTLY:  # one column, with decimal commas
            best = ";"
    return best, _rows(lines, best)


def _rows(lines: list[str], delimiter: str) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines, delimiter=delimiter) if row]
    except csv.Error:
        return []


class ColumnCells:
    """What the cells of a column are, counted batch by batch.

    Parameters
    ----------
    name : str
    decimal : str
        The decimal point or comma.
    """

    def __init__(self, name: str, decimal: str) -> None:
        self.name = name
        self.decimal = decimal
        self.n_known = self.n_numbers = self.n_flags = self.n_dates = 0
        self.is_whole = True
        self.odd: tuple[int, str] | None = None
        """Row and text of the first cell that is not a number."""

    def add(self, cells: Any, first_row: int) -> None:
        """Count the cells of a PyArrow string array whose first is in row `first_row`."""
        import pyarrow as pa
        import pyarrow.compute as pc

        n_known = len(cells) - cells.null_count
        self.n_known += n_known
        if n_known == 0:
            return
        texts = pc.utf8_trim_whitespace(cells)
        if self.decimal != ".":
            texts = pc.replace_substring(texts, self.decimal, ".")
        for kind in (pa.int64(), pa.float64()) if self.is_whole else (pa.float64(),):
            try:
                texts.cast(kind)
            except pa.ArrowInvalid:
                continue
            self.is_whole = self.is_whole and kind == pa.int64()
            self.n_numbers += n_known
            return
        self.is_whole = False
        is_number = pc.match_substring_regex(texts, _NUMBER).fill_null(False)
        self.n_numbers += _count(is_number)
        self.n_flags += _count(pc.match_substring_regex(texts, "^(?i:true|false)$"))
        self.n_dates += _count(pc.match_substring_regex(texts, _DATE))
        if self.odd is None:
            is_odd = pc.and_(pc.invert(is_number), pc.is_valid(texts))
            at = int(np.flatnonzero(is_odd.to_numpy(zero_copy_only=False))[0])
            self.odd = first_row + at, str(cells[at].as_py())

    @property
    def type(self) -> Any:
        """The PyArrow type of the column."""
        import pyarrow as pa

        if self.n_known == 0:
            return pa.null()
        if self.n_numbers == self.n_known:
            return pa.int64() if self.is_whole else pa.float64()
        return pa.bool_() if self.n_flags == self.n_known else pa.string()

    @property
    def are_dates(self) -> bool:
        """Whether all cells are dates or times."""
        return 0 < self.n_known == self.n_dates

    @property
    def problem(self) -> str | None:
        """A sentence about the first cell that is not a number, where nearly all others are."""
        if self.odd is None or not MOSTLY <= self.n_numbers / self.n_known < 1.0:
            return None
        row, cell = self.odd
        also = ""
        if self.decimal == "." and _COMMA_NUMBER.fullmatch(cell.strip()):
            also = ", with a decimal comma where others have a point"
        return (
            f"row {row}, column {self.name!r}: {cell[:40]!r} is not a number{also}, and "
            f"{self.n_numbers:,} of {self.n_known:,} cells are: correct it, or if it stands for a "
            f"missing value, missing={cell[:40]!r} says so"
        )


def _count(mask: Any) -> int:
    import pyarrow.compute as pc

    return int(pc.sum(mask).as_py() or 0)


def undecodable(path: Path, encoding: str) -> str:
    """Describe the first byte of a file that is not in its encoding, and what to do."""
    at = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError as error:
                bad = line[error.start : error.start + 1].hex()
                where = f"line {number}, byte {at + error.start}: 0x{bad}"
                return f"{where} is not {remedy(encoding, error.reason)}"
            at += len(line)
    return f"it is not {remedy(encoding, 'when unpacked')}"


def remedy(encoding: str, reason: str) -> str:
    """Say which encoding a text does not have, why, and which to try."""
    shown = f"{encoding.removesuffix('-sig').upper()} ({reason})"
    if not shown.startswith("UTF-8"):
        return f"{shown}: encoding= names another"
    return f"{shown}: a file from an older program may be Latin-1, which encoding='latin-1' reads"


def null_values(missing: Sequence[str]) -> list[str]:
    """Return all cells that are missing values, with those given."""
    return [*NULLS, *missing]
