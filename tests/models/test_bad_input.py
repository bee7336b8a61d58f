"""Bad input gets an error that says what and where, and changes nothing."""

import copy

import numpy as np
import pyarrow as pa
import pytest
from sklearn.exceptions import NotFittedError

import sojourn as sj

MODELS = [sj.HMM, sj.HDPHMM]
GOOD = [[0, 1, 2, 1], [2, 2], [0, 1, 0]]
NAN, INF = float("nan"), float("inf")


def make(model_class, **parameters):
    defaults = {"n_states": 3, "emission": sj.Categorical(3), "n_passes": 2, "batch_size": 2}
    defaults["random_state"] = 0
    if model_class is sj.HDPHMM:
        defaults["hdp_batch_size"] = 2
    return model_class(**(defaults | parameters))


@pytest.fixture(scope="module", params=MODELS, ids=lambda model_class: model_class.__name__)
def pristine(request):
    # One sequence more than a large batch, so that the HDP has sums that wait for the next.
    return make(request.param).fit(GOOD).partial_fit(GOOD[:1])


@pytest.fixture
def model(pristine):
    return copy.deepcopy(pristine)


def snapshot(model):
    """Everything that a model shows of what it learned, to the bit."""
    statistics = model.statistics_
    parts = [statistics.start, statistics.transitions, statistics.emissions]
    parts += [model.startprob_, model.transmat_, model.emissionprob_, model.log_likelihood(GOOD)]
    if isinstance(model, sj.HDPHMM):
        parts += [np.asarray(part) for part in model.hdp_]
    counts = (model.n_updates_, model.total_sequences_, str(model.history_))
    return counts, [part.tobytes() for part in parts]


def assert_unchanged(model, pristine):
    assert snapshot(model) == snapshot(pristine)
    # What does not show yet, such as sums that wait, shows in the next update.
    after, expected = copy.deepcopy(model), copy.deepcopy(pristine)
    assert snapshot(after.partial_fit(GOOD)) == snapshot(expected.partial_fit(GOOD))


LEARN = ["fit", "partial_fit"]
PREDICT = ["score", "log_likelihood", "predict", "predict_proba", "decode"]

# name: (X, lengths, error, message)
BAD_DATA = {
    "no sequences": ([], None, ValueError, "there is no data"),
    "no rows": (np.empty((0, 3), int), None, ValueError, "there is no data"),
    "no steps": (np.empty(0, int), None, ValueError, "sequence 0 is empty"),
    "no steps, no lengths": (np.empty(0, int), [], ValueError, "there is no data"),
    "an empty sequence": ([[0, 1], [], [2]], None, ValueError, r"sequence 1 is empty"),
    "a zero length": ([0, 1], [1, 0, 1], ValueError, "sequence 1 is empty"),
    "rows without columns": (np.empty((3, 0), int), None, ValueError, "sequence 0 is empty"),
    "NaN": ([[0, 1], [1.0, NAN]], None, ValueError, "sequence 1, position 1: nan"),
    "NaN in flat data": ([0, 1, NAN], [1, 2], ValueError, "sequence 1, position 1: nan"),
    "infinity": ([[0, 1], [INF]], None, ValueError, "sequence 1, position 0: inf"),
    "minus infinity": ([[0, -INF]], None, ValueError, "sequence 0, position 1: -inf"),
    "a fraction": ([[0, 1], [1, 0.5]], None, ValueError, "sequence 1, position 1: 0.5"),
    "a negative symbol": ([[0], [1, -2]], None, ValueError, "sequence 1, position 1: symbol -2"),
    "a negative float": ([[0], [-2.0]], None, ValueError, "sequence 1, position 0: symbol -2"),
    "a symbol too large": (
        [[0], [1, 2, 3]],
        None,
        ValueError,
        r"sequence 1, position 2: symbol 3 is outside the alphabet 0\.\.2",
    ),
    "a symbol beyond int32": ([[0], [2**40]], None, ValueError, "sequence 1, position 0: symbol"),
    "a symbol beyond int64": ([[0, 1e300]], None, ValueError, "sequence 0, position 1: .*1e\\+300"),
    "vectors": (np.zeros((2, 2, 2), int), None, ValueError, r"steps have the shape \(2, 2\)"),
    "vectors in lists": ([[[0, 1]], [[1, 2]]], None, ValueError, r"steps have the shape \(2,\)"),
    "rows with lengths": (np.zeros((4, 2), int), [4], ValueError, r"steps have the shape \(2,\)"),
    "lengths too short": ([0, 1, 2], [1, 1], ValueError, "lengths add up to 2, .* 3 steps"),
    "lengths too long": ([0, 1, 2], [2, 2], ValueError, "lengths add up to 4, .* 3 steps"),
    "a negative length": ([0, 1, 2], [4, -1], ValueError, "sequence 1 has the negative length"),
    "fractional lengths": ([0, 1, 2], [1.5, 1.5], ValueError, "lengths must be .* integers"),
    "lengths of a list": ([[0, 1], [2]], [2, 1], ValueError, "flat steps with lengths"),
    "numbers and strings": ([[0, 1], ["a"]], None, ValueError, "sequence 1 holds strings"),
    "a string among numbers": ([[0, "a"]], None, ValueError, "sequence 0, position 0: a number"),
    "a flat mixture": (["a", 1], [1, 1], ValueError, "sequence 1, position 0: 1 is a number"),
    "None among numbers": ([[0], [1, None]], None, ValueError, "sequence 1, position 1: None"),
    "objects": (np.array([0, 1], object), None, ValueError, "sequence 0, position 0: 0"),
    "different dimensions": ([[0], [[1, 2]]], None, ValueError, "sequence 1 has steps of shape"),
    "ragged steps": ([[0], [[1], [1, 2]]], None, ValueError, "sequence 1 has steps of different"),
    "a null in Arrow data": (
        pa.array([[0], [1, None]]),
        None,
        ValueError,
        "sequence 1, position 1: null",
    ),
    "complex numbers": ([[1j]], None, ValueError, "Complex data not supported"),
    "bytes": ([[b"a"]], None, TypeError, "numbers or strings, got .S1"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), None, TypeError, "got datetime64"),
    "no data at all": (None, None, TypeError, "expected sequences, got NoneType"),
    "a number": (3, None, TypeError, "expected sequences, got int"),
    "a text": ("abc", None, TypeError, "got the string 'abc'"),
    "a mapping": ({0: [0, 1]}, None, TypeError, "got a dict"),
    "a number among sequences": ([[0], 1], None, TypeError, "sequence 1 is a single value"),
}


@pytest.mark.parametrize("method", LEARN + PREDICT)
@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_is_refused_and_the_model_stays_as_it_was(model, pristine, method, case):
    X, lengths, error, message = BAD_DATA[case]
    with pytest.raises(error, match=message):
        getattr(model, method)(X, lengths)
    assert_unchanged(model, pristine)


@pytest.mark.parametrize("method", ["partial_fit", *PREDICT])
def test_strings_without_a_vocabulary_are_refused(model, pristine, method):
    with pytest.raises(ValueError, match="the data are strings, but the model has no vocab"):
        getattr(model, method)([["a", "b"]])
    assert_unchanged(model, pristine)


@pytest.mark.parametrize("method", LEARN + PREDICT)
def test_a_word_outside_the_vocabulary_is_refused(method):
    vocabulary = sj.Vocabulary(["a", "b"])
    model = make(sj.HMM, emission=sj.Categorical(vocabulary=vocabulary)).fit([["a", "b"], ["b"]])
    with pytest.raises(ValueError, match="sequence 1, position 1: 'c' is not in the vocabulary"):
        getattr(model, method)([["a"], ["b", "c"]])


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("method", LEARN)
@pytest.mark.parametrize("case", BAD_DATA)
def test_bad_data_leaves_a_new_model_unfitted(model_class, method, case):
    X, lengths, error, message = BAD_DATA[case]
    model = make(model_class)
    options = {"total_sequences": 10} if method == "partial_fit" else {}
    with pytest.raises(error, match=message):
        getattr(model, method)(X, lengths, **options)
    with pytest.raises(NotFittedError):
        model.score(GOOD)


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0, 1], [2, -2]], "sequence 1, position 1: .*-2"),
        ([[0, 1], [2, NAN]], "sequence 1, position 1: nan"),
        ([[0, 1], [2, 0.5]], "sequence 1, position 1: 0.5"),
        ([[-2], [-1]], "sequence 0, position 0: .*-2"),
        ([[0], [1e300]], r"sequence 1, position 0: .*1e\+300"),
    ],
)
def test_bad_symbols_are_named_though_the_alphabet_is_still_unknown(model_class, X, message):
    with pytest.raises(ValueError, match=message):
        make(model_class, emission=sj.Categorical()).fit(X)


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ([[0, 1], [3]], "sequence 1, position 0: symbol 3 is outside"),
        ([[0, 1], []], "sequence 1 is empty"),
        ([], "there is no data"),
        (([0, 1], [3]), "lengths add up to 3, but there are 2 steps"),
        ([["a"]], "strings, but the model has no vocabulary"),
    ],
)
def test_bad_validation_data_is_refused_before_the_old_model_is_lost(
    model, pristine, validation, message
):
    with pytest.raises(ValueError, match=message):
        model.fit(GOOD, validation=validation)
    assert_unchanged(model, pristine)


# ---- partial_fit -----------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", MODELS)
def test_partial_fit_needs_the_size_of_the_data_set_at_first(model_class):
    model = make(model_class)
    with pytest.raises(ValueError, match="partial_fit needs total_sequences"):
        model.partial_fit(GOOD)
    model.partial_fit(GOOD, total_sequences=5).partial_fit(GOOD)
    assert model.total_sequences_ == 5


BAD_TOTALS = [0, -1, 2, 2.5, 7.0, True, NAN, INF, -INF, "7"]


@pytest.mark.parametrize("total", BAD_TOTALS)
def test_a_bad_total_is_refused_and_the_model_stays_as_it_was(model, pristine, total):
    with pytest.raises((ValueError, TypeError), match="total_sequences"):
        model.partial_fit(GOOD, total_sequences=total)
    assert_unchanged(model, pristine)


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("total", BAD_TOTALS)
def test_a_bad_total_leaves_a_new_model_unfitted(model_class, total):
    model = make(model_class)
    with pytest.raises((ValueError, TypeError), match="total_sequences"):
        model.partial_fit(GOOD, total_sequences=total)
    with pytest.raises(NotFittedError):
        model.score(GOOD)


def test_a_minibatch_larger_than_the_known_total_is_refused(model, pristine):
    with pytest.raises(ValueError, match="minibatch has 4 sequences, total_sequences=3"):
        model.partial_fit([[0]] * 4)
    assert_unchanged(model, pristine)


def test_a_total_of_numpy_counts_as_a_number():
    model = make(sj.HMM).partial_fit(GOOD, total_sequences=np.int64(7))
    assert model.total_sequences_ == 7


# ---- before fit ------------------------------------------------------------------------------


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("method", PREDICT)
def test_prediction_before_fit_is_refused(model_class, method):
    with pytest.raises(NotFittedError, match=f"This {model_class.__name__} instance is not fitted"):
        getattr(make(model_class), method)(GOOD)


@pytest.mark.parametrize("model_class", MODELS)
def test_sampling_and_saving_before_fit_is_refused(model_class, tmp_path):
    with pytest.raises(NotFittedError):
        make(model_class).sample(2, 3)
    with pytest.raises(NotFittedError):
        make(model_class).save(tmp_path / "model.sojourn")
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize("name", ["startprob_", "transmat_", "statistics_", "n_updates_"])
def test_learned_attributes_before_fit_say_that_there_was_no_fit(model_class, name):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(make(model_class), name)
    assert not hasattr(make(model_class), name)


def test_hdp_before_fit_says_that_there_was_no_fit():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        _ = make(sj.HDPHMM).hdp_


# ---- parameters ------------------------------------------------------------------------------

NOT_WHOLE = [0, -1, 2.5, 2.0, True, "2", NAN]
BAD_PRIORS = [(0.0, 1.0), (1.0, -1.0), (1.0, NAN), (INF, 1.0), (1.0,), (1.0, 1.0, 1.0), 1.0, None]

COMMON = [
    *(("n_states", value, "n_states must be a whole number") for value in [*NOT_WHOLE, None]),
    *(("n_passes", value, "n_passes must be a whole number") for value in [*NOT_WHOLE, None]),
    *(("batch_size", value, "batch_size must be a whole number") for value in NOT_WHOLE),
    *(("forgetting_rate", value, "forgetting_rate") for value in [-0.1, 1.1, NAN, None, "half"]),
    *(("delay", value, "delay") for value in [-1.0, NAN, INF, None, "long"]),
    *(("device", value, "device=.* is not one of") for value in ["tpu", "CPU", None]),
    *(("dtype", value, "dtype=.* is neither") for value in ["float16", "int32", None, np.float32]),
    *(("init", value, "(?s)init=.* is neither") for value in ["kmeans", None, np.zeros((3, 3))]),
    *(("inference", value, "inference=.* is not one of") for value in ["map", "SCVI", None]),
    *(("n_jobs", value, "n_jobs") for value in [0, 1.5, "all"]),
    *(("random_state", value, "random_state=.* is not a seed") for value in [-1, 0.5, "seed"]),
    *(
        ("emission", value, "emission must be an emission family")
        for value in [None, "categorical"]
    ),
    ("emission", sj.Categorical, "emission must be an emission family"),
    *(("emission", sj.Categorical(value), "n_symbols must") for value in [0, -1, 2.5, True, 2**31]),
    *(
        ("emission", sj.Categorical(3, value), "concentration must be positive and finite")
        for value in [0.0, -1.0, NAN, INF, [1.0, 1.0, 0.0], np.full((3, 3), -1.0)]
    ),
    *(
        ("emission", sj.Categorical(3, value), r"concentration has the shape \(")
        for value in [np.ones(2), np.ones((2, 3)), np.ones((3, 2)), np.ones((3, 3, 3)), [1.0]]
    ),
    (
        "emission",
        sj.Categorical(2, vocabulary=sj.Vocabulary("abc")),
        "n_symbols=2, but the vocabulary has 3",
    ),
]
OF_HMM = [
    *(
        (f"{which}_concentration", value, f"{which}_concentration must be positive and finite")
        for which in ("start", "transition")
        for value in [0.0, -1.0, NAN, INF, [1.0, 1.0, 0.0], [1.0, -1.0, 1.0]]
    ),
    *(
        ("transition_concentration", value, r"transition_concentration has the shape \(")
        for value in [np.ones(2), np.ones((2, 3)), np.ones((3, 2)), np.ones((3, 3, 3)), []]
    ),
    *(
        ("start_concentration", value, r"start_concentration has the shape \(")
        for value in [np.ones(2), np.ones((3, 3)), []]
    ),
]
OF_HDP = [
    ("inference", "em", "inference='em' is not one of .* for HDPHMM"),
    *(("hdp_batch_size", value, "hdp_batch_size must be a whole") for value in [*NOT_WHOLE, None]),
    *(
        ("hdp", sj.HDPOptions(**{name: value}), f"{name} must be a positive shape")
        for name in ("alpha_prior", "gamma_prior")
        for value in BAD_PRIORS
    ),
    *(
        ("hdp", sj.HDPOptions(occupancy=value), "occupancy=.* is not")
        for value in ["Exact", "slow", None]
    ),
    ("hdp", "paper", "hdp='paper' is neither HDPOptions nor None"),
]
BAD_PARAMETERS = [
    *((model_class, *case) for model_class in MODELS for case in COMMON),
    *((sj.HMM, *case) for case in OF_HMM),
    *((sj.HDPHMM, *case) for case in OF_HDP),
]


@pytest.mark.parametrize(
    ("model_class", "name", "value", "message"),
    BAD_PARAMETERS,
    ids=[f"{case[0].__name__}-{case[1]}-{case[2]!r:.40}" for case in BAD_PARAMETERS],
)
def test_bad_parameters_are_refused_by_name(model_class, name, value, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make(model_class, **{name: value}).fit(GOOD)
    with pytest.raises((ValueError, TypeError), match=message):
        make(model_class, **{name: value}).partial_fit(GOOD, total_sequences=5)

    # A fit that is refused keeps the old model.
    fitted = make(model_class).fit(GOOD)
    old_value, before = getattr(fitted, name), snapshot(fitted)
    with pytest.raises((ValueError, TypeError), match=message):
        fitted.set_params(**{name: value}).fit(GOOD)
    assert snapshot(fitted.set_params(**{name: old_value})) == before


def test_a_matrix_of_transition_concentrations_gives_the_start_its_mean_row():
    matrix = np.arange(1.0, 10.0).reshape(3, 3)
    model = make(sj.HMM, transition_concentration=matrix).fit(GOOD)
    posterior = matrix.mean(axis=0) + model.statistics_.start
    np.testing.assert_allclose(model.startprob_, posterior / posterior.sum())


@pytest.mark.parametrize("method", PREDICT)
def test_a_device_that_does_not_exist_is_refused_in_prediction_too(model, method):
    with pytest.raises(ValueError, match="device='tpu' is not one of"):
        getattr(model.set_params(device="tpu"), method)(GOOD)


ONES = {"start": np.ones(3), "transitions": np.ones((3, 3)), "emissions": np.ones((3, 3))}


@pytest.mark.parametrize("model_class", MODELS)
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"emissions": np.ones((3, 4))}, r"shape \(3, 4\), the model needs \(3, 3\)"),
        (
            {"start": np.ones(2), "transitions": np.ones((2, 2)), "emissions": np.ones((2, 3))},
            r"shape \(2, 3\), the model needs \(3, 3\)",
        ),
        ({"start": np.array([1, NAN, 1])}, "not finite"),
        ({"transitions": np.full((3, 3), INF)}, "not finite"),
        ({"emissions": np.full((3, 3), NAN)}, "not finite"),
        ({"start": np.array([1, -1, 1])}, "negative count"),
        ({"transitions": np.full((3, 3), -1)}, "negative count"),
        ({"emissions": np.array([[1, 1, 1], [1, -5, 1], [1, 1, 1]])}, "negative"),
    ],
)
def test_bad_initial_statistics_are_refused(model_class, parts, message):
    init = sj.Statistics(**(ONES | parts))
    with pytest.raises(ValueError, match=message):
        make(model_class, init=init).fit(GOOD)


@pytest.mark.parametrize(
    "parts",
    [
        {"start": np.ones((3, 1))},
        {"start": np.ones(0)},
        {"transitions": np.ones((3, 2))},
        {"emissions": np.ones(3)},
        {"emissions": np.ones((2, 3))},
    ],
)
def test_statistics_of_shapes_that_do_not_fit_are_refused(parts):
    with pytest.raises(ValueError, match=r"are not \(K,\), \(K, K\) and \(K, S\)"):
        sj.Statistics(**(ONES | parts))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3), "at least one sequence"),
        ((-1, 3), "at least one sequence"),
        ((2, 0), "lengths of at least one"),
        ((2, [1, 0]), "lengths of at least one"),
        ((2, 1.5), "lengths of at least one"),
        ((2, [1, 2, 3]), r"\(3,\) lengths for 2 sequences"),
    ],
)
def test_bad_samples_are_refused(model, arguments, message):
    with pytest.raises(ValueError, match=message):
        model.sample(*arguments)


# ---- the caller's arrays ---------------------------------------------------------------------


@pytest.mark.parametrize("model_class", MODELS)
def test_no_array_of_the_caller_is_modified(model_class):
    flat = np.concatenate(GOOD).astype(np.int32)  # the family's own dtype: not copied on the way
    lengths = np.array([4, 2, 3])
    concentration = np.full((3, 3), 0.5)
    init = sj.Statistics(np.ones(3), np.ones((3, 3)), np.ones((3, 3), dtype=np.float32))
    owned = [flat, lengths, concentration, init.start, init.transitions, init.emissions]
    if model_class is sj.HMM:
        priors = {"transition_concentration": np.full((3, 3), 0.2)}
        priors["start_concentration"] = np.full(3, 0.2)
        owned += priors.values()
    else:
        owned += [np.array([1.0, 0.1]), np.array([1.0, 0.1])]
        priors = {"hdp": sj.HDPOptions(alpha_prior=owned[-2], gamma_prior=owned[-1])}
    before = [array.copy() for array in owned]

    emission = sj.Categorical(3, concentration)
    model = make(model_class, emission=emission, init=init, batch_size=None, **priors)
    model.fit(flat, lengths, validation=(flat, lengths)).partial_fit(flat, lengths)
    for method in PREDICT:
        getattr(model, method)(flat, lengths)
    sequences = sj.Sequences.from_lengths(flat, lengths)
    model.fit(sequences).partial_fit(sequences).predict_proba(sequences)
    for array, old in zip(owned, before, strict=True):
        np.testing.assert_array_equal(array, old)
        assert array.dtype == old.dtype


@pytest.mark.parametrize("model_class", MODELS)
def test_later_changes_of_the_callers_arrays_do_not_reach_the_model(model_class):
    flat = np.concatenate(GOOD).astype(np.int32)
    lengths = np.array([4, 2, 3])
    concentration = np.full(3, 0.5)
    init = sj.Statistics(np.ones(3), np.ones((3, 3)), np.eye(3) + 1)
    model = make(model_class, emission=sj.Categorical(3, concentration), init=init)
    before = snapshot(model.fit(flat, lengths))
    for array in (flat, lengths, concentration, init.start, init.transitions, init.emissions):
        array[...] = 1
    assert snapshot(model) == before


def test_read_only_data_is_as_good_as_any():
    # Arrow memory and memory-mapped files cannot be written to.
    data = pa.array(GOOD, pa.list_(pa.int32()))
    for batch_size in (2, None):
        got = make(sj.HMM, batch_size=batch_size).fit(data)
        expected = make(sj.HMM, batch_size=batch_size).fit(GOOD)
        np.testing.assert_array_equal(got.transmat_, expected.transmat_)
        np.testing.assert_array_equal(got.log_likelihood(data), expected.log_likelihood(GOOD))
