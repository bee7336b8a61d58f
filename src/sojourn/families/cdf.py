"""Distribution functions of the predictive distributions (2), for quantiles and residuals."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, stdtr

from sojourn.families.base import Family
from sojourn.families.bernoulli import Bernoulli
from sojourn.families.beta import Beta, shapes_at
from sojourn.families.binomial import Binomial
from sojourn.families.categorical import Categorical
from sojourn.families.columns import ColumnFamily, log_rising
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.families.draws import naturals_of
from sojourn.families.exponential import Exponential
from sojourn.families.gamma import Gamma
from sojourn.families.geometric import Geometric
from sojourn.families.learned_gamma import LearnedGamma
from sojourn.families.learned_negative_binomial import LearnedNegativeBinomial
from sojourn.families.log_normal import LogNormal
from sojourn.families.matrix_normal import MatrixNormalFamily
from sojourn.families.mixture import Mixture
from sojourn.families.multinomial import Multinomial
from sojourn.families.negative_binomial import NegativeBinomial
from sojourn.families.nested import NestedFamily
from sojourn.families.poisson import Poisson
from sojourn.families.product import Product
from sojourn.families.spherical_gaussian import SphericalGaussian
from sojourn.families.student_t import StudentT, effective
from sojourn.families.von_mises import VonMises
from sojourn.families.zero_inflated import ZeroInflated
from sojourn.kernels.interface import Floats

Limits = tuple[Floats, Floats]
"""P(X < x) and P(X ≤ x) of every step, state and column; the same array if X is continuous."""


_COUNTS = (
    Categorical,
    Bernoulli,
    Binomial,
    Multinomial,
    Poisson,
    NegativeBinomial,
    LearnedNegativeBinomial,
    Geometric,
)

_ANGLES = 4096  # intervals of the circle in a distribution function


@singledispatch
def predictive_cdf(family: Family, x: Any, natural: Floats) -> Limits:
    """Return the distribution function of every column under the predictive distribution (2).

    Parameters
    ----------
    family : Family
    x : array
        Observations of T steps, as `Family.observations` returns them; missing entries give NaN.
    natural : (K, S) array

    Returns
    -------
    below, upto : (T, K, D) arrays
        P(X < x) and P(X ≤ x), which are equal for continuous columns.  Symbols count in the order
        of their numbers.

    Examples
    --------
    >>> import sojourn as sj
    >>> family = sj.Exponential(1, prior_shape=1.0, prior_rate=1.0)
    >>> predictive_cdf(family, np.array([[1.0]]), np.array([[1.0, 1.0]]))[1]
    array([[[0.5]]])
    """
    raise NotImplementedError(f"{type(family).__name__} has no distribution function")


def is_discrete(family: Family) -> list[bool]:
    """Return for every column whether it has whole numbers or symbols."""
    if isinstance(family, Product):
        assert family.columns is not None
        found = []
        for part, n in zip(family.parts, family.columns, strict=True):
            own = is_discrete(part)
            found += own + [own[0]] * (n - len(own))
        return found
    n = 1 if family.step_ndim == 0 else int(family.n_features)
    if isinstance(family, NestedFamily):  # a point mass makes a column partly discrete
        return [isinstance(family.family, _COUNTS) or isinstance(family, ZeroInflated)] * n
    return [isinstance(family, _COUNTS)] * n


def n_columns(family: Family) -> int:
    """Return the number of columns that have a predictive distribution: targets, not covariates.

    Examples
    --------
    >>> import sojourn as sj
    >>> n_columns(sj.Categorical(4)), n_columns(sj.Gaussian(n_features=3))
    (1, 3)
    """
    if isinstance(family, Product):
        return sum(map(n_columns, family.parts))
    if isinstance(family, NestedFamily):
        return n_columns(family.family)
    if isinstance(family, Binomial):
        return family.n_successes
    if isinstance(family, MatrixNormalFamily):
        return family.sizes[1]
    return 1 if family.step_ndim == 0 else int(family.n_features)


def _student(z: Floats, dof: Floats) -> Limits:
    found = stdtr(dof, z)
    return found, found


def _marked(missing: NDArray[np.bool_], limits: Limits) -> Limits:
    """Put NaN where entries are missing; `missing` is (T, D)."""
    if not missing.any():
        return limits
    below, upto = (np.where(missing[:, None], np.nan, part) for part in limits)
    return below, upto


@predictive_cdf.register
def _(family: DiagonalGaussian, x: Floats, natural: Floats) -> Limits:
    kappa, nu, sums, squares = family.parts(natural)
    mean = sums / kappa
    scale = np.maximum(squares - sums * mean, 1e-15 * squares + 1e-300) * (1.0 + 1.0 / kappa) / nu
    return _student(((x - np.asarray(family.location))[:, None] - mean) / np.sqrt(scale), nu)


@predictive_cdf.register
def _(family: SphericalGaussian, x: Floats, natural: Floats) -> Limits:
    n = family.features
    kappa, nu = natural[:, :n], natural[:, n, None]
    sums, squares = natural[:, n + 1 : 2 * n + 1], natural[:, 2 * n + 1]
    mean = sums / kappa
    total = np.maximum(squares - (sums * mean).sum(axis=1), 1e-15 * squares + 1e-300)[:, None]
    scale = total * (1.0 + 1.0 / kappa) / nu
    return _student(((x - np.asarray(family.location))[:, None] - mean) / np.sqrt(scale), nu)


@predictive_cdf.register
def _(family: LogNormal, x: Floats, natural: Floats) -> Limits:
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(x, 0.0))
    found: Limits = predictive_cdf(family.logarithms, logs, natural)
    return found


@predictive_cdf.register
def _(family: MatrixNormalFamily, x: Floats, natural: Floats) -> Limits:
    n_regressors, n_targets = family.sizes
    factors = family.factors(natural)
    z, present = family.design(x)
    regressors, targets = z[:, :n_regressors], z[:, n_regressors:]
    corner = factors.lower[:, :n_regressors, :n_regressors]
    inverse = np.linalg.inv(corner) if n_regressors else corner
    coefficients = factors.lower[:, n_regressors:, :n_regressors] @ inverse
    root = factors.lower[:, n_regressors:, n_regressors:]
    leverage = (np.einsum("tr,kur->tku", regressors, inverse) ** 2).sum(axis=2)
    dof = factors.dof - n_targets + 1.0
    variances = (root**2).sum(axis=2) / dof[:, None]
    scale = np.sqrt(variances * (1.0 + leverage[:, :, None]))
    away = targets[:, None] - np.einsum("tr,kdr->tkd", regressors, coefficients)
    missing = np.repeat(~present[:, None], n_targets, axis=1)
    return _marked(missing, _student(away / scale, dof[:, None]))


@predictive_cdf.register
def _(family: StudentT, x: Floats, natural: Floats) -> Limits:
    found, n = family.posterior(natural), family.features
    df, dof, stretch = effective(found, n)
    corner, side = found.factors.lower[:, 0, 0], found.factors.lower[:, 1:, 0]
    root = found.factors.lower[:, 1:, 1:]
    scale = np.sqrt((root**2).sum(axis=2) * (stretch / dof)[:, None])
    mean = side / corner[:, None] + np.asarray(family.location)
    return _student((x[:, None] - mean) / scale, df[:, None])


@predictive_cdf.register
def _(family: Mixture, x: Floats, natural: Floats) -> Limits:
    counts, inner = family.split(natural)
    weights = (counts / counts.sum(axis=1, keepdims=True))[None, :, :, None]
    below, upto = (
        (weights * part.reshape(len(part), *counts.shape, -1)).sum(axis=2)
        for part in predictive_cdf(family.family, x, inner)
    )
    return below, upto


@predictive_cdf.register
def _(family: ZeroInflated, x: Floats, natural: Floats) -> Limits:
    zeros, others, inner = family.split(natural)
    share = zeros / (zeros + others)
    below, upto = predictive_cdf(family.family, x, inner)
    at = x[:, None]
    return (
        np.where(at > 0.0, share, 0.0) + (1.0 - share) * below,
        np.where(at >= 0.0, share, 0.0) + (1.0 - share) * upto,
    )


@predictive_cdf.register
def _(family: Exponential, x: Floats, natural: Floats) -> Limits:
    a, b = family.parts(natural)
    found = -np.expm1(-a * np.log1p(np.maximum(x, 0.0)[:, None] / b))
    return found, found


@predictive_cdf.register
def _(family: Gamma, x: Floats, natural: Floats) -> Limits:
    a, b = family.parts(natural)
    x = np.maximum(x, 0.0)[:, None]
    found = betainc(np.broadcast_to(np.asarray(family.shape), x.shape[-1:]), a, x / (x + b))
    return found, found


@predictive_cdf.register
def _(family: LearnedGamma, x: Floats, natural: Floats) -> Limits:
    n, _, sums = parts = family.parts(natural)
    nodes = family.integrate(*parts)
    c = np.exp(nodes.at[0])
    x = np.maximum(x, 0.0)[:, None]
    share = x / (x + sums)
    found = (np.exp(nodes.log_weights) * betainc(c, c * n[..., None], share[..., None])).sum(-1)
    return found, found


@predictive_cdf.register
def _(family: Beta, x: Floats, natural: Floats) -> Limits:
    nodes = family.integrate(*family.parts(natural))
    a, b = shapes_at(nodes.at)
    out = np.empty((len(x), *nodes.log_total.shape))
    for t, row in enumerate(np.clip(x, 0.0, 1.0)):
        out[t] = (np.exp(nodes.log_weights) * betainc(a, b, row[:, None])).sum(axis=-1)
    return out, out


@predictive_cdf.register
def _(family: VonMises, x: Floats, natural: Floats) -> Limits:
    # From −π to π, by the trapezoidal rule, whose error is small for a smooth periodic function.
    found = np.empty((len(x), len(natural), family.features))
    for d in range(family.features):
        own = np.full((_ANGLES + 1, family.features), np.nan)
        own[:, d] = np.linspace(-np.pi, np.pi, _ANGLES + 1)
        density = np.exp(family.log_predictive(own, natural))
        mass = np.cumsum(0.5 * (density[1:] + density[:-1]), axis=0)
        mass = np.concatenate([np.zeros((1, len(natural))), mass / mass[-1]])
        angle = np.arctan2(np.sin(x[:, d]), np.cos(x[:, d]))
        for k in range(len(natural)):
            found[:, k, d] = np.interp(angle, own[:, d], mass[:, k])
    return found, found


def _counts(x: Floats, least: int, upto: Any) -> Limits:
    """Return both limits of counts from P(X ≤ x) as a function of x (T, 1, D)."""
    missing = np.isnan(x)
    filled = np.where(missing, float(least), np.floor(x))[:, None]

    def at(values: Floats) -> Floats:
        inside = upto(np.maximum(values, float(least)))
        return np.where(values < least, 0.0, np.clip(inside, 0.0, 1.0))

    return _marked(missing, (at(filled - 1.0), at(filled)))


@predictive_cdf.register
def _(family: Poisson, x: Floats, natural: Floats) -> Limits:
    from scipy.stats import nbinom

    b, a = family.parts(natural)
    return _counts(x, 0, lambda values: nbinom.cdf(values, a, b / (1.0 + b)))


@predictive_cdf.register
def _(family: Geometric, x: Floats, natural: Floats) -> Limits:
    alpha, beta = family.parts(natural)

    def upto(values: Floats) -> Floats:
        # P(X > x) = B(α, β + x) / B(α, β).
        return -np.expm1(log_rising(beta, values) - log_rising(alpha + beta, values))

    return _counts(x, 1, upto)


@predictive_cdf.register(LearnedNegativeBinomial)
@predictive_cdf.register(NegativeBinomial)
def _(family: ColumnFamily, x: Floats, natural: Floats) -> Limits:
    parts = family.parts(natural)

    def upto(values: Floats) -> Floats:
        out = np.empty((len(values), len(natural), family.features))
        for d in range(family.features):
            at = values[:, 0, d].astype(np.intp)
            support = np.arange(at.max() + 1.0)[:, None]
            own = tuple(part[:, d] for part in parts)
            table = np.cumsum(np.exp(family.entry_log_predictive(support, d, *own)), axis=0)
            out[:, :, d] = table[at]
        return out

    return _counts(x, 0, upto)


@predictive_cdf.register
def _(family: Bernoulli, x: Floats, natural: Floats) -> Limits:
    ones = family.parameters(natural)["emissionprob_"]
    zeros = 1.0 - ones
    return _counts(x, 0, lambda values: np.where(values < 1.0, zeros, 1.0))


@predictive_cdf.register
def _(family: Binomial, x: Floats, natural: Floats) -> Limits:
    from scipy.stats import betabinom

    alpha, beta = family.parts(natural)
    n = family.n_successes
    trials = np.full((len(x), 1), family.n_trials) if family.n_trials is not None else x[:, -1:]
    successes = np.where(np.isnan(trials), np.nan, x[:, :n])
    known = np.nan_to_num(trials)[:, :, None]

    def upto(values: Floats) -> Floats:
        return betabinom.cdf(np.minimum(values, known), known, alpha, beta)

    return _counts(successes, 0, upto)


@predictive_cdf.register
def _(family: Multinomial, x: Floats, natural: Floats) -> Limits:
    from scipy.stats import betabinom

    # A column is beta-binomial, given the number of trials of its step.
    trials = np.nan_to_num(x).sum(axis=1)[:, None, None]
    rest = natural.sum(axis=1, keepdims=True) - natural

    def upto(values: Floats) -> Floats:
        return betabinom.cdf(np.minimum(values, trials), trials, natural, rest)

    return _counts(x, 0, upto)


@predictive_cdf.register
def _(family: Categorical, x: NDArray[Any], natural: Floats) -> Limits:
    missing = x < 0
    symbols, places = np.unique(np.where(missing, 0, x), return_inverse=True)
    total = natural.sum(axis=1)
    sums = np.cumsum(natural, axis=1)[:, symbols] / total[:, None]
    masses = natural[:, symbols] / total[:, None]
    upto = np.minimum(sums, 1.0).T[places][:, :, None]
    below = np.maximum(sums - masses, 0.0).T[places][:, :, None]
    return _marked(missing[:, None], (below, upto))


@predictive_cdf.register
def _(family: Product, x: Any, natural: Floats) -> Limits:
    parts = zip(family.parts, x, naturals_of(family, natural), strict=True)
    pairs = [predictive_cdf(part, own, n) for part, own, n in parts]
    return (
        np.concatenate([below for below, _ in pairs], axis=2),
        np.concatenate([upto for _, upto in pairs], axis=2),
    )
