"""Counts with a larger variance than a Poisson distribution has."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import as_given, check_counts, column_vector
from sojourn.families.columns import log_rising
from sojourn.families.learned_negative_binomial import LearnedNegativeBinomial
from sojourn.families.rates import ProbabilityFamily
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class NegativeBinomial(ProbabilityFamily):
    r"""Vectors of counts with a known dispersion r, and a Beta prior on the other parameter.

    .. math::

        \phi_{kd} \sim \mathrm{Beta}(\alpha^\circ_d, \beta^\circ_d), \qquad
        p(x_{td} = x \mid z_t = k) =
        \frac{\Gamma(x + r_d)}{\Gamma(r_d)\, x!}\, \phi_{kd}^{r_d} (1 - \phi_{kd})^{x}

    The mean is r (1 − φ) / φ, and the variance is the mean times 1/φ; with a large r the
    distribution is close to a Poisson distribution.
    t(x) = (r, x) for each column and a_g(α, β) = log B(α, β), so that the collapsed potential (2)
    is a beta negative binomial.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    dispersion : float or (D,) array, or None
        The number r of each column, the same for all states; None for one that every state learns:
        the family becomes a `LearnedNegativeBinomial`.
    alpha : float or (D,) array, optional
        α°; by default 0.1 r, the weight of a tenth of a step.
    beta : float or (D,) array, optional
        β°; by default 0.1 m with the mean m of the column.

    Examples
    --------
    >>> family = NegativeBinomial(n_features=1, dispersion=1.0, alpha=1.0, beta=1.0)
    >>> np.exp(family.log_predictive(np.array([[0.0]]), np.array([[1.0, 1.0]])))
    array([[0.5]])
    """

    discrete = True

    def __init__(
        self,
        n_features: int | None = None,
        dispersion: float | ArrayLike | None = 1.0,
        alpha: float | ArrayLike | None = None,
        beta: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.dispersion = dispersion
        self.alpha = alpha
        self.beta = beta

    def resolve(self, data: Sequences, n_states: int) -> Any:
        """Take columns and prior mean from the data."""
        if self.dispersion is not None:
            return super().resolve(data, n_states)
        if self.alpha is not None or self.beta is not None:
            raise ValueError("the prior of a learned dispersion is set by LearnedNegativeBinomial")
        return LearnedNegativeBinomial(self.n_features).resolve(data, n_states)

    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Check that the data are counts."""
        return check_counts(data, n_features)

    def resolved(self, mean: Floats) -> dict[str, Any]:
        """Return r, and α° and β°, by default from the means of the columns."""
        n_features, mean = len(mean), np.maximum(mean, 1e-3)
        r = column_vector("dispersion", self.dispersion, n_features)
        alpha = column_vector("alpha", as_given(self.alpha, 0.1 * r), n_features)
        beta = column_vector("beta", as_given(self.beta, 0.1 * mean), n_features)
        return {"dispersion": r, "alpha": alpha, "beta": beta}

    def points(self, x: Floats) -> Floats:
        """Return log(1 + x)."""
        return np.log1p(x)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (r, x)."""
        return self._r(x), x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return log Γ(x + r) − log Γ(r) − log x!."""
        return log_rising(self._r(x), x) - namespace(x).gammaln(x + 1.0)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log probability of a beta negative binomial."""
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
        """Return r as an array of the same kind as `like`."""
        r = column_vector("dispersion", self.dispersion, self.features)
        return namespace(like).asarray(r, like=like)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw counts at the posterior mean parameters."""
        chances = self.parameters(natural)["probs_"][states.values]
        return rng.negative_binomial(self._r(natural), chances)
