"""Positive numbers: waiting times without memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import as_given, check_positive, column_vector
from sojourn.families.rates import RateFamily
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Exponential(RateFamily):
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
    prior_shape : float or (D,) array, optional
        a°; by default 0.1, the weight of a tenth of a step.
    prior_rate : float or (D,) array, optional
        b°; by default a° m with the mean m of the column.

    Examples
    --------
    >>> family = Exponential(n_features=1, prior_shape=1.0, prior_rate=1.0)
    >>> np.exp(family.log_predictive(np.array([[1.0]]), np.array([[1.0, 1.0]])))
    array([[0.25]])
    """

    discrete = False
    parameter_names = ("rates_",)

    def __init__(
        self,
        n_features: int | None = None,
        prior_shape: float | ArrayLike | None = None,
        prior_rate: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.prior_shape = prior_shape
        self.prior_rate = prior_rate

    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Check that the data are not negative."""
        return check_positive(data, n_features, zero=True)

    def resolved(self, mean: Floats) -> dict[str, Any]:
        """Return a° and b°, by default from the means of the columns."""
        n_features, mean = len(mean), np.where(mean > 0, mean, 1.0)
        shape = column_vector("prior_shape", as_given(self.prior_shape, 0.1), n_features)
        rate = column_vector("prior_rate", as_given(self.prior_rate, mean * shape), n_features)
        return {"prior_shape": shape, "prior_rate": rate}

    def points(self, x: Floats) -> Floats:
        """Return log x, with a thousandth of the column's maximum in place of zero."""
        floor = 1e-3 * np.nanmax(np.where(x > 0, x, 1e-300), axis=0)
        return np.log(np.maximum(x, floor))

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, x)."""
        return 1.0, x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return zeros."""
        return namespace(x).zeros_like(x)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log density of a Lomax distribution with shape a and scale b."""
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
