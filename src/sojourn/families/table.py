"""Emission statistics that decay at every update at a cost independent of their number.

The blend of eq (3) multiplies every statistic by 1 − ρ and adds the few of the minibatch.  With one
scale factor for all rows, the cost is proportional to the number of rows of the minibatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.arrays import is_tensor, to_host
from sojourn.kernels.cpu import symbols
from sojourn.kernels.cpu.block_sums import StrandSums
from sojourn.kernels.interface import CountRows, Floats, Integers, aligned, padded_states

if TYPE_CHECKING:
    from sojourn.families.symbol_prior import SymbolPrior

SMALLEST_SCALE = 1e-15
"""The rows are rescaled when the scale falls below this, so that none overflows."""


class RowSums:
    """Emission statistics of a batch, one row per statistic: sparse, or all of them.

    Parameters
    ----------
    rows : (U,) integer array or None
        Numbers of the rows present, which are distinct; None for all rows.
    values : (U, K) array
        Their sums over the batch, or `StrandSums`, which are added up when they are looked at.
    n_rows : int
        Number of all statistics S.
    totals : (K,) array or a function that returns it, optional
        The values summed over rows, if already known.  A function on a device, for the masses of
        states: whoever blends the transitions that they follow from has them in passing.

    Examples
    --------
    >>> a = RowSums(np.array([2, 0]), np.ones((2, 3)), 4)
    >>> b = RowSums(np.array([2, 1]), np.ones((2, 3)), 4)
    >>> a += b
    >>> a.dense()[:, 0]
    array([1., 1., 2., 0.])
    """

    def __init__(
        self,
        rows: NDArray[np.integer] | None,
        values: Floats | StrandSums,
        n_rows: int,
        totals: Any = None,
    ) -> None:
        self.rows, self.n_rows, self.totals = rows, n_rows, totals
        self._values = values

    @property
    def values(self) -> Floats:
        """The sums of the rows, (U, K)."""
        return self.join()

    @values.setter
    def values(self, values: Floats) -> None:
        self._values = values

    def join(self, *, n_threads: int = 1) -> Floats:
        """Add up the sums of strands, if they are apart, and return the sums."""
        if isinstance(self._values, StrandSums):
            self._values = self._values.joined(n_threads=n_threads)
        return self._values

    def add_to(self, table: Floats, weight: float, *, n_threads: int) -> Floats:
        """Add the rows, times a weight, to those of a table; return their totals."""
        if isinstance(self._values, StrandSums):
            return self._values.add_to(table, self.rows, weight, n_threads=n_threads)
        return symbols.add_rows(table, self.rows, self._values, weight, n_threads=n_threads)

    def __getstate__(self) -> dict[str, Any]:
        self.join()
        return vars(self)

    def dense(self) -> Floats:
        """Return all rows, shape (S, K)."""
        rows, values = self.rows, self.values
        if rows is None:
            return values
        if is_tensor(values):
            return _dense_tensor(rows, values, self.n_rows)
        out = np.zeros((self.n_rows, values.shape[1]), values.dtype)
        out[rows] = values
        return out

    def scaled(self, weight: float) -> RowSums:
        """Return the sums times a number."""
        is_known = self.totals is not None and not callable(self.totals)
        totals = weight * self.totals if is_known else None
        return RowSums(self.rows, weight * self.values, self.n_rows, totals)

    def to_host(self) -> RowSums:
        """Return the same sums as NumPy arrays."""
        rows = None if self.rows is None else to_host(self.rows)
        return RowSums(rows, to_host(self.values), self.n_rows)

    def __iadd__(self, other: RowSums) -> RowSums:
        if is_tensor(self.values):
            self.values, self.rows, self.totals = self.dense() + other.dense(), None, None
            return self
        if self.rows is None:
            symbols.add_rows(self.values, other.rows, other.values, 1.0)
            return self
        if other.rows is None or 4 * (len(self.rows) + len(other.rows)) > self.n_rows:
            self.rows, self.values = None, np.ascontiguousarray(self.dense())
            self += other
            return self
        rows = np.concatenate([self.rows, other.rows])
        self.rows, inverse = np.unique(rows, return_inverse=True)
        values = np.concatenate([self.values, other.values])
        self.values = symbols.sum_by_row(inverse, values, len(self.rows), n_threads=1)
        return self

    @classmethod
    def total(cls, parts: Sequence[RowSums]) -> RowSums:
        """Return the sum of many, added from first to last; sparse if all of them are.

        Examples
        --------
        >>> parts = [RowSums(np.array([n]), np.ones((1, 3)), 4) for n in (2, 0, 2)]
        >>> RowSums.total(parts).rows
        array([0, 2])
        """
        n_rows = parts[0].n_rows
        if any(part.rows is None for part in parts):
            values = np.zeros((n_rows, parts[0].values.shape[1]), parts[0].values.dtype)
            for part in parts:
                symbols.add_rows(values, part.rows, part.values, 1.0)
            return cls(None, values, n_rows)
        every = np.concatenate([part.rows for part in parts if part.rows is not None])
        rows, inverse = np.unique(every, return_inverse=True)
        stacked = np.concatenate([part.values for part in parts])
        return cls(rows, symbols.sum_by_row(inverse, stacked, len(rows), n_threads=1), n_rows)


class HeldStates(NamedTuple):
    """States whose statistics are given, and stay as they are.

    Attributes
    ----------
    states : (H,) integer array
    rows : (S, H) array
    totals : (H,) array
    """

    states: Any
    rows: Any
    totals: Any


class DecayedTable:
    """Expected emission statistics E[t], shape (S, K), under one scale factor.

    Parameters
    ----------
    statistics : (K, S) array
        Initial statistics, without the prior.
    dtype : {"float32", "float64"}
        Precision in which they are kept.

    Attributes
    ----------
    rows : (S, W) array
        The statistics divided by `scale`, one row per statistic, so that those of a symbol are
        contiguous; padded with zeros to a width W that suits the kernels.
    scale : float
    totals : (K,) float64 array
        The statistics summed over rows.
    prior : SymbolPrior or None
        Learned prior counts; None if those of the family are used.
    numbers : (U,) integer array or None
        Numbers of the statistics in `rows`, in increasing order; None for all of them.
    held : HeldStates or None
        States whose statistics do not change.  Then the scale is one.
    derived : tuple or None
        What a family has last derived from the statistics, and keeps for the chunks of a batch; not
        copied.

    Examples
    --------
    >>> table = DecayedTable(np.ones((2, 3)), "float64")
    >>> table.blend(RowSums(np.array([1]), np.full((1, 2), 8.0), 3), keep=0.5, weight=0.25)
    >>> table.dense()
    array([[0.5, 2.5, 0.5],
           [0.5, 2.5, 0.5]])
    """

    derived: Any = None

    def __init__(self, statistics: Floats, dtype: str = "float32") -> None:
        self.n_states, n_rows = statistics.shape
        self.rows: Floats = aligned((n_rows, padded_states(self.n_states)), dtype, zeros=True)
        self.rows[:, : self.n_states] = statistics.T
        self.scale = 1.0
        self.totals: Floats = self.rows.sum(axis=0, dtype=np.float64)[: self.n_states]
        self.prior: SymbolPrior | None = None
        self.numbers: Integers | None = None
        self.held: HeldStates | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "derived"}

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the statistics."""
        return self.rows.dtype

    def dense(self) -> Floats:
        """Return the statistics as a new (K, S) array."""
        scaled = self.rows[:, : self.n_states] * self.dtype.type(self.scale)
        return np.ascontiguousarray(scaled.T)

    def hold(self, states: Integers) -> None:
        """Keep the statistics of some states as they are, to the bit."""
        self.rows *= self.dtype.type(self.scale)
        self.scale = 1.0
        self.held = HeldStates(
            np.asarray(states), self.rows[:, states].copy(), self.totals[states].copy()
        )

    def blend(self, sums: RowSums, *, keep: float, weight: float, n_threads: int = 1) -> None:
        """Replace the statistics E by ``keep * E + weight * sums``, eq (3)."""
        if self.held is not None:
            self._blend_others(self.held, sums, keep, weight, n_threads)
            return
        if keep == 0.0 and sums.rows is None:
            self._replace(weight * sums.join(n_threads=n_threads))
            return
        self.scale *= keep
        if self.scale < SMALLEST_SCALE:
            # This includes keep = 0, which discards all earlier statistics.
            self.rows *= self.dtype.type(self.scale)
            self.scale = 1.0
        if self.prior is not None:  # it will look at them
            sums.join(n_threads=n_threads)
        added = sums.add_to(self.rows, weight / self.scale, n_threads=n_threads)
        self.totals = keep * self.totals + weight * added

    def _replace(self, values: Floats) -> None:
        """Discard all statistics for others (S, K)."""
        self.scale, self.totals = 1.0, values.sum(axis=0, dtype=np.float64)
        self.rows[:, : self.n_states] = values

    def _blend_others(
        self, held: HeldStates, sums: RowSums, keep: float, weight: float, n_threads: int
    ) -> None:
        """Blend the statistics of all states that are not held."""
        if len(held.states) == self.n_states:
            return
        self.rows *= self.dtype.type(keep)
        added = sums.add_to(self.rows, weight, n_threads=n_threads)
        self.totals = keep * self.totals + weight * added
        self.rows[:, held.states], self.totals[held.states] = held.rows, held.totals

    def extract(self, numbers: Integers | None) -> DecayedTable:
        """Return some of the statistics with the totals of all: enough for their potentials.

        The rows are shared or copied unchanged, so that potentials are identical.
        """
        part = copy(self)
        if numbers is not None:
            part.numbers, part.rows = numbers, self.rows[numbers]
        return part

    def clip(self, rows: Integers | None) -> None:
        """Set entries of some rows that rounding made negative to zero, after a subtraction."""
        chosen = slice(None) if rows is None else rows
        self.rows[chosen] = np.maximum(self.rows[chosen], 0.0)
        self.totals = np.maximum(self.totals, 0.0)

    def potentials(
        self,
        rows: Integers | None,
        prior: Floats,
        prior_totals: Floats,
        *,
        collapsed: bool,
        n_threads: int,
    ) -> Floats:
        """Return the Dirichlet potentials of some rows: see `symbols.predictive_rows`."""
        return symbols.predictive_rows(
            self.rows,
            self.scale,
            self._places(rows),
            prior,
            prior_totals + self.totals,
            collapsed=collapsed,
            n_threads=n_threads,
        )

    def count_rows(self, rows: Integers | None, prior: Floats, prior_totals: Floats) -> CountRows:
        """Return the same, collapsed, to be computed by a kernel: see `symbols.count_rows`."""
        totals = prior_totals + self.totals
        return symbols.count_rows(self.rows, self.scale, self._places(rows), prior, totals)

    def _places(self, rows: Integers | None) -> Integers | None:
        """Return which of the rows here have these statistics."""
        if self.numbers is None:
            return rows
        assert rows is not None, "an extract does not have all rows"
        return np.searchsorted(self.numbers, rows).astype(np.int32)

    def expected_tables(self, prior: float, *, n_threads: int = 1) -> Floats:
        """Return the expected tables of every row, eq (17): see `symbols.expected_tables`."""
        return symbols.expected_tables(self.rows, self.scale, prior, n_threads=n_threads)

    def regrouped(self, weights: Floats) -> DecayedTable:
        """Return a table of new states, each a weighted sum of these; `weights` is (K', K)."""
        rows = self.rows[:, : self.n_states] @ weights.T.astype(self.dtype)
        table = DecayedTable.from_parts(rows, self.scale, weights @ self.totals)
        table.prior = self.prior
        if self.held is not None:
            table.hold(np.flatnonzero(weights[:, self.held.states].sum(axis=1) > 0.0))
        return table

    def fill(self, statistics: Floats) -> None:
        """Replace the statistics (K, S), in place; those that are held stay."""
        self.scale = 1.0
        self.rows[:, : self.n_states] = statistics.T
        self.totals = self.rows.sum(axis=0, dtype=np.float64)[: self.n_states]
        if self.held is not None:
            self.rows[:, self.held.states] = self.held.rows
            self.totals[self.held.states] = self.held.totals

    def refilled(self, statistics: Floats) -> DecayedTable:
        """Return a table of other statistics (K', S), in this one's precision, with its prior."""
        table = DecayedTable(statistics, str(self.dtype))
        table.prior = self.prior
        return table

    @classmethod
    def from_parts(cls, rows: Floats, scale: float, totals: Floats) -> DecayedTable:
        """Rebuild a table to the bit from unpadded rows (S, K), scale and totals."""
        table = cls(rows.T, str(rows.dtype))
        table.scale, table.totals = scale, totals
        return table


def _dense_tensor(rows: Any, values: Any, n_rows: int) -> Any:
    # One row more, for symbols that are missing.
    values = values.double()
    out = values.new_zeros((n_rows + 1, values.shape[1]))
    return out.index_add_(0, rows.long(), values)[:n_rows]
