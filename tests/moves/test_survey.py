"""Much data: the sums of a local step on all of them, and the merges that they judge."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import xlogy

import sojourn as sj
from sojourn.backends.cpu import CpuBackend
from sojourn.inference import COLLAPSED, Problem
from sojourn.inference.bound import COLLAPSED_BOUND
from sojourn.inference.local import chunk_potentials
from sojourn.inference.survey import survey
from sojourn.kernels import cpu, reference
from sojourn.moves.entropies import EntropyEstimate
from sojourn.moves.judge import Judge
from sojourn.moves.left_out import left_out_likelihoods
from sojourn.moves.merge import highest, merge_states, try_merge
from sojourn.moves.pairs import Merge, MergedStates, merge_weights
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.stream import merge_in_survey, on_all_the_data
from sojourn.moves.workbench import Workbench
from sojourn.sources import MemorySource
from sojourn.sources.tiles import TiledSource
from tests.support.known_states import simulate
from tests.support.proposals import moves_of

SETTINGS = MoveSettings()
SMALL_SAMPLES = MoveSettings(sample_max_steps=2**11)


def posterior_of(family, data, n_states):
    options = {"batch_size": 10, "n_passes": 8, "init": "segments", "moves": None}
    model = sj.HDPHMM(n_states, family, dtype="float64", random_state=1, **options).fit(data)
    return model.emission_, model.fitted_.posterior


def surveyed_by(family, data, backend, batch_size=7, source=None):
    """Return what takes a local step on all the data, in minibatches."""
    source = MemorySource(family.validate(data), batch_size, 3) if source is None else source
    problem = Problem(family, COLLAPSED, lambda n: 1.0, len(data))
    return partial(survey, problem, source=source, backend=backend, n_pass=4)


def judge_of(family, data, posterior, of_all):
    bench = Workbench(family, CpuBackend(cpu, 1, "float64"))
    n_states, total = posterior.n_states, len(data)
    sample = Sample.draw(
        [family.validate(data)], 200, total, bench, n_states, SETTINGS, stands_for_all=False
    )
    judge = Judge.begin(SampleFitter(sample, bench, SETTINGS, 1e18, n_states), posterior)
    return judge, on_all_the_data(judge, of_all, total)


def long_way(family, posterior, data):
    """Responsibilities of all steps by the reference, and the whole local step at once."""
    whole = Workbench(family, CpuBackend(reference, 1, "float64"))
    chunks = whole.chunks(family.validate(data), posterior.n_states)
    sums = whole.statistics(posterior, chunks, entropy=True, shared=True)
    potentials = whole.backend.transition_potentials(posterior, COLLAPSED)
    parts = chunk_potentials(posterior, family, chunks, potentials, whole.backend, collapsed=True)
    r = np.concatenate([whole.backend.forward_backward(*p).responsibilities for p in parts])
    return sums, r


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_the_sums_of_all_minibatches_are_those_of_one_local_step(kind):
    family, drawn = simulate(kind, 3, 3, n_train=40)
    family, posterior = posterior_of(family, drawn.train, 4)
    expected, r = long_way(family, posterior, drawn.train)
    found = surveyed_by(family, drawn.train, CpuBackend(cpu, 2, "float64"))(posterior)
    for name in ("start", "transitions", "entropy", "log_base", "mass", "n_steps", "n_sequences"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-9)
    np.testing.assert_allclose(found.emissions.dense(), expected.emissions.dense(), atol=1e-9)
    # Entropies, and how far counts may be from their expectations, by their definitions.
    both = r[:, :, None] + r[:, None]
    shared = (xlogy(both, both) - xlogy(r, r)[:, :, None] - xlogy(r, r)[:, None]).sum(axis=0)
    upper = np.triu_indices(4, 1)
    np.testing.assert_allclose(found.shared[upper], shared[upper], rtol=5e-3, atol=0.05)
    uncertain = found.uncertainty.emissions.dense()
    if kind == "categorical":
        own = np.zeros((100, 8))
        np.add.at(own, drawn.train.values, np.concatenate([np.log1p(-r), r * (1 - r)], axis=1))
        np.testing.assert_allclose(uncertain, own, rtol=1e-6, atol=1e-9)
    else:
        exact = expected.uncertainty.emissions.dense()
        np.testing.assert_allclose(uncertain, exact, rtol=1e-9)


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_the_gain_of_a_merge_is_the_difference_of_the_bounds_of_all_the_data(kind):
    family, drawn = simulate(kind, 3, 3, n_train=40)
    family, posterior = posterior_of(family, drawn.train, 4)
    of_all = surveyed_by(family, drawn.train, CpuBackend(cpu, 1, "float64"))
    _, judge = judge_of(family, drawn.train, posterior, of_all)
    weights = merge_weights(4, [(1, 3)])
    try_merge(judge, Merge(0.0, 0.0, weights))
    bounds = []
    for own in (posterior, posterior.regrouped(weights)):
        sums, _ = long_way(family, own, drawn.train)  # all at once, by the reference
        after = judge.fitter.with_statistics(own, sums, refit=True)
        bounds.append(COLLAPSED_BOUND.compute(after, family, sums, 1.0))
    (move,) = judge.moves
    assert move.gain == pytest.approx(bounds[1] - bounds[0], abs=1e-6)


def test_what_is_uncertain_of_two_symbols_states_together():
    """Exact for symbols that occur once, and for those whose steps are all alike."""
    rng = np.random.default_rng(0)
    family = sj.Categorical(6, 0.1)
    x = np.array([0, 1, 2, 3, 3, 3, 4, 4])
    r = rng.dirichlet(np.ones(4), 6)[x]
    sums = np.zeros((6, 4))
    np.add.at(sums, x, r)

    def uncertain(r):
        out = np.zeros((2, r.shape[1], 6))
        np.add.at(out[0].T, x, np.log1p(-r))
        np.add.at(out[1].T, x, r * (1.0 - r))
        return out

    own = uncertain(r)
    found = family.pooled_uncertainty(
        own[:, [0, 1]], own[:, [2, 3]], (sums.T[[0, 1]], sums.T[[2, 3]]), sums.sum(axis=1)
    )
    exact = uncertain(np.stack([r[:, 0] + r[:, 2], r[:, 1] + r[:, 3]], axis=1))
    np.testing.assert_allclose(found, exact, rtol=1e-9, atol=1e-12)


def clear(kind, n_states=4):
    """Return data whose states are clear, and the posterior of a model that knows them."""
    rng = np.random.default_rng(3)
    states = np.repeat(rng.integers(n_states, size=(100, 15)), 2, axis=1)
    if kind == "gaussian":
        noise = rng.normal(size=(*states.shape, 1))
        family, values = sj.Gaussian(), 5.0 * states[..., None] + noise
    else:
        shares = rng.dirichlet(np.full(40, 0.1), n_states)
        values = (rng.random((*states.shape, 1)) > np.cumsum(shares, axis=1)[states]).sum(axis=2)
        family, values = sj.Categorical(40), np.minimum(values, 39)
    known = [np.asarray(row) for row in states]
    model = sj.HDPHMM(n_states, family, dtype="float64", n_passes=2, moves=None, random_state=0)
    model.fit(list(values), y=known)
    return model.emission_, sj.Sequences.from_list(list(values)), model.fitted_.posterior


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_states_that_are_the_same_become_one_and_others_do_not(kind):
    n_states = 4
    family, data, posterior = clear(kind)
    posterior = replace(posterior, held=0)  # no labels from here on
    halves = np.repeat(np.eye(n_states), 2, axis=0) * np.tile([0.6, 0.4], n_states)[:, None]
    of_all = surveyed_by(family, data, CpuBackend(cpu, 1, "float64"), batch_size=50)
    judge, _ = judge_of(family, data, posterior.regrouped(halves), of_all)
    done = merge_in_survey(judge, of_all, len(data))
    np.testing.assert_array_equal(done.groups @ halves > 0.0, np.eye(n_states) > 0.0)
    assert {move.kind for move in done.moves if move.accepted} == {"merge"}
    # What training goes on with has the statistics of all the data.
    steps = done.present.posterior.counts
    assert steps.start.sum() + steps.transitions.sum() == pytest.approx(data.n_steps)


def test_all_the_data_are_not_looked_at_where_no_merge_may_gain():
    family, data, posterior = clear("gaussian")
    posterior = replace(posterior, held=0)
    judge, _ = judge_of(family, data, posterior, surveyed_by(family, data, CpuBackend(cpu, 1)))
    assert merge_in_survey(judge, None, len(data)) is judge
    assert not judge.moves


def test_on_paper_the_evidence_of_uncertain_counts_ranks_merges():
    """Where counts are fractions, as of many symbols, the evidence at them is far too low."""
    family, drawn = simulate("categorical", 3, 3, n_train=30)
    family, posterior = posterior_of(family, drawn.train, 3)
    of_all = surveyed_by(family, drawn.train, CpuBackend(cpu, 1, "float64"))
    _, judge = judge_of(family, drawn.train, posterior, of_all)
    fit = judge.present
    states = MergedStates.of(family, fit.posterior, fit.shared, SETTINGS, fit.uncertain)
    plain = MergedStates.of(family, fit.posterior, fit.shared, SETTINGS)
    pair = states.best()
    weights = merge_weights(3, [pair])
    # The evidence of the emissions of both states together, with its own uncertainty.
    _, r = long_way(family, posterior, drawn.train)
    r = r @ weights.T
    own = np.zeros((100, 4))
    np.add.at(own, drawn.train.values, np.concatenate([np.log1p(-r), r * (1 - r)], axis=1))
    emissions = weights @ fit.posterior.emissions.dense()
    exact = family.expected_log_normalizer(emissions, own, emissions.sum(axis=1))[pair[0]]
    own_gain = exact - states.log_normalizers[list(pair)].sum()
    at_means = family.log_normalizer(family.prior() + emissions)[pair[0]]
    plain_gain = at_means - plain.log_normalizers[list(pair)].sum()
    found = states.gains[pair] - plain.gains[pair] + plain_gain
    assert abs(found - own_gain) < 0.2 * abs(plain_gain - own_gain)


@pytest.mark.parametrize("kind", ["gaussian", "categorical"])
def test_training_on_much_data_merges_by_all_of_them(kind):
    family, drawn = simulate(kind, 4, 2, n_train=1000)
    model = sj.HDPHMM(
        8, family, moves=SMALL_SAMPLES, batch_size=50, n_passes=8, random_state=0
    ).fit(drawn.train)
    assert model.n_states_ == 4
    accepted = [move for move in moves_of(model) if move["accepted"]]
    assert {move["kind"] for move in accepted} == {"merge"}


def test_a_long_sequence_in_tiles_has_the_sums_of_the_whole():
    family, drawn = simulate("gaussian", 3, 3, n_train=40)
    whole = sj.Sequences.from_list([drawn.train.values[:900], drawn.train.values[900:1300]])
    family, posterior = posterior_of(family, whole, 4)
    expected, _ = long_way(family, posterior, whole)
    tiles = TiledSource(family.validate(whole), 100, 4, seed=2, buffer=2000)
    found = surveyed_by(family, whole, CpuBackend(cpu, 1, "float64"), source=tiles)(posterior)
    for name in ("start", "transitions", "entropy", "log_base", "mass", "n_steps"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-7)
    for name in ("emissions", "uncertainty"):
        one, other = (getattr(sums, name) for sums in (found, expected))
        one, other = (getattr(part, "emissions", part).dense() for part in (one, other))
        np.testing.assert_allclose(one, other, rtol=1e-7)
    np.testing.assert_allclose(found.shared, expected.shared, rtol=1e-3, atol=1e-3)


def test_without_its_own_counts_a_sequence_is_as_likely_as_a_new_one():
    """One state: the predictive distribution of the other sequences' symbols, word by word."""
    data = sj.Sequences.from_list([[0, 1, 1], [2, 0], [3, -1], [1]])
    family = sj.Categorical(5, 0.3)
    model = sj.HDPHMM(1, family, batch_size=None, forgetting_rate=0.0, n_passes=1, moves=None)
    posterior = model.fit(data).fitted_.posterior
    found = left_out_likelihoods(posterior, family, data, n_threads=1)
    for n, own in enumerate(data):
        others = np.concatenate([x for m, x in enumerate(data) if m != n])
        counts = np.bincount(others[others >= 0], minlength=5)
        shares = (0.3 + counts) / (1.5 + counts.sum())
        assert found[n] == pytest.approx(np.log(shares[own[own >= 0]]).sum(), abs=1e-6)


def test_states_whose_words_are_their_own_are_not_merged_though_the_bound_gains():
    family, data, posterior = clear("categorical")
    posterior = replace(posterior, held=0)
    of_all = surveyed_by(family, data, CpuBackend(cpu, 1, "float64"))
    _, judge = judge_of(family, data, posterior, of_all)
    assert judge.present.held_out.shape == (judge.sample.held_out_steps // 30,)
    tried = judge.fit_regrouped(merge_weights(4, [(0, 1)]))
    verdict = judge.compare(*tried)
    assert verdict.fresh < -0.01
    assert not verdict.is_safe


def test_entropies_of_a_few_steps_stand_for_those_of_all(monkeypatch):
    family, drawn = simulate("categorical", 3, 3, n_train=200)
    family, posterior = posterior_of(family, drawn.train, 4)
    of_all = surveyed_by(family, drawn.train, CpuBackend(cpu, 1, "float64"))
    every = of_all(posterior).shared
    # One step in some 60, and minibatches of fewer than that.
    monkeypatch.setattr("sojourn.inference.survey.SHARED_STEPS", drawn.train.n_steps // 60)
    for size in (1, 50):
        own = surveyed_by(family, drawn.train, CpuBackend(cpu, 1, "float64"), batch_size=size)
        some = own(posterior).shared
        assert some.sum() == pytest.approx(every.sum(), rel=0.35)
        assert (some != every).any()


def test_the_entropy_of_all_the_data_is_that_of_a_local_step_where_they_are_the_sample():
    family, drawn = simulate("categorical", 3, 3, n_train=40)
    model = sj.HMM(4, family, dtype="float64", batch_size=10, n_passes=8, random_state=1)
    posterior = model.fit(drawn.train).fitted_.posterior
    sums, _ = long_way(family, posterior, drawn.train)
    _, judge = judge_of(
        family, drawn.train, posterior, surveyed_by(family, drawn.train, CpuBackend(cpu, 1))
    )
    after = judge.fitter.with_statistics(posterior, sums)
    found = EntropyEstimate(posterior, after, family, drawn.train, n_threads=1)
    assert found(np.eye(4)) == pytest.approx(sums.entropy, rel=1e-9)
    # So is the entropy of sums of states, of which one is nothing.
    order = np.eye(4)[[2, 3, 0, 1]]
    split = posterior.regrouped(np.vstack([order, np.zeros((1, 4))]))
    counts = after.regrouped(np.vstack([order, np.zeros((1, 4))]))
    found = EntropyEstimate(split, counts, family, drawn.train, n_threads=1)
    whole = np.hstack([order.T, np.eye(4)[:, [0]]])
    assert found(whole) == pytest.approx(sums.entropy, rel=1e-9)


def test_a_sample_tells_how_many_merges_gain_most():
    """Each true state in three parts: the pairs that gain most are found without a look."""
    family, data, posterior = clear("categorical")
    posterior = replace(posterior, held=0)
    thirds = np.repeat(np.eye(4), 3, axis=0) / 3.0
    looks = []
    of_all = surveyed_by(family, data, CpuBackend(cpu, 1, "float64"), batch_size=50)

    def counted(own):
        looks.append(own.n_states)
        return of_all(own)

    _, judge = judge_of(family, data, posterior.regrouped(thirds), counted)
    merge_states(judge)
    assert judge.n_states == 4
    assert looks == [12, 4]  # the present model, and one proposal


@given(st.integers(1, 300), st.data())
def test_the_highest_value_of_what_rises_and_then_falls_is_found(last, data):
    top = data.draw(st.integers(1, last))
    up, down = (data.draw(st.floats(0.1, 10.0)) for _ in range(2))
    asked = []

    def value(n):
        asked.append(n)
        return -up * (top - n) if n < top else -down * (n - top)

    assert highest(value, last) == (top, 0.0)
    assert len(asked) == len(set(asked)) <= 26


def test_what_a_merge_would_cost_is_seen_without_a_look():
    family, data, posterior = clear("categorical")
    looks = []
    of_all = surveyed_by(family, data, CpuBackend(cpu, 1, "float64"))

    def counted(own):
        looks.append(own.n_states)
        return of_all(own)

    _, judge = judge_of(family, data, posterior, counted)
    assert looks == [posterior.n_states]
    assert judge.may_merge(np.eye(posterior.n_states))
    assert not judge.may_merge(merge_weights(posterior.n_states, [(0, 1)]))
    assert looks == [posterior.n_states]
