"""Families whose steps have unknowns of their own, held by enumeration, SciPy and hmmlearn."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import digamma, gammaln, logsumexp

import sojourn as sj
from sojourn.families import DecayedTable
from tests.support.families import LATENT, N_STATES

MIXTURES = [name for name in LATENT if name.startswith("mixture")]
both = pytest.mark.parametrize("collapsed", [True, False])


def made(name, seed=0, n=7):
    example, rng = LATENT[name], np.random.default_rng(seed)
    family = example.resolve()
    natural = example.draw_natural(family, rng, N_STATES)
    x = family.observations(sj.Sequences.from_lengths(example.draw_data(rng, n), None))
    return family, natural, x


def summed(family, natural, x, r, *, collapsed):
    table = DecayedTable(natural - family.prior(), "float64")
    sums, local = family.sum_given(x, r, table, collapsed=collapsed, n_threads=1, bound=True)
    return sums.dense().T, local


@both
@pytest.mark.parametrize("name", MIXTURES)
def test_a_mixture_is_the_sum_over_its_components(name, collapsed):
    family, natural, x = made(name)
    n, size = family.n_components, family.family.n_statistics
    r = np.random.default_rng(1).random((len(x), N_STATES))
    got = family.potentials(natural, collapsed=collapsed)(x)
    sums, local = summed(family, natural, x, r, collapsed=collapsed)
    entropy = 0.0
    for k in range(N_STATES):
        counts = natural[k, :n]
        own = natural[k, n:].reshape(n, size)
        each = []
        for c in range(n):
            function = family.family.log_predictive
            weight = np.log(counts[c] / counts.sum())
            if not collapsed:
                function = family.family.expected_log_likelihood
                weight = digamma(counts[c]) - digamma(counts.sum())
            each.append(function(x, own[c][None])[:, 0] + weight)
        total = logsumexp(each, axis=0)
        np.testing.assert_allclose(got[:, k], total, rtol=1e-9)
        shares = r[:, k] * np.exp(each - total)
        entropy -= (shares * (each - total)).sum()
        np.testing.assert_allclose(sums[k, :n], shares.sum(axis=1))
        inner = shares @ family.family.statistics(x)
        np.testing.assert_allclose(sums[k, n:].reshape(n, size), inner, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(local, entropy)


@pytest.mark.parametrize("name", MIXTURES)
def test_the_order_of_components_does_not_matter(name):
    family, natural, x = made(name)
    turned = family.split(natural)
    shape = (N_STATES, family.n_components, -1)
    turned = np.concatenate(
        [turned[0][:, ::-1], turned[1].reshape(shape)[:, ::-1].reshape(N_STATES, -1)], axis=1
    )
    np.testing.assert_allclose(family.log_normalizer(turned), family.log_normalizer(natural))
    np.testing.assert_allclose(family.log_predictive(x, turned), family.log_predictive(x, natural))
    prior = family.prior()
    one, other = (family.canonical(part - prior) for part in (natural, turned))
    np.testing.assert_allclose(one, other)
    np.testing.assert_allclose(family.canonical(one), one)


@both
def test_a_zero_is_of_one_kind_or_the_other(collapsed):
    family, natural, x = made("zero-inflated Poisson", n=40)
    r = np.random.default_rng(1).random((len(x), N_STATES))
    got = family.potentials(natural, collapsed=collapsed)(x)
    sums, local = summed(family, natural, x, r, collapsed=collapsed)
    expected, bound = np.zeros_like(got), 0.0
    zeros, others, inner = family.split(natural)
    b, a = family.family.parts(inner)
    counts = np.zeros((N_STATES, 8))
    for t, k, d in itertools.product(range(len(x)), range(N_STATES), range(2)):
        n = zeros[k, d] + others[k, d]
        if collapsed:
            pair = np.log([zeros[k, d] / n, others[k, d] / n])
            own = stats.nbinom.logpmf(x[t, d], a[k, d], b[k, d] / (1.0 + b[k, d]))
        else:
            pair = digamma([zeros[k, d], others[k, d]]) - digamma(n)
            own = x[t, d] * (digamma(a[k, d]) - np.log(b[k, d])) - a[k, d] / b[k, d]
            own -= gammaln(x[t, d] + 1.0)
        logs = np.array([pair[0] if x[t, d] == 0 else -np.inf, pair[1] + own])
        expected[t, k] += logsumexp(logs)
        shares = np.exp(logs - logsumexp(logs))
        counts[k, d] += r[t, k] * shares[0]
        counts[k, 2 + d] += r[t, k] * shares[1]
        counts[k, 4 + d] += r[t, k] * shares[1]
        counts[k, 6 + d] += r[t, k] * shares[1] * x[t, d]
        bound += r[t, k] * stats.entropy(shares)
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    np.testing.assert_allclose(sums, counts, rtol=1e-9)
    np.testing.assert_allclose(local, bound)


def test_positive_numbers_may_be_zero_when_inflated():
    family, natural, x = made("zero-inflated gamma", n=40)
    zeros, others, inner = family.split(natural)
    chance = zeros / (zeros + others)
    for t, row in enumerate(x):
        for k in range(N_STATES):
            own = [np.log(chance[k, d]) for d in range(2) if row[d] == 0]
            own += [np.log1p(-chance[k, d]) for d in range(2) if row[d] > 0]
            hidden = np.where(row == 0, np.nan, row)[None]
            alone = family.family.log_predictive(hidden, inner[k : k + 1])[0, 0]
            got = family.log_predictive(row[None], natural[k : k + 1])[0, 0]
            np.testing.assert_allclose(got, sum(own) + alone, err_msg=str(t))
    with pytest.raises(ValueError, match="position 2, column 1"):
        family.validate(sj.Sequences.from_lengths(np.where(np.eye(4)[:, :2] > 5, 1, [[1, 1]] * 2 +
                                                           [[1, -1], [1, 1]]), None))  # fmt: skip


# ---- Student's t ---------------------------------------------------------------------------------


def test_with_many_data_the_t_density_is_scipys():
    rng = np.random.default_rng(0)
    family = LATENT["Student t"].resolve()
    x = LATENT["Student t"].draw_data(rng, 20)
    mean, shape, df = np.array([7.5, 6.0]), np.array([[1.0, 0.6], [0.6, 2.0]]), 3.5
    y = mean - np.asarray(family.location)
    mass = 1e9
    joint = np.block([[np.ones((1, 1)), y[None]], [y[:, None], shape + np.outer(y, y)]])
    gap = digamma(df / 2) - np.log(df / 2) - 1.0
    natural = np.concatenate([[mass, mass * gap, mass], mass * joint[np.triu_indices(3)]])[None]
    exact = stats.multivariate_t(mean, shape, df).logpdf(x)
    for collapsed in (True, False):
        got = family.potentials(natural, collapsed=collapsed)(x)[:, 0]
        np.testing.assert_allclose(got, exact, atol=1e-6)
    found = family.parameters(natural)
    np.testing.assert_allclose(found["dfs_"], df, rtol=1e-4)
    np.testing.assert_allclose(found["scales_"][0], shape, rtol=1e-6)


def test_the_mean_field_t_is_the_integral_over_precisions():
    family, natural, x = made("Student t, known degrees of freedom")
    gaussian, df = family.gaussian, family.df
    plain = gaussian.expected_log_likelihood(x, natural[:, 2:])
    got = family.expected_log_likelihood(x, natural)
    for t, k in itertools.product(range(len(x)), range(N_STATES)):
        # E log N(x | μ, Σ / u) = c − ½ u δ + ½ log u: c and δ from two multiples of the distance.
        constant = _constant(gaussian, natural[k : k + 1, 2:])
        delta = -2.0 * (plain[t, k] - constant)

        def integrand(u, constant=constant, delta=delta):
            log = constant - 0.5 * u * delta + 0.5 * np.log(u)
            return np.exp(log + stats.gamma.logpdf(u, df / 2, scale=2.0 / df))

        value, _ = quad(integrand, 0.0, np.inf)
        np.testing.assert_allclose(got[t, k], np.log(value), rtol=1e-6)


def _constant(gaussian, natural):
    """½ E[log|Σ⁻¹|] − ½ log 2π of one column, from its Gamma posterior."""
    nu, kappa, s, q = natural[0]
    scale = q - s * s / kappa
    return 0.5 * (digamma(nu / 2) - np.log(scale / 2)) - 0.5 * np.log(2 * np.pi)


def test_a_collapsed_t_with_many_degrees_of_freedom_is_that_of_a_gaussian():
    x = LATENT["Student t"].draw_data(np.random.default_rng(0), 30)
    data = sj.Sequences.from_lengths(x, None)
    family = sj.StudentT(df=1e6).resolve(data, N_STATES)
    natural = family.gaussian.prior() + 5.0 * family.gaussian.statistics(x)[:4]
    gap = 4.0 * (digamma(5e5) - np.log(5e5) - 1.0)
    whole = np.concatenate([np.full((4, 1), 4.0), np.full((4, 1), gap), natural], axis=1)
    np.testing.assert_allclose(
        family.log_predictive(x, whole), family.gaussian.log_predictive(x, natural), atol=1e-3
    )


def test_the_collapsed_t_is_close_to_the_mean_over_draws():
    rng = np.random.default_rng(3)
    family = sj.StudentT(n_features=1, df=4.0)
    x = rng.standard_t(4, (400, 1))
    family = family.resolve(sj.Sequences.from_lengths(x, None), 1)
    inner = family.gaussian.prior() + family.gaussian.statistics(x[:40]).sum(axis=0)
    natural = np.concatenate([[40.0, 40.0 * (digamma(2.0) - np.log(2.0) - 1.0)], inner])[None]
    from sojourn.families.draws import draw_parameters

    drawn = draw_parameters(family, np.repeat(natural, 20_000, axis=0), rng)
    grid = np.linspace(-8.0, 8.0, 9)[:, None]
    mean = np.exp(family.log_predictive(grid, drawn)).mean(axis=1)
    got = np.exp(family.log_predictive(grid, natural))[:, 0]
    np.testing.assert_allclose(got, mean, rtol=0.1)


# ---- bounds, models and hmmlearn -----------------------------------------------------------------


@pytest.mark.parametrize("name", LATENT)
def test_the_mean_field_bound_rises(name):
    example = LATENT[name]
    x = example.draw_data(np.random.default_rng(0), 90)
    model = sj.HMM(2, example.given, inference="vb", n_passes=15, random_state=0, n_init=1)
    model.fit(x, [40, 50], track_bound=True)
    bounds = np.array([entry["bound"] for entry in model.history_])
    assert (np.diff(bounds) > -1e-6 * np.abs(bounds[:-1])).all(), bounds


def test_gmmhmm_of_hmmlearn_has_the_same_score():
    hmmlearn = pytest.importorskip("hmmlearn.hmm")
    rng = np.random.default_rng(0)
    k, c, d = 3, 2, 2
    start, matrix = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(k), k)
    weights, means = rng.dirichlet(np.ones(c), k), rng.normal(0, 3, (k, c, d))
    variances = rng.gamma(2.0, 1.0, (k, c, d)) + 0.2
    theirs = hmmlearn.GMMHMM(k, c, covariance_type="diag")
    theirs.startprob_, theirs.transmat_, theirs.weights_ = start, matrix, weights
    theirs.means_, theirs.covars_, theirs.n_features = means, variances, d
    x = rng.normal(0, 3, (60, d))
    mass = 1e12
    family = sj.Mixture(sj.DiagonalGaussian(d, 0.0, 0.01, 3.0, 1.0, 0.0), c, 0.5)
    family = family.resolve(sj.Sequences.from_lengths(x, None), k)
    parts = [np.full_like(means, mass), np.full_like(means, mass)]
    parts += [mass * means, mass * (variances + means**2)]
    inner = np.stack(parts, axis=2).reshape(k, -1)
    statistics = sj.Statistics(
        mass * start, mass * matrix, np.concatenate([mass * weights, inner], axis=1)
    )
    ours = sj.HMM(k, family, dtype="float64", n_passes=1, n_init=1, random_state=0).fit(x, [60])
    from dataclasses import replace

    from sojourn.inference import Posterior

    posterior = Posterior.from_statistics(statistics, ours.fitted_.posterior.transitions, "float64")
    fitted = replace(ours.fitted_, family=family, posterior=posterior)
    np.testing.assert_allclose(fitted.score(x, [40, 20]), theirs.score(x, [40, 20]), rtol=1e-8)


def test_what_cannot_be_inside_is_refused():
    x = np.ones((4, 1))
    for family in (
        sj.Mixture(sj.Categorical(3)),
        sj.Mixture(sj.StudentT()),
        sj.ZeroInflated(sj.Gaussian()),
        sj.ZeroInflated(sj.DiagonalGaussian()),
    ):
        with pytest.raises(TypeError, match="takes"):
            family.resolve(sj.Sequences.from_lengths(x, None), 2)
