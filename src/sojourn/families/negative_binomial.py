"""Counts that vary more than a Poisson's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.columns import ColumnFamily, log_beta, log_rising
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


class NegativeBinomial(ColumnFamily):
    r"""Vectors of counts with a known dispersion r, and a Beta prior on the other parameter.

    .. math::

        \phi_{kd} \sim \mathrm{Beta}(\alpha^\circ_d, \beta^\circ_d), \qquad
        p(x_{td} = x \mid z_t = k) =
        \frac{\Gamma(x + r_d)}{\Gamma(r_d)\, x!}\, \phi_{kd}^{r_d} (1 - \phi_{kd})^{x}

    The mean is r (1 − φ) / φ, and the variance the mean times 1/φ; a large r is nearly a Poisson.
    t(x) = (r, x) for each column and a_g(α, β) = log B(α, β), so that the collapsed potential (2)
    is a beta negative binomial.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    dispersion : float or (D,) array
        The number r of each column: known, not learned.
    alpha, beta : float or (D,) array, optional
        Parameters of the Beta prior.  By default those of a tenth of a step at the column's mean.

    Examples
    --------
    >>> family = NegativeBinomial(n_features=1, dispersion=1.0, alpha=1.0, beta=1.0)
    >>> np.exp(family.log_predictive(np.array([[0.0]]), np.array([[1.0, 1.0]])))
    array([[0.5]])
    """

    def __init__(
        self,
        n_features: int | None = None,
        dispersion: float | ArrayLike = 1.0,
        alpha: float | ArrayLike | None = None,
        beta: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.dispersion = dispersion
        self.alpha = alpha
        self.beta = beta

    @property
    def coordinates(self) -> int:
        """Dispersions and counts."""
        return 2

    @property
    def discrete(self) -> bool:
        """Counts are."""
        return True

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""
        return ("probs_",)

    def resolve(self, data: Sequences, n_states: int) -> NegativeBinomial:
        """Take columns and prior mean from the data."""
        n_features = check_columns(data, self.n_features, "NegativeBinomial")
        mean = np.maximum(column_moments(check_counts(data, n_features).values).mean, 1e-3)
        r = column_vector("dispersion", self.dispersion, n_features)
        alpha = column_vector("alpha", as_given(self.alpha, 0.1 * r), n_features)
        beta = column_vector("beta", as_given(self.beta, 0.1 * mean), n_features)
        return NegativeBinomial(n_features, r, alpha, beta)

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are counts."""
        return check_counts(data, self.features)

    def prior(self) -> Floats:
        """Return λ° = (α°, β°)."""
        alpha = column_vector("alpha", self.alpha, self.features)
        return np.concatenate([alpha, column_vector("beta", self.beta, self.features)])

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster steps by log(1 + x)."""
        return assign_steps(data, np.log1p, n_states, rng)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (r, x)."""
        return self._r(x), x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return log Γ(x + r) − log Γ(r) − log x!."""
        return log_rising(self._r(x), x) - namespace(x).gammaln(x + 1.0)

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return log B(α, β)."""
        return log_beta(*parts)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log probability of the beta negative binomial."""
        alpha, beta = parts
        r = self._r(x)[column]
        xp = namespace(alpha)
        grown = log_rising(alpha, r + xp.zeros_like(alpha)) + log_rising(beta, x)
        base = log_rising(r + 0.0 * x, x) - xp.gammaln(x + 1.0)
        return grown - log_rising(alpha + beta, r + x) + base

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return r E[log φ] + x E[log(1 − φ)] + log h(x)."""
        alpha, beta = parts
        r = self._r(x)[column]
        xp = namespace(alpha)
        total = xp.digamma(alpha + beta)
        base = log_rising(r + 0.0 * x, x) - xp.gammaln(x + 1.0)
        return r * (xp.digamma(alpha) - total) + x * (xp.digamma(beta) - total) + base

    def _r(self, like: Floats) -> Floats:
        """Return r, as an array of the kind of another."""
        r = column_vector("dispersion", self.dispersion, self.features)
        return namespace(like).asarray(r, like=like)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw counts at the posterior mean parameters."""
        chances = self.parameters(natural)["probs_"][states.values]
        return rng.negative_binomial(self._r(natural), chances)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``probs_``, the mean of φ, shape (K, D)."""
        alpha, beta = self.parts(natural)
        return {"probs_": alpha / (alpha + beta)}
