import re
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from typer.testing import CliRunner

import sojourn as sj
from sojourn.cli import app
from sojourn.demo import documentation_sentences, unigram_score


def test_demo_shows_classes_scores_and_saves_the_model(tmp_path):
    out = tmp_path / "words.sojourn"
    result = CliRunner().invoke(
        app, ["demo", "--out", str(out), "--states", "12", "--passes", "10"]
    )
    assert result.exit_code == 0, result.output
    assert "Learned word classes" in result.output
    score = {
        name: float(re.search(rf"{name}\s*│\s*(-\d+\.\d+)", result.output).group(1))
        for name in ("unigram", "HMM by SVI", "HDP-HMM by SCVI")
    }
    assert score["unigram"] < score["HMM by SVI"] < score["HDP-HMM by SCVI"]
    assert sj.load(out).emission_.vocabulary["the"] > 0


def test_demo_refuses_a_folder_that_is_not_there(tmp_path):
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "no" / "m.sojourn")])
    assert result.exit_code == 2
    assert "there is no folder" in result.output.replace("\n", " ")


def run(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_text_is_ingested_learned_from_and_decoded(tmp_path):
    text, data, out = tmp_path / "t.txt", tmp_path / "t.parquet", tmp_path / "s.parquet"
    text.write_text("The cat sleeps .\nthe dog barks .\n" * 20)
    result = run("ingest", text, data, "--lower", "--min-count", 2, "--max-size", 5)
    assert result.exit_code == 0, result.output
    assert "40 sequences, 160 steps, 5 words" in result.output
    model = sj.HMM(2, sj.Categorical(), n_passes=2, random_state=0).fit(data)
    model.save(tmp_path / "m.sojourn")
    assert run("decode", tmp_path / "m.sojourn", data, out).exit_code == 0
    expected = model.predict(sj.open(data).read_all())
    np.testing.assert_array_equal(sj.open(out).read_all().values, expected.values)
    result = run("decode", tmp_path / "m.sojourn", text, out, "--proba", "--force")
    assert result.exit_code == 0, result.output
    assert sj.open(out).read_all().values.shape == (160, 2)
    held_out = tmp_path / "h.parquet"
    assert run("ingest", text, held_out, "--vocabulary", data).exit_code == 0
    assert sj.open(held_out).vocabulary == model.emission_.vocabulary


def test_commands_refuse_to_overwrite_and_say_what_is_wrong_in_a_line(tmp_path):
    text, out = tmp_path / "t.txt", tmp_path / "t.parquet"
    text.write_bytes(b"a\nb \xff\n")
    result = run("ingest", text, out)
    assert result.exit_code == 1
    assert result.output.strip().endswith(
        "t.txt, line 2, byte 4: 0xff is not UTF-8 (invalid start byte): a file from an older "
        "program may be Latin-1, which --encoding latin-1 reads"
    )
    assert not out.exists()
    text.write_bytes(b"a\nb\n")
    assert run("ingest", text, out).exit_code == 0
    result = run("ingest", text, out)
    assert result.exit_code == 1
    assert "exists already; --force replaces it" in result.output
    assert run("ingest", text, out, "--force").exit_code == 0


def test_generate_writes_corpus_and_truth(tmp_path):
    out = tmp_path / "g.parquet"
    options = ("--sequences", 300, "--states", 3, "--symbols", 20, "--held-out", 10)
    result = run("generate", out, *options)
    assert result.exit_code == 0, result.output
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["g.held-out.parquet", "g.parquet", "g.truth.safetensors"]
    assert sj.open(out).n_sequences == 300
    assert run("generate", out, *options).exit_code == 1


def test_version_and_help_answer():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"sojourn {sj.__version__}"
    command = [sys.executable, "-m", "sojourn", "--help"]
    assert "demo" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", [command.name or command.callback.__name__
                                  for command in app.registered_commands])  # fmt: skip
def test_the_help_of_every_command_is_set_for_the_terminal(name):
    found = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"})
    assert found.exit_code == 0
    assert "<bool>" not in found.output  # flags take no value
    lines = [line.strip() for line in found.output.splitlines()]
    text = lines[3 : next(i for i, line in enumerate(lines) if line.startswith("╭"))]
    assert any(line.startswith("Example: sojourn") for line in text)
    for line, after in pairwise(text):  # no line ends where the source has its end
        if line and after:
            assert len(f"{line} {after.split()[0]}") > 78, line


def test_documentation_is_split_into_different_sentences_of_tokens():
    sentences = documentation_sentences()
    assert len({tuple(sentence) for sentence in sentences}) == len(sentences)
    assert sum(map(len, sentences)) > 30_000
    assert all(token and not token.isspace() for sentence in sentences for token in sentence)


def test_unigram_score_is_the_mean_log_probability():
    train = sj.Sequences.from_list([[0, 0, 1], [1]])
    held_out = sj.Sequences.from_list([[0, 2]])
    expected = np.mean(np.log([2.5 / 5.5, 0.5 / 5.5]))
    assert np.isclose(unigram_score(train, held_out, 3, 0.5), expected)
