"""Unknowns that are integrated numerically: SciPy's densities, and SciPy's integrals."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import betaln, expit, gammaln, i0e

import sojourn as sj
from sojourn.families.draws import expected_risings
from sojourn.families.learned_negative_binomial import KNOTS, risings
from tests.support.families import EXAMPLES

NAMES = ["von Mises", "beta", "gamma, learned shape", "negative binomial, learned dispersion"]


def resolved(name, seed=0, n=60):
    example = EXAMPLES[name]
    family, rng = example.resolve(), np.random.default_rng(seed)
    return family, example.draw_data(rng, n)


def scipy_density(name, x, found):
    """SciPy's log density at the parameters that a model reports."""
    found = {key: value[0] for key, value in found.items()}
    if name == "von Mises":
        each = stats.vonmises.logpdf(x, found["concentrations_"], found["directions_"])
    elif name == "beta":
        mean, size = found["means_"], found["precisions_"]
        each = stats.beta.logpdf(x, mean * size, (1.0 - mean) * size)
    elif name == "gamma, learned shape":
        each = stats.gamma.logpdf(x, found["shapes_"], scale=1.0 / found["rates_"])
    else:
        each = stats.nbinom.logpmf(x, found["dispersions_"], found["probs_"])
    return each.sum(axis=1)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("collapsed", [True, False])
def test_with_many_data_the_density_is_scipys(name, collapsed):
    family, x = resolved(name)
    natural = family.prior() + 1e9 * family.statistics(x).mean(axis=0)[None]
    got = family.potentials(natural, collapsed=collapsed)(x)[:, 0]
    expected = scipy_density(name, x, family.parameters(natural))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def log_prior(s, mean, deviation):
    return stats.norm.logpdf(s, mean, deviation)


def by_quadrature(name, family, natural):
    """a_g of the first column, by SciPy, from the data's likelihood given the unknown."""
    parts = [part[0, 0] for part in family.parts(natural[None])]
    low, high = family.ranges[0]

    def one(log):
        grid = np.linspace(low, high, 4001)
        peak = grid[np.argmax([log(s) for s in grid])]
        top, near = log(peak), (max(low, peak - 6.0), min(high, peak + 6.0))
        value, _ = quad(lambda s: np.exp(log(s) - top), *near, points=[peak], limit=400)
        return top + np.log(value)

    if name == "von Mises":
        n, c, s = parts

        def log(t):
            k, r = np.exp(t), np.hypot(c, s)
            inner = np.log(i0e(k * r)) + k * r - n * (np.log(2 * np.pi * i0e(k)) + k)
            return inner + log_prior(t, 1.0, 1.5)

        return one(log)
    if name == "gamma, learned shape":
        n, logs, total = parts

        def log(t):
            c = np.exp(t)
            inner = c * logs - n * gammaln(c) + gammaln(c * n) - c * n * np.log(total)
            return inner + log_prior(t, 1.0, 2.0)

        return one(log)
    n, logs, others = parts

    logit, size = np.meshgrid(np.linspace(-7.0, 7.0, 701), np.linspace(-4.0, 9.0, 701))
    a, b = np.exp(size) * expit(logit), np.exp(size) * expit(-logit)
    prior = log_prior(logit, family.prior_logit[0], 1.5) + log_prior(size, 2.0, 1.5)
    each = np.exp(a * logs + b * others - n * betaln(a, b) + prior)
    return np.log(each.sum() * (14.0 / 700.0) * (13.0 / 700.0))


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_normaliser_is_the_integral(name):
    family, x = resolved(name, n=6)
    natural = family.prior() + family.statistics(x).sum(axis=0)
    alone = family.entry_log_normalizer(*family.parts(natural[None]))[0, 0]
    np.testing.assert_allclose(alone, by_quadrature(name, family, natural), atol=2e-3)


def test_the_sums_of_counts_give_the_evidence_of_a_dispersion():
    # The likelihood of the counts themselves, integrated over a fine grid of r.
    family, x = resolved("negative binomial, learned dispersion", n=25)
    prior = family.prior()
    natural = (prior + family.statistics(x).sum(axis=0))[None]
    got = family.entry_log_normalizer(*family.parts(natural))[0]
    steps, mean = family.prior_steps, family.prior_mean
    grid = np.linspace(-3.0, 6.0, 6001)
    for d in range(2):
        r, own = np.exp(grid), x[:, d]
        risen = gammaln(own[:, None] + r).sum(axis=0) - len(own) * gammaln(r)
        risen += steps[d] * (gammaln(mean[d] + r) - gammaln(r))
        risen -= gammaln(own + 1.0).sum() + steps[d] * gammaln(mean[d] + 1.0)
        n, total = steps[d] + len(own), steps[d] * mean[d] + own.sum()
        logs = risen + betaln(r * n, total) + log_prior(grid, 1.0, 2.0)
        exact = np.log(np.exp(logs - logs.max()).sum() * (grid[1] - grid[0])) + logs.max()
        np.testing.assert_allclose(got[d], exact, atol=1e-3)


def test_angles_may_be_larger_than_a_turn():
    family, x = resolved("von Mises")
    natural = family.statistics(x).sum(axis=0)[None]
    turned = x + 2.0 * np.pi * np.arange(-30, 30)[:, None]
    np.testing.assert_allclose(
        family.log_predictive(turned, natural), family.log_predictive(x, natural), atol=1e-9
    )


@pytest.mark.parametrize("value", [0.0, 1.0, -0.2, 1.5])
def test_numbers_outside_the_unit_interval_are_refused_with_their_place(value):
    x = np.full((6, 2), 0.4)
    x[4, 1] = value
    with pytest.raises(ValueError, match="sequence 1, position 1, column 1"):
        sj.HMM(2, sj.Beta()).fit(x, [3, 3])


def test_none_as_shape_or_dispersion_means_learned():
    rng = np.random.default_rng(0)
    data = sj.Sequences.from_lengths(rng.gamma(3.0, 1.0, (40, 1)), None)
    assert isinstance(sj.Gamma(shape=None).resolve(data, 2), sj.LearnedGamma)
    counts = data.with_values(np.floor(data.values))
    found = sj.NegativeBinomial(dispersion=None).resolve(counts, 2)
    assert isinstance(found, sj.LearnedNegativeBinomial)
    with pytest.raises(ValueError, match="LearnedGamma"):
        sj.Gamma(shape=None, prior_shape=1.0).resolve(data, 2)


@pytest.mark.parametrize(("r", "chance"), [(0.4, 0.3), (2.0, 1e-3), (30.0, 1e-4), (0.2, 2e-4)])
def test_expected_statistics_of_drawn_counts_are_sums_over_the_counts(r, chance):
    x = np.arange(stats.nbinom.isf(1e-13, r, chance) + 1.0)
    terms = gammaln(x[:, None] + np.exp(KNOTS)) - gammaln(np.exp(KNOTS)) - gammaln(x + 1.0)[:, None]
    expected = stats.nbinom.pmf(x, r, chance) @ terms
    got = np.ravel(expected_risings(np.array([[r]]), np.array([[chance]])))
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_sums_of_very_large_counts_keep_their_digits():
    # Differences of log Γ near 2^53 lose all of them; for whole r they are sums of logarithms.
    x = np.array([2.0**53, 1e12, 3.0])
    for r in (1, 4):
        expected = sum(np.log(x + i) for i in range(1, r)) - gammaln(r)
        np.testing.assert_allclose(risings(x, float(r)), expected + 0.0 * x, rtol=1e-12, atol=1e-12)


def precise_gammaln(x):
    """log Γ(x) to thirty digits: Stirling's series, from where it converges."""
    bernoulli = [Fraction(1, 6), Fraction(-1, 30), Fraction(1, 42), Fraction(-1, 30),
                 Fraction(5, 66), Fraction(-691, 2730)]  # fmt: skip
    x, product = Decimal(x), Decimal(1)
    while x < 200:
        product, x = product * x, x + 1
    pi = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
    total = (x - Decimal("0.5")) * x.ln() - x + (2 * pi).ln() / 2
    for n, b in enumerate(bernoulli, 1):
        factor = Decimal(b.numerator) / Decimal(b.denominator)
        total += factor / (2 * n * (2 * n - 1) * x ** (2 * n - 1))
    return total - product.ln()


@pytest.mark.parametrize("x", [0.0, 3.0, 2e4, 1e9, 1e15, 9e15])
@pytest.mark.parametrize("total", [2.0, 1e6, 1e15, 3e16])
@pytest.mark.parametrize("n", [1.0, 40.0, 1e5])
@pytest.mark.parametrize("r", [0.1, 30.0])
def test_large_counts_keep_their_digits(x, total, n, r):
    family = sj.LearnedNegativeBinomial(1, prior_mean=1.0)
    one = np.ones((1, 1))
    found = family.log_given(x * one, (np.log(r) * one,), n * one, total * one)[0, 0]
    with localcontext() as context:
        context.prec = 60
        at = Decimal(float(np.exp(np.log(r))))
        failures, sums, count = at * Decimal(n), Decimal(total), Decimal(x)
        terms = (
            (failures + at, 1), (failures, -1), (sums + count, 1), (sums, -1), (at + count, 1),
            (at, -1), (count + 1, -1), (failures + sums + at + count, -1), (failures + sums, 1),
        )  # fmt: skip
        expected = float(sum(sign * precise_gammaln(value) for value, sign in terms))
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)
