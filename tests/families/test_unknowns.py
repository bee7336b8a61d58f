"""Posterior draws of families whose steps have unknowns, held by the exact posterior."""

import itertools

import numpy as np
import pytest
from scipy import stats
from scipy.special import betaln, gammaln, logsumexp

import sojourn as sj
from sojourn.families.draws import draw_parameters
from sojourn.families.unknowns import path_statistics
from tests.support.families import LATENT


def draws(family, x, n=1500, thin=2):
    """Parameters of one state, whose path is known: unknowns and parameters in turn."""
    rng, data = np.random.default_rng(1), sj.Sequences(x, [0, len(x)])
    family = family.resolve(data, 1)
    encoded, path = family.encode(family.validate(data)), np.zeros(len(x), np.int32)
    natural = family.prior() + family.initial_statistics(data, 1, len(x), rng)
    kept = []
    for sweep in range(20 + thin * n):
        statistics = path_statistics(family, encoded, path, natural, rng)
        natural = draw_parameters(family, family.prior() + statistics, rng)
        if sweep >= 20 and sweep % thin == 0:
            kept.append(family.parameters(natural))
    return {name: np.array([own[name][0] for own in kept]) for name in family.parameter_names}


def near(found, mean, deviation):
    """Whether draws have a mean and a standard deviation, as exactly as so many can say it."""
    worth = len(found) / 4.0  # they are not independent
    assert abs(found.mean() - mean) < 4.0 * deviation / np.sqrt(worth)
    assert found.std() == pytest.approx(deviation, rel=4.0 / np.sqrt(2.0 * worth))


def moments(weights, values):
    mean = (weights * values).sum()
    return mean, np.sqrt((weights * (values - mean) ** 2).sum())


def test_students_t_has_its_exact_posterior():
    x = np.array([-0.3, 0.2, 1.1, 0.4, -0.9, 0.6, 9.0, 0.1, -0.2, 0.8])[:, None]
    family = sj.StudentT(
        df=3.0, mean=0.5, mean_strength=0.3, degrees_of_freedom=2.0, scale=1.0, location=0.0
    )
    mu, log_var = np.meshgrid(np.linspace(-4, 5, 400), np.linspace(-5, 5, 400), indexing="ij")
    deviation = np.exp(0.5 * log_var)
    # The Jacobian of the logarithm is the variance.
    log = log_var + stats.invgamma(1.0, 0, 0.5).logpdf(np.exp(log_var))
    log += stats.norm(0.5, deviation / np.sqrt(0.3)).logpdf(mu)
    log += sum(stats.t(3.0, mu, deviation).logpdf(value) for value in x.ravel())
    weights = np.exp(log - logsumexp(log))
    samples = draws(family, x, 700)
    near(samples["means_"][:, 0], *moments(weights, mu))
    near(np.log(samples["scales_"][:, 0, 0]), *moments(weights, log_var))
    np.testing.assert_allclose(samples["dfs_"], 3.0)


def test_degrees_of_freedom_have_their_exact_posterior():
    rng = np.random.default_rng(0)
    x = rng.standard_t(3, (60, 1))
    # A prior so strong that mean and scale are known.
    family = sj.StudentT(
        mean=0.0, mean_strength=1e8, degrees_of_freedom=1e8, scale=1e8, location=0.0
    )
    log_df = np.linspace(-3, 9, 4000)
    log = stats.norm(2.0, 1.0).logpdf(log_df)
    log += stats.t(np.exp(log_df)[:, None]).logpdf(x[:, 0]).sum(axis=1)
    weights = np.exp(log - logsumexp(log))
    near(np.log(draws(family, x, 200)["dfs_"]), *moments(weights, log_df))


def test_zero_inflation_has_its_exact_posterior():
    x = np.array([0, 0, 0, 0, 0, 2, 1, 3, 0, 1.0])[:, None]
    family = sj.ZeroInflated(sj.Poisson(prior_shape=1.5, prior_rate=0.5), prior_count=0.7)
    n_zeros, n_others, total = 6, 4, x.sum()
    ours = np.arange(n_zeros + 1)  # zeros of the Poisson distribution
    log = gammaln(n_zeros + 1) - gammaln(ours + 1) - gammaln(n_zeros - ours + 1)
    log += betaln(0.7 + n_zeros - ours, 0.7 + n_others + ours)
    log -= (1.5 + total) * np.log(0.5 + n_others + ours)
    weights = np.exp(log - logsumexp(log))
    chance = stats.beta(0.7 + n_zeros - ours, 0.7 + n_others + ours)
    rate = stats.gamma(1.5 + total, 0, 1.0 / (0.5 + n_others + ours))
    samples = draws(family, x)
    for name, of in (("zero_probs_", chance), ("lambdas_", rate)):
        mean = (weights * of.mean()).sum()
        second = (weights * (of.var() + of.mean() ** 2)).sum()
        near(samples[name][:, 0], mean, np.sqrt(second - mean**2))


def test_mixtures_have_their_exact_posterior():
    x = np.array([0, 1, 4, 0, 6, 2, 3.0])[:, None]
    family = sj.Mixture(sj.Poisson(prior_shape=1.2, prior_rate=0.4), 2, 0.6)
    every = []
    for chosen in itertools.product([0, 1], repeat=len(x)):
        chosen = np.array(chosen)
        n = np.array([(chosen == c).sum() for c in (0, 1)])
        sums = np.array([x[chosen == c].sum() for c in (0, 1)])
        log = betaln(*(0.6 + n)) + (gammaln(1.2 + sums) - (1.2 + sums) * np.log(0.4 + n)).sum()
        every.append((log, n, sums))
    logs = np.array([log for log, *_ in every])
    rng, weights = np.random.default_rng(0), np.exp(logs - logsumexp(logs))
    # Components have no names: independent draws, with the smaller rate first.
    picked = rng.choice(len(every), 40_000, p=weights)
    n, sums = (np.array([every[i][at] for i in picked]) for at in (1, 2))
    rates = rng.gamma(1.2 + sums) / (0.4 + n)
    shares = rng.beta(0.6 + n[:, 0], 0.6 + n[:, 1])
    shares = np.where(rates[:, 0] < rates[:, 1], shares, 1.0 - shares)
    rates.sort(axis=1)
    samples = draws(family, x)
    found = samples["lambdas_"][:, :, 0]
    first = np.where(found[:, 0] < found[:, 1], *samples["weights_"].T)
    near(first, shares.mean(), shares.std())
    for c in (0, 1):
        near(np.sort(found, axis=1)[:, c], rates[:, c].mean(), rates[:, c].std())


@pytest.mark.parametrize("method", ["gibbs", "surrogate"])
@pytest.mark.parametrize("name", LATENT)
def test_every_family_with_unknowns_can_be_drawn(name, method):
    x = LATENT[name].draw_data(np.random.default_rng(0), 60)
    x[[3, 40]] = np.nan
    model = sj.HMM(2, LATENT[name].given, n_passes=2, n_init=1, random_state=0).fit(x, [30, 30])
    samples = model.posterior_samples(x, 4, [30, 30], warmup=2, thin=1, method=method)
    for parameter in model.emission_.parameter_names:
        found = samples.draws(parameter)
        assert found.shape == (4, *np.shape(getattr(model, parameter)))
        assert np.isfinite(found).all()
