"""The GPU backend, which keeps data, minibatches and steps on the device.

The host only launches work.  It reads numbers from the device in two places: the sizes of a window
of many minibatches, and the end of a pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, cast

import numpy as np
import torch

from sojourn.backends.cpu import CpuBackend
from sojourn.backends.cuda import graphs
from sojourn.backends.cuda.feed import Feed
from sojourn.backends.cuda.windows import WindowBatch, chunks_on_device, uploaded
from sojourn.backends.local import KernelPieces
from sojourn.families import Family
from sojourn.families.table import DecayedTable
from sojourn.families.tensors import TensorTable
from sojourn.inference.backend import Chunk
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.kernels import cuda, reference
from sojourn.kernels.arrays import to_device
from sojourn.kernels.interface import Smoothed
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches
from sojourn.transitions import Rows

Tensor = Any


def find_device() -> Any:
    """Return the device to compute on, or raise an error that says why there is none."""
    if cuda.INTERPRETED:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ValueError(
            f"device='cuda', but PyTorch {torch.__version__} finds no CUDA device here: use "
            "device='cpu', or install a build of PyTorch for the GPU of this machine"
        )
    return torch.device("cuda", torch.cuda.current_device())


class CudaBackend(KernelPieces):
    """The local step and the blend on a GPU.

    In training, data that fit are copied to the device once, minibatches are prepared in windows,
    and steps are recorded as CUDA graphs; see `Feed` and `Recorder`.

    Parameters
    ----------
    n_threads : int
        Number of threads for computations on the host.
    dtype : str
        Precision of the potentials.
    moves_from : int, optional
        Initial number of states, if it may change.
    """

    slow_launches = True

    def __init__(self, n_threads: int, dtype: str, *, moves_from: int | None = None) -> None:
        self.n_threads = n_threads
        self.dtype = dtype
        self.device = find_device()
        cuda.begin()
        self.kernel: Any = cuda if moves_from is None else cuda.PaddedKernel(moves_from)
        self._may_move = moves_from is not None
        # Sequences without a possible path: counted on the device, read when the host waits anyway.
        self._failures = torch.zeros((), dtype=torch.int64, device=self.device)
        # log Z of a minibatch, if the blend that follows is to sum them, in a launch that it makes.
        self._logs: cuda.LogNormalizers | None = None
        self._sums_later = False
        self._feed: Feed | None = None
        self._recorder: graphs.Recorder | None = None

    # ---- training -------------------------------------------------------------------------

    def place(self, posterior: Posterior) -> Posterior:
        """Return the posterior on the device; itself if it is there already."""
        if not isinstance(posterior.emissions, DecayedTable):
            return posterior
        table = cast(Any, TensorTable.of(posterior.emissions, self.device))
        return posterior.converted(
            lambda part: to_device(np.asarray(part, dtype=np.float64), self.device), table
        )

    def batches(
        self,
        problem: Problem,
        source: Minibatches,
        n_states: int,
        n_pass: int,
        start: int,
        n_more: int,
    ) -> Iterator[Iterable[Chunk]]:
        """Yield the minibatches of a pass on the device."""
        feed = self._feed_of(problem, source)
        if self._recorder is None and graphs.can_record(self.device):
            is_able = cuda.is_narrow(n_states, self.dtype)
            self._recorder = graphs.Recorder(problem, is_able=is_able, may_move=self._may_move)
        yield from feed.batches(n_states, n_pass, start, n_more)
        coming = feed.coming
        if self._recorder is not None and coming is not None:
            # Otherwise the device would wait for the host at the beginning of the next pass.
            self._recorder.prepare(coming)

    def pieces(
        self, problem: Problem, source: Minibatches, n_states: int, n_pass: int
    ) -> Iterator[Iterable[Chunk]]:
        """Yield all the data of a pass on the device, in pieces that keep it busy."""
        return self._feed_of(problem, source).pieces(n_states, n_pass)

    def _feed_of(self, problem: Problem, source: Minibatches) -> Feed:
        if self._feed is None or self._feed.source is not source:
            self._feed = Feed(problem.family, source, self.device)
        return self._feed

    def step(
        self,
        problem: Problem,
        posterior: Posterior,
        batch: Any,
        *,
        rates: tuple[float, float] | None = None,
        squares: bool = False,
        entropy: bool = False,
    ) -> BatchSums:
        """Run the local step and blend its sums into the expected counts; replay it if recorded."""

        def advance(
            posterior: Posterior, chunks: Iterable[Chunk], rates: Callable[[BatchSums], Any]
        ) -> BatchSums:
            # Of several chunks the sums are added up before.
            self._sums_later = isinstance(chunks, list) and len(chunks) == 1 and not entropy
            try:
                sums = self.statistics(
                    posterior,
                    problem.family,
                    problem.objective,
                    chunks,
                    squares=squares,
                    entropy=entropy,
                )
            finally:
                self._sums_later = False
            keep, weight = rates(sums)
            start = posterior.counts.start
            self._blend(posterior, sums, keep, weight)
            if problem.tiled is not None:
                keep, weight = problem.start_rates(keep, sums.n_starts)
                own = keep * start + weight * sums.start
                posterior.counts = posterior.counts._replace(start=own)
            return sums

        recorder = None if posterior.durations is not None else self._recorder
        if recorder is not None and rates is None and not entropy and recorder.takes(batch):
            return recorder.replay(advance, posterior, batch)
        n_update = posterior.n_updates + 1

        def now(sums: BatchSums) -> tuple[float, float]:
            return rates or problem.rates(n_update, sums.n_sequences, sums.n_steps)

        is_one = isinstance(batch, WindowBatch) and batch.is_plain
        return advance(posterior, list(batch) if is_one else batch, now)

    def _blend(self, posterior: Posterior, sums: BatchSums, keep: Any, weight: Any) -> None:
        """Blend sums into the expected counts, eq (3)."""
        own = (sums.start, sums.transitions)
        table = cast(Any, posterior.emissions)
        logs, self._logs = self._logs, None
        blended = table.blend_with(
            posterior.counts, own, sums.emissions, keep=keep, weight=weight, logs=logs
        )
        posterior.counts = Rows(*blended)
        posterior.blend_durations(sums, keep, weight)

    def updated(self, transitions: Any, total_sequences: int) -> Any:
        """Return a prior on transitions after its update, which is recorded in training."""
        if self._recorder is None:
            return transitions.updated(total_sequences)
        return self._recorder.update(transitions, total_sequences)

    def finish_pass(self) -> None:
        """Wait for the device, and raise an error if a sequence had no possible path."""
        n_failures = int(self._failures)
        if n_failures:
            self._failures.zero_()
            raise FloatingPointError(
                f"{n_failures} times a sequence had no possible state path in the model's "
                "precision, and was left out: use dtype='float64', or device='cpu', which names it"
            )

    def resized(self) -> CudaBackend:
        """Discard recorded steps, which are for the old number of states."""
        self._recorder = None
        return self

    @contextmanager
    def running(self) -> Iterator[None]:
        """Raise errors that say what to change when GPU memory is exhausted."""
        try:
            yield
        except torch.cuda.OutOfMemoryError as error:
            free, total = torch.cuda.mem_get_info()
            raise MemoryError(
                f"the GPU has too little memory ({free / 2**30:.1f} of {total / 2**30:.1f} GiB "
                "free): use a smaller batch_size, fewer states, dtype='float32', or device='cpu'"
            ) from error

    # ---- parts of the local step ------------------------------------------------------------

    def chunks(self, family: Family, data: Sequences, n_states: int) -> Iterable[Chunk]:
        """Cut sequences into chunks that fit, and place each on the device."""
        return chunks_on_device(family, data, n_states, self.device)

    def as_chunk(self, family: Family, data: Sequences) -> Chunk:
        """Place sequences on the device as one chunk."""
        return uploaded(family, [data], self.device).chunk(0)

    def host_sequences(self, chunk: Chunk) -> Sequences:
        """Fetch the sequences of a chunk."""
        sequences: Sequences = chunk.sequences.host()
        return sequences

    def host_statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        chunks: Iterable[Chunk],
        **wanted: bool,
    ) -> BatchSums:
        """Run the local step for a posterior and chunks in memory, and return sums in memory."""
        posterior = self.place(posterior)
        n_states = posterior.emissions.n_states
        placed = (
            part for chunk in chunks for part in self.chunks(family, chunk.sequences, n_states)
        )
        sums = self.statistics(posterior, family, objective, placed, **wanted).fetched()
        self.finish_pass()
        return sums

    def sized_for(self, n_states: int) -> CudaBackend:
        """Return the backend with smaller models padded to this number of states.

        All of them then use the same compiled kernels.
        """
        sized = copy(self)
        sized.kernel = self.kernel.at_least(n_states)
        sized._recorder = None
        return sized

    @property
    def exact(self) -> CpuBackend:
        """Kernel on the host, in logarithms, for sequences that underflow here."""
        return CpuBackend(reference, self.n_threads, self.dtype)

    def forward_backward(
        self,
        chunk: Chunk,
        potentials: Any,
        index: Any,
        *,
        squares: int = False,
        summed: bool = False,
    ) -> Smoothed:
        """Compute posterior expectations; those of steps that belong to no sequence are zero."""
        found = super().forward_backward(chunk, potentials, index, squares=squares)
        if not chunk.sequences.is_padded:
            return found
        step = torch.arange(len(index), device=index.device)[:, None]
        used = step < chunk.sequences.offsets[-1]
        return found._replace(responsibilities=torch.where(used, found.responsibilities, 0.0))

    def _order(self, chunk: Chunk) -> Tensor:
        return chunk.sequences.order

    def total(self, chunk: Chunk, log_normalizers: Tensor) -> Tensor:
        """Return Σ log Z without sequences that have no possible path, which are counted."""
        total = torch.empty((), dtype=torch.float64, device=log_normalizers.device)
        logs = cuda.LogNormalizers(log_normalizers, self._failures, total)
        if self._sums_later:
            self._logs = logs
        else:
            cuda.collect_failures(logs)
        return total

    def log_base(self, family: Family, chunk: Chunk) -> float:
        """Return Σ log h(x) of a chunk, which the host computes once."""
        log_base: float = chunk.sequences.log_base
        return log_base
