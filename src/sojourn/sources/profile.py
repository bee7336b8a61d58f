"""What the columns of a table with one row per step look like: ids, times, constants, words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.sources.arrow_arrays import is_numeric, is_text, plain
from sojourn.sources.tables import Table

SEQUENCE_NAMES = ("sequence", "sequence_id", "seq", "seq_id")
"""Names of columns that say which sequence a row belongs to, without a look at them."""

ID_NAMES = ("id", "subject", "animal", "patient", "person", "user", "session", "trial", "track")
"""Names of columns that do so where their values come in runs."""

TIME_NAMES = ("t", "time", "timestamp", "when", "date", "datetime", "year", "step", "index")
"""Names of columns that are times where they only rise."""

_MANY_VALUES = 2**20  # distinct values that are counted


@dataclass
class ColumnProfile:
    """What is known of a column after a pass over the table.

    Attributes
    ----------
    kind : {"numbers", "words", "dates", "empty", "other"}
    is_constant : bool
        Whether it is the same in all rows of a sequence.
    is_even : bool
        Whether it changes by the same amount from row to row of a sequence.
    is_rising : bool
        Whether it rises from each row of a sequence to the next.
    n_rows, n_runs : int
        Rows, and runs of rows with the same value.
    values : set
        Distinct values; more than a million are not counted.
    n_second : int
        Rows with two rows of the same sequence before them.
    """

    kind: str
    is_constant: bool = True
    is_even: bool = True
    is_rising: bool = True
    n_rows: int = 0
    n_runs: int = 0
    n_second: int = 0
    values: set[Any] = field(default_factory=set)
    _last: list[Any] = field(default_factory=list)

    def add(self, column: NDArray[Any], same: NDArray[np.bool_]) -> None:
        """Add the next rows; `same` says whether each belongs to the sequence of the row before."""
        own = np.concatenate([self._last, column]) if len(self._last) else column
        begins = len(own) - len(column)
        same = np.concatenate([np.zeros(begins, bool), same])
        if begins == 2:
            same[1] = self._last_same
        changes = own[1:] != own[:-1]
        new = slice(max(begins, 1) - 1, None)
        self.n_runs += int(changes[new].sum()) + (begins == 0)
        self.is_constant &= not bool((changes & same[1:])[new].any())
        both, fresh = same[2:] & same[1:-1], slice(max(new.start - 1, 0), None)
        self.n_second += int(both[fresh].sum())
        if column.dtype.kind in "iuf":
            self._add_numbers(own.astype(np.float64), same[1:], both, new, fresh)
        self.n_rows += len(column)
        if len(self.values) <= _MANY_VALUES:
            self.values.update(np.unique(column).tolist())
        self._last, self._last_same = own[-2:].tolist(), bool(same[-1])
        if column.dtype == object:
            kept = np.empty(len(self._last), object)
            kept[:] = self._last
            self._last = kept  # type: ignore[assignment]

    def _add_numbers(
        self,
        x: NDArray[np.float64],
        same: NDArray[np.bool_],
        both: NDArray[np.bool_],
        new: slice,
        fresh: slice,
    ) -> None:
        """Look at the first differences that are new, and at the second ones that are."""
        first = np.diff(x)
        self.is_rising &= bool((first[new] > 0)[same[new]].all())
        second = np.abs(np.diff(first))
        slack = 1e-6 * np.abs(first[1:]) + 1e-12 * np.abs(x[2:])
        self.is_even &= bool((second <= slack)[fresh][both[fresh]].all())

    _last_same: bool = False

    @property
    def is_id(self) -> bool:
        """Whether its values come in runs of rows, each value in one."""
        return 2 <= self.n_runs == len(self.values) <= self.n_rows / 2


def profile(table: Table, names: Iterable[str], sequence: str | None) -> dict[str, ColumnProfile]:
    """Look at columns of a table in one pass.

    Parameters
    ----------
    table : Table
    names : iterable of str
        The columns.
    sequence : str or None
        Column with the id of the sequence.
    """
    found = {name: ColumnProfile(_kind(table, name)) for name in names}
    looked = [name for name, of in found.items() if of.kind in ("numbers", "words")]
    read = table.opened(sorted({*looked, *([sequence] if sequence else [])}))
    last: Any = None
    for block in range(table.n_blocks):
        for batch, _ in read(block):
            if batch.num_rows == 0:
                continue
            ids = np.zeros(batch.num_rows, np.int64)
            if sequence is not None:
                ids = plain(batch.column(sequence)).to_numpy()
            same = np.concatenate([[last is not None and last == ids[0]], ids[1:] == ids[:-1]])
            last = ids[-1]
            for name in looked:
                found[name].add(_values(batch.column(name)), same)
    return found


def _kind(table: Table, name: str) -> str:
    import pyarrow as pa

    kind = table.schema.field(name).type
    if name in table.dates or pa.types.is_temporal(kind):
        return "dates"
    if pa.types.is_null(kind):
        return "empty"
    return "numbers" if is_numeric(kind) else "words" if is_text(kind) else "other"


def _values(column: Any) -> NDArray[Any]:
    values = plain(column).to_numpy()
    if values.dtype == object:  # a missing word is a value of its own
        values[np.array([value is None for value in values])] = ""
    return values
