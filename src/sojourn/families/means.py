"""Means of the predictive distributions (2)."""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from sojourn.families.base import Family
from sojourn.families.bernoulli import Bernoulli
from sojourn.families.beta import Beta
from sojourn.families.binomial import Binomial
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.families.draws import naturals_of
from sojourn.families.gamma import Gamma
from sojourn.families.learned_gamma import LearnedGamma
from sojourn.families.learned_negative_binomial import LearnedNegativeBinomial
from sojourn.families.log_normal import LogNormal
from sojourn.families.matrix_normal import MatrixNormalFamily
from sojourn.families.mixture import Mixture
from sojourn.families.multinomial import Multinomial
from sojourn.families.negative_binomial import NegativeBinomial
from sojourn.families.product import Product
from sojourn.families.rates import ProbabilityFamily, RateFamily
from sojourn.families.spherical_gaussian import SphericalGaussian
from sojourn.families.student_t import StudentT
from sojourn.families.von_mises import VonMises
from sojourn.families.zero_inflated import ZeroInflated
from sojourn.kernels.interface import Floats


@singledispatch
def expected_values(family: Family, natural: Floats) -> Floats:
    """Return the mean of the predictive distribution (2) of every state, shape (K, D).

    Where that mean does not exist — always for `LogNormal`, elsewhere for a state with hardly any
    data — it is the mean at the posterior mean parameters.

    Examples
    --------
    >>> import sojourn as sj
    >>> expected_values(sj.Poisson(1), np.array([[2.0, 3.0]]))
    array([[1.5]])
    """
    raise NotImplementedError(f"{type(family).__name__} has no mean that depends on the state only")


@expected_values.register
def _(family: RateFamily, natural: Floats) -> Floats:
    a, b = family.shape_and_rate(*family.parts(natural))
    if family.parameter_names[0] == "lambdas_":
        return a / b
    shape = np.asarray(family.shape) if isinstance(family, Gamma) else 1.0
    return shape * b / np.where(a > 1.0, a - 1.0, a)


@expected_values.register
def _(family: ProbabilityFamily, natural: Floats) -> Floats:
    alpha, beta = family.parts(natural)
    failures = beta / np.where(alpha > 1.0, alpha - 1.0, alpha)
    if isinstance(family, NegativeBinomial):
        return np.asarray(family.dispersion) * failures
    return 1.0 + failures


@expected_values.register
def _(family: Binomial, natural: Floats) -> Floats:
    assert family.typical_trials is not None
    found = family.typical_trials * family.parameters(natural)["probs_"]
    if family.n_trials is not None:
        return found
    return np.concatenate([found, np.full((len(found), 1), family.typical_trials)], axis=1)


@expected_values.register
def _(family: Mixture, natural: Floats) -> Floats:
    counts, inner = family.split(natural)
    each = expected_values(family.family, inner).reshape(*counts.shape, -1)
    return ((counts / counts.sum(axis=1, keepdims=True))[:, :, None] * each).sum(axis=1)


@expected_values.register
def _(family: ZeroInflated, natural: Floats) -> Floats:
    zeros, others, inner = family.split(natural)
    return others / (zeros + others) * expected_values(family.family, inner)


@expected_values.register
def _(family: LearnedGamma, natural: Floats) -> Floats:
    n, _, sums = parts = family.parts(natural)
    nodes = family.integrate(*parts)
    c = np.exp(nodes.at[0])
    a = c * n[..., None]
    return nodes.mean(c * sums[..., None] / np.where(a > 1.0, a - 1.0, a))


@expected_values.register
def _(family: LearnedNegativeBinomial, natural: Floats) -> Floats:
    n, total, *_ = parts = family.parts(natural)
    nodes = family.integrate(*parts)
    r = np.exp(nodes.at[0])
    a = r * n[..., None]
    return nodes.mean(r * total[..., None] / np.where(a > 1.0, a - 1.0, a))


@expected_values.register
def _(family: VonMises, natural: Floats) -> Floats:
    return family.parameters(natural)["directions_"]  # the mean of angles is a direction


@expected_values.register(Bernoulli)
@expected_values.register(Multinomial)
def _(family: Family, natural: Floats) -> Floats:
    return family.parameters(natural)["emissionprob_"]


@expected_values.register(Beta)
@expected_values.register(DiagonalGaussian)
@expected_values.register(SphericalGaussian)
@expected_values.register(StudentT)
def _(family: Family, natural: Floats) -> Floats:
    return family.parameters(natural)["means_"]


@expected_values.register
def _(family: LogNormal, natural: Floats) -> Floats:
    found = family.parameters(natural)
    return np.exp(found["means_"] + 0.5 * found["covars_"])


@expected_values.register
def _(family: MatrixNormalFamily, natural: Floats) -> Floats:
    found = family.parameters(natural)
    if "intercepts_" in found:
        raise NotImplementedError(f"the mean of {type(family).__name__} depends on regressors")
    covariances = found["covars_"]
    return found.get("means_", np.zeros(covariances.shape[:2]))


@expected_values.register
def _(family: Product, natural: Floats) -> Floats:
    out = []
    for part, own in zip(family.parts, naturals_of(family, natural), strict=True):
        symbols = part.step_ndim == 0  # the mean of symbols says nothing
        out.append(np.full((len(own), 1), np.nan) if symbols else expected_values(part, own))
    return np.concatenate(out, axis=1)
