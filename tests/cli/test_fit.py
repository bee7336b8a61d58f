"""``sojourn fit`` on every kind of file, and the commands that use what it learned."""

import json
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import sojourn as sj
from sojourn.cli import app
from sojourn.cli.holdout import Parts
from sojourn.cli.summary import plan_of
from sojourn.kernels.cpu.notice import notice
from sojourn.models.plan import FULL_STEPS

TEXT = "The cat sleeps .\nthe dog barks .\na bird sings\n"


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def run(*words, code=0):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code == 0 else result.output


def write_walk(path, n=400, sequences=8, **extra):
    rng = np.random.default_rng(0)
    state = np.repeat(np.arange(n // 20) % 2, 20)
    table = {
        "sequence": np.repeat(np.arange(sequences), n // sequences),
        "x": rng.normal(state * 6.0, 1.0),
        "y": rng.normal(-state * 6.0, 1.0),
        **extra,
    }
    pa_table = pa.table(table)
    if path.endswith(".parquet"):
        pq.write_table(pa_table, path)
    else:
        rows = zip(*(column.to_pylist() for column in pa_table.columns), strict=True)
        sep = "\t" if path.endswith(".tsv") else ","
        lines = [sep.join(table), *(sep.join("" if v is None else str(v) for v in r) for r in rows)]
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
    return state


def test_text_is_learned_from_scored_decoded_and_inspected(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT * 40)
    said = run("fit", "corpus.txt", "--states", 4, "--lower", "--out", "model.sojourn")
    assert "108 sequences, 396 steps to learn from; 12 sequences held out" in said
    assert "family Categorical: words" in said
    assert "saved: model.sojourn" in said
    assert max(map(len, said.splitlines())) <= 80
    model = sj.load("model.sojourn")
    assert model.emission_.vocabulary["the"] > 0
    assert model.provenance_["reading"] == {"lower": True}
    assert len(model.history_) == model.history_[-1]["updates"]
    assert all(entry["score"] is not None for entry in model.history_)

    scored = json.loads(run("score", "model.sojourn", "corpus.txt", "--json"))
    # The text is read as the training text was: in lower case.
    words = [line.lower().split() for line in (TEXT * 40).splitlines()]
    assert scored["log_likelihood"] == pytest.approx(model.score(words), rel=1e-6)
    assert (scored["sequences"], scored["steps"]) == (120, 440)
    assert scored["perplexity"] == pytest.approx(np.exp(-scored["per_step"]))
    assert f"{scored['per_step']:.4f}" in run("score", "model.sojourn", "corpus.txt")

    paths = [line.split() for line in run("decode", "model.sojourn", "corpus.txt").splitlines()]
    assert [list(map(int, path)) for path in paths] == [p.tolist() for p in model.predict(words)]
    first = run("decode", "model.sojourn", "corpus.txt", "--words").splitlines()[0]
    assert first.split()[0] == f"the/{paths[0][0]}"
    line = run("decode", "model.sojourn", "corpus.txt", "--proba", "--json").splitlines()[1]
    assert np.shape(json.loads(line)["probabilities"]) == (4, 4)

    seen = json.loads(run("inspect", "model.sojourn", "--json"))
    assert (seen["model"], seen["data"], seen["states"]) == ("HDPHMM", "corpus.txt", 4)
    assert len(seen["top_states"]) == 4
    assert "what it stands for" in run("inspect", "model.sojourn")


def test_json_is_one_object_and_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(notice, "said", True)  # of what is compiled, the first time
    (tmp_path / "corpus.txt").write_text(TEXT * 30)
    result = CliRunner().invoke(app, ["fit", "corpus.txt", "-k", "2", "--json"])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    done = json.loads(result.stdout)
    assert done["path"] == "corpus.sojourn"
    assert done["states_used"] <= 2
    assert done["held_out_score"] < 0


@pytest.mark.parametrize("name", ["walk.csv", "walk.tsv", "walk.parquet"])
def test_tables_of_numbers_get_a_family_by_their_type(name):
    state = write_walk(name)
    said = run("fit", name, "--states", 2, "--model", "hmm", "-o", "m.sojourn", "--held-out", 0)
    assert "column 'sequence' says which sequence a row belongs to" in said
    assert "family Gaussian: 2 columns of real numbers" in said
    model = sj.load("m.sojourn")
    assert np.sort(model.means_[:, 0].round()).tolist() == [0, 6]
    decoded = np.concatenate(
        [np.array(line.split(), int) for line in run("decode", "m.sojourn", name).splitlines()]
    )
    agree = (decoded == state).mean()
    assert max(agree, 1 - agree) == 1.0
    assert "x 6" in run("inspect", "m.sojourn").replace("5.9", "6").replace("6.0", "6")


def test_a_table_without_an_id_is_one_sequence_and_holds_out_its_end():
    write_walk("walk.csv", sequences=1, label=["a"] * 400)
    said = run("fit", "walk.csv", "--states", 2, "--column", "x")
    assert "400" not in said.splitlines()[1]
    assert "1 sequence, 360 steps to learn from; its last 40 steps held out" in said
    with open("walk.csv") as file:
        text = file.read().replace("sequence", "subject")
    with open("other.csv", "w") as file:
        file.write(text)
    said = run("fit", "other.csv", "--states", 2)
    assert "all rows are taken as one sequence; --sequence COLUMN" in said
    assert "left out, because they are constant in every sequence: subject, label" in said
    assert "2 columns of real numbers" in said
    said = run("fit", "other.csv", "--sequence", "subject", "--states", 2, "--force")
    assert "2 columns of real numbers" in said


@pytest.mark.parametrize(
    ("column", "family", "reason"),
    [
        ([0, 1, 1, 0] * 50, "Bernoulli", "zeros and ones"),
        ([3, 4, 8, 5] * 50, "Poisson", "counts: whole numbers from 3 to 8"),
        ([3, 0, 40, 5] * 50, "LearnedNegativeBinomial", "counts that vary more within 6 steps"),
        ([1.5, 0.25, None, 3.0] * 50, "DiagonalGaussian", "real numbers, some missing"),
        (["sun", "rain", "sun", "fog"] * 50, "Categorical", "words, 4 in all"),
    ],
)
def test_columns_choose_families(column, family, reason):
    pq.write_table(pa.table({"seq": np.repeat(np.arange(20), 10), "v": column}), "t.parquet")
    said = run("fit", "t.parquet", "--states", 2)
    asked = "NegativeBinomial" if family.startswith("Learned") else family
    assert f"family {asked}: {reason}" in said
    assert type(sj.load("t.sojourn").emission_).__name__ == family


def test_mixed_columns_stand_side_by_side():
    counts = np.random.default_rng(1).poisson(3.0, 400)
    write_walk("walk.csv", counts=counts)
    said = run("fit", "walk.csv", "--states", 2)
    assert "family Product: mixed columns: 2 columns of real numbers; counts" in said
    assert sj.load("walk.sojourn").lambdas_.shape == (2, 1)


def test_the_number_of_states_may_move_or_not():
    write_walk("walk.csv", n=2000)
    fit = ["fit", "walk.csv", "--states", 6, "--passes", 40, "--force", "--out", "m.sojourn"]
    run(*fit, "--init-states", 1, "--stickiness", "learned")
    grown = sj.load("m.sojourn")
    assert grown.stickiness == "learned"
    assert grown.history_[0]["states"] <= grown.n_states_ == 2
    assert "split" in {move["kind"] for entry in grown.history_ for move in entry["moves"]}
    run(*fit, "--no-moves")
    assert len(sj.load("m.sojourn").transmat_) == 6
    run(*fit, "--model", "hmm", "--moves", "--stickiness", 20)
    assert len(sj.load("m.sojourn").transmat_) < 6
    assert "--stickiness is a number" in run(*fit, "--stickiness", "very", code=1)


def test_the_family_can_be_named():
    write_walk("walk.csv")
    assert "family DiagonalGaussian: asked for" in run(
        "fit", "walk.csv", "--states", 2, "--family", "diagonal-gaussian"
    )
    said = run("fit", "walk.csv", "--family", "gauss", "--force", code=1)
    assert "--family gauss is not one of auto, autoregressive-gaussian, bernoulli" in said


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_of_states_fits_the_terminal(tmp_path, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    words = [f"{'abcdefgh'[i]}{'x' * 14}" for i in range(8)]
    (tmp_path / "wide.txt").write_text(f"{' '.join(words)}\n" * 40)
    run("fit", "wide.txt", "-k", 1)
    table = run("inspect", "wide.sojourn").splitlines()[-2:]
    assert table[0].split() == ["state", "share", "stays", *["what", "it", "stands", "for", "next"]]
    assert max(map(len, table)) <= width
    assert table[1].split()[:2] == ["0", "100.0%"]
    assert table[1].split()[-1] == "0"


def test_warnings_of_the_fit_are_notes(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT * 40)
    said = run("fit", "corpus.txt", "--passes", 1, "--batch-size", 200)
    assert "note: after 1 updates 29% of the posterior comes from the random start" in said
    done = json.loads(
        run("fit", "corpus.txt", "--passes", 1, "--batch-size", 200, "--force", "--json")
    )
    assert len(done["warnings"]) == 1


def test_samples_are_lines_of_words_or_rows_of_numbers(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT * 40)
    run("fit", "corpus.txt", "--states", 3)
    lines = run("sample", "corpus.sojourn", "-n", 2, "--length", 5).splitlines()
    assert [len(line.split()) for line in lines] == [5, 5]
    assert lines == run("sample", "corpus.sojourn", "-n", 2, "--length", 5).splitlines()
    drawn = json.loads(run("sample", "corpus.sojourn", "-n", 1, "--json"))
    assert len(drawn["values"]) == len(drawn["states"]) == 12
    write_walk("walk.csv")
    run("fit", "walk.csv", "--states", 2)
    rows = run("sample", "walk.sojourn", "-n", 1, "--length", 4, "--states").strip().splitlines()
    assert [len(row.split(",")) for row in rows] == [3] * 4


def test_a_large_file_is_split_as_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr("sojourn.cli.holdout._IN_MEMORY", 0)
    (tmp_path / "corpus.txt").write_text(TEXT * 100)
    done = json.loads(run("fit", "corpus.txt", "--states", 3, "--passes", 2, "--json"))
    assert 240 < done["sequences"] < 295
    assert done["history"][-1]["sequences"] == 2 * done["sequences"]
    assert done["held_out_score"] < 0


def test_the_two_parts_of_a_source_are_the_whole(tmp_path, monkeypatch):
    from sojourn.sources import text
    from sojourn.sources.split import split

    monkeypatch.setattr(text, "BLOCK_BYTES", 100)
    lines = [f"w{i} w{i + 1}" for i in range(200)]
    (tmp_path / "t.txt").write_text("\n".join(lines))
    train, held_out = split(sj.open("t.txt"), 0.25, seed=3)
    mine, theirs = ([" ".join(s) for piece in part for s in piece] for part in (train, held_out))
    assert sorted(mine + theirs) == sorted(lines)
    assert 25 < len(theirs) < 75
    assert [" ".join(s) for piece in train for s in piece] == mine  # every pass the same
    assert train.n_sequences == len(mine)
    assert len(train.summary.vocabulary) == len({w for line in mine for w in line.split()}) + 1
    with pytest.raises(ValueError, match="between 0 and 1"):
        split(sj.open("t.txt"), 1.0)


def test_held_out_data_may_be_a_file(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT * 40)
    (tmp_path / "other.txt").write_text(TEXT)
    said = run("fit", "corpus.txt", "--states", 3, "--held-out", "other.txt")
    assert "120 sequences, 440 steps to learn from; held out: other.txt" in said
    model = sj.load("corpus.sojourn")
    expected = model.score([line.split() for line in TEXT.splitlines()], per_step=True)
    assert model.history_[-1]["score"] == pytest.approx(expected)


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path):
    (tmp_path / "corpus.txt").write_text(TEXT * 40)
    run("fit", "corpus.txt", "--passes", 2, "--checkpoint", "run", "-o", "a.sojourn")
    run("fit", "corpus.txt", "--passes", 4, "--checkpoint", "run", "--resume", "-o", "b.sojourn")
    run("fit", "corpus.txt", "--passes", 4, "-o", "c.sojourn")
    went_on, never_stopped = (sj.load(f"{name}.sojourn") for name in "bc")
    np.testing.assert_array_equal(went_on.transmat_, never_stopped.transmat_)


PROBLEMS = {
    "no file": (["fit", "no.txt"], 1, "there is no file, folder or pattern 'no.txt'"),
    "no model": (["score", "no.sojourn", "t.txt"], 1, "there is no file no.sojourn"),
    "no words": (["fit", "rare.txt"], 1, "no word occurs 2 times or more: --min-count 1"),
    "a share": (["fit", "t.txt", "--held-out", "1.5"], 1, "--held-out is a fraction from 0 to 1"),
    "a family for words": (["fit", "t.txt", "--family", "poisson"], 1, "t.txt holds words"),
    "no header": (["fit", "bare.csv"], 1, "bare.csv: the first line has numbers: it must have"),
    "ragged": (["fit", "ragged.csv"], 1, "ragged.csv: CSV parse error: Expected 2 columns"),
    "a column": (["fit", "ok.csv", "--column", "z"], 1, "ok.csv has no column 'z': there are x, y"),
    "not a model": (["inspect", "t.txt"], 1, "t.txt is not a sojourn model file"),
    "numbers for words": (
        ["report", "m.sojourn", "--data", "ok.csv"],
        1,
        "ok.csv: Categorical takes",
    ),
    "words for numbers": (
        ["report", "n.sojourn", "--data", "t.txt"],
        1,
        "must be numbers, got words",
    ),
    "scored": (["score", "n.sojourn", "t.txt"], 1, "must be numbers, got words; for words use"),
    "inference": (["fit", "t.txt", "--inference", "mcmc"], 1, "--inference mcmc is not one of"),
    "device": (["fit", "t.txt", "--device", "abacus"], 1, "--device abacus is not one of"),
    "words in Parquet": (["decode", "m", "t.txt", "o.parquet", "--words"], 2, "are printed"),
    "an option": (["fit", "t.txt", "--stats", "3"], 2, "No such option"),
}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_problems_are_said_in_a_line_and_leave_nothing(tmp_path, problem):
    words, code, message = PROBLEMS[problem]
    (tmp_path / "t.txt").write_text(TEXT * 10)
    (tmp_path / "rare.txt").write_text("one two three\nfour five\n" + "six\nseven\n" * 1)
    (tmp_path / "bare.csv").write_text("1,2\n3,4\n")
    (tmp_path / "ragged.csv").write_text("x,y\n1,2\n3\n")
    (tmp_path / "ok.csv").write_text("x,y\n1,2\n3,4\n")
    sj.HMM(1, sj.Categorical(), random_state=0).fit([["the"]]).save("m.sojourn")
    sj.HMM(1, sj.Gaussian(), random_state=0).fit(np.eye(2)).save("n.sojourn")
    before = sorted(tmp_path.iterdir())
    said = run(*words, code=code)
    assert message in " ".join(said.replace("│", " ").split())
    assert "Traceback" not in said
    assert sorted(tmp_path.iterdir()) == before


def test_existing_models_are_kept_unless_forced(tmp_path):
    (tmp_path / "t.txt").write_text(TEXT * 10)
    run("fit", "t.txt", "-k", 2)
    before = (tmp_path / "t.sojourn").read_bytes()
    assert "exists already; --force replaces it" in run("fit", "t.txt", "-k", 3, code=1)
    assert (tmp_path / "t.sojourn").read_bytes() == before
    run("fit", "t.txt", "-k", 3, "--force")
    assert sj.load("t.sojourn").n_states == 3


def test_control_characters_of_the_data_do_not_reach_the_terminal(tmp_path):
    (tmp_path / "evil.txt").write_text("a \x1b[2J[red]b\n" * 40)
    said = run("fit", "evil.txt", "-k", 2, "--min-count", 1)
    assert "\x1b" not in said
    assert "[red]b" in said  # Rich's markup is text as well


@pytest.mark.parametrize("name", [command.name or command.callback.__name__
                                  for command in app.registered_commands])  # fmt: skip
def test_every_command_has_an_example_in_its_help(name):
    said = " ".join(run(name, "--help").split())
    assert f"Example: sojourn {name} " in said


def test_help_answers_without_loading_the_estimators():
    code = (
        "import sys, sojourn.cli; print(*{'numba', 'sklearn', 'scipy', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_how_training_will_go_is_known_before_the_words_are():
    words = [["the", "end"], ["of", "the", "day"]] * 20
    for kind, size in ((sj.HMM, 1000), (sj.HDPHMM, None)):
        model = kind(12, sj.Categorical())
        many = Parts(words, None, 2000, FULL_STEPS + 1, "")
        assert (plan_of(model, many).n_passes, plan_of(model, many).batch_size) == (10, 1000)
        # 48 probabilities of four words: more than steps for a number of states that is fixed.
        few = Parts(words[:16], None, 16, 40, "")
        assert plan_of(model, few).batch_size == size
