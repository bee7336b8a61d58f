"""Compiles side by side: on a cold start other processes compile what a fit is about to need.

numba compiles one function at a time in a process, and keeps what it has compiled on disk, where
every process finds it.  When the first function of a fit has to be compiled, `companions.json`
tells which others fits like it have needed; processes beside this one take them, the longest
first.  This one takes the very longest, as the others have to start, and then what it comes to; or
what it comes to at once, where that takes longer than a start.  It waits for a function only while
another process compiles it, and meanwhile compiles another.  Where nothing is to be compiled, none
of this runs.

With many cores this process takes nothing ahead: the others need no longer than the longest
function takes, and with a GPU this one may be compiling for that.  numba and Triton both compile in
Python, and would wait in turn for the interpreter's lock.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Condition, Thread
from typing import Any, NamedTuple

from numba.core import types
from numba.core.errors import NumbaError
from numba.core.sigutils import normalize_signature

from sojourn.kernels.threads import available_cores

RECORD = Path(__file__).with_name("companions.json")
_MOST_PROCESSES = 8  # beside this one
_START_SECONDS = 0.7  # that a process takes to start
_LIKELY = 0.5  # share of recorded fits; a function that more have needed is compiled
_START = "import sys; sys.path[:] = {path!r}; from {module} import serve; serve()"


class Function(NamedTuple):
    """A compiled function and the types of its arguments, both as text."""

    name: str
    arguments: str


def text_of(kinds: tuple[Any, ...]) -> str:
    """Return types of arguments as numba reads them from text.

    Examples
    --------
    >>> text_of((types.int64, types.float32[:, ::1], types.boolean))
    '(int64, float32[:, ::1], boolean)'
    """
    return "(" + ", ".join(_text(kind) for kind in kinds) + ("," if len(kinds) == 1 else "") + ")"


def _text(kind: Any) -> str:
    if isinstance(kind, types.Array):
        if kind.layout == "C" and kind.mutable:
            return f"{kind.dtype}[{':, ' * (kind.ndim - 1)}::1]"
        return f"Array({kind.dtype}, {kind.ndim}, {kind.layout!r}, {not kind.mutable})"
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        return f"Tuple({text_of(tuple(parts))})"
    return "boolean" if kind == types.boolean else str(kind)


class Companions:
    """What is to be compiled, and who compiles it.

    Parameters
    ----------
    fits : list of (str, set of Function)
        Kinds of fits, and the functions that they needed.
    seconds : dict
        How long each function takes to compile.
    n_processes : int
        Processes beside this one, at most.
    """

    def __init__(
        self,
        fits: list[tuple[str, set[Function]]],
        seconds: dict[Function, float],
        n_processes: int,
    ) -> None:
        self._fits = fits
        self._seconds = seconds
        self._n_processes = n_processes
        self._kind = ""
        self._needed: set[Function] = set()
        self._taken: set[Function] = set()  # by whomever, done or not
        self._running: set[Function] = set()  # by other processes
        self._waiting: list[Function] = []  # the longest last
        self._n_at_work = 0
        self._changed = Condition()
        self._is_ahead = False  # this process compiles what it does not need yet

    def expect(self, kind: str) -> None:
        """Say which kind of fit begins."""
        with self._changed:
            self._kind, self._needed = kind, set()

    @property
    def known(self) -> Iterable[Function]:
        """The functions of the record."""
        return self._seconds

    def begin(self, functions: list[Function]) -> None:
        """Have another process compile functions that will be needed, unless they are on disk."""
        missing = [one for one in functions if not _is_on_disk(one)]
        if not missing or self._n_processes == 0:
            return
        with self._changed:
            self._waiting += missing
            self._n_at_work += 1
        for one in missing:
            _wait_for(one, self)
        Thread(target=self._work, name="sojourn-compile", daemon=True).start()

    def need(self, function: Function) -> None:
        """Say that a function is needed and not on disk: others follow from it."""
        if self._is_ahead:
            return
        with self._changed:
            self._taken.add(function)
            self._needed.add(function)
            known = [own for kind, own in self._fits if kind == self._kind]
            needed = self._needed & set().union(*known)  # what no such fit needed tells nothing
            fits = [own for own in known if needed <= own]
            likely = {
                one
                for one in set().union(*fits)
                if sum(one in own for own in fits) > _LIKELY * len(fits)
            }
            self._waiting = sorted(likely - self._taken, key=lambda one: self._seconds[one])
            n_new = min(self._n_processes, len(self._waiting)) - self._n_at_work
            self._n_at_work += max(0, n_new)
            waiting = list(self._waiting)
        for one in waiting:
            _wait_for(one, self)
        # Others have to start first: what takes longest is begun here, if they would be at work for
        # longer than that, and if it need not wait here for longer than a start.
        is_soon = self._seconds.get(function, 0.0) <= _START_SECONDS
        seconds = [self._seconds[one] for one in waiting]
        is_much = n_new > 0 and sum(seconds) > n_new * seconds[-1]
        longest = self.take(elsewhere=False) if is_soon and is_much else None
        for _ in range(n_new):
            Thread(target=self._work, name="sojourn-compile", daemon=True).start()
        if longest is not None:
            self._compile_ahead(longest)

    def take(self, *, elsewhere: bool) -> Function | None:
        """Take the longest function that nobody has; None if there is none."""
        with self._changed:
            if not self._waiting:
                return None
            function = self._waiting.pop()
            self._taken.add(function)
            if elsewhere:
                self._running.add(function)
            return function

    def came_to(self, function: Function) -> None:
        """Return when no other process compiles a function: it is on disk, or to be compiled."""
        with self._changed:
            if function in self._waiting:
                self._waiting.remove(function)
                self._taken.add(function)
        while function in self._running:
            other = None if self._is_ahead else self.take(elsewhere=False)
            if other is not None:
                self._compile_ahead(other)
                continue
            with self._changed:
                self._changed.wait_for(lambda: function not in self._running)

    def _compile_ahead(self, function: Function) -> None:
        """Compile a function here that this process has not come to yet."""
        self._is_ahead = True
        try:
            compile_one(function)
        finally:
            self._is_ahead = False

    def _work(self) -> None:
        """Have a process compile what is waiting, one function after another."""
        try:
            with _process() as process:
                while (function := self.take(elsewhere=True)) is not None:
                    try:
                        process.stdin.write(json.dumps(function) + "\n")
                        process.stdin.flush()
                        is_alive = process.stdout.readline() != ""
                    finally:
                        with self._changed:
                            self._running.discard(function)
                            self._changed.notify_all()
                    if not is_alive:
                        break
        except OSError:
            pass  # no process can be started, or it has ended: this one compiles everything
        finally:
            with self._changed:
                self._n_at_work -= 1


@contextlib.contextmanager
def _process() -> Iterator[Any]:
    """Start a process that compiles what it reads, and end it."""
    command = [sys.executable, "-c", _START.format(path=sys.path, module=__name__)]
    quiet, pipe = subprocess.DEVNULL, subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True) as process:
        yield process


def serve() -> None:
    """Compile what is read, a function a line, until there is no more."""
    gc.disable()
    for line in sys.stdin:
        compile_one(Function(*json.loads(line)))
        print("done", flush=True)


def compile_one(function: Function) -> None:
    """Compile a function, or load it if it is on disk."""
    # A record that is out of date is no reason to fail: other arguments, or more of them.
    with contextlib.suppress(NumbaError, TypeError):
        kinds, _ = normalize_signature(function.arguments)  # text would be kept on disk as text
        _dispatcher(function.name).compile(kinds)


def _dispatcher(name: str) -> Any:
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


def _is_on_disk(function: Function) -> bool:
    dispatcher = _dispatcher(function.name)
    kinds, _ = normalize_signature(function.arguments)
    return dispatcher._cache.load_overload(kinds, dispatcher.targetctx) is not None


class _Waiting:
    """The cache of a function, which waits while another process compiles it."""

    def __init__(self, cache: Any, name: str, companions: Companions) -> None:
        self._cache, self._name, self._companions = cache, name, companions

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load what was compiled for a signature, or return None."""
        found = self._cache.load_overload(sig, target_context)
        if found is None:
            self._companions.came_to(Function(self._name, text_of(tuple(sig))))
            found = self._cache.load_overload(sig, target_context)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


def _wait_for(function: Function, companions: Companions) -> None:
    """Have a function's cache wait for other processes."""
    dispatcher = _dispatcher(function.name)
    if not isinstance(dispatcher._cache, _Waiting):
        dispatcher._cache = _Waiting(dispatcher._cache, function.name, companions)


def _from_record() -> Companions:
    record = json.loads(RECORD.read_text())
    functions = [Function(*one[:2]) for one in record["functions"]]
    there = {one for one in functions if _is_there(one.name)}
    fits = [
        (own["kind"], {functions[i] for i in own["functions"]} & there) for own in record["fits"]
    ]
    seconds = {Function(*one[:2]): one[2] for one in record["functions"]}
    is_python = Path(sys.executable or "").name.lower().startswith("python")
    n_beside = min(_MOST_PROCESSES, available_cores() - 1) if is_python else 0
    return Companions(fits, seconds, n_beside)


def _is_there(name: str) -> bool:
    """Whether a function of the record still exists, and is kept on disk."""
    try:
        return hasattr(_dispatcher(name), "_cache")
    except (ImportError, AttributeError):
        return False


_kind = ""
_companions: Companions | None = None


def expect(kind: str) -> None:
    """Say which kind of fit begins, as `companions.json` names it."""
    global _kind
    _kind = kind
    if _companions is not None:
        _companions.expect(kind)


def begin(name: str) -> None:
    """Have another process compile a function now, if it is not on disk.

    For fits that compile something else first, such as those on a GPU.
    """
    with contextlib.suppress(NumbaError, TypeError):
        found = _shared()
        found.begin([one for one in found.known if one.name == name])


def _shared() -> Companions:
    global _companions
    if _companions is None:
        _companions = _from_record()
        _companions.expect(_kind)
    return _companions


def need(dispatcher: Any, kinds: tuple[Any, ...]) -> None:
    """Say that a function is being compiled, and have others compiled that will be needed."""
    function = dispatcher.py_func
    _shared().need(Function(f"{function.__module__}.{function.__name__}", text_of(kinds)))
