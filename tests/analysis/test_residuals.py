"""Residuals: uniform where the model is right, by their definition, and not where it is wrong."""

import numpy as np
import pytest
from scipy import stats

import sojourn as sj
from sojourn.families.cdf import predictive_cdf
from sojourn.families.draws import MASS
from tests.support import chains
from tests.support.families import EXAMPLES


def simulated(model, n=40, length=50, seed=0):
    return model.sample(n, length, random_state=seed)[0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_residuals_of_simulated_data_are_uniform_and_independent(name):
    example = EXAMPLES[name]
    rng = np.random.default_rng(0)
    data = [example.draw_data(rng, 100) for _ in range(4)]
    model = sj.HMM(3, example.given, random_state=0, n_init=1, n_passes=5).fit(data)
    if name in ("multinomial", "autoregressive Gaussian"):
        return  # draws have one trial; the first step of a draw is its own past
    # Data from the predictive distributions at the posterior means: the model is right.
    found = model.residuals(simulated(model), random_state=1)
    for column in range(found.uniform.shape[1]):
        check = found.check(column)
        assert check.p_value > 1e-4
        assert abs(check.largest_autocorrelation) < 0.12


def test_residuals_follow_their_definition():
    model = chains.symbol_model()
    x = np.array([0, 3, 3, 1, 2], np.int32)
    found = model.residuals([x], random_state=0).uniform[:, 0]
    cumulative = np.cumsum(chains.SYMBOLS, axis=1)
    weights = chains.START
    for t, symbol in enumerate(x):
        if t:
            weights = model.filter(x[:t])[-1] @ chains.MATRIX
        high = weights @ cumulative[:, symbol]
        low = high - weights @ chains.SYMBOLS[:, symbol]
        assert low - 1e-9 <= found[t] <= high + 1e-9


def test_residuals_of_numbers_are_the_mixture_of_distribution_functions():
    rng = np.random.default_rng(0)
    x = np.cumsum(rng.normal(size=(30, 1)), axis=0)
    x[4] = np.nan
    model = sj.HMM(2, sj.AutoregressiveGaussian(), random_state=0, n_init=1).fit(x)
    found = model.residuals(x).uniform[:, 0]
    evidence = model.fitted_.evidence()
    observations = model.emission_.observations(sj.Sequences(x, [0, 30]))
    cdf = predictive_cdf(model.emission_, observations, evidence.natural)[1][:, :, 0]
    filtered = model.filter(x)
    for t in (1, 2, 10, 29):
        weights = filtered[t - 1] @ evidence.transitions
        np.testing.assert_allclose(found[t], weights @ cdf[t], rtol=0, atol=1e-9)
    # The first step, a missing one, and the one after it give no evidence.
    assert np.isnan(found[[0, 4, 5]]).all()
    assert not np.isnan(np.delete(found, [0, 4, 5])).any()


def test_a_gaussian_fitted_to_student_t_is_found_out():
    rng = np.random.default_rng(0)
    z = np.repeat([0, 1] * 20, 50)
    x = np.array([0.0, 8.0])[z] + rng.standard_t(3.0, len(z))
    right = np.array([0.0, 8.0])[z] + rng.normal(size=len(z))
    for data, wrong in ((x, True), (right, False)):
        model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0, n_init=1).fit(data)
        found = model.residuals(data)
        assert (found.check().p_value < 1e-4) == wrong
        assert (found.check().extremes > 0.013) == wrong
        assert ("heavier tails" in found.describe()) == wrong
        assert ("as uniform as the model expects" in found.describe()) != wrong


def test_dependence_that_the_states_do_not_explain_is_found():
    rng = np.random.default_rng(0)
    noise, x = rng.normal(size=2000), np.zeros(2000)
    for t in range(1, 2000):
        x[t] = 0.8 * x[t - 1] + noise[t]
    plain = sj.HMM(1, sj.DiagonalGaussian(), random_state=0, n_init=1).fit(x)
    found = plain.residuals(x)
    np.testing.assert_allclose(found.autocorrelation(3)[:, 0], 0.8 ** np.arange(1, 4), atol=0.08)
    assert "depend on one another more" in found.describe()
    better = sj.HMM(1, sj.AutoregressiveGaussian(), random_state=0, n_init=1).fit(x)
    assert "The states explain" in better.residuals(x).describe()


def test_autocorrelation_stays_within_sequences():
    family = sj.DiagonalGaussian(1, np.zeros(1), 1e-9, 1e-9, np.full(1, 1e-9), np.zeros(1))
    parameters = MASS * np.array([[1.0, 1.0, 0.0, 1.0]])
    one = np.ones(1)
    model = chains.fitted_at(family, parameters, one, one[:, None])
    x = np.random.default_rng(0).normal(size=(6, 1))
    found = model.residuals(x, [2, 2, 2])
    scores = found.normal[:, 0] - found.normal.mean()
    np.testing.assert_allclose(scores, x[:, 0] - x.mean(), atol=1e-6)
    expected = np.mean([scores[0] * scores[1], scores[2] * scores[3], scores[4] * scores[5]])
    expected /= np.mean(scores**2)
    np.testing.assert_allclose(found.autocorrelation(2)[0, 0], expected)
    assert np.isnan(found.autocorrelation(2)[1, 0])


def test_residuals_of_long_data_come_in_blocks(monkeypatch):
    x = np.random.default_rng(0).normal(size=(100, 2))
    model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0, n_init=1).fit(x, [60, 40])
    whole = model.residuals(x, [60, 40]).uniform
    monkeypatch.setattr("sojourn.analysis.residuals._BLOCK_NUMBERS", 28)
    np.testing.assert_allclose(model.residuals(x, [60, 40]).uniform, whole, rtol=0, atol=1e-12)
    assert stats.kstest(whole[:, 0], "uniform").pvalue > 1e-3
