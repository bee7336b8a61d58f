"""Real vectors that depend linearly on covariates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import (
    check_columns,
    check_real,
    column_moments,
    refuse_partly_missing,
)
from sojourn.families.regression import RegressionFamily
from sojourn.families.scales import reach
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences, position


class LinearGaussian(RegressionFamily):
    r"""Real vectors given covariates, with a matrix-normal–inverse-Wishart prior.

    .. math::

        \Sigma_k \sim \mathcal{W}^{-1}(\nu^\circ, \Psi^\circ), \quad
        (b_k, A_k) \mid \Sigma_k \sim \mathcal{MN}(M^\circ, \Sigma_k, P^{\circ -1}), \quad
        y_t \mid z_t = k \sim \mathcal{N}(b_k + A_k u_t, \Sigma_k)

    The columns of the data are the targets y, followed by the covariates u, which are not modelled.
    t = (1, z zᵀ) with z = (1, u, y), and the collapsed potential (2) is a multivariate t.  A step
    is missing if all its targets are; then its covariates may be missing too.

    The fitted model has ``coefs_`` (K, D, C), ``intercepts_`` (K, D) and ``covars_`` (K, D, D) for
    D targets and C covariates.

    Parameters
    ----------
    n_targets : int
        Number of columns that are targets; the others are covariates.
    n_features : int, optional
        Number of all columns; by default the data's.
    mean : float or (n_targets,) array, optional
        Prior mean of a target when the covariates have their mean; by default the data's.
    mean_strength : float
        Number of steps that the prior mean counts for.
    coef_strength : float
        Number of steps that the prior mean of the coefficients, zero, counts for: the prior
        precision of a coefficient is this times the variance of its column.
    degrees_of_freedom : float, optional
        ν°; by default n_targets + 2, for which the prior covariance has the mean Ψ°.
    scale : float, (n_targets,) or (n_targets, n_targets) array, optional
        Ψ°, or its diagonal; by default from the variances of the targets.
    location : float or (n_features,) array, optional
        Subtracted from the data to keep sums of squares accurate; by default the data's mean.
    spread : float or (n_features,) array, optional
        Scale of each column, for the prior of the coefficients and for covariates that `sample`
        draws; by default its standard deviation.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> u = rng.normal(size=(200, 1))
    >>> slope = np.repeat([[2.0], [-2.0]], 100, axis=0)
    >>> X = np.hstack([slope * u + 0.1 * rng.normal(size=(200, 1)), u])
    >>> model = sj.HMM(2, sj.LinearGaussian(), random_state=0).fit(X, [50] * 4)
    >>> np.sort(model.coefs_[:, 0, 0]).round(1)
    array([-2.,  2.])
    """

    def __init__(
        self,
        n_targets: int = 1,
        n_features: int | None = None,
        mean: float | ArrayLike | None = None,
        mean_strength: float = 0.01,
        coef_strength: float = 0.01,
        degrees_of_freedom: float | None = None,
        scale: float | ArrayLike | None = None,
        location: float | ArrayLike | None = None,
        spread: float | ArrayLike | None = None,
    ) -> None:
        self.n_targets = n_targets
        self.n_features = n_features
        self.mean = mean
        self.mean_strength = mean_strength
        self.coef_strength = coef_strength
        self.degrees_of_freedom = degrees_of_freedom
        self.scale = scale
        self.location = location
        self.spread = spread

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of regressors, an intercept and the covariates, and of targets."""
        return 1 + self.features - self.n_targets, self.n_targets

    def resolve(self, data: Sequences, n_states: int) -> LinearGaussian:
        """Take columns, location and scale from the data."""
        n_features = check_columns(data, self.n_features, "LinearGaussian")
        n_targets = self.n_targets
        if isinstance(n_targets, bool) or not isinstance(n_targets, int | np.integer):
            raise TypeError(f"n_targets must be a whole number, got {n_targets!r}")
        if not 1 <= n_targets < n_features:
            raise ValueError(
                f"n_targets={n_targets} of {n_features} columns leaves no target or no covariate"
            )
        moments = column_moments(check_real(data, n_features).values)
        return self.filled(n_features, n_targets, moments, moments.variance[:n_targets], n_states)

    def of_regressors(self, columns: Floats) -> Floats:
        """Return the numbers of the covariates."""
        return columns[self.n_targets :]

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite, and that targets are complete or missing."""
        data = check_real(data, self.features, largest=reach(self.scale))
        missing = np.isnan(data.values)
        refuse_partly_missing(missing[:, : self.n_targets], data)
        unknown = missing[:, self.n_targets :].any(axis=1) & ~missing[:, 0]
        if unknown.any():
            step = int(np.flatnonzero(unknown)[0])
            raise ValueError(
                f"{position(step, data.offsets)}: a covariate is missing but the target is not; "
                "covariates are not modelled"
            )
        return data

    def sample(
        self,
        natural: Floats,
        states: Sequences,
        rng: np.random.Generator,
        covariates: Floats | None = None,
    ) -> NDArray[Any]:
        """Draw targets given covariates; without them, normal ones with the data's spread."""
        n = self.n_targets
        location, spread = np.asarray(self.location), np.asarray(self.spread)
        if covariates is None:
            drawn = rng.standard_normal((states.n_steps, self.features - n)) * spread[n:]
            covariates = drawn + location[n:]
        else:
            drawn = covariates - location[n:]
        regressors = np.concatenate([np.ones((len(drawn), 1)), drawn], axis=1)
        targets = self.draw(natural, states.values, regressors, rng) + location[:n]
        return np.concatenate([targets, covariates], axis=1)
