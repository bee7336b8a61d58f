import ast
import inspect
import io
import json
import os
import pickle

import numpy as np
import pytest
import safetensors.numpy

import sojourn as sj
from sojourn import persist

X = [[0, 1, 2, 1, 0], [2, 2], [0, 1, 0, 3], [3, 1], [0], [1, 2, 3]]
WORDS = ("❓", "", "naïve", "語", "𝛼", 'quo"te\\', "\ud800", "nul\0")
TEXT = [["naïve", "語", ""], ["𝛼", "naïve"], ['quo"te\\', "\ud800", "nul\0x", "語"]]

COMMON = {"n_passes": 2, "batch_size": 2, "random_state": 0}


def spoken():
    emission = sj.Categorical(vocabulary=sj.Vocabulary(WORDS, unknown="❓"))
    return sj.HMM(2, emission, **COMMON).fit(TEXT), TEXT


def learned_words():
    return sj.HDPHMM(2, sj.Categorical(), **COMMON).fit(TEXT), TEXT


def finite(**parameters):
    return sj.HMM(3, sj.Categorical(4), **(COMMON | parameters)).fit(X, validation=X[:2]), X


def infinite(**parameters):
    return sj.HDPHMM(3, sj.Categorical(4), **(COMMON | parameters)).fit(X, validation=X[:2]), X


def with_arrays():
    emission = sj.Categorical(4, np.linspace(0.1, 1.0, 12).reshape(3, 4))
    priors = {"transition_concentration": np.eye(3) + 0.1, "start_concentration": np.ones(3)}
    return sj.HMM(3, emission, **priors, **COMMON).fit(X), X


def with_a_vector():
    return sj.HMM(3, sj.Categorical(4, np.linspace(0.1, 1.0, 4)), **COMMON).fit(X), X


def in_a_large_batch():
    # The large batch takes five sequences: after six, one has been seen of the next.
    model = sj.HDPHMM(3, sj.Categorical(4), **(COMMON | {"hdp_batch_size": 5, "n_passes": 1}))
    model.fit(X).partial_fit(X[:1])
    assert model.fitted_.posterior.transitions.n_pending > 0
    return model, X


def with_numpy_numbers():
    parameters = {"n_states": np.int64(3), "delay": np.float32(1), "batch_size": np.int32(2)}
    parameters["hdp"] = sj.HDPOptions(alpha_prior=(np.float32(2.0), np.float64(0.1)))
    model = sj.HDPHMM(emission=sj.Categorical(np.int64(4)), random_state=np.int64(0), **parameters)
    return model.partial_fit(X, total_sequences=np.int64(9)), X


CASES = {
    "HMM float32": lambda: finite(dtype="float32"),
    "HMM float64": lambda: finite(dtype="float64"),
    "HMM mean-field": lambda: finite(inference="svi"),
    "HMM many symbols": lambda: (sj.HMM(3, sj.Categorical(500), **COMMON).fit(X), X),
    "HMM one state": lambda: (sj.HMM(1, sj.Categorical(4), **COMMON).fit(X), X),
    "HMM arrays": with_arrays,
    "HMM vector": with_a_vector,
    "HMM vocabulary": spoken,
    "HDPHMM float32": lambda: infinite(dtype="float32"),
    "HDPHMM float64": lambda: infinite(dtype="float64"),
    "HDPHMM options": lambda: infinite(
        hdp=sj.HDPOptions(
            occupancy="fast", sort_states=False, normalize_rows=False, gamma_prior=(2.0, 1.0)
        )
    ),
    "HDPHMM mean-field": lambda: infinite(inference="svi"),
    "HDPHMM vocabulary of fit": learned_words,
    "HDPHMM in a large batch": in_a_large_batch,
    "HDPHMM NumPy numbers": with_numpy_numbers,
}


@pytest.fixture(params=CASES)
def fitted(request):
    return CASES[request.param]()


def assert_same_bits(got, expected):
    got, expected = np.asarray(got), np.asarray(expected)
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got, expected)


def assert_same_model(got, expected, data):
    assert type(got) is type(expected)
    assert got.score(data) == expected.score(data)
    assert_same_bits(got.log_likelihood(data), expected.log_likelihood(data))
    for method in ("predict", "predict_proba"):
        pairs = zip(getattr(got, method)(data), getattr(expected, method)(data), strict=True)
        for one, other in pairs:
            assert_same_bits(one, other)
    for name in ("start", "transitions", "emissions"):
        assert_same_bits(getattr(got.statistics_, name), getattr(expected.statistics_, name))
    for name in ("startprob_", "transmat_", "emissionprob_"):
        assert_same_bits(getattr(got, name), getattr(expected, name))
    for name in ("history_", "n_updates_", "total_sequences_"):
        assert getattr(got, name) == getattr(expected, name)
    if isinstance(expected, sj.HDPHMM):
        for one, other in zip(got.hdp_, expected.hdp_, strict=True):
            assert_same_bits(one, other)


def saved(model, folder):
    path = folder / "model.sojourn"
    model.save(path)
    return sj.load(path)


def test_a_loaded_model_is_the_same_to_the_bit(fitted, tmp_path):
    model, data = fitted
    assert_same_model(saved(model, tmp_path), model, data)


def test_a_loaded_model_learns_on_to_the_same_bits(fitted, tmp_path):
    model, data = fitted
    loaded = saved(model, tmp_path)
    for batch in (data[:2], data[2:], data, data[:1]):
        model.partial_fit(batch)
        loaded.partial_fit(batch)
        assert_same_model(loaded, model, data)


def test_a_model_may_be_saved_and_loaded_again(fitted, tmp_path):
    model, data = fitted
    assert_same_model(saved(saved(model, tmp_path), tmp_path), model, data)


def test_parameters_come_back(fitted, tmp_path):
    model, _ = fitted
    got, expected = saved(model, tmp_path).get_params(), model.get_params()
    assert got.keys() == expected.keys()
    for name in expected:
        if name.startswith("emission"):
            continue  # comes back with what the data told filled in
        np.testing.assert_equal(got[name], expected[name])
        # A list in place of a tuple would show up in repr as a changed parameter.
        assert isinstance(got[name], tuple) == isinstance(expected[name], tuple)


def test_the_family_comes_back(fitted, tmp_path):
    model, _ = fitted
    got, expected = saved(model, tmp_path).emission_, model.emission_
    assert got.n_symbols == expected.n_symbols
    assert got.vocabulary == expected.vocabulary
    np.testing.assert_array_equal(got.concentration, expected.concentration)
    assert np.ndim(got.concentration) == np.ndim(expected.concentration)


def test_a_loaded_model_can_be_fitted_anew(tmp_path):
    model, data = finite()
    again = saved(model, tmp_path).fit(data)
    assert_same_bits(again.transmat_, model.fit(data).transmat_)


def test_what_is_not_kept_has_its_default(tmp_path):
    init = sj.Statistics(np.ones(3), np.ones((3, 3)), np.ones((3, 4)))
    for random_state in (np.random.default_rng(0), np.random.RandomState(0)):
        model = sj.HMM(3, sj.Categorical(4), init=init, random_state=random_state).fit(X)
        loaded = saved(model, tmp_path)
        assert loaded.init == "exponential"
        assert loaded.random_state is None
        assert_same_model(loaded, model, X)


@pytest.mark.parametrize(
    "parameters",
    [{"transition_concentration": 5.0}, {"start_concentration": 5.0}, {"n_states": 2}],
    ids=lambda parameters: next(iter(parameters)),
)
def test_parameters_set_after_fit_do_not_change_what_was_learned(parameters, tmp_path):
    model, data = finite()
    expected = model.log_likelihood(data)
    loaded = saved(model.set_params(**parameters), tmp_path)
    assert_same_bits(model.log_likelihood(data), expected)
    assert_same_bits(loaded.log_likelihood(data), expected)


def test_hdp_parameters_set_after_fit_do_not_change_how_it_learns_on(tmp_path):
    model, data = infinite()
    hdp = sj.HDPOptions(alpha_prior=(50.0, 1.0), sort_states=False)
    model.set_params(hdp=hdp, hdp_batch_size=1)
    loaded = saved(model, tmp_path)
    assert_same_model(loaded, model, data)
    assert_same_model(loaded.partial_fit(data), model.partial_fit(data), data)


def test_paths_may_be_strings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model, data = finite()
    model.save("model.sojourn")
    assert_same_model(sj.load("model.sojourn"), model, data)


# ---- damaged files ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """Bytes of a small model file, and a path to put damaged ones at."""
    path = tmp_path_factory.mktemp("damaged") / "model.sojourn"
    sj.HMM(2, sj.Categorical(2), n_passes=1, random_state=0).fit([[0, 1], [1]]).save(path)
    return path.read_bytes(), path


def refused(path, raw):
    """Whether a file with this content is refused, with a message that names it."""
    path.write_bytes(raw)
    try:
        sj.load(path)
    except sj.ModelFileError as error:
        message = str(error)
        known = "is truncated or was altered" in message or "is not a sojourn model file" in message
        return known and str(path) in message
    return False


def test_the_undamaged_file_loads(sound):
    raw, path = sound
    assert not refused(path, raw)


def test_a_file_cut_at_any_length_is_refused(sound):
    raw, path = sound
    assert [length for length in range(len(raw)) if not refused(path, raw[:length])] == []


@pytest.mark.parametrize("mask", [0x01, 0x20, 0xFF])  # 0x20 turns letters into capitals
def test_a_file_with_any_byte_altered_is_refused(sound, mask):
    raw, path = sound
    accepted = []
    for place in range(len(raw)):
        altered = bytearray(raw)
        altered[place] ^= mask
        if not refused(path, altered):
            accepted.append(place)
    assert accepted == []


def test_a_file_with_something_after_its_end_is_refused(sound):
    raw, path = sound
    assert refused(path, raw + b"\0")
    assert refused(path, raw + raw)


def test_a_file_with_zeros_in_place_of_a_block_is_refused(sound):
    # What a crash may leave of a file that was not written whole.
    raw, path = sound
    for begin in range(0, len(raw) - 64, 64):
        if any(raw[begin : begin + 64]):
            assert refused(path, raw[:begin] + bytes(64) + raw[begin + 64 :])


NO_MODELS = {
    "empty": b"",
    "one byte": b"\0",
    "random": np.random.default_rng(0).bytes(10_000),
    "zeros": bytes(10_000),
    "text": b"once upon a time there was a model " * 20,
    "json": json.dumps({"model": "HMM"}).encode(),
    "pickle": pickle.dumps({"model": "HMM"}),
    "plain safetensors": safetensors.numpy.save({"weight": np.ones(3)}),
    "safetensors with metadata": safetensors.numpy.save(
        {"weight": np.ones(3)}, {"sojourn": "{}", "sha256": "?"}
    ),
}


@pytest.mark.parametrize("kind", NO_MODELS)
def test_other_files_are_refused(kind, tmp_path):
    path = tmp_path / "model.sojourn"
    path.write_bytes(NO_MODELS[kind])
    with pytest.raises(sj.ModelFileError, match=r"model\.sojourn is not a sojourn model file"):
        sj.load(path)


def test_a_numpy_archive_is_refused(tmp_path):
    buffer = io.BytesIO()
    np.savez(buffer, start=np.ones(3))
    (tmp_path / "model.sojourn").write_bytes(buffer.getvalue())
    with pytest.raises(sj.ModelFileError, match="not a sojourn model file"):
        sj.load(tmp_path / "model.sojourn")


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"format": 99}, "has format 99, but this version reads 1"),
        ({}, "not a sojourn model file: 'format'"),
        ({"format": 1}, "lacks an entry that a model needs: 'model'"),
        ({"format": 1, "model": "Transformer"}, "lacks an entry that a model needs: 'Transformer'"),
    ],
)
def test_a_sound_file_without_a_model_in_it_is_refused(description, message, tmp_path):
    path = tmp_path / "model.sojourn"
    path.write_bytes(persist._pack(description, {"weight": np.ones(3)}))
    with pytest.raises(sj.ModelFileError, match=message):
        sj.load(path)


def test_a_missing_file_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.sojourn"):
        sj.load(tmp_path / "nowhere.sojourn")


def test_the_error_is_a_value_error():
    assert issubclass(sj.ModelFileError, ValueError)


# ---- writing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("call", ["replace", "fsync", "chmod"])
def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(
    call, error, tmp_path, monkeypatch
):
    old, data = finite()
    path = tmp_path / "model.sojourn"
    old.save(path)
    before = path.read_bytes()
    new, _ = finite(random_state=1)

    def fail(*args, **kwargs):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(os, call, fail)
        with pytest.raises(type(error)):
            new.save(path)
        with pytest.raises(type(error)):
            new.save(tmp_path / "other.sojourn")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.sojourn"]
    assert_same_model(sj.load(path), old, data)
    # And the next attempt takes the old one's place.
    new.save(path)
    assert_same_model(sj.load(path), new, data)
    assert os.listdir(tmp_path) == ["model.sojourn"]


def test_a_folder_that_does_not_exist_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        finite()[0].save(tmp_path / "nowhere" / "model.sojourn")


@pytest.mark.skipif(os.name != "posix", reason="file modes are a matter of POSIX")
def test_the_file_has_the_mode_that_any_new_file_has(tmp_path):
    # Temporary files are readable by their owner alone; a model file is not.
    path, plain = tmp_path / "model.sojourn", tmp_path / "plain"
    finite()[0].save(path)
    plain.touch()
    assert path.stat().st_mode == plain.stat().st_mode


def test_model_files_need_no_pickle():
    tree = ast.parse(inspect.getsource(persist))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {node.module} | {alias.name for alias in node.names}
    assert "json" in names  # the walk sees imports at all
    assert not names & {"pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}
