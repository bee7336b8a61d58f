"""Positive counts: the number of trials until the first success."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import as_given, check_counts, column_vector
from sojourn.families.columns import log_rising
from sojourn.families.rates import ProbabilityFamily
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Geometric(ProbabilityFamily):
    r"""Vectors of positive counts, with an independent Beta prior on each column.

    .. math::

        \phi_{kd} \sim \mathrm{Beta}(\alpha^\circ_d, \beta^\circ_d), \qquad
        p(x_{td} = x \mid z_t = k) = \phi_{kd} (1 - \phi_{kd})^{x - 1}, \quad x = 1, 2, \dots

    t(x) = (1, x − 1) for each column and a_g(α, β) = log B(α, β), so that the collapsed potential
    (2) is a beta-geometric (Waring) distribution.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    alpha : float or (D,) array, optional
        α°; by default 0.1, the weight of a tenth of a step.
    beta : float or (D,) array, optional
        β°; by default 0.1 (m − 1) with the mean m of the column.

    Examples
    --------
    >>> family = Geometric(n_features=1, alpha=1.0, beta=1.0)
    >>> np.exp(family.log_predictive(np.array([[1.0]]), np.array([[1.0, 1.0]])))
    array([[0.5]])
    """

    discrete = True

    def __init__(
        self,
        n_features: int | None = None,
        alpha: float | ArrayLike | None = None,
        beta: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.alpha = alpha
        self.beta = beta

    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Check that the data are positive counts."""
        return check_counts(data, n_features, least=1)

    def resolved(self, mean: Floats) -> dict[str, Any]:
        """Return α° and β°, by default from the means of the columns."""
        n_features = len(mean)
        alpha = column_vector("alpha", as_given(self.alpha, 0.1), n_features)
        failures = 0.1 * np.maximum(mean - 1.0, 0.1)
        beta = column_vector("beta", as_given(self.beta, failures), n_features)
        return {"alpha": alpha, "beta": beta}

    def points(self, x: Floats) -> Floats:
        """Return log x."""
        return np.log(x)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, x − 1)."""
        return 1.0, x - 1.0

    def entry_log_base(self, x: Floats) -> Floats:
        """Return zeros."""
        return namespace(x).zeros_like(x)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return log B(α + 1, β + x − 1) − log B(α, β)."""
        alpha, beta = parts
        xp = namespace(alpha)
        return xp.log(alpha) + log_rising(beta, x - 1.0) - log_rising(alpha + beta, x)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return E[log φ] + (x − 1) E[log(1 − φ)]."""
        alpha, beta = parts
        xp = namespace(alpha)
        total = xp.digamma(alpha + beta)
        return xp.digamma(alpha) - total + (x - 1.0) * (xp.digamma(beta) - total)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw counts at the posterior mean parameters."""
        return rng.geometric(self.parameters(natural)["probs_"][states.values])
