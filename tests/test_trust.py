"""Files from strangers: crafted models, small files that unpack to large ones, and terminals."""

import fcntl
import gzip
import json
import os
import stat

import numpy as np
import pytest
from typer.testing import CliRunner

import sojourn as sj
from sojourn import persist
from sojourn.cli import app
from sojourn.sources import text as text_module
from sojourn.sources import unpack
from sojourn.whole_files import part_file, part_folder, write_whole
from tests.soak import model_files
from tests.support.families import EXAMPLES

X = np.array([0, 1, 2, 1, 0, 2, 2, 0, 1])
LENGTHS = [3, 4, 2]


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


# ---- 1: model files with right checksums ---------------------------------------------------------


def crafted(path, base, *edits):
    description, arrays = model_files.edited({"base": base, "edits": edits})
    path.write_bytes(persist._pack(description, arrays))
    return path


CRAFTED = {
    "more symbols than the table has": (
        "categorical", ["set", ["family", "values", "n_symbols"], 10**6],
    ),
    "fewer symbols": ("categorical", ["set", ["family", "values", "n_symbols"], 3]),
    "NaN statistics": ("categorical", ["fill", "posterior.emissions", float("nan"), 3, 1.0]),
    "negative statistics": ("categorical", ["fill", "posterior.emissions", -5.0, 3, 1.0]),
    "negative counts": ("hdp", ["fill", "posterior.transitions", -5.0, 3, 1.0]),
    "infinite counts": ("hdp", ["fill", "posterior.start", float("inf"), 1, 1.0]),
    "a learned prior of other symbols": ("tuned", ["shape", "learned.times_seen", [7]]),
    "no states": (
        "categorical",
        ["shape", "posterior.start", [0]], ["shape", "posterior.transitions", [0, 0]],
        ["shape", "posterior.emissions", [6, 0]], ["shape", "posterior.totals", [0]],
    ),
    "a negative scale": ("categorical", ["set", ["scale"], -1]),
    "a negative scale of the prior": ("Gaussian", ["fill", "family.scale", -1.0, 0, 0.1]),
    "totals of other states": ("categorical", ["shape", "posterior.totals", [50]]),
    "totals that are not sums": ("categorical", ["fill", "posterior.totals", 1e30, 0, 0.1]),
    "a table of another family": ("Poisson", ["shape", "posterior.emissions", [50, 3]]),
    "a prior of other states": ("hdp", ["shape", "prior.tables", [7]]),
    "states that a draw does not have": ("gibbs", ["fill", "samples.states", 127.0, 2, 1.0]),
    "symbols outside of the alphabet": ("gibbs", ["fill", "samples.values", 127.0, 2, 1.0]),
    "a draw of a million states": ("hdp gibbs", ["fill", "samples.numbers", 1e6, 0, 1.0]),
    "offsets beyond the data": ("gibbs", ["fill", "samples.offsets", 1e18, 1, 1.0]),
    "words beyond the text": ("words", ["fill", "family.word_offsets", 1e18, 1, 1.0]),
    "a text that is not UTF-8": ("words", ["fill", "family.words", 255.0, 1, 1.0]),
    "very many threads": ("hdp", ["set", ["parameters", "n_jobs"], 10**6]),
    "a number too large for a float": ("hdp", ["set", ["n_updates"], 10**400]),
    "a history of strings": ("hdp", ["set", ["history", 0, "score"], "a"]),
    "an unknown way of reading": ("hdp", ["set", ["provenance"], {"reading": {"exec": "a"}}]),
    "a learned prior with other names": ("tuned", ["add", ["learned", "of_seen"], 1.0]),
    "a position of another kind": ("checkpoint", ["set", ["training", "position", "n_pass"], "a"]),
}  # fmt: skip


@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_model_file_is_refused(name, tmp_path):
    path = crafted(tmp_path / "model.sojourn", *CRAFTED[name])
    with pytest.raises(sj.ModelFileError, match=r"model\.sojourn "):
        sj.load(path)


@pytest.mark.parametrize("name", EXAMPLES)
def test_sound_files_of_every_family_load(name, tmp_path):
    sj.load(crafted(tmp_path / "model.sojourn", name))


def test_a_description_nested_without_end_is_refused(tmp_path):
    _, arrays, _, _ = model_files.bases()["hdp"]
    deep = "[" * 200_000 + "]" * 200_000
    packed = persist._pack({"format": "deep"}, arrays)
    raw = packed.replace(persist._DIGEST.search(packed).group(1), persist._NO_DIGEST.encode(), 1)
    size = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + size].replace(json.dumps('{"format": "deep"}').encode(),
                                       json.dumps(deep).encode())  # fmt: skip
    assert deep.encode() in header
    raw = len(header).to_bytes(8, "little") + header + raw[8 + size :]
    digest = persist.hashlib.sha256(raw).hexdigest().encode()
    (tmp_path / "deep.sojourn").write_bytes(raw.replace(persist._NO_DIGEST.encode(), digest, 1))
    with pytest.raises(sj.ModelFileError, match="is not a sojourn model file"):
        sj.load(tmp_path / "deep.sojourn")


def test_parameters_that_no_model_has_are_not_saved(tmp_path):
    model = sj.HMM(2, sj.Categorical(3)).fit(X, LENGTHS).set_params(n_passes=-1)
    with pytest.raises(ValueError, match="n_passes"):
        model.save(tmp_path / "model.sojourn")
    assert not list(tmp_path.iterdir())


# ---- 4: small files that unpack to large ones ----------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_a_very_long_line_is_refused_at_once(packed, tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "MAX_LINE", 2**20)
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    content = b"a b\n" + b"ab " * 10**6
    path.write_bytes(gzip.compress(content) if packed else content)
    with pytest.raises(sj.DataFileError, match="a line of more than 1048576 bytes"):
        sj.open(path).read_all()
    assert sj.open(path, max_bytes=2**22).read_all().n_steps == 10**6 + 2


@pytest.mark.parametrize("packed", [True, False])
def test_lines_of_many_blocks_are_read_whole(packed, tmp_path):
    words = [f"w{n}" for n in range(200_000)]
    lines = [words, ["a", "b"], words[:100_000], ["c"]]
    content = "\n".join(" ".join(line) for line in lines).encode()
    path = tmp_path / ("a.txt.gz" if packed else "a.txt")
    path.write_bytes(gzip.compress(content) if packed else content)
    found = sj.open(path).read_all()
    assert found.lengths.tolist() == [len(line) for line in lines]
    assert found[2].tolist() == lines[2]


def test_a_table_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "UNPACKED_BYTES", 2**20)
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,1\n" * 500_000))
    with pytest.raises(sj.DataFileError, match="unpack to more than"):
        sj.open(path, sequence=False, column=["x", "y"])
    opened = sj.open(path, sequence=False, column=["x", "y"], max_bytes=2**22)
    assert opened.n_steps == 500_000
    result = run("ingest", path, tmp_path / "b.parquet", "--column", "x")
    assert result.exit_code == 1
    assert "unpack to more than" in result.output


# ---- 6 and 7: the command line -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,a\n1,2\n3,4\n", "2 columns named 'a'"),
        ("sequence,sequence,a\n1,2,3\n", "2 columns named 'sequence'"),
        ("a\n1\ninf\n2\n", "sequence 0, position 1, column 0: inf is not a finite number"),
        ("a\n1\n-inf\n2\n", "not a finite number"),
        ("a\n1\n1e300\n2\n", "not a finite number of at most 1e+120"),
    ],
)
def test_odd_tables_are_errors_on_one_line(content, message, tmp_path):
    (tmp_path / "a.csv").write_text(content)
    result = run("fit", tmp_path / "a.csv", "--out", tmp_path / "m.sojourn", "--held-out", "0")
    assert result.exit_code == 1, result.exception
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_command_does_not_replace_its_input(tmp_path):
    data, model = tmp_path / "a.txt", tmp_path / "m.sojourn"
    data.write_text("the cat sleeps\nthe dog barks\n" * 3)
    before = data.read_bytes()
    assert run("fit", data, "--out", model, "-k", "2", "--passes", "1").exit_code == 0
    kept = model.read_bytes()
    (tmp_path / "link.txt").symlink_to(data)
    commands = [
        ["fit", data, "--out", data], ["fit", tmp_path / "link.txt", "--out", data],
        ["fit", model, "--held-out", data, "--out", data],
        ["decode", model, data, data], ["decode", model, data, model], ["ingest", data, data],
        ["report", model, "--data", data, "--out", data], ["report", model, "--out", model],
    ]  # fmt: skip
    for words in commands:
        result = run(*words, "--force")
        assert result.exit_code == 1, words
        assert data.read_bytes() == before
        assert model.read_bytes() == kept
    with pytest.raises(ValueError, match="is the input file"):
        sj.load(model).predict(data, out=data, overwrite=True)


# ---- 8: smaller things ---------------------------------------------------------------------------


@pytest.mark.skipif(os.name != "posix", reason="file modes are a matter of POSIX")
def test_a_file_keeps_its_mode_when_it_is_written_again(tmp_path):
    model = sj.HMM(2, sj.Categorical(3), n_passes=1).fit(X, LENGTHS)
    for mode in (0o600, 0o640):
        model.save(tmp_path / "m.sojourn")
        (tmp_path / "m.sojourn").chmod(mode)
        model.save(tmp_path / "m.sojourn")
        assert stat.S_IMODE((tmp_path / "m.sojourn").stat().st_mode) == mode


def test_save_replaces_models_but_asks_for_other_files(tmp_path):
    model = sj.HMM(2, sj.Categorical(3), n_passes=1).fit(X, LENGTHS)
    path = tmp_path / "thesis.tex"
    path.write_text("\\documentclass{article} and more than a few bytes of it")
    with pytest.raises(FileExistsError, match=r"not a model file: overwrite=True replaces it"):
        model.save(path)
    assert path.read_text().startswith("\\documentclass")
    model.save(path, overwrite=True)
    model.save(path)
    assert sj.load(path).n_states == 2


def test_control_characters_do_not_reach_the_terminal(tmp_path):
    data, model = tmp_path / "a.txt", tmp_path / "m.sojourn"
    data.write_text("the \x1b[2Jcat \x9b31m \u202eevil\nthe \u0646\u200c\u0627 dog\n" * 3)
    fitted = run("fit", data, "--out", model, "-k", "2", "--passes", "1", "--min-count", "1")
    outputs = [
        fitted, run("decode", model, data, "--words"), run("sample", model, "-n", "20"),
        run("sample", model, "--states"), run("inspect", model), run("inspect", model, "--json"),
        run("score", model, tmp_path / "no\x1b[2Jwhere.txt"),
    ]  # fmt: skip
    for result in outputs:
        assert not any(c in result.output for c in "\x1b\x9b\u202e\r")
    assert "\u0646\u200c\u0627/" in outputs[1].output  # what joins letters stays


def test_leftovers_of_a_killed_writer_are_removed_and_those_of_a_live_one_are_not(tmp_path):
    target = tmp_path / "m.bin"
    dead = tmp_path / ".m.bin.abc.part"
    dead.write_bytes(b"half")
    other = tmp_path / ".n.bin.abc.part"
    other.write_bytes(b"of another file")
    with part_file(target) as live:
        live.write_bytes(b"first")
        assert not dead.exists()
        write_whole(target, b"second")
        assert live.exists()
    assert target.read_bytes() == b"first"
    folder = tmp_path / ".results.abc.part"
    folder.mkdir()
    (folder / "a").write_text("half")
    with part_folder(tmp_path / "results") as part:
        assert not folder.exists()
        (part / "a").write_text("whole")
    assert sorted(os.listdir(tmp_path)) == [".n.bin.abc.part", "m.bin", "results"]


def test_two_runs_do_not_share_a_folder_of_checkpoints(tmp_path):
    holder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(holder, fcntl.LOCK_EX)
    model = sj.HMM(2, sj.Categorical(3), n_passes=2, n_init=1)
    with pytest.raises(BlockingIOError, match="another run is writing checkpoints"):
        model.fit(X, LENGTHS, checkpoint=tmp_path)
    os.close(holder)
    model.fit(X, LENGTHS, checkpoint=tmp_path)
    model.fit(X, LENGTHS, checkpoint=tmp_path, resume=True)


@pytest.mark.parametrize("inference", ["gibbs", "blocked-gibbs"])
def test_samplers_refuse_missing_symbols_by_place(inference):
    data = [[0, 1, 2], [1, -1, 0]]
    with pytest.raises(ValueError, match=f"sequence 1, position 1: inference='{inference}'"):
        sj.HMM(2, sj.Categorical(3), inference=inference).fit(data)
    with pytest.raises(ValueError, match="sequence 1, position 1: inference='beam'"):
        sj.HDPHMM(2, sj.Categorical(3), inference="beam").fit(data)
    sj.HMM(2, sj.Categorical(3), inference="vb").fit(data)
