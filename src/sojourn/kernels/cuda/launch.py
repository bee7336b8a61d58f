"""Launches of kernels: close together, and compiled side by side before they run.

A kernel is launched while the one before still runs, where the device can do that, and waits for
it as the first thing: what a launch takes is then over by the time it is needed.

Triton compiles a kernel when it is launched, one after another.  What is launched under
`compiled_together` is noted and not run, and then compiled on several threads, as a compiler
spends most of its time outside of Python.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch
import triton
import triton.language as tl

from sojourn.kernels.cuda import settings
from sojourn.kernels.threads import available_cores

try:
    from triton.language.target_info import cuda_capability_geq
except ImportError:  # before 3.5
    cuda_capability_geq = None

_OVERLAPS = tl.constexpr(cuda_capability_geq is not None and not settings.INTERPRETED)


@triton.jit
def in_turn():
    """Let the next kernel be launched, and wait until the one before is done.

    The first thing in every kernel.  As all of them wait, everything launched before is done, too.
    """
    if _OVERLAPS:
        if cuda_capability_geq(9, 0):
            tl.inline_asm_elementwise(
                "griddepcontrol.launch_dependents; griddepcontrol.wait; mov.b32 $0, 0;",
                "=r,r",
                [tl.program_id(0)],
                dtype=tl.int32,
                is_pure=False,
                pack=1,
            )


@functools.cache
def _options() -> dict[str, bool]:
    """Return how kernels are compiled and launched on this device.

    A product and a sum are one operation, which Triton does by itself until 3.9 alone; checks of
    whole numbers for overflow, which nothing reads, are not written down, as that takes long; and
    where the device can do that, a kernel is launched before the ones before are done.
    """
    if settings.INTERPRETED:
        return {}
    able = _OVERLAPS.value and torch.cuda.get_device_capability() >= (9, 0)
    always = {"enable_fp_fusion": True, "sanitize_overflow": False}
    return always | ({"launch_pdl": True} if able else {})


@functools.cache
def begin() -> tuple[threading.Thread, ...]:
    """Have threads do what Triton does when the first kernel is launched; return them.

    It reads its own files, by which it finds what it has compiled before, and compiles what calls
    the driver.  Each takes a third of a second or more.
    """
    if settings.INTERPRETED:
        return ()

    def read_files() -> None:
        with contextlib.suppress(ImportError):
            from triton.runtime.cache import triton_key  # since 3.5, and it keeps what it returns

            triton_key()

    def find_driver() -> None:
        with contextlib.suppress(Exception):  # the first launch has the same error
            triton.runtime.driver.active.utils  # noqa: B018

    threads = tuple(threading.Thread(target=do, daemon=True) for do in (read_files, find_driver))
    for thread in threads:
        thread.start()
    return threads


def compile_gammas(device: Any) -> None:
    """Have PyTorch compile log Γ and ψ, which it does when they are first used."""
    one = torch.ones((), dtype=torch.float64, device=device)
    torch.lgamma(one)
    torch.digamma(one)


AT_A_TIME = 12
"""Kernels that are compiled at the same time.  Python, which one thread runs at a time, is a sixth
of it; most is LLVM, the assembler, and a C compiler for what calls a kernel."""


class _Noted(threading.local):
    """What takes the launches of this thread, if it is under `noting`."""

    note: Callable[[tuple[Any, ...]], None] | None = None


_NOTED = _Noted()


class Launched:
    """A kernel: ``kernel[grid](*arguments)`` launches it, or notes what would be launched.

    Parameters
    ----------
    kernel : triton.JITFunction
    """

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        note, how = _NOTED.note, _options()
        if note is None:
            return functools.partial(self.kernel[grid], **how)
        return lambda *arguments, **options: note((self.kernel, grid, arguments, options | how))


@contextmanager
def noting(note: Callable[[tuple[Any, ...]], None]) -> Iterator[None]:
    """Pass on what is launched, and run nothing of it: kernel, grid, arguments and options of each.

    What PyTorch does itself is done, with whatever is in memory that a kernel would have written.
    """
    before, _NOTED.note = _NOTED.note, note
    try:
        yield
    finally:
        _NOTED.note = before


@contextmanager
def compiled_together(beside: Iterable[Callable[[], None]] = ()) -> Iterator[None]:
    """Compile what is launched inside, on several threads, and run nothing of it.

    What else takes long and does not depend on it is done `beside`.
    """
    noted: list[tuple[Any, ...]] = []
    with noting(noted.append):
        yield
    by_kernel: dict[Any, list[tuple[Any, ...]]] = {}
    for kernel, *launch in noted:
        by_kernel.setdefault(kernel, []).append(tuple(launch))

    device = torch.cuda.current_device() if torch.cuda.is_available() else None

    def compile_all(kernel: Any) -> None:
        if device is not None:
            torch.cuda.set_device(device)  # of this thread
        for grid, arguments, options in by_kernel[kernel]:
            found = kernel.run(*arguments, grid=grid, warmup=True, **options)
            # Load it too, and compile what calls it, in C: that takes as long as a small kernel.
            getattr(found, "run", None)

    if by_kernel:
        # The longest first: the others are compiled while it is turned into machine code.
        longest_first = sorted(by_kernel, key=lambda kernel: -len(kernel.src))
        for thread in begin():
            thread.join()
        with ThreadPoolExecutor(min(AT_A_TIME, len(by_kernel), available_cores())) as pool:
            others = [pool.submit(work) for work in beside]
            list(pool.map(compile_all, longest_first))
            for other in others:
                other.result()
