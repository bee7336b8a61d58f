"""The number of states is found, by moves that the bound judges."""

from dataclasses import fields, replace

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import minimize, minimize_scalar
from scipy.special import xlogy

import sojourn as sj
from experiments.number_of_states_tables import PAGE, updated
from sojourn import kernels, results
from sojourn.backends.cpu import CpuBackend
from sojourn.inference.posterior import Posterior
from sojourn.kernels.overlap import shared_entropies
from sojourn.models.plan import plan_training
from sojourn.models.start import compute_for
from sojourn.moves.budget import MoveState, overhead_steps, step_work, training_work
from sojourn.moves.delete import dissolve
from sojourn.moves.judge import Judge, Move
from sojourn.moves.merge import merge_best, merge_states
from sojourn.moves.pairs import Merge, MergedStates, merge_weights, successive_merges
from sojourn.moves.restart import restart_transitions
from sojourn.moves.rounds import Moves, RoundKind, propose
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.split import SplitPlan, split_posterior, split_states
from sojourn.moves.workbench import Workbench
from sojourn.transitions import HDP, Dirichlet, Rows, StickyDirichlet
from sojourn.transitions.base import log_row_evidence
from sojourn.transitions.tables import Occurrence
from tests.support.cluster.data import write_parquet
from tests.support.cluster.here import Here
from tests.support.known_states import recording, segments, simulate
from tests.support.proposals import moves_of
from tools.thresholds import thresholds

SETTINGS = {"batch_size": 50, "n_passes": 40}
MOVES = MoveSettings()
TOLERANCE = MOVES.held_out_tolerance


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
    model = sj.HDPHMM(
        12, family, moves=sj.MoveSettings(init_states=2), random_state=1, **SETTINGS
    ).fit(drawn.train)
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
    moves = sj.MoveSettings(init_states=init_states)
    options = {"moves": moves, "random_state": 3, "batch_size": 50, "n_passes": 20}
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
    assert resumed.fitted_.move_state == whole.fitted_.move_state
    np.testing.assert_array_equal(resumed.transmat_, whole.transmat_)


def test_a_model_with_fewer_states_than_its_bound_is_saved_and_learns_on(
    merged, gaussian, tmp_path
):
    _, drawn = gaussian
    merged.save(tmp_path / "m.sojourn")
    same, copy = (sj.load(tmp_path / "m.sojourn") for _ in range(2))
    assert (same.n_states_, same.n_states) == (merged.n_states_, 12)
    assert same.fitted_.move_state == merged.fitted_.move_state
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
    monkeypatch.setattr(results, "Cluster", Here)
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
    backend = compute_for(model, plan_training(model, 10_000, 1e6), remote=True).backend()
    assert isinstance(backend, CpuBackend)
    assert backend.kernel is kernels.cpu


def test_moves_stay_within_their_share_of_the_work(gaussian):
    family, drawn = gaussian
    model = sj.HDPHMM(10, family, random_state=1, **SETTINGS).fit(drawn.train)
    assert model.fitted_.move_state.budget >= 0.0
    assert moves_of(model)


def test_a_model_never_grows_beyond_its_bound(gaussian):
    family, drawn = gaussian
    model = sj.HDPHMM(
        3, family, moves=sj.MoveSettings(init_states=2), random_state=0, **SETTINGS
    ).fit(drawn.train)
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
        sj.HDPHMM(3, sj.Categorical(4, prior), moves=sj.MoveSettings(init_states=2)).fit(X)


def test_a_small_start_has_at_least_one_state():
    with pytest.raises(ValueError, match="init_states must be a whole number"):
        sj.HDPHMM(3, sj.Categorical(3), moves=sj.MoveSettings(init_states=0)).fit([[0, 1, 2]])


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"moves": "always"}, "neither 'auto', None nor MoveSettings"),
        ({"moves": sj.MoveSettings(init_states=9)}, "more than n_states"),
        ({"moves": sj.MoveSettings(init_states=2), "inference": "svi"}, "needs moves='auto'"),
        ({"stickiness": -1.0}, "stickiness=-1.0 is neither a finite number"),
        ({"stickiness": "much"}, "stickiness='much' is neither a finite number"),
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
    prior = model.fitted_.posterior.emissions.prior
    assert prior.n_sequences >= 600
    assert prior.of_seen != 0.1
    model.save(tmp_path / "m.sojourn")
    same = sj.load(tmp_path / "m.sojourn")
    assert same.fitted_.posterior.emissions.prior.of_seen == prior.of_seen


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
    posterior = merged.fitted_.posterior
    after = posterior.regrouped(merge_weights(posterior.n_states, [(1, 3)]))
    counts = posterior.counts.transitions
    assert np.isclose(after.counts.transitions[1, 1], counts[np.ix_([1, 3], [1, 3])].sum())
    assert np.isclose(after.counts.transitions.sum(), counts.sum())
    emissions = posterior.emissions.dense()
    np.testing.assert_allclose(after.emissions.dense()[1], emissions[1] + emissions[3], rtol=1e-6)
    tables = posterior.transitions.tables
    assert np.isclose(after.transitions.tables[1], tables[1] + tables[3])


def test_a_split_keeps_the_mass_and_tells_the_parts_apart(merged, gaussian):
    family, posterior = merged.emission_, merged.fitted_.posterior
    n_states = posterior.n_states
    own = family.validate(gaussian[1].train[:50])
    rng = np.random.default_rng(0)
    after = split_posterior(posterior, family, lambda k: own, [[0, n_states]], rng, MOVES)
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
        after = split_posterior(posterior, family, lambda k: own, [[0, 2, 3]], rng, MOVES)
        parts = after.emissions.dense()[[0, 2, 3]]
        np.testing.assert_allclose(after.emissions.dense()[1], statistics.emissions[1])
        if np.allclose(parts.sum(axis=0), statistics.emissions[0]):
            assert np.ptp(parts, axis=0).min() > 1e-3
            shared += 1
        by_segments += not parts[:, 4:].any()  # symbols that its steps do not have
    assert shared + by_segments == 20
    assert min(shared, by_segments) >= 5


def test_rounds_wait_for_states_to_differ_and_leave_time_to_settle():
    moves = Moves(30, 0, None)
    assert [n for n in range(10) if moves.in_pass(n, 10)] == [3, 4, 5, 6, 7, 8]
    assert [n for n in range(5) if moves.in_pass(n, 5)] == [2, 3]
    assert not any(moves.in_pass(n, 3) for n in range(3))
    assert [n for n in range(80) if moves.in_pass(n, 80)] == list(range(11, 72))
    assert [n for n in range(80) if moves.in_pass(n, 80, slow=True)] == list(range(31, 72))
    assert [n for n in range(10) if moves.in_pass(n, 10, ready=True)] == list(range(9))
    assert not moves.in_pass(0, 1)


def test_a_sample_is_taken_from_minibatches_in_parts_and_a_quarter_of_it_is_held_out():
    family = sj.Categorical(2)
    batch = family.validate(sj.Sequences.from_list([[0, 1]] * 8))
    bench = Workbench(family, CpuBackend(kernels.cpu, 1))
    sample = Sample.draw([batch, iter([batch, batch])], 39, 100, bench, 3, MOVES)
    assert (sample.n_sequences, sample.n_steps, sample.held_out_steps) == (20, 40, 10)
    assert sample.copies == 4.0
    assert sum(len(chunk.sequences) for chunk in sample.fitted) == 15
    alone = Sample.draw([batch[:1]], 100, 1, bench, 3, MOVES)
    assert (alone.held_out, alone.copies) == ([], 1.0)


def test_a_move_that_makes_held_out_sequences_less_likely_is_refused(merged, gaussian):
    judge = judge_of(merged, gaussian, 1e18)
    fit, n = judge.present, len(judge.present.held_out)
    assert n >= 8
    noise = np.random.default_rng(0).normal(size=n)
    noise -= noise.mean()

    def proposed(gain, fresh, error=0.0):
        """Make a proposal with a change a step of fresh sequences, and its standard error."""
        change = fresh / n + error / np.sqrt(n) * noise / noise.std()
        held_out = fit.held_out + judge.sample.held_out_steps * change
        return fit._replace(bound=fit.bound + gain, held_out=held_out)

    def decide(*args):
        judge.present, judge._baselines = fit, {0: fit}
        return judge.decide("merge", [[0, 1]], proposed(*args), 0, None)

    assert not decide(10.0, -1.1 * TOLERANCE)
    assert not decide(-1.0, 0.0)
    assert not decide(10.0, -4.5 * TOLERANCE, TOLERANCE)
    assert judge.held_out_change == 0.0
    assert decide(10.0, -0.6 * TOLERANCE)
    assert not decide(10.0, -0.6 * TOLERANCE)  # all of them together
    assert decide(10.0, -3.0 * TOLERANCE, TOLERANCE)  # may be chance
    assert judge.held_out_change == pytest.approx(-3.6 * TOLERANCE)
    assert judge.held_out_variance == pytest.approx(TOLERANCE**2)
    assert decide(10.0, 5.0 * TOLERANCE)  # better ones pay for it, but not ahead
    assert judge.held_out_change == 0.0


def test_what_needless_states_fit_by_chance_is_not_a_loss(merged, gaussian):
    judge = judge_of(merged, gaussian, 1e18)
    many, n = judge.present, len(judge.present.held_out)
    n_steps = judge.sample.copies * judge.sample.n_steps
    noise = 0.5 * many.posterior.n_states * np.log(n_steps / many.posterior.n_states) / n_steps

    def fresh(posterior, gain):
        held_out = many.held_out - noise * judge.sample.held_out_steps / n
        proposed = many._replace(posterior=posterior, bound=many.bound + gain, held_out=held_out)
        return judge.compare(proposed, 0).fresh

    # A state of P parameters and n steps: P/2 nats by chance, for P/2 (log n - 1) of the bound.
    log_n = np.log(n_steps / many.posterior.n_states)
    gain = noise * n_steps * (log_n - 1.0)
    fewer = many.posterior.regrouped(merge_weights(many.posterior.n_states, [(0, 1)]))
    assert fresh(fewer, gain) == pytest.approx(0.0, abs=1e-12)
    assert fresh(fewer, -gain) == pytest.approx(-noise)  # what loses has nothing to be excused
    assert fresh(many.posterior, gain) == pytest.approx(-noise)


def test_few_sequences_do_not_tell_what_is_chance(merged, gaussian):
    judge = judge_of(merged, gaussian, 1e18)
    few = judge.present._replace(held_out=np.zeros(2))
    judge._baselines = {0: few}
    for size, is_safe in ((3.9, True), (4.1, False)):
        change = np.array([1.0, -1.0]) - 0.5 * size * TOLERANCE * judge.sample.held_out_steps
        assert judge.compare(few._replace(held_out=change), 0).is_safe == is_safe


def test_what_moves_cost_goes_on_counting_a_tenth_less_with_every_pass(merged, gaussian):
    posterior, state = (
        replace(merged.fitted_.posterior),
        MoveState(1e18, 1000, held_out_change=-0.5),
    )
    family = merged.emission_
    data = family.validate(gaussian[1].train)
    Moves(5, 0, merged.fitted_.compute.backend(), state=state).run_round(
        posterior, family, [data], 500
    )
    assert state.held_out_change == pytest.approx(-0.5 * 0.9**2)
    assert (state.held_out_variance, state.n_rounds) == (0.0, 1)


def test_what_changes_nothing_is_tried_less_and_less_often(merged, gaussian):
    family = merged.emission_
    data = family.validate(gaussian[1].train)

    def tried(in_vain, sequences):
        posterior = replace(merged.fitted_.posterior)
        state = MoveState(1e18, sequences, rounds_without_change=in_vain)
        Moves(5, 0, merged.fitted_.compute.backend(), state=state).run_round(
            posterior, family, [data], 500
        )
        return state.n_rounds == 1

    assert not tried(0, 499)
    assert tried(0, 500)
    assert not tried(3, 999)
    assert tried(3, 1000)


def test_the_work_of_a_split_is_that_of_all_its_local_steps(merged, gaussian):
    plan = SplitPlan(2, 5)
    assert plan.room(4, 30) == 4
    assert plan.room(4, 5) == 1
    assert plan.room(5, 4) == 0
    # The round has a first fit; both models then get five steps, and two more after merges.
    expected = (2 + 8) * step_work(4, MOVES) + (5 + 1 + 2 * 2) * step_work(8, MOVES)
    assert plan.work(4, 4, MOVES) == expected
    sample = judge_of(merged, gaussian, 1.0).sample
    other = overhead_steps(merged.emission_.n_statistics, 0.0, MOVES, slow_launches=False)
    budget = plan.work(5, 5, MOVES) * (sample.n_steps + other)
    judge = judge_of(merged, gaussian, budget, most_states=10, overhead_steps=other)
    split_states(judge, np.random.default_rng(0))
    assert len(judge.moves) == 1
    assert judge.fitter.budget >= 0.0


def test_what_a_device_launches_counts_where_data_are_many():
    here, there = (
        [overhead_steps(5, total, MOVES, slow_launches=slow) for total in (1e5, 1e8)]
        for slow in (False, True)
    )
    assert here[0] == here[1] == there[0] < 0.01 * there[1]


def test_training_earns_a_share_of_its_work_for_moves():
    state = MoveState()
    state.earn(1000, 30, 5, 1.0, MOVES)
    state.earn(500, 20, 5, 0.5, MOVES)
    assert state.n_sequences == 50
    expected = MOVES.move_share * (training_work(1000, 5, MOVES) + training_work(500, 5, MOVES))
    assert state.budget == pytest.approx(expected)
    assert MOVES.move_share / (1.0 + MOVES.move_share) < 0.2


def judge_of(model, gaussian, budget, *, start=None, most_states=None, overhead_steps=0.0):
    family, most_states = model.emission_, most_states or model.n_states_
    data, bench = (
        family.validate(gaussian[1].train),
        Workbench(family, model.fitted_.compute.backend()),
    )
    sample = Sample.draw([data], 1e9, 500, bench, most_states, MOVES)
    fitter = SampleFitter(sample, bench, MOVES, budget, most_states, overhead_steps)
    return Judge.begin(fitter, start or model.fitted_.posterior)


def test_a_baseline_goes_on_from_the_last_one(merged, gaussian):
    judge = judge_of(merged, gaussian, 1e18)
    first, third = judge.baseline(1), judge.baseline(3)
    direct = judge.fitter.fit(judge.present.posterior, 3)
    # Steps after which nothing is judged take all of the sample at once.
    assert third.bound == pytest.approx(direct.bound, rel=1e-8)
    np.testing.assert_allclose(third.held_out, direct.held_out, rtol=1e-6)
    assert judge.baseline(1) is first
    assert judge.baseline(0) is judge.present
    spent = judge.fitter.budget
    assert judge.affords(5, 3, 3)
    assert judge.baseline(3) is third
    assert judge.fitter.budget == spent


def merges_of(judge):
    fit = judge.present
    return list(successive_merges(judge.family, fit.posterior, fit.shared, MOVES))


def test_successive_merges_go_on_as_if_they_had_begun_with_the_merged_states(merged, gaussian):
    judge = judge_of(merged, gaussian, 1e18)
    fit = judge.present
    states = MergedStates.of(judge.family, fit.posterior, fit.shared, MOVES)
    shared = states.shared
    for _ in range(3):
        weights = states.merge(states.best())
        shared = weights @ shared @ weights.T
        fresh = MergedStates(
            states.family, MOVES, states.counts, states.transitions, states.emissions, shared
        )
        np.testing.assert_allclose(states.log_normalizers, fresh.log_normalizers)
        np.testing.assert_allclose(
            states.entropy_bounds, np.triu(fresh.entropy_bounds, 1), rtol=1e-9
        )
        # Rows of other pairs have the same terms but those of two columns that have become one.
        np.testing.assert_allclose(states.gains[0], fresh.gains[0], rtol=0.2)


def test_states_are_merged_where_the_bound_is_highest(merged, gaussian):
    """Each of five states is split in two parts; successive merges find them, and stop there."""
    parts = np.repeat(np.eye(5), 2, axis=0) * 0.5
    doubled = merged.fitted_.posterior.regrouped(parts)
    judge = judge_of(merged, gaussian, 1e18, start=doubled, most_states=10)
    merge_states(judge)
    assert judge.n_states == 5
    accepted = [move for move in judge.moves if move.accepted]
    pairs = sorted(group for move in accepted[:1] for group in move.states)
    assert pairs == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert judge.moves[-1].gain < 0.0


def test_halves_of_a_state_become_one_though_other_states_seem_more_alike(
    merged, gaussian, monkeypatch
):
    parts = np.delete(np.repeat(np.eye(5), 2, axis=0), [3, 5, 7, 9], axis=0)
    parts[:2] *= 0.5
    start = merged.fitted_.posterior.regrouped(parts)
    judge = judge_of(merged, gaussian, 1e18, start=start, most_states=6)

    def wrong(family, posterior, *rest, at_best=False, **options):
        """Propose to merge states that differ, before all others."""
        if at_best:
            return successive_merges(family, posterior, *rest, at_best=True, **options)
        n_states = posterior.n_states
        return [Merge(0.0, 0.0, merge_weights(n_states, [(n_states - 2, n_states - 1)]))]

    monkeypatch.setattr("sojourn.moves.merge.successive_merges", wrong)
    merge_states(judge)
    found = [(move.states, move.accepted) for move in judge.moves]
    assert found == [([[4, 5]], False), ([[0, 1]], True), ([[3, 4]], False)]
    assert judge.moves[0].fresh < -MOVES.hopeless_cost * MOVES.held_out_tolerance


@pytest.mark.parametrize("best", range(5))
def test_as_many_merges_are_made_as_gain_something(merged, gaussian, best):
    judge = judge_of(merged, gaussian, 1e18)
    merges, fit = merges_of(judge), judge.present

    def regrouped(weights):
        n_merges = 5 - len(weights)
        gain = n_merges if n_merges <= best else -1.0
        return fit._replace(bound=fit.bound + gain), 0

    judge.fit_regrouped = regrouped
    assert merge_best(judge, merges) == (best > 0)
    made = [5 - sum(len(group) - 1 for group in m.states) for m in judge.moves if m.accepted]
    assert made == [5 - best] * (best > 0)


def test_a_search_that_the_budget_ends_is_not_finished(merged, gaussian):
    judge = judge_of(merged, gaussian, 1e18)
    merges = merges_of(judge)
    judge.fitter.budget = 0.0
    assert not merge_best(judge, merges)
    assert judge.ran_out
    assert not judge.moves


@pytest.mark.parametrize("grows", [False, True])
def test_a_start_that_grows_wants_more_states_and_every_split_is_recorded(
    merged, gaussian, grows, monkeypatch
):
    judge = judge_of(merged, gaussian, 1e18, most_states=8)
    better = judge.present._replace(bound=judge.present.bound + 1e6)
    pruned = "sojourn.moves.split.prune"
    monkeypatch.setattr(pruned, lambda judge, proposed, n_local: (better, n_local))
    assert split_states(judge, np.random.default_rng(0), growing=grows) == (not grows)
    (move,) = judge.moves
    assert (move.kind, move.accepted, move.n_states) == ("split", not grows, 5)
    assert move.gain > 0.0


def test_a_restart_forgets_which_state_follows_which(merged, gaussian):
    judge = judge_of(merged, gaussian, 1e18)
    seen = []
    judge.fitter.fit = lambda posterior, *args, **options: seen.append(posterior) or judge.present
    restart_transitions(judge)
    rows = seen[0].counts.transitions / seen[0].counts.transitions.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(rows, np.tile(merged.state_shares_, (5, 1)), rtol=0.02)
    for found, own in zip(seen[0].counts, judge.present.posterior.counts, strict=True):
        np.testing.assert_allclose(found.sum(), own.sum())


def test_a_restart_makes_one_state_of_two_that_take_turns():
    family, rng = sj.Categorical(4, 0.1), np.random.default_rng(0)
    data = family.validate(sj.Sequences.from_list([rng.integers(0, 4, 20) for _ in range(200)]))
    turns = np.array([[1.0, 1800.0], [1800.0, 1.0]])
    statistics = sj.Statistics(np.full(2, 100.0), turns, np.full((2, 4), 500.0))
    posterior = Posterior.from_statistics(statistics, HDP.make(2), "float64")
    posterior = replace(posterior, transitions=posterior.transitions.refitted(posterior.counts))
    bench = Workbench(family, CpuBackend(kernels.cpu, 1))
    sample = Sample.draw([data], 1e9, 200, bench, 2, MOVES)
    judge = Judge.begin(SampleFitter(sample, bench, MOVES, 1e18, 2), posterior)
    propose(RoundKind.RESTART, judge, rng)
    first = judge.moves[0]
    assert (first.kind, first.accepted, first.n_states) == ("restart", True, 1)


def test_nothing_takes_the_place_of_states_that_the_sample_does_not_have(
    merged, gaussian, monkeypatch
):
    judge = judge_of(merged, gaussian, 1e18, most_states=10)
    monkeypatch.setattr(Judge, "unseen_states", lambda judge: {0})
    split_states(judge, np.random.default_rng(0))
    restart_transitions(judge)
    dissolve(judge)
    assert not judge.moves


def test_a_state_between_others_is_the_first_to_be_left_out(merged, gaussian):
    weights = np.vstack([np.eye(5), [0.3, 0.3, 0.0, 0.0, 0.0]])
    weights[[0, 1], [0, 1]] = 0.7
    between = merged.fitted_.posterior.regrouped(weights)
    judge = judge_of(merged, gaussian, 1e18, start=between, most_states=6)
    dissolve(judge)
    assert judge.moves[0].kind == "delete"
    assert judge.moves[0].states == [[5]]
    assert judge.moves[0].accepted
    assert judge.groups is None  # its steps went where the sample says


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
    certain = Occurrence(cells, cells[1:].sum(axis=1))  # whole counts, without a doubt
    for _ in range(300):
        hdp = hdp.blended(cells, certain, 1.0)
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
    with pytest.raises(ValueError, match="integers from 0"):
        sj.match_states([0, -2], [0, 1])


# ---- settings -----------------------------------------------------------------------------------


def test_every_threshold_has_a_meaning_and_a_source():
    rows = {row.name: row for row in thresholds()}
    assert rows.keys() >= {own.name for own in fields(MoveSettings)}
    for row in rows.values():
        assert row.meaning.endswith(".")
        assert "python -m " in row.source or row.source.startswith("no experiment: ")


def test_settings_show_what_differs_from_the_defaults():
    assert repr(MoveSettings(init_states=2, small_share=0.1)) == (
        "MoveSettings(init_states=2, small_share=0.1)"
    )
    assert MoveSettings(init_states=2) == MoveSettings(init_states=2) != MOVES


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"init_states": 0}, "init_states must be a whole number of at least 1, got 0"),
        ({"init_states": 2.5}, "init_states must be a whole number"),
        ({"held_out_every": 1}, "held_out_every must be a whole number of at least 2"),
        ({"max_refusals": True}, "max_refusals must be a whole number"),
        ({"small_share": 1.5}, "small_share=1.5 is not a finite number"),
        ({"move_share": float("nan")}, "move_share=nan is not a finite number"),
        ({"held_out_tolerance": "much"}, "held_out_tolerance='much' is not a finite number"),
        ({"warmup_max_steps": 10}, "warmup_min_steps is more than warmup_max_steps"),
    ],
)
def test_bad_settings_are_refused(parameters, message):
    with pytest.raises(ValueError, match=message):
        MoveSettings(**parameters)


def test_other_settings_make_other_moves(gaussian):
    family, drawn = gaussian
    data = family.resolve(drawn.train, 8).validate(drawn.train)
    model = sj.HDPHMM(8, family, batch_size=50, n_passes=20, random_state=3).fit(drawn.train)
    for share, n_rounds in ((0.0, 0), (1e9, 1)):
        state, settings = MoveState(), MoveSettings(move_share=share)
        moves = Moves(8, 0, model.fitted_.compute.backend(), state=state, settings=settings)
        moves.observe(data.n_steps, len(data), 8, 1.0)
        moves.run_round(replace(model.fitted_.posterior), model.emission_, [data], len(data))
        assert state.n_rounds == n_rounds


def test_a_model_file_keeps_the_names_of_what_moves_carry_on():
    state = MoveState(1.5, 20, 3, 2, True, True, -0.25, 0.125)
    described = state.to_json()
    assert described == {
        "budget": 1.5,
        "sequences": 20,
        "n_phases": 3,
        "quiet": 2,
        "parted": True,
        "grown": True,
        "lost": -0.25,
        "variance": 0.125,
    }
    assert MoveState.from_json(described) == state
