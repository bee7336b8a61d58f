"""Print the versions of what development needs, as installed here: ``python -m tools.lock``.

Only what ``sojourn[dev]`` needs is listed, directly or not, whatever else the environment has.
"""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
HEADER = "# Versions that the tests were last run with.  Written by: make lock"


def normal(name: str) -> str:
    """Return a name as package indexes compare it.

    >>> normal("Jinja_2.x")
    'jinja-2-x'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(requirements: list[str]) -> dict[str, str]:
    """Return the installed versions of requirements and of all that they need, by name."""
    found: dict[str, str] = {}
    waiting = [(Requirement(line), "") for line in requirements]
    while waiting:
        requirement, extra = waiting.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            installed = distribution(requirement.name)
        except PackageNotFoundError:
            continue  # optional, or of another system
        name = normal(requirement.name)
        is_new = name not in found
        found[name] = installed.version
        for wanted in requirement.extras or ([""] if is_new else []):
            waiting += [(Requirement(line), wanted) for line in installed.requires or ()]
    return found


def lock() -> str:
    """Return the lock file."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    found = needed(wanted)
    found.pop("setuptools", None)  # comes with Python, not with us
    lines = [f"{name}=={version}" for name, version in sorted(found.items())]
    return "\n".join([HEADER, *lines])


if __name__ == "__main__":
    print(lock())
