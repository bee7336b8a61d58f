"""Run one compiled function on several threads.

Compiled code releases the interpreter lock and takes units of work from a shared counter, so a
thread is only a place where units are computed: which thread takes which unit never shows in the
result.  A plain thread pool is enough for that, works when several models are fitted at once, and
spares the compile time and the global state of numba's own parallel loops.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    """Drop the pool in a forked child, where its threads do not exist."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


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
def prefetch_row(typing_context, matrix, row):
    """Ask for a row of a C-ordered matrix before it is needed: rows picked at random come late."""
    signature = types.void(matrix, types.intp)

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        stride, columns = (
            cgutils.unpack_tuple(builder, x, 2) for x in (array.strides, array.shape)
        )
        itemsize = ir.Constant(cgutils.intp_t, signature.args[0].dtype.bitwidth // 8)
        base = builder.bitcast(array.data, cgutils.voidptr_t)
        begin = builder.gep(base, [builder.mul(args[1], stride[0])])
        i32 = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [cgutils.voidptr_t, i32, i32, i32])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        flags = [ir.Constant(i32, n) for n in (0, 3, 1)]  # to read, into every cache level, data
        n_lines = builder.udiv(builder.mul(columns[1], itemsize), ir.Constant(cgutils.intp_t, 64))
        with cgutils.for_range(builder, n_lines) as loop:
            line = builder.gep(begin, [builder.mul(loop.index, ir.Constant(cgutils.intp_t, 64))])
            builder.call(function, [line, *flags])
        return context.get_dummy_value()

    return signature, generate


def run_units(function: Callable[..., Any], n_units: int, n_threads: int, *args: Any) -> None:
    """Call ``function(counter, n_units, *args)`` on ``n_threads`` threads until all units are done.

    `function` takes units with `take_unit` until the counter passes `n_units`, and writes each
    unit's result to a place of its own.
    """
    global _pool
    counter = np.zeros(1, dtype=np.intp)
    n_helpers = min(n_threads, n_units) - 1
    if n_helpers <= 0:
        function(counter, n_units, *args)
        return
    if _pool is None:
        _pool = ThreadPoolExecutor(max(64, available_cores()), thread_name_prefix="sojourn")
    helpers = [_pool.submit(function, counter, n_units, *args) for _ in range(n_helpers)]
    function(counter, n_units, *args)
    for helper in helpers:
        helper.result()
