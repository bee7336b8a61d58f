"""Samplers with labels: paths go where labels allow, with the frequencies that all paths say."""

import numpy as np
import pytest

import sojourn as sj
from tests.support.exact import finite_posterior

SYMBOLS = np.array([0, 1, 1, 0, 0])
LENGTHS = [3, 2]
MASKS = np.array([[1.0, 0.3], [0.2, 1.0], [0.0, 1.0], [1.0, 1.0], [0.7, 0.1]])


@pytest.mark.parametrize("method", ["gibbs", "blocked-gibbs"])
def test_draws_have_the_frequencies_of_every_path(method):
    prior, symbol_prior = np.full((3, 2), 0.4), np.full((2, 2), 0.6)
    paths, weights = finite_posterior(SYMBOLS, LENGTHS, prior, symbol_prior)
    paths = np.asarray(list(paths))
    weights = np.asarray(weights) * np.prod(MASKS[np.arange(5), paths], axis=1)
    expected = np.array([weights[paths[:, t] == 1].sum() for t in range(5)]) / weights.sum()
    model = sj.HMM(2, sj.Categorical(2, 0.6), transition_concentration=0.4, random_state=0)
    model.set_params(inference=sj.Sampling(method, n_samples=6000, burn_in=100))
    model.fit(SYMBOLS, LENGTHS, y=MASKS)
    found = np.mean([draw.states for draw in model.samples_], axis=0)
    np.testing.assert_allclose(found, expected, atol=0.035)
    assert found[2] == 1.0


def test_whole_weights_repeat_and_others_are_refused():
    X = [[0, 1], [1, 1]]
    model = sj.HMM(2, sj.Categorical(2), inference="gibbs", random_state=0)
    assert model.fit(X, sample_weight=[3, 1]).total_sequences_ == 4
    with pytest.raises(ValueError, match="whole weights only"):
        model.fit(X, sample_weight=[0.5, 1])


@pytest.mark.parametrize("method", ["gibbs", "beam"])
def test_an_infinite_model_refuses_labels(method):
    with pytest.raises(ValueError, match="takes no labels"):
        sj.HDPHMM(3, sj.Categorical(2), inference=method).fit([[0, 1]], y=[[0, -1]])
