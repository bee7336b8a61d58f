import copy
import inspect
import itertools
import os
import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, KFold, ParameterGrid

import sojourn as sj
from sojourn.sources import MemorySource

MODELS = [sj.HMM, sj.HDPHMM]
X = [[0, 1, 2, 1, 0], [2, 2], [0, 1, 0, 3], [3, 1], [0], [1, 2, 3]]
LENGTHS = [len(sequence) for sequence in X]
FLAT = np.concatenate(X)

both = pytest.mark.parametrize("model_class", MODELS)


def make(model_class, **parameters):
    defaults = {"n_states": 3, "emission": sj.Categorical(4), "n_passes": 2, "batch_size": 4}
    return model_class(**(defaults | {"random_state": 0} | parameters))


@pytest.fixture(params=MODELS, ids=lambda model_class: model_class.__name__)
def model(request):
    return make(request.param).fit(X)


def learned(model):
    """What a model learned, to the bit."""
    statistics = model.statistics_
    parts = [statistics.start, statistics.transitions, statistics.emissions]
    parts += [model.startprob_, model.transmat_, model.emissionprob_]
    if isinstance(model, sj.HDPHMM):
        parts += [np.asarray(part) for part in model.hdp_]
    return [part.tobytes() for part in parts]


def many(n_sequences, n_symbols, seed=0):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 60, n_sequences)
    return sj.Sequences.from_lengths(rng.integers(0, n_symbols, lengths.sum()), lengths)


# ---- parameters, as scikit-learn wants them ----------------------------------------------------


@both
def test_init_only_stores(model_class):
    names = list(inspect.signature(model_class).parameters)
    # Nothing is a valid value here, and nothing may be looked at.
    given = {name: object() for name in names}
    model = model_class(**given)
    assert vars(model) == given
    assert model.get_params(deep=False) == given


@both
def test_get_params_goes_into_the_emission(model_class):
    model = make(model_class, emission=sj.Categorical(4, concentration=0.3))
    deep, shallow = model.get_params(), model.get_params(deep=False)
    assert deep["emission__concentration"] == 0.3
    assert deep["emission__n_symbols"] == 4
    assert "emission__concentration" not in shallow
    assert set(shallow) == set(inspect.signature(model_class).parameters)


@both
def test_set_params_reaches_the_model_and_its_emission(model_class):
    model = make(model_class)
    returned = model.set_params(n_states=5, emission__concentration=0.7, emission__n_symbols=6)
    assert returned is model
    assert model.n_states == 5
    assert model.emission.concentration == 0.7
    model.fit(X)
    assert model.transmat_.shape == (5, 5)
    assert model.emissionprob_.shape == (5, 6)
    assert model.emission_.concentration == 0.7


@both
def test_set_params_refuses_unknown_names(model_class):
    with pytest.raises(ValueError, match="Invalid parameter 'n_components'"):
        make(model_class).set_params(n_components=5)
    with pytest.raises(ValueError, match="Invalid parameter 'scale'"):
        make(model_class).set_params(emission__scale=5)


@both
def test_a_clone_has_equal_parameters_and_is_not_fitted(model_class):
    vocabulary = sj.Vocabulary(["a", "b", "ä", "c"], unknown="a")
    emission = sj.Categorical(4, concentration=np.full(4, 0.3), vocabulary=vocabulary)
    original = make(model_class, emission=emission, delay=2.0).fit(X)
    copied = clone(original)
    assert type(copied) is model_class
    assert not hasattr(copied, "transmat_")
    assert not hasattr(copied, "history_")
    assert copied.emission is not original.emission
    got, expected = copied.get_params(), original.get_params()
    assert got.keys() == expected.keys()
    for name in expected.keys() - {"emission"}:
        np.testing.assert_equal(got[name], expected[name])
    assert learned(copied.fit(X)) == learned(original)


def test_fitting_does_not_touch_the_parameters():
    emission = sj.Categorical()
    model = sj.HMM(2, emission, n_passes=1)
    before = model.get_params()
    model.fit(X)
    assert model.get_params() == before
    assert model.emission is emission
    assert emission.n_symbols is None
    assert model.emission_.n_symbols == 4


def test_repr_shows_only_what_was_changed():
    assert repr(sj.HMM(2, sj.Categorical())) == "HMM(emission=Categorical(), n_states=2)"
    assert (
        repr(sj.HDPHMM(2, sj.Categorical(3), n_passes="auto", delay=2.0))
        == "HDPHMM(delay=2.0, emission=Categorical(n_symbols=3), n_states=2)"
    )


def test_a_grid_search_by_hand_and_by_scikit_learn_agree():
    data = [sequence.tolist() for sequence in many(20, 4)]
    grid = {"n_states": [1, 3], "emission__concentration": [0.1, 10.0]}
    folds = KFold(2)
    base = make(sj.HMM, batch_size=None)
    scores = []
    for parameters in ParameterGrid(grid):
        one = 0.0
        for train, test in folds.split(data):
            model = clone(base).set_params(**parameters).fit([data[n] for n in train])
            one += model.score([data[n] for n in test]) / 2
        scores.append(one)
    search = GridSearchCV(base, grid, cv=folds).fit(data)
    np.testing.assert_array_equal(search.cv_results_["mean_test_score"], scores)
    assert search.best_params_ == list(ParameterGrid(grid))[int(np.argmax(scores))]
    assert len(set(scores)) == len(scores)  # the parameters do make a difference


# ---- learning --------------------------------------------------------------------------------


@both
def test_fit_and_partial_fit_return_the_model(model_class):
    model = make(model_class)
    assert model.fit(X) is model
    assert model.partial_fit(X[:2]) is model


@both
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_seed_gives_the_same_bits(model_class, dtype):
    one = make(model_class, dtype=dtype).fit(X)
    same = make(model_class, dtype=dtype).fit(X)
    other = make(model_class, dtype=dtype, random_state=1).fit(X)
    assert learned(one) == learned(same)
    assert learned(one) != learned(other)
    assert one.statistics_.emissions.dtype == dtype


@both
def test_without_a_seed_runs_differ(model_class):
    runs = [learned(make(model_class, random_state=None).fit(X)) for _ in range(2)]
    assert runs[0] != runs[1]


@pytest.mark.parametrize("kind", [np.random.default_rng, np.random.RandomState, np.int64])
def test_every_kind_of_seed_makes_a_run_repeatable(kind):
    runs = [learned(make(sj.HMM, random_state=kind(3)).fit(X)) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0] != learned(make(sj.HMM, random_state=kind(4)).fit(X))


@both
def test_the_number_of_threads_does_not_show_in_the_result(model_class):
    # Enough steps that every part of the work is in fact divided.
    data = many(1500, 50)
    assert data.n_steps * 8 > 4 * 2**16
    models = [
        make(model_class, emission=sj.Categorical(50), batch_size=None, n_jobs=n_jobs).fit(data)
        for n_jobs in (1, 2, 4, -1, None)
    ]
    one = models[0]
    for other in models[1:]:
        assert learned(other) == learned(one)
        assert other.log_likelihood(data).tobytes() == one.log_likelihood(data).tobytes()
        assert other.predict(data).values.tobytes() == one.predict(data).values.tobytes()
        probabilities = other.predict_proba(data).values.tobytes()
        assert probabilities == one.predict_proba(data).values.tobytes()


SMOOTH = """
import numpy as np
from sojourn.kernels import cpu
from sojourn.kernels.interface import Potentials
rng = np.random.default_rng(0)
random = lambda *shape: rng.random(shape, dtype=np.float32)
index, offsets = rng.integers(0, 5, 9).astype(np.int32), np.array([0, 4, 6, 9])
smoothed = cpu.forward_backward(Potentials(random(3), random(3, 3), random(5, 3)), index, offsets)
print(smoothed.responsibilities.tobytes().hex())
"""


@pytest.mark.slow
def test_code_compiled_now_and_code_compiled_before_give_the_same_bits(tmp_path):
    # Otherwise a run could not be repeated: the first one on a machine compiles.
    def smooth():
        environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
        command = [sys.executable, "-c", SMOOTH]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        return run.stdout

    assert not any(tmp_path.iterdir())
    compiled_now = smooth()
    assert any(tmp_path.iterdir())
    assert smooth() == compiled_now


@both
def test_fit_forgets_what_was_learned_before(model_class):
    model = make(model_class).fit(X[::-1]).partial_fit(X)
    model.fit(X)
    assert learned(model) == learned(make(model_class).fit(X))
    assert model.n_updates_ == 4
    assert len(model.history_) == 2


@both
def test_partial_fit_over_the_batches_is_one_pass_of_fit(model_class):
    # Sequences of equal length: the first batch then tells the number of steps in all.
    data = sj.Sequences.from_list(np.arange(20).reshape(10, 2) % 4)
    options = {"hdp_batch_size": 5} if model_class is sj.HDPHMM else {}
    # With moves a fit ends with the states in order, and begins with pieces of all the data.
    fitted = make(model_class, n_passes=1, batch_size=4, moves=None, **options)
    by_hand = clone(fitted)
    fitted.fit(data)
    for n, batch in enumerate(MemorySource(data, 4, seed=0).batches(0)):
        by_hand.partial_fit(batch, total_sequences=10 if n == 0 else None)
    assert fitted.n_updates_ == by_hand.n_updates_ == 3
    assert learned(fitted) == learned(by_hand)


@both
def test_partial_fit_continues_a_fit(model_class):
    model = make(model_class).fit(X)
    before = learned(model)
    model.partial_fit(X[:3])
    assert model.n_updates_ == 5
    assert model.total_sequences_ == len(X)
    assert learned(model) != before
    model.partial_fit(X[:3], total_sequences=100)
    assert model.total_sequences_ == 100


def test_an_update_with_rate_zero_takes_the_counts_of_the_batch_alone():
    model = make(sj.HMM, n_states=1, forgetting_rate=0.0, dtype="float64")
    model.partial_fit(X, total_sequences=2 * len(X))
    statistics = model.statistics_
    assert statistics.start[0] == 2 * len(X)
    assert statistics.transitions[0, 0] == pytest.approx(2 * (len(FLAT) - len(X)), rel=1e-12)
    np.testing.assert_allclose(statistics.emissions[0], 2 * np.bincount(FLAT), rtol=1e-12)


def test_an_update_blends_by_the_step_size():
    model = make(sj.HMM, n_states=1, forgetting_rate=0.5, delay=2.0, dtype="float64")
    model.partial_fit(X, total_sequences=len(X))
    before = model.statistics_.emissions[0].copy()
    model.partial_fit(X)
    rho = (2.0 + 2) ** -0.5
    expected = (1 - rho) * before + rho * np.bincount(FLAT)
    np.testing.assert_allclose(model.statistics_.emissions[0], expected, rtol=1e-12)


def test_init_is_where_training_starts():
    init = sj.Statistics(np.ones(3), np.ones((3, 3)), np.arange(12.0).reshape(3, 4) + 1)
    model = make(sj.HMM, init=init, delay=1e12, forgetting_rate=1.0, dtype="float64").fit(X)
    # With steps that small it is where training ends too.
    np.testing.assert_allclose(model.statistics_.emissions, init.emissions, rtol=1e-9)
    np.testing.assert_allclose(model.statistics_.transitions, init.transitions, rtol=1e-9)


@both
def test_history_without_validation(model_class):
    model = make(model_class, n_passes=3).fit(X)
    assert [entry["passes"] for entry in model.history_] == [1.0, 2.0, 3.0]
    assert [entry["sequences"] for entry in model.history_] == [6, 12, 18]
    assert [entry["steps"] for entry in model.history_] == [17, 34, 51]
    assert [entry["updates"] for entry in model.history_] == [2, 4, 6]
    assert [entry["score"] for entry in model.history_] == [None] * 3
    seconds = [0.0] + [entry["seconds"] for entry in model.history_]
    assert all(a < b for a, b in itertools.pairwise(seconds))
    assert set(model.history_[0]) == set(sj.Progress._fields)


@both
def test_history_with_validation(model_class):
    held_out = [[0, 1], [3, 2, 1]]
    # With moves the states change their order at the end, and with it the rounding.
    options = {"moves": None}
    model = make(model_class, n_passes=3, **options).fit(X, validation=held_out)
    scores = [entry["score"] for entry in model.history_]
    assert scores[-1] == model.score(held_out, per_step=True)
    for n_passes in (1, 2):
        shorter = make(model_class, n_passes=n_passes, **options).fit(X)
        assert scores[n_passes - 1] == shorter.score(held_out, per_step=True)
    pair = make(model_class, n_passes=3, **options).fit(X, validation=([0, 1, 3, 2, 1], [2, 3]))
    assert [entry["score"] for entry in pair.history_] == scores
    # Looking at held-out data must not change what is learned.
    assert learned(model) == learned(make(model_class, n_passes=3, **options).fit(X))


@both
def test_the_callback_sees_every_update_and_every_pass(model_class):
    seen = []
    model = make(model_class, batch_size=4, n_passes=2)
    model.fit(X, validation=X[:2], callback=seen.append)
    assert all(isinstance(progress, sj.Progress) for progress in seen)
    assert [progress.updates for progress in seen] == [1, 2, 2, 3, 4, 4]
    assert [progress.sequences for progress in seen] == [4, 6, 6, 10, 12, 12]
    assert [progress.score is None for progress in seen] == [True, True, False] * 2
    assert [seen[2]._asdict(), seen[5]._asdict()] == model.history_
    assert learned(model) == learned(make(model_class, batch_size=4, n_passes=2).fit(X))


@both
def test_an_exception_in_the_callback_leaves_a_usable_model(model_class):
    def stop(progress):
        if progress.updates == 3:
            raise KeyboardInterrupt

    model = make(model_class, n_passes=5)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, callback=stop)
    assert model.n_updates_ == 3
    assert np.isfinite(model.score(X))
    assert model.history_ == []
    model.partial_fit(X[:2])
    assert model.n_updates_ == 4


def test_verbose_writes_to_standard_error_alone(capsys):
    make(sj.HMM, verbose=True).fit(X, validation=X)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("held-out") == 2
    make(sj.HMM).fit(X, validation=X)
    assert capsys.readouterr() == ("", "")


# ---- prediction ------------------------------------------------------------------------------


def test_score_is_the_sum_of_the_log_likelihoods(model):
    one_by_one = model.log_likelihood(X)
    assert one_by_one.shape == (len(X),)
    assert model.score(X) == float(one_by_one.sum())
    assert model.score(X, per_step=True) == model.score(X) / len(FLAT)
    assert isinstance(model.score(X), float)
    for n, sequence in enumerate(X):
        assert model.log_likelihood([sequence])[0] == pytest.approx(one_by_one[n], rel=1e-6)


def test_the_log_likelihood_of_one_step_by_hand(model):
    expected = np.log(model.startprob_ @ model.emissionprob_)
    got = [model.score([[symbol]]) for symbol in range(4)]
    np.testing.assert_allclose(got, expected, rtol=1e-5)
    # All that may come has a total probability of one.
    assert np.exp(got).sum() == pytest.approx(1.0, rel=1e-5)


def test_probabilities_sum_to_one(model):
    assert model.startprob_.shape == (3,)
    assert model.transmat_.shape == (3, 3)
    assert model.emissionprob_.shape == (3, 4)
    assert model.startprob_.sum() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(model.transmat_.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(model.emissionprob_.sum(axis=1), 1.0, rtol=1e-6)
    for rows in model.predict_proba(X):
        np.testing.assert_allclose(rows.sum(axis=1), 1.0, rtol=1e-5)
        assert (rows >= 0).all()


def test_the_probability_of_the_best_path_by_hand(model):
    total, paths = model.decode(X)
    expected = 0.0
    for path, sequence in zip(paths, X, strict=True):
        expected += np.log(model.startprob_[path[0]])
        expected += np.log(model.transmat_[path[:-1], path[1:]]).sum()
        expected += np.log(model.emissionprob_[path, sequence]).sum()
    assert total == pytest.approx(expected, rel=1e-5)
    assert total < model.score(X)
    for path, predicted in zip(paths, model.predict(X), strict=True):
        np.testing.assert_array_equal(path, predicted)


def test_results_come_in_the_form_of_the_data(model):
    path, probabilities = model.predict(FLAT, LENGTHS), model.predict_proba(FLAT, LENGTHS)
    assert path.shape == (17,)
    assert probabilities.shape == (17, 3)
    ends = np.cumsum(LENGTHS)[:-1]

    column = FLAT[:, None]  # hmmlearn's form
    np.testing.assert_array_equal(model.predict(column, LENGTHS), path)
    np.testing.assert_array_equal(model.predict_proba(column, LENGTHS), probabilities)

    for data in (X, [np.array(sequence) for sequence in X], pa.array(X)):
        paths = model.predict(data)
        assert isinstance(paths, list)
        for got, expected in zip(paths, np.split(path, ends), strict=True):
            np.testing.assert_array_equal(got, expected)
        rows = model.predict_proba(data)
        assert isinstance(rows, list)
        for got, expected in zip(rows, np.split(probabilities, ends), strict=True):
            np.testing.assert_array_equal(got, expected)

    packed = model.predict(sj.Sequences.from_list(X))
    assert isinstance(packed, sj.Sequences)
    np.testing.assert_array_equal(packed.values, path)
    assert packed.lengths.tolist() == LENGTHS
    packed = model.predict_proba(sj.Sequences.from_list(X))
    np.testing.assert_array_equal(packed.values, probabilities)

    rows = np.array([[0, 1, 2], [3, 2, 1]])
    assert model.predict(rows).shape == (2, 3)
    assert model.predict_proba(rows).shape == (2, 3, 3)
    np.testing.assert_array_equal(model.predict(rows)[1], model.predict(rows.tolist())[1])

    assert model.predict([0, 1, 2]).shape == (3,)  # one sequence alone
    assert model.predict_proba([0, 1, 2]).shape == (3, 3)


def test_the_score_does_not_depend_on_the_form_of_the_data(model):
    expected = model.score(X)
    assert model.score(FLAT, LENGTHS) == expected
    assert model.score(FLAT.astype(float), LENGTHS) == expected
    assert model.score(FLAT.astype(np.uint8)[:, None], LENGTHS) == expected
    assert model.score(sj.Sequences.from_list(X)) == expected
    assert model.score(pa.array(X)) == expected
    assert model.score(sequence for sequence in X) == expected


def test_prediction_does_not_change_the_model(model):
    before = learned(model)
    for method in ("score", "log_likelihood", "predict", "predict_proba", "decode"):
        getattr(model, method)(X)
    model.sample(3, 4)
    assert learned(model) == before
    assert model.n_updates_ == 4


@pytest.mark.parametrize("concentration", [0.1, 2.0])
def test_a_symbol_never_seen_scores_by_the_prior(concentration):
    emission = sj.Categorical(5, concentration)
    # One state and a rate of zero: the statistics are the counts of the data.
    model = sj.HMM(1, emission, forgetting_rate=0.0, batch_size=None, n_passes=1, dtype="float64")
    model.fit(X)
    unseen = concentration / (5 * concentration + len(FLAT))
    assert model.score([[4]]) == pytest.approx(np.log(unseen), rel=1e-12)
    zeros = (concentration + np.sum(FLAT == 0)) / (5 * concentration + len(FLAT))
    assert model.score([[0, 4]]) == pytest.approx(np.log(zeros * unseen), rel=1e-12)
    assert model.emissionprob_[0, 4] == pytest.approx(unseen, rel=1e-12)


def test_a_symbol_never_seen_scores_by_the_prior_of_every_state():
    model = make(sj.HMM, emission=sj.Categorical(5, 0.3), forgetting_rate=0.0, dtype="float64")
    model.fit(X)
    totals = model.statistics_.emissions.sum(axis=1)
    np.testing.assert_allclose(model.emissionprob_[:, 4], 0.3 / (5 * 0.3 + totals), rtol=1e-12)
    expected = np.log(model.startprob_ @ model.emissionprob_[:, 4])
    assert model.score([[4]]) == pytest.approx(expected, rel=1e-12)


def test_words_are_learned_and_unknown_ones_score_as_the_unknown():
    text = [["b", "a", "b"], ["c", "b"]]
    model = sj.HMM(1, sj.Categorical(), forgetting_rate=0.0, batch_size=None, dtype="float64")
    model.fit(text)
    assert model.emission_.vocabulary.words == ("<unk>", "b", "a", "c")
    assert model.score([["b"]]) == pytest.approx(np.log(3.1 / 5.4), rel=1e-12)
    assert model.score([["zebra"]]) == pytest.approx(np.log(0.1 / 5.4), rel=1e-12)
    assert model.predict(["b", "zebra"]).shape == (2,)


# ---- samples ---------------------------------------------------------------------------------


def test_samples_have_the_lengths_asked_for(model):
    observations, states = model.sample(4, 3, random_state=0)
    assert isinstance(observations, sj.Sequences)
    assert isinstance(states, sj.Sequences)
    assert observations.lengths.tolist() == states.lengths.tolist() == [3] * 4
    observations, states = model.sample(3, [1, 5, 2], random_state=0)
    assert observations.lengths.tolist() == states.lengths.tolist() == [1, 5, 2]
    observations, _ = model.sample()
    assert observations.lengths.tolist() == [1]


def test_samples_follow_from_the_seed(model):
    def draw(**options):
        return [part.values.tobytes() for part in model.sample(20, 5, **options)]

    assert draw(random_state=1) == draw(random_state=1)
    assert draw(random_state=1) != draw(random_state=2)
    assert draw() == draw()  # the model's own seed
    assert draw() == draw(random_state=0)
    assert draw(random_state=np.random.default_rng(1)) == draw(
        random_state=np.random.default_rng(1)
    )
    assert draw() != draw(random_state=1)


def test_long_samples_have_the_frequencies_of_the_model(model):
    observations, states = model.sample(2000, 50, random_state=0)
    z = states.values.reshape(2000, 50)

    def assert_frequencies(counts, probabilities):
        # Five standard deviations of a frequency.
        n = counts.sum()
        spread = np.sqrt(probabilities * (1 - probabilities) / n)
        np.testing.assert_array_less(np.abs(counts / n - probabilities), 5 * spread)

    assert_frequencies(np.bincount(z[:, 0], minlength=3), model.startprob_)
    x = observations.values
    for k in range(3):
        follow = z[:, 1:][z[:, :-1] == k]
        assert len(follow) > 5000
        assert_frequencies(np.bincount(follow, minlength=3), model.transmat_[k])
        emitted = x[states.values == k]
        assert_frequencies(np.bincount(emitted, minlength=4), model.emissionprob_[k])


def test_a_sample_can_be_fitted_and_scored(model):
    observations, _ = model.sample(5, 4, random_state=0)
    assert np.isfinite(model.score(observations))
    clone(model).fit(observations)


# ---- attributes, copies ----------------------------------------------------------------------


def test_unknown_attributes_are_attribute_errors(model):
    name = type(model).__name__
    with pytest.raises(AttributeError, match=f"'{name}' object has no attribute 'nonsense'"):
        _ = model.nonsense
    assert not hasattr(model, "means_")  # of another family
    assert not hasattr(model, "_nonsense")


@both
def test_emission_parameters_appear_with_the_fit(model_class):
    model = make(model_class)
    assert not hasattr(model, "emissionprob_")
    assert hasattr(model.fit(X), "emissionprob_")


def test_what_the_model_shows_are_copies(model):
    before = learned(model)
    statistics = model.statistics_
    shown = [statistics.start, statistics.transitions, statistics.emissions]
    shown += [model.startprob_, model.transmat_, model.emissionprob_]
    if isinstance(model, sj.HDPHMM):
        shown.append(model.hdp_.weights)
    for array in shown:
        array[...] = 7
    assert learned(model) == before


def test_statistics_add_up_to_the_data():
    model = make(sj.HMM, forgetting_rate=0.0, batch_size=None, dtype="float64").fit(X)
    statistics = model.statistics_
    assert statistics.start.sum() == pytest.approx(len(X), rel=1e-12)
    assert statistics.transitions.sum() == pytest.approx(len(FLAT) - len(X), rel=1e-12)
    np.testing.assert_allclose(statistics.emissions.sum(axis=0), np.bincount(FLAT), rtol=1e-12)


def test_the_hdp_shows_its_posterior():
    model = make(sj.HDPHMM).fit(X)
    alpha, gamma, weights, effective, stickiness = model.hdp_
    assert stickiness == 0.0
    assert alpha > 0
    assert gamma > 0
    assert weights.shape == (3,)
    assert (weights > 0).all()
    assert weights.sum() < 1
    shares = weights / weights.sum()
    assert effective == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-12)
    assert not hasattr(make(sj.HMM).fit(X), "hdp_")


@pytest.mark.parametrize("make_copy", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_equal_and_independent(model, make_copy):
    before = learned(model)
    copied = make_copy(model)
    assert learned(copied) == before
    assert copied.history_ == model.history_
    assert copied.score(X) == model.score(X)
    copied.partial_fit(X[:2])
    assert learned(model) == before
    assert learned(copied) != before
    assert learned(model.partial_fit(X[:2])) == learned(copied)


@both
def test_an_unfitted_model_can_be_copied(model_class):
    for copied in (
        copy.deepcopy(make(model_class)),
        pickle.loads(pickle.dumps(make(model_class))),
        copy.copy(make(model_class)),
    ):
        assert learned(copied.fit(X)) == learned(make(model_class).fit(X))
