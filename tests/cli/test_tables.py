"""Tables on the command line: read as a newcomer's tables are, and written as tables."""

import csv
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from typer.testing import CliRunner

import sojourn as sj
from sojourn.cli import app
from sojourn.cli.wording import in_options
from sojourn.progress import Activity, Heartbeat, LiveProgress

RNG = np.random.default_rng(0)
Z = np.repeat(np.arange(20) % 2, 10)
X = RNG.normal(Z * 8.0).round(2)


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def run(*words, code=0, **options):
    result = CliRunner().invoke(app, [str(word) for word in words], **options)
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout if code == 0 else result.output


def write(name, columns, delimiter=","):
    rows = [delimiter.join(columns), *map(delimiter.join, zip(*columns.values(), strict=True))]
    Path(name).write_text("\n".join(rows) + "\n")


def texts(values):
    return [str(value) for value in values]


def fit(name, *words):
    return run("fit", name, "-k", 2, "--model", "hmm", "--passes", 5, "-o", "m.sojourn", *words)


def rows_of(name):
    return list(csv.DictReader(io.StringIO(Path(name).read_text())))


def test_few_sequences_of_a_file_that_is_not_kept_in_memory(monkeypatch):
    monkeypatch.setattr("sojourn.cli.holdout._IN_MEMORY", 0)
    write("t.csv", {"seq": texts(np.arange(200) // 80), "x": texts(X)})
    said = fit("t.csv")
    assert "2 sequences, " in said
    assert "1 sequence held out" in said
    write("one.csv", {"x": texts(X)})
    assert "1 sequence, 180 steps to learn from; its last 20 steps held out" in fit(
        "one.csv", "--force"
    )


def test_a_small_file_on_workers_has_both_parts(monkeypatch):
    """What remote data goes through; the cluster itself is in tests/backends/dask."""
    from sojourn.cli.data import open_data
    from sojourn.cli.holdout import hold_out

    write("t.csv", {"seq": texts(np.arange(200) // 100), "x": texts(X)})
    parts = hold_out(open_data("t.csv", {}), "0.1", 0, remote=True)
    assert (parts.n_sequences, len(parts.held_out)) == (1, 1)
    assert isinstance(parts.train, sj.Source)


@pytest.mark.long  # three processes import the package
@pytest.mark.parametrize("form", ["one series", "two sequences", "text"])
def test_a_small_file_is_learned_on_workers_that_the_command_starts(form):
    name = "t.txt" if form == "text" else "t.csv"
    if form == "text":
        Path(name).write_text("the cat sleeps\na dog barks\n" * 10)
    else:
        ids = {} if form == "one series" else {"seq": texts(np.arange(200) // 100)}
        write(name, ids | {"x": texts(X)})
    command = [sys.executable, "-m", "sojourn", "fit", name, "-k", "2", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "held out" in done.stdout
    assert "WARNING" not in done.stderr
    model = sj.load("t.sojourn")
    assert model.n_states_ <= 2
    assert len(model.history_) == 10


def test_one_cell_among_numbers_stops_the_command():
    cells = texts(X)
    cells[120] = "-"
    write("t.csv", {"temp": cells})
    said = run("fit", "t.csv", code=1)
    assert "t.csv, row 121, column 'temp': '-' is not a number, and 199 of 200 cells are" in said
    assert "--missing - says so" in said
    assert "real numbers, some missing" in fit("t.csv", "--missing", "-")


def test_semicolons_and_decimal_commas_are_found():
    write("t.csv", {"a": [cell.replace(".", ",") for cell in texts(X)], "b": texts(Z)}, ";")
    assert "mixed columns: real numbers; zeros and ones" in fit("t.csv")
    run("decode", "m.sojourn", "t.csv", "out.csv", "--proba")
    assert Path("out.csv").read_text().splitlines()[0] == "a;b;state;probability_0;probability_1"
    assert (
        "," in Path("out.csv").read_text().splitlines()[1].split(";")[3]
        or "1" in Path("out.csv").read_text().splitlines()[1].split(";")[3:]
    )


def test_words_that_come_in_runs_may_be_sequences():
    write("t.csv", {"station": texts(np.repeat(["north", "south", "east", "west"], 50)),
                    "x": texts(X)})  # fmt: skip
    said = " ".join(fit("t.csv").split())
    assert "every value of column 'station' is in one run of rows" in said
    assert "--sequence station says so" in said
    assert "1 sequence, 200 steps" in run("score", "m.sojourn", "t.csv")
    said = fit("t.csv", "--sequence", "station", "--force")
    assert "3 sequences, 150 steps to learn from; 1 sequence held out" in said
    assert "says so" not in said


def test_times_and_ids_are_left_out_and_said():
    steps = np.tile(np.arange(50), 4)
    write("t.csv", {
        "id": texts(np.arange(200) // 50), "tstep_id": texts(steps),
        "day": [f"2020-01-{1 + s // 2:02d}" for s in steps], "x": texts(X),
        "age": texts(np.arange(200) // 50 * 10 + 7), "t": texts(steps**2 + steps),
    })  # fmt: skip
    said = fit("t.csv")
    assert "column 'id' says which sequence a row belongs to" in said
    assert (
        "left out, because they step evenly, like a time or a number of the row: tstep_id" in said
    )
    assert "left out, because they are constant in every sequence: age" in said
    assert "left out, because they are dates: day" in said
    assert "left out, because they are times, which only rise: t;" in said
    assert "family Gaussian: real numbers" in said
    assert sj.load("m.sojourn").feature_names_in_.tolist() == ["x"]


def test_drop_and_time_and_the_true_minimum():
    counts = RNG.poisson(5, 200) + 3
    steps = np.arange(200) ** 2
    write("t.csv", {"when": texts(steps), "n": texts(counts), "x": texts(X)})
    assert "'when' only rises" not in fit("t.csv", "--time", "when", "--drop", "x")
    model = sj.load("m.sojourn")
    assert model.feature_names_in_.tolist() == ["n"]
    assert model.provenance_["reading"]["time"] == "when"
    said = fit("t.csv", "--drop", "x", "--drop", "when", "--force", "--held-out", 0)
    assert f"counts: whole numbers from {counts.min()} to {counts.max()}" in said
    write("turned.csv", {"when": texts(steps[::-1]), "n": texts(counts), "x": texts(X)})
    said = run("fit", "turned.csv", "--time", "when", "--drop", "x", code=1)
    assert "row 2: 'when' is 39204, earlier than in the row before" in said
    assert "has no column 'z' to drop" in run("fit", "t.csv", "--drop", "z", code=1)


def test_words_beside_numbers_are_symbols():
    weather = np.where(Z == 1, "sun", "rain")
    write("t.csv", {"seq": texts(np.arange(200) // 50), "x": texts(X), "w": list(weather)})
    said = fit("t.csv")
    assert "family Product: mixed columns: real numbers; words, 2 in all" in said
    family = sj.load("m.sojourn").emission_
    assert set(family.parts[1].vocabulary.words) == {"<unk>", "sun", "rain"}
    # Other data is read with the model's words, in whatever order its own come.
    write("other.csv", {"seq": ["0"] * 20, "x": texts(X[10:30]), "w": list(weather[10:30])})
    path = np.array(run("decode", "m.sojourn", "other.csv").split(), int)
    agree = (path == Z[10:30]).mean()
    assert max(agree, 1 - agree) == 1.0
    said = fit("t.csv", "--family", "gaussian", "--force")
    assert "left out, because they are not numbers: w" in said


def test_results_of_a_table_are_its_rows_with_columns_appended():
    ids = [f"{n // 50:03d}" for n in range(200)]
    write("t.csv", {"seq": ids, "note": ['"a, b"'] * 200, "x": texts(X)})
    fit("t.csv", "--column", "x")
    path = sj.load("m.sojourn").predict(X, [50] * 4)
    run("decode", "m.sojourn", "t.csv", "out.csv")
    rows = rows_of("out.csv")
    assert [row["seq"] for row in rows] == ids  # as they are written, with their zeros
    assert rows[0]["note"] == "a, b"
    assert [int(row["state"]) for row in rows] == path.tolist()
    run("decode", "m.sojourn", "t.csv", "out.parquet", "--proba")
    table = pq.read_table("out.parquet")
    assert table.column_names == ["seq", "note", "x", "state", "probability_0", "probability_1"]
    assert table["state"].to_pylist() == path.tolist()
    run("filter", "m.sojourn", "t.csv", "filtered.csv")
    assert rows_of("filtered.csv")[0].keys() == table.to_pylist()[0].keys()
    run("score", "m.sojourn", "t.csv", "scores.csv")
    scores = rows_of("scores.csv")
    each = sj.load("m.sojourn").log_likelihood(X, [50] * 4)
    assert [float(row["log_likelihood"]) for row in scores] == pytest.approx(each, rel=1e-4)
    assert [row["steps"] for row in scores] == ["50"] * 4
    assert "exists already; --force replaces it" in run(
        "decode", "m.sojourn", "t.csv", "out.csv", code=1
    )
    pq.write_table(pa.table({"seq": np.arange(200) // 50, "state": Z, "x": X}), "t.parquet")
    run("decode", "m.sojourn", "t.parquet", "out.csv", "--force", "--column", "x")
    assert list(rows_of("out.csv")[0]) == ["seq", "state", "x", "state_"]


def test_lists_and_text_as_a_table_have_one_row_per_step():
    Path("t.txt").write_text("the cat sleeps\nthe dog barks\n" * 20)
    run("fit", "t.txt", "-k", 2, "-o", "w.sojourn", "--passes", 2)
    run("decode", "w.sojourn", "t.txt", "out.csv")
    rows = rows_of("out.csv")
    assert [rows[4][key] for key in ("sequence", "step", "value")] == ["1", "1", "dog"]
    assert len(rows) == 120


def test_standard_input_and_output():
    write("t.csv", {"seq": texts(np.arange(200) // 50), "x": texts(X)})
    content = Path("t.csv").read_bytes()
    result = CliRunner().invoke(
        app,
        ["fit", "-", "-k", "2", "--passes", "5", "--model", "hmm", "-o", "-", "--held-out", "0"],
        input=content,
    )
    assert result.exit_code == 0, result.output
    Path("m.sojourn").write_bytes(result.stdout_bytes)
    assert sj.load("m.sojourn").total_sequences_ == 4
    out = run("decode", "m.sojourn", "-", "-", input=content)
    run("decode", "m.sojourn", "t.csv", "out.csv")
    assert out == Path("out.csv").read_text()
    assert run("score", "m.sojourn", "-", "-", input=content).startswith("seq,steps,log_")
    words = "the cat, it sleeps\nthe dog barks\n" * 9
    assert "12 words" in run("ingest", "-", "w.parquet", input=words) or Path("w.parquet").exists()
    assert not Path("-").exists()


def test_words_of_numbers_are_refused():
    write("t.csv", {"x": texts(X)})
    fit("t.csv")
    said = run("decode", "m.sojourn", "t.csv", "--words", code=1)
    assert "--words is for models of words, and t.csv has numbers" in said


def test_latin_1_is_read_as_asked():
    Path("t.csv").write_bytes("Stadt;x\nZürich;1,5\nBern;2,5\nZürich;3,0\n".encode("latin-1"))
    said = run("fit", "t.csv", code=1)
    assert "t.csv: line 2, byte 9: 0xfc is not UTF-8" in said
    assert "--encoding latin-1" in said
    fit("t.csv", "--encoding", "latin-1", "--held-out", 0, "--column", "x")
    assert sj.load("m.sojourn").provenance_["reading"]["encoding"] == "latin-1"


# ---- progress and messages ----------------------------------------------------------------------


def test_progress_is_shown_from_the_first_second_without_a_terminal(monkeypatch):
    monkeypatch.setattr(Heartbeat, "FIRST", 0.01)
    screen = Console(file=io.StringIO(), width=200)
    with Activity("reading t.csv", console=screen) as report:
        report("converting t.csv", 0.5)
        wait_for(screen, "converting t.csv: 50%")
    with LiveProgress(10, "learning", screen, timed=True):
        wait_for(screen, "learning: it begins")
        wait_for(screen, "learning: it begins (0 s)")
    with Activity("nothing", quiet=True, console=screen):
        pass
    assert "nothing" not in screen.file.getvalue()


def wait_for(screen, text):
    from time import monotonic, sleep

    end = monotonic() + 20.0
    while text not in screen.file.getvalue():
        assert monotonic() < end, screen.file.getvalue()
        sleep(0.005)


def test_messages_speak_of_options():
    assert in_options("a; sj.open('t.csv', column=['x'], sequence=False) reads a column as one "
                      "sequence") == "a"  # fmt: skip
    assert in_options("x exists: overwrite=True replaces it") == "x exists: --force replaces it"
    assert in_options("stopped: resume=True goes on") == "stopped: --resume goes on"
    assert in_options("and column= does not say which") == "and --column does not say which"
    assert "astype" not in in_options("use Categorical; if they are measurements, pass "
                                      "X.astype(float)")  # fmt: skip
    Path("t.txt").write_text("a b\n" * 9)
    Path("s.csv").write_text("x,y\n1,2\n3,4\n5,6\n")
    pq.write_table(pa.table({"u": [[1, 2]], "v": [[1, 2]]}), "two.parquet")
    sj.HMM(1, sj.Categorical(), random_state=0).fit([["a"]]).save("m.sojourn")
    for words in (
        ["fit", "two.parquet"],
        ["fit", "t.txt", "--inference", "em"],
        ["fit", "t.txt", "--device", "abacus"],
        ["fit", "t.txt", "--inference", "gibbs", "--checkpoint", "c"],
        ["fit", "t.txt", "--init-states", 3, "--no-moves"],
        ["fit", "t.txt", "-k", 2, "--init-states", 3],
        ["ingest", "two.parquet", "out.parquet"],
        ["fit", "s.csv", "--stickiness", "nan", "--held-out", 0],
    ):
        said = run(*words, code=1)
        assert "Error:" in said, words
        message = said[said.index("Error:") :]
        assert "=" not in message, message
        assert "sj." not in message, message


def test_ctrl_c_says_how_to_go_on(monkeypatch):
    def stopped(*args, **options):
        raise KeyboardInterrupt("the checkpoint is in run: resume=True goes on from it")

    Path("t.txt").write_text("a b\n" * 9)
    monkeypatch.setattr(sj.HDPHMM, "fit", stopped)
    assert "Stopped. the checkpoint is in run: --resume goes on" in run("fit", "t.txt", code=130)
    monkeypatch.setattr(sj.HDPHMM, "fit", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    assert "with --checkpoint FOLDER, --resume goes on" in run("fit", "t.txt", code=130)
    said = run("fit", "t.txt", "--checkpoint", "run", code=130)
    assert "It had not come to its first checkpoint: nothing is kept." in " ".join(said.split())


@pytest.mark.skipif(not Path("/proc/version").exists(), reason="a folder that nobody writes to")
def test_a_path_that_cannot_be_written_is_named_as_given():
    Path("t.txt").write_text("a b\n" * 9)
    said = run("fit", "t.txt", "-k", 1, "-o", "/proc/m.sojourn", code=1)
    assert "/proc/m.sojourn cannot be written" in said
    assert ".part" not in said
    assert not Path("t.sojourn").exists()


def test_a_command_writes_whole_tables_or_none(monkeypatch):
    write("t.csv", {"x": texts(X)})
    fit("t.csv")
    monkeypatch.setattr("sojourn.cli.rows._cells", lambda *a: 1 / 0)
    CliRunner().invoke(app, ["decode", "m.sojourn", "t.csv", "out.csv"])
    assert sorted(path.name for path in Path().iterdir()) == ["m.sojourn", "t.csv"]
