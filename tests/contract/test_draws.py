"""What every family promises of draws of its parameters, and of its distribution functions."""

import numpy as np
import pytest
from scipy.stats import kstest

import sojourn as sj
from sojourn.families.cdf import is_discrete, n_columns, predictive_cdf
from sojourn.families.coupled import couples_states
from sojourn.families.draws import (
    MASS,
    draw_parameters,
    memory,
    sample_after,
)
from sojourn.families.means import expected_values
from tests.support.families import EVERY, N_STATES

every_family = pytest.mark.parametrize("name", EVERY)
N_DRAWS = 1500


def made(name, seed=3):
    example = EVERY[name]
    family, rng = example.resolve(), np.random.default_rng(seed)
    natural = example.draw_natural(family, rng, N_STATES)
    if name.startswith("categorical, a concentration a state"):
        family = sj.Categorical(6, 0.3)  # a prior per state fits N_STATES rows only
    return example, family, natural, rng


def densities(family, x, natural, rng):
    """The density of x given many draws of the parameters: (T, K, draws)."""
    if couples_states(family):
        each = [draw_parameters(family, natural, rng) for _ in range(N_DRAWS)]
        return np.exp(np.stack([family.log_predictive(x, own) for own in each], axis=2))
    drawn = draw_parameters(family, np.repeat(natural, N_DRAWS, axis=0), rng)
    return np.exp(family.log_predictive(x, drawn)).reshape(-1, N_STATES, N_DRAWS)


def samples(family, natural, past, rng):
    """A step of the first state given each of many draws of the parameters."""
    if couples_states(family):
        first = sj.Sequences(np.zeros(1, int), [0, 1])
        each = [draw_parameters(family, natural, rng) for _ in range(N_DRAWS)]
        return np.concatenate([family.sample(own, first, rng) for own in each])
    drawn = draw_parameters(family, np.repeat(natural[:1], N_DRAWS, axis=0), rng)
    states = sj.Sequences.from_lengths(np.arange(N_DRAWS), [1] * N_DRAWS)
    return sample_after(family, drawn, states, past, rng)


@every_family
def test_the_predictive_distribution_is_the_mean_density_over_draws(name):
    if name.startswith("Student"):
        return  # an approximation: held by tests/families/test_latent.py
    example, family, natural, rng = made(name)
    values = example.draw_data(rng, 6)
    x = family.observations(sj.Sequences(values, [0, len(values)]))
    each = densities(family, x, natural, rng)
    mean, error = each.mean(axis=2), each.std(axis=2) / np.sqrt(N_DRAWS)
    exact = np.exp(family.log_predictive(x, natural))
    assert (np.abs(mean - exact) <= 6.0 * error + 1e-6 * exact).all()


@every_family
def test_a_draw_has_the_weight_of_many_steps(name):
    _, family, natural, rng = made(name)
    once = draw_parameters(family, natural, rng)
    again = draw_parameters(family, once, rng)
    for first, second in zip(
        family.parameters(once).values(), family.parameters(again).values(), strict=True
    ):
        scale = 1.0 + np.abs(first).max()
        np.testing.assert_allclose(first, second, rtol=0, atol=60.0 * scale / np.sqrt(MASS))


def uniforms(name, seed):
    """P(X ≤ x) of data drawn from the predictive distributions, randomised where discrete."""
    example, family, natural, rng = made(name, seed)
    order, past = memory(family), None
    if order:
        past = np.broadcast_to(example.draw_data(rng, order), (N_DRAWS, order, 2))
    values = samples(family, natural, past, rng)
    if order:
        # One step before the past: it is conditioned on, and is nothing's past.
        first = np.zeros((N_DRAWS, 1, 2))
        whole = np.concatenate([first, past, values[:, None]], axis=1)
        flat = sj.Sequences.from_lengths(whole.reshape(-1, 2), [order + 2] * N_DRAWS)
        x = family.observations(flat)[order + 1 :: order + 2]
    else:
        x = family.observations(sj.Sequences(values, [0, N_DRAWS]))
    below, upto = (part[:, :1] for part in predictive_cdf(family, x, natural))
    assert below.shape == upto.shape == (N_DRAWS, 1, n_columns(family))
    assert (below <= upto).all()
    return family, (below + rng.random(below.shape) * (upto - below))[:, 0]


@every_family
def test_distribution_functions_make_draws_uniform(name):
    if name == "multinomial":
        return  # draws are of one trial: held by the test below
    family, u = uniforms(name, 5)
    assert len(is_discrete(family)) >= u.shape[1]
    for column in u.T:
        assert kstest(column, "uniform").pvalue > 1e-3


@pytest.mark.parametrize(
    "name", ["categorical", "Bernoulli", "Poisson", "negative binomial", "geometric"]
)
def test_steps_of_the_distribution_function_are_probabilities(name):
    _, family, natural, _ = made(name)
    columns = n_columns(family)
    for value in (1, 2, 3) if name == "geometric" else (0, 1):
        whole = np.full((1, columns), float(value))
        x = np.array([value], np.int32) if name.startswith("cat") else whole
        below, upto = predictive_cdf(family, x, natural)
        if name.startswith("cat"):
            expected = np.exp(family.log_predictive(x, natural))[:, :, None]
        else:
            expected = np.empty_like(upto)
            for d in range(columns):
                own = np.full((1, columns), np.nan)
                own[0, d] = value
                expected[:, :, d] = np.exp(family.log_predictive(own, natural))
        np.testing.assert_allclose(upto - below, expected, rtol=1e-9, atol=1e-12)


def test_a_column_of_a_multinomial_is_beta_binomial():
    _, family, natural, _ = made("multinomial")
    support = np.array([[a, b, 3 - a - b] for a in range(4) for b in range(4 - a)], float)
    joint = np.exp(family.log_predictive(support, natural))
    below, upto = predictive_cdf(family, support, natural)
    for t, x in enumerate(support):
        for d in range(3):
            np.testing.assert_allclose(upto[t, :, d], joint[support[:, d] <= x[d]].sum(axis=0))
            np.testing.assert_allclose(
                below[t, :, d], joint[support[:, d] < x[d]].sum(axis=0), atol=1e-12
            )


@pytest.mark.parametrize("name", EVERY)
def test_missing_entries_have_no_distribution_function(name):
    example, family, natural, rng = made(name)
    if example.missing == "symbols":
        values = np.array([2, -1], np.int32)
    else:
        values = example.draw_data(rng, 4).astype(float)[2 * (memory(family) > 0) :]
        values[1] = np.nan
    data = sj.Sequences(values, [0, len(values)])
    below, upto = predictive_cdf(family, family.observations(data), natural)
    assert np.isnan(below[1]).all()
    assert np.isnan(upto[1]).all()


@every_family
def test_expected_values_are_means_of_draws(name):
    example, family, natural, rng = made(name)
    natural = family.prior() + 30.0 * (natural - family.prior())  # so that means exist
    if name in ("autoregressive Gaussian", "linear Gaussian"):
        with pytest.raises(NotImplementedError, match="depends on regressors"):
            expected_values(family, natural)
        return
    if example.missing == "symbols" or name in ("log-normal", "von Mises"):
        return
    drawn = draw_parameters(family, np.repeat(natural[:1], 3000, axis=0), rng)
    states = sj.Sequences.from_lengths(np.arange(len(drawn)), [1] * len(drawn))
    values = family.sample(drawn, states, rng).reshape(len(drawn), -1)
    mean, error = values.mean(axis=0), values.std(axis=0) / np.sqrt(len(drawn))
    found = expected_values(family, natural)[0]
    known = ~np.isnan(found)
    assert (np.abs(mean - found)[known] <= 5.0 * error[known]).all()
    if family.step_ndim == 1:
        assert expected_values(family, natural).shape == (N_STATES, values.shape[1])


@pytest.mark.parametrize("name", ["Gaussian", "spherical Gaussian", "zero-mean Gaussian"])
def test_marginal_tails_of_few_data_are_right(name):
    _, family, natural, rng = made(name)
    natural = family.prior() + 0.02 * (natural - family.prior())  # hardly any degrees of freedom
    drawn = draw_parameters(family, np.repeat(natural[:1], 6000, axis=0), rng)
    states = sj.Sequences.from_lengths(np.arange(6000), [1] * 6000)
    values = family.sample(drawn, states, rng)
    upto = predictive_cdf(family, values, natural[:1])[1][:, 0]
    for column in upto.T:
        assert kstest(column, "uniform").pvalue > 1e-3
