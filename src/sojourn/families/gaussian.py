"""Real vectors with a full covariance matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import (
    Booleans,
    check_columns,
    check_real,
    column_moments,
    present_rows,
)
from sojourn.families.matrix_factors import pack_prior
from sojourn.families.matrix_normal import MatrixNormalFamily
from sojourn.families.scales import (
    check_dof,
    located,
    reach,
    scale_matrix,
    spread_prior,
    with_one,
    within_states,
)
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class Gaussian(MatrixNormalFamily):
    r"""Real vectors with a full covariance matrix and a normal–inverse-Wishart prior.

    .. math::

        \Sigma_k \sim \mathcal{W}^{-1}(\nu^\circ, \Psi^\circ), \quad
        \mu_k \mid \Sigma_k \sim \mathcal{N}(m^\circ, \Sigma_k / \kappa^\circ), \quad
        x_t \mid z_t = k \sim \mathcal{N}(\mu_k, \Sigma_k)

    With y = x − c for a fixed location c, t(x) = (1, 1, y, y yᵀ); the two ones count for ν and κ.
    The collapsed potential (2) is a multivariate t.  Only whole steps may be missing (all NaN).

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    mean : float or (D,) array, optional
        m°; by default the data's mean.
    mean_strength : float
        κ°: number of steps that the prior mean counts for.
    degrees_of_freedom : float, optional
        ν°; by default D + 1.1, or D + 2 where Ψ° is given, which then is the prior mean.
    scale : float, (D,) or (D, D) array, optional
        Ψ°, or its diagonal.  By default the prior covariance is diagonal on average, with the
        variance of each column divided by K^(2/D), as the states divide the space that the data
        fill; it counts for a tenth of a step, or for one where ν° is given.  Where neither is, and
        moves find the number of states of small data, they also learn one factor of Ψ°, eq (69).
    location : float or (D,) array, optional
        c, subtracted from the data to keep sums of squares accurate; by default the data's mean.
        It affects only rounding, and the location of ``statistics_``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> import sojourn as sj
    >>> X = np.concatenate([rng.normal(1, 1, (50, 2)), rng.normal(9, 1, (50, 2))])
    >>> model = sj.HMM(2, sj.Gaussian(), random_state=0).fit(X, [25] * 4)
    >>> np.sort(model.means_[:, 0]).round()
    array([1., 9.])
    """

    parameter_names = ("means_", "covars_")

    def __init__(
        self,
        n_features: int | None = None,
        mean: float | ArrayLike | None = None,
        mean_strength: float = 0.01,
        degrees_of_freedom: float | None = None,
        scale: float | ArrayLike | None = None,
        location: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.mean = mean
        self.mean_strength = mean_strength
        self.degrees_of_freedom = degrees_of_freedom
        self.scale = scale
        self.location = location

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of regressors, the constant, and of targets, the columns."""
        return 1, self.features

    def resolve(self, data: Sequences, n_states: int) -> Gaussian:
        """Take columns, location and scale from the data."""
        n_features = check_columns(data, self.n_features, type(self).__name__)
        moments = column_moments(check_real(data, n_features).values)
        guess = within_states(moments.variance, n_states, n_features)
        given = self.degrees_of_freedom, self.scale
        dof, scale = spread_prior(*given, guess, 1.0, n_features + 1.0)
        return self.changed(
            **located(self, moments),
            degrees_of_freedom=check_dof(dof, n_features - 1.0),
            scale=scale_matrix(scale, n_features),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite, and that rows are complete or missing."""
        return check_real(data, self.features, largest=reach(self.scale), whole_rows=True)

    def prior(self) -> Floats:
        """Return λ°."""
        mean = np.asarray(self.mean) - np.asarray(self.location)
        strength = np.array([self.mean_strength])
        assert self.degrees_of_freedom is not None
        return pack_prior(self.degrees_of_freedom, mean[:, None], strength, np.asarray(self.scale))

    def design(self, x: Floats) -> tuple[Floats, Booleans]:
        """Return z = (1, x − c)."""
        x, present = present_rows(x)
        return with_one(x, self.location), present

    def center(self) -> Floats:
        """Return c."""
        return np.asarray(self.location)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw vectors with the posterior mean parameters."""
        ones = np.ones((states.n_steps, 1))
        return self.draw(natural, states.values, ones, rng) + np.asarray(self.location)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``means_``, shape (K, D), and ``covars_``, shape (K, D, D)."""
        coefficients, covariances = self.means(natural)
        return {
            "means_": coefficients[:, :, 0] + np.asarray(self.location),
            "covars_": covariances,
        }
