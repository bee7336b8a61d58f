import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import sojourn as sj
from sojourn.cli import app
from sojourn.demo import documentation_sentences, unigram_score

ROOT = Path(__file__).parent.parent


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
        "t.txt, line 2, byte 4: 0xff is not UTF-8 (invalid start byte)"
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


@pytest.mark.parametrize("page", ["README.md", "docs/big-data.md"])
def test_commands_and_python_on_big_data_run(tmp_path, monkeypatch, page):
    monkeypatch.chdir(tmp_path)
    lines = b"The cat sleeps .\nthe dog barks .\n" * 50
    (tmp_path / "wiki.txt.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "held-out.txt").write_bytes(lines)
    blocks = re.findall(
        r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE
    )
    commands = [line for kind, block in blocks if not kind for line in block.splitlines()]
    for command in commands:
        if command.startswith("sojourn ingest"):
            result = run(*command.split()[1:])
            assert result.exit_code == 0, result.output
    python = [block for kind, block in blocks if kind == "py"]
    assert python
    exec("\n".join(python), {"sj": sj})
    assert sj.open("states.parquet").n_sequences == 100


def test_version_and_help_answer():
    assert CliRunner().invoke(app, ["--version"]).output.strip() == f"sojourn {sj.__version__}"
    command = [sys.executable, "-m", "sojourn.cli", "--help"]
    assert "demo" in subprocess.run(command, capture_output=True, text=True, check=True).stdout


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


def test_python_in_the_readme_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "README.md", "exec"), {})


def test_figures_in_the_readme_are_those_of_the_result_files(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.readme import updated

    readme = (ROOT / "README.md").read_text()
    assert updated(readme) == readme


def test_make_targets_named_in_the_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md"):
        text = (ROOT / document).read_text()
        named = set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE))
        assert named <= targets, f"{document} names {named - targets}"
