"""Positive numbers with a known shape."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import as_given, check_positive, column_vector
from sojourn.families.columns import log_rising
from sojourn.families.learned_gamma import LearnedGamma
from sojourn.families.rates import RateFamily
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Gamma(RateFamily):
    r"""Vectors of positive numbers with a known shape c, and a Gamma prior on each column's rate.

    .. math::

        \phi_{kd} \sim \mathrm{Gamma}(a^\circ_d, b^\circ_d), \qquad
        x_{td} \mid z_t = k \sim \mathrm{Gamma}(c_d, \phi_{kd})

    t(x) = (c, x) for each column, log h(x) = (c − 1) log x − log Γ(c), and
    a_g(a, b) = log Γ(a) − a log b, so that the collapsed potential (2) is a compound gamma (beta
    prime) distribution.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    shape : float or (D,) array, or None
        The shape c of each column, the same for all states; None for one that every state learns:
        the family becomes a `LearnedGamma`.
    prior_shape : float or (D,) array, optional
        a°; by default 0.1 c, the weight of a tenth of a step.
    prior_rate : float or (D,) array, optional
        b°; by default 0.1 m with the mean m of the column.

    Examples
    --------
    >>> family = Gamma(n_features=1, shape=1.0, prior_shape=1.0, prior_rate=1.0)
    >>> np.exp(family.log_predictive(np.array([[1.0]]), np.array([[1.0, 1.0]])))
    array([[0.25]])
    """

    discrete = False
    parameter_names = ("rates_",)

    def __init__(
        self,
        n_features: int | None = None,
        shape: float | ArrayLike | None = 1.0,
        prior_shape: float | ArrayLike | None = None,
        prior_rate: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.shape = shape
        self.prior_shape = prior_shape
        self.prior_rate = prior_rate

    def resolve(self, data: Sequences, n_states: int) -> Any:
        """Take columns and prior mean from the data."""
        if self.shape is not None:
            return super().resolve(data, n_states)
        if self.prior_shape is not None or self.prior_rate is not None:
            raise ValueError("the prior of a learned shape is set by LearnedGamma, not by Gamma")
        return LearnedGamma(self.n_features).resolve(data, n_states)

    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Check that the data are positive."""
        return check_positive(data, n_features)

    def resolved(self, mean: Floats) -> dict[str, Any]:
        """Return c, and a° and b°, by default from the means of the columns."""
        n_features, mean = len(mean), np.where(mean > 0, mean, 1.0)
        c = column_vector("shape", self.shape, n_features)
        shape = column_vector("prior_shape", as_given(self.prior_shape, 0.1 * c), n_features)
        rate = column_vector("prior_rate", as_given(self.prior_rate, 0.1 * mean), n_features)
        return {"shape": c, "prior_shape": shape, "prior_rate": rate}

    def points(self, x: Floats) -> Floats:
        """Return log x."""
        return np.log(x)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (c, x)."""
        return self._c(x), x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return (c − 1) log x − log Γ(c)."""
        xp, c = namespace(x), self._c(x)
        return (c - 1.0) * xp.log(x) - xp.gammaln(c)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log density of a compound gamma distribution."""
        a, b = parts
        xp = namespace(a)
        c = self._c(x)[column]
        base = (c - 1.0) * xp.log(x) - xp.gammaln(c)
        grown = log_rising(a, c + xp.zeros_like(a)) - c * xp.log(b)
        return base + grown - (a + c) * xp.log1p(x / b)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return c E[log φ] − x E[φ] + log h(x)."""
        a, b = parts
        xp = namespace(a)
        c = self._c(x)[column]
        base = (c - 1.0) * xp.log(x) - xp.gammaln(c)
        return base + c * (xp.digamma(a) - xp.log(b)) - x * (a / b)

    def _c(self, like: Floats) -> Floats:
        """Return c as an array of the same kind as `like`."""
        return namespace(like).asarray(column_vector("shape", self.shape, self.features), like=like)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw numbers at the posterior mean rates."""
        return rng.gamma(self._c(natural), 1.0 / self.parameters(natural)["rates_"][states.values])
