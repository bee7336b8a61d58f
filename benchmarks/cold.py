"""The very first fit on a machine: a new process that finds nothing compiled.

    python -m benchmarks.cold

Each fit runs in new processes, with an empty folder for compiled code.  First as a user would run
it, where other processes compile beside it: the time until the process has ended.  Then alone, to
see how long each function takes to compile, once for each of the types that it is compiled for; and
once more, with all of it compiled.  The bytecode of modules is there, as pip writes it.  The result
file is written after every fit.  On two quiet cores all of it takes about four minutes.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.results import environment
from tools.companions import key_of, needed_apart, run_fit, watch_apart

RESULT = Path(__file__).parent / "results" / "cold.json"
FITS = (
    "HMM(3, Gaussian()) one",
    "HMM(10, Categorical()) sentences",
    "HDPHMM(20, Poisson()) one",
    "HMM(8, Gaussian()) long",
)
_WORDS = {
    "one": "1,200 steps",
    "sentences": "1,000 sentences",
    "long": "200,000 steps",
}
_SHOWN = 0.5  # seconds from which a function is named in the table


def timed(fit: str, folder: str) -> tuple[float, float]:
    """Return the time of a fit in a new process, and the processor time of it and its helpers."""
    command = [sys.executable, "-m", "benchmarks.cold", "--fit", fit]
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, env=environment(NUMBA_CACHE_DIR=folder), check=True)
    passed, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return passed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(fit: str, repeats: int) -> dict[str, Any]:
    """Measure a fit with nothing compiled, function by function, and with all of it compiled."""
    runs = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            runs.append((*timed(fit, folder), min(timed(fit, folder)[0] for _ in range(2))))
    first, processor, again = (min(run[i] for run in runs) for i in range(3))
    with tempfile.TemporaryDirectory() as folder:
        alone = watch_apart(fit, folder)["seconds"]
        _, needed = needed_apart(fit, folder)
    functions: dict[str, list[float]] = {}
    for name, arguments in needed:
        if (seconds := alone.get(key_of(name, arguments))) is not None:
            functions.setdefault(name.rpartition("sojourn.kernels.")[2], []).append(seconds)
    return {
        "fit": fit,
        "first_seconds": round(first, 2),
        "processor_seconds": round(processor, 1),
        "again_seconds": round(again, 2),
        "functions": dict(sorted(functions.items(), key=lambda one: -sum(one[1]))),
    }


def table(found: dict[str, Any]) -> str:
    """Tabulate the result for the README of the benchmarks."""
    where = found["machine"]
    lines = [
        f"Measured on {where['processor']}, {where['cores']} cores, {found['date']}, by "
        "`python -m benchmarks.cold`; the file is [results/cold.json](results/cold.json).",
        "",
        "| fit | nothing compiled, s | processor time, s | everything compiled, s "
        "| functions that take longest to compile, s of one core |",
        "|---|---|---|---|---|",
    ]
    for row in found["fits"]:
        model, _, form = row["fit"].rpartition(" ")
        shown = [
            f"`{name.rpartition('.')[2]}` {' + '.join(f'{one:.1f}' for one in seconds)}"
            for name, seconds in row["functions"].items()
            if sum(seconds) >= _SHOWN
        ]
        lines.append(
            f"| `{model}`, {_WORDS[form]} | {row['first_seconds']:.1f} "
            f"| {row['processor_seconds']:.1f} | {row['again_seconds']:.1f} | {', '.join(shown)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure all fits, or run one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fit")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.fit:
        run_fit(options.fit)
        return
    import json

    from benchmarks.results import write_result, write_table

    rows: list[dict[str, Any]] = []
    for fit in FITS:
        rows.append(measure(fit, options.repeats))
        print(rows[-1], flush=True)
        write_result(RESULT, {"fits": rows}, quiet=len(rows) < len(FITS))
    write_table("cold", table(json.loads(RESULT.read_text())))


if __name__ == "__main__":
    main()
