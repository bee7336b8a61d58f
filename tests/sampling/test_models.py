"""Samplers through the estimators: seeds, chains, predictions, files, refusals."""

import sys

import numpy as np
import pytest
from scipy.special import logsumexp

import sojourn as sj
from sojourn.models.sampled import symbol_prior
from sojourn.sampling import Chains, Samples

WAYS = [
    (sj.HMM, "gibbs"),
    (sj.HMM, "blocked-gibbs"),
    (sj.HDPHMM, "gibbs"),
    (sj.HDPHMM, "beam"),
]
every_way = pytest.mark.parametrize(("model", "inference"), WAYS)
SWEEPS = {"n_samples": 6, "burn_in": 4, "thin": 2, "n_chains": 2}


def blocks(seed=0, n=30):
    """Two states that stay, each with symbols of its own."""
    rng = np.random.default_rng(seed)
    states = np.cumsum(rng.random((n, 12)) < 0.15, axis=1) + rng.integers(2, size=(n, 1))
    return 2 * (states % 2) + rng.integers(2, size=(n, 12))


def fitted(model, inference, data=None, n_states=2, **options):
    data = blocks() if data is None else data
    sampling = sj.Sampling(inference, **{n: options.pop(n, SWEEPS[n]) for n in SWEEPS})
    options = {"random_state": 0} | options
    return model(n_states, sj.Categorical(4), inference=sampling, **options).fit(data)


@every_way
def test_the_seed_decides_and_threads_do_not(model, inference):
    one = fitted(model, inference, n_jobs=1)
    for same in (fitted(model, inference, n_jobs=1), fitted(model, inference, n_jobs=2)):
        for a, b in zip(one.samples_, same.samples_, strict=True):
            np.testing.assert_array_equal(a.states, b.states)
            assert a.log_joint == b.log_joint
    other = fitted(model, inference, random_state=1)
    assert any(
        len(a.states) and (a.states != b.states).any()
        for a, b in zip(one.samples_, other.samples_, strict=True)
    )


@every_way
def test_chains_burn_in_and_thinning(model, inference):
    short = fitted(model, inference)
    assert [len(chain) for chain in short.samples_.chains] == [6, 6]
    assert len(short.samples_) == 12
    assert short.history_[-1]["passes"] == 4 + 6 * 2
    every = fitted(model, inference, burn_in=0, thin=1, n_samples=16)
    # The kept draws are those of sweeps 6, 8, ..., 16.
    for chain, whole in zip(short.samples_.chains, every.samples_.chains, strict=True):
        for draw, same in zip(chain, whole[5::2], strict=True):
            np.testing.assert_array_equal(draw.states, same.states)


@every_way
def test_two_states_that_stay_are_found(model, inference):
    data = blocks()
    found = fitted(model, inference, data, burn_in=100, n_samples=20)
    truth = data.ravel() // 2
    path = np.concatenate(found.predict(list(data)))
    shared = np.zeros((found.transmat_.shape[0], 2))
    np.add.at(shared, (path, truth), 1)
    assert shared.max(axis=1).sum() > 0.95 * len(truth)
    variational = sj.HMM(2, sj.Categorical(4), batch_size=10, n_passes=50, random_state=0).fit(data)
    held_out = blocks(seed=5)
    assert found.score(held_out) > variational.score(held_out) - 25


@every_way
def test_scores_are_averaged_over_draws(model, inference):
    found = fitted(model, inference)
    data = blocks(seed=3, n=4)
    single = []
    for posterior in found.fitted_.posteriors():
        copy = fitted(model, inference)
        copy.fitted_.posterior = posterior
        copy.fitted_.samples = None
        single.append(copy.log_likelihood(data))
    expected = logsumexp(single, axis=0) - np.log(len(single))
    np.testing.assert_allclose(found.log_likelihood(data), expected, rtol=1e-12)
    probabilities = found.predict_proba(list(data))
    np.testing.assert_allclose(np.concatenate(probabilities).sum(axis=1), 1.0, rtol=1e-5)
    assert probabilities[0].shape == (12, found.samples_.best.n_states)


@every_way
def test_a_saved_sampler_predicts_the_same(model, inference, tmp_path):
    found = fitted(model, inference)
    found.save(tmp_path / "m.sojourn")
    same = sj.load(tmp_path / "m.sojourn")
    data = blocks(seed=3, n=4)
    assert same.score(data) == found.score(data)
    np.testing.assert_array_equal(same.predict(data), found.predict(data))
    assert same.samples_.trace("log_joint").shape == (2, 6)
    for a, b in zip(same.samples_, found.samples_, strict=True):
        np.testing.assert_array_equal(a.states, b.states)


def test_parameters_set_after_fit_do_not_change_the_draws():
    found = fitted(sj.HMM, "gibbs")
    before = found.score(blocks())
    found.set_params(transition_concentration=7.0, n_states=5)
    assert found.score(blocks()) == before


@every_way
def test_labels_that_are_exchanged_are_exchanged_back(model, inference):
    found = fitted(model, inference)
    best = found.samples_.best
    order = np.random.default_rng(0).permutation(best.n_states)
    swapped = best._replace(states=order[best.states].astype(np.int32))
    labels = found.samples_.relabeling(swapped, best)
    np.testing.assert_array_equal(labels[order], np.arange(best.n_states))


def test_diagnostics_of_independent_draws_are_good_and_of_stuck_chains_bad():
    found = fitted(sj.HDPHMM, "gibbs", n_samples=200)
    rng = np.random.default_rng(0)
    chains = tuple(
        tuple(draw._replace(alpha=rng.normal(), gamma=c + rng.normal()) for draw in chain)
        for c, chain in zip((0.0, 9.0), found.samples_.chains, strict=True)
    )
    report = Samples(chains, found.samples_.data).diagnostics()
    assert report["alpha"].rhat < 1.02
    assert 250 < report["alpha"].ess < 600
    assert report["gamma"].rhat > 1.5
    assert report["gamma"].ess < 20
    finite = fitted(sj.HMM, "gibbs").samples_.diagnostics()
    assert set(finite) == {"log_joint"}  # the number of states is given, and there is no α


def test_without_arviz_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"sojourn\[diagnostics\]"):
        fitted(sj.HMM, "gibbs").samples_.diagnostics()


def test_arviz_is_loaded_late():
    import subprocess

    code = "import sojourn.models, sys; assert 'arviz' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_fitting_anew_forgets_the_draws():
    found = fitted(sj.HMM, "gibbs")
    found.set_params(inference="scvi").fit(blocks())
    assert not hasattr(found, "samples_")


def test_progress_validation_and_callback():
    seen = []
    data = blocks()
    model = sj.HMM(2, sj.Categorical(4), inference=sj.Sampling("gibbs", **SWEEPS), random_state=0)
    model.fit(data, validation=data, callback=seen.append)
    assert [progress.passes for progress in seen] == list(range(1, 17))
    assert model.history_[-1]["score"] == pytest.approx(model.score(data, per_step=True))
    assert model.history_[0]["score"] is None


@every_way
def test_one_step_sequences_and_one_state(model, inference):
    found = fitted(model, inference, data=[[0], [1], [3]])
    assert np.isfinite(found.score([[2, 2]]))
    alone = fitted(model, inference, data=[[0, 1], [2]], n_states=1)
    assert np.isfinite(alone.score([[3]]))


@every_way
@pytest.mark.parametrize(
    ("name", "value"), [("n_samples", 0), ("burn_in", -1), ("thin", 0), ("n_chains", 1.5)]
)
def test_bad_numbers_are_refused(model, inference, name, value):
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        fitted(model, inference, **{name: value})


@every_way
def test_partial_fit_is_refused(model, inference):
    with pytest.raises(ValueError, match="partial_fit needs a stochastic inference method"):
        model(2, sj.Categorical(4), inference=inference).partial_fit([[0]], total_sequences=2)


def test_other_families_and_states_that_differ_are_refused():
    class Other(sj.Categorical.__mro__[1]):
        pass

    Other.__abstractmethods__ = frozenset()
    with pytest.raises(TypeError, match="categorical emissions only, not Other"):
        symbol_prior(Other(), "gibbs")
    prior = np.ones((2, 4))
    with pytest.raises(ValueError, match="the same emission concentration"):
        sj.HDPHMM(2, sj.Categorical(4, prior), inference="beam").fit(blocks())
    sj.HMM(2, sj.Categorical(4, prior), inference=sj.Sampling("gibbs", n_samples=1)).fit(blocks())


def test_an_unknown_trace_is_refused():
    with pytest.raises(ValueError, match="no trace 'beta'"):
        fitted(sj.HMM, "gibbs").samples_.trace("beta")


def test_which_sweeps_are_kept():
    chains = Chains(n_samples=3, burn_in=2, thin=2)
    assert [n for n in range(1, chains.n_sweeps + 1) if chains.keeps(n)] == [4, 6, 8]
