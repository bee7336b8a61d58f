"""Quantities of the chain against their definitions, simulation and hmmlearn."""

import numpy as np
import pytest
from hmmlearn.hmm import CategoricalHMM
from hypothesis import given, settings
from hypothesis import strategies as st

import sojourn as sj
from sojourn.analysis import markov
from tests.support import chains


def matrices(seed, n_states, n=2):
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.full(n_states, 0.3), (n, n_states)) * 0.99 + 0.01 / n_states


@given(seed=st.integers(0, 2**20), n_states=st.integers(1, 8))
@settings(deadline=None, max_examples=30)
def test_stationary_shares_do_not_change_by_a_step(seed, n_states):
    many = matrices(seed, n_states)
    shares = markov.stationary_distribution(many)
    np.testing.assert_allclose(np.einsum("sk,skl->sl", shares, many), shares, rtol=1e-10)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


@given(seed=st.integers(0, 2**20), n_states=st.integers(2, 6))
@settings(deadline=None, max_examples=30)
def test_passage_times_follow_their_recursion(seed, n_states):
    many = matrices(seed, n_states)
    target = [0] if n_states < 4 else [0, 2]
    times = markov.passage_times(many, target)
    outside = np.setdiff1d(np.arange(n_states), target)
    np.testing.assert_array_equal(times[:, target], 0.0)
    after = 1.0 + np.einsum("skl,sl->sk", many, times)
    np.testing.assert_allclose(times[:, outside], after[:, outside], rtol=1e-9)
    every = markov.all_passage_times(many)
    np.testing.assert_array_equal(every[:, :, 0], markov.passage_times(many, 0))


def test_passage_times_are_those_of_simulated_chains():
    rng = np.random.default_rng(0)
    cumulative = np.cumsum(chains.MATRIX, axis=1)
    state, steps, done = np.zeros(20_000, int), np.zeros(20_000), np.zeros(20_000, bool)
    while not done.all():
        move = (cumulative[state] < rng.random(20_000)[:, None]).sum(axis=1)
        state = np.where(done, state, move)
        steps += ~done
        done |= state == 2
    found = float(markov.mean_first_passage(chains.MATRIX, 0, 2))
    assert abs(found - steps.mean()) < 5.0 * steps.std() / np.sqrt(len(steps))


def test_stationary_distribution_is_hmmlearns():
    peer = CategoricalHMM(3)
    peer.startprob_, peer.transmat_ = chains.START, chains.MATRIX
    peer.emissionprob_ = chains.SYMBOLS
    found = chains.symbol_model().stationary
    np.testing.assert_allclose(found, peer.get_stationary_distribution(), rtol=1e-8)


def test_timescales_are_those_of_the_powers_of_the_matrix():
    slowest = markov.timescales(chains.MATRIX)[0]
    shares = markov.stationary_distribution(chains.MATRIX)
    far = [np.abs(np.linalg.matrix_power(chains.MATRIX, n) - shares).max() for n in (30, 31)]
    np.testing.assert_allclose(np.log(far[0] / far[1]), 1.0 / slowest, rtol=1e-5)
    assert markov.timescales(np.array([[0.0, 1.0], [1.0, 0.0]]))[0] == np.inf


def test_dwell_distribution_has_the_dwell_times():
    found = markov.dwell_distribution(chains.MATRIX, 500)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    np.testing.assert_allclose(found @ np.arange(1, 501), markov.dwell_times(chains.MATRIX))


def test_estimators_have_the_quantities():
    model = sj.HMM(2, sj.Categorical(2), random_state=0).fit([[0] * 9 + [1] * 9] * 9)
    np.testing.assert_array_equal(model.stationary_, model.get_stationary_distribution())
    np.testing.assert_allclose(model.stationary_ @ model.transmat_, model.stationary_)
    assert model.timescales_.shape == (1,)
    assert model.dwell_distribution(7).shape == (2, 7)
    np.testing.assert_allclose(model.mean_first_passage(0, 1), 1.0 / model.transmat_[0, 1])
    both = model.mean_first_passage([0, 1], 1)
    np.testing.assert_allclose(both, model.stationary_[0] * model.mean_first_passage(0, 1))


def test_wrong_states_are_refused():
    with pytest.raises(ValueError, match="there is no state 3"):
        markov.mean_first_passage(chains.MATRIX, 0, 3)
    with pytest.raises(ValueError, match="a state or a list of states"):
        markov.mean_first_passage(chains.MATRIX, 0.5, 1)
    with pytest.raises(ValueError, match="no single long run"):
        markov.stationary_distribution(np.eye(2))
    with pytest.raises(ValueError, match="n_steps"):
        markov.dwell_distribution(chains.MATRIX, 0)
