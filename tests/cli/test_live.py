"""The commands that look at the present and ahead."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import sojourn as sj
from sojourn.cli import app


def run(*words, stdin=None):
    return CliRunner().invoke(app, [str(word) for word in words], input=stdin)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(m, 1.0, (30, 2)) for m in (0.0, 9.0, 0.0)])
    rows = ["walk,a,b"] + [f"{n // 45},{a:.4f},{b:.4f}" for n, (a, b) in enumerate(x)]
    (folder / "x.csv").write_text("\n".join(rows) + "\n")
    model = folder / "m.sojourn"
    result = run("fit", folder / "x.csv", "--sequence", "walk", "--states", 2, "--model", "hmm",
                 "--held-out", 0, "--out", model)  # fmt: skip
    assert result.exit_code == 0, result.output
    return model, folder / "x.csv", sj.open(folder / "x.csv", column=["a", "b"], sequence="walk")


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "t.txt").write_text("the cat sleeps\nthe dog barks\n" * 30)
    model = sj.HMM(3, sj.Categorical(), random_state=0).fit(sj.open(folder / "t.txt"))
    model.save(folder / "m.sojourn")
    return folder / "m.sojourn", folder / "t.txt", model


def test_filter_prints_and_writes(numbers, tmp_path):
    model, data, source = numbers
    expected = sj.load(model).filter(source.read_all(), lag=1)
    lines = run("filter", model, data, "--lag", 1, "--json").output.splitlines()
    assert len(lines) == 2
    found = json.loads(lines[1])["probabilities"]
    np.testing.assert_allclose(found, expected[1], atol=1e-6)
    plain = run("filter", model, data, "--lag", 1).output.splitlines()
    assert [len(line.split("\t")) for line in plain] == [45, 45]
    for name in ("p.npy", "p.parquet"):
        out = tmp_path / name
        assert run("filter", model, data, out, "--lag", 1).exit_code == 0
        again = run("filter", model, data, out)
        assert again.exit_code == 1
        assert "--force" in again.output
    np.testing.assert_allclose(np.load(tmp_path / "p.npy"), expected.values, atol=1e-12)


def test_forecast_prints_states_means_and_quantiles(numbers):
    model, data, source = numbers
    result = run("forecast", model, data, "--steps", 2, "--json", "--draws", 0)
    assert result.exit_code == 0, result.output
    found = [json.loads(line) for line in result.output.splitlines()]
    expected = sj.load(model).forecast(source.read_all(), steps=2, n_draws=0)
    np.testing.assert_allclose(found[1]["steps"][1]["mean"], expected.means[1, 1], rtol=1e-6)
    np.testing.assert_allclose(
        found[0]["steps"][0]["quantiles"], expected.quantiles[:, 0, 0], rtol=1e-6
    )
    plain = run("forecast", model, data, "--steps", 2, "--quantile", 0.5).output
    assert plain.count("sequence") == 2
    assert plain.count("+2  state") == 2


def test_forecast_prints_words(words):
    model, text, _ = words
    result = run("forecast", model, text, "--steps", 1)
    assert result.exit_code == 0, result.output
    assert any(word in result.output.splitlines()[1] for word in ("the", "cat", "barks"))


def test_watch_writes_a_line_for_each(numbers):
    model = numbers[0]
    lines = ["0.1,0.2", "0 0", "9.1\t8.8", "NA,NA", "x,1", "", "0.1,0.2"]
    result = run("watch", model, stdin="\n".join(lines) + "\n")
    assert result.exit_code == 0, result.output
    out = result.stdout.splitlines()
    stream = sj.load(model).stream()
    for line, x in zip(out[:3], [[0.1, 0.2], [0.0, 0.0], [9.1, 8.8]], strict=True):
        stream.update(x)
        surprise, state, probability = line.split("\t")
        assert float(surprise) == pytest.approx(stream.surprise, abs=1e-4)
        assert int(state) == stream.probabilities.argmax()
        assert float(probability) == pytest.approx(stream.probabilities.max(), abs=1e-4)
    assert float(out[3].split("\t")[0]) == pytest.approx(0.0, abs=1e-4)
    assert float(out[4].split("\t")[0]) == pytest.approx(0.0, abs=1e-4)
    assert out[5] == ""
    assert out[6] == out[0]
    assert "line 5: could not convert string to float: 'x'; taken as missing" in result.stderr


def test_watch_raises_alarms_and_speaks_json(numbers):
    model = numbers[0]
    steps = "0,0\n0,0\n500,-500\n"
    lines = run("watch", model, "--alarm", 15, stdin=steps).stdout.splitlines()
    assert [line.endswith("!") for line in lines] == [False, False, True]
    lines = run("watch", model, "--alarm", 15, "--json", stdin=steps).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert [one["alarm"] for one in found] == [False, False, True]
    assert found[2]["step"] == 3
    assert len(found[0]["probabilities"]) == 2


def test_watch_follows_words(words):
    path, _, model = words
    lines = run("watch", path, "--words", stdin="the cat sleeps\nsleeps the cat\n").stdout
    usual, odd = (line.split("\t") for line in lines.splitlines())
    assert float(usual[0]) == pytest.approx(-model.score([["the", "cat", "sleeps"]]) / 3, abs=1e-4)
    assert float(odd[0]) > float(usual[0])
    one = run("watch", path, stdin="the\ncat\n").stdout.splitlines()
    assert len(one) == 2
    total = sum(float(line.split("\t")[0]) for line in one)
    assert total == pytest.approx(-model.score([["the", "cat"]]), abs=1e-3)


def test_watch_refuses_words_of_numbers(numbers):
    result = run("watch", numbers[0], "--words", stdin="")
    assert result.exit_code == 1
    assert "--words is for models of symbols" in result.output
