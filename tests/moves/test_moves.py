"""The number of states is found, by moves that the bound judges."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize, minimize_scalar
from scipy.special import xlogy

import sojourn as sj
from experiments.number_of_states_tables import PAGE, updated
from sojourn import kernels
from sojourn.inference import Engine
from sojourn.inference.posterior import Posterior
from sojourn.kernels.overlap import shared_entropies
from sojourn.models import base
from sojourn.moves.budget import MOVE_SHARE, MoveState, other_steps, step_work, training_work
from sojourn.moves.merges import MergedStates, merge_chain, merge_weights
from sojourn.moves.moves import Moves
from sojourn.moves.phase import HARM, Move, Phase, Sample, split_work
from sojourn.moves.splits import SplitPlan, split_posterior
from sojourn.transitions import HDP, Dirichlet, Rows, StickyDirichlet
from sojourn.transitions.base import log_row_evidence
from tests.support.cluster.data import write_parquet
from tests.support.cluster.here import Here
from tests.support.known_states import recording, segments, simulate
from tests.support.proposals import moves_of

SETTINGS = {"batch_size": 50, "n_passes": 40}


@pytest.fixture(scope="module")
def gaussian():
    return simulate("gaussian", 5, 1, n_train=500)


@pytest.fixture(scope="module")
def merged(gaussian):
    family, drawn = gaussian
    return sj.HDPHMM(12, family, random_state=0, **SETTINGS).fit(drawn.train)


def error_of(model, drawn):
    return 1.0 - sj.match_states(model, drawn.test_states, drawn.test).agreement


# ---- in training --------------------------------------------------------------------------------


def test_merges_find_the_states_that_data_were_drawn_from(gaussian, merged):
    _, drawn = gaussian
    assert merged.n_states_ == 5
    assert error_of(merged, drawn) <= 1.3 * drawn.truth_error
    assert merged.score(drawn.test, per_step=True) > drawn.truth_score - 0.01


def test_every_proposal_is_recorded_with_its_gain(merged):
    made = moves_of(merged)
    assert set(made[0]) == set(Move._fields)
    assert all(move["gain"] > 0 for move in made if move["accepted"])
    assert any(not move["accepted"] for move in made)
    first = next(move for move in made if move["accepted"])
    assert first["n_states"] == 12 - sum(len(group) - 1 for group in first["states"])
    assert merged.history_[-1]["states"] == merged.n_states_ == len(merged.transmat_)


def test_states_come_out_largest_first(merged):
    assert (np.diff(merged.state_shares_) <= 0).all()
    assert merged.hdp_.weights.shape == (merged.n_states_,)


def test_splits_make_a_small_start_grow(gaussian):
    family, drawn = gaussian
    model = sj.HDPHMM(12, family, init_states=2, random_state=1, **SETTINGS).fit(drawn.train)
    assert 4 <= model.n_states_ <= 6
    assert model.score(drawn.test, per_step=True) > drawn.truth_score - 0.02
    assert "split" in {move["kind"] for move in moves_of(model) if move["accepted"]}


def test_a_finite_model_takes_moves_too_on_symbols():
    family, drawn = simulate("categorical", 3, 1, n_train=600)
    model = sj.HMM(6, family, moves="auto", random_state=0, **SETTINGS).fit(drawn.train)
    plain = sj.HMM(6, family, random_state=0, **SETTINGS).fit(drawn.train)
    assert 3 <= model.n_states_ < 6 == plain.n_states_
    assert not moves_of(plain)
    assert model.score(drawn.test, per_step=True) > plain.score(drawn.test, per_step=True) - 0.002


@pytest.mark.parametrize("init_states", [None, 2])
def test_the_same_seed_makes_the_same_moves_on_any_number_of_threads(gaussian, init_states):
    family, drawn = gaussian
    options = {"init_states": init_states, "random_state": 3, "batch_size": 50, "n_passes": 20}
    models = [sj.HDPHMM(8, family, n_jobs=n, **options).fit(drawn.train) for n in (1, 3)]
    first, second = (moves_of(model) for model in models)
    assert first == second
    assert any(move["accepted"] for move in first)
    np.testing.assert_array_equal(models[0].transmat_, models[1].transmat_)


def test_a_stopped_training_makes_the_same_moves_after_it_goes_on(gaussian, tmp_path):
    family, drawn = gaussian
    options = {"random_state": 3, "batch_size": 50, "n_passes": 20}
    whole = sj.HDPHMM(8, family, **options).fit(drawn.train)

    def stop(progress):
        # Right after the pass in which the first states were merged.
        if progress.passes >= 9:
            raise KeyboardInterrupt

    again = {"checkpoint": tmp_path, "checkpoint_every": 3}
    with pytest.raises(KeyboardInterrupt):
        sj.HDPHMM(8, family, **options).fit(drawn.train, callback=stop, **again)
    resumed = sj.HDPHMM(8, family, **options).fit(drawn.train, resume=True, **again)
    assert moves_of(resumed) == moves_of(whole)
    assert resumed._move_state == whole._move_state
    np.testing.assert_array_equal(resumed.transmat_, whole.transmat_)


def test_a_model_with_fewer_states_than_its_bound_is_saved_and_learns_on(
    merged, gaussian, tmp_path
):
    _, drawn = gaussian
    merged.save(tmp_path / "m.sojourn")
    same, copy = (sj.load(tmp_path / "m.sojourn") for _ in range(2))
    assert (same.n_states_, same.n_states) == (merged.n_states_, 12)
    assert same._move_state == merged._move_state
    assert same.history_ == merged.history_
    for model in (same, copy):
        model.partial_fit(drawn.train[:50])
    np.testing.assert_array_equal(same.transmat_, copy.transmat_)


def test_partial_fit_moves_when_a_minibatch_is_large_enough(gaussian):
    family, drawn = gaussian
    large, small = sj.HDPHMM(12, family, random_state=0), sj.HDPHMM(12, family, random_state=0)
    for n in range(60):
        begin = 250 * (n % 2)
        large.partial_fit(drawn.train[begin : begin + 250], total_sequences=500)
        small.partial_fit(drawn.train[begin : begin + 10], total_sequences=500)
    assert large.n_states_ < 12 == small.n_states_
    assert any(move["accepted"] for move in moves_of(large))
    assert set(large.history_[-1]) == set(sj.Progress._fields)  # what reports look at
    assert f"{large.n_states_} of {len(large.transmat_)} states in use" in large._repr_html_()


def test_states_that_the_sample_does_not_have_are_left_alone():
    family, drawn, _, _ = recording(500, 0)  # six recordings, not all of which have all states
    model = sj.HDPHMM(20, family, batch_size=1, n_passes=80, random_state=0).fit(drawn.train)
    assert model.n_states_ == 5
    assert model.score(drawn.test, per_step=True) > drawn.truth_score - 0.01


def test_files_are_enough_for_moves(tmp_path):
    family, drawn = simulate("categorical", 3, 1, n_train=600)
    path = write_parquet(tmp_path / "data.parquet", drawn.train)
    model = sj.HDPHMM(6, family, random_state=0, **SETTINGS).fit(path)
    assert 3 <= model.n_states_ < 6


@pytest.mark.slow
def test_a_cluster_makes_the_same_moves(tmp_path, monkeypatch):
    monkeypatch.setattr(base, "Cluster", Here)
    family, drawn = simulate("categorical", 3, 1, n_train=600)
    path = write_parquet(tmp_path / "data.parquet", drawn.train)
    here, there = (
        sj.HDPHMM(6, family, random_state=0, **SETTINGS).fit(path, client=client)
        for client in (None, "here")
    )
    assert any(move["accepted"] for move in moves_of(here))
    kinds = [[(m["kind"], m["states"], m["accepted"]) for m in moves_of(x)] for x in (here, there)]
    assert kinds[0] == kinds[1]
    np.testing.assert_allclose(there.transmat_, here.transmat_, rtol=1e-3, atol=1e-4)


def test_in_a_cluster_of_gpus_moves_are_judged_on_this_machine_s_cores():
    """The process that leads it need not have a GPU, nor PyTorch."""
    model = sj.HDPHMM(3, sj.Categorical(3), n_passes=1, random_state=0).fit([[0, 1, 2]])
    model.set_params(device="cuda")
    moves = model._moves(model.emission_, model._posterior, 0, on_host=True)
    assert (moves.engine.kernel, moves.engine.device) == (kernels.cpu, None)


def test_moves_stay_within_their_share_of_the_work(gaussian):
    family, drawn = gaussian
    model = sj.HDPHMM(10, family, random_state=1, **SETTINGS).fit(drawn.train)
    assert model._move_state.budget >= 0.0
    assert moves_of(model)


def test_a_model_never_grows_beyond_its_bound(gaussian):
    family, drawn = gaussian
    model = sj.HDPHMM(3, family, init_states=2, random_state=0, **SETTINGS).fit(drawn.train)
    assert max(entry["states"] for entry in model.history_) == 3


def test_one_state_one_sequence_and_one_step_are_enough():
    for n_states, data in ((1, [[0, 1, 1]] * 9), (3, [[0]]), (3, [[0, 0, 0, 0]])):
        model = sj.HDPHMM(n_states, sj.Categorical(2), n_passes=60, random_state=0).fit(data)
        assert 1 <= model.n_states_ <= n_states
        assert np.isfinite(model.score(data))


def test_without_moves_all_states_stay(gaussian):
    family, drawn = gaussian
    model = sj.HDPHMM(8, family, moves=None, batch_size=50, random_state=0).fit(drawn.train[:300])
    assert model.n_states_ == 8
    assert not moves_of(model)


@pytest.mark.parametrize("inference", ["svi", "vb", "cvb0"])
def test_other_ways_of_inference_keep_their_states(inference):
    model = sj.HDPHMM(3, sj.Categorical(3), inference=inference, n_passes=40, random_state=0)
    model.fit([[0, 1, 2, 0], [1, 1]])
    assert not [move for entry in model.history_ for move in entry["moves"]]


def test_priors_that_tell_states_apart_keep_them():
    X = [np.arange(4)] * 50
    prior = np.linspace(0.1, 1.0, 12).reshape(3, 4)
    model = sj.HDPHMM(3, sj.Categorical(4, prior), n_passes=40, random_state=0).fit(X)
    assert model.n_states_ == 3
    with pytest.raises(ValueError, match="priors that are the same"):
        sj.HDPHMM(3, sj.Categorical(4, prior), init_states=2).fit(X)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"moves": "always"}, "neither 'auto' nor None"),
        ({"init_states": 9}, "more than n_states"),
        ({"init_states": 2, "moves": None}, "needs moves='auto'"),
        ({"init_states": 2, "inference": "svi"}, "needs moves='auto'"),
        ({"init_states": 0}, "init_states must be a whole number"),
        ({"stickiness": -1.0}, "stickiness=-1.0 is not a finite number"),
        ({"stickiness": "much"}, "stickiness='much' is not a finite number"),
        ({"stickiness": "learned", "inference": "svi"}, "needs inference='scvi'"),
        ({"init": "clever"}, "init='clever' is neither"),
    ],
)
@pytest.mark.parametrize("model", [sj.HMM, sj.HDPHMM])
def test_bad_options_are_refused(model, parameters, message):
    with pytest.raises(ValueError, match=message):
        model(4, sj.Categorical(3), **({"moves": "auto"} | parameters)).fit([[0, 1, 2]])


def test_states_move_where_the_prior_on_symbols_is_learned(tmp_path):
    family, drawn = simulate("categorical", 3, 1, n_train=600)
    model = sj.HDPHMM(6, family, random_state=0, tuned=True, **SETTINGS).fit(drawn.train)
    assert 3 <= model.n_states_ < 6
    assert model.score(drawn.test, per_step=True) > drawn.truth_score - 0.01
    prior = model._posterior.emissions.prior
    assert prior.n_sequences >= 600
    assert prior.of_seen != 0.1
    model.save(tmp_path / "m.sojourn")
    same = sj.load(tmp_path / "m.sojourn")
    assert same._posterior.emissions.prior.of_seen == prior.of_seen


def test_states_that_take_turns_become_one():
    family, drawn = simulate("categorical", 3, 111)
    model = sj.HDPHMM(6, family, batch_size=100, n_passes=80, random_state=111).fit(drawn.train)
    assert model.n_states_ == 3
    assert error_of(model, drawn) <= 1.3 * drawn.truth_error


def test_a_few_passes_are_enough_for_moves(gaussian):
    family, drawn = gaussian
    model = sj.HDPHMM(12, family, batch_size=50, random_state=0).fit(drawn.train)
    assert 4 <= model.n_states_ <= 6


@pytest.mark.parametrize("inference", ["vb", "gibbs"])
def test_stickiness_is_refused_where_the_weights_are_no_part_of_the_bound(inference):
    with pytest.raises(ValueError, match="has no stickiness"):
        sj.HDPHMM(2, sj.Categorical(3), inference=inference, stickiness=1.0).fit([[0, 1, 2]])


def test_the_tables_in_the_docs_are_those_of_the_result_file():
    page = PAGE.read_text()
    assert updated(page) == page


# ---- the pieces ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_shared_entropies_are_their_definition(dtype):
    rng = np.random.default_rng(0)
    r = rng.dirichlet(np.full(7, 0.3), 999).astype(dtype)
    found = [shared_entropies(r, n_threads=n) for n in (1, 2, 5)]
    assert all((other == found[0]).all() for other in found)
    exact = r.astype(float)
    exact[exact <= 1e-4] = 0.0
    for i, j in ((0, 1), (2, 6)):
        a, b = exact[:, i], exact[:, j]
        expected = (xlogy(a + b, a + b) - xlogy(a, a) - xlogy(b, b)).sum()
        np.testing.assert_allclose(found[0][i, j], expected, rtol=1e-5)
        assert found[0][j, i] == 0.0


def test_a_merge_adds_rows_and_columns(merged):
    posterior = merged._posterior
    after = posterior.regrouped(merge_weights(posterior.n_states, [(1, 3)]))
    counts = posterior.counts.transitions
    assert np.isclose(after.counts.transitions[1, 1], counts[np.ix_([1, 3], [1, 3])].sum())
    assert np.isclose(after.counts.transitions.sum(), counts.sum())
    emissions = posterior.emissions.dense()
    np.testing.assert_allclose(after.emissions.dense()[1], emissions[1] + emissions[3], rtol=1e-6)
    tables = posterior.transitions.tables
    assert np.isclose(after.transitions.tables[1], tables[1] + tables[3])


def test_a_split_keeps_the_mass_and_tells_the_parts_apart(merged, gaussian):
    family, posterior = merged.emission_, merged._posterior
    n_states = posterior.n_states
    own = family.validate(gaussian[1].train[:50])
    rng = np.random.default_rng(0)
    after = split_posterior(posterior, family, lambda k: own, [[0, n_states]], rng)
    assert after.n_states == n_states + 1
    mass = posterior.counts.start[0] + posterior.counts.transitions[:, 0].sum()
    fresh = family.initial_statistics(own, 2, mass, np.random.default_rng(0))
    np.testing.assert_allclose(after.emissions.dense()[[0, n_states]], fresh, rtol=1e-5)
    np.testing.assert_allclose(
        after.counts.start[[0, n_states]].sum(), posterior.counts.start[0], rtol=0.2
    )


def test_parts_of_a_state_of_symbols_begin_in_two_ways():
    family, rng = sj.Categorical(6), np.random.default_rng(0)
    statistics = sj.Statistics(np.ones(2), np.full((2, 2), 7.0), 10.0 * rng.random((2, 6)))
    posterior = Posterior.from_statistics(statistics, HDP.make(2), "float64")
    own = family.validate(sj.Sequences.from_list([[0, 1, 0], [2, 3, 3]]))
    shared, by_segments = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        after = split_posterior(posterior, family, lambda k: own, [[0, 2, 3]], rng)
        parts = after.emissions.dense()[[0, 2, 3]]
        np.testing.assert_allclose(after.emissions.dense()[1], statistics.emissions[1])
        if np.allclose(parts.sum(axis=0), statistics.emissions[0]):
            assert np.ptp(parts, axis=0).min() > 1e-3
            shared += 1
        by_segments += not parts[:, 4:].any()  # symbols that its steps do not have
    assert shared + by_segments == 20
    assert min(shared, by_segments) >= 5


def test_phases_wait_for_states_to_differ_and_leave_time_to_settle():
    moves = Moves(30, 0, None)
    assert [n for n in range(10) if moves.in_pass(n, 10)] == [3, 4, 5, 6, 7, 8]
    assert [n for n in range(5) if moves.in_pass(n, 5)] == [2, 3]
    assert not any(moves.in_pass(n, 3) for n in range(3))
    assert [n for n in range(80) if moves.in_pass(n, 80)] == list(range(11, 72))
    assert [n for n in range(80) if moves.in_pass(n, 80, slow=True)] == list(range(31, 72))
    assert [n for n in range(10) if moves.in_pass(n, 10, parted=True)] == list(range(9))
    assert not moves.in_pass(0, 1)


def test_a_sample_is_taken_from_minibatches_in_parts_and_a_quarter_of_it_checks():
    family = sj.Categorical(2)
    batch = family.validate(sj.Sequences.from_list([[0, 1]] * 8))
    engine = Engine(kernels.cpu, 1)
    sample = Sample.draw([batch, iter([batch, batch])], family, 39, 100, engine, 3)
    assert (sample.n_sequences, sample.n_steps, sample.check_steps) == (20, 40, 10)
    assert sample.copies == 4.0
    assert sum(len(chunk.sequences) for chunk in sample.fitted) == 15
    alone = Sample.draw([batch[:1]], family, 100, 1, engine, 3)
    assert (alone.check, alone.copies) == ([], 1.0)


def test_a_move_that_harms_fresh_sequences_is_refused(merged, gaussian):
    phase = phase_of(merged, gaussian, 1e18)
    fit, n = phase.present, len(phase.present.check)
    assert n >= 8
    noise = np.random.default_rng(0).normal(size=n)
    noise -= noise.mean()

    def proposed(gain, fresh, error=0.0):
        """Make a proposal with a change a step of fresh sequences, and its standard error."""
        change = fresh / n + error / np.sqrt(n) * noise / noise.std()
        check = fit.check + phase.sample.check_steps * change
        return fit._replace(bound=fit.bound + gain, check=check)

    def judge(*args):
        phase.present, phase._baselines = fit, {0: fit}
        return phase.judge("merge", [[0, 1]], proposed(*args), 0, None)

    assert not judge(10.0, -1.1 * HARM)
    assert not judge(-1.0, 0.0)
    assert not judge(10.0, -4.5 * HARM, HARM)
    assert phase.lost == 0.0
    assert judge(10.0, -0.6 * HARM)
    assert not judge(10.0, -0.6 * HARM)  # all of them together
    assert judge(10.0, -3.0 * HARM, HARM)  # may be chance
    assert phase.lost == pytest.approx(-3.6 * HARM)
    assert phase.variance == pytest.approx(HARM**2)
    assert judge(10.0, 5.0 * HARM)  # better ones pay for it, but not ahead
    assert phase.lost == 0.0


def test_few_sequences_do_not_tell_what_is_chance(merged, gaussian):
    phase = phase_of(merged, gaussian, 1e18)
    few = phase.present._replace(check=np.zeros(2))
    phase._baselines = {0: few}
    for size, harmless in ((3.9, True), (4.1, False)):
        change = np.array([1.0, -1.0]) - 0.5 * size * HARM * phase.sample.check_steps
        assert phase.compare(few._replace(check=change), 0).harmless == harmless


def test_what_moves_cost_goes_on_counting_a_tenth_less_with_every_pass(merged, gaussian):
    posterior, state = replace(merged._posterior), MoveState(1e18, 1000, lost=-0.5)
    family = merged.emission_
    data = family.validate(gaussian[1].train)
    Moves(5, 0, merged._engine(), state=state).phase(posterior, family, [data], 500)
    assert state.lost == pytest.approx(-0.5 * 0.9**2)
    assert (state.variance, state.n_phases) == (0.0, 1)


def test_what_changes_nothing_is_tried_less_and_less_often(merged, gaussian):
    family = merged.emission_
    data = family.validate(gaussian[1].train)

    def tried(quiet, sequences):
        posterior, state = replace(merged._posterior), MoveState(1e18, sequences, quiet=quiet)
        Moves(5, 0, merged._engine(), state=state).phase(posterior, family, [data], 500)
        return state.n_phases == 1

    assert not tried(0, 499)
    assert tried(0, 500)
    assert not tried(3, 999)
    assert tried(3, 1000)


def test_the_work_of_a_split_is_that_of_all_its_local_steps(merged, gaussian):
    plan = SplitPlan(2, 5)
    assert plan.room(4, 30) == 4
    assert plan.room(4, 5) == 1
    assert plan.room(5, 4) == 0
    # The phase has a first fit; both models then get five steps, and two more after merges.
    expected = (2 + 8) * step_work(4) + (5 + 1 + 2 * 2) * step_work(8)
    assert split_work(4, 4, plan) == expected
    sample = phase_of(merged, gaussian, 1.0).sample
    other = other_steps(merged.emission_.n_statistics)
    budget = split_work(5, 5, plan) * (sample.n_steps + other)
    phase = phase_of(merged, gaussian, budget, most_states=10, other_steps=other)
    phase._split()
    assert len(phase.moves) == 1
    assert phase.budget >= 0.0


def test_what_a_device_launches_counts_where_data_are_many():
    here, there = (
        [other_steps(5, total, on_device=on_device) for total in (1e5, 1e8)]
        for on_device in (False, True)
    )
    assert here[0] == here[1] == there[0] < 0.01 * there[1]


def test_training_earns_a_share_of_its_work_for_moves():
    state = MoveState()
    state.earn(1000, 30, 5)
    state.earn(500, 20, 5)
    assert state.sequences == 50
    expected = MOVE_SHARE * (training_work(1000, 5) + training_work(500, 5))
    assert state.budget == pytest.approx(expected)
    assert MOVE_SHARE / (1.0 + MOVE_SHARE) < 0.2


def phase_of(model, gaussian, budget, **options):
    family = model.emission_
    options = {"most_states": model.n_states_, "start": model._posterior} | options
    data, engine = family.validate(gaussian[1].train), model._engine()
    sample = Sample.draw([data], family, 1e9, 500, engine, options["most_states"])
    rng = np.random.default_rng(0)
    return Phase(family=family, sample=sample, engine=engine, rng=rng, budget=budget, **options)


def test_a_baseline_goes_on_from_the_last_one(merged, gaussian):
    phase = phase_of(merged, gaussian, 1e18)
    first, third = phase.baseline(1), phase.baseline(3)
    direct = phase.fit(phase.present.posterior, 3)
    # Steps after which nothing is judged take all of the sample at once.
    assert third.bound == pytest.approx(direct.bound, rel=1e-8)
    np.testing.assert_allclose(third.check, direct.check, rtol=1e-6)
    assert phase.baseline(1) is first
    assert phase.baseline(0) is phase.present
    spent = phase.budget
    assert phase.affords(5, 3, 3)
    assert phase.baseline(3) is third
    assert phase.budget == spent


def chain_of(phase):
    return list(merge_chain(phase.family, phase.present.posterior, phase.present.shared))


def test_a_chain_goes_on_as_if_it_had_begun_with_the_merged_states(merged, gaussian):
    phase = phase_of(merged, gaussian, 1e18)
    states = MergedStates.of(phase.family, phase.present.posterior, phase.present.shared)
    shared = states.shared
    for _ in range(3):
        weights = states.merge(states.best())
        shared = weights @ shared @ weights.T
        fresh = MergedStates(
            states.family, states.counts, states.transitions, states.emissions, shared
        )
        np.testing.assert_allclose(states.log_normalizers, fresh.log_normalizers)
        np.testing.assert_allclose(states.doubts, np.triu(fresh.doubts, 1), rtol=1e-9)
        # Rows of other pairs have the same terms but those of two columns that have become one.
        np.testing.assert_allclose(states.gains[0], fresh.gains[0], rtol=0.2)


def test_states_are_merged_where_the_bound_is_highest(merged, gaussian):
    """Each of five states is split in two parts; the chain finds them, and stops there."""
    parts = np.repeat(np.eye(5), 2, axis=0) * 0.5
    doubled = merged._posterior.regrouped(parts)
    phase = phase_of(merged, gaussian, 1e18, start=doubled, most_states=10)
    phase._merge()
    assert phase.n_states == 5
    accepted = [move for move in phase.moves if move.accepted]
    pairs = sorted(group for move in accepted[:1] for group in move.states)
    assert pairs == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert phase.moves[-1].gain < 0.0


@pytest.mark.parametrize("best", range(5))
def test_as_many_merges_are_made_as_gain_something(merged, gaussian, best):
    phase = phase_of(merged, gaussian, 1e18)
    chain, fit = chain_of(phase), phase.present

    def regrouped(weights):
        n_merges = 5 - len(weights)
        gain = n_merges if n_merges <= best else -1.0
        return fit._replace(bound=fit.bound + gain), 0

    phase._regrouped = regrouped
    assert phase._merge_along(chain) == (best > 0)
    made = [5 - sum(len(group) - 1 for group in m.states) for m in phase.moves if m.accepted]
    assert made == [5 - best] * (best > 0)


def test_a_search_that_the_budget_ends_is_not_finished(merged, gaussian):
    phase = phase_of(merged, gaussian, 1e18)
    chain = chain_of(phase)
    phase.budget = 0.0
    assert not phase._merge_along(chain)
    assert phase.unfinished
    assert not phase.moves


@pytest.mark.parametrize("grows", [False, True])
def test_a_start_that_grows_wants_more_states_and_every_split_is_recorded(merged, gaussian, grows):
    phase = phase_of(merged, gaussian, 1e18, most_states=8, grows=grows)
    better = phase.present._replace(bound=phase.present.bound + 1e6)
    phase._pruned = lambda proposed, n_times: (better, n_times)
    assert phase._split() == (not grows)
    (move,) = phase.moves
    assert (move.kind, move.accepted, move.n_states) == ("split", not grows, 5)
    assert move.gain > 0.0


def test_a_restart_forgets_which_state_follows_which(merged, gaussian):
    phase = phase_of(merged, gaussian, 1e18)
    seen = []
    phase.fit = lambda posterior, *args, **options: seen.append(posterior) or phase.present
    phase._restart()
    rows = seen[0].counts.transitions / seen[0].counts.transitions.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rows, np.tile(merged.state_shares_, (5, 1)), rtol=0.02)
    for found, own in zip(seen[0].counts, phase.present.posterior.counts, strict=True):
        np.testing.assert_allclose(found.sum(), own.sum())


def test_a_restart_makes_one_state_of_two_that_take_turns():
    family, rng = sj.Categorical(4, 0.1), np.random.default_rng(0)
    data = family.validate(sj.Sequences.from_list([rng.integers(0, 4, 20) for _ in range(200)]))
    turns = np.array([[1.0, 1800.0], [1800.0, 1.0]])
    statistics = sj.Statistics(np.full(2, 100.0), turns, np.full((2, 4), 500.0))
    posterior = Posterior.from_statistics(statistics, HDP.make(2), "float64")
    posterior = replace(posterior, transitions=posterior.transitions.refitted(posterior.counts))
    engine = Engine(kernels.cpu, 1)
    sample = Sample.draw([data], family, 1e9, 200, engine, 2)
    phase = Phase(posterior, family, sample, engine, rng, 1e18, 2, stage=2)
    phase.run()
    first = phase.moves[0]
    assert (first.kind, first.accepted, first.n_states) == ("restart", True, 1)


def test_nothing_takes_the_place_of_states_that_the_sample_does_not_have(
    merged, gaussian, monkeypatch
):
    phase = phase_of(merged, gaussian, 1e18, most_states=10)
    monkeypatch.setattr(Phase, "missed", {0})
    phase._split()
    phase._restart()
    phase._dissolve()
    assert not phase.moves


def test_a_state_between_others_is_the_first_to_be_left_out(merged, gaussian):
    weights = np.vstack([np.eye(5), [0.3, 0.3, 0.0, 0.0, 0.0]])
    weights[[0, 1], [0, 1]] = 0.7
    between = merged._posterior.regrouped(weights)
    sample = phase_of(merged, gaussian, 1e18, most_states=6).sample
    rng = np.random.default_rng(0)
    engine = merged._engine()
    phase = Phase(between, merged.emission_, sample, engine, rng, 1e18, 6, stage=2)
    phase._dissolve()
    assert phase.moves[0].kind == "delete"
    assert phase.moves[0].states == [[5]]
    assert phase.moves[0].accepted
    assert phase.groups is None  # its steps went where the sample says


def test_segments_give_states_symbols_that_occur_together():
    family = sj.Categorical(6)
    data = family.validate(sj.Sequences.from_list([[0, 1, 0, 1, 0], [2, 3], [-1, -1], [5]]))
    rng = np.random.default_rng(0)
    statistics = family.segment_statistics(data, 50, 1000.0, rng)
    np.testing.assert_allclose(statistics.sum(), 1000.0)
    overall = np.bincount([0, 1, 0, 1, 0, 2, 3, 5], minlength=6) / 8
    own = statistics / statistics.sum(axis=1, keepdims=True) - 0.5 * overall
    kinds = {tuple(np.flatnonzero(row > 1e-9)) for row in own}
    assert kinds == {(0, 1), (2, 3), (5,), (0, 1, 2, 3, 5)}


# ---- states that last ---------------------------------------------------------------------------


def test_stickiness_is_the_extra_prior_of_staying():
    X = [[0, 1, 2, 0]]
    plain = sj.HMM(3, sj.Categorical(3), delay=1e12, forgetting_rate=1.0, random_state=0).fit(X)
    sticky = sj.HMM(3, sj.Categorical(3), delay=1e12, forgetting_rate=1.0, random_state=0,
                    stickiness=1e6).fit(X)  # fmt: skip
    assert np.diag(sticky.transmat_).min() > 0.99 > np.diag(plain.transmat_).max()
    assert sticky.dwell_times_.min() > 100


@pytest.mark.parametrize("stickiness", [50.0, "learned"])
@pytest.mark.parametrize("model", [sj.HMM, sj.HDPHMM])
def test_sticky_states_give_recordings_their_segments(model, stickiness, tmp_path):
    family, drawn, true_segments, offsets = recording(50, 0)
    fitted = model(8, family, batch_size=1, n_passes=40, random_state=0, stickiness=stickiness,
                   moves="auto")  # fmt: skip
    fitted.fit(drawn.train)
    found = segments(np.asarray(fitted.predict(drawn.test).values), offsets)
    assert abs(len(found) / len(true_segments) - 1) < 0.15
    assert np.median(fitted.dwell_times_) > 20
    fitted.save(tmp_path / "m.sojourn")
    same = sj.load(tmp_path / "m.sojourn")
    np.testing.assert_array_equal(same.transmat_, fitted.transmat_)
    if model is sj.HDPHMM:
        assert fitted.hdp_.stickiness > fitted.hdp_.alpha / fitted.n_states_


def lasting_counts(n_states):
    rng = np.random.default_rng(4)
    rows = rng.dirichlet(np.full(n_states, 0.3), n_states) + 4.0 * np.eye(n_states)
    counts = np.array([rng.multinomial(200, row / row.sum()) for row in rows])
    return Rows(np.full(n_states, 1.0), counts.astype(float))


@pytest.mark.parametrize("kappa", [0.0, 4.0])
def test_rows_normalised_by_their_concentration_have_that_of_staying_in_it(kappa):
    counts = Rows(np.arange(1.0, 4.0), np.ones((3, 3)))
    hdp = HDP.make(3, stickiness=kappa, normalize_rows=False).refitted(counts)
    found = hdp.concentrations(counts)
    assert found.start_total == pytest.approx(hdp.alpha.mean + 6.0)
    np.testing.assert_allclose(found.totals, hdp.alpha.mean + kappa + 3.0)
    stays = found.rows.transitions - found.rows.transitions[[1, 2, 0]]
    np.testing.assert_allclose(np.diag(stays), kappa)


def test_learned_stickiness_is_the_best_one_for_the_counts_of_a_finite_model():
    counts = lasting_counts(40)
    prior = StickyDirichlet(Dirichlet.make(40, None, 0.02))
    for _ in range(30):
        prior = prior.refitted(counts)

    def loss(log_extra):
        cells = Dirichlet.make(40, None, 0.02, np.exp(log_extra))
        return -cells.collapsed_bound(counts) - stats.gamma(1.0, scale=10).logpdf(np.exp(log_extra))

    best = np.exp(minimize_scalar(loss, bounds=(-5, 5), method="bounded").x)
    assert prior.stickiness.geometric_mean == pytest.approx(best, rel=0.05)
    assert best > 1.0  # and not that of the prior counts


def test_learned_stickiness_is_the_best_one_for_the_counts_of_an_hdp():
    counts = lasting_counts(40)
    hdp, cells = HDP.make(40, learn_stickiness=True), np.vstack(counts)
    certain = np.where(cells > 0, -np.inf, 0.0)  # whole counts, without a doubt
    for _ in range(300):
        hdp = hdp._moved(cells, (certain, np.full(40, -np.inf), 0.0 * cells), 1.0)
        hdp = replace(hdp, n_updates=1)
    weights = hdp.update_prior / hdp.alpha.geometric_mean

    def loss(logs):
        alpha, extra = np.exp(logs)
        total = alpha + extra
        cells = Rows(total * weights, alpha * weights + extra * np.eye(40))
        evidence = log_row_evidence(cells, Rows(np.asarray(total), np.full(40, total)), counts)
        # The priors of α + κ and κ / (α + κ), as densities of α and κ.
        return -evidence - stats.gamma(1.0, scale=10).logpdf(total) + np.log(total)

    alpha, extra = np.exp(minimize(loss, [0.0, 0.0], method="Nelder-Mead").x)
    summary = hdp.summary()
    assert summary.stickiness == pytest.approx(extra, rel=0.1)
    assert summary.alpha == pytest.approx(alpha, rel=0.25)
    assert extra > 1.0


# ---- matching -----------------------------------------------------------------------------------


def test_models_are_matched_on_data(merged, gaussian):
    _, drawn = gaussian
    assert sj.match_states(merged, merged, drawn.test).agreement == 1.0
    order = np.random.default_rng(0).permutation(merged.n_states_)
    path = merged.predict(drawn.test).values
    np.testing.assert_array_equal(sj.match_states(path, order[path]).states, order)
    assert sj.match_states(merged, list(drawn.test_states), drawn.test).overlaps.sum() == len(path)


def test_bad_matches_are_refused(merged):
    with pytest.raises(ValueError, match="needs data"):
        sj.match_states(merged, [0, 1])
    with pytest.raises(ValueError, match="3 and 2 steps"):
        sj.match_states([0, 1, 1], [0, 1])
    with pytest.raises(ValueError, match="whole numbers from 0"):
        sj.match_states([0, -1], [0, 1])
