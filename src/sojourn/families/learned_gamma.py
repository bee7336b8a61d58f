"""Positive numbers with a shape that is learned."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.families.checks import (
    check_positive,
)
from sojourn.families.columns import log_rising
from sojourn.families.integrated import log_normal
from sojourn.families.interpolated import CHEBYSHEV, SmoothIn
from sojourn.families.prior_mean import PriorMeanFamily
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_MEAN, _DEVIATION = 1.0, 2.0  # of the logarithm of the shape


class LearnedGamma(PriorMeanFamily):
    r"""Vectors of positive numbers; every state learns the shape c and the rate of each column.

    .. math::

        \log c_{kd} \sim \mathcal{N}(1, 2^2), \quad
        \phi_{kd} \mid c_{kd} \sim \mathrm{Gamma}(n^\circ c_{kd}, n^\circ m_d), \quad
        x_{td} \mid z_t = k \sim \mathrm{Gamma}(c_{kd}, \phi_{kd})

    t(x) = (1, log x, x) for each column and log h(x) = −log x, so that

    .. math:: a_g(\lambda \mid c) = c \lambda_2 - \lambda_1 \log\Gamma(c) + \log\Gamma(c \lambda_1)
              - c \lambda_1 \log \lambda_3

    and c is integrated numerically, eq (50).  NaN is a missing entry.  ``Gamma(shape=None)``
    becomes this family.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    prior_steps : float or (D,) array
        n°: number of steps that the prior counts for.
    prior_mean : float or (D,) array, optional
        m: the prior mean; by default the column's.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.gamma(0.5, 1.0, 300), rng.gamma(9.0, 1.0, 300)])
    >>> model = sj.HMM(2, sj.Gamma(shape=None), random_state=0).fit(X, [300, 300])
    >>> np.sort(model.shapes_[:, 0]).round(1)
    array([0.5, 9.5])
    """

    coordinates = 3
    discrete = False
    ranges = ((-7.0, 16.0),)
    smooth_in = SmoothIn(CHEBYSHEV, np.log, np.exp)
    n_nodes = 41
    parameter_names = ("shapes_", "rates_")

    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Check that the data are positive."""
        return check_positive(data, n_features)

    def usual_mean(self, mean: Floats) -> Floats:
        """Return them; one where there are none."""
        return np.where(mean > 0.0, mean, 1.0)

    def points(self, x: Floats) -> Floats:
        """Return log x."""
        return np.log(x)

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, log x, x)."""
        return 1.0, namespace(x).log(x), x

    def entry_log_base(self, x: Floats) -> Floats:
        """Return −log x."""
        return -namespace(x).log(x)

    def log_joint(self, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return log p(c) + a_g(λ | c)."""
        n, logs, sums = parts
        xp = namespace(n)
        c = xp.exp(at[0])
        # c λ₂ − c λ₁ log(λ₃ / λ₁) is at most zero and does not depend on the unit of x.
        spread = logs - n * xp.log(sums / n)
        rest = xp.gammaln(c * n) - c * n * xp.log(n) - n * xp.gammaln(c)
        return c * spread + rest + log_normal(at[0], _MEAN, _DEVIATION)

    def log_given(self, x: Floats, at: tuple[Floats, ...], *parts: Floats) -> Floats:
        """Return the log density of a compound gamma distribution."""
        n, _, sums = parts
        xp = namespace(x)
        c = xp.exp(at[0])
        grown = log_rising(c * n, c) - xp.gammaln(c) - xp.log(x)
        return grown + c * xp.log(x / sums) - c * (n + 1.0) * xp.log1p(x / sums)

    def slopes(self, at: tuple[Floats, ...], *parts: Floats) -> tuple[Floats, ...]:
        """Return the derivatives of a_g(λ | c)."""
        n, _, sums = parts
        xp = namespace(n)
        c = xp.exp(at[0])
        return c * (xp.digamma(c * n) - xp.log(sums)) - xp.gammaln(c), c, -c * n / sums

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless the sums are those of positive numbers."""
        n, logs, sums = self.parts(natural)
        if min(n.min(), sums.min()) <= 0.0:
            raise ValueError("counts or sums are not positive")
        most = n * np.log(sums / n)
        if (logs > most + 1e-6 * (1.0 + np.abs(most))).any():
            raise ValueError("sums of logarithms are larger than the sums allow")

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw numbers at the posterior mean parameters."""
        shapes, rates = (part[states.values] for part in self.parameters(natural).values())
        return np.maximum(rng.gamma(shapes, 1.0 / rates), 1e-100 / rates)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``shapes_`` and ``rates_``, shape (K, D) both."""
        n, _, sums = parts = self.parts(natural)
        nodes = self.integrate(*parts)
        shapes = np.exp(nodes.mean(nodes.at[0]))
        return {"shapes_": shapes, "rates_": shapes * n / sums}
