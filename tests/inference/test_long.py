"""Predictions on long sequences by tiles are those of the recursions over whole sequences."""

import numpy as np
import pytest
from hmmlearn import hmm

import sojourn as sj
from sojourn import data as data_module
from sojourn.backends.compute import Compute
from sojourn.inference import long, predict
from sojourn.inference.long import LONG_STEPS, LongPrediction

N_STEPS = 100_000


def draw(rng, n_steps, stay):
    changes = np.flatnonzero(rng.random(n_steps) > stay)
    runs = np.diff(np.concatenate([[0], changes, [n_steps]]))
    return np.repeat(rng.integers(3, size=len(runs)), runs)


@pytest.fixture(scope="module")
def symbols():
    rng = np.random.default_rng(0)
    return (draw(rng, N_STEPS, 0.98) + (rng.random(N_STEPS) < 0.4)) % 4


def fitted(symbols, **options):
    counts = np.array([[600.0, 400, 1, 1], [1, 600, 400, 1], [1, 1, 600, 400]])
    known = sj.Statistics([1, 1, 1], [[980, 10, 10], [10, 980, 10], [10, 10, 980]], counts)
    model = sj.HMM(3, sj.Categorical(4), init=known, n_passes=1, tile_length=None, **options)
    return model.fit(symbols[:100])


def test_the_posterior_of_a_long_chain_is_hmmlearns(symbols):
    model = fitted(symbols, dtype="float64")
    theirs = hmm.CategoricalHMM(3, implementation="scaling")
    theirs.startprob_, theirs.transmat_ = model.startprob_, model.transmat_
    theirs.emissionprob_, theirs.n_features = model.emissionprob_, 4
    column = symbols[:, None]
    np.testing.assert_allclose(
        model.predict_proba(symbols), theirs.predict_proba(column), atol=1e-8
    )
    assert model.score(symbols) == pytest.approx(theirs.score(column), rel=1e-12)
    score, path = theirs.decode(column)
    ours, own = model.decode(symbols)
    assert ours == pytest.approx(score, rel=1e-12)
    np.testing.assert_array_equal(own, path)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_tiles_give_what_whole_sequences_give(symbols, dtype):
    model = fitted(symbols, dtype=dtype).fitted_
    lengths = [3000, 1, 40, 700]
    values = symbols[: sum(lengths)].copy()
    values[500:900] = -1  # what lies behind it matters for long
    data = model.prepare(values, lengths).sequences
    backend = Compute("cpu", 2, dtype).backend()
    found = LongPrediction(model.posterior, model.family, data, backend, tile_steps=200)
    each = predict.log_likelihoods(model.posterior, model.family, data, backend)
    rows = predict.state_probabilities(model.posterior, model.family, data, backend)
    scores, path = predict.best_paths(model.posterior, model.family, data, backend)
    close = 1e-11 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(found.log_likelihoods(), each, rtol=close)
    ours = np.concatenate(list(found.state_probabilities()))
    np.testing.assert_allclose(ours, rows, atol=close)
    groups = list(found.best_paths())
    np.testing.assert_array_equal(np.concatenate([group[0] for group in groups]), path)
    total = np.zeros(4)
    for _, part, numbers in groups:
        np.add.at(total, numbers, part)
    np.testing.assert_allclose(total, scores, rtol=close)


@pytest.mark.parametrize("duration", [sj.NegativeBinomialDuration(4), sj.CategoricalDuration(9)])
def test_best_paths_of_states_that_last_are_found_in_tiles(duration, tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    runs = rng.integers(3, 9, 600)
    values = rng.normal(2.0 * np.repeat(np.arange(600) % 3, runs))
    values[700:760] = np.nan
    lengths = np.array([2500, 40, 1, len(values) - 2541])
    model = sj.HMM(3, sj.DiagonalGaussian(), duration=duration, random_state=0, n_init=1)
    model.set_params(n_passes=4, tile_length=None).fit(values[:600])
    monkeypatch.setattr(data_module, "LONG_STEPS", 200)
    monkeypatch.setattr(long, "GROUP_STEPS", 200)
    monkeypatch.setattr(long, "GROUP_NUMBERS", 0)
    monkeypatch.setattr(LongPrediction.__init__, "__defaults__", (50,))
    np.save(tmp_path / "x.npy", values[:, None])
    np.save(tmp_path / "x.offsets.npy", np.cumsum([0, *lengths]))
    score, _ = model.decode(sj.open(tmp_path / "x.npy"), out=tmp_path / "states.npy")
    expected, path = model.decode(values[:, None], lengths)  # in memory, of whole sequences
    np.testing.assert_array_equal(np.load(tmp_path / "states.npy"), path)
    assert score == pytest.approx(expected, rel=1e-7)


def test_buffers_grow_until_nothing_beyond_them_matters(symbols):
    model = fitted(symbols, dtype="float64").fitted_
    backend = model.compute.backend()
    values = symbols[:4000].copy()
    values[1000:2000] = -1
    sizes = []
    for own in (symbols[:4000], values):
        data = model.prepare(own).sequences
        found = LongPrediction(model.posterior, model.family, data, backend, tile_steps=500)
        found.log_likelihoods()
        sizes.append(found._buffer)
    assert sizes[0] < 1000 <= sizes[1]


@pytest.mark.parametrize("name", ["states.npy", "states.parquet"])
def test_results_of_a_long_file_are_written_by_groups(symbols, tmp_path, monkeypatch, name):
    monkeypatch.setattr(long, "GROUP_STEPS", 2**14)
    monkeypatch.setattr(long, "GROUP_NUMBERS", 0)
    model = fitted(symbols)
    lengths = [LONG_STEPS + 5000, 300, 2000]
    own = symbols[: sum(lengths)]
    np.save(tmp_path / "x.npy", own)
    np.save(tmp_path / "x.offsets.npy", np.cumsum([0, *lengths]))
    source = sj.open(tmp_path / "x.npy")
    out = tmp_path / name
    score, _ = model.decode(source, out=out)
    expected, path = model.decode(own, lengths)
    assert score == pytest.approx(expected, rel=1e-9)
    written = sj.open(out).read_all()
    np.testing.assert_array_equal(written.values, path)
    np.testing.assert_array_equal(written.lengths, lengths)
    model.predict_proba(source, out=out, overwrite=True)
    rows = sj.open(out).read_all().values
    np.testing.assert_allclose(rows, model.predict_proba(own, lengths), atol=1e-6)
    assert model.score(source) == pytest.approx(model.score(own, lengths), rel=1e-9)
    np.testing.assert_allclose(
        model.fitted_.log_likelihood(source), model.fitted_.log_likelihood(own, lengths)
    )


def test_a_file_of_results_is_written_whole_or_not_at_all(symbols, tmp_path):
    model = fitted(symbols)
    (tmp_path / "x.npy").write_bytes(b"")
    with pytest.raises(FileExistsError):
        model.predict(symbols[:50], out=tmp_path / "x.npy")
    bad = symbols[: LONG_STEPS + 9].copy()
    bad[-1] = 77
    np.save(tmp_path / "bad.npy", bad)
    with pytest.raises(ValueError, match="77"):
        model.predict(sj.open(tmp_path / "bad.npy", sequence=False), out=tmp_path / "y.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.npy", "x.npy"]
