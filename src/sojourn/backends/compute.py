"""Where predictions are computed: device, threads and precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sojourn.backends.cpu import CpuBackend
from sojourn.inference.backend import LocalBackend
from sojourn.kernels import cpu, reference
from sojourn.kernels.threads import resolve_jobs

KERNELS = {"cpu": cpu, "reference": reference}
DEVICES = ("cpu", "cuda", "reference")


@dataclass(frozen=True)
class Compute:
    """Device, threads and precision of the computation.  Not a part of the fitted model.

    Attributes
    ----------
    device : {"cpu", "cuda", "reference"}
        Compiled kernels on the CPU, kernels on a GPU, or plain NumPy.
    n_jobs : int or None
        Number of threads; None and -1 for all cores.
    dtype : {"float32", "float64"}
        Precision of the local step.
    moves_from : int or None
        Initial number of states, if it may change; None if it may not.  GPU kernels are compiled
        for more states than there are, so that a change is cheap.

    Examples
    --------
    >>> Compute(n_jobs=1).backend().n_threads
    1
    """

    device: str = "cpu"
    n_jobs: int | None = None
    dtype: str = "float32"
    moves_from: int | None = None

    def backend(self) -> LocalBackend:
        """Return the backend, or raise an error that says what is missing."""
        if self.device not in DEVICES:
            raise ValueError(f"device={self.device!r} is not one of {list(DEVICES)}")
        n_threads = resolve_jobs(self.n_jobs)
        if self.device != "cuda":
            return CpuBackend(KERNELS[self.device], n_threads, self.dtype)
        try:
            from sojourn.backends.cuda.backend import CudaBackend
        except ImportError as error:
            raise ImportError(
                f"device='cuda' needs PyTorch and Triton ({error.name} is not installed): "
                "pip install 'sojourn[gpu]'"
            ) from error
        return CudaBackend(n_threads, self.dtype, moves_from=self.moves_from)

    def on_worker(self) -> Compute:
        """Return the same with one thread: a worker runs several tasks at the same time."""
        return replace(self, n_jobs=self.n_jobs or 1)
