"""Documents: their commands and code run, their figures are those of the result files."""

import importlib.util
import re
import shlex
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

import sojourn as sj
from sojourn import demo
from sojourn.cli import app

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]

# What stands in documents and is not run here: set-up, and what other tests and commands run.
ELSEWHERE = ("make ", "pip ", "git ", "cd ", "apt-get ", "python -m ")


def blocks_of(page):
    """Yield (kind, text) of the fenced blocks of a page that are commands or Python.

    A block right after ``<!-- not run: reason -->`` is left out.
    """
    for why_not, kind, block in re.findall(
        r"^(<!-- not run: [^\n]+ -->\n+)? *```(\w*)\n(.*?)^ *```",
        (ROOT / page).read_text(),
        re.DOTALL | re.MULTILINE,
    ):
        if why_not:
            continue
        if kind in ("python", "py"):
            yield "python", block
        elif kind in ("console", "bash", "sh", ""):
            for line in block.splitlines():
                command = line.strip().removeprefix("$ ")
                if command and re.match(r"[a-z-]+ ", command):
                    yield "command", command


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_python_of_a_page_run(tmp_path, monkeypatch, page):
    blocks = list(blocks_of(page))
    if not blocks:
        return
    # In an empty folder, as printed.  What ``sojourn demo --files`` writes is shorter here.
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    few = demo.documentation_sentences()[:150]
    monkeypatch.setattr(demo, "documentation_sentences", lambda: few)
    names = {}
    for kind, text in blocks:
        if kind == "python":
            exec(compile(text, page, "exec"), names)
            continue
        if text.startswith(ELSEWHERE):
            continue
        program, *words = shlex.split(text, comments=True)
        assert program == "sojourn", f"{page}: {text} is run by nothing"
        result = CliRunner().invoke(app, words)
        assert result.exit_code == 0, f"{page}: {text}\n{result.output}\n{result.exception}"
    plt.close("all")


def test_the_extraction_finds_what_it_must():
    kinds = [block for page in PAGES for block in blocks_of(page)]
    commands = [text for kind, text in kinds if kind == "command"]
    assert sum(text.startswith("sojourn fit") for text in commands) >= 5
    assert sum(kind == "python" for kind, _ in kinds) >= 10
    used = {text.split()[1] for text in commands if text.startswith("sojourn ")}
    assert used >= {"demo", "fit", "score", "decode", "sample", "inspect", "report", "ingest"}


@pytest.fixture(scope="module")
def scripts():
    path = ROOT / "docs/hooks/scripts.py"
    spec = importlib.util.spec_from_file_location("docs_scripts", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


# What each example claims to show, in names that its script defines.
CLAIMS = {
    "word_classes": lambda n: n["model"].history_[-1]["score"] > -4.9,
    "chromatin_marks": lambda n: n["agreement"] > 0.95,
    "wrist_sensor": lambda n: n["agreement"] > 0.95 > 0.8 > n["agreement_plain"],
    "web_sessions": lambda n: n["found"].simplest.n_states == 4,
    "earthquakes": lambda n: (
        n["model"].score(n["counts"]) > -328.9
        and np.allclose(n["rates"], n["published"], rtol=0.005)
        and np.allclose(n["maximum"], n["published"], atol=0.01)
        and n["best"] > -328.54
        and min(n["models"], key=lambda k: n["models"][k].aic(n["counts"])) == 3
    ),
    "how-scvi-works": lambda n: n["gap"] > 2 and n["ahead"] > 0.02,
}
SCRIPTS = [ROOT / "docs/how-scvi-works.py", *sorted((ROOT / "docs/gallery").glob("*.py"))]


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs_ends_in_a_picture_and_shows_what_it_claims(scripts, path):
    page = scripts.run(path)
    assert page.pictures
    assert all(picture.startswith(b"\x89PNG") for picture in page.pictures.values())
    assert page.markdown.startswith("# ")
    if path.parent.name == "gallery":
        assert "**What one learns.**" in page.markdown
    assert CLAIMS[path.stem](page.names)


def test_every_picture_of_a_page_is_there_or_drawn_by_its_script(scripts):
    docs = ROOT / "docs"
    drawn = {f"{path.stem}-1.png" for path in scripts.find(docs)}
    for page in docs.rglob("*.md"):
        for name in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page.read_text()):
            assert name in drawn or (page.parent / name).stat().st_size > 5_000, f"{page}: {name}"
    gallery = (docs / "gallery/index.md").read_text()
    pages = {path.stem for path in (docs / "gallery").glob("*.*")} - {"index"}
    assert set(re.findall(r"\*\*\]\((\w+)\.md\)", gallery)) == pages
    assert gallery.count("![") == len(pages)  # a thumbnail each


def test_a_newcomer_fails_where_a_step_does_and_says_when_chromium_is_missing(
    monkeypatch, tmp_path, capsys
):
    from tests import newcomer

    with pytest.raises(SystemExit, match="it failed"):
        newcomer.run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path)
    with pytest.raises(SystemExit, match="expected a file"):
        newcomer.check(False, "a file")
    steps = []
    for name in ("words", "earthquakes"):
        monkeypatch.setattr(newcomer, name, lambda *given: steps.append(given[-1]))
    monkeypatch.setattr(newcomer, "run", lambda *given: "Learned word classes")
    monkeypatch.setattr(newcomer, "check", lambda holds, what: None)
    monkeypatch.setattr(newcomer, "why_no_browser", lambda: "there is no chromium here")
    newcomer.play(tmp_path)
    assert steps == [None, None]
    said = capsys.readouterr().out
    assert "nobody has looked at them: there is no chromium here" in said


def test_scripts_are_cut_into_prose_and_code(scripts):
    code = "x = 1\n\n\ndef f():\n    # inside\n\n    pass"
    pieces = scripts.split(f"# # Title\n#\n# Text.\n\n{code}\n")
    assert [(kind, text.strip()) for kind, text in pieces] == [
        ("prose", "# Title\n\nText."),
        ("code", code),
    ]


def test_every_page_is_in_the_navigation_and_every_entry_is_a_page(scripts):
    text = (ROOT / "mkdocs.yml").read_text()
    nav = text[text.index("\nnav:") :]
    entries = set(re.findall(r"([\w/-]+\.md)$", nav, re.MULTILINE))
    docs = ROOT / "docs"
    pages = {str(p.relative_to(docs)) for p in docs.rglob("*.md")}
    pages |= {str(p.relative_to(docs).with_suffix(".md")) for p in scripts.find(docs)}
    optional = {name for names in scripts.OPTIONAL.values() for name in names.values()}
    assert pages - optional == entries


def test_every_public_name_is_in_the_reference():
    text = "\n".join(path.read_text() for path in (ROOT / "docs/reference").glob("*.md"))
    named = re.findall(r"^::: sojourn\.(\w+)", text, re.MULTILINE)
    assert sorted(named) == sorted([*sj.__all__, "plot"])


COMMANDS = typer.main.get_command(app).commands


def option_rows(command):
    """Yield the rows of a command's table in docs/command-line.md: names, help and default."""
    for option in command.params:
        if option.param_type_name == "argument":
            names = [(option.metavar or option.name).strip("[]")]
        else:
            names = [*option.opts, *option.secondary_opts]
        default = option.default
        is_shown = not (option.required or default is None or isinstance(default, bool))
        shown = f"`{getattr(default, 'value', default)}`" if is_shown else ""
        yield f"| {', '.join(f'`{name}`' for name in names)} | {option.help} | {shown} |"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_its_options(name):
    page = (ROOT / "docs/command-line.md").read_text()
    assert f"| `{name}` | " in page
    section = page[page.index(f"\n### `{name}`\n") :].split("\n### ")[1]
    written = [line for line in section.splitlines() if line.startswith("| `")]
    assert written == list(option_rows(COMMANDS[name]))


def test_figures_in_the_documents_are_those_of_the_result_files(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import readme

    for page in readme.PAGES:
        text = (ROOT / page).read_text()
        assert readme.updated(text, page) == text


def test_make_targets_named_in_the_documents_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for document in (*PAGES, "CONTRIBUTING.md", "benchmarks/README.md"):
        text = (ROOT / document).read_text()
        ends = r"(?=`|[ \t]*$|[ \t]+#|[ \t]+[A-Z]+=)"  # "make a difference" is no command
        named = set(re.findall(rf"(?:^|`)make ([a-z-]+){ends}", text, re.MULTILINE))
        assert named <= targets, f"{document} names {named - targets}"


def test_modules_that_the_documents_run_exist():
    named = {
        (page, module)
        for page in [*PAGES, "benchmarks/README.md", "CONTRIBUTING.md"]
        for module in re.findall(
            r"python -m ((?:benchmarks|experiments|tools|tests)[\w.]*\w)", (ROOT / page).read_text()
        )
    }
    assert named
    missing = {
        one
        for one in named
        if not (ROOT / one[1].replace(".", "/")).with_suffix(".py").exists()
        and not (ROOT / one[1].replace(".", "/") / "__main__.py").exists()
    }
    assert not missing
