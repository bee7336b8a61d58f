"""Run one compiled function on several threads.

Compiled code releases the interpreter lock and takes units of work from a shared counter, so a
thread is only a place where units are computed: which thread takes which unit never shows in the
result.  Plain threads are enough for that, work when several models are fitted at once, and
spare the compile time and the global state of numba's own parallel loops.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray

from sojourn.kernels import spin


class _Worker(threading.Thread):
    """A thread that waits for calls: awake for a while after each of them, and then asleep.

    Two locks hand a call over to one that sleeps in a third of a pool's time; see `spin` for one
    that does not.
    """

    def __init__(self) -> None:
        super().__init__(name="sojourn-worker", daemon=True)
        self._given = threading.Lock()
        self._done = threading.Lock()
        self._given.acquire()
        self._done.acquire()
        self._call: tuple[Callable[..., Any], tuple[Any, ...]] | None = None
        self._error: BaseException | None = None
        self._status = np.full(8, spin.ASLEEP, np.int64)
        self._address = self._status.ctypes.data
        self._n_spins = 0
        self._functions = spin.functions()
        self.start()

    def give(
        self,
        function: Callable[..., Any],
        *args: Any,
        counter: NDArray[np.intp] | None = None,
        n_spins: int = 0,
    ) -> None:
        """Begin a call.

        Where the thread is awake, it begins when the counter is no longer zero.  After the call it
        stays awake for `n_spins`, and `wait` looks for its end as often before it sleeps.
        """
        self._call, self._n_spins = (function, args), n_spins
        self._status[1] = 0 if counter is None else counter.__array_interface__["data"][0]
        if not self._functions.call(self._address):
            self._status[0] = spin.CALLED
            self._given.release()

    def wait(self) -> None:
        """Wait for the call to end, and raise what it raised."""
        if not self._functions.wait(self._address, self._n_spins):
            self._done.acquire()
        error, self._error = self._error, None
        _idle.append(self)
        if error is not None:
            raise error

    def withdraw(self) -> bool:
        """Take back a call that has not begun; nothing is done where it has."""
        if not self._functions.withdraw(self._address):
            return False
        self._call = None
        _idle.append(self)
        return True

    def run(self) -> None:
        listen, address = self._functions.listen, self._address
        heard = spin.ASLEEP
        while True:
            while heard == spin.ASLEEP:
                self._given.acquire()
                heard = listen(address, 0, self._n_spins)
            assert self._call is not None
            function, args = self._call
            try:
                function(*args)
            except BaseException as error:
                self._error = error
            del function, args
            self._call = None
            heard = listen(address, 1, self._n_spins)
            if heard == spin.AWAITED:
                self._done.release()
                heard = listen(address, 0, self._n_spins)


_idle: list[_Worker] = []  # list.pop and list.append are atomic

if hasattr(os, "register_at_fork"):
    # In a forked child the threads do not exist.
    os.register_at_fork(after_in_child=_idle.clear)


def _idle_worker() -> _Worker:
    try:
        return _idle.pop()
    except IndexError:
        return _Worker()


def available_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resolve_jobs(n_jobs: int | None) -> int:
    """Turn the estimator's ``n_jobs`` into a number of threads.

    None and -1 mean every available core, -2 all but one, as in scikit-learn.

    Examples
    --------
    >>> resolve_jobs(3)
    3
    """
    if n_jobs is None:
        return available_cores()
    if n_jobs == 0:
        raise ValueError("n_jobs=0 has no meaning; use None for all cores, or 1")
    return n_jobs if n_jobs > 0 else max(1, available_cores() + 1 + n_jobs)


class Background:
    """A call that runs in a thread of its own until its result is asked for.

    Examples
    --------
    >>> Background(lambda: 6 * 7).result()
    42
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._value: Any = None
        self._worker = _idle_worker()
        self._worker.give(self._run, function)

    def _run(self, function: Callable[[], Any]) -> None:
        self._value = function()

    def result(self) -> Any:
        """Wait for the call, and return its value or raise what it raised; to be called once."""
        self._worker.wait()
        return self._value


class Alongside:
    """A call that another thread makes during the next `run_units` of this one, before it helps.

    So it costs no waking, and does not compete for the interpreter, which compiled code does
    without.  Where no thread helps, it is made when its result is asked for.

    Examples
    --------
    >>> Alongside(lambda: 6 * 7).result()
    42
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self._function: Callable[[], Any] | None = function
        self._value: Any = None
        self._error: BaseException | None = None
        self._worker: _Worker | None = None
        self._is_made = False
        _here.waiting = self

    @classmethod
    def taken(cls) -> Alongside | None:
        """Return the call that waits in this thread, if there is one; it waits no more."""
        waiting: Alongside | None = getattr(_here, "waiting", None)
        _here.waiting = None
        return waiting

    def give(self, worker: _Worker, n_spins: int, function: Callable[..., Any], *args: Any) -> None:
        """Let a worker make the call, and help after it."""
        self._worker = worker
        worker.give(self._run, function, *args, counter=args[0], n_spins=n_spins)

    def _run(self, function: Callable[..., Any], *args: Any) -> None:
        assert self._function is not None
        try:
            self._value = self._function()
        except BaseException as error:
            self._error = error
        self._is_made = True
        function(*args)

    def finish_units(self) -> None:
        """Wait for the worker's units, when there are none to take any more."""
        # While it makes the call it has none, and will find none.
        if self._is_made and self._worker is not None:
            worker, self._worker = self._worker, None
            worker.wait()

    def result(self) -> Any:
        """Wait for the call, and return its value or raise what it raised; to be called once."""
        if getattr(_here, "waiting", None) is self:
            _here.waiting = None
        if self._worker is not None:
            self._worker.wait()
        elif not self._is_made:
            assert self._function is not None
            return self._function()
        if self._error is not None:
            raise self._error
        return self._value

    def discard(self) -> None:
        """Wait for the call if it has begun, and forget it."""
        if self._worker is None and not self._is_made:
            self._function = _nothing
        self.result()


def _nothing() -> None:
    return


_here = threading.local()  # `waiting`: a call to be made alongside


def ahead(make: Callable[[int], Any], n: int) -> Iterator[Any]:
    """Yield ``make(i)`` of the numbers below n, in their order; several run at the same time.

    Examples
    --------
    >>> list(ahead(lambda i: i * i, 5))
    [0, 1, 4, 9, 16]
    """
    coming: deque[Background] = deque()
    try:
        for i in range(n):
            coming.append(Background(partial(make, i)))
            if len(coming) > available_cores():
                yield coming.popleft().result()
        while coming:
            yield coming.popleft().result()
    finally:
        for left in coming:
            left.result()


@intrinsic
def take_unit(typing_context, counter):
    """Return ``counter[0]`` and add one to it, atomically."""
    signature = types.intp(counter)

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        one = ir.Constant(cgutils.intp_t, 1)
        return builder.atomic_rmw("add", array.data, one, "monotonic")

    return signature, generate


@intrinsic
def fetch_add(typing_context, counters, place, n):
    """Return ``counters[place]`` and add n to it, atomically.

    Who finds there what a thread has added sees all that the thread had written before.
    """
    signature = types.intp(counters, types.intp, types.intp)

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.atomic_rmw("add", builder.gep(data, [args[1]]), args[2], "seq_cst")

    return signature, generate


@intrinsic
def prefetch_row(typing_context, matrix, row):
    """Ask for a row of a C-ordered matrix before it is needed: rows picked at random come late."""
    return _prefetch_row(matrix, to_write=False)


@intrinsic
def prefetch_row_to_write(typing_context, matrix, row):
    """Ask for one to be changed: another core must let go of it first, which takes as long."""
    return _prefetch_row(matrix, to_write=True)


def _prefetch_row(matrix: Any, *, to_write: bool) -> Any:
    signature = types.void(matrix, types.intp)

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        stride, columns = (
            cgutils.unpack_tuple(builder, x, 2) for x in (array.strides, array.shape)
        )
        itemsize = ir.Constant(cgutils.intp_t, signature.args[0].dtype.bitwidth // 8)
        base = builder.bitcast(array.data, cgutils.voidptr_t)
        begin = builder.gep(base, [builder.mul(args[1], stride[0])])
        n_lines = builder.udiv(builder.mul(columns[1], itemsize), ir.Constant(cgutils.intp_t, 64))
        with cgutils.for_range(builder, n_lines) as loop:
            line = builder.gep(begin, [builder.mul(loop.index, ir.Constant(cgutils.intp_t, 64))])
            _emit_prefetch(builder, line, to_write=to_write)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def prefetch(typing_context, array, position):
    """Ask for the memory at a position of a flat array before it is needed."""
    signature = types.void(array, types.intp)

    def generate(context, builder, signature, args):
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        _emit_prefetch(builder, builder.bitcast(builder.gep(data, [args[1]]), cgutils.voidptr_t))
        return context.get_dummy_value()

    return signature, generate


def _emit_prefetch(builder: Any, address: Any, *, to_write: bool = False) -> None:
    i32 = ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    # Into every cache level, data.
    builder.call(function, [address, *(ir.Constant(i32, n) for n in (int(to_write), 3, 1))])


def run_units(function: Callable[..., Any], n_units: int, n_threads: int, *args: Any) -> None:
    """Call ``function(counter, n_units, *args)`` on ``n_threads`` threads until all units are done.

    `function` takes units with `take_unit` until the counter passes `n_units`, and writes each
    unit's result to a place of its own.
    """
    counter = np.zeros(1, dtype=np.intp)
    helpers = [_idle_worker() for _ in range(min(n_threads, n_units) - 1)]
    if helpers:
        # With more threads than cores, one that spins keeps another one from its work.
        n_spins = spin.SPINS if n_threads <= available_cores() else 0
    other = Alongside.taken() if helpers else None
    if other is not None:
        other.give(helpers.pop(), n_spins, function, counter, n_units, *args)
    for helper in helpers:
        helper.give(function, counter, n_units, *args, counter=counter, n_spins=n_spins)
    try:
        function(counter, n_units, *args)
    finally:
        for helper in helpers:
            if not helper.withdraw():
                helper.wait()
        if other is not None:
            other.finish_units()
