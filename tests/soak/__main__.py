"""Run the soak: ``python -m tests.soak --seconds 600``, or parts of it with counts of cases.

The bounds checks of compiled code are on (``NUMBA_BOUNDSCHECK``), with a cache of their own.
"""

import argparse
import json
import os
import platform
import sys
import time
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path

from tests.soak.figures import PARTS, RESULTS, ROOT, totals

CACHE = ROOT / ".numba-checked"
SHARES = {"inputs": 0.35, "model_files": 0.25, "data_files": 0.1, "commands": 0.1, "kills": 0.1,
          "cluster": 0.1}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="by default all")
    parser.add_argument("--seconds", type=float, help="of the whole run")
    parser.add_argument("--count", type=int, help="cases of every part, in place of a time")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--out", type=Path, help=f"add the figures to a file, such as {RESULTS}")
    options = parser.parse_args()
    if "NUMBA_BOUNDSCHECK" not in os.environ:
        # Compiled code does not remember whether it checks: it needs its own cache.
        checked = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(CACHE)}
        os.execve(sys.executable, [sys.executable, "-m", "tests.soak", *sys.argv[1:]],
                  {**os.environ, **checked})  # fmt: skip
    parts = options.parts or list(PARTS)
    whole = sum(SHARES[name] for name in parts)
    failed = 0
    for name in parts:
        seconds = None
        if options.count is None:
            seconds = (options.seconds or 600.0) * SHARES[name] / whole
        print(f"{name}: seed {options.seed}", flush=True)
        outcome = import_module(f"tests.soak.{name}").soak_part(
            options.seed, count=options.count, seconds=seconds, first=options.first
        )
        failed += len(outcome.failures)
        shown = {k: v for k, v in vars(outcome).items() if k != "failures"}
        print(f"{name}: {shown}, {len(outcome.failures)} failures", flush=True)
        for failure in outcome.failures:
            print(f"  case {failure['number']}: {failure['error']}", flush=True)
        if options.out is not None:
            add(options.out, name, options, shown | {"failures": len(outcome.failures)})
    sys.exit(failed > 0)


def add(path, name, options, figures):
    """Add a run of a part to the file of results."""
    results = json.loads(path.read_text()) if path.exists() else {"runs": []}
    results["machine"] = f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"
    results["runs"].append(
        {
            "part": name,
            "date": datetime.now(UTC).date().isoformat(),
            "seed": options.seed,
            "first": options.first,
            "boundscheck": os.environ.get("NUMBA_BOUNDSCHECK") == "1",
            **figures,
        }
    )
    results["totals"] = totals(results["runs"])
    path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
