"""Labels and weights in columns of files."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sojourn as sj

NAMES = np.array(["rest", "walk", "run"])
ONE_PASS = {"batch_size": None, "n_passes": 1, "forgetting_rate": 0.0}


def drawn(n=10, seed=0):
    """Sequences, states, labels with gaps, weights."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 7, n)
    states = [rng.integers(3, size=length) for length in lengths]
    X = [3.0 * s + rng.normal(size=len(s)) for s in states]
    known = [[str(NAMES[k]) if rng.random() < 0.8 else None for k in s] for s in states]
    return X, known, 0.5 + rng.random(n)


def write_lists(path, X, known, weights):
    table = pa.table({"x": [x.tolist() for x in X], "tag": known, "w": weights})
    pq.write_table(table, path, row_group_size=4)
    return sj.open(path, column=["x"], label="tag", weight="w")


def write_rows(path, X, known, weights):
    lines = ["id,x,tag,w"]
    for n, (x, own) in enumerate(zip(X, known, strict=True)):
        lines += [f"{n},{v:.17g},{k or ''},{weights[n]}" for v, k in zip(x, own, strict=True)]
    path.write_text("\n".join(lines) + "\n")
    return sj.open(path, column=["x"], sequence="id", label="tag", weight="w")


FORMS = {"lists.parquet": write_lists, "rows.csv": write_rows}


def statistics(model):
    found = model.statistics_
    return np.concatenate([found.start, found.transitions.ravel(), found.emissions.ravel()])


@pytest.mark.parametrize("form", FORMS)
def test_columns_mean_what_arrays_mean(form, tmp_path):
    X, known, weights = drawn()
    source = FORMS[form](tmp_path / form, X, known, weights)
    assert source.has_labels
    assert source.has_weights
    names = ["rest", "walk", "run"]
    model = sj.HMM(3, sj.DiagonalGaussian(), random_state=0, dtype="float64", state_names=names)
    model.set_params(tile_length=None, **ONE_PASS)
    expected = statistics(model.fit(X, y=known, sample_weight=weights))
    score = model.score(X, y=known)
    np.testing.assert_allclose(statistics(model.fit(source)), expected, rtol=1e-9)
    assert model.score(source) == pytest.approx(score)
    again = pickle.loads(pickle.dumps(source))
    np.testing.assert_array_equal(
        np.concatenate([piece.labels.codes for piece in again]),
        [k or "" for own in known for k in own],
    )


@pytest.mark.parametrize("form", FORMS)
def test_minibatches_tiles_and_names_that_are_found(form, tmp_path):
    X, known, weights = drawn()
    source = FORMS[form](tmp_path / form, X, known, weights)
    model = sj.HMM(3, sj.DiagonalGaussian(), random_state=0, batch_size=3, n_passes=20)
    for tile_length in (None, 3):
        model.set_params(tile_length=tile_length).fit(source)
        assert model.state_names_ == ["rest", "run", "walk"]
        np.testing.assert_allclose(model.means_[:, 0], [0.0, 6.0, 3.0], atol=1.0)


def test_labels_with_gaps_and_numbers(tmp_path):
    X, known, _ = drawn()
    number = {None: None, "rest": 0, "walk": 1, "run": 2}
    numbers = [[number[k] for k in own] for own in known]
    table = pa.table({"x": [x.tolist() for x in X], "tag": numbers})
    pq.write_table(table, tmp_path / "n.parquet")
    model = sj.HMM(5, sj.DiagonalGaussian(), random_state=0)
    model.fit(sj.open(tmp_path / "n.parquet", column=["x"], label="tag"))
    assert model.fitted_.posterior.held == 3


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tag": lambda tag: [[*tag[0], "rest"], *tag[1:]]}, "sequence 0 has .* steps"),
        ({"tag": lambda tag: [["jump"] * len(own) for own in tag]}, "'jump' is not one of"),
        ({"w": lambda w: [-1.0, *w[1:]]}, "not a weight"),
        ({"w": lambda w: [None, *w[1:]]}, "missing values"),
    ],
)
def test_bad_columns_are_refused_with_their_place(change, message, tmp_path):
    X, known, weights = drawn()
    columns = {"x": [x.tolist() for x in X], "tag": known, "w": weights.tolist()}
    columns |= {name: made(columns[name]) for name, made in change.items()}
    pq.write_table(pa.table(columns), tmp_path / "bad.parquet")
    source = sj.open(tmp_path / "bad.parquet", column=["x"], label="tag", weight="w")
    names = ["rest", "walk", "run"]
    with pytest.raises(ValueError, match=message):
        sj.HMM(3, sj.DiagonalGaussian(), state_names=names).fit(source)


def test_what_has_no_columns_has_no_labels(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n")
    with pytest.raises(ValueError, match="label has no meaning"):
        sj.open(tmp_path / "a.txt", label="tag")
    with pytest.raises(ValueError, match="label="):
        sj.HMM(2, sj.Categorical()).fit(tmp_path / "a.txt", y=[0, 1])
    X, known, weights = drawn()
    write_lists(tmp_path / "b.parquet", X, known, weights)
    with pytest.raises(ValueError, match="has no column 'tags'"):
        sj.open(tmp_path / "b.parquet", label="tags")
