"""Real vectors whose columns are independent given the state."""

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
from sojourn.families.columns import ColumnFamily, log_rising
from sojourn.families.fused import QuadraticStatistics, SquaredPotentials
from sojourn.families.scales import (
    MOST_COLUMNS,
    check_dof,
    check_spread,
    column_pairs,
    column_sums,
    column_weights,
    located,
    reach,
    spread_prior,
    within_states,
)
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_LOG_PI = float(np.log(np.pi))
_LOG_2 = float(np.log(2.0))


class DiagonalGaussian(ColumnFamily):
    r"""Real vectors with a diagonal covariance matrix and normal–inverse-gamma priors.

    .. math::

        \sigma^2_{kd} \sim \mathrm{InvGamma}(\nu^\circ / 2, \Psi^\circ_d / 2), \quad
        \mu_{kd} \mid \sigma^2_{kd} \sim \mathcal{N}(m^\circ_d, \sigma^2_{kd} / \kappa^\circ), \quad
        x_{td} \mid z_t = k \sim \mathcal{N}(\mu_{kd}, \sigma^2_{kd})

    With y = x − c for a fixed location c, t(x) = (1, 1, y, y²) for each column; the two ones count
    for κ and ν.  With Ψ = λ_4 − λ_3² / κ,

    .. math:: a_g = \log\Gamma(\nu/2) - \tfrac{\nu}{2} \log(\Psi/2) - \tfrac12 \log\kappa
              + \tfrac12 \log 2\pi

    and the collapsed potential (2) is a Student t for each column.  NaN is a missing entry.

    Parameters
    ----------
    n_features : int, optional
        Number of columns D; by default the data's.
    mean : float or (D,) array, optional
        m°; by default the data's mean.
    mean_strength : float
        κ°: number of steps that the prior mean counts for.
    degrees_of_freedom : float, optional
        ν°; by default 2.1, or 3 where Ψ° is given, which then is the prior mean.
    scale : float or (D,) array, optional
        Ψ°; by default the prior mean is each column's variance divided by K^(2/D), and counts for
        a tenth of a step, or for one where ν° is given.  Moves may learn a factor, see `Gaussian`.
    location : float or (D,) array, optional
        c, as in `Gaussian`.

    Examples
    --------
    >>> import sojourn as sj
    >>> X = np.array([0.1, -0.2, 0.3, 9.1, 8.9, np.nan, 9.2, 0.2, 0.0, -0.1])
    >>> model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0).fit(X, [5, 5])
    >>> np.sort(model.means_[:, 0]).round()
    array([0., 9.])
    """

    coordinates = 4  # κ, ν, sums and sums of squares
    discrete = False
    has_point = True
    fused = True
    sweeps = True
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

    def resolve(self, data: Sequences, n_states: int) -> DiagonalGaussian:
        """Take columns, location and scale from the data."""
        n_features = check_columns(data, self.n_features, "DiagonalGaussian")
        moments = column_moments(check_real(data, n_features).values)
        guess = within_states(moments.variance, n_states, n_features)
        dof, scale = spread_prior(self.degrees_of_freedom, self.scale, guess, 1.0, 2.0)
        return self.changed(
            **located(self, moments),
            degrees_of_freedom=check_dof(dof, 0.0),
            scale=column_vector("scale", scale, n_features),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are finite."""
        return check_real(data, self.features, largest=reach(self.scale))

    def prior(self) -> Floats:
        """Return λ° = (κ°, ν°, κ° m, Ψ° + κ° m²) with m = m° − c."""
        mean = np.asarray(self.mean) - np.asarray(self.location)
        ones = np.ones(self.features)
        assert self.degrees_of_freedom is not None
        strength = self.mean_strength
        return np.concatenate(
            [
                strength * ones,
                self.degrees_of_freedom * ones,
                strength * mean,
                np.asarray(self.scale) + strength * mean**2,
            ]
        )

    def entry_statistics(self, x: Floats) -> tuple[Floats | float, ...]:
        """Return (1, 1, y, y²)."""
        y = x - namespace(x).asarray(self.location, like=x)
        return 1.0, 1.0, y, y**2

    def entry_log_base(self, x: Floats) -> Floats:
        """Return −½ log 2π."""
        return namespace(x).full_like(x, -0.5 * (_LOG_2 + _LOG_PI))

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return a_g of every column."""
        kappa, nu, _, _ = parts
        xp = namespace(kappa)
        scale = _centred(*parts)[1]
        body = xp.gammaln(0.5 * nu) - 0.5 * nu * xp.log(0.5 * scale)
        return body - 0.5 * xp.log(kappa) + 0.5 * (_LOG_2 + _LOG_PI)

    def entry_log_predictive(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return the log density of a t with ν degrees of freedom."""
        kappa, nu, _, _ = parts
        xp = namespace(kappa)
        mean, scale = _centred(*parts)
        stretched = scale * (1.0 + 1.0 / kappa)
        constant = log_rising(0.5 * nu, 0.5 + xp.zeros_like(nu)) - 0.5 * xp.log(np.pi * stretched)
        away = x - xp.asarray(self.location, like=x)[column] - mean
        return constant - 0.5 * (nu + 1.0) * xp.log1p(away**2 / stretched)

    def entry_expected(self, x: Floats, column: int | slice, *parts: Floats) -> Floats:
        """Return ½ E[log σ⁻²] − ½ E[(x − μ)² / σ²] − ½ log 2π."""
        kappa, nu, _, _ = parts
        xp = namespace(kappa)
        mean, scale = _centred(*parts)
        log_precision = xp.digamma(0.5 * nu) - xp.log(0.5 * scale)
        away = x - xp.asarray(self.location, like=x)[column] - mean
        constant = 0.5 * (log_precision - 1.0 / kappa - _LOG_2 - _LOG_PI)
        return constant - 0.5 * away**2 * (nu / scale)

    def squared(self, plain: LogPotentials, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the same for a kernel on a GPU: a group of squares, of one number, per column."""
        kappa, nu, sums, squares = self.parts(natural)
        xp, n = namespace(natural), self.features
        mean, scale = _centred(kappa, nu, sums, squares)
        if collapsed:
            stretched = scale * (1.0 + 1.0 / kappa)
            root, powers = stretched**-0.5, 0.5 * (nu + 1.0)
            risen = log_rising(0.5 * nu, 0.5 + xp.zeros_like(nu))
            constants = risen - 0.5 * xp.log(np.pi * stretched)
        else:
            root, powers = (nu / scale) ** 0.5, 0.5 + xp.zeros_like(nu)
            log_precision = xp.digamma(0.5 * nu) - xp.log(0.5 * scale)
            constants = 0.5 * (log_precision - 1.0 / kappa - _LOG_2 - _LOG_PI)
        own = xp.transpose(root[:, :, None] * xp.eye(n, like=root), (1, 2, 0))
        weights = xp.concatenate([(-mean * root).T[None], own])
        column = np.arange(n, dtype=np.int32)
        spans = np.column_stack([column, column + 1, np.ones(n)]).astype(np.int32)
        return SquaredPotentials(
            plain,
            column,
            np.asarray(self.location),
            weights,
            spans,
            powers.T,
            constants.T,
            collapsed,
        )

    def quadratics(self) -> QuadraticStatistics:
        """Return (1, 1, y, y²)."""
        shape = (self.coordinates, self.features)
        constant, linear, product = np.zeros((3, *shape))
        constant[:2] = linear[2] = product[3] = 1.0
        return QuadraticStatistics.by_column(np.asarray(self.location), constant, linear, product)

    def compiled(self, plain: LogPotentials, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return a compiled form for data without missing entries."""
        parts = self.parts(natural)
        kappa, nu, _, _ = parts
        n_states, n = nu.shape
        # The product of t densities has one power only if ν is the same for all columns.
        same = np.ptp(nu, axis=1) <= 1e-12 * nu[:, 0]
        if n > MOST_COLUMNS or (collapsed and not same.all()):
            return plain
        mean, scale = _centred(*parts)
        location = np.asarray(self.location)
        squared = 1.0 / (scale * (1.0 + 1.0 / kappa)) if collapsed else nu / scale
        weights, spans = column_weights(mean, squared, one_group=not collapsed)
        # At the mean only the constants remain.
        entry = self.entry_log_predictive if collapsed else self.entry_expected
        constants = np.zeros(n_states)
        for d in range(n):
            own = tuple(part[:, d] for part in parts)
            constants += np.diagonal(entry(mean[:, d, None] + location[d], d, *own))
        powers = 0.5 * (nu[:, 0] + 1.0) if collapsed else np.full(n_states, 0.5)

        ones = np.ones(n_states)
        return CompiledPotentials(
            plain,
            False,
            location,
            weights,
            spans,
            ones,
            powers,
            constants,
            collapsed,
        )

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of data without missing entries."""
        found = column_sums(x, self.location, weights, n_threads)
        if found is None:
            return None
        return self.of_products(np.concatenate(found))

    def product_pairs(self) -> NDArray[np.int64]:
        """Return those of 1, y and y²."""
        return column_pairs(self.features)

    def of_products(self, sums: Floats) -> Floats:
        """Return the sums of (1, 1, y, y²) from those of 1, y and y²."""
        return np.concatenate([np.repeat(sums[:1], 2 * self.features, axis=0), sums[1:]])

    def point(self, natural: Floats) -> Floats:
        """Return λ of many steps, whose variance is Ψ divided by the number of steps."""
        kappa, nu, sums, squares = self.parts(natural)
        xp = namespace(natural)
        before = xp.placed(self.parts(self.prior()[None])[1], like=natural)
        steps = xp.clip(nu - before, 1e-3, None)
        return POINT_STEPS * xp.concatenate([kappa, steps, sums, squares], axis=1)

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless κ, ν and Ψ are positive."""
        kappa, nu, sums, squares = self.parts(natural)
        check_spread(kappa, nu, sums, squares)

    def sample(self, natural: Floats, states: Sequences, rng: np.random.Generator) -> NDArray[Any]:
        """Draw vectors with the posterior mean parameters."""
        means, variances = (part[states.values] for part in self.parameters(natural).values())
        return means + np.sqrt(variances) * rng.standard_normal(means.shape)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``means_`` and ``covars_`` (variances), shape (K, D) both."""
        parts = self.parts(natural)
        mean, scale = _centred(*parts)
        # Up to ν = 2 the mean does not exist; the mode is used instead.
        weight = np.where(parts[1] > 2, parts[1] - 2, parts[1] + 2)
        return {"means_": mean + np.asarray(self.location), "covars_": scale / weight}


def _centred(kappa: Floats, nu: Floats, sums: Floats, squares: Floats) -> tuple[Floats, Floats]:
    """Return the mean, and Ψ, kept above the rounding error of the sum of squares."""
    mean = sums / kappa
    return mean, namespace(kappa).maximum(squares - sums * mean, 1e-15 * squares + 1e-300)
