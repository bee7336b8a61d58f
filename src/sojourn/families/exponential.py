"""Positive numbers: waiting times without memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.columns import ColumnFamily
from sojourn.families.dense import (
    as_given,
    assign_steps,
    check_columns,
    check_positive,
    column_moments,
    column_vector,
)
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Exponential(ColumnFamily):
    r"""Vectors of positive numbers, with an independent Gamma prior on the rate of each column.

    .. math::

        \phi_{kd} \sim \mathrm{Gamma}(a^\circ_d, b^\circ_d), \qquad
        x_{td} \mid z_t = k \sim \mathrm{Exponential}(\phi_{kd})

    t(x) = (1, x) for each column and a_g(a, b) = log Γ(a) − a log b, so that the collapsed
    potential (2) is a Lomax distribution.  Zeros are allowed; NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    prior_shape, prior_rate : float or (D,) array, optional
        a° and b°.  By default those of a tenth of a step at the column's mean m.

    Examples
    --------
    >>> family = Exponential(n_features=1, prior_shape=1.0, prior_rate=1.0)
    >>> np.exp(family.log_predictive(np.array([[1.0]]), np.array([[1.0, 1.0]])))
    array([[0.25]])
    """

    def __init__(
        self,
        n_features: int | None = None,
        prior_shape: float | ArrayLike | None = None,
        prior_rate: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.prior_shape = prior_shape
        self.prior_rate = prior_rate

    @property
    def coordinates(self) -> int:
        """Steps and sums."""
        return 2

    @property
    def discrete(self) -> bool:
        """Real numbers are not."""
        return False

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""
        return ("rates_",)

    def resolve(self, data: Sequences, n_states: int) -> Exponential:
        """Take columns and prior mean from the data."""
        n_features = check_columns(data, self.n_features, "Exponential")
        mean = column_moments(check_positive(data, n_features, zero=True).values).mean
        mean = np.where(mean > 0, mean, 1.0)
        shape = column_vector("prior_shape", as_given(self.prior_shape, 0.1), n_features)
        rate = column_vector("prior_rate", as_given(self.prior_rate, mean * shape), n_features)
        return Exponential(n_features, shape, rate)

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are not negative."""
        return check_positive(data, self.features, zero=True)

    def prior(self) -> Floats:
        """Return λ° = (a°, b°)."""
        shape = column_vector("prior_shape", self.prior_shape, self.features)
        return np.concatenate([shape, column_vector("prior_rate", self.prior_rate, self.features)])

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster steps by log x."""
        return assign_steps(data, _log_points, n_states, rng)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, x)."""
        return 1.0, x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return zeros."""
        return namespace(x).zeros_like(x)

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return log Γ(a) − a log b."""
        a, b = parts
        xp = namespace(a)
        return xp.gammaln(a) - a * xp.log(b)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log density of the Lomax distribution with shape a and scale b."""
        a, b = parts
        xp = namespace(a)
        return xp.log(a / b) - (a + 1.0) * xp.log1p(x / b)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return E[log φ] − x E[φ]."""
        a, b = parts
        xp = namespace(a)
        return xp.digamma(a) - xp.log(b) - x * (a / b)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw numbers at the posterior mean rates."""
        return rng.exponential(1.0 / self.parameters(natural)["rates_"][states.values])

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``rates_``, the mean rates, shape (K, D)."""
        a, b = self.parts(natural)
        return {"rates_": a / b}


def _log_points(x: Floats) -> Floats:
    """Return log x, with a zero as a thousandth of its column's largest."""
    floor = 1e-3 * np.nanmax(np.where(x > 0, x, 1e-300), axis=0)
    return np.log(np.maximum(x, floor))
