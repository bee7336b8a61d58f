r"""What families with a full covariance matrix share: linear regression with a conjugate prior.

A step has regressors φ (R numbers, none for `ZeroMeanGaussian`, a one for `Gaussian`) and a target
y (D numbers):

    Σ_k ~ inverse-Wishart(ν°, Ψ°),   W_k | Σ_k ~ matrix-normal(M°, Σ_k, P°⁻¹),
    y_t | z_t = k ~ Normal(W_k φ_t, Σ_k).

With z = (φ, y) the statistics are t = (1, z zᵀ), the upper triangle packed.  λ has the same form:
ν, and a matrix whose blocks are P, P Mᵀ and Ψ + M P Mᵀ.  Its Cholesky factor L gives everything:

    L = [L_P, 0; ·, L_Ψ],   u = L_P⁻¹ φ,   v = L_Ψ⁻¹ (y − M φ),   (u, v) = L⁻¹ z

    a_g(λ) = ½ ν D log 2 + log Γ_D(ν/2) − ½ ν log|Ψ| − ½ D log|P| + ½ R D log 2π.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cache
from typing import NamedTuple

import numpy as np

from sojourn.families.base import POINT_STEPS
from sojourn.families.blocks import CompiledPotentials, LogPotentials
from sojourn.families.checks import Booleans
from sojourn.families.columns import log_rising
from sojourn.families.dense import DenseFamily
from sojourn.families.fused import QuadraticStatistics, SquaredPotentials
from sojourn.families.start import sample_sequences, soft_assignments, standardized
from sojourn.kernels.arrays import is_tensor, maybe_any, namespace
from sojourn.kernels.cpu.densities import sum_products
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences

_LOG_PI = float(np.log(np.pi))
_LOG_2 = float(np.log(2.0))


class Factors(NamedTuple):
    """The factors of λ, for every state.

    Attributes
    ----------
    dof : (K,) array
        ν.
    lower : (K, R + D, R + D) array
        L.
    log_det_precision : (K,) array
        log|P|.
    log_det_scale : (K,) array
        log|Ψ|.
    """

    dof: Floats
    lower: Floats
    log_det_precision: Floats
    log_det_scale: Floats


class MatrixNormalFamily(DenseFamily):
    """A family that is a linear regression in every state.

    Subclasses define regressors, targets and the prior.
    """

    has_point = True
    fused = True

    @property
    @abstractmethod
    def sizes(self) -> tuple[int, int]:
        """Number of regressors R and of targets D."""

    @abstractmethod
    def design(self, x: Floats) -> tuple[Floats, Booleans]:
        """Return z = (φ, y), shape (T, R + D), and which steps are present."""

    @property
    def n_statistics(self) -> int:
        """Number of statistics S: one, and the upper triangle of z zᵀ."""
        side = sum(self.sizes)
        return 1 + side * (side + 1) // 2

    def log_base_measure(self, x: Floats) -> Floats:
        """Return −½ D log 2π."""
        present = namespace(x).astype(self.design(x)[1], "float64")
        return -0.5 * self.sizes[1] * (_LOG_2 + _LOG_PI) * present

    def statistics(self, x: Floats) -> Floats:
        """Return (1, z zᵀ), zeros for a missing step."""
        xp = namespace(x)
        z, present = self.design(x)
        present = xp.astype(present, "float64")[:, None]
        if maybe_any(present == 0.0):
            z = z * present
        first, second = (xp.take(z, upper, 1) for upper in np.triu_indices(z.shape[1]))
        return xp.concatenate([present, first * second], axis=1)

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of (1, z zᵀ)."""
        n_regressors = self.sizes[0]
        if n_regressors > 1:
            z, present = self.design(x)
            x, location = np.where(present[:, None], z[:, 1:], np.nan), np.zeros(z.shape[1] - 1)
        else:
            location = self.center()
        # The first row and column of z zᵀ are those of the constant, if that is a regressor.
        pairs = np.column_stack(np.triu_indices(sum(self.sizes)))
        pairs = np.concatenate([[[0, 0]], pairs + (n_regressors == 0)])
        return sum_products(x, location, pairs, weights, n_threads=n_threads)[0]

    def center(self) -> Floats:
        """Return c of a family without regressors but the constant."""
        return np.zeros(self.sizes[1])

    def design_columns(self) -> tuple[Integers, Floats]:
        """Return which columns of x are z without the constant, and what is subtracted from each.

        The first column of x says whether a step is present.
        """
        return np.arange(self.sizes[1]), self.center()

    def quadratics(self) -> QuadraticStatistics:
        """Return (1, z zᵀ)."""
        columns, shift = self.design_columns()
        location = np.zeros(len(columns))
        location[columns] = shift
        constant = int(self.sizes[0] > 0)
        # The constant has no column: what it is multiplied with stands alone.
        own = np.concatenate([np.zeros(constant, dtype=np.int64), columns])
        first, second = np.triu_indices(sum(self.sizes))
        has_first, has_second = first >= constant, second >= constant
        degree = np.concatenate([[0], has_first.astype(np.int64) + has_second])
        left = np.concatenate([[0], np.where(has_first, own[first], own[second])])
        right = np.concatenate([[0], own[second]])
        places = np.stack([left, right, np.zeros_like(left)]).astype(np.int32)
        factors = np.stack([degree == power for power in range(3)]).astype(np.float64)
        return QuadraticStatistics(location, places, factors)

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return a_g(λ)."""
        n_regressors, n_targets = self.sizes
        factors = factorize(natural, n_regressors)
        return (
            0.5 * factors.dof * n_targets * _LOG_2
            + _multigammaln(0.5 * factors.dof, n_targets)
            - 0.5 * factors.dof * factors.log_det_scale
            - 0.5 * n_targets * factors.log_det_precision
            + 0.5 * n_regressors * n_targets * (_LOG_2 + _LOG_PI)
        )

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the log density of a multivariate t, or the expected log density."""
        factors = factorize(natural, self.sizes[0])

        @cache
        def of_design() -> LogPotentials:
            return (predictive if collapsed else expected)(factors, *self.sizes)

        def plain(x: Floats) -> Floats:
            z, present = self.design(x)
            rows = of_design()(z)
            return rows * present[:, None] if maybe_any(~present) else rows

        if is_tensor(natural):
            columns, location = self.design_columns()
            return squared(factors, *self.sizes, plain, columns, location, collapsed=collapsed)
        # The compiled kernel requires that all steps have the same leverage.
        if self.sizes[0] > 1:
            return plain
        return compiled(factors, *self.sizes, plain, self.center(), collapsed=collapsed)

    def point(self, natural: Floats) -> Floats:
        """Return λ of many steps, whose covariance is Ψ divided by the number of steps."""
        out = POINT_STEPS * natural
        out[:, 0] = POINT_STEPS * np.maximum(natural[:, 0] - self.prior()[0], 1e-3)
        return out

    def check_natural(self, natural: Floats) -> None:
        """Raise a ValueError unless ν is large enough, and the matrix positive definite."""
        joint = joint_matrices(natural)
        size = np.sqrt(np.maximum(np.diagonal(joint, axis1=1, axis2=2), 1e-300))
        scaled = joint / (size[:, :, None] * size[:, None, :])
        if natural[:, 0].min() <= self.sizes[1] - 1 or not np.isfinite(scaled).all():
            raise ValueError("the degrees of freedom are too few, or the sums not finite")
        if np.linalg.eigvalsh(scaled).min() < -1e-6 or size.min() <= 1e-140:
            raise ValueError("sums of squares and products are not positive definite")

    def draw(
        self,
        natural: Floats,
        states: Integers,
        regressors: Floats,
        rng: np.random.Generator,
    ) -> Floats:
        """Draw targets for given states and regressors, from the posterior means."""
        coefficients, covariances = self.means(natural)
        drawn = rng.standard_normal((len(states), self.sizes[1]))
        for k in np.unique(states):
            steps = states == k
            drawn[steps] = drawn[steps] @ np.linalg.cholesky(covariances[k]).T
            drawn[steps] += regressors[steps] @ coefficients[k].T
        return drawn

    def means(self, natural: Floats) -> tuple[Floats, Floats]:
        """Return the posterior means of W, shape (K, D, R), and of Σ, shape (K, D, D)."""
        n_regressors, n_targets = self.sizes
        factors = factorize(natural, n_regressors)
        scale = factors.lower[:, n_regressors:, n_regressors:]
        scale = scale @ np.swapaxes(scale, 1, 2)
        # Up to ν = D + 1 the mean does not exist; the mode is used instead.
        beyond = factors.dof - n_targets - 1
        weight = np.where(beyond > 0, beyond, factors.dof + n_targets + 1)
        # W = (P Mᵀ)ᵀ P⁻¹ = (M L_P) L_P⁻¹.
        corner = factors.lower[:, :n_regressors, :n_regressors]
        side = factors.lower[:, n_regressors:, :n_regressors]
        inverse = np.linalg.inv(corner) if n_regressors else corner
        return side @ inverse, scale / weight[:, None, None]


def pack_prior(dof: float, mean: Floats, precision: Floats, scale: Floats) -> Floats:
    """Return λ° from ν°, M° (D, R), the diagonal of P° (R,) and Ψ° (D, D)."""
    corner = np.diag(precision)
    side = mean * precision
    joint = np.block([[corner, side.T], [side, scale + side @ mean.T]])
    return np.concatenate([[dof], joint[np.triu_indices(len(joint))]])


def factorize(natural: Floats, n_regressors: int) -> Factors:
    """Factorise λ by a Cholesky decomposition."""
    xp = namespace(natural)
    lower = stable_cholesky(joint_matrices(natural))
    logs = 2.0 * xp.log(xp.diagonal(lower))
    return Factors(
        natural[:, 0], lower, logs[:, :n_regressors].sum(axis=1), logs[:, n_regressors:].sum(axis=1)
    )


def joint_matrices(natural: Floats) -> Floats:
    """Return the matrices whose upper triangles are packed in λ, shape (K, R + D, R + D)."""
    side = round((np.sqrt(8 * (natural.shape[1] - 1) + 1) - 1) / 2)
    place = np.zeros((side, side), dtype=np.int64)
    place[np.triu_indices(side)] = np.arange(1, natural.shape[1])
    joint = namespace(natural).take(natural, np.maximum(place, place.T).ravel(), 1)
    return joint.reshape(-1, side, side)


def stable_cholesky(matrices: Floats) -> Floats:
    """Return Cholesky factors, of a nearby matrix if rounding has made one indefinite.

    The matrices are first scaled to a unit diagonal, so that columns of very different scales are
    treated alike, and the correction is of the order of the rounding error.
    """
    xp = namespace(matrices)
    size = xp.sqrt(xp.clip(xp.diagonal(matrices), 1e-300, None))
    scaled = matrices / (size[:, :, None] * size[:, None, :])
    return xp.cholesky(scaled) * size[:, :, None]


def compiled(
    factors: Factors,
    n_regressors: int,
    n_targets: int,
    plain: LogPotentials,
    location: Floats,
    *,
    collapsed: bool,
) -> CompiledPotentials:
    """Return the same potentials for the compiled kernel, if the only regressor is the constant."""
    inverse = np.linalg.inv(factors.lower)
    weights = np.zeros((1 + n_targets, n_targets, len(inverse)))
    weights[1 - n_regressors :] = inverse[:, n_regressors:].transpose(2, 1, 0)
    spans = np.array([(1, 2 + e, e == n_targets - 1) for e in range(n_targets)], dtype=np.int64)
    dof = factors.dof
    leverage = inverse[:, 0, 0] ** 2 if n_regressors else np.zeros(len(inverse))
    if collapsed:
        inner, powers = 1.0 / (1.0 + leverage), 0.5 * (dof + 1)
        constants = _student_constant(factors, n_targets) - 0.5 * n_targets * np.log1p(leverage)
    else:
        inner, powers = np.ones(len(inverse)), 0.5 * dof
        constants = expected_constant(factors, n_targets) - 0.5 * n_targets * leverage

    return CompiledPotentials(
        plain, True, location, weights, spans, inner, powers, constants, collapsed
    )


def squared(
    factors: Factors,
    n_regressors: int,
    n_targets: int,
    plain: LogPotentials,
    columns: Integers,
    location: Floats,
    *,
    collapsed: bool,
) -> SquaredPotentials:
    """Return the same potentials for a kernel on a GPU."""
    xp = namespace(factors.lower)
    inverse, dof = xp.inv_lower(factors.lower), factors.dof
    side, half = n_regressors + n_targets, 0.5 * n_targets
    powers = 0.5 * (dof + 1) if collapsed else 0.5 * dof
    if collapsed:
        constants = _student_constant(factors, n_targets)
    else:
        constants = expected_constant(factors, n_targets)
    forms = np.arange(side)
    if n_regressors <= 1:  # all steps have the same leverage
        forms = forms[n_regressors:]
        leverage = inverse[:, 0, 0] ** 2 if n_regressors else xp.zeros_like(dof)
        inverse = inverse[:, n_regressors:]
        if collapsed:
            inverse = inverse * (1.0 + leverage[:, None, None]) ** -0.5
            constants = constants - half * xp.log1p(leverage)
        else:
            constants = constants - half * leverage
    weights = xp.transpose(inverse, (2, 1, 0))
    if not n_regressors:
        weights = xp.concatenate([xp.zeros_like(weights[:1]), weights])
    # The factor is lower triangular; the constant, if there is one, is not counted.
    last = forms + (n_regressors == 0)
    spans = np.column_stack([np.zeros_like(forms), last, forms == side - 1])
    return SquaredPotentials(
        plain,
        columns.astype(np.int32),
        location,
        weights,
        spans.astype(np.int32),
        powers[None],
        constants[None],
        collapsed,
        n_regressors if n_regressors > 1 else 0,
        half,
    )


def _multigammaln(a: Floats, n_targets: int) -> Floats:
    """Return log Γ_D(a)."""
    xp = namespace(a)
    body = sum(xp.gammaln(a - 0.5 * d) for d in range(n_targets))
    return 0.25 * n_targets * (n_targets - 1) * _LOG_PI + body


def _student_constant(factors: Factors, n_targets: int) -> Floats:
    """Return the constant of a t density with ν − D + 1 degrees of freedom and shape Ψ."""
    half, dof = 0.5 * n_targets, factors.dof
    risen = log_rising(0.5 * (dof - n_targets + 1), half + namespace(dof).zeros_like(dof))
    return risen - half * _LOG_PI - 0.5 * factors.log_det_scale


def expected_constant(factors: Factors, n_targets: int) -> Floats:
    """Return ½ E[log|Σ⁻¹|] − ½ D log 2π."""
    xp = namespace(factors.dof)
    log_det = sum(xp.digamma(0.5 * (factors.dof - d)) for d in range(n_targets))
    return 0.5 * (log_det - factors.log_det_scale - n_targets * _LOG_PI)


def predictive(factors: Factors, n_regressors: int, n_targets: int) -> LogPotentials:
    """Return eq (2): the log density of a t with ν − D + 1 degrees of freedom."""
    xp = namespace(factors.lower)
    dof = factors.dof
    half = 0.5 * n_targets
    constant = _student_constant(factors, n_targets)
    power = 0.5 * (dof + 1)
    residual, leverage = norms(factors, n_regressors)

    def potentials(z: Floats) -> Floats:
        stretch = 1.0 + leverage(z)
        rows = residual(z)
        rows /= stretch
        xp.log1p(rows, out=rows)
        rows *= -power
        rows += constant - half * xp.log(stretch)
        return rows

    return potentials


def expected(factors: Factors, n_regressors: int, n_targets: int) -> LogPotentials:
    """Return eq (2'): ½ E[log|Σ⁻¹|] − ½ ν |v|² − ½ D |u|² − ½ D log 2π."""
    dof = factors.dof
    constant = expected_constant(factors, n_targets)
    residual, leverage = norms(factors, n_regressors)

    def potentials(z: Floats) -> Floats:
        rows = residual(z)
        rows *= -0.5 * dof
        rows += constant - 0.5 * n_targets * leverage(z)
        return rows

    return potentials


def norms(factors: Factors, n_regressors: int) -> tuple[LogPotentials, LogPotentials]:
    """Return |v|² and |u|² as functions of z, by one matrix product each."""
    xp = namespace(factors.lower)
    inverse = xp.inv_lower(factors.lower)
    n_states, side, _ = inverse.shape
    n_targets = side - n_regressors
    # The columns of the product are (target, state), so that squares are summed over whole rows.
    to_residual = xp.transpose(inverse[:, n_regressors:], (2, 1, 0))
    to_residual = xp.ascontiguousarray(to_residual.reshape(side, n_targets * n_states))

    def residual(z: Floats) -> Floats:
        squares = z @ to_residual
        squares *= squares
        return squares.reshape(len(z), n_targets, n_states).sum(axis=1)

    if n_regressors == 0:
        return residual, lambda z: xp.zeros_like(factors.dof)[None]
    corner = inverse[:, :n_regressors, :n_regressors]
    if n_regressors == 1:  # the regressor is always one
        return residual, lambda z: (corner[:, 0, 0] ** 2)[None]
    to_leverage = xp.transpose(corner, (2, 1, 0)).reshape(n_regressors, n_regressors * n_states)
    to_leverage = xp.ascontiguousarray(to_leverage)

    def leverage(z: Floats) -> Floats:
        squares = z[:, :n_regressors] @ to_leverage
        squares *= squares
        return squares.reshape(len(z), n_regressors, n_states).sum(axis=1)

    return residual, leverage


def assign_windows(
    family: MatrixNormalFamily, data: Sequences, n_states: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Cluster short windows of steps by their regressions, and not by their values.

    The coefficients and the residual covariance of a window are its coordinates for k-means++.  A
    few rounds of mixture fitting then reassign windows to the regressions of the clusters.
    """
    data = sample_sequences(data, rng)
    x = family.observations(data)
    z, _present = family.design(x)
    window, n_windows = _windows(data, max(10, 3 * sum(family.sizes)))
    n_regressors, n_targets = family.sizes
    sums = np.zeros((n_windows, family.n_statistics))
    np.add.at(sums, window, family.statistics(x))
    shape = (n_windows, n_regressors + n_targets)
    ridge = family.prior()
    coefficients, covariances = family.means(sums + ridge)
    spread = np.sqrt(np.maximum((z**2).mean(axis=0), 1e-300))
    unit = spread[n_regressors:]
    relative = coefficients * spread[:n_regressors] / unit[:, None]
    whitened = covariances / (unit[:, None] * unit)
    upper = np.triu_indices(n_targets, 1)
    variances = np.diagonal(whitened, axis1=1, axis2=2)
    deviations = np.sqrt(variances)
    correlations = whitened / (deviations[:, :, None] * deviations[:, None, :])
    points = np.concatenate(
        [relative.reshape(shape[0], -1), np.log(variances), correlations[:, *upper]], axis=1
    )
    weights = soft_assignments(standardized(points), n_states, rng)
    for _ in range(10):
        natural = ridge + weights.T @ sums
        scores = np.zeros((n_windows, n_states))
        np.add.at(scores, window, family.log_predictive(x, natural))
        scores -= scores.max(axis=1, keepdims=True)
        weights = np.exp(scores)
        weights /= weights.sum(axis=1, keepdims=True)
        weights = 0.95 * weights + 0.05 / n_states
    return x, weights[window]


def _windows(data: Sequences, length: int) -> tuple[Integers, int]:
    """Return the window of every step, and the number of windows; none spans two sequences."""
    within = np.arange(data.n_steps) - np.repeat(data.offsets[:-1], data.lengths)
    counts = -(-data.lengths // length)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    return np.repeat(firsts[:-1], data.lengths) + within // length, int(firsts[-1])
