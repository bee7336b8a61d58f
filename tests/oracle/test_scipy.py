"""Predictive distributions after a few observations: textbook updates, and SciPy's densities."""

import numpy as np
import pytest
from scipy import stats

import sojourn as sj

RNG = np.random.default_rng(0)
needs_beta_negative_binomial = pytest.mark.skipif(
    not hasattr(stats, "betanbinom"), reason="SciPy has this distribution since 1.12"
)


def after(family, seen):
    """λ of one state that has seen the rows."""
    data = sj.Sequences.from_lengths(np.asarray(seen))
    family = family.resolve(data, 1)
    return family, (family.prior() + family.statistics(family.observations(data)).sum(axis=0))[None]


def check(family, natural, x, expected):
    got = family.log_predictive(np.asarray(x), natural)[:, 0]
    np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-10)


def niw_predictive(seen, mean, strength, dof, scale):
    """Degrees of freedom, location and shape of the multivariate t (Gelman et al., ch. 3)."""
    n, d = seen.shape
    average = seen.mean(axis=0)
    kappa, nu = strength + n, dof + n
    scatter = (seen - average).T @ (seen - average)
    away = average - mean
    psi = scale + scatter + strength * n / kappa * np.outer(away, away)
    return nu - d + 1, (strength * mean + n * average) / kappa, psi * (kappa + 1) / kappa


@pytest.mark.parametrize("d", [1, 3])
def test_gaussian_is_a_multivariate_t(d):
    seen = RNG.normal(5.0, 2.0, (12, d))
    mean, scale = np.arange(d) + 1.0, 0.5 * np.eye(d) + 0.1
    family, natural = after(
        sj.Gaussian(mean=mean, mean_strength=0.7, degrees_of_freedom=d + 1.5, scale=scale), seen
    )
    df, loc, shape = niw_predictive(seen, mean, 0.7, d + 1.5, scale)
    x = RNG.normal(5.0, 4.0, (20, d))
    expected = stats.multivariate_t(loc, shape / df, df).logpdf(x)
    check(family, natural, x, np.atleast_1d(expected))


def test_diagonal_gaussian_is_a_t_a_column():
    seen = RNG.normal(5.0, 2.0, (12, 2))
    family, natural = after(
        sj.DiagonalGaussian(
            mean=[1.0, 2.0], mean_strength=0.7, degrees_of_freedom=1.5, scale=[0.5, 2.0]
        ),
        seen,
    )
    x = RNG.normal(5.0, 4.0, (20, 2))
    expected = 0.0
    for c, (mean, scale) in enumerate([(1.0, 0.5), (2.0, 2.0)]):
        df, loc, shape = niw_predictive(seen[:, [c]], np.array([mean]), 0.7, 1.5, scale)
        expected += stats.t(df, loc[0], np.sqrt(shape[0, 0] / df)).logpdf(x[:, c])
    check(family, natural, x, expected)
    logs = sj.LogNormal(
        mean=[1.0, 2.0], mean_strength=0.7, degrees_of_freedom=1.5, scale=[0.5, 2.0]
    )
    family, natural = after(logs, np.exp(seen))
    check(family, natural, np.exp(x), expected - x.sum(axis=1))


def test_spherical_gaussian_is_a_multivariate_t():
    seen = RNG.normal(5.0, 2.0, (12, 3))
    mean = np.array([1.0, 2.0, 3.0])
    family, natural = after(
        sj.SphericalGaussian(mean=mean, mean_strength=0.7, degrees_of_freedom=1.5, scale=2.0), seen
    )
    df = 1.5 + seen.size
    _, loc, psi = niw_predictive(seen, mean, 0.7, 1.5, np.zeros((3, 3)))
    kappa = 12.7
    shape = (2.0 + np.trace(psi) * kappa / (kappa + 1)) * (kappa + 1) / kappa
    x = RNG.normal(5.0, 4.0, (20, 3))
    check(family, natural, x, stats.multivariate_t(loc, shape / df * np.eye(3), df).logpdf(x))


def test_zero_mean_gaussian_is_a_multivariate_t_around_zero():
    seen, scale = RNG.normal(0.0, 2.0, (12, 2)), np.array([[0.5, 0.1], [0.1, 0.9]])
    family, natural = after(sj.ZeroMeanGaussian(degrees_of_freedom=3.5, scale=scale), seen)
    df = 3.5 + 12 - 2 + 1
    x = RNG.normal(0.0, 4.0, (20, 2))
    shape = (scale + seen.T @ seen) / df
    check(family, natural, x, stats.multivariate_t(np.zeros(2), shape, df).logpdf(x))


def regression_predictive(phi, y, precision, coefficients, dof, scale, at):
    """Bayesian linear regression, by the normal equations (Bishop, ch. 3, with unknown noise)."""
    p = np.diag(precision) + phi.T @ phi
    mean = np.linalg.solve(p, np.diag(precision) @ coefficients.T + phi.T @ y).T
    psi = scale + y.T @ y + coefficients @ np.diag(precision) @ coefficients.T - mean @ p @ mean.T
    df = dof + len(y) - y.shape[1] + 1
    factor = 1.0 + np.einsum("ti,ij,tj->t", at, np.linalg.inv(p), at)
    return [(mean @ row, psi * f / df, df) for row, f in zip(at, factor, strict=True)]


def test_linear_gaussian_is_a_multivariate_t_around_the_regression():
    u = RNG.normal(1.0, 2.0, (30, 2))
    y = u @ [[1.0, 2.0], [0.5, -1.0]] + RNG.normal(size=(30, 2)) + 3.0
    family, natural = after(
        sj.LinearGaussian(
            2, mean=0.0, mean_strength=0.3, coef_strength=0.2, degrees_of_freedom=4.0, scale=0.7,
            location=0.0, spread=[1.0, 1.0, 1.5, 0.5],
        ),
        np.hstack([y, u]),
    )  # fmt: skip
    at_u = RNG.normal(1.0, 3.0, (10, 2))
    x = RNG.normal(3.0, 5.0, (10, 2))
    phi, at = (np.hstack([np.ones((len(v), 1)), v]) for v in (u, at_u))
    precision = [0.3, 0.2 * 1.5**2, 0.2 * 0.5**2]
    predicted = regression_predictive(phi, y, precision, np.zeros((2, 3)), 4.0, 0.7 * np.eye(2), at)
    expected = [
        stats.multivariate_t(loc, shape, df).logpdf(row)
        for (loc, shape, df), row in zip(predicted, x, strict=True)
    ]
    check(family, natural, np.hstack([x, at_u]), expected)


def test_autoregressive_gaussian_is_a_multivariate_t_around_the_forecast():
    walk = np.cumsum(RNG.normal(size=(40, 2)), axis=0)
    family, natural = after(
        sj.AutoregressiveGaussian(
            2, mean=0.0, mean_strength=0.3, coef_strength=0.2, degrees_of_freedom=4.0, scale=0.7,
            location=0.0, spread=[1.5, 0.5],
        ),
        walk,
    )  # fmt: skip
    # The first step is given; before it, it stands for its own past.
    before = np.vstack([walk[:1], walk])
    past = [np.concatenate([[1.0], before[t], before[t - 1]]) for t in range(1, 40)]
    precision = np.array([0.3, *(0.2 * np.tile([1.5**2, 0.5**2], 2))])
    x = family.observations(sj.Sequences.from_lengths(walk))[1:]
    np.testing.assert_allclose(x[:, 2:], np.array(past)[:, 1:])
    predicted = regression_predictive(
        np.array(past), walk[1:], precision, np.zeros((2, 5)), 4.0, 0.7 * np.eye(2), np.array(past)
    )
    expected = [
        stats.multivariate_t(loc, shape, df).logpdf(row)
        for (loc, shape, df), row in zip(predicted, walk[1:], strict=True)
    ]
    check(family, natural, x, expected)


def test_poisson_is_a_negative_binomial():
    seen, x = RNG.poisson(4.0, (12, 1)), np.arange(30.0)[:, None]
    family, natural = after(sj.Poisson(prior_shape=0.7, prior_rate=0.3), seen)
    a, b = 0.7 + seen.sum(), 0.3 + 12
    check(family, natural, x, stats.nbinom(a, b / (b + 1)).logpmf(x[:, 0]))


@needs_beta_negative_binomial
def test_negative_binomial_is_a_beta_negative_binomial():
    seen, x = RNG.negative_binomial(3, 0.3, (12, 1)), np.arange(30.0)[:, None]
    family, natural = after(sj.NegativeBinomial(dispersion=3.0, alpha=0.7, beta=0.3), seen)
    expected = stats.betanbinom(3, 0.7 + 36, 0.3 + seen.sum()).logpmf(x[:, 0])
    check(family, natural, x, expected)


@needs_beta_negative_binomial
def test_geometric_is_a_beta_negative_binomial_of_one():
    seen, x = RNG.geometric(0.3, (12, 1)), np.arange(1.0, 30.0)[:, None]
    family, natural = after(sj.Geometric(alpha=0.7, beta=0.3), seen)
    expected = stats.betanbinom(1, 0.7 + 12, 0.3 + seen.sum() - 12).logpmf(x[:, 0] - 1)
    check(family, natural, x, expected)


def test_bernoulli_is_a_beta_binomial_of_one():
    seen, x = RNG.integers(2, size=(12, 1)), np.array([[0.0], [1.0]])
    family, natural = after(sj.Bernoulli(alpha=0.7, beta=0.3), seen)
    ones = seen.sum()
    expected = stats.betabinom(1, 0.7 + ones, 0.3 + 12 - ones).logpmf(x[:, 0])
    check(family, natural, x, expected)


def test_multinomial_and_categorical_are_dirichlet_multinomials():
    seen = RNG.multinomial(7, [0.2, 0.3, 0.5], 12)
    family, natural = after(sj.Multinomial(concentration=[0.1, 0.7, 2.0]), seen)
    posterior = np.array([0.1, 0.7, 2.0]) + seen.sum(axis=0)
    x = RNG.multinomial(9, [0.3, 0.3, 0.4], 15)
    expected = stats.dirichlet_multinomial.logpmf(x, posterior, 9)
    check(family, natural, x.astype(float), expected)
    symbols = RNG.integers(3, size=12)
    family, natural = after(sj.Categorical(3, concentration=[0.1, 0.7, 2.0]), symbols)
    posterior = np.array([0.1, 0.7, 2.0]) + np.bincount(symbols, minlength=3)
    expected = stats.dirichlet_multinomial.logpmf(np.eye(3, dtype=int), posterior, 1)
    check(family, natural, np.arange(3), expected)


def test_exponential_is_a_lomax():
    seen, x = RNG.exponential(3.0, (12, 1)), RNG.exponential(9.0, (20, 1))
    family, natural = after(sj.Exponential(prior_shape=0.7, prior_rate=0.3), seen)
    expected = stats.lomax(0.7 + 12, scale=0.3 + seen.sum()).logpdf(x[:, 0])
    check(family, natural, x, expected)


def test_gamma_is_a_scaled_beta_prime():
    seen, x = RNG.gamma(2.5, 3.0, (12, 1)), RNG.gamma(2.5, 9.0, (20, 1))
    family, natural = after(sj.Gamma(shape=2.5, prior_shape=0.7, prior_rate=0.3), seen)
    expected = stats.betaprime(2.5, 0.7 + 2.5 * 12, scale=0.3 + seen.sum()).logpdf(x[:, 0])
    check(family, natural, x, expected)


def test_product_is_the_product():
    seen = np.column_stack([RNG.poisson(4.0, 12), RNG.exponential(3.0, 12)])
    family, natural = after(
        sj.Product(
            sj.Poisson(prior_shape=0.7, prior_rate=0.3),
            sj.Exponential(prior_shape=0.7, prior_rate=0.3),
        ),
        seen,
    )
    x = np.column_stack([np.arange(9.0), RNG.exponential(9.0, 9)])
    a, b = 0.7 + seen[:, 0].sum(), 12.3
    expected = stats.nbinom(a, b / (b + 1)).logpmf(x[:, 0])
    expected += stats.lomax(12.7, scale=0.3 + seen[:, 1].sum()).logpdf(x[:, 1])
    got = family.log_predictive(family.observations(sj.Sequences.from_lengths(x)), natural)
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-9)
