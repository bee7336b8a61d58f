"""The cores of this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from scipy.special import xlogy

from sojourn.backends.base import HostBackend
from sojourn.families import Family
from sojourn.inference.backend import Chunk
from sojourn.inference.local import expected_statistics, impossible, prepare, sum_log_base
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed
from sojourn.kernels.threads import Background
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches
from sojourn.transitions import Rows

_WORTH_A_THREAD = 2**13  # steps of a minibatch from which another thread pays for its start


@dataclass
class CpuBackend(HostBackend):
    """The local step on the cores of this machine.

    Attributes
    ----------
    kernel : module
        `sojourn.kernels.cpu`, or `sojourn.kernels.reference` in plain NumPy.
    n_threads : int
    dtype : str or None
        Precision of the potentials; None for that of the emission table.
    """

    kernel: ModuleType
    n_threads: int
    dtype: str | None = None
    _reader: _ReadAhead | None = field(default=None, init=False, repr=False)

    slow_launches = False
    exact = None

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
        reader = _ReadAhead(problem.family, source.batches(n_pass, start))
        if source.may_read_ahead and self.n_threads > 1:
            self._reader = reader
        try:
            yield from reader
        finally:
            self._reader = None

    def statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        batch: Iterable[Chunk],
        *,
        absences: bool = False,
        entropy: bool = False,
        shared: bool = False,
    ) -> BatchSums:
        """Compute the expected counts of chunks."""
        return expected_statistics(
            posterior,
            family,
            objective,
            batch,
            self,
            absences=absences,
            entropy=entropy,
            shared=shared,
        )

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
        return prepare(family, data)

    def host_sequences(self, chunk: Chunk) -> Sequences:
        """Return the sequences of a chunk."""
        sequences: Sequences = chunk.sequences
        return sequences

    def sized_for(self, n_states: int) -> CpuBackend:
        """Return the backend itself: one compiled kernel serves all numbers of states."""
        return self

    def transition_potentials(self, posterior: Posterior, objective: Objective) -> Rows:
        """Return the potentials of start and transitions, eq (1)."""
        concentrations = posterior.transitions.concentrations(posterior.counts)
        return objective.transition_potentials(concentrations)

    def forward_backward(
        self, chunk: Chunk, potentials: Potentials, index: Integers, *, absences: bool = False
    ) -> Smoothed:
        """Compute posterior expectations of every sequence of a chunk."""
        smoothed: Smoothed = self.kernel.forward_backward(
            potentials, index, chunk.sequences.offsets, absences=absences, n_threads=self.n_threads
        )
        # The kernel uses every thread, the sums after it one: time to prepare what comes next.
        if self._reader is not None and chunk.sequences.n_steps >= _WORTH_A_THREAD:
            self._reader.start_next()
        return smoothed

    def log_normalizers(self, chunk: Chunk, potentials: Potentials, index: Integers) -> Floats:
        """Compute log Z of every sequence of a chunk."""
        log_z: Floats = self.kernel.log_normalizers(
            potentials, index, chunk.sequences.offsets, n_threads=self.n_threads
        )
        return log_z

    def viterbi(
        self, chunk: Chunk, potentials: Potentials, index: Integers
    ) -> tuple[Floats, Integers]:
        """Find the best path of every sequence of a chunk."""
        found: tuple[Floats, Integers] = self.kernel.viterbi(
            potentials, index, chunk.sequences.offsets, n_threads=self.n_threads
        )
        return found

    def total(self, chunk: Chunk, log_normalizers: Any) -> Any:
        """Return Σ log Z; name a sequence that has no possible path in an error."""
        if not np.isfinite(log_normalizers).all():
            raise impossible(chunk.sequences, log_normalizers)
        return log_normalizers.sum()

    def log_potential(self, smoothed: Smoothed, potentials: Potentials, index: Integers) -> float:
        """Return E_q of the logarithm of the product of potentials along the path."""
        responsibilities = smoothed.responsibilities
        rows = potentials.emissions[:, : responsibilities.shape[1]]
        # A potential of zero has no responsibility: the clip only avoids 0 · log 0.
        logs = np.log(np.maximum(rows, np.finfo(rows.dtype).tiny))
        total = float(np.sum(responsibilities * logs[index], dtype=np.float64))
        if potentials.log_scale is not None:
            total += float(potentials.log_scale[index].sum(dtype=np.float64))
        total += float(xlogy(smoothed.start, potentials.start).sum())
        return total + float(xlogy(smoothed.transitions, potentials.transitions).sum())

    def log_base(self, family: Family, chunk: Chunk) -> float:
        """Return Σ log h(x) of a chunk."""
        return sum_log_base(family, chunk.sequences)

    def state_masses(self, smoothed: Smoothed) -> Floats:
        """Return the expected number of steps in each state."""
        return smoothed.start + smoothed.transitions.sum(axis=0)


class _ReadAhead:
    """The prepared minibatches of a pass; the next one in the background, when asked to begin."""

    def __init__(self, family: Family, batches: Iterator[Any]) -> None:
        self._family = family
        self._batches = batches
        self._next: Background | None = None

    def _make(self) -> Iterable[Chunk] | None:
        batch = next(self._batches, None)
        return None if batch is None else prepare(self._family, batch)

    def start_next(self) -> None:
        """Begin with the next minibatch in the background."""
        if self._next is None:
            self._next = Background(self._make)

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
                with suppress(Exception):  # training has ended for a reason of its own
                    self._next.result()
