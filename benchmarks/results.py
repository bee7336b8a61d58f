"""Result files: what was measured, on what machine, when."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import date
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import sojourn

PACKAGES = ("sojourn", "numpy", "scipy", "numba", "scikit-learn", "pyarrow")


def machine() -> dict[str, Any]:
    """Describe the machine in the words that a reader needs to judge a number."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        lines = cpuinfo.read_text().splitlines()
        names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
        model = names[0] if names else model
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"processor": model, "cores": cores, "system": platform.system()}


def place(where: dict[str, Any]) -> str:
    """Say what a machine is, as `machine` describes it.

    Examples
    --------
    >>> place({"cores": 1, "processor": "AMD EPYC"})
    '1 core (AMD EPYC)'
    """
    return f"{where['cores']} core{'s' * (where['cores'] != 1)} ({where['processor']})"


def environment(**others: str) -> dict[str, str]:
    """Return the environment of a user's process: Python keeps the bytecode of modules.

    Where that is turned off, as in some containers, every process compiles all modules that it
    imports: half a second that an installed package does not take.
    """
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return own | others


def installed(name: str) -> str:
    """Return the version of a package; of sojourn also where it is only on the path."""
    if name == "sojourn":
        return sojourn.__version__
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def write_result(
    path: Path, measured: dict[str, Any], packages: tuple[str, ...] = (), *, quiet: bool = False
) -> None:
    """Write measurements with machine, date and versions to a JSON file, and say so."""
    versions = {name: installed(name) for name in (*PACKAGES, *packages)}
    content = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "python": sys.version.split()[0],
        "versions": versions,
        **measured,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1) + "\n")
    if not quiet:
        print(f"written: {path}")


def write_table(name: str, table: str) -> None:
    """Put a table between the marks of that name in the README of the benchmarks."""
    page, begin, end = (
        Path(__file__).parent / "README.md",
        f"<!-- {name}: begin -->",
        f"<!-- {name}: end -->",
    )
    head, _, rest = page.read_text().partition(begin)
    page.write_text(f"{head}{begin}\n{table}\n{end}{rest.partition(end)[2]}")
