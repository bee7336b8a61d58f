"""Data frames of pandas and polars, in and out."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.utils.estimator_checks import check_dataframe_column_names_consistency

import sojourn as sj

RNG = np.random.default_rng(0)
Z = np.tile(np.repeat([0, 1], 10), 10)
FRAME = pd.DataFrame({
    "animal": np.repeat(["b", "a"], 100),
    "when": np.tile(pd.date_range("2020", periods=100, freq="h"), 2),
    "x": RNG.normal(Z * 6.0), "y": RNG.normal(-Z * 6.0),
})  # fmt: skip
SHUFFLED = FRAME.sample(frac=1.0, random_state=0)


def fitted(frame=SHUFFLED, family=None, **options):
    model = sj.HMM(2, family or sj.Gaussian(), random_state=0, n_passes=5, n_init=1)
    return model.fit(frame, **options)


def by_list(columns=("x", "y")):
    return [FRAME.loc[FRAME.animal == a, list(columns)].to_numpy() for a in ("b", "a")]


def test_rows_are_put_in_order_and_results_are_given_back_in_theirs():
    model = fitted(sequence="animal", time="when")
    assert model.score(SHUFFLED) == pytest.approx(model.score(by_list()), rel=1e-6)
    path = model.predict(SHUFFLED)
    np.testing.assert_array_equal(path, np.concatenate(model.predict(by_list()))[SHUFFLED.index])
    series = model.predict(SHUFFLED, output="pandas")
    assert series.name == "state"
    assert series.index.equals(SHUFFLED.index)
    np.testing.assert_array_equal(series, path)
    for frame in (model.predict_proba(SHUFFLED, output="pandas"),
                  model.filter(SHUFFLED, output="pandas")):  # fmt: skip
        assert frame.index.equals(SHUFFLED.index)
        assert frame.columns.tolist() == ["probability_0", "probability_1"]
        np.testing.assert_allclose(frame.sum(axis=1), 1.0, rtol=1e-5)
    joined = SHUFFLED.join(series).sort_index()
    assert max((joined.state == Z).mean(), (joined.state != Z).mean()) == 1.0


@pytest.mark.parametrize("form", ["polars", "arrow", "index levels", "groups", "polars groups"])
def test_the_same_table_in_other_forms_is_the_same_data(form):
    model, without = fitted(sequence="animal", time="when"), FRAME.drop(columns="when")
    data = {
        "polars": lambda: pl.from_pandas(FRAME),
        "arrow": lambda: pa.Table.from_pandas(FRAME, preserve_index=False),
        "index levels": lambda: SHUFFLED.set_index(["animal", "when"]),
        "groups": lambda: without.groupby("animal"),
        "polars groups": lambda: pl.from_pandas(without).group_by("animal", maintain_order=True),
    }[form]()
    if "groups" in form:
        grouped = fitted(data)
        assert grouped.total_sequences_ == 2
        assert grouped.feature_names_in_.tolist() == ["x", "y"]
        assert grouped.score(data) == pytest.approx(grouped.score(by_list()), rel=1e-6)
        return
    assert model.score(data) == pytest.approx(model.score(by_list()), rel=1e-6)
    assert fitted(data, sequence="animal", time="when").total_sequences_ == 2
    if form == "polars":
        assert model.predict(data, output="polars").to_list() == model.predict(data).tolist()
        assert model.predict_proba(data, output="polars").columns[0] == "probability_0"


def test_a_series_and_an_index_of_dates():
    series = FRAME.set_index("when")["x"][:100]
    model = fitted(series)
    assert model.score(series) == pytest.approx(model.score(series.to_numpy()), rel=1e-6)
    turned = series[::-1]  # its index says that it is the same series
    assert model.score(turned) == pytest.approx(model.score(series), rel=1e-6)
    path = model.predict(turned, output="pandas")
    assert path.index.equals(turned.index)
    np.testing.assert_array_equal(path[::-1], model.predict(series))
    assert fitted(pl.Series("x", series.to_list())).n_features_in_ == 1


def test_nullable_columns_have_missing_values():
    x = FRAME["x"].astype("Float64").mask(FRAME.index % 7 == 0)
    n = pd.array([1, None, 3] * 50, dtype="Int64")
    model = fitted(x, sj.DiagonalGaussian())
    expected = model.score(x.to_numpy(float, na_value=np.nan))
    assert model.score(x) == pytest.approx(expected, rel=1e-6)
    assert fitted(pd.DataFrame({"n": n}), sj.Poisson()).n_features_in_ == 1
    flags = pd.DataFrame({"f": pd.array([True, False, None] * 50, dtype="boolean")})
    assert fitted(flags, sj.Bernoulli()).n_features_in_ == 1


def test_columns_are_compared_by_name_as_scikit_learn_does():
    model = fitted(sequence="animal", time="when")
    assert model.feature_names_in_.tolist() == ["x", "y"]
    with pytest.raises(ValueError, match="must be in the same order as they were in fit"):
        model.score(FRAME[["animal", "when", "y", "x"]])
    with pytest.raises(ValueError, match="seen at fit time, yet now missing:\n- y"):
        model.score(FRAME.drop(columns="y"))
    with pytest.raises(ValueError, match="unseen at fit time:\n- q"):
        model.score(FRAME.assign(q=1.0))
    assert not hasattr(fitted(FRAME[["x", "y"]].to_numpy()), "feature_names_in_")
    assert model.fit(FRAME, sequence="animal", drop=["when", "y"]).feature_names_in_ == ["x"]


def test_scikit_learns_own_check_of_column_names():
    class Plain(sj.HMM):
        """feature_names_in_ is documented: scikit-learn looks for it."""

        def fit(self, X, y=None):
            return super().fit(X)

        def partial_fit(self, X, y=None):
            return super().partial_fit(X, total_sequences=1)

        def score(self, X, y=None):
            return super().score(X)

    model = Plain(2, sj.DiagonalGaussian(), n_passes=2, n_init=1, random_state=0)
    check_dataframe_column_names_consistency("Plain", model)


def test_columns_that_are_no_numbers_are_named():
    with pytest.raises(TypeError, match=r"column 'when' has dates or times .*time='when'"):
        fitted(FRAME, sequence="animal")
    with pytest.raises(TypeError, match="column 'animal' has words, and Gaussian takes numbers"):
        fitted(FRAME, time="when")
    odd = FRAME[["x"]].assign(o=[object()] * 200)
    with pytest.raises(TypeError, match="column o"):
        fitted(odd)
    with pytest.raises(ValueError, match="there is no column 'herd': animal, when, x, y"):
        fitted(FRAME, sequence="herd")
    with pytest.raises(ValueError, match=r"row 3: the sequence is missing \(column 'animal'\)"):
        fitted(FRAME.assign(animal=FRAME.animal.mask(FRAME.index == 2)), sequence="animal",
               time="when")  # fmt: skip
    with pytest.raises(TypeError, match="only tables have columns with names"):
        fitted(FRAME[["x"]].to_numpy(), sequence="animal")


def test_words_of_a_frame_are_symbols():
    words = FRAME.assign(w=np.where(Z == 1, "sun", "rain"))
    model = fitted(words, sj.Product(sj.Gaussian(), sj.Categorical()), sequence="animal",
                   time="when")  # fmt: skip
    assert model.feature_names_in_.tolist() == ["x", "y", "w"]
    assert model.score(words) > model.score(words.assign(w="snow"))
    category = words.assign(w=words.w.astype("category"))
    assert model.score(category) == pytest.approx(model.score(words), rel=1e-6)
    symbols = fitted(words[["animal", "w"]], sj.Categorical(), sequence="animal")
    assert symbols.emission_.vocabulary.words == ("<unk>", "rain", "sun")


def test_frames_without_columns_of_ids_stay_what_they_were():
    rows = pd.DataFrame([[0, 1, 0, 1]] * 5)  # every row a sequence of symbols
    assert fitted(rows, sj.Categorical(2)).total_sequences_ == 5
    frame = FRAME[["x", "y"]]
    model = fitted(frame.to_numpy())
    assert model.score(frame, [150, 50]) == model.score(frame.to_numpy(), [150, 50])
    states = model.predict(by_list(), output="pandas")
    assert states.index.names == ["sequence", "step"]
    assert states.loc[1].tolist() == model.predict(by_list())[1].tolist()
    with pytest.raises(ValueError, match="output='numpy' is neither"):
        model.predict(frame, output="numpy")


def test_frames_are_learned_from_in_parts():
    model = sj.HMM(2, sj.Gaussian(), random_state=0)
    for part in (FRAME[:100], FRAME[100:]):
        model.partial_fit(part, total_sequences=2, sequence="animal", time="when")
    assert model.feature_names_in_.tolist() == ["x", "y"]
    assert model.n_updates_ == 2


@pytest.mark.parametrize("form", ["array", "list", "series", "polars"])
def test_labels_are_in_the_order_of_the_rows(form):
    """Whatever order the rows are in, a label belongs to its row."""
    names = pd.Series(np.where(Z == 1, "fast", "slow"), index=FRAME.index)[SHUFFLED.index]
    y = {
        "array": names.to_numpy(),
        "list": names.tolist(),
        "series": names,
        "polars": pl.Series(names.to_numpy()),
    }[form]
    frame = pl.from_pandas(SHUFFLED) if form == "polars" else SHUFFLED
    model = fitted(frame, sequence="animal", time="when", y=y)
    assert list(model.state_names_) == ["fast", "slow"]
    # All steps have labels: the expected counts are those of the labels, exactly.
    series = [Z[:100], Z[100:]]
    counts = np.zeros((2, 2))
    for path in series:
        np.add.at(counts, (1 - path[:-1], 1 - path[1:]), 1.0)
    np.testing.assert_allclose(model.statistics_.transitions, counts, atol=1e-4)
    found = model.predict(frame)
    np.testing.assert_array_equal(found, (names == "slow").to_numpy().astype(int))
    one_off = model.score(frame, y=np.roll(names.to_numpy(), 1))
    assert model.score(frame, y=y) > one_off
    with pytest.raises(ValueError, match="y has 199 labels, and the table 200 rows"):
        model.score(frame, y=y[:199])
