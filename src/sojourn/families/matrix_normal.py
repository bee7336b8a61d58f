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

import numpy as np
from numpy.typing import NDArray

from sojourn.families.base import POINT_STEPS
from sojourn.families.blocks import LogPotentials
from sojourn.families.checks import Booleans
from sojourn.families.dense import DenseFamily
from sojourn.families.fused import QuadraticStatistics
from sojourn.families.matrix_factors import (
    LOG_2_PI,
    Factors,
    columns_of_design,
    compiled,
    expected,
    factorize,
    joint_matrices,
    own_log_normalizer,
    predictive,
    scale_log_normalizer,
    squared,
    upper_triangle,
)
from sojourn.families.start import sample_sequences, soft_assignments, standardized
from sojourn.kernels.arrays import is_tensor, maybe_any, namespace
from sojourn.kernels.cpu.densities import sum_products
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences


class MatrixNormalFamily(DenseFamily):
    """A family that is a linear regression in every state.

    Subclasses define regressors, targets and the prior.
    """

    has_point = True
    fused = True
    sweeps = True

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
        return -0.5 * self.sizes[1] * LOG_2_PI * present

    def statistics(self, x: Floats) -> Floats:
        """Return (1, z zᵀ), zeros for a missing step."""
        xp = namespace(x)
        z, present = self.design(x)
        present = xp.astype(present, "float64")[:, None]
        if maybe_any(present == 0.0):
            z = z * present
        first, second = (xp.take(z, upper, 1) for upper in upper_triangle(z.shape[1]))
        return xp.concatenate([present, first * second], axis=1)

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of (1, z zᵀ)."""
        pairs = self.product_pairs()
        return sum_products(x, self.center(), pairs, weights, n_threads=n_threads)[0]

    def product_pairs(self) -> NDArray[np.int64]:
        """Return those of (1, z zᵀ)."""
        # The first row and column of z zᵀ are those of the constant, if that is a regressor.
        pairs = columns_of_design(*self.sizes)[np.column_stack(upper_triangle(sum(self.sizes)))]
        return np.concatenate([[[0, 0]], pairs])

    def center(self) -> Floats:
        """Return c, what is subtracted from the columns of x."""
        return np.zeros(self.sizes[1])

    def design_columns(self) -> tuple[Integers, Floats]:
        """Return which columns of x are z without the constant, and what is subtracted from each.

        The first column of x says whether a step is present.
        """
        columns = columns_of_design(*self.sizes)[min(self.sizes[0], 1) :] - 1
        return columns, self.center()[columns]

    def quadratics(self) -> QuadraticStatistics:
        """Return (1, z zᵀ)."""
        columns, shift = self.design_columns()
        location = np.zeros(len(columns))
        location[columns] = shift
        constant = int(self.sizes[0] > 0)
        # The constant has no column: what it is multiplied with stands alone.
        own = np.concatenate([np.zeros(constant, dtype=np.int64), columns])
        first, second = upper_triangle(sum(self.sizes))
        has_first, has_second = first >= constant, second >= constant
        degree = np.concatenate([[0], has_first.astype(np.int64) + has_second])
        left = np.concatenate([[0], np.where(has_first, own[first], own[second])])
        right = np.concatenate([[0], own[second]])
        places = np.stack([left, right, np.zeros_like(left)]).astype(np.int32)
        factors = np.stack([degree == power for power in range(3)]).astype(np.float64)
        return QuadraticStatistics(location, places, factors)

    def log_normalizer(self, natural: Floats) -> Floats:
        """Return a_g(λ)."""
        factors = self.factors(natural)
        return scale_log_normalizer(factors, self.sizes[1]) + own_log_normalizer(
            factors, *self.sizes
        )

    def factors(self, natural: Floats) -> Factors:
        """Return the factors of λ."""
        return factorize(natural, self.sizes[0])

    def potentials(self, natural: Floats, *, collapsed: bool) -> LogPotentials:
        """Return the log density of a multivariate t, or the expected log density."""
        factors = self.factors(natural)

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
        return compiled(factors, *self.sizes, plain, self.center(), collapsed=collapsed)

    def point(self, natural: Floats) -> Floats:
        """Return λ of many steps, whose covariance is Ψ divided by the number of steps."""
        out = POINT_STEPS * natural
        steps = namespace(natural).clip(natural[:, 0] - self.prior()[0], 1e-3, None)
        out[:, 0] = POINT_STEPS * steps
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
        factors = self.factors(natural)
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
