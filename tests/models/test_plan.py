"""Defaults that follow from the data, and numbers that mean what they say."""

import warnings

import numpy as np
import pytest

import sojourn as sj
from sojourn.inference import Schedule
from sojourn.models.plan import (
    FEW_SEQUENCES,
    FULL_STEPS,
    LEARNED_PRIOR,
    LONG_MEAN,
    MOST_RESTARTS,
    TILED_STEPS,
    WIDE_MOST,
    Size,
    n_exchanges,
    n_restarts,
    plan_training,
    size_of,
)
from tests.support.earthquakes import EARTHQUAKES

COUNTS = EARTHQUAKES[:, None]


def hmm(**options):
    return sj.HMM(3, sj.Categorical(5), **options)


@pytest.mark.parametrize(
    ("n_sequences", "n_steps", "size"),
    [
        (1, 1, Size.SMALL),
        (FULL_STEPS, FULL_STEPS, Size.SMALL),
        (1, FULL_STEPS + 1, Size.TILED),
        (1000, 1000 * LONG_MEAN, Size.TILED),
        (1000, 1000 * LONG_MEAN - 1, Size.MANY),
    ],
)
def test_the_size_of_the_data_decides(n_sequences, n_steps, size):
    assert size_of(hmm(), n_sequences, n_steps) is size


def test_many_states_of_not_so_many_steps_take_sequences_whole():
    many = sj.HMM(WIDE_MOST, sj.Categorical(5))
    assert size_of(many, 1, TILED_STEPS) is Size.LONG
    assert size_of(many, 1, TILED_STEPS + 1) is Size.TILED


@pytest.mark.parametrize(("n_sequences", "size"), [(49, Size.LONG), (50, Size.MANY)])
def test_without_tiles_a_few_long_sequences_are_taken_whole(n_sequences, size):
    assert FEW_SEQUENCES == 50
    assert size_of(hmm(tile_length=None), n_sequences, FULL_STEPS + 1) is size


def test_fewer_steps_than_probabilities_of_symbols_go_in_minibatches():
    model = sj.HMM(3, sj.Categorical(1000))
    assert size_of(model, 100, 2999, model.emission) is Size.MANY
    assert size_of(model, 100, 3000, model.emission) is Size.SMALL
    given = sj.HMM(3, sj.Categorical(1000, concentration=1.0))
    assert size_of(given, 100, 2999, given.emission) is Size.SMALL
    # Where states are merged, full batches come after a warm-up with minibatches.
    searched = sj.HDPHMM(3, sj.Categorical(1000))
    plan = plan_training(searched, 100, 2999, searched.emission)
    assert (plan.size, plan.tuned) == (Size.SMALL, LEARNED_PRIOR)
    kept = sj.HDPHMM(3, sj.Categorical(1000), moves=None)
    assert size_of(kept, 100, 2999, kept.emission) is Size.MANY


def test_states_of_small_data_are_exchanged_where_everything_is_left_open():
    assert n_exchanges(sj.HMM(3, sj.Gaussian()), 1000) > 0
    assert n_exchanges(sj.HMM(100, sj.Gaussian()), FULL_STEPS) == 0  # it would take too long
    for model in (
        sj.HMM(2, sj.Gaussian()),
        sj.HMM(3, sj.Gaussian(), n_init=4),
        sj.HMM(3, sj.Gaussian(), init="exponential"),
        sj.HMM(3, sj.Gaussian(), moves="auto"),
        sj.HMM(3, sj.Gaussian(), inference="vb"),
        sj.HMM(3, sj.Gaussian(), inference=sj.Sampling("gibbs")),
        sj.HMM(3, sj.Gaussian(), transition_constraints="left-right"),
        sj.HMM(3, sj.Gaussian(), duration=sj.NegativeBinomialDuration()),
        sj.HDPHMM(3, sj.Gaussian()),
        sj.HDPHMM(3, sj.Gaussian(), moves=None),
    ):
        assert n_exchanges(model, 1000) == 0


def test_many_sequences_begin_with_more_states_than_asked_for():
    for model, first in ((sj.HMM(8, sj.Gaussian(2)), 4), (sj.HDPHMM(8, sj.Gaussian(2)), 8)):
        narrow = plan_training(model, 2000, 70_000, model.emission).narrow
        assert (narrow.wide, narrow.n_states, narrow.first) == (24, 8, first)
        assert narrow.moves_first == isinstance(model, sj.HDPHMM)
    alike = [
        sj.HMM(WIDE_MOST, sj.Gaussian(2)),
        sj.HMM(8, sj.Gaussian(2), n_passes=10),
        sj.HMM(8, sj.Gaussian(2), init="segments"),
        sj.HMM(8, sj.Gaussian(2), inference="svi"),
        sj.HDPHMM(8, sj.Gaussian(2), moves=None),  # as in the paper
        sj.HMM(8, sj.Categorical(5000)),  # 24 of them have more probabilities than the sample steps
    ]
    for model in alike:
        assert plan_training(model, 2000, 70_000, model.emission).narrow is None


@pytest.mark.parametrize("kind", [sj.HMM, sj.HDPHMM])
def test_a_given_number_of_states_of_many_sequences_is_that_of_the_truth(kind):
    rng = np.random.default_rng(3)
    rates = (1.0 + 1.5 * np.arange(6)) ** 2
    X = [rng.poisson(rates[np.repeat(rng.integers(0, 6, 9), 4)]) for _ in range(1000)]
    for seed in range(2):
        model = kind(6, sj.Poisson(), random_state=seed).fit(X)
        np.testing.assert_allclose(np.sort(model.lambdas_[:, 0]), rates, rtol=0.05)


def test_tiles_of_a_given_length_are_made_of_anything():
    assert size_of(hmm(tile_length=5), 10, 100) is Size.TILED
    plan = plan_training(hmm(tile_length=5, batch_size=7, n_passes=3), 10, 100)
    assert (plan.tile_length, plan.batch_size, plan.n_passes, plan.narrow) == (5, 7, 3, None)
    assert plan.schedule == Schedule(0.5, 1.0)
    assert (plan.tol, plan.n_more) == (None, 0)
    whole = plan_training(hmm(tile_length=5, inference="vb"), 10, 100)
    assert (whole.batch_size, whole.schedule) == (None, Schedule(0.0, 1.0))
    for inference in ("cvb0", "gibbs"):
        with pytest.raises(ValueError, match="cannot cut"):
            hmm(tile_length=5, inference=inference).fit([[0, 1], [1, 2]])


def test_long_sequences_go_in_minibatches_of_steps():
    small, large = (plan_training(hmm(), 1, n_steps) for n_steps in (10**5, 10**8))
    assert small.batch_size * small.tile_length == 2**12
    assert large.batch_size * large.tile_length == 2**14
    assert small.n_passes > large.n_passes == 10
    assert (small.tol, small.whole_from) == (1e-6, small.n_passes - 3)
    assert small.n_more == small.whole_from
    assert small.narrow.wide == 9
    assert small.narrow.after(small.n_passes - 1) == 3
    assert plan_training(hmm(init="exponential"), 1, 10**5).narrow is None


@pytest.mark.parametrize(
    "options",
    [
        {"n_passes": 10},
        {"batch_size": 100},
        {"batch_size": None},
        {"tuned": True},
        {"inference": "vb"},
        {"inference": "cvb0"},
    ],
)
def test_what_the_user_gives_leaves_everything_else_as_it_was(options):
    plan = plan_training(hmm(**options), 100, 1000)
    assert plan.size is Size.MANY
    whole = options.get("inference") == "vb" or options.get("batch_size", 1) is None
    assert plan.batch_size == (None if whole else options.get("batch_size", 1000))
    assert plan.n_passes == (500 if options.get("inference") == "vb" else 10)
    assert (plan.tol is not None) == (options.get("inference") == "vb")


def test_small_data_are_taken_whole_with_full_steps():
    plan = plan_training(hmm(tol=1e-3), 10, 100)
    assert (plan.batch_size, plan.tol, plan.schedule) == (None, 1e-3, Schedule(0.0, 1.0))


def test_restarts_are_counted_not_timed():
    assert n_restarts(hmm(n_init=7), 10, 1e9) == 7
    assert n_restarts(hmm(), 1, 100) == MOST_RESTARTS
    assert n_restarts(hmm(), 1, FULL_STEPS + 1) == 1
    assert n_restarts(hmm(n_passes=10), 1, 100) == 1
    few = n_restarts(sj.HDPHMM(20, sj.Categorical(5)), 1, 10_000)
    assert 1 <= few < n_restarts(hmm(), 1, 10_000)


def test_three_states_of_the_earthquakes_are_the_published_ones():
    for seed in range(3):
        model = sj.HMM(3, sj.Poisson(), random_state=seed).fit(COUNTS)
        assert model.converged_
        assert model.score(COUNTS) > -328.9  # the maximum of the likelihood is -328.5275
        rates = np.sort(model.lambdas_.ravel())
        np.testing.assert_allclose(rates, [13.134, 19.713, 29.710], rtol=0.005)


def test_the_number_of_states_of_the_earthquakes():
    for seed in range(3):
        assert sj.HDPHMM(20, sj.Poisson(), random_state=seed).fit(COUNTS).n_states_ == 3


def test_training_ends_when_the_likelihood_rises_no_more():
    fine, coarse = (
        sj.HMM(3, sj.Poisson(), tol=tol, n_init=1, random_state=0).fit(COUNTS)
        for tol in (1e-8, 1e-2)
    )
    assert fine.converged_
    assert coarse.converged_
    assert coarse.n_updates_ < fine.n_updates_ < 500
    assert fine.score(COUNTS) > coarse.score(COUNTS)
    # One pass more changes next to nothing.
    start = fine.statistics_
    again = sj.HMM(3, sj.Poisson(), init=start, batch_size=None, forgetting_rate=0.0, n_passes=1)
    assert again.fit(COUNTS).score(COUNTS) == pytest.approx(fine.score(COUNTS), abs=1e-4)
    given = sj.HMM(3, sj.Poisson(), n_passes=2, random_state=0).fit(COUNTS)
    assert given.converged_ is None


def test_what_has_not_converged_warns(monkeypatch):
    monkeypatch.setattr("sojourn.models.plan.FULL_PASSES", 3)
    with pytest.warns(sj.FitWarning, match="still rises"):
        model = sj.HMM(3, sj.Poisson(), n_init=1, random_state=0).fit(COUNTS)
    assert model.converged_ is False


def test_all_states_in_use_warn():
    rng = np.random.default_rng(0)
    X = rng.normal(np.repeat([-8.0, -3.0, 3.0, 8.0], 50))[:, None]
    with pytest.warns(sj.FitWarning, match="all 2 states are in use: try n_states=4"):
        sj.HDPHMM(2, sj.Gaussian(), random_state=0).fit(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error", sj.FitWarning)
        sj.HDPHMM(12, sj.Gaussian(), random_state=0).fit(X)


@pytest.mark.parametrize(
    "model", [sj.HMM(3, sj.Poisson()), sj.HDPHMM(8, sj.Poisson())], ids=["HMM", "HDPHMM"]
)
@pytest.mark.parametrize("stop", [1, 7, 40])
def test_a_stopped_fit_of_small_data_goes_on_to_the_same_bits(model, stop, tmp_path):
    model.set_params(n_init=1, random_state=0)
    whole = sj.HMM if isinstance(model, sj.HMM) else sj.HDPHMM
    whole = whole(**model.get_params(deep=False)).fit(COUNTS)

    def interrupt(progress):
        if progress.updates == min(stop, whole.n_updates_ - 1):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.fit(COUNTS, checkpoint=tmp_path, callback=interrupt)
    model.fit(COUNTS, checkpoint=tmp_path, resume=True)
    assert model.transmat_.tobytes() == whole.transmat_.tobytes()
    assert model.statistics_.emissions.tobytes() == whole.statistics_.emissions.tobytes()
    assert model.converged_ == whole.converged_
    moves = [[entry["moves"] for entry in fitted.history_] for fitted in (model, whole)]
    assert moves[0] == moves[1]


def test_convergence_is_saved(tmp_path):
    model = sj.HMM(3, sj.Poisson(), random_state=0).fit(COUNTS)
    model.save(tmp_path / "m.sojourn")
    assert sj.load(tmp_path / "m.sojourn").converged_ is True


def test_a_finite_model_of_many_sequences_has_a_warm_up_too():
    rng = np.random.default_rng(0)
    states = np.repeat(rng.integers(0, 3, (1200, 6)), 6, axis=1)
    X = list(rng.poisson(np.array([2.0, 9.0, 25.0])[states])[:, :, None])
    warm = sj.HMM(3, sj.Poisson(), random_state=0).fit(X)
    cold = sj.HMM(3, sj.Poisson(), n_passes=10, random_state=0).fit(X)
    assert (warm.n_updates_, warm.history_[-1]["updates"]) == (20, 20)
    assert warm.fitted_.move_state.warmed_up
    assert not cold.fitted_.move_state.warmed_up
    assert warm.score(X) >= cold.score(X) - 1.0
    np.testing.assert_allclose(np.sort(warm.lambdas_.ravel()), [2.0, 9.0, 25.0], rtol=0.02)


def test_restarts_of_words_keep_their_vocabulary():
    data = [["a", "b", "a"], ["b", "a"], ["a", "a", "b"]] * 20
    model = sj.HMM(2, sj.Categorical(), batch_size=None, n_passes=3, n_init=3, random_state=0)
    model.fit(data)
    assert model.emission_.vocabulary.words == ("<unk>", "a", "b")
    assert np.isfinite(model.score(data))
