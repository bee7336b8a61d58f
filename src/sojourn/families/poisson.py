"""Counts without a bound."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.columns import ColumnFamily, log_rising
from sojourn.families.dense import (
    as_given,
    assign_steps,
    check_columns,
    check_counts,
    column_moments,
    column_vector,
)
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Poisson(ColumnFamily):
    r"""Vectors of counts, with an independent Gamma prior on the rate of each column.

    .. math::

        \phi_{kd} \sim \mathrm{Gamma}(a^\circ_d, b^\circ_d), \qquad
        x_{td} \mid z_t = k \sim \mathrm{Poisson}(\phi_{kd})

    t(x) = (1, x) for each column and a_g(b, a) = log Γ(a) − a log b, so that the collapsed
    potential (2) is a negative binomial.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    prior_shape, prior_rate : float or (D,) array, optional
        a° and b°.  By default the prior's mean is the column's mean m and its weight that of at
        most one step and at most one count: a° = min(m, 1), b° = a° / m.

    Examples
    --------
    >>> family = Poisson(n_features=1, prior_shape=1.0, prior_rate=1.0)
    >>> np.exp(family.log_predictive(np.array([[0.0]]), np.array([[1.0, 1.0]])))
    array([[0.5]])
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
        """Steps and counts."""
        return 2

    @property
    def discrete(self) -> bool:
        """Counts are."""
        return True

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""
        return ("lambdas_",)

    def resolve(self, data: Sequences, n_states: int) -> Poisson:
        """Take columns and prior mean from the data."""
        n_features = check_columns(data, self.n_features, "Poisson")
        mean = np.maximum(column_moments(check_counts(data, n_features).values).mean, 1e-3)
        shape = as_given(self.prior_shape, np.minimum(mean, 1.0))
        shape = column_vector("prior_shape", shape, n_features)
        rate = column_vector("prior_rate", as_given(self.prior_rate, shape / mean), n_features)
        return Poisson(n_features, shape, rate)

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are counts."""
        return check_counts(data, self.features)

    def prior(self) -> Floats:
        """Return λ° = (b°, a°)."""
        rate = column_vector("prior_rate", self.prior_rate, self.features)
        return np.concatenate([rate, column_vector("prior_shape", self.prior_shape, self.features)])

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster steps by log(1 + x)."""
        return assign_steps(data, np.log1p, n_states, rng)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, x)."""
        return 1.0, x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return −log x!."""
        return -namespace(x).gammaln(x + 1.0)

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return log Γ(a) − a log b."""
        b, a = parts
        xp = namespace(a)
        return xp.gammaln(a) - a * xp.log(b)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log probability of the negative binomial with size a and odds 1/b."""
        b, a = parts
        xp = namespace(b)
        grown = log_rising(a, x) - xp.gammaln(x + 1.0)
        return grown - a * xp.log1p(1.0 / b) - x * xp.log1p(b)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return x E[log φ] − E[φ] − log x!."""
        b, a = parts
        xp = namespace(a)
        return x * (xp.digamma(a) - xp.log(b)) - a / b - xp.gammaln(x + 1.0)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw counts at the posterior mean rates."""
        return rng.poisson(self.parameters(natural)["lambdas_"][states.values])

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``lambdas_``, the mean rates, shape (K, D)."""
        b, a = self.parts(natural)
        return {"lambdas_": a / b}
