"""Decoding and segments against enumeration, and hmmlearn's names."""

import numpy as np
import pytest
from hmmlearn.hmm import CategoricalHMM

import sojourn as sj
from tests.support import chains

X = np.array([0, 3, 3, 1, 2, 0, 0], np.int32)
LOGS = np.log(chains.SYMBOLS)[:, X].T


def hmmlearn_model(**options):
    model = CategoricalHMM(3, **options)
    model.startprob_, model.transmat_ = chains.START, chains.MATRIX
    model.emissionprob_ = chains.SYMBOLS
    return model


def test_the_k_best_paths_equal_enumeration():
    model = chains.symbol_model()
    paths, weights = chains.every_path(LOGS)
    order = np.argsort(-weights, kind="stable")
    scores, found = model.decode([X, X[:2]], k=50)
    np.testing.assert_allclose(scores[0], np.log(weights[order[:50]]), rtol=1e-7)
    for score, path in zip(scores[0], found[0], strict=True):
        own = weights[(paths == path).all(axis=1)]
        np.testing.assert_allclose(np.log(own), score, rtol=1e-7)
    assert len({tuple(path) for path in found[0].tolist()}) == 50
    # Two steps have nine paths.
    assert np.isfinite(scores[1, :9]).all()
    assert (scores[1, 9:] == -np.inf).all()
    assert (found[1][9:] == -1).all()
    best, path = model.decode([X])
    np.testing.assert_allclose(scores[0, 0], best)
    np.testing.assert_array_equal(found[0][0], path[0])


def test_map_decoding_is_hmmlearns():
    model, peer = chains.symbol_model(), hmmlearn_model(algorithm="map")
    score, path = model.decode(X, algorithm="map")
    expected, states = peer.decode(X[:, None])
    np.testing.assert_allclose(score, expected, rtol=1e-8)
    np.testing.assert_array_equal(path, states)
    total, probabilities = model.score_samples(X)
    expected, posteriors = peer.score_samples(X[:, None])
    np.testing.assert_allclose(total, expected, rtol=1e-8)
    np.testing.assert_allclose(probabilities, posteriors, rtol=0, atol=1e-8)


def test_probabilities_of_segments_equal_enumeration():
    model = chains.symbol_model()
    paths, weights = chains.every_path(LOGS)
    shares = weights / weights.sum()
    for algorithm in ("viterbi", "map"):
        table = model.segments([X, X[:3]], algorithm=algorithm)
        path = model.decode([X, X[:3]], algorithm=algorithm)[1]
        rebuilt = [np.full(s.length, s.state) for s in table if s.sequence == 0]
        np.testing.assert_array_equal(np.concatenate(rebuilt), path[0])
        for s in table:
            if s.sequence == 0:
                whole = (paths[:, s.start : s.end] == s.state).all(axis=1)
                np.testing.assert_allclose(s.probability, shares[whole].sum(), rtol=1e-8)
        ends = table.end[table.sequence == 1]
        assert ends[-1] == 3
        assert (table.state[1:] != table.state[:-1])[np.diff(table.sequence) == 0].all()


def test_a_table_of_segments_has_means_and_names(tmp_path):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(m, 0.1, (20, 2)) for m in (0.0, 5.0, 0.0)])
    x[3, 1] = np.nan
    model = sj.HMM(2, sj.DiagonalGaussian(), random_state=0, n_init=1).fit(x)
    table = model.segments(x, names=["low", "high"] if model.means_[0, 0] < 2 else ["high", "low"])
    assert table.name.tolist() == ["low", "high", "low"]
    assert table.length.tolist() == [20, 20, 20]
    np.testing.assert_allclose(table.mean[0], np.nanmean(x[:20], axis=0))
    assert (table.probability > 0.99).all()
    path = table.to_parquet(tmp_path / "segments.parquet")
    import pyarrow.parquet as pq

    read = pq.read_table(path).to_pydict()
    assert read["name"] == ["low", "high", "low"]
    np.testing.assert_allclose(read["mean_1"], table.mean[:, 1])
    with pytest.raises(FileExistsError):
        table.to_parquet(path)
    with pytest.raises(ValueError, match="3 names for 2 states"):
        model.segments(x, names=["a", "b", "c"])


def test_segments_of_a_file_are_those_of_memory(tmp_path):
    rng = np.random.default_rng(0)
    data = [rng.integers(4, size=n).astype(np.int32) for n in (30, 5, 12)]
    np.save(tmp_path / "x.npy", np.concatenate(data))
    np.save(tmp_path / "x.offsets.npy", np.array([0, 30, 35, 47]))
    model = chains.symbol_model()
    one, other = model.segments(data), model.segments(tmp_path / "x.npy")
    for name, column in one.columns().items():
        np.testing.assert_array_equal(column, other.columns()[name])


def test_pandas_gets_the_columns():
    pd = pytest.importorskip("pandas")
    frame = chains.symbol_model().segments(X).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame.columns) == [
        "sequence", "state", "name", "start", "end", "length", "probability",
    ]  # fmt: skip


def test_map_paths_go_to_files(tmp_path):
    model = chains.symbol_model()
    out = model.decode([X, X[:2]], algorithm="map", out=tmp_path / "states.parquet")[1]
    found = sj.open(out).read_all()
    np.testing.assert_array_equal(found[0], model.decode(X, algorithm="map")[1])


@pytest.mark.parametrize(
    ("wrong", "match"),
    [
        ({"algorithm": "best"}, "not one of"),
        ({"k": 0}, "k must be a whole number"),
        ({"k": 2, "algorithm": "map"}, "viterbi"),
        ({"k": 2, "out": "x.parquet"}, "returned in memory"),
    ],
)
def test_wrong_arguments_are_refused(wrong, match):
    with pytest.raises(ValueError, match=match):
        chains.symbol_model().decode(X, **wrong)
