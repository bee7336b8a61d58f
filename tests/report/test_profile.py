"""States of many columns, words that tell states apart, and what a report leaves out."""

import re

import numpy as np
import pytest
from scipy import stats

import sojourn as sj
from sojourn.prediction import as_fitted
from sojourn.report import figures, gather, profile_figures
from sojourn.report.colors import PALETTE
from sojourn.report.examples import busiest
from sojourn.report.profile import profile
from sojourn.report.states import describe_states, top_symbols
from sojourn.report.text import columns_of, readable, shortened
from tests.support.browser import browser, look, needs_browser

NAMES = ["lowerback.rx", "lowerback.ry", *(f"a rather long name of column {d}" for d in range(12))]


@pytest.fixture(scope="module")
def wide():
    """A model of fourteen columns, its data, and their states."""
    rng = np.random.default_rng(0)
    means = rng.normal(0.0, 3.0, (4, 14))
    state = np.repeat(rng.integers(4, size=60), rng.integers(3, 12, 60))
    X = means[state] + rng.normal(size=(len(state), 14))
    X[:, 3] *= 1e-6
    model = sj.HMM(4, sj.DiagonalGaussian(), batch_size=None, forgetting_rate=0.0, random_state=0)
    model.fit(X)
    model.provenance_ = {"data": "wide.csv", "columns": NAMES}
    return model, X


def test_a_profile_is_that_of_the_decoded_data(wide):
    model, X = wide
    path = model.predict(X)
    found = gather.gather(model, X).profile
    for k in range(4):
        own = X[path == k]
        np.testing.assert_allclose(found.means[k], own.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(found.spreads[k], own.std(axis=0), rtol=1e-9)
    np.testing.assert_allclose(found.centre, X.mean(axis=0), rtol=0.05, atol=0.1)
    np.testing.assert_allclose(found.scale, X.std(axis=0), rtol=0.05)
    np.testing.assert_allclose(found.away, (found.means - found.centre) / found.scale)
    # Without data, draws of the model tell nearly the same.
    drawn = profile(as_fitted(model))
    assert np.abs(drawn.away - found.away).max() < 0.3
    assert drawn.histograms == []


def test_densities_are_those_of_the_states(wide):
    model, X = wide
    found = gather.gather(model, X).profile.histograms[0]
    assert found.is_model
    assert found.seen.sum() == pytest.approx(1.0)
    counts = np.histogram(X[:, 0], found.edges)[0]
    np.testing.assert_allclose(found.seen, counts / len(X), atol=2.5 / len(X))
    scale = np.sqrt(model.covars_[:, 0])
    for k in range(4):
        expected = np.diff(stats.norm.cdf(found.edges, model.means_[k, 0], scale[k]))
        expected *= model.state_shares_[k]
        np.testing.assert_allclose(found.states[k], expected, atol=0.02 * expected.max())


@pytest.mark.parametrize(
    "family", [sj.AutoregressiveGaussian(), sj.Product(sj.Poisson(), sj.Categorical(9))]
)
def test_distributions_that_depend_on_more_than_the_state_are_those_of_the_data(family):
    X = np.random.default_rng(1).integers(0, 9, (80, 2))
    model = sj.HMM(2, family, random_state=0).fit(X)
    contents = gather.gather(model, X)
    is_regression = isinstance(family, sj.AutoregressiveGaussian)
    assert contents.profile.names == (["x0", "x1"] if is_regression else ["x0"])
    for found in contents.profile.histograms:
        assert found.is_model != is_regression
        if is_regression:
            np.testing.assert_allclose(found.states.sum(axis=0), found.seen, atol=1e-12)
    assert (profile(as_fitted(model)) is None) == is_regression


def test_many_columns_are_a_heat_map_and_not_a_wall_of_numbers(wide, tmp_path):
    model, X = wide
    contents = gather.gather(model, X)
    drawn = profile_figures.profile_map(contents, contents.profile)
    assert drawn.count("<rect") == 4 * 14
    assert all(f">{name}</text>" in drawn for name in shortened(NAMES, 32))
    page = sj.write_report(model, tmp_path / "r.html", X).read_text()
    assert "States and columns" in page
    assert page.count("<figcaption>") == 12
    assert "Shown: 12 of 14 columns" in page  # both of the histograms and of the sequence
    assert not re.search(r">[^<>]*\d[eE]-\d", page)
    for text in describe_states(model):
        assert text.count(",") == 4
        assert text.endswith("and 10 more columns")
    # A row opens to all of them.
    opened = re.findall(r'class="all-columns">(.*?)</details>', page)
    assert [row.count("<b>") for row in opened] == [14] * 4


def test_numbers_are_those_that_a_person_reads():
    X = np.random.default_rng(0).random((300, 3)) < [1e-9, 0.5, 0.9]
    model = sj.HMM(1, sj.Bernoulli(alpha=1e-6), random_state=0).fit(X.astype(int))
    (text,) = describe_states(model)
    assert text.startswith("x0 ≈ 0, x1 0.")
    assert "e-" not in text


def test_names_are_whole_or_told_apart():
    names = ["lowerback.rx", "lowerback.ry", "x" * 50 + "1", "x" * 50 + "2", "日本語" * 20]
    found = shortened(names)
    assert found[:2] == names[:2]
    assert len(set(found)) == 5
    assert all(columns_of(name) <= 24 for name in found)
    same = ["a" * 40 + "b" * 9 + str(i) + "c" * 9 for i in range(12)]
    assert len(set(shortened(same, 12))) == 12


@pytest.mark.parametrize("value", [0.0, 1e-9, 0.0004, 0.49, 12.3, 999.9, 1e5, 2.5e7, -3.3])
def test_readable_numbers_are_near_the_number(value):
    text = readable(value).replace(",", "").replace("−", "-").replace("≈ ", "")
    digits = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
    number = float(re.sub(r"×10(.*)", lambda m: f"e{m.group(1).translate(digits)}", text))
    assert number == pytest.approx(value, rel=0.01, abs=5e-4)


def test_twenty_states_have_twenty_colours_that_differ():
    assert len(set(PALETTE)) == 20
    rgb = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in PALETTE], float)
    distance = np.linalg.norm(rgb[:, None] - rgb, axis=2) + 999.0 * np.eye(20)
    assert distance.min() > 40.0  # of 441


@pytest.fixture(scope="module")
def rare():
    """Words of which most are rare, so that the unknown word is the likeliest of two states."""
    rng = np.random.default_rng(0)

    def noun():
        return str(rng.choice(["cat", "dog"])) if rng.random() < 0.3 else f"n{rng.integers(4000)}"

    data = [["the", noun(), "of", noun(), "."] for _ in range(400)]
    vocabulary = sj.Vocabulary.from_sequences(data, min_count=20)
    model = sj.HMM(5, sj.Categorical(vocabulary=vocabulary), batch_size=40, random_state=0)
    return model.fit(data), data


def test_states_are_named_by_known_words_that_tell_them_apart(rare):
    model, data = rare
    unknown = model.emission_.vocabulary.words.index("<unk>")
    p, shares = model.emissionprob_, model.state_shares_
    overall = shares @ p
    likeliest = p.argmax(axis=1)
    assert unknown in likeliest
    for k, symbols in enumerate(top_symbols(model, 4)):
        assert symbols[0].is_known
        assert symbols[0].word != "<unk>"
        telling = p[k] * np.log(p[k] / overall)
        telling[unknown] = -np.inf
        assert symbols[0].word == model.emission_.vocabulary.words[telling.argmax()]
        assert symbols[0].probability == pytest.approx(p[k, telling.argmax()])
        if likeliest[k] == unknown:
            assert symbols[-1].word == "<unk>"
    contents = gather.gather(model, data)
    assert not any("<unk>" in contents.name(k) for k in range(5))


def test_examples_are_from_all_over_the_data(rare):
    model, data = rare
    number = {id(s): i for i, s in enumerate(data)}
    marked = [[*sentence[:-1], f"end{number[id(sentence)]}"] for sentence in data]
    contents = gather.gather(model, marked)
    ends = {
        int(m)
        for contexts in contents.decoded.contexts
        for c in contexts
        for m in re.findall(r"end(\d+)", f"{c.word} {c.after}")
    }
    assert max(ends) > 200
    assert len(ends) > 3


def test_the_stretch_with_the_most_changes_is_found():
    rng = np.random.default_rng(0)
    for _ in range(20):
        path = np.repeat(rng.integers(3, size=30), rng.integers(1, 9, 30))
        n = int(rng.integers(1, len(path) + 5))
        counts = [
            np.count_nonzero(np.diff(path[i : i + n])) for i in range(max(1, len(path) - n + 1))
        ]
        assert busiest(path, n) == (int(np.argmax(counts)), max(counts))


def test_a_long_sequence_shows_its_liveliest_stretch_and_its_ends(tmp_path):
    rng = np.random.default_rng(0)
    calm, lively = np.repeat([0, 1, 0], 400), np.tile(np.repeat([0, 1], 9), 12)
    X = np.concatenate([calm, lively, calm])[:, None] * 9.0
    X = X + rng.normal(size=X.shape)
    model = sj.HMM(2, sj.Gaussian(), batch_size=None, forgetting_rate=0.0, random_state=0).fit(X)
    examples = gather.gather(model, X).decoded.examples
    assert len(examples) == 3
    assert 1000 < examples[0].begin < 1300
    assert examples[0].n_changes > 20 > examples[1].n_changes
    assert [example.begin for example in examples[1:]] == [0, len(X) - 400]
    np.testing.assert_array_equal(examples[0].values, X[examples[0].begin :][:400])
    for example in examples:  # those of the whole sequence, not of the stretch alone
        whole = model.segments(X)
        starts = whole.start[(whole.end > example.begin) & (whole.start < example.begin + 400)]
        assert [segment.start for segment in example.segments] == starts[:40].tolist()
    page = sj.write_report(model, tmp_path / "r.html", X).read_text()
    assert page.count("<option") == 3
    assert page.count('data-choice="1" hidden') == 2  # the figure and its segments


def test_what_is_left_out_is_said(monkeypatch, tmp_path, rare):
    model, data = rare
    monkeypatch.setattr(gather, "STEPS", 500)
    page = sj.write_report(model, tmp_path / "a.html", data).read_text()
    assert "the first 500 of 2,000 steps only; the rest is left out" in page
    (tmp_path / "c.txt").write_text("\n".join(" ".join(s) for s in data))
    page = sj.write_report(model, tmp_path / "b.html", sj.open(tmp_path / "c.txt")).read_text()
    assert "the first 500 steps only; the rest is left out" in page
    assert "left out" not in sj.write_report(model, tmp_path / "c.html", data[:99]).read_text()
    many = sj.HMM(60, sj.Categorical(60), batch_size=None, random_state=0)
    many.fit(np.arange(6000).reshape(6, -1) % 60)
    shown = len(gather.gather(many).states)
    page = sj.write_report(many, tmp_path / "d.html").read_text()
    for most in (figures.MOST_RING, figures.MOST_CELLS):
        assert (f"Shown: {most} of {shown} states, the largest" in page) == (most < shown)
    assert shown > 20


def test_small_matrices_have_their_numbers_in_the_cells(rare):
    model, _ = rare
    drawn = figures.heat_map(gather.gather(model))
    assert drawn.count('class="value') == 25
    large = sj.HMM(40, sj.Categorical(40), random_state=0).fit(np.arange(1200).reshape(4, -1) % 40)
    assert 'class="value' not in figures.heat_map(gather.gather(large))


def test_a_notebook_shows_a_picture(wide, rare):
    for model in (wide[0], rare[0]):
        shown = model._repr_html_()
        assert shown.count("<circle") == model.n_states_
        assert shown.count('aria-label="strongest transitions between states"') == 1
        assert "<script" not in shown
        assert "class=" not in shown  # it needs no style of a page


def test_names_that_were_given_to_states_are_shown(tmp_path):
    X = np.repeat([0.0, 9.0, 0.0, 9.0], 20)[:, None]
    model = sj.HMM(2, sj.Gaussian(), state_names=["rest", "<walk>"], random_state=0).fit(X)
    page = sj.write_report(model, tmp_path / "r.html", X).read_text()
    for k, name in enumerate(("rest", "&lt;walk&gt;")):
        assert f'<b class="given">{name}</b>' in page
        assert f">{k} {name}</text>" in page
        assert f'class="word">{name}</text>' in page


@needs_browser
def test_no_label_is_clipped_and_a_sequence_can_be_chosen(wide, rare, tmp_path):
    model, X = wide
    words, data = rare
    pages = [
        sj.write_report(model, tmp_path / "n.html", X, [200, len(X) - 200]),
        sj.write_report(words, tmp_path / "w.html", data),
    ]
    outside = """
      return [...document.querySelectorAll('svg text')].filter(text => {
        const [own, all] = [text, text.ownerSVGElement].map(e => e.getBoundingClientRect());
        return own.width && (own.left < all.left - 1 || own.right > all.right + 1
                             || own.top < all.top - 2 || own.bottom > all.bottom + 2);
      }).map(text => text.textContent)"""
    with browser(tmp_path / "profile") as driver:
        for page in pages:
            for width in (1280, 390):
                look(driver, width, 844)
                driver.get(page.as_uri())
                assert driver.execute_script(outside) == []
        driver.get(pages[0].as_uri())
        shown = "return [...document.querySelectorAll('[data-choice]')].map(e => !e.hidden)"
        assert driver.execute_script(shown) == [True, False, True, False]
        driver.execute_script(
            "const s = document.getElementById('choose'); s.value = '1';"
            "s.dispatchEvent(new Event('change'))"
        )
        assert driver.execute_script(shown) == [False, True, False, True]
        # A mark at the end of a row shows that it opens.
        assert driver.execute_script("return document.querySelectorAll('.mark-open').length") == 4
