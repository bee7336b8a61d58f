"""Filtering against enumeration, against prefixes, and in parts."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.analysis import filtering
from sojourn.analysis.filtering import filter_sequences, follow
from tests.support import chains

X = np.array([0, 3, 3, 1, 2, 0, 0], np.int32)


def test_filter_and_lag_equal_enumeration():
    model = chains.symbol_model()
    logs = np.log(chains.SYMBOLS)[:, X].T
    for lag in (0, 1, 2, 9):
        found = model.filter(X, lag=lag)
        for t in range(len(X)):
            end = min(t + lag, len(X) - 1) + 1
            paths, weights = chains.every_path(logs[:end])
            np.testing.assert_allclose(
                found[t], chains.marginals(paths, weights)[t], rtol=0, atol=1e-9
            )


def test_log_densities_equal_enumeration_and_add_up():
    model = chains.symbol_model()
    logs = np.log(chains.SYMBOLS)[:, X].T
    sums = [chains.every_path(logs[: t + 1])[1].sum() for t in range(len(X))]
    found = filter_sequences(model.evidence(), sj.Sequences(X, [0, len(X)])).log_densities
    np.testing.assert_allclose(np.cumsum(found), np.log(sums), rtol=1e-9)


@pytest.fixture(scope="module")
def walks():
    rng = np.random.default_rng(0)
    data = [np.cumsum(rng.normal(size=(n, 2)), axis=0) for n in (9, 14, 1)]
    data[1][5] = np.nan
    data[1][:2] = np.nan
    model = sj.HMM(3, sj.AutoregressiveGaussian(order=2), random_state=0, dtype="float64")
    return model.fit(data), data


def test_filter_equals_probabilities_of_every_prefix(walks):
    model, data = walks
    for lag in (0, 2):
        for x, found in zip(data, model.filter(data, lag=lag), strict=True):
            for t in range(len(x)):
                prefix = model.predict_proba(x[: t + lag + 1])
                np.testing.assert_allclose(found[t], prefix[t], rtol=0, atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("lag", [0, 1, 4, 20])
def test_a_sequence_in_parts_is_filtered_as_a_whole(walks, size, lag):
    model, data = walks
    evidence, x = model.fitted_.evidence(), data[1]
    whole = filter_sequences(evidence, sj.Sequences(x, [0, len(x)]), lag)
    parts = [x[at : at + size] for at in range(0, len(x), size)]
    found = list(follow(evidence, parts, lag))
    np.testing.assert_allclose(
        np.concatenate([f.probabilities for f in found]), whole.probabilities, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(
        np.concatenate([f.log_densities for f in found]), whole.log_densities, rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(found[-1].last, whole.last, rtol=0, atol=1e-12)


def test_files_are_filtered_in_parts(walks, tmp_path, monkeypatch):
    model, data = walks
    flat, offsets = np.concatenate(data), np.cumsum([0, *map(len, data)])
    np.save(tmp_path / "x.npy", flat)
    np.save(tmp_path / "x.offsets.npy", offsets)
    rows = ["id,a,b"] + [
        f"{n},{a},{b}".replace("nan", "") for n, x in enumerate(data) for a, b in x.tolist()
    ]
    (tmp_path / "x.csv").write_text("\n".join(rows) + "\n")
    expected = np.concatenate(model.filter(data, lag=3))
    monkeypatch.setattr("sojourn.sources.stretches.STRETCH_STEPS", 4)
    monkeypatch.setattr(filtering, "CHUNK_STEPS", 5)
    table = sj.open(tmp_path / "x.csv", column=["a", "b"], sequence="id")
    for number, source in enumerate([tmp_path / "x.npy", table]):
        out = model.filter(source, lag=3, out=tmp_path / f"{number}.npy")
        np.testing.assert_allclose(np.load(out), expected, rtol=0, atol=1e-12)
    out = model.filter(tmp_path / "x.npy", lag=3, out=tmp_path / "lists.parquet")
    np.testing.assert_allclose(sj.open(out).read_all().values, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.concatenate(model.filter(data, lag=3)), expected, atol=1e-12)
    with pytest.raises(FileExistsError):
        model.filter(tmp_path / "x.npy", out=tmp_path / "0.npy")


def test_bad_values_in_a_file_name_their_place(walks, tmp_path, monkeypatch):
    model, _ = walks
    monkeypatch.setattr("sojourn.sources.stretches.STRETCH_STEPS", 4)
    values = np.zeros((9, 2))
    values[6, 1] = np.inf
    np.save(tmp_path / "x.npy", values)
    np.save(tmp_path / "x.offsets.npy", np.array([0, 9]))
    match = r"sequence 0, from position 4.*position 2, column 1"
    with pytest.raises(sj.DataFileError, match=match):
        model.filter(tmp_path / "x.npy", out=tmp_path / "out.npy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.npy", "x.offsets.npy"]


@pytest.mark.parametrize("lag", [-1, 1.5, True])
def test_a_wrong_lag_is_refused(lag):
    with pytest.raises(ValueError, match="lag must be a whole number"):
        chains.symbol_model().filter(X, lag=lag)


def test_a_sampler_filters_by_the_mean_over_its_draws():
    rng = np.random.default_rng(0)
    data = [rng.integers(2, size=12) + 2 * (np.arange(12) > 5) for _ in range(6)]
    sampling = sj.Sampling("gibbs", n_samples=5, burn_in=10, n_chains=1)
    model = sj.HMM(2, sj.Categorical(4), inference=sampling, random_state=0).fit(data)
    found = model.filter(data[0])
    for t in range(12):
        np.testing.assert_allclose(found[t], model.predict_proba(data[0][: t + 1])[t], atol=1e-5)
