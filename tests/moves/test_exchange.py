"""Exchanges of states at a fixed number of them, and splits where there are fewer."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.moves.exchange import exchange_states, split_in_turn
from sojourn.moves.narrow import Narrow, Narrowing
from sojourn.moves.search import StateSearch, split_by_runs
from sojourn.moves.settings import MoveSettings
from sojourn.moves.split import runs_of
from sojourn.moves.workbench import Workbench
from sojourn.sources import MemorySource

MEANS = np.array([-6.0, -2.0, 2.0, 6.0])


@pytest.fixture(scope="module", params=[sj.HMM, sj.HDPHMM])
def trapped(request):
    """A model of four states that is stuck: two share the first, and one stands for two others."""
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, 4, 120), rng.geometric(0.1, 120))
    X = rng.normal(MEANS[states])[:, None]
    good = request.param(4, sj.DiagonalGaussian(), random_state=0).fit(X)
    order = np.eye(4)[np.argsort(good.means_[:, 0])]
    np.testing.assert_allclose(order @ good.means_[:, 0], MEANS, atol=0.3)
    data = good.emission_.validate(sj.Sequences.from_lengths(X))
    bench = Workbench(good.emission_, good.fitted_.compute.backend())
    search = StateSearch.on(data, bench, 5, 1e-5, MoveSettings())
    weights = np.array([[0.5, 0, 0, 0], [0.5, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1]])
    poor = good.fitted_.posterior.regrouped(weights @ order)
    return search, search.converged(good.fitted_.posterior), search.converged(poor)


def test_an_exchange_leads_out_of_a_poor_optimum(trapped):
    search, good, poor = trapped
    assert poor.bound < good.bound - 100.0
    found, moves = exchange_states(search, poor.posterior, 3, np.random.default_rng(0))
    assert found.n_states == 4
    assert [move.accepted for move in moves] == [True, False]
    assert moves[0].kind == "exchange"
    (split,), merged = moves[0].states
    assert split not in merged
    assert search.converged(found).bound == pytest.approx(good.bound, abs=0.5)


def test_a_good_optimum_is_left_as_it_is(trapped):
    search, good, _ = trapped
    found, moves = exchange_states(search, good.posterior, 3, np.random.default_rng(0))
    assert found is None
    assert [move.accepted for move in moves] == [False]


def test_states_are_split_where_there_are_too_few(trapped):
    search, good, poor = trapped
    weights = np.array([[1.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    few = search.converged(poor.posterior.regrouped(weights))
    found, moves = split_in_turn(search, few.posterior, np.random.default_rng(0))
    assert [(m.kind, m.accepted, m.n_states) for m in moves] == [
        ("split", True, 4),
        ("split", False, 4),  # a fifth may be, but the bound is not for it
    ]
    assert search.converged(found).bound == pytest.approx(good.bound, abs=0.5)


def test_there_is_no_split_where_none_raises_the_bound(trapped):
    search, good, _ = trapped
    found, moves = split_in_turn(search, good.posterior, np.random.default_rng(0))
    assert found is None
    assert [move.accepted for move in moves] == [False]
    full = search.on(search.fitter.sample.data, search.fitter.bench, 4, 1e-5, MoveSettings())
    assert split_in_turn(full, good.posterior, np.random.default_rng(0)) == (None, [])


def test_states_that_narrowing_lacks_are_split_off_again(trapped):
    search, _, poor = trapped
    fitter = search.fitter
    source = MemorySource(fitter.sample.data, 2, 0)
    plan = Narrow(wide=8, n_states=4, first=1, n_stages=2)
    bench = fitter.bench
    rules = bench.backend, source, None, fitter.settings, search.tol
    weights = np.array([[1.0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    posterior = bench.fetch(poor.posterior.regrouped(weights))
    n_steps = posterior.emissions.dense()[:, 0].sum()
    moves = Narrowing(plan, *rules).after_pass(posterior, fitter.family, plan.last + 1, 10, None)
    assert [(move["kind"], move["accepted"]) for move in moves] == [("split", True)]
    assert posterior.n_states == 4
    np.testing.assert_allclose(posterior.emissions.dense()[:, 0].sum(), n_steps, rtol=0.01)


def test_a_split_by_runs_keeps_what_the_state_had(trapped):
    search, _, poor = trapped
    whole, bench = poor.posterior, search.fitter.bench
    sequences, path = bench.likely_states(whole, search.fitter.sample.fitted[0])
    own = runs_of(sequences, path, 3, 8)
    parts = split_by_runs(search.fitter, whole, 3, own, np.random.default_rng(0))
    back = np.eye(4, 5)
    back[3, 4] = 1.0
    merged = parts.regrouped(back)
    np.testing.assert_allclose(merged.counts.transitions, whole.counts.transitions, rtol=1e-9)
    np.testing.assert_allclose(merged.counts.start, whole.counts.start, rtol=1e-9)
    mass = parts.emissions.dense()[:, 0]
    np.testing.assert_allclose(mass[3] + mass[4], whole.emissions.dense()[3, 0], rtol=0.01)
    family = search.fitter.family
    means = family.location + parts.emissions.dense()[[3, 4], 2] / mass[[3, 4]]
    np.testing.assert_allclose(np.sort(means), [2.0, 6.0], atol=0.3)


@pytest.fixture(scope="module")
def traps():
    """Symbols of four states, in which single starts end in several optima."""
    rng = np.random.default_rng(1)
    symbols = rng.dirichlet(np.full(100, 0.03), 4)
    states = np.repeat(rng.integers(0, 4, 250), 4)
    return np.array([rng.choice(100, p=symbols[k]) for k in states])


def test_a_given_number_of_states_ends_in_the_best_optimum_from_any_start(traps):
    def scores(**options):
        seeds = range(6)
        return [
            sj.HMM(4, sj.Categorical(), random_state=s, **options).fit(traps).score(traps)
            for s in seeds
        ]

    single, usual = scores(n_init=1), scores()
    assert min(usual) > max(*single, *usual) - 1.0
    assert min(single) < max(single) - 20.0  # otherwise there is nothing to find


def test_exchanges_are_in_the_history_and_must_not_lower_a_score(traps):
    fits = [sj.HMM(4, sj.Categorical(), random_state=seed).fit(traps) for seed in range(6)]
    moves = [move for model in fits for entry in model.history_ for move in entry["moves"]]
    assert {move["kind"] for move in moves} == {"exchange"}
    assert any(move["accepted"] for move in moves)
    assert all(model.converged_ for model in fits)
    model = sj.HMM(4, sj.Categorical(), random_state=0).fit(traps[:600], validation=traps[600:])
    assert model.n_states_ == 4
    assert model.history_[-1]["score"] is not None


def test_restarts_that_are_asked_for_are_all_there_is(traps):
    for options in ({"n_init": 1}, {"n_init": 2}, {"init": "exponential"}):
        model = sj.HMM(4, sj.Categorical(), random_state=0, **options).fit(traps)
        assert not any(entry["moves"] for entry in model.history_)
