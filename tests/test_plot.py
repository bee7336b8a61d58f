"""Plots show what the model says, on the axes that they are given."""

import matplotlib as mpl
import numpy as np
import pytest

import sojourn as sj

mpl.use("agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def words():
    data = [["the", "$cat$", "sleeps"], ["a", "dog", "barks"], ["the", "dog", "sleeps"]] * 30
    model = sj.HDPHMM(5, sj.Categorical(), batch_size=10, n_passes=8, random_state=0)
    return model.fit(data, validation=data[:9])


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    state = np.repeat([0, 1, 0, 1], 50)
    X = np.column_stack([rng.normal(state * 6.0), rng.normal(size=200)])
    model = sj.HMM(2, sj.Gaussian(), batch_size=None, forgetting_rate=0.0, random_state=0)
    return model.fit(X), X


@pytest.fixture
def ax():
    axes = plt.subplots()[1]
    yield axes
    axes.figure.canvas.draw()  # what cannot be drawn fails here
    plt.close("all")


def test_learning_curves_are_the_history(words, ax):
    assert sj.plot.learning_curve(words, ax=ax) is ax
    (line,) = ax.get_lines()
    assert line.get_ydata() == pytest.approx([entry["score"] for entry in words.history_])
    assert line.get_xdata() == pytest.approx(range(1, 9))


def test_without_scores_the_bound_is_plotted_and_without_both_is_an_error(numbers, ax):
    with pytest.raises(ValueError, match="nothing to plot: fit with validation="):
        sj.plot.learning_curve(numbers[0], ax=ax)
    model = sj.HMM(2, sj.Categorical(3), inference="vb", n_passes=3, random_state=0)
    sj.plot.learning_curve(model.fit([[0, 1, 2]] * 4), ax=ax)
    assert ax.get_ylabel() == "bound"


def test_states_are_bars_by_size(words, ax):
    sj.plot.states(words, n_states=3, ax=ax)
    widths = [bar.get_width() for bar in ax.patches]
    assert widths == pytest.approx(100.0 * np.sort(words.state_shares_)[::-1][:3])
    shown = " ".join(text.get_text() for text in ax.texts)
    assert r"\$cat\$" in shown  # no formula


def test_the_matrix_is_that_of_the_largest_states(words, ax):
    sj.plot.transitions(words, n_states=4, ax=ax)
    largest = np.argsort(-words.state_shares_, kind="stable")[:4]
    shown = ax.images[0].get_array()
    np.testing.assert_allclose(shown, words.transmat_[np.ix_(largest, largest)])


def test_the_graph_has_a_node_for_every_state_in_use(words, ax):
    sj.plot.graph(words, ax=ax)
    assert len(ax.collections) == words.n_states_


def test_dwell_times_are_those_of_the_model_and_of_the_paths(numbers, ax):
    model, X = numbers
    sj.plot.dwell_times(model, X, ax=ax)
    expected = 1.0 / (1.0 - np.diagonal(model.transmat_))
    by_size = np.argsort(-model.state_shares_, kind="stable")
    places = np.asarray(ax.collections[1].get_offsets())[:, 0]
    assert places == pytest.approx(expected[by_size])
    observed = np.asarray(ax.collections[2].get_offsets())[:, 0]
    assert observed == pytest.approx([50.0, 50.0])  # the decoded states are the true ones


def test_sticks_are_the_weights_and_only_an_hdp_has_them(words, numbers, ax):
    sj.plot.sticks(words, ax=ax)
    heights = [bar.get_height() for bar in ax.patches]
    assert heights == pytest.approx(np.sort(words.hdp_.weights)[::-1])
    with pytest.raises(TypeError, match="HMM has no sticks"):
        sj.plot.sticks(numbers[0], ax=ax)


def test_a_sequence_has_bands_where_its_states_change(numbers, ax):
    model, X = numbers
    sj.plot.sequence(model, X, columns=["x", "y"], ax=ax)
    assert len(ax.patches) == 4
    edges = sorted(patch.get_extents().transformed(ax.transData.inverted()).x0
                   for patch in ax.patches)  # fmt: skip
    assert edges == pytest.approx([-0.5, 49.5, 99.5, 149.5])
    np.testing.assert_array_equal(ax.get_lines()[0].get_ydata(), X[:, 0])


def test_a_selection_is_plotted_with_its_errors(ax):
    model = sj.HMM(1, sj.Categorical(3), batch_size=5, random_state=0)
    found = sj.select_n_states(model, [[0, 1, 2] * 3] * 12, n_states=[1, 2], n_splits=2)
    assert found.plot(ax=ax) is ax
    assert ax.get_lines()[1].get_ydata() == pytest.approx([c.score for c in found])


def test_axes_are_made_where_none_are_given(words):
    for draw in (sj.plot.states, sj.plot.sticks, sj.plot.graph, sj.plot.transitions):
        assert draw(words).figure is not None
    plt.close("all")


def test_forecasts_are_bands_after_the_data(numbers, ax):
    model, X = numbers
    assert sj.plot.forecast(model, X, 5, column=1, n_past=20, n_draws=0, ax=ax) is ax
    data, median = ax.get_lines()[:2]
    np.testing.assert_allclose(data.get_ydata(), X[-20:, 1])
    found = model.forecast(X, steps=5, n_draws=0)
    np.testing.assert_allclose(median.get_ydata(), found.quantiles[1, 0, :, 1])
    assert median.get_xdata().tolist() == [200, 201, 202, 203, 204]
    assert len(ax.collections) == 2


def test_forecasts_of_words_are_an_error(words, ax):
    with pytest.raises(TypeError, match="symbols has no bands"):
        sj.plot.forecast(words, ["the", "dog"], 3, ax=ax)


def test_residuals_are_plotted_against_normal_scores(numbers, ax):
    model, X = numbers
    found = model.residuals(X)
    sj.plot.residuals(found, 1, ax=ax)
    points = ax.get_lines()[1]
    np.testing.assert_allclose(points.get_ydata(), np.sort(found.normal[:, 1]))
    assert np.corrcoef(points.get_xdata(), points.get_ydata())[0, 1] > 0.98


def test_autocorrelations_are_bars(numbers, ax):
    model, X = numbers
    found = model.residuals(X)
    sj.plot.autocorrelation(found, 0, 7, ax=ax)
    heights = [bar.get_height() for bar in ax.patches[:7]]
    np.testing.assert_allclose(heights, found.autocorrelation(7)[:, 0])


RNG = np.random.default_rng(0)
TABLE = {
    "animal": ["b"] * 60 + ["a"] * 60,
    "when": [*range(60)] * 2,
    "call": ["loud" if t % 20 < 10 else "soft" for t in range(120)],
    "x": [float(8 * (t % 20 < 10) + RNG.normal()) for t in range(120)],
}
ROLES = {"sequence": "animal", "time": "when"}


@pytest.mark.parametrize("library", ["pandas", "polars"])
@pytest.mark.parametrize("columns", [["x"], ["call", "x"]])
def test_plots_and_reports_take_the_frame_that_was_fitted(library, columns, ax, tmp_path):
    frame = pytest.importorskip(library).DataFrame(TABLE)[["animal", "when", *columns]]
    family = sj.Gaussian() if columns == ["x"] else sj.Product(sj.Categorical(), sj.Gaussian())
    model = sj.HMM(2, family, random_state=0, n_init=1).fit(frame, **ROLES)
    sj.plot.dwell_times(model, frame, ax=ax)
    assert "mean in the decoded data" in [text.get_text() for text in ax.get_legend().get_texts()]
    seen = ax.collections[-1].get_offsets()[:, 0]
    np.testing.assert_allclose(seen, 10.0)
    one = frame[:60]
    ax.clear()
    sj.plot.sequence(model, one, ax=ax)
    np.testing.assert_allclose(ax.lines[-1].get_ydata(), TABLE["x"][:60])
    with pytest.raises(ValueError, match="plot one sequence, not 2"):
        sj.plot.sequence(model, frame, ax=ax)
    if columns == ["x"]:
        sj.plot.forecast(model, one, 5, n_draws=5, ax=ax)
        with pytest.raises(ValueError, match="plot one sequence, not 2"):
            sj.plot.forecast(model, frame, 5, n_draws=5, ax=ax)
    for rows, text in ((frame, "120"), (one, "60")):
        page = sj.write_report(model, tmp_path / "report.html", rows).read_text()
        assert f"{text} steps" in page
    with pytest.raises(ValueError, match="now missing"):
        sj.write_report(model, tmp_path / "other.html", frame[["animal", "when"]])


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_plots_and_reports_take_a_frame_of_words(library, ax, tmp_path):
    frame = pytest.importorskip(library).DataFrame(TABLE)[["animal", "when", "call"]]
    model = sj.HMM(2, sj.Categorical(), random_state=0, n_init=1).fit(frame, **ROLES)
    sj.plot.dwell_times(model, frame, ax=ax)
    page = sj.write_report(model, tmp_path / "report.html", frame).read_text()
    assert "loud" in page
    assert "120 steps" in page
    with pytest.raises(TypeError, match="words is no line"):
        sj.plot.sequence(model, frame[:60], ax=ax)
