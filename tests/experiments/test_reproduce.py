"""The paper's figure: settings, cells that are kept, and what is drawn."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sojourn as sj
from experiments.reproduce.corpus import Corpus, read_corpus
from experiments.reproduce.draw import draw_small
from experiments.reproduce.figure2 import METHODS, Cell, large_grid, run_small, small_grid, thinned
from sojourn.cli.app import app
from sojourn.models.parameters import method_of
from sojourn.models.start import initial_posterior
from sojourn.sources.generate import generate


@pytest.fixture(scope="module")
def corpus():
    whole = read_corpus(None)
    return Corpus("a part", whole.vocabulary, whole.train[:300], whole.held_out[:40])


def tiny_grid():
    return small_grid(batch_sizes=(50, 150), forgetting_rates=(0.5,), n_states=3, n_passes=2,
                      n_seeds=2)  # fmt: skip


# ---- the methods ------------------------------------------------------------------------------


def test_the_grid_is_the_papers():
    cells = small_grid()
    assert len(cells) == 3 * 3 * 3 * 3
    assert {cell.batch_size for cell in cells} == {10, 100, 1000}
    assert {cell.forgetting_rate for cell in cells} == {0.5, 0.7, 0.9}
    assert {(cell.n_states, cell.n_passes) for cell in cells} == {(45, 10)}
    assert {(cell.batch_size, cell.forgetting_rate) for cell in large_grid()} == {(1000, 0.5)}


def test_all_methods_begin_with_the_same_statistics_and_order(corpus):
    first = []
    for method in METHODS:
        model = Cell(method, 50, 0.5, 3, 1, seed=4).model(len(corpus.vocabulary), 1)
        family, sample = model.emission.resolve(corpus.train, 3), corpus.train
        posterior = initial_posterior(model, family, sample, 300, corpus.train.n_steps, 4)
        statistics = posterior.statistics()
        potentials = method_of(model).objective.collapsed
        first.append((statistics, model._make_transitions().concentrations(posterior.counts)))
        assert potentials == (method != "SVI")
    for statistics, concentrations in first[1:]:
        np.testing.assert_array_equal(statistics.start, first[0][0].start)
        np.testing.assert_array_equal(statistics.transitions, first[0][0].transitions)
        np.testing.assert_array_equal(statistics.emissions, first[0][0].emissions)
        # Prior counts of 0.1 for all, until the first update of the HDP.
        np.testing.assert_allclose(
            concentrations.rows.transitions, first[0][1].rows.transitions, rtol=1e-15
        )


def test_nothing_that_came_after_the_paper_is_on():
    model = Cell("SCVI-HDP", 100, 0.7, 45, 10, 0).model(50, 1)
    parameters = model.get_params(deep=False)
    expected = {
        "tuned": False,
        "hdp": sj.HDPOptions(
            second_order_tables=False,
            sort_states=False,
            exchangeable_tables=False,
            alpha_prior=(1.0, 0.1),
            gamma_prior=(1.0, 0.1),
        ),
        "hdp_batch_size": 10_000,
        "delay": 1.0,
        "init": "exponential",
        "moves": None,
        "stickiness": 0.0,
        "batch_size": 100,
        "n_passes": 10,
    }
    assert {name: parameters[name] for name in expected} == expected
    hmm = Cell("SVI", 100, 0.7, 45, 10, 0).model(50, 1)
    assert (hmm.inference, hmm.transition_concentration, hmm.tuned) == ("svi", 0.1, False)
    assert hmm.emission.concentration == 0.1


# ---- the corpus -------------------------------------------------------------------------------


def test_a_tenth_of_a_file_is_held_out(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text("\n".join(f"The number w{i} ." for i in range(50)) + "\n\n")
    corpus = read_corpus(path)
    assert (len(corpus.train), len(corpus.held_out)) == (45, 5)
    assert len(corpus.vocabulary) == 53
    assert corpus.described()["held_out_tokens_unseen_in_training"] == pytest.approx(0.25)
    assert read_corpus(path).fingerprint() == corpus.fingerprint()


def test_a_folder_has_its_own_parts(tmp_path):
    for name, text in (("train", "a b\nb a"), ("dev", "c"), ("test", "a d")):
        (tmp_path / f"{name}.txt").write_text(text)
    corpus = read_corpus(tmp_path)
    assert (len(corpus.train), len(corpus.held_out), len(corpus.vocabulary)) == (3, 1, 4)


def test_too_little_text_is_refused(tmp_path):
    (tmp_path / "one.txt").write_text("a single line")
    with pytest.raises(ValueError, match="too few"):
        read_corpus(tmp_path / "one.txt")


# ---- cells ------------------------------------------------------------------------------------


def test_stopped_it_goes_on_and_gives_the_same(corpus, tmp_path, monkeypatch):
    cells, fitted = tiny_grid(), []
    original = Cell.model

    def counted(self, *args):
        fitted.append(self)
        if len(fitted) == 5 and stop:
            raise KeyboardInterrupt
        return original(self, *args)

    monkeypatch.setattr(Cell, "model", counted)
    stop = True
    with pytest.raises(KeyboardInterrupt):
        run_small(corpus, cells, tmp_path, n_jobs=1)
    assert not (tmp_path / "figure2.json").exists()
    stop = False
    fitted.clear()
    resumed = run_small(corpus, cells, tmp_path, n_jobs=1)
    assert fitted == cells[4:]
    whole = run_small(corpus, cells, tmp_path / "again", n_jobs=1)
    for one, other in zip(resumed["cells"], whole["cells"], strict=True):
        scores = [[point[::2] for point in cell["points"]] for cell in (one, other)]
        assert scores[0] == scores[1]
    fitted.clear()
    run_small(corpus, cells, tmp_path, n_jobs=1)
    assert fitted == []
    # Other settings or other data are another cell.
    more = [replace(cell, n_passes=1) for cell in cells[:1]]
    run_small(corpus, more, tmp_path, n_jobs=1)
    run_small(corpus._replace(held_out=corpus.held_out[:30]), more, tmp_path, n_jobs=1)
    assert len(fitted) == 2


def test_a_damaged_cell_is_run_again(corpus, tmp_path):
    cells = tiny_grid()[:1]
    first = run_small(corpus, cells, tmp_path, n_jobs=1)
    path = tmp_path / "cells" / f"figure2-{cells[0].name}.json"
    path.write_text(path.read_text()[:40])
    again = run_small(corpus, cells, tmp_path, n_jobs=1)
    assert [p[2] for p in again["cells"][0]["points"]] == [
        p[2] for p in first["cells"][0]["points"]
    ]


def test_points_are_held_out_scores_and_final_means(corpus, tmp_path):
    told = []
    cells = tiny_grid()
    result = run_small(corpus, cells, tmp_path, n_jobs=1, report=lambda *what: told.append(what))
    stored = json.loads((tmp_path / "figure2.json").read_text())
    assert stored["cells"] == json.loads(json.dumps(result["cells"]))
    cell = result["cells"][1]
    model = cells[1].model(len(corpus.vocabulary), 1).fit(corpus.train)
    assert cell["points"][-1][2] == pytest.approx(
        model.score(corpus.held_out, per_step=True), abs=1e-5
    )
    assert cell["points"][-1][0] == 2.0
    row = result["final"][0]["SCVI"]
    scores = [c["points"][-1][2] for c in result["cells"]
              if c["method"] == "SCVI" and c["batch_size"] == 150]  # fmt: skip
    assert row["mean"] == pytest.approx(np.mean(scores), abs=1e-4)
    assert (row["least"], row["largest"]) == (round(min(scores), 4), round(max(scores), 4))
    shares = [share for share, _, _ in told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert next(line for _, _, line in told if line).startswith(cells[0].name)


def test_thinned_keeps_the_first_pass_and_the_ends():
    points = [[n / 5, 0.0, 0.0] for n in range(1, 16)]
    kept = [point[0] for point in thinned(points)]
    assert kept[:5] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert {2.0, 3.0} <= set(kept)
    assert len(kept) < 15


# ---- drawing and the command ------------------------------------------------------------------


def test_the_figure_has_all_panels(corpus, tmp_path):
    result = run_small(corpus, tiny_grid(), tmp_path, n_jobs=1)
    png, svg = draw_small(result, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    text = svg.read_text()
    for label in ("κ = 0.5", "M = 50 sentences", "M = 150 sentences", "SCVI-HDP",
                  "passes over the data", "nats per word"):  # fmt: skip
        assert label in text
    before = svg.read_bytes()
    draw_small(result, tmp_path)
    assert svg.read_bytes() == before


def test_command(tmp_path):
    corpus = tmp_path / "words.txt"
    corpus.write_text("\n".join(f"a{i % 3} b{i % 4} ." for i in range(40)))
    result = CliRunner().invoke(
        app,
        ["reproduce", "figure2", "--corpus", str(corpus), "--out", str(tmp_path / "out"),
         "--states", "2", "--passes", "1", "--seeds", "1", "--jobs", "1"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "figure2.png" in result.stdout
    stored = json.loads((tmp_path / "out" / "figure2.json").read_text())
    assert len(stored["cells"]) == 27


def test_large(tmp_path):
    data = tmp_path / "corpus.parquet"
    generate(data, n_sequences=2500, n_symbols=50, n_held_out=50)
    result = CliRunner().invoke(
        app,
        ["reproduce", "figure2", "--large", "--corpus", str(data), "--out", str(tmp_path / "out"),
         "-k", "2", "-k", "3", "--jobs", "1", "--passes", "2"],
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    stored = json.loads((tmp_path / "out" / "figure2-large.json").read_text())
    assert stored["corpus"]["sentences"] == 2500
    assert {cell["points"][-1][0] for cell in stored["cells"]} == {2.0}
    assert {cell["n_states"] for cell in stored["cells"]} == {2, 3}
    assert "seconds of training" in (tmp_path / "out" / "figure2-large.svg").read_text()


def test_without_the_source_repository_the_command_says_where_to_get_it(tmp_path, monkeypatch):
    installed = tmp_path / "site-packages" / "sojourn" / "cli" / "reproduce.py"
    monkeypatch.setattr("sojourn.cli.reproduce.__file__", str(installed))
    monkeypatch.chdir(tmp_path)
    command = ["reproduce", "figure2", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    assert "not part of the installed package: get a copy of sojourn's source" in result.output
    assert not (tmp_path / "out").exists()
    # In the folder of a checkout the installed command finds them.
    monkeypatch.chdir(Path(__file__).parents[2])
    result = CliRunner().invoke(app, [*command, "--corpus", "nowhere.txt"])
    assert "there is no file nowhere.txt" in result.output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--large"], "needs a Parquet file"),
        (["--held-out", "x.parquet"], "only with --large"),
        (["--device", "cuda"], "only with --large"),
        (["-k", "3", "-k", "4"], "only with --large"),
        (["--corpus", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_what_does_not_go_together_is_refused(options, message, tmp_path):
    command = ["reproduce", "figure2", "--out", str(tmp_path / "out"), *options]
    result = CliRunner().invoke(app, command)
    assert result.exit_code != 0
    assert message in result.output.replace("\n", " ")
    assert not list((tmp_path).rglob("*.json"))


def test_the_pages_tables_are_those_of_the_result_files(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    from experiments.reproduction_tables import PAGE, TABLES, updated

    page = PAGE.read_text()
    assert updated(page) == page
    for mark, (path, _) in TABLES.items():
        assert path.exists(), mark
        assert f"<!-- {mark}: begin -->" in page
