"""Potentials and sums of numbers by a single kernel on a GPU.

A family says which sums of squares its log potentials are functions of, and which statistics of at
most second order it sums; `sojourn.kernels.cuda.observations` computes them.  Only what the GPU's
backend places there comes this way; other tensors are computed by the closed forms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.families.base import EmissionRows
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats

Tensor = Any


class TensorRows(NamedTuple):
    """Observations on a GPU, for families that have a kernel there.

    Attributes
    ----------
    values : (T, C) float64 tensor
    n_sequences : int
        Sequences of the batch.
    range : (2, C) array or None
        Smallest and largest number of each column on the host, if they are few whole numbers.
    """

    values: Tensor
    n_sequences: int
    range: Floats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of the values."""
        return tuple(self.values.shape)


class QuadraticStatistics(NamedTuple):
    """Statistics of at most second order: ``a + b y[i] + c y[i] y[j]`` with ``y = x − location``.

    Attributes
    ----------
    location : (C,) array
    places : (3, S) integer array
        i, j, and a column without which the statistic is zero.
    factors : (3, S) array
        a, b and c.
    """

    location: Floats
    places: NDArray[np.int32]
    factors: Floats

    @classmethod
    def by_column(
        cls, location: Floats, constant: Floats, linear: Floats, product: Floats
    ) -> QuadraticStatistics:
        """Return statistics of single columns, of which there are P each: factors are (P, C)."""
        own = np.tile(np.arange(len(location)), len(constant))
        factors = np.array([np.ravel(part) for part in (constant, linear, product)])
        return cls(location, np.tile(own, (3, 1)).astype(np.int32), factors)

    def sums(self, rows: TensorRows, weights: Tensor) -> Tensor:
        """Return the weighted sums, shape (S, K)."""
        from sojourn.kernels.cuda import observations

        xp, x = namespace(rows.values), rows.values
        location, places, factors = (xp.asarray(part, like=x) for part in self)
        return observations.quadratic_sums(x, location, places, factors, weights, rows.n_sequences)


@dataclass(frozen=True, eq=False)
class SquaredPotentials:
    """Log potentials that are functions of sums of squares of linear forms, as tensors.

    Attributes
    ----------
    plain : callable
        The closed form, which defines what is computed.
    columns : (side,) integer array
        Columns of x in the forms.
    location : (side,) array
    weights : (1 + side, E, K) tensor
        As `kernels.cuda.observations.squared_rows` takes them, and what follows.
    spans : (E, 3) integer array
    powers : (G, K) tensor
    constants : (G, K) tensor
    collapsed : bool
    n_leverage : int
    half : float
    """

    plain: Callable[[Any], Floats]
    columns: NDArray[np.int32]
    location: Floats
    weights: Tensor
    spans: NDArray[np.int32]
    powers: Tensor
    constants: Tensor
    collapsed: bool
    n_leverage: int = 0
    half: float = 0.0

    def __call__(self, x: Floats) -> Floats:
        """Return the log potentials, by the closed form."""
        return self.plain(x)

    def tensor_rows(self, rows: TensorRows, dtype: Any) -> EmissionRows | None:
        """Return rows for the kernel."""
        from sojourn.kernels.cuda import observations

        xp, x = namespace(self.weights), rows.values
        found = observations.squared_rows(
            x,
            xp.asarray(self.columns, like=x),
            xp.asarray(self.location, like=x),
            self.weights.contiguous(),
            xp.asarray(self.spans, like=x),
            self.powers.contiguous(),
            self.constants.contiguous(),
            xp.dtype_of(dtype),
            collapsed=self.collapsed,
            n_leverage=self.n_leverage,
            half=self.half,
        )
        return EmissionRows(*found, xp.arange(len(x), dtype="int32", like=x))


def tabled_rows(column: Any, rows: TensorRows, dtype: Any) -> EmissionRows:
    """Return rows for the kernel from the potentials of every value of a column."""
    from sojourn.kernels.cuda import observations

    assert rows.range is not None
    x, (lows, tops) = rows.values, rows.range
    # Values below the smallest do not occur, and may be impossible.
    grid = np.clip(np.arange(tops.max() + 1.0)[:, None], lows, tops)[:, None]
    xp = namespace(x)
    logs = xp.transpose(column(xp.asarray(grid, like=x), slice(None)), (2, 0, 1))
    # Behind them stands a missing value, of which nothing is known.
    found = observations.tabled_rows(x, xp.padded_row(logs), xp.dtype_of(dtype))
    return EmissionRows(*found, xp.arange(len(x), dtype="int32", like=x))
