"""The CPU backend."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sojourn.backends.base import HostBackend
from sojourn.backends.local import KernelPieces
from sojourn.families import Family
from sojourn.inference.backend import Chunk
from sojourn.inference.local import impossible, prepare, sum_log_base
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.kernels import reference
from sojourn.kernels.interface import NARROW, Floats, Integers, Kernel, Potentials, Smoothed
from sojourn.kernels.ragged import longest_first
from sojourn.kernels.threads import Alongside
from sojourn.memory import keep_freed_memory
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches
from sojourn.transitions import Rows

_FLOOR = 1e-300  # of emission potentials, where a sequence would have no possible path without
_WORTH_A_THREAD = 2**13  # steps of a minibatch that make another thread worthwhile


@dataclass
class CpuBackend(KernelPieces, HostBackend):
    """The local step on the CPU of this machine.

    Attributes
    ----------
    kernel : Kernel
        `sojourn.kernels.cpu`, or `sojourn.kernels.reference` in plain NumPy.
    n_threads : int
    dtype : str or None
        Precision of the potentials; None for that of the emission table.
    floor : float
        Least emission potential beside the largest of a step: a density is never zero, but may
        underflow, where only few transitions are possible.
    """

    kernel: Kernel
    n_threads: int
    dtype: str | None = None
    floor: float = 0.0
    _reader: _ReadAhead | None = field(default=None, init=False, repr=False)
    _whole: _Whole = field(default_factory=lambda: _Whole(), init=False, repr=False)

    slow_launches = False

    def __post_init__(self) -> None:
        """Keep memory between minibatches."""
        keep_freed_memory()

    def batches(
        self,
        problem: Problem,
        source: Minibatches,
        n_states: int,
        n_pass: int,
        start: int,
        n_more: int,
    ) -> Iterator[Iterable[Chunk]]:
        """Yield the minibatches of a pass as chunks, the next one prepared in the background."""
        reader = _ReadAhead(problem.family, source.batches(n_pass, start), self._whole, n_states)
        if source.may_read_ahead and self.n_threads > 1:
            self._reader = reader
        try:
            yield from reader
        finally:
            self._reader = None

    def host_statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        chunks: Iterable[Chunk],
        **wanted: bool,
    ) -> BatchSums:
        """Compute the expected counts of chunks."""
        return self.statistics(posterior, family, objective, chunks, **wanted)

    def chunks(self, family: Family, data: Sequences, n_states: int) -> Iterable[Chunk]:
        """Cut validated data into encoded chunks."""
        return prepare(family, data, n_states)

    def as_chunk(self, family: Family, data: Sequences) -> Chunk:
        """Encode validated data as one chunk."""
        return Chunk(data, family.encode(data))

    def host_sequences(self, chunk: Chunk) -> Sequences:
        """Return the sequences of a chunk."""
        sequences: Sequences = chunk.sequences
        return sequences

    @property
    def reads_counts(self) -> bool:
        """Whether `forward_backward` takes emission potentials as counts."""
        return self.kernel.reads_counts and not self.floor

    def forward_backward(
        self,
        chunk: Chunk,
        potentials: Potentials,
        index: Integers,
        *,
        squares: int = False,
        summed: bool = False,
    ) -> Smoothed:
        """Compute posterior expectations of every sequence of a chunk."""
        self._read_ahead(chunk)
        potentials = self._floored(potentials)
        return super().forward_backward(chunk, potentials, index, squares=squares, summed=summed)

    def _read_ahead(self, chunk: Chunk) -> None:
        if self._reader is not None and chunk.sequences.n_steps >= _WORTH_A_THREAD:
            self._reader.start_next()

    def sweep(
        self, chunk: Chunk, transitions: Rows, numbers: Any, *, squares: int = False
    ) -> tuple[Smoothed, Floats] | None:
        """Compute potentials, expectations and sums of numbers at once; None if only apart."""
        compiled = getattr(self.kernel, "sweep", None)
        if compiled is None or self.dtype != "float32" or self.floor:
            return None
        self._read_ahead(chunk)
        offsets = chunk.sequences.offsets
        found: tuple[Smoothed, Floats] | None = compiled(
            *transitions, numbers, offsets, squares=squares, n_threads=self.n_threads
        )
        return found

    def log_normalizers(self, chunk: Chunk, potentials: Potentials, index: Integers) -> Floats:
        """Compute log Z of every sequence of a chunk."""
        return super().log_normalizers(chunk, self._floored(potentials), index)

    def viterbi(
        self, chunk: Chunk, potentials: Potentials, index: Integers
    ) -> tuple[Floats, Integers]:
        """Find the best path of every sequence of a chunk."""
        return super().viterbi(chunk, self._floored(potentials), index)

    def _floored(self, potentials: Potentials) -> Potentials:
        if self.floor == 0.0:
            return potentials
        return potentials._replace(emissions=np.maximum(potentials.emissions, self.floor))

    def exact_for(self, smoothed: Smoothed) -> CpuBackend | None:
        """Return what computes a chunk again in which a sequence underflowed.

        In double precision at first, and then in logarithms.
        """
        if self.floor or _are_finite(smoothed.log_normalizers, smoothed.log_normalizers.sum()):
            return None
        if smoothed.responsibilities.dtype == np.float32:
            return CpuBackend(self.kernel, self.n_threads, "float64")
        return self.exact

    @property
    def exact(self) -> CpuBackend | None:
        """The kernel in logarithms, for sequences that underflow here."""
        return None if self.floor else CpuBackend(reference, self.n_threads, "float64", _FLOOR)

    def total(self, chunk: Chunk, log_normalizers: Any) -> Any:
        """Return Σ log Z; raise an error for a sequence without a possible path."""
        total = log_normalizers.sum()
        if not _are_finite(log_normalizers, total):
            raise impossible(chunk.sequences, log_normalizers)
        return total

    def log_base(self, family: Family, chunk: Chunk) -> float:
        """Return Σ log h(x) of a chunk."""
        return sum_log_base(family, chunk.sequences)


def _are_finite(values: Floats, total: Any) -> bool:
    """Whether numbers are finite, given their sum, which mostly tells."""
    return math.isfinite(total) or bool(np.isfinite(values).all())


class _Whole:
    """The last minibatch, which is the same in every pass where it is all of the data."""

    def __init__(self) -> None:
        self._last: tuple[Family, Any, list[Chunk]] | None = None

    def prepared(self, family: Family, batch: Any, n_states: int) -> Iterable[Chunk]:
        """Cut a minibatch into encoded chunks, or return those of the same one before.

        With many states a single chunk knows the order of its sequences, which the kernel needs.
        """
        last = self._last
        if last is not None and last[0] is family and last[1] is batch:
            return last[2]
        chunks = prepare(family, batch, n_states)
        if not isinstance(chunks, list):
            self._last = None
            return chunks
        if n_states > NARROW:
            chunks = [one._replace(order=longest_first(one.sequences.offsets)) for one in chunks]
        self._last = (family, batch, chunks)
        return chunks


class _ReadAhead:
    """Iterator of prepared minibatches; on request, the next one is prepared in the background."""

    def __init__(
        self, family: Family, batches: Iterator[Any], whole: _Whole, n_states: int
    ) -> None:
        self._family = family
        self._batches = batches
        self._whole = whole
        self._n_states = n_states
        self._next: Alongside | None = None

    def _make(self) -> Iterable[Chunk] | None:
        batch = next(self._batches, None)
        if batch is None:
            return None
        return self._whole.prepared(self._family, batch, self._n_states)

    def start_next(self) -> None:
        """Let a thread prepare the next minibatch before it helps the kernel."""
        if self._next is None:
            self._next = Alongside(self._make)

    def __iter__(self) -> Iterator[Iterable[Chunk]]:
        try:
            while True:
                coming, self._next = self._next, None
                chunks = self._make() if coming is None else coming.result()
                if chunks is None:
                    return
                yield chunks
        finally:
            if self._next is not None:
                with suppress(Exception):  # training has ended for another reason
                    self._next.discard()
