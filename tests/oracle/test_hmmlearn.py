"""Batch learning with ρ = 1 is EM or variational Bayes: hmmlearn does both by other means."""

import numpy as np
import pytest
from hmmlearn.hmm import CategoricalHMM
from hmmlearn.vhmm import VariationalCategoricalHMM

import sojourn as sj
from tests.support.ragged import A, B, first_statistics, normalize, ragged_symbols


def fit_ours(inference, statistics, symbols, lengths, device="cpu"):
    model = sj.HMM(
        n_states=len(statistics.start),
        emission=sj.Categorical(6, concentration=B),
        inference=inference,
        transition_concentration=A,
        batch_size=None,
        n_passes=3,
        forgetting_rate=0.0,
        init=statistics,
        dtype="float64",
        device=device,
    )
    return model.fit(symbols, lengths)


def joint(model, symbols, lengths, path):
    """Log joint probability of symbols and states, written out."""
    firsts = np.concatenate([[0], np.cumsum(lengths)[:-1]])
    others = np.setdiff1d(np.arange(len(path)), firsts)
    return (
        np.log(model.startprob_[path[firsts]]).sum()
        + np.log(model.transmat_[path[others - 1], path[others]]).sum()
        + np.log(model.emissionprob_[path, symbols]).sum()
    )


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("n_states", [1, 3, 5])
def test_three_passes_of_scvi_are_three_iterations_of_map_em(n_states, device):
    symbols, lengths = ragged_symbols(0)
    statistics = first_statistics(1, n_states)
    ours = fit_ours("scvi", statistics, symbols, lengths, device)
    theirs = CategoricalHMM(
        n_states,
        startprob_prior=A + 1,
        transmat_prior=A + 1,
        emissionprob_prior=B + 1,
        n_iter=3,
        tol=-np.inf,
        init_params="",
    )
    theirs.n_features = 6
    theirs.startprob_ = normalize(A + statistics.start)
    theirs.transmat_ = normalize(A + statistics.transitions)
    theirs.emissionprob_ = normalize(B + statistics.emissions)
    theirs.fit(symbols[:, None], lengths)
    for name in ("startprob_", "transmat_", "emissionprob_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-9)
    assert ours.score(symbols, lengths) == pytest.approx(
        theirs.score(symbols[:, None], lengths), rel=1e-9
    )
    log_probability, path = ours.decode(symbols, lengths)
    their_log_probability, their_path = theirs.decode(symbols[:, None], lengths)
    assert log_probability == pytest.approx(their_log_probability, rel=1e-9)
    # Ties are broken either way, so the paths are compared by their probabilities.
    assert joint(theirs, symbols, lengths, path) == pytest.approx(
        joint(theirs, symbols, lengths, their_path), rel=1e-9
    )
    np.testing.assert_allclose(
        ours.predict_proba(symbols, lengths),
        theirs.predict_proba(symbols[:, None], lengths),
        atol=1e-9,
    )


@pytest.mark.parametrize("device", ["cpu", "reference"])
@pytest.mark.parametrize("n_states", [1, 3, 5])
def test_three_passes_of_svi_are_three_iterations_of_variational_bayes(n_states, device):
    symbols, lengths = ragged_symbols(2)
    statistics = first_statistics(3, n_states)
    ours = fit_ours("svi", statistics, symbols, lengths, device)
    theirs = VariationalCategoricalHMM(
        n_states,
        startprob_prior=A,
        transmat_prior=A,
        emissionprob_prior=B,
        n_iter=3,
        tol=-np.inf,
        init_params="",
    )
    theirs.n_features = 6
    theirs.startprob_prior_ = np.full(n_states, A)
    theirs.transmat_prior_ = np.full((n_states, n_states), A)
    theirs.emissionprob_prior_ = np.full((n_states, 6), B)
    theirs.startprob_posterior_ = A + statistics.start
    theirs.transmat_posterior_ = A + statistics.transitions
    theirs.emissionprob_posterior_ = B + statistics.emissions
    theirs.fit(symbols[:, None], lengths)
    learned = ours.statistics_
    np.testing.assert_allclose(A + learned.start, theirs.startprob_posterior_, rtol=1e-9)
    np.testing.assert_allclose(A + learned.transitions, theirs.transmat_posterior_, rtol=1e-9)
    np.testing.assert_allclose(B + learned.emissions, theirs.emissionprob_posterior_, rtol=1e-9)
