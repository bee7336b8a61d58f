"""Record what a matrix of small fits gives, to the bit, and compare it with a later version.

``python -m tools.digests record FILE`` fits every case and writes a digest of each of its results;
``python -m tools.digests compare FILE`` does the same again and prints the cases that differ, or
compares FILE with a second recording.  Only the public interface is used, so that the same cases
run on any version of the library.  Recordings are to be compared on one machine: other processors
may round differently.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import sojourn as sj
from tools.digest_cases import cases
from tools.digest_fits import Case, Digests, Run


def _attempt(case: Case, run: Run) -> Digests:
    try:
        return case(run)
    except Exception as error:
        message = re.sub(re.escape(str(run.folder)) + r"/\d+", "FOLDER", str(error))
        return {"error": f"{type(error).__name__}: {message}"}


def record(n_jobs: int | None = None, only: str = "*", *, verbose: bool = False) -> dict[str, Any]:
    """Fit the cases whose names match a pattern, and return their digests."""
    warnings.simplefilter("ignore")
    recorded, seconds = {}, {}
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        run = Run(Path(folder), n_jobs, stack)
        for name, case in cases().items():
            if fnmatch(name, only):
                start = time.perf_counter()
                recorded[name] = _attempt(case, run)
                seconds[name] = round(time.perf_counter() - start, 3)
                if verbose:
                    print(f"{seconds[name]:7.2f} s  {name}", file=sys.stderr, flush=True)
    return {"version": sj.__version__, "cases": recorded, "seconds": seconds}


def differences(before: Mapping[str, Digests], after: Mapping[str, Digests]) -> list[str]:
    """Return one line for each case that differs or is in one of two recordings only."""
    lines = [f"{name}: only before" for name in before if name not in after]
    lines += [f"{name}: only after" for name in after if name not in before]
    for name in before:
        old, new = before[name], after.get(name, before[name])
        changed = [key for key in old | new if old.get(key) != new.get(key)]
        if not changed:
            continue
        line = f"{name}: {', '.join(changed)}"
        if "error" in changed:
            line += f" ({old.get('error', 'no error')} -> {new.get('error', 'no error')})"
        elif "score" in old:
            line += f" (score {old['score']} -> {new.get('score')})"
        lines.append(line)
    return lines


def main() -> int:
    """Run the command line; 1 where results differ."""
    parser = argparse.ArgumentParser(prog="python -m tools.digests", description=__doc__)
    parser.add_argument("command", choices=["record", "compare"])
    parser.add_argument("file", type=Path)
    parser.add_argument("other", type=Path, nargs="?", help="a second recording, to compare with")
    parser.add_argument("--jobs", type=int, help="threads; results must not depend on them")
    parser.add_argument("--only", default="*", help="pattern of the cases to run")
    parser.add_argument("--verbose", action="store_true", help="print each case and its time")
    arguments = parser.parse_args()
    if arguments.other is None:
        now = record(arguments.jobs, arguments.only, verbose=arguments.verbose)
        failed = [name for name, digests in now["cases"].items() if "error" in digests]
        total = sum(now["seconds"].values())
        print(f"{len(now['cases'])} cases in {total:.0f} s, {len(failed)} of them with an error")
    else:
        now = json.loads(arguments.other.read_text())
    if arguments.command == "record":
        arguments.file.write_text(json.dumps(now, indent=1, sort_keys=True) + "\n")
        return 0
    before = json.loads(arguments.file.read_text())["cases"]
    before = {name: value for name, value in before.items() if fnmatch(name, arguments.only)}
    after = {k: value for k, value in now["cases"].items() if fnmatch(k, arguments.only)}
    lines = differences(before, after)
    print("\n".join([*lines, f"{len(lines)} of {len(before | after)} cases differ"]))
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
