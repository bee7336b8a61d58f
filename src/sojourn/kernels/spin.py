"""Handing a call from one thread to another without waking it.

To wake a thread that sleeps, and to be woken when it has finished, took a tenth of an E-step with 8
states, and as much more went by until it began.  So a thread that has finished a call looks for
another one for a while, in a loop outside of the interpreter, before it sleeps; and who waits for
it looks as long.

A thread has a status, and the address of a counter that is zero until the caller has let go of the
interpreter: both would otherwise wait for it, one of them asleep.  A call that has not begun can be
withdrawn: a thread that wakes late, half a millisecond where its core slept too, holds up nobody.

The functions are a few instructions each.  They are built without numba, which would take twenty
times as long for them, in every installation.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any, NamedTuple

from llvmlite import binding, ir

ASLEEP, WITHDRAWN, LISTENS, CALLED, BEGUN, AWAITED = range(6)
"""A thread sleeps; has had a call that was withdrawn, and is about to find out; looks for a call;
has one; has begun it; or has one, begun or not, and another thread sleeps until it has ended."""

SPINS = 2**14
"""How often a thread looks before it sleeps: some 400 microseconds, longer than what lies between
two calls of an update, which is Python."""

_I64 = ir.IntType(64)
_PAUSE = {"x86_64": "llvm.x86.sse2.pause", "AMD64": "llvm.x86.sse2.pause"}


class Functions(NamedTuple):
    """Compiled functions of the address of two int64: a status, and the address of a counter.

    Attributes
    ----------
    call : (address) -> 1, or 0 where the thread sleeps
    withdraw : (address) -> 1, or 0 where the call has begun
    listen : (address, has_ended, n_spins) -> ASLEEP, BEGUN, or AWAITED
        Wait for a call, and begin it.  AWAITED, and nothing else is done, if a thread sleeps until
        the call that `has_ended` has.
    wait : (address, n_spins) -> 1, or 0 where the call has not ended and the thread is to sleep
    """

    call: Any
    withdraw: Any
    listen: Any
    wait: Any


@cache
def functions() -> Functions:
    """Return the compiled functions; they let go of the interpreter."""
    module = ir.Module("spin")
    _call(module)
    _withdraw(module)
    _listen(module)
    _wait(module)
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine(opt=2)
    engine = binding.create_mcjit_compiler(binding.parse_assembly(str(module)), machine)
    engine.finalize_object()
    _kept.append(engine)  # with it the code would go

    def function(name: str, n_arguments: int) -> Any:
        kind = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * n_arguments)
        return kind(engine.get_function_address(name))

    names = {"call": 1, "withdraw": 1, "listen": 3, "wait": 2}
    return Functions(*(function(name, n) for name, n in names.items()))


_kept: list[Any] = []


def _call(module: ir.Module) -> None:
    builder, (status, _), _ = _begin(module, "call", 1)
    for before in (LISTENS, WITHDRAWN):
        with builder.if_then(_change(builder, status, before, CALLED)):
            builder.ret(_I64(1))
    builder.ret(_I64(0))


def _withdraw(module: ir.Module) -> None:
    builder, (status, _), _ = _begin(module, "withdraw", 1)
    builder.ret(builder.zext(_change(builder, status, CALLED, WITHDRAWN), _I64))


def _listen(module: ir.Module) -> None:
    builder, (status, counter), (has_ended, n_spins) = _begin(module, "listen", 3)
    with builder.if_then(builder.icmp_signed("!=", has_ended, _I64(0))):
        before = builder.atomic_rmw("xchg", status, _I64(LISTENS), "seq_cst")
        with builder.if_then(builder.icmp_signed("==", before, _I64(AWAITED))):
            builder.ret(_I64(AWAITED))
    again = builder.append_basic_block()
    builder.branch(again)
    builder.position_at_end(again)
    _change(builder, status, WITHDRAWN, LISTENS)
    _spin(builder, status, ">=", CALLED, n_spins)
    with builder.if_then(_change(builder, status, LISTENS, ASLEEP)):
        builder.ret(_I64(ASLEEP))
    place = builder.load(counter)
    with builder.if_then(builder.icmp_signed("!=", place, _I64(0))):
        # Where the caller takes long to come so far, there is no need to wait for it.
        _spin(builder, builder.inttoptr(place, _I64.as_pointer()), "!=", 0, n_spins)
    with builder.if_then(_change(builder, status, CALLED, BEGUN)):
        builder.ret(_I64(BEGUN))
    now = builder.load_atomic(status, "acquire", 8)
    with builder.if_then(builder.icmp_signed("==", now, _I64(AWAITED))):
        builder.ret(_I64(BEGUN))
    builder.branch(again)


def _wait(module: ir.Module) -> None:
    builder, (status, _), (n_spins,) = _begin(module, "wait", 2)
    _spin(builder, status, "<", CALLED, n_spins)
    for before in (CALLED, BEGUN):
        with builder.if_then(_change(builder, status, before, AWAITED)):
            builder.ret(_I64(0))
    builder.ret(_I64(1))


def _begin(
    module: ir.Module, name: str, n_arguments: int
) -> tuple[ir.IRBuilder, tuple[Any, Any], list[Any]]:
    """Begin a function; return the places of status and counter, and the other arguments."""
    function = ir.Function(module, ir.FunctionType(_I64, [_I64] * n_arguments), name)
    builder = ir.IRBuilder(function.append_basic_block())
    address, *others = function.args
    places = tuple(
        builder.inttoptr(builder.add(address, _I64(at)), _I64.as_pointer()) for at in (0, 8)
    )
    return builder, (places[0], places[1]), others


def _change(builder: ir.IRBuilder, place: Any, before: int, after: int) -> Any:
    """Replace one number by another, and tell whether it was there."""
    found = builder.cmpxchg(place, _I64(before), _I64(after), "seq_cst", "seq_cst")
    return builder.extract_value(found, 1)


def _spin(builder: ir.IRBuilder, place: Any, comparison: str, value: int, n_spins: Any) -> None:
    """Look at a number until a comparison holds, or for some time."""
    before, loop = builder.block, builder.append_basic_block()
    builder.branch(loop)
    builder.position_at_end(loop)
    n = builder.phi(_I64)
    n.add_incoming(_I64(0), before)
    found = builder.icmp_signed(comparison, builder.load_atomic(place, "acquire", 8), _I64(value))
    name = _PAUSE.get(platform.machine())
    if name is not None:  # it leaves the core to its other thread, and saves power
        nothing = ir.FunctionType(ir.VoidType(), [])
        builder.call(
            builder.module.globals.get(name) or ir.Function(builder.module, nothing, name), []
        )
    following = builder.add(n, _I64(1))
    n.add_incoming(following, loop)
    after = builder.append_basic_block()
    ends = builder.icmp_signed(">=", following, n_spins)
    builder.cbranch(builder.or_(found, ends), after, loop)
    builder.position_at_end(after)
