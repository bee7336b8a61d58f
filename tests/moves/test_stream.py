"""More data than a sample can stand for: merges by the evidence of the whole stream."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import xlogy

import sojourn as sj
from sojourn.inference.occupancy import state_masses
from sojourn.moves.budget import MoveState
from sojourn.moves.judge import Judge
from sojourn.moves.rounds import RoundKind, propose
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.stream import stream_entropies
from sojourn.moves.workbench import Workbench
from sojourn.transitions import Rows
from tests.support.known_states import simulate
from tests.support.proposals import moves_of

SETTINGS = MoveSettings()
SMALL_SAMPLES = MoveSettings(sample_max_steps=2**11)


@pytest.fixture(scope="module")
def symbols():
    return simulate("categorical", 4, 3, n_train=400)


@pytest.fixture(scope="module")
def fitted(symbols):
    family, drawn = symbols
    options = {"batch_size": None, "forgetting_rate": 0.0, "n_passes": 30, "moves": None}
    return sj.HDPHMM(4, family, dtype="float64", random_state=1, **options).fit(drawn.train)


def judge_of(model, data, start, n_steps=1e9, settings=SETTINGS):
    family = model.emission_
    bench = Workbench(family, model.fitted_.compute.backend())
    sample = Sample.draw(
        [family.validate(data)],
        n_steps,
        len(data),
        bench,
        start.n_states,
        settings,
        stands_for_all=False,
    )
    return Judge.begin(SampleFitter(sample, bench, settings, 1e18, start.n_states), start)


def scaled(posterior, times):
    """Return the posterior of so many copies of the data."""
    counts = Rows(*(times * part for part in posterior.counts))
    emissions = posterior.emissions.refilled(times * posterior.emissions.dense())
    return replace(posterior, counts=counts, emissions=emissions)


def test_of_all_the_data_the_entropies_are_their_definition(symbols, fitted):
    data = symbols[1].train
    judge = judge_of(fitted, data, fitted.fitted_.posterior)
    mass = state_masses(judge.present.posterior.counts)
    # One long pass in double precision, and every pair by its definition.
    r = np.concatenate(fitted.predict_proba(data)).astype(np.float64)
    expected = np.zeros((4, 4))
    for i in range(4):
        for j in range(4):
            a, b = r[:, i], r[:, j]
            expected[i, j] = (xlogy(a + b, a + b) - xlogy(a, a) - xlogy(b, b)).sum()
    found = judge.present.shared + judge.present.shared.T
    steps = stream_entropies(judge)
    ratio = state_masses(fitted.fitted_.posterior.counts) / mass
    np.testing.assert_allclose(ratio, 1.0, rtol=0.02)  # the model has converged
    off = ~np.eye(4, dtype=bool)
    # A part of the steps is counted, and potentials (1) and (2) are nearly the posterior means.
    close = {"rtol": 0.02, "atol": 0.005 * expected[off].max()}
    np.testing.assert_allclose(found[off], expected[off], **close)
    np.testing.assert_allclose((steps + steps.T)[off], expected[off], **close)


def test_entropies_per_step_are_the_sample_s_and_steps_are_the_stream_s(symbols, fitted):
    data, posterior = symbols[1].train, fitted.fitted_.posterior
    small = judge_of(fitted, data, posterior, n_steps=2000)
    large = judge_of(fitted, data, scaled(posterior, 50.0), n_steps=2000)
    per_step = stream_entropies(small).sum()
    assert stream_entropies(large).sum() == pytest.approx(50.0 * per_step, rel=0.05)


def test_states_that_are_the_same_become_one_and_others_do_not(symbols, fitted):
    halves = np.repeat(np.eye(4), 2, axis=0) * np.tile([0.6, 0.4], 4)[:, None]
    start = scaled(fitted.fitted_.posterior, 100.0).regrouped(halves)
    judge = judge_of(fitted, symbols[1].train, start, n_steps=3000)
    propose(RoundKind.MERGE, judge, np.random.default_rng(0))
    assert judge.n_states == 4
    np.testing.assert_array_equal(judge.groups @ halves > 0.0, np.eye(4) > 0.0)
    (move,) = judge.moves
    assert (move.kind, move.accepted, move.n_states) == ("merge", True, 4)
    assert sorted(map(sorted, move.states)) == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_more_data_support_more_states(symbols, fitted):
    def n_states(times):
        start = scaled(fitted.fitted_.posterior, times)
        judge = judge_of(fitted, symbols[1].train, start, n_steps=3000)
        propose(RoundKind.MERGE, judge, np.random.default_rng(0))
        return judge.n_states

    # The sample is the same: what counts is how many data there are.
    assert n_states(0.01) < n_states(100.0) == 4


def test_training_finds_the_states_where_samples_are_small():
    family, drawn = simulate("categorical", 5, 2, n_train=2000)
    model = sj.HDPHMM(
        10, family, moves=SMALL_SAMPLES, batch_size=50, n_passes=12, random_state=0
    ).fit(drawn.train)
    assert abs(model.n_states_ - 5) <= 1
    accepted = [move for move in moves_of(model) if move["accepted"]]
    assert accepted
    assert all(move["kind"] == "merge" for move in accepted)


def test_a_stopped_training_goes_on_with_what_its_statistics_are_worth(tmp_path):
    family, drawn = simulate("categorical", 4, 2, n_train=600)

    options = {"moves": SMALL_SAMPLES, "batch_size": 50, "n_passes": 8, "random_state": 0}
    whole = sj.HDPHMM(8, family, **options).fit(drawn.train)

    def stop(progress):
        if progress.passes >= 4.5:
            raise KeyboardInterrupt

    again = {"checkpoint": tmp_path, "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        sj.HDPHMM(8, family, **options).fit(drawn.train, callback=stop, **again)
    resumed = sj.HDPHMM(8, family, **options).fit(drawn.train, resume=True, **again)
    assert any(move["accepted"] for move in moves_of(whole))
    assert moves_of(resumed) == moves_of(whole)
    assert resumed.fitted_.move_state == whole.fitted_.move_state
    np.testing.assert_array_equal(resumed.transmat_, whole.transmat_)


def test_statistics_are_an_average_of_what_the_step_sizes_remember():
    state = MoveState()
    for _ in range(200):
        state.earn(100, 10, 5, 0.1, SETTINGS)
    # Σ w² of weights ρ (1 − ρ)^n is ρ / (2 − ρ).
    assert state.effective_steps == pytest.approx(100 * 1.9 / 0.1, rel=1e-6)
    state.earn(300, 10, 5, 1.0, SETTINGS)
    assert state.effective_steps == pytest.approx(300.0)


def test_merges_wait_until_the_statistics_are_worth_a_sample():
    family, drawn = simulate("categorical", 4, 2, n_train=600)
    model = sj.HDPHMM(
        8,
        family,
        moves=MoveSettings(sample_max_steps=2**10, max_copies=1.0),
        batch_size=5,
        forgetting_rate=0.0,  # every minibatch forgets all before it
        n_passes=8,
        random_state=0,
    ).fit(drawn.train)
    assert not any(move["accepted"] for move in moves_of(model))


@pytest.mark.parametrize("settings", [SMALL_SAMPLES, SETTINGS])
def test_what_lowers_a_given_validation_score_is_refused(monkeypatch, settings):
    family, drawn = simulate("categorical", 4, 2, n_train=600)
    scores = iter(np.arange(1e6))  # a proposal is looked at first, and the present model is better
    monkeypatch.setattr(sj.FittedModel, "score_data", lambda *_, **__: next(scores))
    model = sj.HDPHMM(8, family, moves=settings, batch_size=50, n_passes=10, random_state=0)
    model.set_params(init="segments")  # without a warm-up, whose moves see no validation data
    model.fit(drawn.train, validation=drawn.test)
    assert moves_of(model)
    assert not any(move["accepted"] for move in moves_of(model))
    assert len(model.fitted_.posterior.counts.start) == 8


def test_a_merge_of_few_data_that_lowers_a_given_validation_score_is_refused(monkeypatch):
    family, drawn = simulate("gaussian", 3, 2, n_train=10)
    free = sj.HDPHMM(6, family, random_state=0, n_init=1).fit(drawn.train)
    assert any(move["accepted"] for move in moves_of(free))
    scores = iter(np.arange(1e6))  # as above
    monkeypatch.setattr(sj.FittedModel, "score_data", lambda *_, **__: next(scores))
    kept = sj.HDPHMM(6, family, random_state=0, n_init=1).fit(drawn.train, validation=drawn.test)
    assert not any(move["accepted"] for move in moves_of(kept))
