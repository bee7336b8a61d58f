"""Runs the cases of a part in a child process, and judges what they raise."""

import atexit
import faulthandler
import json
import linecache
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import tempfile
import time
import traceback
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

import sojourn
import sojourn as sj

CASES = Path(__file__).parent / "cases"
HOME = str(Path(sojourn.__file__).parent)
EXTRA_BYTES = 2**30  # a case may take so much memory beyond what the parts take by themselves


class WrongError(AssertionError):
    """A result that a case must not have."""


@dataclass(frozen=True)
class Part:
    """A kind of case: how to make one from random numbers, and how to run it.

    Attributes
    ----------
    name : str
    make : callable
        Takes a `random.Random`, returns JSON.
    run : callable
        Takes that; returns whether it was accepted.  Raises `WrongError` or anything undocumented.
    allowed : tuple of types
        Errors that are documented, if the package raises them itself.
    """

    name: str
    make: object
    run: object
    allowed: tuple = (ValueError, TypeError)


@dataclass
class Outcome:
    """What a run of a part found."""

    cases: int = 0
    accepted: int = 0
    refused: int = 0
    seconds: float = 0.0
    extra_mb: float = 0.0
    failures: list = field(default_factory=list)


def is_documented(error, allowed):
    """Whether an error is of a documented kind, and raised by a statement of the package."""
    if isinstance(error, UnicodeError) or not isinstance(error, allowed):
        return False
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(HOME)]
    if not frames:
        return False
    last = traceback.extract_tb(error.__traceback__)[-1]
    line = linecache.getline(last.filename, last.lineno).strip()
    return last.filename == frames[-1].filename and line.startswith(("raise", "yield"))


def run_case(part, case):
    """Run a case; return whether it was accepted, and raise if it went wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", sj.FitWarning)
        warnings.filterwarnings("ignore", "Reading `.npy`")  # NumPy's note on a file of Python 2
        try:
            return bool(part.run(case))
        except Exception as error:
            if is_documented(error, part.allowed):
                return False
            raise


def describe(error):
    """Describe a failure: its kind, its message, and where it was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(last.filename).name}:{last.lineno}"
    return f"{type(error).__name__} at {where}: {str(error)[:300]}"


def kind_of(text):
    """Return what two failures of the same cause have in common."""
    return text.split(":")[0] + ":" + text.split(":")[1]


def soak(part, seed, *, count=None, seconds=None, first=0, keep=True):
    """Run cases in a child that may crash; go on after the case that crashed it."""
    outcome, begun, at = Outcome(), time.monotonic(), first
    while not _is_over(outcome, begun, count, seconds) and len(outcome.failures) < 20:
        left = None if count is None else count - outcome.cases
        rest = None if seconds is None else seconds - (time.monotonic() - begun)
        at = _one_child(part, seed, at, left, rest, outcome)
    outcome.seconds = round(time.monotonic() - begun, 1)
    if keep:
        for failure in outcome.failures:
            keep_case(part, failure)
    return outcome


def _is_over(outcome, begun, count, seconds):
    if count is not None and outcome.cases >= count:
        return True
    return seconds is not None and time.monotonic() - begun >= seconds


def case_of(part, seed, number):
    """Return case `number` of a seed."""
    return part.make(random.Random(f"{seed}/{part.name}/{number}"))


def _one_child(part, seed, at, count, seconds, outcome):
    """Fork a child that runs cases from number `at`; return the number to continue with."""
    shared = mmap.mmap(-1, 40)
    listen, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(listen)
        try:
            _run_many(part, seed, at, count, seconds, shared, tell)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(tell)
    with os.fdopen(listen) as told:
        failures = [json.loads(line) for line in told]
    _, status = os.waitpid(pid, 0)
    number, cases, accepted, refused, extra = struct.unpack("qqqqd", shared[:40])
    outcome.cases += cases
    outcome.accepted += accepted
    outcome.refused += refused
    outcome.extra_mb = max(outcome.extra_mb, round(extra, 1))
    outcome.failures += failures
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        failed = {"error": f"crash by {name}: case {number}", "case": case_of(part, seed, number)}
        outcome.failures.append({"part": part.name, "seed": seed, "number": number, **failed})
        outcome.cases += 1
    elif os.waitstatus_to_exitcode(status) != 0:
        raise RuntimeError(f"the soak itself failed at case {number} of {part.name}")
    return number + 1


def _run_many(part, seed, at, count, seconds, shared, tell):
    faulthandler.disable()  # a crash is reported by the parent
    cases = accepted = refused = failed = 0
    begun = time.monotonic()
    before = _peak_mb()
    _limit_memory()
    number = at
    while failed < 5:
        shared[:40] = struct.pack("qqqqd", number, cases, accepted, refused, _peak_mb() - before)
        if (count is not None and cases >= count) or (
            seconds is not None and time.monotonic() - begun >= seconds
        ):
            shared[:8] = struct.pack("q", number - 1)
            return
        case = case_of(part, seed, number)
        try:
            if run_case(part, case):
                accepted += 1
            else:
                refused += 1
        except Exception as error:
            failed += 1
            found = {"part": part.name, "seed": seed, "number": number, "error": describe(error)}
            os.write(tell, (json.dumps({**found, "case": case}) + "\n").encode())
        cases, number = cases + 1, number + 1
    shared[:40] = struct.pack("qqqqd", number - 1, cases, accepted, refused, _peak_mb() - before)


def _limit_memory():
    """Let what asks for far too much memory fail; only where the system says what is in use."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        now = int(statm.read_text().split()[0]) * resource.getpagesize()
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        # Threads and compiled code reserve addresses that they never use.
        resource.setrlimit(resource.RLIMIT_AS, (now + 3 * EXTRA_BYTES, hard))


def _peak_mb():
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def keep_case(part, failure):
    """Shrink a failure, and keep it as a case that the tests run from then on."""
    error = failure["error"]
    case = failure["case"]
    if not error.startswith("crash"):
        case = shrunk(part, case, kind_of(error))
    CASES.mkdir(exist_ok=True)
    name = f"{part.name}-{failure['seed']}-{failure['number']}.json"
    (CASES / name).write_text(json.dumps({"part": part.name, "error": error, "case": case}) + "\n")


def shrunk(part, case, kind):
    """Return the smallest case that Hypothesis finds to fail in the same way."""
    from hypothesis import HealthCheck, Phase, find, settings
    from hypothesis import strategies as st
    from hypothesis.errors import NoSuchExample

    def fails(made):
        try:
            run_case(part, made)
        except Exception as error:
            return kind_of(describe(error)) == kind
        return False

    quick = settings(
        max_examples=3000,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    try:
        return find(st.randoms(use_true_random=False).map(part.make), fails, settings=quick)
    except NoSuchExample:
        return case


def scratch():
    """Return a new folder, which is removed when the process that asked for it ends."""
    folder = tempfile.mkdtemp(prefix="soak-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def finite(value, what):
    """Raise unless all numbers of a result are finite."""
    if not np.isfinite(np.asarray(value, dtype=np.float64)).all():
        raise WrongError(f"{what} is not finite")
