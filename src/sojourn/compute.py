"""Where predictions are computed: device, threads and precision."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sojourn import kernels
from sojourn.backends.accelerator import gpu_engine
from sojourn.inference import Engine
from sojourn.kernels.threads import resolve_jobs

KERNELS = {"cpu": kernels.cpu, "reference": kernels.reference}
DEVICES = ("cpu", "cuda", "reference")


@dataclass(frozen=True)
class Compute:
    """Where numbers are computed, and how precisely.  Not a part of what was learned.

    Attributes
    ----------
    device : {"cpu", "cuda", "reference"}
        The compiled kernels, those of the GPU, or plain NumPy.
    n_jobs : int or None
        Threads; None and -1 for all cores.
    dtype : {"float32", "float64"}
        Precision of the local step.
    moves_from : int or None
        Number of states that a model begins with whose states may change; None where they may not.
        GPU kernels are compiled for more states than there are, so that a change costs little.

    Examples
    --------
    >>> Compute(n_jobs=1).engine().n_threads
    1
    """

    device: str = "cpu"
    n_jobs: int | None = None
    dtype: str = "float32"
    moves_from: int | None = None

    def engine(self) -> Engine:
        """Return the engine that computes there, or say what is missing for it."""
        check_device(self.device)
        n_threads = resolve_jobs(self.n_jobs)
        if self.device == "cuda":
            return gpu_engine(n_threads, self.dtype, moves_from=self.moves_from)
        return Engine(KERNELS[self.device], n_threads, self.dtype)

    def on_worker(self) -> Compute:
        """Return the same with one thread per task: a worker runs several tasks at once."""
        return replace(self, n_jobs=self.n_jobs or 1)


def check_device(device: str) -> None:
    """Refuse a device that does not exist."""
    if device not in DEVICES:
        raise ValueError(f"device={device!r} is not one of {list(DEVICES)}")
