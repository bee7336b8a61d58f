"""Families whose columns are independent given the state, each with its own conjugate prior.

A column has p coordinates of λ and of t(x), including the counts, so that a missing entry changes
none of them: it is integrated out.  λ is kept as (K, p, D), flattened.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from sojourn.families.blocks import LogPotentials
from sojourn.families.checks import Booleans
from sojourn.families.dense import DenseFamily
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import is_tensor, maybe_any, namespace
from sojourn.kernels.interface import Floats

_LARGE = 1e4  # from where differences of log Γ lose more than 11 digits after the point


class ColumnFamily(DenseFamily):
    """A family that is a product over columns.

    Subclasses define the mathematics of entries: x has the shape (T, D) or (T, 1), and λ is given
    as p arrays.
    """

    coordinates: ClassVar[int]
    """Number p of coordinates per column."""

    discrete: ClassVar[bool]
    """Whether the data are non-negative whole numbers."""

    filler: ClassVar[float] = 1.0
    """A value in the support, computed with in place of a missing one."""

    @abstractmethod
    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return the p coordinates of t(x): each has the shape of x or (D,), or is a number."""

    @abstractmethod
    def entry_log_base(self, x: Floats) -> Floats:
        """Return log h(x) of every entry, shape (T, D)."""

    @abstractmethod
    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return a_g of every state and column, shape (K, D)."""

    @abstractmethod
    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return eq (2) of a column: x (T, 1) and p arrays (K,) give (T, K).

        It also takes all columns at once: x (T, 1, D) and p arrays (K, D) give (T, K, D).
        """

    @abstractmethod
    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return eq (2') of a column; shapes are as in `entry_log_predictive`."""

    @property
    def n_statistics(self) -> int:
        """Number of statistics S = p D."""
        return self.coordinates * self.features

    def parts(self, natural: Floats) -> tuple[Floats, ...]:
        """Return the p coordinates of λ, each (K, D)."""
        shaped = natural.reshape(len(natural), self.coordinates, self.features)
        return tuple(shaped[:, p] for p in range(self.coordinates))

    def log_base_measure(self, x: Floats) -> Floats:
        """Return log h(x): the sum over the entries that are present."""
        missing, filled = self._fill(x)
        return namespace(x).where(missing, 0.0, self.entry_log_base(filled)).sum(axis=1)

    def statistics(self, x: Floats) -> Floats:
        """Return t(x), zero in the coordinates of missing entries."""
        missing, filled = self._fill(x)
        out = namespace(x).empty((len(x), self.coordinates, self.features), "float64", like=x)
        for p, part in enumerate(self.entry_statistics(filled)):
            out[:, p] = part
        if maybe_any(missing):
            out *= ~missing[:, None, :]
        return out.reshape(len(x), -1)

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return a_g(λ), the sum over columns."""
        return self.entry_log_normalizer(*self.parts(natural)).sum(axis=1)

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return eq (2) or (2') as a function of x: the sum over columns."""
        entry = self.entry_log_predictive if collapsed else self.entry_expected

        def plain(x: Floats) -> Floats:
            return self._sum_columns(entry, x, natural)

        if self.discrete:
            parts = self.parts(natural)

            def column(values: Floats, d: Any) -> Floats:
                return entry(values, d, *(part[:, d] for part in parts))

            return TabledPotentials(plain, column, len(natural))
        if is_tensor(natural):
            return self.squared(plain, natural, collapsed=collapsed)
        return self.compiled(plain, natural, collapsed=collapsed)

    def squared(self, plain: LogPotentials, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the potentials with a kernel on a GPU, if there is one; by default as they are."""
        return plain

    def compiled(self, plain: LogPotentials, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the potentials with a compiled form, if there is one; by default as they are."""
        return plain

    def _fill(self, x: Floats) -> tuple[Booleans, Floats]:
        """Return which entries are missing, and x with a possible value in their place."""
        xp = namespace(x)
        missing = xp.isnan(x)
        return missing, xp.where(missing, self.filler, x) if maybe_any(missing) else x

    def _sum_columns(self, entry: Callable[..., Floats], x: Floats, natural: Floats) -> Floats:
        missing, filled = self._fill(x)
        parts = self.parts(natural)
        if is_tensor(x):  # a GPU prefers few and large operations
            rows = entry(filled[:, None], slice(None), *parts)
            return (rows * ~missing[:, None]).sum(axis=2)
        total = np.zeros((len(x), len(natural)))
        for d in range(self.features):
            column, own = filled[:, d], tuple(part[:, d] for part in parts)
            rows = entry(column[:, None], d, *own)
            if missing[:, d].any():
                rows = rows * ~missing[:, d, None]
            total += rows
        return total


def log_rising(a: Floats, x: Floats) -> Floats:
    """Return log Γ(a + x) − log Γ(a), to full precision for large a.

    Examples
    --------
    >>> log_rising(np.array([3.0, 1e12]), np.array([2.0, 1.0]))
    array([ 2.48490665, 27.63102112])
    """
    xp = namespace(a)
    if not maybe_any(a > _LARGE):
        return xp.gammaln(a + x) - xp.gammaln(a)
    plain = xp.gammaln(a + x) - xp.gammaln(a)
    ratio = x / a
    # Stirling's series, arranged so that large terms do not cancel.
    series = (a + x - 0.5) * xp.log1p(ratio) - x + x * xp.log(a) - x / (12.0 * a * (a + x))
    return xp.where(a > _LARGE, series, plain)


def log_beta(a: Floats, b: Floats) -> Floats:
    """Return log B(a, b)."""
    xp = namespace(a)
    return xp.gammaln(a) + xp.gammaln(b) - xp.gammaln(a + b)
