"""Real vectors that depend linearly on their own past."""

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
)
from sojourn.families.matrix_normal import MatrixNormalFamily, pack_prior
from sojourn.families.scales import check_dof, scale_matrix, with_one, within_states
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class AutoregressiveGaussian(MatrixNormalFamily):
    r"""Real vectors given their own past, with a matrix-normal–inverse-Wishart prior.

    .. math::

        \Sigma_k \sim \mathcal{W}^{-1}(\nu^\circ, \Psi^\circ), \quad
        (b_k, A_k) \mid \Sigma_k \sim \mathcal{MN}(M^\circ, \Sigma_k, P^{\circ -1}), \quad
        x_t \mid z_t = k \sim
        \mathcal{N}\bigl(b_k + \textstyle\sum_{l=1}^{L} A_{kl} x_{t-l}, \Sigma_k\bigr)

    t = (1, z zᵀ) with z = (1, past, x), and the collapsed potential (2) is a multivariate t.

    The first observation of a sequence has no past: it is taken as given, a step without evidence
    about its state.  Where the steps after it reach back beyond it, it stands for what was before.
    Only whole steps may be missing (all NaN).  The L steps after a missing one do not know their
    past, and are steps without evidence too.

    Parameters
    ----------
    order : int
        How many steps L the past reaches back.
    n_features : int, optional
        Number of columns D; by default the data's.
    mean : float or (D,) array, optional
        Prior mean of x where the past has its mean; by default the data's.
    mean_strength : float
        How many steps the prior mean counts for.
    coef_strength : float
        How many steps the prior mean of the coefficients, zero, counts for: the prior precision of
        a coefficient is this times the variance of its column.
    degrees_of_freedom : float, optional
        ν°; by default D + 2.
    scale : float, (D,) or (D, D) array, optional
        Ψ°, as for `Gaussian`; by default from the variances of the steps' differences, or of the
        data where these are smaller.
    location : float or (n_features,) array, optional
        Subtracted from the data so that sums of squares do not cancel; by default the data's mean.
    spread : float or (n_features,) array, optional
        Size of each column, for the prior of the coefficients; by default its
        standard deviation.

    Examples
    --------
    >>> import sojourn as sj
    >>> X = np.concatenate([np.sin(0.2 * np.arange(200)), np.sin(0.9 * np.arange(200))])
    >>> X = X + 0.01 * np.random.default_rng(0).normal(size=400)
    >>> model = sj.HMM(2, sj.AutoregressiveGaussian(order=2), random_state=0).fit(X, [100] * 4)
    >>> model.coefs_.shape, model.intercepts_.shape
    ((2, 1, 2), (2, 1))
    """

    def __init__(
        self,
        order: int = 1,
        n_features: int | None = None,
        mean: float | ArrayLike | None = None,
        mean_strength: float = 0.01,
        coef_strength: float = 0.01,
        degrees_of_freedom: float | None = None,
        scale: float | ArrayLike | None = None,
        location: float | ArrayLike | None = None,
        spread: float | ArrayLike | None = None,
    ) -> None:
        self.order = order
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
        """An intercept and the past, and the columns."""
        return 1 + self.order * self.features, self.features

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of what `parameters` returns."""
        return ("coefs_", "intercepts_", "covars_")

    def resolve(self, data: Sequences, n_states: int) -> AutoregressiveGaussian:
        """Take columns, location and scale from the data."""
        if isinstance(self.order, bool) or not isinstance(self.order, int) or self.order < 1:
            raise ValueError(f"order must be a whole number of at least 1, got {self.order!r}")
        n_features = check_columns(data, self.n_features, "AutoregressiveGaussian")
        values = plain_values(check_real(data, n_features))
        moments = column_moments(values)
        inside = np.setdiff1d(np.arange(1, len(values)), data.offsets)
        variance = moments.variance
        if len(inside):
            steps = column_moments(values[inside] - values[inside - 1]).variance
            variance = np.minimum(variance, steps)
        variance = within_states(variance, n_states, n_features)
        location = as_given(self.location, moments.mean)
        spread = as_given(self.spread, np.sqrt(moments.variance))
        return self.changed(
            n_features=n_features,
            mean=column_vector(
                "mean", as_given(self.mean, moments.mean), n_features, positive=False
            ),
            mean_strength=float(column_vector("mean_strength", self.mean_strength, 1)[0]),
            coef_strength=float(column_vector("coef_strength", self.coef_strength, 1)[0]),
            degrees_of_freedom=check_dof(
                as_given(self.degrees_of_freedom, n_features + 2.0), n_features - 1.0
            ),
            scale=scale_matrix(as_given(self.scale, variance), n_features),
            location=column_vector("location", location, n_features, positive=False),
            spread=column_vector("spread", spread, n_features),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite, and rows whole or missing."""
        return check_real(data, self.features, whole_rows=True)

    def prior(self) -> Floats:
        """Return λ°."""
        squares = np.tile(np.asarray(self.spread) ** 2, self.order)
        precision = np.concatenate([[self.mean_strength], self.coef_strength * squares])
        coefficients = np.zeros((self.features, len(precision)))
        coefficients[:, 0] = np.asarray(self.mean) - np.asarray(self.location)
        assert self.degrees_of_freedom is not None
        return pack_prior(self.degrees_of_freedom, coefficients, precision, np.asarray(self.scale))

    def observations(self, data: Sequences) -> Floats:
        """Return every step beside its past, shape (T, D + L D): x_t, x_{t−1}, ..., x_{t−L}."""
        values = plain_values(data)
        n, steps = self.features, np.arange(data.n_steps)
        present = ~np.isnan(values[:, 0])
        first = np.minimum.reduceat(np.where(present, steps, data.n_steps), data.offsets[:-1])
        firsts = np.minimum(np.repeat(first, data.lengths), data.n_steps - 1)
        out = np.empty((len(values), (1 + self.order) * n))
        out[:, :n] = values
        for lag in range(1, self.order + 1):
            out[:, lag * n : (lag + 1) * n] = values[np.maximum(steps - lag, firsts)]
        # Without its past a step says nothing; nor does the first, which has none.
        out[np.isnan(out).any(axis=1), :n] = np.nan
        out[firsts, :n] = np.nan
        return out

    def assign(
        self, data: Sequences, n_states: int, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Cluster windows of steps by their regressions."""
        return self.assign_windows(data, n_states, rng)

    def design(self, x: Floats) -> tuple[Floats, Booleans]:
        """Return z = (1, past, x), with the location taken out."""
        x, present = present_rows(x)
        z, n = with_one(x, np.tile(np.asarray(self.location), 1 + self.order)), self.features
        return namespace(z).concatenate([z[:, :1], z[:, 1 + n :], z[:, 1 : 1 + n]], axis=1), present

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw vectors step by step; before a sequence begins, the past is the location."""
        drawn = np.zeros((states.n_steps, self.features))
        for t in range(int(states.lengths.max())):
            now = (states.offsets[:-1] + t)[states.lengths > t]
            regressors = np.ones((len(now), self.sizes[0]))
            for lag in range(1, self.order + 1):
                columns = slice(1 + (lag - 1) * self.features, 1 + lag * self.features)
                regressors[:, columns] = drawn[now - lag] if lag <= t else 0.0
            drawn[now] = self.draw(natural, states.values[now], regressors, rng)
        return drawn + np.asarray(self.location)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``coefs_`` (K, D, L D), ``intercepts_`` (K, D) and ``covars_`` (K, D, D).

        The coefficients of the step before come first, then those of the step before that.
        """
        coefficients, covariances = self.means(natural)
        location, slopes = np.asarray(self.location), coefficients[:, :, 1:]
        past = np.tile(location, self.order)
        return {
            "coefs_": slopes,
            "intercepts_": coefficients[:, :, 0] + location - slopes @ past,
            "covars_": covariances,
        }
