"""Real vectors that depend linearly on their own past."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.checks import check_columns, check_real, column_moments, plain_values
from sojourn.families.regression import RegressionFamily
from sojourn.families.scales import reach
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class AutoregressiveGaussian(RegressionFamily):
    r"""Real vectors given their own past, with a matrix-normal–inverse-Wishart prior.

    .. math::

        \Sigma_k \sim \mathcal{W}^{-1}(\nu^\circ, \Psi^\circ), \quad
        (b_k, A_k) \mid \Sigma_k \sim \mathcal{MN}(M^\circ, \Sigma_k, P^{\circ -1}), \quad
        x_t \mid z_t = k \sim
        \mathcal{N}\bigl(b_k + \textstyle\sum_{l=1}^{L} A_{kl} x_{t-l}, \Sigma_k\bigr)

    t = (1, z zᵀ) with z = (1, past, x), and the collapsed potential (2) is a multivariate t.

    The first observation of a sequence has no past: it is conditioned on, and gives no evidence
    about its state.  Steps whose past would reach back beyond it use it in place of earlier values.
    Only whole steps may be missing (all NaN).  The L steps after a missing one have an incomplete
    past, and give no evidence either.

    The fitted model has ``coefs_`` (K, D, L D), the coefficients of the previous step first,
    ``intercepts_`` (K, D) and ``covars_`` (K, D, D).

    Parameters
    ----------
    order : int
        Number of past steps L.
    n_features : int, optional
        Number of columns D; by default the data's.
    mean : float or (D,) array, optional
        Prior mean of x when the past has its mean; by default the data's.
    mean_strength : float
        Number of steps that the prior mean counts for.
    coef_strength : float
        Number of steps that the prior mean of the coefficients, zero, counts for: the prior
        precision of a coefficient is this times the variance of its column.
    degrees_of_freedom : float, optional
        ν°; by default D + 2, for which the prior covariance has the mean Ψ°.
    scale : float, (D,) or (D, D) array, optional
        Ψ°, or its diagonal; by default from the variances of the differences between successive
        steps, or those of the data if these are smaller.
    location : float or (n_features,) array, optional
        Subtracted from the data to keep sums of squares accurate; by default the data's mean.
    spread : float or (n_features,) array, optional
        Scale of each column, for the prior of the coefficients; by default its standard deviation.

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
    def past(self) -> int:
        """Number of earlier steps that an observation depends on."""
        return self.order

    @property
    def sizes(self) -> tuple[int, int]:
        """Number of regressors, an intercept and the past, and of targets, the columns."""
        return 1 + self.order * self.features, self.features

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
        return self.filled(n_features, n_features, moments, variance, n_states)

    def of_regressors(self, columns: Floats) -> Floats:
        """Return the numbers of the columns, once per lag."""
        return np.tile(columns, self.order)

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite, and that rows are complete or missing."""
        return check_real(data, self.features, largest=reach(self.scale), whole_rows=True)

    def observations(self, data: Sequences) -> Floats:
        """Return every step with its past, shape (T, D + L D): x_t, x_{t−1}, ..., x_{t−L}."""
        values = plain_values(data)
        n, steps = self.features, np.arange(data.n_steps)
        # Not by a product of matrices: threads of BLAS would go on spinning.
        if not np.isnan(values.min(initial=0.0)):
            return self._complete(values, data)
        present = ~np.isnan(values[:, 0])
        first = np.minimum.reduceat(np.where(present, steps, data.n_steps), data.offsets[:-1])
        firsts = np.minimum(np.repeat(first, data.lengths), data.n_steps - 1)
        out = np.empty((len(values), (1 + self.order) * n))
        out[:, :n] = values
        for lag in range(1, self.order + 1):
            out[:, lag * n : (lag + 1) * n] = values[np.maximum(steps - lag, firsts)]
        # A step without its past gives no evidence; nor does the first, which has none.
        out[np.isnan(out).any(axis=1), :n] = np.nan
        out[firsts, :n] = np.nan
        return out

    def _complete(self, values: Floats, data: Sequences) -> Floats:
        """Return every step with its past, if no entry is missing."""
        n, firsts = self.features, data.offsets[:-1]
        out = np.empty((len(values), (1 + self.order) * n))
        out[:, :n] = values
        for lag in range(1, self.order + 1):
            past = out[:, lag * n : (lag + 1) * n]
            past[lag:] = values[:-lag]
            for step in range(min(lag, int(data.lengths.max()))):
                # As far back as the sequence goes.
                at = firsts[data.lengths > step]
                past[at + step] = values[at]
        out[firsts, :n] = np.nan
        return out

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw vectors step by step; the past of the first step is the location."""
        drawn = np.zeros((states.n_steps, self.features))
        for t in range(int(states.lengths.max())):
            now = (states.offsets[:-1] + t)[states.lengths > t]
            regressors = np.ones((len(now), self.sizes[0]))
            for lag in range(1, self.order + 1):
                columns = slice(1 + (lag - 1) * self.features, 1 + lag * self.features)
                regressors[:, columns] = drawn[now - lag] if lag <= t else 0.0
            drawn[now] = self.draw(natural, states.values[now], regressors, rng)
        return drawn + np.asarray(self.location)
