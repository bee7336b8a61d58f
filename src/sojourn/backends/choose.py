"""The backend in this process that a model's parameters name."""

from __future__ import annotations

from sojourn.backends.cpu import CpuBackend
from sojourn.inference.backend import LocalBackend
from sojourn.kernels import cpu, reference
from sojourn.kernels.threads import resolve_jobs

DEVICES = ("cpu", "cuda", "reference")
"""Where a model can be computed: compiled kernels, a GPU, or plain NumPy in float64."""


def make_backend(
    device: str, n_jobs: int | None, dtype: str, *, moves_from: int | None = None
) -> LocalBackend:
    """Make the backend for a `device` with so many threads.

    Parameters
    ----------
    device : {"cpu", "cuda", "reference"}
    n_jobs : int or None
        Threads; None and -1 for all cores.
    dtype : {"float32", "float64"}
        Precision of the local step.
    moves_from : int, optional
        Number of states that training begins with, of a model in which it may change.
    """
    if device not in DEVICES:
        raise ValueError(f"device={device!r} is not one of {list(DEVICES)}")
    n_threads = resolve_jobs(n_jobs)
    if device != "cuda":
        return CpuBackend(cpu if device == "cpu" else reference, n_threads, dtype)
    try:
        from sojourn.backends.cuda.backend import CudaBackend
    except ImportError as error:
        raise ImportError(
            f"device='cuda' needs PyTorch and Triton ({error.name} is not installed): "
            "pip install 'sojourn[gpu]'"
        ) from error
    return CudaBackend(n_threads, dtype, moves_from=moves_from)
