"""Real vectors with one variance for all columns of a state."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.families.base import POINT_STEPS
from sojourn.families.blocks import CompiledPotentials, LogPotentials
from sojourn.families.checks import (
    check_columns,
    check_real,
    column_moments,
    column_vector,
)
from sojourn.families.columns import log_rising
from sojourn.families.dense import DenseFamily
from sojourn.families.scales import (
    MOST_COLUMNS,
    check_dof,
    check_spread,
    column_sums,
    column_weights,
    located,
    reach,
    spread_prior,
    within_states,
)
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_LOG_PI = float(np.log(np.pi))
_LOG_2PI = float(np.log(2.0 * np.pi))


class SphericalGaussian(DenseFamily):
    r"""Real vectors with one variance per state, and a normal–inverse-gamma prior.

    .. math::

        \sigma^2_k \sim \mathrm{InvGamma}(\nu^\circ / 2, \Psi^\circ / 2), \quad
        \mu_k \mid \sigma^2_k \sim \mathcal{N}(m^\circ, \sigma^2_k I / \kappa^\circ), \quad
        x_t \mid z_t = k \sim \mathcal{N}(\mu_k, \sigma^2_k I)

    With y = x − c for a fixed location c, t(x) = (1 for each column, D, y, yᵀy): the ones count for
    κ of their columns, and D, the number of entries, for ν.  With Ψ = λ_4 − Σ_d λ_{3d}² / κ_d,

    .. math:: a_g = \log\Gamma(\nu/2) - \tfrac{\nu}{2} \log(\Psi/2)
              - \tfrac12 \textstyle\sum_d \log\kappa_d + \tfrac{D}{2} \log 2\pi

    and the collapsed potential (2) is a multivariate t.  NaN is a missing entry: given the state's
    parameters the columns are independent.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    mean : float or (D,) array, optional
        m°; by default the data's mean.
    mean_strength : float
        κ°: number of steps that the prior mean counts for.
    degrees_of_freedom : float, optional
        ν°; by default D / 10 + 2, or D + 2 where Ψ° is given.
    scale : float, optional
        Ψ°; by default D times the mean variance of the columns, divided by K^(2/D) and counted for
        a tenth of a step, or for one where ν° is given.
    location : float or (D,) array, optional
        c, as in `Gaussian`.

    Examples
    --------
    >>> import sojourn as sj
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (50, 2)), rng.normal(9, 2, (50, 2))])
    >>> model = sj.HMM(2, sj.SphericalGaussian(), random_state=0).fit(X, [25] * 4)
    >>> model.covars_.shape
    (2,)
    """

    parameter_names = ("means_", "covars_")
    has_point = True

    def __init__(
        self,
        n_features: int | None = None,
        mean: float | ArrayLike | None = None,
        mean_strength: float = 0.01,
        degrees_of_freedom: float | None = None,
        scale: float | None = None,
        location: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.mean = mean
        self.mean_strength = mean_strength
        self.degrees_of_freedom = degrees_of_freedom
        self.scale = scale
        self.location = location

    @property
    def n_statistics(self) -> int:
        """Number of statistics S."""
        return 2 * self.features + 2

    def resolve(self, data: Sequences, n_states: int) -> SphericalGaussian:
        """Take columns, location and scale from the data."""
        n_features = check_columns(data, self.n_features, "SphericalGaussian")
        moments = column_moments(check_real(data, n_features).values)
        variance = within_states(moments.variance, n_states, n_features)
        given = self.degrees_of_freedom, self.scale
        dof, scale = spread_prior(*given, variance.sum(), float(n_features), 2.0)
        return self.changed(
            **located(self, moments),
            degrees_of_freedom=check_dof(dof, 0.0),
            scale=float(column_vector("scale", scale, 1)[0]),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite."""
        return check_real(data, self.features, largest=reach(self.scale))

    def prior(self) -> Floats:
        """Return λ° = (κ° for each column, ν°, κ° m, Ψ° + κ° mᵀm) with m = m° − c."""
        mean = np.asarray(self.mean) - np.asarray(self.location)
        strength, scale = self.mean_strength, self.scale
        assert scale is not None
        assert self.degrees_of_freedom is not None
        return np.concatenate(
            [
                np.full(self.features, strength),
                [self.degrees_of_freedom],
                strength * mean,
                [scale + strength * mean @ mean],
            ]
        )

    def log_base_measure(self, x: Floats) -> Floats:
        """Return −½ log 2π for each entry that is present."""
        return -0.5 * _LOG_2PI * _present(x).sum(axis=1)

    def statistics(self, x: Floats) -> Floats:
        """Return t(x), without the missing entries."""
        xp, present = namespace(x), _present(x)
        y = xp.where(xp.isnan(x), 0.0, x - xp.asarray(self.location, like=x))
        total, squares = present.sum(axis=1)[:, None], (y**2).sum(axis=1)[:, None]
        return xp.concatenate([present, total, y, squares], axis=1)

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return a_g(λ)."""
        xp = namespace(natural)
        kappa, nu, _, scale = self._parts(natural)
        body = xp.gammaln(0.5 * nu) - 0.5 * nu * xp.log(0.5 * scale)
        return body - 0.5 * xp.log(kappa).sum(axis=1) + 0.5 * self.features * _LOG_2PI

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the log density of a multivariate t, or the expected log density."""
        xp = namespace(natural)
        kappa, nu, mean, scale = self._parts(natural)
        location = xp.asarray(self.location, like=natural)

        def distances(x: Floats, weights: Floats) -> Floats:
            """Return Σ_d weights_kd (y_d − mean_kd)² over the entries that are present."""
            if is_tensor(x):  # a GPU prefers few and large operations
                away = xp.nan_to_num((x - location)[:, None] - mean)
                return (weights * away**2).sum(axis=2)
            total = np.zeros((len(x), len(natural)))
            for d in range(self.features):
                away = np.nan_to_num((x[:, d] - location[d])[:, None] - mean[:, d])
                total += weights[:, d] * np.square(away, out=away)
            return total

        def predictive(x: Floats) -> Floats:
            present = _present(x)
            rows = distances(x, kappa / (kappa + 1.0))
            rows /= scale
            xp.log1p(rows, out=rows)
            entries = present.sum(axis=1)[:, None]
            rows *= -0.5 * (nu + entries)
            rows += log_rising(0.5 * nu, 0.5 * entries) - 0.5 * entries * (_LOG_PI + xp.log(scale))
            return rows - 0.5 * present @ xp.log1p(1.0 / kappa).T

        def expected(x: Floats) -> Floats:
            present = _present(x)
            rows = distances(x, xp.ones_like(kappa))
            rows *= -0.5 * nu / scale
            log_precision = xp.digamma(0.5 * nu) - xp.log(0.5 * scale)
            rows += 0.5 * present.sum(axis=1)[:, None] * (log_precision - _LOG_2PI)
            return rows - 0.5 * present @ (1.0 / kappa).T

        n = self.features
        plain = predictive if collapsed else expected
        if n > MOST_COLUMNS or is_tensor(natural):
            return plain
        entries = np.full(len(natural), 0.5 * n)
        if collapsed:
            squared, powers = kappa / (kappa + 1.0) / scale[:, None], 0.5 * (nu + n)
            constants = log_rising(0.5 * nu, entries) - entries * (_LOG_PI + np.log(scale))
            constants -= 0.5 * np.log1p(1.0 / kappa).sum(axis=1)
        else:
            squared, powers = np.repeat((nu / scale)[:, None], n, axis=1), np.full(len(nu), 0.5)
            constants = entries * (xp.digamma(0.5 * nu) - np.log(0.5 * scale) - _LOG_2PI)
            constants -= 0.5 * (1.0 / kappa).sum(axis=1)
        weights, spans = column_weights(mean, squared, one_group=True)

        ones = np.ones(len(natural))
        return CompiledPotentials(
            plain, False, location, weights, spans, ones, powers, constants, collapsed
        )

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of data without missing entries."""
        found = column_sums(x, self.location, weights, n_threads)
        if found is None:
            return None
        counts, sums, squares = found
        n = self.features
        total = squares.sum(axis=0, keepdims=True)
        return np.concatenate([np.repeat(counts, n, axis=0), n * counts, sums, total])

    def point(self, natural: Floats) -> Floats:
        """Return λ of many steps, whose variance is Ψ divided by the number of entries."""
        out, n = POINT_STEPS * natural, self.features
        steps = namespace(natural).clip(natural[:, n] - self.prior()[n], 1e-3, None)
        out[:, n] = POINT_STEPS * steps
        return out

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless κ, ν and Ψ are positive."""
        n = self.features
        kappa, sums = natural[:, :n], natural[:, n + 1 : 2 * n + 1]
        between = (sums * (sums / kappa)).sum(axis=1) if kappa.min() > 0.0 else natural[:, -1]
        check_spread(kappa[:, :1], natural[:, n], between * 0.0, natural[:, -1])
        if kappa.min() <= 0.0 or (between > natural[:, -1] * (1.0 + 1e-6)).any():
            raise ValueError("counts are not positive, or sums of squares too small for the sums")

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw vectors with the posterior mean parameters."""
        means, variances = (part[states.values] for part in self.parameters(natural).values())
        return means + np.sqrt(variances)[:, None] * rng.standard_normal(means.shape)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``means_``, shape (K, D), and ``covars_`` (variances), shape (K,)."""
        _, nu, mean, scale = self._parts(natural)
        # Up to ν = 2 the mean does not exist; the mode is used instead.
        weight = np.where(nu > 2, nu - 2, nu + 2)
        return {"means_": mean + np.asarray(self.location), "covars_": scale / weight}

    def _parts(self, natural: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return κ (K, D), ν (K,), the means (K, D), and Ψ (K,)."""
        n = self.features
        kappa, nu = natural[:, :n], natural[:, n]
        sums, squares = natural[:, n + 1 : 2 * n + 1], natural[:, 2 * n + 1]
        mean = sums / kappa
        scale = squares - (sums * mean).sum(axis=1)
        return kappa, nu, mean, namespace(natural).maximum(scale, 1e-15 * squares + 1e-300)


def _present(x: Floats) -> Floats:
    """Return one for every entry that is present, and zero for a missing one."""
    xp = namespace(x)
    return xp.astype(~xp.isnan(x), "float64")
