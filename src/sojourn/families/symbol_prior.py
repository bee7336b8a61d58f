"""Prior counts of symbols, learned along with their statistics."""

from __future__ import annotations

from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sojourn import file_values
from sojourn.families.table import DecayedTable, RowSums
from sojourn.kernels.arrays import is_tensor, namespace, to_device, to_host
from sojourn.kernels.interface import Floats, Integers

_STEPS_PER_SYMBOL = 32  # steps per symbol between two updates: they take little time of training
_FARTHEST = np.log(10.0)  # limit of the extrapolation
_NUMBERS = {"of_seen": float, "of_new": float, "n_seen": int, "n_once": int}  # tensors on a GPU


class SymbolPrior:
    r"""A Dirichlet prior with one count for symbols that were seen, and one for the others.

    .. math::

        \phi_k \sim \mathrm{Dirichlet}(\lambda), \qquad
        \lambda_w = \lambda_{\mathrm{seen}} \text{ or } \lambda_{\mathrm{new}}

    λ_seen follows from expected table counts, eq (17), like the HDP's α.  The same likelihood would
    give λ_new = 0, because no state has such a symbol.  But a symbol that was seen once is new when
    it is left out: the leave-one-out likelihood, eq (18), estimates the mass of new symbols.

    An update reads the whole table.  Updates take place after V steps, then when the number of
    steps has doubled, and later after every 32 V steps, so that the cost per step does not depend
    on V.

    Parameters
    ----------
    n_symbols : int
        V.
    concentration : float
        Both counts, until the first update.
    seen : bool
        Whether λ_seen is learned.
    new : bool
        Whether λ_new is learned; otherwise it equals λ_seen.

    Attributes
    ----------
    times_seen : (V,) uint8 array
        How often each symbol occurred in the first pass over the data: 0, 1, or 2 for more.
        Changes in place.  On a GPU it is a tensor, as are the next four attributes: these then
        change in place too, because a CUDA graph reads them.
    of_seen : float
        λ_seen.
    of_new : float
        λ_new.
    n_seen : int
        Number of symbols seen.
    n_once : int
        Number of symbols seen once.
    n_sequences : int
        Number of sequences observed so far, at most one pass.
    steps_before : int
        Number of steps before the last update.
    steps_since : int
        Number of steps since the last update.

    Examples
    --------
    >>> prior = SymbolPrior(4, 0.1)
    >>> table = DecayedTable(np.zeros((2, 4)), "float64")
    >>> sums = RowSums(np.array([0, 2]), np.array([[3.0, 0.0], [0.0, 1.0]]), 4)
    >>> table.blend(sums, keep=0.0, weight=1.0)
    >>> prior.observe(sums, table, n_sequences=1, n_steps=4, total_sequences=1)
    >>> prior.n_seen, prior.n_once
    (2, 1)
    >>> bool(prior.of_new > 0.1)
    True
    """

    def __init__(
        self, n_symbols: int, concentration: float, *, seen: bool = True, new: bool = True
    ) -> None:
        self.learns_seen, self.learns_new = seen, new
        self.times_seen: NDArray[np.uint8] = np.zeros(n_symbols, np.uint8)
        self.of_seen = self.of_new = float(concentration)
        self.n_seen = self.n_once = 0
        self.n_sequences = 0
        self.steps_before = self.steps_since = 0

    @property
    def total(self) -> float:
        """Λ = Σ_w λ_w."""
        return self.n_seen * self.of_seen + (len(self.times_seen) - self.n_seen) * self.of_new

    def of(self, rows: Integers | None) -> Floats:
        """Return λ of some symbols, or of all."""
        times = self.times_seen if rows is None else self.times_seen[rows]
        of: Floats = namespace(times).where(times > 0, self.of_seen, self.of_new)
        return of

    def observe(
        self,
        sums: RowSums,
        table: DecayedTable,
        *,
        n_sequences: int,
        n_steps: int,
        total_sequences: int,
        n_threads: int = 1,
    ) -> None:
        """Count a minibatch that has been blended into the table, and update if it is due."""
        if self.n_sequences < total_sequences:  # later passes repeat the same symbols
            self._count(sums)
            self.n_sequences += n_sequences
        self.steps_since += n_steps
        n_symbols = len(self.times_seen)
        interval = np.clip(self.steps_before, n_symbols, _STEPS_PER_SYMBOL * n_symbols)
        if self.steps_since >= interval:
            self.learn(table, n_threads=n_threads)
            self.steps_before += self.steps_since
            self.steps_since = 0

    def _count(self, sums: RowSums) -> None:
        """Add how often each symbol occurs, which is the sum of its responsibilities."""
        if is_tensor(self.times_seen):
            self._count_tensors(sums)
            return
        rows = np.arange(sums.n_rows) if sums.rows is None else sums.rows
        occurs = np.rint(np.minimum(sums.values.sum(axis=1, dtype=np.float64), 2.0))
        before = self.times_seen[rows]
        after = np.minimum(before + occurs, 2).astype(np.uint8)
        self.times_seen[rows] = after
        self.n_seen += int(np.count_nonzero(after) - np.count_nonzero(before))
        self.n_once += int((after == 1).sum() - (before == 1).sum())

    def _count_tensors(self, sums: RowSums) -> None:
        """Count tensors, in which a symbol may have several rows, and the missing one may occur."""
        times_seen: Any = self.times_seen
        xp, n_symbols = namespace(times_seen), len(times_seen)
        occurs = xp.zeros(n_symbols + 1, "float64", like=times_seen)
        times = xp.astype(sums.values, "float64").sum(axis=1)
        if sums.rows is None:
            occurs[:n_symbols] = times
        else:
            occurs.index_add_(0, xp.astype(sums.rows, "int64"), times)
        after = xp.clip(times_seen + xp.round(occurs[:n_symbols]), None, 2.0)
        times_seen.copy_(after)
        self._set(n_seen=(after > 0).sum(), n_once=(after == 1).sum())

    def _set(self, **numbers: Any) -> None:
        """Set numbers; tensors in place."""
        for name, value in numbers.items():
            own = getattr(self, name)
            if is_tensor(own):
                own.copy_(value)
            else:
                setattr(self, name, _NUMBERS[name](value))

    def learn(self, table: DecayedTable, *, n_threads: int = 1) -> None:
        """Update both counts from the statistics, eqs (17) and (18)."""
        xp = namespace(self.times_seen)
        if self.learns_seen:
            # Two rounds of (17), then the limit if convergence is geometric.
            first = xp.log(self.of_seen)
            second = xp.log(self._round(table, self.of_seen, n_threads))
            third = xp.log(self._round(table, xp.exp(second), n_threads))
            slowness = (third - second) / xp.where(second == first, np.inf, second - first)
            slowness = xp.where((slowness > 0.0) & (slowness < 1.0), slowness, 0.0)
            ahead = (third - second) * slowness / (1.0 - slowness)
            self._set(of_seen=xp.exp(third + xp.clip(ahead, -_FARTHEST, _FARTHEST)))
        n_new = len(self.times_seen) - self.n_seen
        if not self.learns_new:
            self._set(of_new=self.of_seen)
        else:
            share = (table.totals / (table.totals + self.total)).sum()
            found = (1.0 + self.n_once) / (1.0 + n_new * share)
            self._set(of_new=xp.where(n_new > 0, found, self.of_new))

    def _round(self, table: DecayedTable, seen: Any, n_threads: int) -> Any:
        """Return the right-hand side of (17)."""
        tables = table.expected_tables(seen, n_threads=n_threads)
        # New symbols share this count if theirs is not learned.
        n_sharing = self.n_seen if self.learns_new else len(self.times_seen)
        total = n_sharing * seen + (len(self.times_seen) - n_sharing) * self.of_new
        xp = namespace(table.totals)
        rate = (xp.digamma(total + table.totals) - xp.digamma(total)).sum()
        return (1.0 + tables.sum()) / (1.0 + n_sharing * rate)

    def to_device(self, device: Any) -> Self:
        """Return a copy on a device."""
        moved = copy(self)
        moved.times_seen = to_device(self.times_seen.copy(), device)
        for name in _NUMBERS:
            value = np.array(getattr(self, name), dtype=np.float64)
            setattr(moved, name, to_device(value, device))
        return moved

    def to_host(self) -> Self:
        """Return a copy on the host."""
        moved = copy(self)
        moved.times_seen = to_host(self.times_seen).copy()
        for name, kind in _NUMBERS.items():
            setattr(moved, name, kind(getattr(self, name)))
        return moved

    def state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return everything, as JSON values and as arrays."""
        values = {name: value for name, value in vars(self).items() if name != "times_seen"}
        return values, {"times_seen": self.times_seen}

    @classmethod
    def from_state(cls, values: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the prior from `state`."""
        prior = cls(len(arrays["times_seen"]), values["of_seen"])
        if vars(prior).keys() - {"times_seen"} != values.keys():
            raise ValueError("the learned prior has other entries than a prior of symbols")
        vars(prior).update(values, times_seen=arrays["times_seen"].copy())
        return prior

    def check(self, n_symbols: int) -> None:
        """Raise a ValueError unless it is a prior that training can reach."""
        times = file_values.array("times_seen", self.times_seen, (n_symbols,), kinds="u")
        for name in ("learns_seen", "learns_new"):
            file_values.flag(name, getattr(self, name))
        for name in ("of_seen", "of_new"):
            file_values.positive(name, getattr(self, name))
        for name in ("n_sequences", "steps_before", "steps_since"):
            file_values.whole(name, getattr(self, name))
        n_seen, n_once = int(np.count_nonzero(times)), int((times == 1).sum())
        file_values.whole("n_seen", self.n_seen, n_seen, n_seen)
        file_values.whole("n_once", self.n_once, n_once, n_once)
