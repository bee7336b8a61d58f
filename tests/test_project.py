"""What surrounds the code agrees with itself: workflows, templates, metadata and the version."""

import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import sojourn

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def read(path):
    return yaml.safe_load((ROOT / path).read_text())


def matrices(job):
    """What the matrix of a job gives its steps: name -> all values."""
    matrix = dict(job.get("strategy", {}).get("matrix", {}))
    more = matrix.pop("include", [])
    names = {*matrix, *(name for entry in more for name in entry)}
    return {
        name: [*matrix.get(name, []), *(entry[name] for entry in more if name in entry)]
        for name in names
    }


def commands(job):
    """Yield every command that a job runs, once for each value of its matrix."""
    for step in job.get("steps", []):
        command = step.get("run", "")
        found = re.search(r"\$\{\{ *matrix\.(\w+) *\}\}", command)
        if found is None:
            yield command
        else:
            values = matrices(job)[found[1]]
            yield from (command.replace(found[0], value) for value in values)


def python_versions(job):
    """Yield every version of Python that a job sets up."""
    for step in job.get("steps", []):
        version = step.get("with", {}).get("python-version")
        if version == "${{ matrix.python }}":
            yield from matrices(job)["python"]
        elif version is not None:
            yield version


def jobs(path):
    return read(path)["jobs"].values()


def supported():
    """The versions of Python that the classifiers name."""
    start = "Programming Language :: Python :: "
    named = [line.removeprefix(start) for line in PROJECT["project"]["classifiers"]]
    return {version for version in named if re.fullmatch(r"3\.\d+", version)}


def test_a_command_of_a_matrix_is_found_for_every_value():
    job = {
        "strategy": {"matrix": {"a": ["lint"], "include": [{"a": "types", "b": "x"}]}},
        "steps": [{"uses": "actions/checkout@v4"}, {"run": "make ${{ matrix.a }} PYTHON=python"}],
    }
    found = [command for command in commands(job) if command]
    assert found == ["make lint PYTHON=python", "make types PYTHON=python"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_run_make_targets_that_exist(path):
    run = "\n".join(command for job in jobs(path) for command in commands(job))
    called = re.findall(r"\bmake +(\S+)", run)
    assert called
    assert set(called) <= TARGETS
    # The interpreter that was set up is the one that makes the environments.
    assert run.count("PYTHON=python") == len(called)


def test_all_checks_run_in_some_workflow():
    run = " ".join(command for path in WORKFLOWS for job in jobs(path) for command in commands(job))
    called = set(re.findall(r"\bmake +(\S+)", run))
    assert called >= {"test", "test-lowest", "lint", "types", "docs", "dist"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_have_few_rights_and_a_time_limit(path):
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "uses" in job or job["timeout-minutes"] <= 60
        # Only publishing has more rights, and needs tests and build before it.
        if "permissions" in job:
            assert job["permissions"] == {"id-token": "write"}
            assert set(job["needs"]) == set(workflow["jobs"]) - {"publish"}


def test_tests_run_on_the_versions_of_python_that_the_classifiers_name():
    (job,) = jobs(".github/workflows/tests.yml")
    assert set(python_versions(job)) == supported()
    matrix = matrices(job)
    assert {name.split("-")[0] for name in matrix["os"]} == {"ubuntu", "macos"}


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_no_workflow_uses_another_version_of_python(path):
    used = {version for job in jobs(path) for version in python_versions(job)}
    assert all(isinstance(version, str) for version in used)  # 3.10 without quotes is 3.1
    assert used <= supported()


def test_the_oldest_python_is_the_one_that_is_required():
    oldest = min(supported(), key=lambda version: int(version.split(".")[1]))
    assert PROJECT["project"]["requires-python"] == f">={oldest}"
    (lowest,) = jobs(".github/workflows/lowest.yml")
    assert list(python_versions(lowest)) == [oldest]
    assert PROJECT["tool"]["ruff"]["target-version"] == f"py{oldest.replace('.', '')}"
    assert PROJECT["tool"]["mypy"]["python_version"] == oldest


def test_the_lowest_versions_are_those_of_the_project():
    lowest = runpy.run_path(str(ROOT / "tools/lowest.py"))
    pins = lowest["lowest"](PROJECT["project"])
    wanted = list(PROJECT["project"]["dependencies"])
    extras = PROJECT["project"]["optional-dependencies"]
    for name in set(extras) - {"dev", "docs", "gpu"}:  # those that users install
        wanted += extras[name]
    assert len(pins) == len(set(pins)) == len(wanted)
    for requirement in wanted:
        name, version = re.match(r"([\w-]+)>=([\d.]+)", requirement).groups()
        assert f"{name}=={version}" in pins


def test_the_lock_file_has_an_allowed_version_of_everything():
    pairs = (
        line.split("==") for line in (ROOT / "requirements-dev.lock").read_text().split("\n")[1:]
    )
    locked = {pair[0]: pair[1] for pair in pairs if len(pair) == 2}
    extras = PROJECT["project"]["optional-dependencies"]
    for line in (*PROJECT["project"]["dependencies"], *extras["dev"]):
        requirement = Requirement(line)
        assert requirement.specifier.contains(locked[requirement.name.lower()]), line


@pytest.mark.parametrize("requirement", ["numpy", "numpy<2", "numpy==1.26", "numpy>1.26"])
def test_a_dependency_without_a_lower_bound_is_refused(requirement):
    lowest = runpy.run_path(str(ROOT / "tools/lowest.py"))
    with pytest.raises(ValueError, match="lower bound"):
        lowest["pin"](requirement)


def test_extras_agree_with_what_developers_install():
    extras = PROJECT["project"]["optional-dependencies"]
    for name in ("cluster", "diagnostics", "plot"):
        assert set(extras[name]) <= set(extras["dev"])


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.name)
def test_issue_forms_are_whole(path):
    form = read(path)
    if path.name == "config.yml":
        assert all({"name", "url", "about"} <= set(link) for link in form["contact_links"])
        return
    assert form["name"]
    assert form["description"]
    fields = [field for field in form["body"] if field["type"] != "markdown"]
    names = [field["id"] for field in fields]
    assert len(set(names)) == len(names) > 0
    for field in fields:
        assert field["type"] in {"input", "textarea", "dropdown", "checkboxes"}
        assert field["attributes"]["label"]


def test_there_is_a_form_for_bugs_and_one_for_features():
    assert {"bug.yml", "feature.yml", "config.yml"} == {path.name for path in FORMS}


def test_hooks_run_the_tools_that_make_runs():
    (local,) = read(".pre-commit-config.yaml")["repos"]
    tools = {hook["entry"].split()[0] for hook in local["hooks"]}
    developers = " ".join(PROJECT["project"]["optional-dependencies"]["dev"])
    for tool in tools:
        folder, name = tool.rsplit("/", 1)
        assert folder == ".venv/bin"
        assert f"{name}>=" in developers
    assert tools == {".venv/bin/ruff", ".venv/bin/mypy"}


def test_the_citation_says_what_the_project_says():
    citation = read("CITATION.cff")
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    project = PROJECT["project"]
    assert citation["license"] == project["license"]
    assert citation["repository-code"] == project["urls"]["Homepage"]
    assert citation["title"] == f"{project['name']}: {project['description']}"


def test_addresses_are_of_one_repository():
    home = PROJECT["project"]["urls"]["Homepage"]
    assert {"Homepage", "Documentation", "Issues", "Changelog"} == set(PROJECT["project"]["urls"])
    assert all(url.startswith(home) for url in PROJECT["project"]["urls"].values())
    for name in ("SECURITY.md", ".github/ISSUE_TEMPLATE/config.yml"):
        urls = re.findall(r"https://github\.com/[\w-]+/[\w-]+", (ROOT / name).read_text())
        assert set(urls) == {home}


def test_types_are_announced_and_there():
    assert "Typing :: Typed" in PROJECT["project"]["classifiers"]
    assert Path(sojourn.__file__).with_name("py.typed").exists()


def version_of(folder):
    """The version of a copy of the package's first file, in a fresh interpreter."""
    code = "import sys, sojourn; print(sojourn.__version__, 'importlib.metadata' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-S", "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": str(folder)},
    )
    return run.stdout.split()


def test_the_version_is_what_the_build_wrote_or_the_fallback(tmp_path):
    package = tmp_path / "sojourn"
    package.mkdir()
    (package / "__init__.py").write_text(Path(sojourn.__file__).read_text())
    fallback = PROJECT["tool"]["hatch"]["version"]["fallback-version"]
    assert version_of(tmp_path) == [fallback, "False"]
    hook = PROJECT["tool"]["hatch"]["build"]["hooks"]["vcs"]
    written = package / Path(hook["version-file"]).relative_to("src/sojourn")
    written.write_text(hook["template"].format(version="7.8.9.dev1+gabc"))
    assert version_of(tmp_path) == ["7.8.9.dev1+gabc", "False"]


def test_the_version_is_a_version():
    assert re.match(r"\d+\.\d+", sojourn.__version__)


def test_git_ignores_the_version_that_a_build_writes():
    written = PROJECT["tool"]["hatch"]["build"]["hooks"]["vcs"]["version-file"]
    assert written in (ROOT / ".gitignore").read_text().splitlines()
