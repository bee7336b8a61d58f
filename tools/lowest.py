"""Print the lowest versions that pyproject.toml allows, as constraints for pip.

python tools/lowest.py > lowest.txt        (make test-lowest)

Dependencies of the package and of its extras are pinned; tools of development are not, and neither
is the extra `gpu`, whose tests have an environment of their own.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parent.parent / "pyproject.toml"
EXTRAS = ("cluster", "diagnostics", "plot")
REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?>=(?P<version>[0-9][0-9.]*)")


def pin(requirement: str) -> str:
    """Return a requirement with its lower bound as the only version.

    >>> pin("arviz>=0.17,<1")
    'arviz==0.17'
    """
    found = REQUIREMENT.match(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} does not begin with a lower bound, such as numpy>=1.26")
    return f"{found['name']}=={found['version']}"


def lowest(project: dict[str, Any]) -> list[str]:
    """Return the pins of the table [project] of a pyproject.toml, sorted."""
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for name in EXTRAS for line in extras[name])]
    return sorted(pin(requirement) for requirement in wanted)


if __name__ == "__main__":
    print("\n".join(lowest(tomllib.loads(PYPROJECT.read_text())["project"])))
