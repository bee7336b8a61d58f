"""Real vectors that depend linearly on covariates."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.dense import (
    Booleans,
    as_given,
    check_columns,
    check_real,
    column_moments,
    column_vector,
    plain_values,
    present_rows,
    refuse_partly_missing,
)
from sojourn.families.matrix_normal import MatrixNormalFamily, pack_prior
from sojourn.families.scales import check_dof, scale_matrix, with_one, within_states
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences, position


class LinearGaussian(MatrixNormalFamily):
    r"""Real vectors given covariates, with a matrix-normal–inverse-Wishart prior.

    .. math::

        \Sigma_k \sim \mathcal{W}^{-1}(\nu^\circ, \Psi^\circ), \quad
        (b_k, A_k) \mid \Sigma_k \sim \mathcal{MN}(M^\circ, \Sigma_k, P^{\circ -1}), \quad
        y_t \mid z_t = k \sim \mathcal{N}(b_k + A_k u_t, \Sigma_k)

    The columns of the data are the targets y, and after them the covariates u.  Covariates are
    given, not modelled.  t = (1, z zᵀ) with z = (1, u, y), and the collapsed potential (2) is a
    multivariate t.  A step is missing when all its targets are; then its covariates may be too.

    Parameters
    ----------
    n_targets : int
        How many columns are targets; the others are covariates.
    n_features : int, optional
        Number of all columns; by default the data's.
    mean : float or (n_targets,) array, optional
        Prior mean of a target where the covariates have their mean; by default the data's.
    mean_strength : float
        How many steps the prior mean counts for.
    coef_strength : float
        How many steps the prior mean of the coefficients, zero, counts for: the prior precision of
        a coefficient is this times the variance of its column.
    degrees_of_freedom : float, optional
        ν°; by default n_targets + 2.
    scale : float, (n_targets,) or (n_targets, n_targets) array, optional
        Ψ°, as for `Gaussian`; by default from the targets' variances.
    location : float or (n_features,) array, optional
        Subtracted from the data so that sums of squares do not cancel; by default the data's mean.
    spread : float or (n_features,) array, optional
        Size of each column, for the prior of the coefficients and for covariates that `sample`
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
        """An intercept and the covariates, and the targets."""
        return 1 + self.features - self.n_targets, self.n_targets

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""
        return ("coefs_", "intercepts_", "covars_")

    def resolve(self, data: Sequences, n_states: int) -> LinearGaussian:
        """Take columns, location and scale from the data."""
        n_features, n_targets = (
            check_columns(data, self.n_features, "LinearGaussian"),
            self.n_targets,
        )
        if not 1 <= n_targets < n_features:
            raise ValueError(
                f"n_targets={n_targets} of {n_features} columns leaves no target or no covariate"
            )
        moments = column_moments(check_real(data, n_features).values)
        variance = within_states(moments.variance[:n_targets], n_states, n_targets)
        mean, location = as_given(self.mean, moments.mean[:n_targets]), self.location
        spread = as_given(self.spread, np.sqrt(moments.variance))
        return self.changed(
            n_features=n_features,
            mean=column_vector("mean", mean, n_targets, positive=False),
            mean_strength=float(column_vector("mean_strength", self.mean_strength, 1)[0]),
            coef_strength=float(column_vector("coef_strength", self.coef_strength, 1)[0]),
            degrees_of_freedom=check_dof(
                as_given(self.degrees_of_freedom, n_targets + 2.0), n_targets - 1.0
            ),
            scale=scale_matrix(as_given(self.scale, variance), n_targets),
            location=column_vector(
                "location", as_given(location, moments.mean), n_features, positive=False
            ),
            spread=column_vector("spread", spread, n_features),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite, and targets whole or missing."""
        data = check_real(data, self.features)
        missing = np.isnan(data.values)
        refuse_partly_missing(missing[:, : self.n_targets], data)
        unknown = missing[:, self.n_targets :].any(axis=1) & ~missing[:, 0]
        if unknown.any():
            step = int(np.flatnonzero(unknown)[0])
            raise ValueError(
                f"{position(step, data.offsets)}: a covariate is missing where the target is not; "
                "covariates are given, not modelled"
            )
        return data

    def prior(self) -> Floats:
        """Return λ°."""
        n_targets = self.n_targets
        location, spread = np.asarray(self.location), np.asarray(self.spread)
        precision = np.concatenate(
            [[self.mean_strength], self.coef_strength * spread[n_targets:] ** 2]
        )
        coefficients = np.zeros((n_targets, len(precision)))
        coefficients[:, 0] = np.asarray(self.mean) - location[:n_targets]
        assert self.degrees_of_freedom is not None
        return pack_prior(self.degrees_of_freedom, coefficients, precision, np.asarray(self.scale))

    def observations(self, data: Sequences) -> Floats:
        """Return the values in double precision."""
        return plain_values(data)

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster windows of steps by their regressions."""
        return self.assign_windows(data, n_states, rng)

    def design(self, x: Floats) -> tuple[Floats, Booleans]:
        """Return z = (1, u, y), with the location taken out."""
        x, present = present_rows(x)
        z, n = with_one(x, self.location), self.n_targets
        return namespace(z).concatenate([z[:, :1], z[:, 1 + n :], z[:, 1 : 1 + n]], axis=1), present

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw covariates as independent normals of the data's size, and targets given them."""
        n = self.n_targets
        location, spread = np.asarray(self.location), np.asarray(self.spread)
        covariates = rng.standard_normal((states.n_steps, self.features - n)) * spread[n:]
        regressors = np.concatenate([np.ones((len(covariates), 1)), covariates], axis=1)
        targets = self.draw(natural, states.values, regressors, rng)
        return np.concatenate([targets, covariates], axis=1) + location

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``coefs_`` (K, D, C), ``intercepts_`` (K, D) and ``covars_`` (K, D, D)."""
        coefficients, covariances = self.means(natural)
        n, location = self.n_targets, np.asarray(self.location)
        slopes = coefficients[:, :, 1:]
        return {
            "coefs_": slopes,
            "intercepts_": coefficients[:, :, 0] + location[:n] - slopes @ location[n:],
            "covars_": covariances,
        }
