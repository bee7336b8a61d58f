"""Draws of emission parameters, and of data that go on from a past.

A draw of φ is returned as a natural parameter λ with the weight of `MASS` steps whose statistics
are exactly those of φ.  Everything that takes a λ then also takes a draw: `log_predictive` is the
density given φ, `parameters` is φ, and `sample` draws given φ, all up to 1/`MASS`.
"""

from __future__ import annotations

from functools import singledispatch
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, digamma, gammainccinv, i0e, i1e

from sojourn.families.autoregressive_gaussian import AutoregressiveGaussian
from sojourn.families.base import Family
from sojourn.families.bernoulli import Bernoulli
from sojourn.families.beta import Beta, shapes_at
from sojourn.families.binomial import Binomial
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.families.dirichlet import DirichletFamily
from sojourn.families.integrated import draw_nodes
from sojourn.families.learned_gamma import LearnedGamma
from sojourn.families.learned_negative_binomial import KNOTS, LearnedNegativeBinomial, risings
from sojourn.families.linear_gaussian import LinearGaussian
from sojourn.families.log_normal import LogNormal
from sojourn.families.matrix_factors import pack_joint
from sojourn.families.matrix_normal import MatrixNormalFamily
from sojourn.families.mixture import Mixture
from sojourn.families.multinomial import Multinomial
from sojourn.families.product import Product
from sojourn.families.rates import ProbabilityFamily, RateFamily
from sojourn.families.spherical_gaussian import SphericalGaussian
from sojourn.families.student_t import StudentT
from sojourn.families.tied_gaussian import TiedGaussian
from sojourn.families.von_mises import VonMises
from sojourn.families.zero_inflated import ZeroInflated
from sojourn.kernels.interface import Floats
from sojourn.random_state import draw_dirichlet
from sojourn.sequences import Sequences

MASS = 1e9
"""Number of steps that a draw counts for."""

_MOST_COUNTS = 1000  # smaller counts are summed over one by one
_TINY = 1e-12  # probabilities are kept above this, so that a prior can be subtracted and added


def naturals_of(family: Product, natural: Floats) -> list[Floats]:
    """Return λ of every part."""
    ends = np.cumsum([0, *(part.n_statistics for part in family.parts)])
    return [natural[:, begin:end] for begin, end in pairwise(ends.tolist())]


def column_slices(family: Product) -> list[slice]:
    """Return the columns of every part."""
    assert family.columns is not None
    ends = np.cumsum([0, *family.columns])
    return [slice(begin, end) for begin, end in pairwise(ends.tolist())]


# ---- parameters ---------------------------------------------------------------------------------


@singledispatch
def draw_parameters(family: Family, natural: Floats, rng: np.random.Generator) -> Floats:
    """Draw φ of every state from its posterior; return it as a λ of `MASS` steps, shape (K, S).

    Parameters
    ----------
    family : Family
    natural : (K, S) array
        λ of every state.
    rng : Generator

    Examples
    --------
    >>> import sojourn as sj
    >>> family = sj.Poisson(1, prior_shape=1.0, prior_rate=1.0)
    >>> drawn = draw_parameters(family, np.array([[1e6, 3e6]]), np.random.default_rng(0))
    >>> family.parameters(drawn)["lambdas_"].round(1)
    array([[3.]])
    """
    raise NotImplementedError(f"parameters of {type(family).__name__} cannot be drawn")


@draw_parameters.register(DirichletFamily)
@draw_parameters.register(Multinomial)
def _(family: Family, natural: Floats, rng: np.random.Generator) -> Floats:
    return MASS * np.maximum(draw_dirichlet(np.asarray(natural, np.float64), rng), _TINY)


def _beta(first: Floats, second: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw from Beta distributions: the probability, and one minus it."""
    pairs = draw_dirichlet(np.stack([first, second], axis=-1), rng)
    pairs = MASS * np.maximum(pairs, _TINY)
    return pairs[..., 0], pairs[..., 1]


@draw_parameters.register
def _(family: Bernoulli, natural: Floats, rng: np.random.Generator) -> Floats:
    n = family.features
    return np.concatenate(_beta(natural[:, :n], natural[:, n:], rng), axis=1)


@draw_parameters.register(Binomial)
@draw_parameters.register(ProbabilityFamily)
def _(family: Any, natural: Floats, rng: np.random.Generator) -> Floats:
    alpha, beta = family.parts(natural)
    return np.concatenate(_beta(alpha, beta, rng), axis=1)


@draw_parameters.register
def _(family: RateFamily, natural: Floats, rng: np.random.Generator) -> Floats:
    a, b = family.shape_and_rate(*family.parts(natural))
    # A Gamma(a + 1) variable times U ** (1 / a): small shapes must not give zero.
    logs = np.log(rng.standard_gamma(a + 1.0)) - rng.standard_exponential(a.shape) / a
    rate = np.maximum(np.exp(logs), _TINY) / b
    shape = np.full_like(rate, MASS)
    drawn = (shape, MASS / rate)
    if family.prior_names[0] == "prior_rate":  # λ = (b, a)
        drawn = (np.full_like(rate, MASS), MASS * rate)
    return np.concatenate(drawn, axis=1)


@draw_parameters.register
def _(family: DiagonalGaussian, natural: Floats, rng: np.random.Generator) -> Floats:
    kappa, nu, sums, squares = family.parts(natural)
    mean = sums / kappa
    scale = np.maximum(squares - sums * mean, 1e-15 * squares + 1e-300)
    variance = scale / (2.0 * rng.standard_gamma(0.5 * nu))
    mean = mean + np.sqrt(variance / kappa) * rng.standard_normal(mean.shape)
    parts = (
        np.full_like(mean, MASS),
        np.full_like(mean, MASS + 2.0),
        MASS * mean,
        MASS * (variance + mean**2),
    )
    return np.concatenate(parts, axis=1)


@draw_parameters.register
def _(family: SphericalGaussian, natural: Floats, rng: np.random.Generator) -> Floats:
    n = family.features
    kappa, nu = natural[:, :n], natural[:, n]
    sums, squares = natural[:, n + 1 : 2 * n + 1], natural[:, 2 * n + 1]
    mean = sums / kappa
    scale = np.maximum(squares - (sums * mean).sum(axis=1), 1e-15 * squares + 1e-300)
    variance = scale / (2.0 * rng.standard_gamma(0.5 * nu))
    mean = mean + np.sqrt(variance[:, None] / kappa) * rng.standard_normal(mean.shape)
    mass = MASS * n  # the entries of that many steps
    total = (variance * mass + MASS * (mean**2).sum(axis=1))[:, None]
    return np.concatenate(
        [np.full_like(mean, MASS), np.full((len(mean), 1), mass + 2.0), MASS * mean, total], axis=1
    )


@draw_parameters.register
def _(family: LogNormal, natural: Floats, rng: np.random.Generator) -> Floats:
    drawn: Floats = draw_parameters(family.logarithms, natural, rng)
    return drawn


@draw_parameters.register
def _(family: MatrixNormalFamily, natural: Floats, rng: np.random.Generator) -> Floats:
    n_regressors, n_targets = family.sizes
    factors = family.factors(natural)
    corner = factors.lower[:, :n_regressors, :n_regressors]
    side = factors.lower[:, n_regressors:, :n_regressors]
    root = factors.lower[:, n_regressors:, n_regressors:]
    spread = _draw_spread(root, factors.dof, rng)
    covariance = spread @ np.swapaxes(spread, 1, 2)
    # W = M + R Z L_P⁻¹, with M = (M L_P) L_P⁻¹.
    noise = rng.standard_normal(side.shape)
    inverse = np.linalg.inv(corner) if n_regressors else corner
    coefficients = (side + spread @ noise) @ inverse
    precision = corner @ np.swapaxes(corner, 1, 2) * (MASS / factors.dof)[:, None, None]
    cross = coefficients @ precision
    last = MASS * covariance + cross @ np.swapaxes(coefficients, 1, 2)
    return pack_joint(np.full(len(cross), MASS + n_targets + 1.0), precision, cross, last)


@draw_parameters.register
def _(family: TiedGaussian, natural: Floats, rng: np.random.Generator) -> Floats:
    factors, n = family.factors(natural), family.features
    # One Σ for all states, and then means given it.
    spread = _draw_spread(factors.lower[:1, 1:, 1:], factors.dof[:1], rng)[0]
    noise = rng.standard_normal((len(natural), n))
    means = (factors.lower[:, 1:, 0] + noise @ spread.T) / factors.lower[:, :1, 0]
    weight = np.full((len(natural), 1, 1), MASS)
    cross = MASS * means[:, :, None]
    last = MASS * (spread @ spread.T) + cross * means[:, None, :]
    return pack_joint(np.full(len(natural), MASS + n + 1.0), weight, cross, last)


def _draw_spread(root: Floats, dof: Floats, rng: np.random.Generator) -> Floats:
    """Draw R = L_Ψ A⁻ᵀ with Σ = R Rᵀ, where A Aᵀ is a Wishart variable (Bartlett)."""
    n = root.shape[1]
    bartlett = np.zeros_like(root)
    below, at = np.tril_indices(n, -1), np.arange(n)
    bartlett[:, *below] = rng.standard_normal((len(root), len(below[0])))
    bartlett[:, at, at] = np.sqrt(2.0 * rng.standard_gamma(0.5 * (dof[:, None] - at)))
    found: Floats = root @ np.swapaxes(np.linalg.inv(bartlett), 1, 2)
    return found


@draw_parameters.register
def _(family: LearnedGamma, natural: Floats, rng: np.random.Generator) -> Floats:
    n, _, sums = parts = family.parts(natural)
    c = np.exp(draw_nodes(family.integrate(*parts), rng)[0])
    logs = np.log(rng.standard_gamma(c * n + 1.0)) - rng.standard_exponential(c.shape) / (c * n)
    log_rate = np.maximum(logs, -600.0) - np.log(sums)
    drawn = (np.ones_like(c), digamma(c) - log_rate, c * np.exp(-log_rate))
    return MASS * np.concatenate(drawn, axis=1)


@draw_parameters.register
def _(family: LearnedNegativeBinomial, natural: Floats, rng: np.random.Generator) -> Floats:
    n, total, *_ = parts = family.parts(natural)
    r = np.exp(draw_nodes(family.integrate(*parts), rng)[0])
    chance, other = (part / MASS for part in _beta(r * n, total, rng))
    mean = r * other / chance
    drawn = [np.ones_like(r), np.maximum(mean, _TINY), *expected_risings(r, chance)]
    return MASS * np.concatenate(drawn, axis=1)


def expected_risings(r: Floats, chance: Floats) -> list[Floats]:
    """Return E[f(x, r_j)] of negative binomials, an array for each knot.

    Large counts are summed in groups, whose limits grow by about one per cent.
    """
    # Poisson counts of a Gamma variable, which is beyond this with a probability of 1e-13.
    rate = gammainccinv(r, 1e-13) * (1.0 - chance) / chance
    largest = np.ceil(rate + 8.0 * np.sqrt(rate) + 30.0)
    out = np.empty((r.size, len(KNOTS)))
    for row, (size, p, last) in enumerate(
        zip(r.ravel(), chance.ravel(), largest.ravel(), strict=True)
    ):
        ends = np.arange(min(last, _MOST_COUNTS))
        if last > _MOST_COUNTS:
            n_groups = int(100.0 * np.log(last / _MOST_COUNTS)) + 2
            ends = np.concatenate([ends, np.geomspace(_MOST_COUNTS, last, n_groups).round()])
        begins = np.concatenate([[0.0], ends[:-1] + 1.0])
        weights = np.diff(betainc(size, ends + 1.0, p), prepend=0.0)
        values = np.sqrt((begins + 0.5) * (ends + 0.5)) - 0.5
        out[row] = weights @ risings(values[:, None], np.exp(KNOTS)) / weights.sum()
    return [out[:, j].reshape(r.shape) for j in range(len(KNOTS))]


@draw_parameters.register
def _(family: VonMises, natural: Floats, rng: np.random.Generator) -> Floats:
    n, cosines, sines = parts = family.parts(natural)
    kappa = np.exp(draw_nodes(family.integrate(*parts), rng)[0])
    direction = rng.vonmises(np.arctan2(sines, cosines), kappa * np.hypot(cosines, sines))
    length = i1e(kappa) / i0e(kappa)
    drawn = (np.ones_like(n), length * np.cos(direction), length * np.sin(direction))
    return MASS * np.concatenate(drawn, axis=1)


@draw_parameters.register
def _(family: Beta, natural: Floats, rng: np.random.Generator) -> Floats:
    a, b = shapes_at(draw_nodes(family.integrate(*family.parts(natural)), rng))
    both = digamma(a + b)
    drawn = (np.ones_like(a), digamma(a) - both, digamma(b) - both)
    return MASS * np.concatenate(drawn, axis=1)


@draw_parameters.register
def _(family: StudentT, natural: Floats, rng: np.random.Generator) -> Floats:
    if family.df is None:
        df = np.exp(draw_nodes(family.nodes(natural), rng)[0])
    else:
        df = np.full(len(natural), family.df)
    # The mean of log u − u.
    gap = digamma(0.5 * df) - np.log(0.5 * df) - 1.0
    inner: Floats = draw_parameters(family.gaussian, natural[:, 2:], rng)
    return np.concatenate([np.full((len(df), 1), MASS), MASS * gap[:, None], inner], axis=1)


@draw_parameters.register
def _(family: Mixture, natural: Floats, rng: np.random.Generator) -> Floats:
    counts, inner = family.split(natural)
    weights = np.maximum(draw_dirichlet(counts, rng), _TINY)
    drawn: Floats = draw_parameters(family.family, inner, rng)
    return np.concatenate([MASS * weights, drawn.reshape(len(natural), -1)], axis=1)


@draw_parameters.register
def _(family: ZeroInflated, natural: Floats, rng: np.random.Generator) -> Floats:
    zeros, others, inner = family.split(natural)
    drawn: Floats = draw_parameters(family.family, inner, rng)
    return np.concatenate([*_beta(zeros, others, rng), drawn], axis=1)


@draw_parameters.register
def _(family: Product, natural: Floats, rng: np.random.Generator) -> Floats:
    pairs = zip(family.parts, naturals_of(family, natural), strict=True)
    return np.concatenate([draw_parameters(part, own, rng) for part, own in pairs], axis=1)


# ---- data that go on from a past ----------------------------------------------------------------


@singledispatch
def memory(family: Family) -> int:
    """Return how many past steps an observation depends on, given its state.

    Examples
    --------
    >>> import sojourn as sj
    >>> memory(sj.Gaussian()), memory(sj.AutoregressiveGaussian(order=2))
    (0, 2)
    """
    return 0


@memory.register
def _(family: AutoregressiveGaussian) -> int:
    return family.order


@memory.register
def _(family: Product) -> int:
    return max(map(memory, family.parts))


@singledispatch
def n_covariates(family: Family) -> int:
    """Return the number of columns that are given, not modelled.

    Examples
    --------
    >>> import sojourn as sj
    >>> n_covariates(sj.Gaussian()), n_covariates(sj.LinearGaussian(2, n_features=5))
    (0, 3)
    """
    return 0


@n_covariates.register
def _(family: LinearGaussian) -> int:
    return family.features - family.n_targets


@n_covariates.register
def _(family: Product) -> int:
    return sum(map(n_covariates, family.parts))


@singledispatch
def sample_after(
    family: Family,
    natural: Floats,
    states: Sequences,
    past: NDArray[Any] | None,
    rng: np.random.Generator,
    covariates: Floats | None = None,
) -> NDArray[Any]:
    """Draw data for sequences of states that go on from a past.

    Parameters
    ----------
    family : Family
    natural : (K, S) array
    states : Sequences
    past : (N, L, D) array or None
        The last L steps before each sequence, L being `memory`, without missing values.
    rng : Generator
    covariates : (T, C) array or None
        What is given at every step, C being `n_covariates`; None draws it.
    """
    return family.sample(natural, states, rng)


@sample_after.register
def _(
    family: AutoregressiveGaussian,
    natural: Floats,
    states: Sequences,
    past: NDArray[Any] | None,
    rng: np.random.Generator,
    covariates: Floats | None = None,
) -> NDArray[Any]:
    if past is None:
        return family.sample(natural, states, rng)
    order, n = family.order, family.features
    location = np.asarray(family.location)
    longest = int(states.lengths.max())
    drawn = np.empty((len(states), order + longest, n))
    drawn[:, :order] = past - location
    out = np.empty((states.n_steps, n))
    for t in range(longest):
        own = np.flatnonzero(states.lengths > t)
        regressors = np.ones((len(own), family.sizes[0]))
        for lag in range(1, order + 1):
            columns = slice(1 + (lag - 1) * n, 1 + lag * n)
            regressors[:, columns] = drawn[own, order + t - lag]
        steps = states.offsets[:-1][own] + t
        drawn[own, order + t] = family.draw(natural, states.values[steps], regressors, rng)
        out[steps] = drawn[own, order + t]
    return out + location


@sample_after.register
def _(
    family: LinearGaussian,
    natural: Floats,
    states: Sequences,
    past: NDArray[Any] | None,
    rng: np.random.Generator,
    covariates: Floats | None = None,
) -> NDArray[Any]:
    return family.sample(natural, states, rng, covariates)


@sample_after.register
def _(
    family: Product,
    natural: Floats,
    states: Sequences,
    past: NDArray[Any] | None,
    rng: np.random.Generator,
    covariates: Floats | None = None,
) -> NDArray[Any]:
    parts = zip(family.parts, naturals_of(family, natural), column_slices(family), strict=True)
    drawn, at = [], 0
    for part, own, columns in parts:
        end = at + n_covariates(part)
        given = None if covariates is None else covariates[:, at:end]
        drawn.append(sample_after(part, own, states, _own_past(part, past, columns), rng, given))
        at = end
    return np.concatenate([d.reshape(states.n_steps, -1) for d in drawn], axis=1)


def _own_past(part: Family, past: NDArray[Any] | None, columns: slice) -> NDArray[Any] | None:
    """Return the past of a part's columns, as many steps as it depends on."""
    n = memory(part)
    return None if past is None or n == 0 else past[:, -n:, columns]
