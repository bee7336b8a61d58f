"""List the tests that take too long for every day, from the times of a run of all of them.

python -m pytest -n 2 --dist loadfile --junitxml=times.xml && python -m tools.long_tests times.xml

`make test` leaves out what is in the list, and `make test-long` runs it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.etree import ElementTree

LIST = Path(__file__).parents[1] / "tests" / "long.txt"
SECONDS = 2.5

KEPT = (
    "tests.backends.dask.test_processes::test_one_two_and_three_workers",
    "tests.backends.dask.test_processes::test_a_worker_that_is_killed",
    "tests.backends.dask.test_processes::test_the_command_line_on_a_cluster",
    "tests.backends.dask.test_tiles",
    "tests.cli",
    "tests.inference.test_training",
    "tests.models.test_checkpoints",
    "tests.models.test_plan::test_all_states",
    "tests.moves.test_stream",
    "tests.report",
    "tests.soak",
    "tests.test_architecture",
    "tests.test_docs",
)
"""What is run every day however long it takes: nothing else holds the same."""


def names(path: Path, seconds: float) -> list[str]:
    """Return the tests that took as long."""
    found = {
        f"{case.get('classname')}::{case.get('name')}"
        for case in ElementTree.parse(path).getroot().iter("testcase")
        if float(case.get("time", "0")) >= seconds
    }
    return sorted(name for name in found if not name.startswith(KEPT))


if __name__ == "__main__":
    ran = set(names(Path(sys.argv[1]), 0.0))
    before = LIST.read_text().splitlines() if LIST.exists() else []
    # What a run leaves out, such as those that are long already, stays as it is.
    listed = sorted({*names(Path(sys.argv[1]), SECONDS), *(set(before) - ran)})
    LIST.write_text("".join(f"{name}\n" for name in listed))
    print(f"{len(listed)} tests: {LIST}")
