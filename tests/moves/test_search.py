"""The search for the number of states of small data."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import sojourn as sj
from sojourn.moves.pairs import merge_weights
from sojourn.moves.search import StateSearch
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import Workbench


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, 3, 60), rng.geometric(0.1, 60))
    X = rng.normal(np.array([-6.0, 0.0, 6.0])[states])[:, None]
    model = sj.HDPHMM(3, sj.Gaussian(), random_state=0).fit(X)
    assert model.n_states_ == 3
    return model, model.emission_.validate(sj.Sequences.from_lengths(X))


def search_of(fitted, n_states):
    model, data = fitted
    bench = Workbench(model.emission_, model.fitted_.compute.backend())
    return StateSearch.on(data, bench, n_states, 1e-6, MoveSettings())


def test_states_that_differ_are_kept(fitted):
    search = search_of(fitted, 3)
    found, moves = search.run(fitted[0].fitted_.posterior)
    assert found.posterior.n_states == 3
    assert moves
    assert not any(move.accepted for move in moves)
    assert all(move.gain < 0.0 for move in moves)
    assert found.bound == pytest.approx(search.converged(found.posterior).bound, abs=0.01)


def test_parts_of_states_become_one_again(fitted):
    parts = np.repeat(np.eye(3), 3, axis=0) / 3.0
    search = search_of(fitted, 9)
    found, moves = search.run(fitted[0].fitted_.posterior.regrouped(parts))
    assert found.posterior.n_states == 3
    assert sum(move.accepted for move in moves) == 6
    assert [move.n_states for move in moves if move.accepted] == [8, 7, 6, 5, 4, 3]
    whole = search_of(fitted, 3).run(fitted[0].fitted_.posterior)[0]
    assert found.bound == pytest.approx(whole.bound, abs=0.1)


def test_one_state_is_left_alone(fitted):
    one = fitted[0].fitted_.posterior.regrouped(np.ones((1, 3)))
    found, moves = search_of(fitted, 1).run(one)
    assert (found.posterior.n_states, moves) == (1, [])


def test_statistics_are_those_of_the_data(fitted):
    found, _ = search_of(fitted, 3).run(fitted[0].fitted_.posterior)
    n_steps = fitted[1].n_steps
    start, transitions = found.posterior.counts
    assert start.sum() == pytest.approx(1.0)
    assert transitions.sum() == pytest.approx(n_steps - 1)


def test_a_state_that_shares_another_one_is_found(fitted):
    whole = search_of(fitted, 3).run(fitted[0].fitted_.posterior)[0]
    two = fitted[0].fitted_.posterior.regrouped(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    assert search_of(fitted, 2).run(two)[0].posterior.n_states == 2  # there is no room for it
    found, moves = search_of(fitted, 6).run(two)
    assert found.posterior.n_states == 3
    assert found.bound == pytest.approx(whole.bound, abs=0.1)
    assert [move.n_states for move in moves if move.accepted] == [3]
    assert {move.kind for move in moves} == {"merge", "split"}
    again = search_of(fitted, 6).run(two)[0].posterior
    assert (again.emissions.rows == found.posterior.emissions.rows).all()


def test_a_split_must_not_lower_the_score_of_held_out_data(fitted):
    two = fitted[0].fitted_.posterior.regrouped(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    search = replace(search_of(fitted, 6), validate=lambda posterior, _: -posterior.n_states)
    found, moves = search.run(two)
    assert found.posterior.n_states < 3
    assert not any(move.accepted for move in moves if move.kind == "split")


def test_the_model_without_a_merge_gets_as_many_local_steps(fitted):
    halves = np.repeat(np.eye(3), 2, axis=0) / 2.0
    # A model that has not converged gains by itself, and that is no gain of a merge.
    begun = fitted[0].fitted_.posterior.regrouped(halves)
    begun = replace(begun, emissions=begun.emissions.refilled(0.2 * begun.emissions.dense()))
    settings = replace(MoveSettings(), search_steps=3, search_max_rounds=1)
    search = search_of(fitted, 6)
    search = replace(search, fitter=replace(search.fitter, settings=settings))
    (move, *_) = search.run(begun)[1]
    present = search.stepped(begun, 3).posterior
    merged = present.regrouped(merge_weights(6, [tuple(move.states[0])]))
    both = [search.stepped(posterior, 2) for posterior in (merged, present)]
    if both[0].bound <= both[1].bound:
        both = [search.stepped(fit.posterior, 3) for fit in both]
    assert move.gain == pytest.approx(both[0].bound - both[1].bound, abs=1e-6)
    assert abs(search.stepped(present, 2).bound - search.stepped(begun, 3).bound) > 0.01


@pytest.fixture(scope="module")
def symbols():
    """A model of three states of symbols, two of which share most of theirs."""
    rng = np.random.default_rng(0)
    shares = np.array([[8.0, 1, 1, 0, 0], [1, 8, 1, 0, 0], [0, 0, 0, 5, 5]]) / 10.0
    X = []
    for _ in range(20):
        states = np.repeat(rng.integers(0, 3, 12), rng.geometric(0.1, 12))
        X.append(np.array([rng.choice(5, p=shares[k]) for k in states]))
    model = sj.HDPHMM(3, sj.Categorical(5), random_state=0).fit(X)
    assert model.n_states_ == 3
    return model, model.emission_.validate(sj.Sequences.from_list(X))


def test_a_state_of_symbols_is_split_into_what_its_runs_are(symbols):
    whole = symbols[0].fitted_.posterior
    other = int(symbols[0].emissionprob_[:, [3, 4]].sum(axis=1).argmax())
    search = search_of(symbols, 6)
    apart = np.eye(3)[other]
    mixed = search.converged(whole.regrouped(np.array([1.0 - apart, apart])))
    (found, state), *_ = search.splits(mixed, np.random.default_rng(0))
    assert state == 0
    # After two local steps it has all but a little of what there is to gain.
    gain = search.converged(whole).bound - mixed.bound
    assert found.bound - mixed.bound > 0.9 * gain > 0.0


@pytest.fixture(scope="module")
def full():
    """A model of 30 steps with 30 states, most of which have no step."""
    X = np.random.default_rng(0).normal(np.repeat([-6.0, 0.0, 6.0], 10))[:, None]
    model = sj.HDPHMM(3, sj.Gaussian(), random_state=0).fit(X)
    idle = np.vstack([np.eye(model.n_states), np.zeros((30 - model.n_states, model.n_states))])
    data = model.emission_.validate(sj.Sequences.from_lengths(X))
    return (model, data), model.fitted_.posterior.regrouped(idle)


def test_states_without_steps_go_at_once(full):
    fitted, posterior = full
    found, moves = search_of(fitted, 30).run(posterior)
    assert moves[0].accepted
    assert moves[0].n_states < 15
    gone = [state for group in moves[0].states for state in group[1:]]
    assert len(gone) == len(set(gone)) == 30 - moves[0].n_states
    whole = search_of(fitted, 3).run(fitted[0].fitted_.posterior)[0]
    assert found.posterior.n_states == whole.posterior.n_states
    assert found.bound == pytest.approx(whole.bound, abs=0.1)


def test_states_without_steps_do_not_hide_those_that_are_one(symbols):
    parts = np.vstack([np.repeat(np.eye(3), 2, axis=0) / 2.0, np.zeros((4, 3))])
    begun, search = symbols[0].fitted_.posterior.regrouped(parts), search_of(symbols, 10)
    counts = search.converged(begun).posterior.counts
    idle = np.flatnonzero(counts.start + counts.transitions.sum(axis=0) < 1.0).tolist()
    assert idle
    found, moves = search.run(begun)
    assert found.posterior.n_states == 3
    gone = [state for group in moves[0].states for state in group[1:]]
    assert (sorted(gone), moves[0].accepted, moves[0].n_states) == (idle, True, 10 - len(idle))
    whole = search_of(symbols, 3).run(symbols[0].fitted_.posterior)[0]
    assert found.bound == pytest.approx(whole.bound, abs=0.5)


def test_states_without_steps_stay_where_held_out_data_need_them(full):
    search = replace(search_of(full[0], 30), validate=lambda posterior, _: posterior.n_states)
    found, moves = search.run(full[1])
    assert found.posterior.n_states == 30
    assert not any(move.accepted for move in moves)


def test_more_states_than_steps_are_not_begun_with():
    rng = np.random.default_rng(0)
    symbols = [rng.integers(0, 4, 10) for _ in range(10)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none says that all of them are in use
        model = sj.HDPHMM(500, sj.Categorical(4), random_state=0).fit(symbols)
    assert model.history_[0]["states"] == 100
    assert model.n_states_ == model.history_[-1]["states"] < 20
    assert model.get_params()["n_states"] == 500
    chosen = sj.HDPHMM(500, sj.Categorical(4), n_init=1, moves=MoveSettings(init_states=2))
    assert chosen.fit(symbols).history_[0]["states"] == 2


def test_idle_states_of_a_finite_model_are_counted_as_its_warning_says():
    X = np.random.default_rng(0).normal(size=(100, 1))
    with pytest.warns(sj.FitWarning, match="unused") as caught:
        model = sj.HMM(500, sj.Gaussian(), random_state=0).fit(X)
    assert f"n_states={model.n_states_} would be enough" in str(caught[0].message)
