"""The report: what stands in it, and that other people's words never run."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

import sojourn as sj
from sojourn.cli import app
from sojourn.report.gather import gather
from sojourn.report.layout import strong_transitions
from sojourn.report.markup import escape, json_script, tag
from sojourn.report.states import describe_states, summarize
from tests.support.browser import browser, look, needs_browser, point_at, problems, screenshot

EVIL = [
    "<script>document.title='hacked'</script>",
    "</script><script>document.title='hacked'</script>",
    '"><img/src=x/onerror=document.title="hacked">',
    "'><svg/onload=document.title='hacked'>",
    "javascript:document.title='hacked'",
    "&lt;b&gt;",
    "a\u2028b\u2029c\u202e",
    "]]>",
    "--><script>document.title='hacked'</script>",
    "\x00\x1b[2J",
    "$x^2$",
    "</style><script>document.title='hacked'</script>",
]


@pytest.fixture(scope="module")
def words():
    """A model of words among which some are meant to do harm, and its data."""
    rng = np.random.default_rng(0)
    nouns, verbs = ["cat", "dog", *EVIL[:6]], ["sleeps", "barks", *EVIL[6:]]
    data = [["the", str(rng.choice(nouns)), str(rng.choice(verbs)), "."] for _ in range(400)]
    vocabulary = sj.Vocabulary.from_sequences(data)
    model = sj.HDPHMM(6, sj.Categorical(vocabulary=vocabulary), batch_size=20, random_state=0)
    model.fit(data[50:], validation=data[:50])
    model.provenance_ = {"data": EVIL[0], "reason": EVIL[1], "held_out": EVIL[2]}
    return model, data


@pytest.fixture(scope="module")
def numbers():
    """A model of two columns of numbers, and its data."""
    rng = np.random.default_rng(0)
    data = []
    for _ in range(8):
        state = (rng.random(150) < 0.06).cumsum() % 3
        data.append(np.column_stack([rng.normal(5.0 * state), rng.normal(-3.0 * state, 0.5)]))
    data[0][10:13, 0] = np.nan
    model = sj.HMM(3, sj.DiagonalGaussian(), batch_size=2, n_passes=10, random_state=0)
    return model.fit(data), data


class Elements(HTMLParser):
    """Count elements, and gather what would run."""

    def __init__(self):
        super().__init__()
        self.names, self.handlers, self.links = [], [], []

    def handle_starttag(self, name, attributes):
        self.names.append(name)
        self.handlers += [key for key, _ in attributes if key.startswith("on") or key == "style"]
        self.links += [value for key, value in attributes if key in ("src", "href")]


def test_words_of_the_data_are_text_in_the_page(words, tmp_path):
    model, data = words
    page = sj.write_report(model, tmp_path / "r.html", data).read_text()
    elements = Elements()
    elements.feed(page)
    # The page's own: data and code.  Nothing runs from attributes, nothing is loaded.
    assert elements.names.count("script") == 2
    assert not {"img", "iframe", "link", "object"} & set(elements.names)
    assert elements.handlers == elements.links == []
    assert "default-src &#x27;none&#x27;" in page
    assert "http" not in re.sub(r"http-equiv", "", page)
    summary = re.search(r'<script type="application/json" id="summary">(.*?)</script>', page)
    assert not set("<>&\u2028\u2029") & set(summary.group(1))
    told = json.loads(summary.group(1))
    assert told["states_used"] == model.n_states_
    assert [s["state"] for s in told["states"]] == [
        s.state for s in summarize(model) if s.share > 0.005
    ]


def test_escapes_are_undone_by_a_browser_and_nothing_else():
    for word in EVIL:
        assert "<" not in escape(word)
        assert '"' not in escape(word)
    assert tag("a", "x<", b='"<') == '<a b="&quot;&lt;">x&lt;</a>'
    assert escape("a\x00b\ud800\u202e") == "a\ufffdb\ufffd\ufffd"
    inside = re.search(r">(.*)</script>", json_script(EVIL, "i")).group(1)
    assert json.loads(inside) == EVIL


@needs_browser
def test_a_hostile_corpus_is_shown_and_never_run(words, tmp_path):
    model, data = words
    page = sj.write_report(model, tmp_path / "report.html", data)
    with browser(tmp_path / "profile") as driver:
        driver.get(page.as_uri())
        assert "hacked" not in driver.title.replace(EVIL[0], "")
        assert driver.title == f"What {EVIL[0]} is made of · sojourn"
        find = driver.execute_script
        shown = find("return [...document.querySelectorAll('.chip')].map(e => e.textContent)")
        assert set(EVIL[:6]) <= set(shown)
        assert find("return document.querySelectorAll('section').length") == 8
        assert find("return document.querySelectorAll('.states > *').length") == len(
            gather(model).states
        )
        assert find("return document.querySelectorAll('.contexts tr').length") > 0
        # Pointing at a cell tells what it is; pointing at a state picks its transitions.
        point_at(driver, ".cell")
        assert find("return !document.getElementById('tip').hidden")
        tip = find("return document.getElementById('tip').textContent")
        number = r"(≈ 0|\d+(\.\d+)?)%"
        assert re.fullmatch(
            rf"from (.*) to (.*): {number} \({number} to {number}\)", tip, re.DOTALL
        )
        point_at(driver, ".node .disc")
        assert find("return document.querySelector('.graph').classList.contains('picked')")
        assert find("return document.querySelectorAll('.edge.on').length") > 0
        assert problems(driver) == []


@needs_browser
@pytest.mark.parametrize("which", ["words", "numbers"])
def test_the_page_fits_a_desk_and_a_phone_in_light_and_dark(which, request, tmp_path):
    from io import BytesIO

    from matplotlib import image

    model, data = request.getfixturevalue(which)
    page = sj.write_report(model, tmp_path / "report.html", data)
    with browser(tmp_path / "profile") as driver:
        driver.get(page.as_uri())
        for width in (1280, 390):
            for dark in (False, True):
                look(driver, width, 844, dark=dark)
                across = driver.execute_script("return document.documentElement.scrollWidth")
                assert across <= width  # no sideways scrolling of the page
                screenshot(driver, tmp_path / "s.png")
                picture = image.imread(BytesIO((tmp_path / "s.png").read_bytes()))
                assert picture.shape[1] == width
                corner = picture[2, 2, :3].mean()
                assert (corner < 0.3) if dark else (corner > 0.9)
                assert picture[..., :3].std() > 0.05  # something is drawn
        assert problems(driver) == []


def test_numbers_show_a_decoded_sequence(numbers, tmp_path):
    model, data = numbers
    page = sj.write_report(model, tmp_path / "r.html", data, title="Walks & runs").read_text()
    assert "<h1>Walks &amp; runs</h1>" in page
    assert 'id="sequence"' in page
    assert "Weights of the HDP" not in page
    contents = gather(model, data)
    assert len(contents.decoded.examples) == 8
    for example in contents.decoded.examples:
        np.testing.assert_array_equal(model.predict(data)[example.sequence], example.path)
        assert example.columns == ["x0", "x1"]
    changes = [example.n_changes for example in contents.decoded.examples]
    assert changes == sorted(changes, reverse=True)
    without = sj.write_report(model, tmp_path / "w.html").read_text()
    assert 'id="sequence"' not in without
    assert "Learning curve" not in without  # there was no held-out data


def test_shares_are_those_of_the_emission_counts(words):
    model, _ = words
    # Every arrival in a state emits one symbol: the two are counted in different places.
    emitted = model.statistics_.emissions.sum(axis=1)
    np.testing.assert_allclose(model.state_shares_, emitted / emitted.sum(), rtol=1e-4)
    assert model.n_states_ == (emitted > 0.005 * emitted.sum()).sum()


def test_observed_stays_are_those_of_the_decoded_paths(numbers):
    model, data = numbers
    runs = gather(model, data).decoded.runs
    paths = model.predict(data)
    for k in range(3):
        text = ["".join(str(z) for z in path.tolist()) for path in paths]
        found = [len(run) for line in text for run in re.findall(f"{k}+", line)]
        assert runs[k].tolist() == found


@pytest.mark.parametrize(
    ("family", "expected"),
    [
        (sj.DiagonalGaussian(), r"x0 −?[\d.e+-]+ ± [\d.e+-]+, x1 "),
        (sj.Gaussian(), r"x0 −?[\d.e+-]+ ± [\d.e+-]+, x1 "),
        (sj.TiedGaussian(), r"x0 −?[\d.e+-]+ ± [\d.e+-]+, x1 "),
        (sj.SphericalGaussian(), r"x0 −?[\d.e+-]+ ± [\d.e+-]+, x1 "),
        (sj.ZeroMeanGaussian(), r"x0 ± [\d.e+-]+, x1 ± "),
        (sj.AutoregressiveGaussian(), r"x0 noise [\d.e+-]+, x1 noise "),
        (sj.LinearGaussian(n_targets=1), r"noise [\d.e+-]+|x0 noise [\d.e+-]+"),
        (sj.LogNormal(), r"x0 .* ± .*, x1 "),
        (sj.Exponential(), r"x0 [\d.e+-]+, x1 "),
        (sj.Poisson(), r"x0 [\d.e+-]+, x1 "),
        (sj.Multinomial(), r"x[01] x[01]"),
        (sj.Product(sj.Gaussian(1), sj.Poisson()), r"x0 .* ± .*; x1 "),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, sj.HMM) else None,
)
def test_every_family_has_words_for_its_states(family, expected, tmp_path):
    X = np.random.default_rng(0).integers(1, 9, (60, 2)).astype(float)
    model = sj.HMM(2, family, random_state=0).fit(X, [40, 20])
    texts = describe_states(model)
    assert len(texts) == 2
    for text in texts:
        assert re.match(expected, text), text
    assert sj.write_report(model, tmp_path / "r.html", X, [40, 20]).stat().st_size > 10_000


@pytest.mark.parametrize("n_states", [1, 2, 3, 60])
def test_any_number_of_states_is_drawn(n_states, tmp_path):
    data = np.random.default_rng(0).integers(5, size=(30, 12))
    model = sj.HDPHMM(n_states, sj.Categorical(5), batch_size=5, random_state=0).fit(data)
    page = sj.write_report(model, tmp_path / "r.html", data[:1]).read_text()
    assert ("Strong transitions" in page) == (model.n_states_ > 1)
    graph = strong_transitions(model)
    assert len(graph.states) == min(14, model.n_states_)
    np.testing.assert_allclose(np.hypot(graph.x, graph.y), 1.0)
    leaving = model.transmat_ - np.diag(np.diagonal(model.transmat_))
    leaving /= np.maximum(leaving.sum(axis=1, keepdims=True), 1e-300)
    drawn = {(edge.source, edge.target): edge.probability for edge in graph.edges}
    for k in graph.states:
        strong = [j for j in graph.states if j != k and leaving[k, j] >= 0.1]
        expected = sorted(strong, key=lambda j: -leaving[k, j])[:3]
        assert {j for i, j in drawn if i == k} == set(expected)
    for (k, j), probability in drawn.items():
        assert probability == model.transmat_[k, j]


def test_a_report_from_the_command_line(tmp_path, monkeypatch):
    from typer.testing import CliRunner

    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.txt").write_text("The cat sleeps\nthe dog barks\n" * 40)
    run = CliRunner().invoke
    assert run(app, ["fit", "c.txt", "--states", "3", "--lower"]).exit_code == 0
    result = run(app, ["report", "c.sojourn", "--data", "c.txt", "-o", "r.html"])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "r.html").read_text()
    assert "What c.txt is made of" in page
    assert "<b>the</b>" in page  # in a context, and in lower case as in training
    assert ">The<" not in page
    again = run(app, ["report", "c.sojourn", "-o", "r.html"])
    assert again.exit_code == 1
    assert "exists already; --force replaces it" in again.output


def test_the_page_is_the_same_every_time(words):
    from sojourn.report.page import render

    model, data = words
    assert render(gather(model, data)) == render(gather(model, data))


def test_a_model_shows_itself_in_a_notebook(words):
    model, _ = words
    shown = model._repr_html_()
    assert "states in use" in shown
    assert "<script" not in shown.lower().replace("&lt;script", "")
    assert model._repr_mimebundle_()["text/html"] == shown
    unfitted = sj.HMM(2, sj.Categorical(2))
    assert "HMM" in unfitted._repr_html_()
    assert unfitted._repr_mimebundle_()["text/plain"] == repr(unfitted)


def test_a_report_says_how_sure_the_model_is_and_whether_it_fits(numbers, tmp_path):
    model, data = numbers
    page = sj.write_report(model, tmp_path / "r.html", data).read_text()
    for identifier in ("segments", "residuals", "dwell", "transitions"):
        assert f'id="{identifier}"' in page
    contents = gather(model, data)
    # The data are those of training: draws, and so the uncertainty about the states.
    assert "the data and the states" in contents.intervals.text
    low, high = contents.intervals.transitions
    assert ((low <= model.transmat_) & (model.transmat_ <= high)).mean() > 0.7
    short, long = contents.intervals.dwell
    assert (short < long).all()
    assert page.count('class="interval"') == 3
    assert contents.decoded.residuals.describe(1) in page.replace("&#x27;", "'")
    first = contents.decoded.examples[0].segments[0]
    assert f"{first.start} to {first.end - 1}" in page


def test_a_report_of_words_has_intervals_and_residuals_but_no_segments(words, tmp_path):
    model, data = words
    page = sj.write_report(model, tmp_path / "r.html", data[:100]).read_text()
    assert 'id="residuals"' in page
    assert 'id="segments"' not in page
    text = gather(model, data[:100]).intervals.text
    assert "but not about which state a step is in" in text
    alone = sj.write_report(model, tmp_path / "s.html").read_text()
    assert 'id="residuals"' not in alone
    assert 'class="interval"' in alone
