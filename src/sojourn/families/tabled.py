"""Potentials of columns of whole numbers, looked up in tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sojourn.families.base import EmissionRows
from sojourn.families.fused import TensorRows, tabled_rows
from sojourn.kernels.cpu.counts import codes, extremes, product_rows, with_totals
from sojourn.kernels.cpu.symbols import consecutive
from sojourn.kernels.interface import Floats, padded_states

MOST_VALUES = 1024
"""Number of distinct values of a column up to which a table is faster."""

WORTH_TABLES = 2**9
"""Entries times states from which tables beat the closed form in NumPy.

On an AMD EPYC, Poisson, one column, 3 states: 100 steps take 77 µs by tables and 57 µs without, 300
steps 58 and 91, 3,000 steps 73 and 716.
"""

_MOST_ROWS = 2**11  # combinations of values of columns that share a table

LogTable = Callable[[Floats, Any], Floats]
"""Maps the possible values of a column (V, 1), and its number, to log potentials (V, K).

With tensors it takes all columns at once: (V, 1, D) and a slice give (V, K, D)."""


@dataclass(frozen=True, eq=False)
class TabledPotentials:
    """Log potentials that are sums over columns of whole numbers.

    Attributes
    ----------
    plain : callable
        The closed form, which defines what is computed.
    column : LogTable
        The term of a column.
    n_states : int
    totals : bool
        Whether the sums of rows are one more column.
    compiled : callable, optional
        Returns rows and logarithms of their factors where there are too few steps for a table.
    """

    plain: Callable[[Any], Floats]
    column: LogTable
    n_states: int
    totals: bool = False
    compiled: Callable[[Floats, Any], tuple[Floats, Floats]] | None = None
    _known: dict[int, tuple[float, float, Floats]] = field(default_factory=dict, init=False)
    """The smallest and the largest value of columns so far, and their log potentials."""
    _made: dict[Any, tuple[Floats, Floats, Any]] = field(default_factory=dict, init=False)
    """Tables of these, by what they were made from: potentials, factors, where each begins."""

    def __call__(self, x: Floats) -> Floats:
        """Return the log potentials, by the closed form."""
        return self.plain(x)

    def rows(self, x: Floats, dtype: Any, n_threads: int) -> EmissionRows | None:
        """Return rows for the kernel, or None if `plain` applies alone or is faster."""
        if x.size * self.n_states < WORTH_TABLES or _are_too_large(x):
            if self.compiled is None:
                return None
            return EmissionRows(*self.compiled(x, dtype), consecutive(len(x)))
        x = np.ascontiguousarray(x, dtype=np.float64)
        if self.totals:
            x = with_totals(x, n_threads=n_threads)
        lows, tops, missing = extremes(x, n_threads=n_threads)
        if not tops.max() < MOST_VALUES or len(x) < 2 * tops.max():
            return None
        logs = [self._column(d, lows[d], tops[d], missing[d]) for d in range(x.shape[1])]
        sizes = np.array([len(part) for part in logs])
        groups, strides = _grouped(sizes, min(_MOST_ROWS, len(x)))
        table, log_scale, firsts = self._tables(logs, sizes, groups, dtype)
        index = codes(x, sizes, groups, strides, firsts, n_threads=n_threads)
        if len(firsts) == 1:
            return EmissionRows(table, log_scale, index[:, 0])
        found = product_rows(index, table, log_scale, self.n_states, dtype, n_threads=n_threads)
        return EmissionRows(*found, consecutive(len(x)))

    def tensor_rows(self, rows: TensorRows, dtype: Any) -> EmissionRows | None:
        """Return rows for the kernel on a GPU, or None if only `plain` applies."""
        if self.totals or rows.range is None:
            return None
        return tabled_rows(self.column, rows, dtype)

    def _tables(
        self, logs: list[Floats], sizes: Any, groups: Any, dtype: Any
    ) -> tuple[Floats, Floats, Any]:
        """Return the tables of all groups below each other, and where each begins.

        Several are multiplied in double precision; other chunks of a batch have the same.
        """
        key = tuple(sizes), tuple(groups), np.dtype(dtype)
        if key not in self._made:
            tables = [_joint([logs[d] for d in np.flatnonzero(groups == g)]) for g in set(groups)]
            firsts = np.cumsum([0] + [len(table) for table in tables[:-1]])
            kind = dtype if len(tables) == 1 else np.float64
            self._made[key] = *_scaled(np.concatenate(tables), kind), firsts
        return self._made[key]

    def _column(self, d: int, low: float, top: float, missing: bool) -> Floats:
        """Return the log potentials of the values of a column so far, zeros for a missing one."""
        none = np.zeros((int(missing), self.n_states))
        if not top >= low:  # all are missing
            return none
        least, most, logs = self._known.get(d, (np.inf, -np.inf, none))
        if low < least or top > most:
            least, most = min(low, least), max(top, most)
            # Values below the smallest do not occur, and may be impossible.
            values = np.maximum(np.arange(most + 1.0), least)[:, None]
            logs = self.column(values, d)
            self._known[d] = least, most, logs
            self._made.clear()
        return np.concatenate([logs, none]) if missing else logs


def _are_too_large(x: Floats) -> bool:
    """Whether few numbers are seen to be too large for a table at once."""
    return len(x) < MOST_VALUES and bool(len(x) < 2 * x.max())


def _grouped(sizes: Any, most: int) -> tuple[Any, Any]:
    """Put neighbouring columns into one table while it has at most so many rows."""
    groups, strides = np.zeros(len(sizes), np.int64), np.ones(len(sizes), np.int64)
    n_rows = 1
    for d, size in enumerate(sizes):
        is_full = d > 0 and n_rows * size > most
        groups[d] = groups[d - 1] + is_full if d else 0
        strides[d] = 1 if is_full else n_rows
        n_rows = int(strides[d] * size)
    return groups, strides


def _joint(logs: list[Floats]) -> Floats:
    """Return the log potentials of all combinations; the first column varies fastest."""
    total = logs[0]
    for part in logs[1:]:
        total = (part[:, None] + total[None]).reshape(-1, total.shape[1])
    return total


def _scaled(logs: Floats, dtype: Any) -> tuple[Floats, Floats]:
    """Return padded potentials, the largest of each row one, and the logarithms of the factors."""
    n_states = logs.shape[1]
    log_scale = logs.max(axis=1)
    table = np.zeros((len(logs), padded_states(n_states)), dtype)
    table[:, :n_states] = np.exp(logs - log_scale[:, None])
    return table, log_scale
