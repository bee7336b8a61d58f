"""What estimators need to know of a GPU, loaded when one is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sojourn.inference import Engine


def gpu_engine(n_threads: int, dtype: str, *, moves_from: int | None = None) -> Engine:
    """Return the engine of the GPU, or say what is missing for it.

    `moves_from` is the number of states of a model in which it may change.
    """
    try:
        import torch

        from sojourn.backends.cuda import find_device
        from sojourn.kernels import cuda as gpu
        from sojourn.kernels.cuda import PaddedKernel
    except ImportError as error:
        raise ImportError(
            f"device='cuda' needs PyTorch and Triton ({error.name} is not installed): "
            "pip install 'sojourn[gpu]'"
        ) from error
    device = find_device()
    failures = torch.zeros((), dtype=torch.int64, device=device)
    kernel = gpu if moves_from is None else PaddedKernel(moves_from)
    return Engine(kernel, n_threads, dtype, device=device, failures=failures)


@contextmanager
def memory_advice(device: str) -> Iterator[None]:
    """Say what to change when the memory of the GPU is full."""
    if device != "cuda":
        yield
        return
    import torch

    try:
        yield
    except torch.cuda.OutOfMemoryError as error:
        free, total = torch.cuda.mem_get_info()
        raise MemoryError(
            f"the GPU has too little memory ({free / 2**30:.1f} of {total / 2**30:.1f} GiB free): "
            "take a smaller batch_size, fewer states, dtype='float32', or device='cpu'"
        ) from error
