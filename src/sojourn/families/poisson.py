"""Counts without an upper limit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.base import CompiledPasses
from sojourn.families.blocks import LogPotentials
from sojourn.families.checks import as_given, check_counts, column_vector
from sojourn.families.columns import log_rising
from sojourn.families.rates import RateFamily
from sojourn.families.tabled import TabledPotentials
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.cpu.counts import gamma_poisson_rows
from sojourn.kernels.cpu.together_values import ValueSweeps
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences

FEW_COUNTS = 1e6
"""Counts of a state up to which differences of log Γ keep nine digits after the point."""


class Poisson(RateFamily):
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
    prior_shape : float or (D,) array, optional
        a°; by default min(m, 1) with the mean m of the column.
    prior_rate : float or (D,) array, optional
        b°; by default a° / m, so that the prior has the mean m, and the weight of at most one step
        and one count.

    Examples
    --------
    >>> family = Poisson(n_features=1, prior_shape=1.0, prior_rate=1.0)
    >>> np.exp(family.log_predictive(np.array([[0.0]]), np.array([[1.0, 1.0]])))
    array([[0.5]])
    """

    discrete = True
    prior_names = ("prior_rate", "prior_shape")
    parameter_names = ("lambdas_",)

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
        """Check that the data are counts."""
        return check_counts(data, n_features)

    def resolved(self, mean: Floats) -> dict[str, Any]:
        """Return a° and b°, by default from the means of the columns."""
        n_features, mean = len(mean), np.maximum(mean, 1e-3)
        shape = as_given(self.prior_shape, np.minimum(mean, 1.0))
        shape = column_vector("prior_shape", shape, n_features)
        rate = column_vector("prior_rate", as_given(self.prior_rate, shape / mean), n_features)
        return {"prior_shape": shape, "prior_rate": rate}

    def points(self, x: Floats) -> Floats:
        """Return log(1 + x)."""
        return np.log1p(x)

    def shape_and_rate(self, *parts: Floats) -> tuple[Floats, Floats]:
        """Return a and b of λ = (b, a)."""
        b, a = parts
        return a, b

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, x)."""
        return 1.0, x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return −log x!."""
        return -namespace(x).gammaln(x + 1.0)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log probability of a negative binomial with size a and odds 1/b."""
        b, a = parts
        xp = namespace(b)
        grown = log_rising(a, x) - xp.gammaln(x + 1.0)
        return grown - a * xp.log1p(1.0 / b) - x * xp.log1p(b)

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return eq (2) or (2') as a function of x; few counts of one column are compiled."""
        found = super().potentials(natural, collapsed=collapsed)
        if is_tensor(natural) or not (collapsed and self.features == 1):
            return found
        assert isinstance(found, TabledPotentials)
        b, a = np.ascontiguousarray(natural.T)
        if a.max() > FEW_COUNTS:
            return found
        return replace(found, compiled=lambda x, dtype: gamma_poisson_rows(x[:, 0], a, b, dtype))

    def compiled_passes(self, encoded: Any, offsets: Integers) -> CompiledPasses | None:
        """Return compiled passes over one column of small counts."""
        if self.features > 1 or not np.nansum(encoded) < FEW_COUNTS:
            return None
        values, places = np.unique(encoded[:, 0], return_inverse=True)
        prior = self.prior()

        def tables(counts: Floats) -> tuple[Floats, Floats]:
            b, a = np.ascontiguousarray((prior + counts).T)
            return gamma_poisson_rows(values, a, b, np.float64)

        return ValueSweeps(offsets, places, self.statistics(values[:, None]), tables)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return x E[log φ] − E[φ] − log x!."""
        b, a = parts
        xp = namespace(a)
        return x * (xp.digamma(a) - xp.log(b)) - a / b - xp.gammaln(x + 1.0)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw counts at the posterior mean rates."""
        return rng.poisson(self.parameters(natural)["lambdas_"][states.values])
