r"""Log potentials of columns that take long to compute, replaced by polynomials.

The log potential of an entry is a smooth function of it.  A polynomial through its values at the
right places comes closer by the same factor with each of them: through Chebyshev's points, or
points at equal distances where the entry is an angle.  The number of places is doubled until the
last coefficients are negligible; then a block of steps is one matrix product.  A state that has no
such polynomial, or too few steps to pay for it, keeps its closed form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.interface import Floats

_FEWEST, _MOST = 16, 256  # places
_NEGLIGIBLE = 1e-10  # sum of the last quarter of the coefficients
_ROUNDING = 1e-13  # of the largest coefficient, which the sum of the last ones cannot be below
_STEPS_A_PLACE = 2  # from which a polynomial takes less time than it saves


class Basis(ABC):
    """Functions of a number between −1 and 1 whose sums replace others; the first n of them."""

    @abstractmethod
    def places(self, n: int) -> Floats:
        """Return the n places where values determine n coefficients."""

    @abstractmethod
    def values(self, u: Floats, n: int) -> Floats:
        """Return the n functions at T places, shape (n, T)."""

    @abstractmethod
    def degrees(self, n: int) -> Any:
        """Return the degrees of the n functions."""

    def coefficients(self, values: Floats) -> Floats:
        """Return the coefficients (n, K) of K functions from their values (n, K) at the places."""
        return _inverse(self, len(values)) @ values


class Chebyshev(Basis):
    """Chebyshev's polynomials."""

    def places(self, n: int) -> Floats:
        """Return the zeros of the polynomial of degree n."""
        return np.cos(np.pi * (np.arange(n) + 0.5) / n)

    def values(self, u: Floats, n: int) -> Floats:
        """Return the polynomials up to degree n − 1, from T_{m+j} = 2 T_m T_j − T_{m−j}."""
        found = np.empty((n, len(u)))
        found[0], found[1] = 1.0, u
        m = 1
        while m < n - 1:
            more = min(m, n - 1 - m)
            np.multiply(found[1 : more + 1], 2.0 * found[m], out=found[m + 1 : m + more + 1])
            found[m + 1 : m + more + 1] -= found[m - more : m][::-1]
            m += more
        return found

    def degrees(self, n: int) -> Any:
        """Return 0, 1, ..., n − 1."""
        return np.arange(n)


class Fourier(Basis):
    """Cosines and sines of multiples of π u."""

    def places(self, n: int) -> Floats:
        """Return places at equal distances."""
        return 2.0 * np.arange(n) / n - 1.0

    def values(self, u: Floats, n: int) -> Floats:
        """Return 1, cos πu, sin πu, cos 2πu, ..., from powers of exp(iπu); n is even."""
        half = n // 2
        powers = np.empty((half + 1, len(u)), complex)
        powers[0], powers[1] = 1.0, np.exp(1j * np.pi * u)
        m = 1
        while m < half:
            more = min(m, half - m)
            np.multiply(powers[1 : more + 1], powers[m], out=powers[m + 1 : m + more + 1])
            m += more
        found = np.empty((n, len(u)))
        found[0], found[1::2], found[2::2] = 1.0, powers[1:].real, powers[1:half].imag
        return found

    def degrees(self, n: int) -> Any:
        """Return the numbers of periods."""
        return (np.arange(n) + 1) // 2


CHEBYSHEV, FOURIER = Chebyshev(), Fourier()


@lru_cache(maxsize=16)
def _inverse(basis: Basis, n: int) -> Floats:
    """Return the matrix that makes coefficients of values."""
    found: Floats = np.linalg.inv(basis.values(basis.places(n), n).T)
    return found


class SmoothIn(NamedTuple):
    """Numbers of which log potentials are smooth functions.

    Attributes
    ----------
    basis : Basis
        What sums to these functions.
    coordinate : callable
        Maps entries to the numbers.
    entry : callable
        The inverse of that.
    bounds : (float, float) or None
        Between which the numbers are; by default those of the data.
    """

    basis: Basis
    coordinate: Callable[[Floats], Floats]
    entry: Callable[[Floats], Floats]
    bounds: tuple[float, float] | None = None


@dataclass(frozen=True, eq=False)
class InterpolatedPotentials:
    """Log potentials that are sums over columns of smooth functions.

    Attributes
    ----------
    plain : callable
        The closed form, which defines what is computed.
    column : callable
        The terms of a column (T, 1), its number and some states: (T, number of states).
    n_states : int
    smooth_in : SmoothIn
    """

    plain: Callable[[Any], Floats]
    column: Callable[[Floats, int, Sequence[int]], Floats]
    n_states: int
    smooth_in: SmoothIn

    def __call__(self, x: Floats) -> Floats:
        """Return the log potentials, by the closed form."""
        return self.plain(x)

    def on(self, x: Floats) -> Callable[[Floats], Floats]:
        """Return the log potentials of steps that are among these."""
        if len(x) < _STEPS_A_PLACE * _FEWEST:
            return self.plain
        columns = [self._column(x[:, d], d) for d in range(x.shape[1])]

        def rows(steps: Floats) -> Floats:
            total = np.zeros((len(steps), self.n_states))
            for d, column in enumerate(columns):
                column.add_to(total, steps[:, d])
            return total

        return rows

    def _column(self, x: Floats, d: int) -> _Column:
        """Return polynomials for the terms of a column."""
        basis, coordinate, entry, bounds = self.smooth_in
        u = coordinate(x)
        known = u[~np.isnan(u)]
        low, high = bounds or ((known.min(), known.max()) if len(known) else (0.0, 1.0))
        high = high if high > low else low + 1.0
        left = list(range(self.n_states))
        coefficients = np.zeros((0, self.n_states))
        n = _FEWEST
        while left and n <= min(_MOST, len(known) // _STEPS_A_PLACE):
            at = entry(low + 0.5 * (high - low) * (basis.places(n) + 1.0))
            found = basis.coefficients(self.column(at[:, None], d, left))
            degrees = basis.degrees(n)
            last = np.abs(found[degrees > 0.75 * degrees.max()]).sum(axis=0)
            is_close = last <= _NEGLIGIBLE + _ROUNDING * np.abs(found).max(axis=0)
            if is_close.any():
                before, coefficients = coefficients, np.zeros((n, self.n_states))
                coefficients[: len(before)] = before
                coefficients[:, np.array(left)[is_close]] = found[:, is_close]
                left = [k for k, close in zip(left, is_close, strict=True) if not close]
            n *= 2
        return _Column(self, d, low, high, coefficients, left)


@dataclass(frozen=True, eq=False)
class _Column:
    """The terms of one column: polynomials, and states that have none."""

    potentials: InterpolatedPotentials
    d: int
    low: float
    high: float
    coefficients: Floats
    left: list[int]

    def add_to(self, total: Floats, x: Floats) -> None:
        """Add the terms of steps; missing entries have none."""
        own, (basis, coordinate, *_) = self.potentials, self.potentials.smooth_in
        missing = np.isnan(x)
        if len(self.coefficients):
            u = 2.0 * (coordinate(x) - self.low) / (self.high - self.low) - 1.0
            rows = basis.values(np.where(missing, 0.0, u), len(self.coefficients)).T
            rows = rows @ self.coefficients
        else:
            rows = np.zeros_like(total)
        if self.left:
            there = ~missing
            rows[np.ix_(there, np.array(self.left))] = own.column(x[there, None], self.d, self.left)
        rows[missing] = 0.0
        total += rows
