"""Kernels that can be compiled side by side before they run.

Triton compiles a kernel when it is launched, one after another.  What is launched under
`compiled_together` is noted and not run, and then compiled on several threads, as a compiler
spends most of its time outside of Python.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

from sojourn.kernels.threads import available_cores


class _Noted(threading.local):
    """What this thread has noted, if it is under `compiled_together`."""

    launches: list[tuple[Any, ...]] | None = None


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
        noted = _NOTED.launches
        if noted is None:
            return self.kernel[grid]
        return lambda *arguments, **options: noted.append((self.kernel, grid, arguments, options))


@contextmanager
def compiled_together() -> Iterator[None]:
    """Compile what is launched inside, on several threads, and run nothing of it.

    What PyTorch does itself is done, with whatever is in memory that a kernel would have written.
    """
    noted: list[tuple[Any, ...]] = []
    _NOTED.launches = noted
    try:
        yield
    finally:
        _NOTED.launches = None
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
        with ThreadPoolExecutor(max(1, min(len(by_kernel), available_cores()))) as pool:
            list(pool.map(compile_all, by_kernel))
