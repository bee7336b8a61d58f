"""The local step: posterior expectations of a batch under the current posterior."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import xlogy

from sojourn.families import Family
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.interface import Integers, Potentials, Smoothed
from sojourn.kernels.overlap import shared_entropies
from sojourn.sequences import Sequences
from sojourn.transitions import Rows

CHUNK_STEPS = 2**16
"""Steps that are in memory as responsibilities at a time; a larger batch goes in several chunks."""

SHARED_STEPS = 2**13
"""About how many steps of a chunk tell the entropies that pairs of states share."""


class Place(Protocol):
    """Where the local step runs: an `Engine` in this process, or a cluster."""

    @property
    def n_threads(self) -> int:
        """Threads of this process that the step may use."""

    def prepare(self, family: Family, batch: Any) -> Any:
        """Do for a minibatch of the source all that can be done ahead of time."""

    def expected_statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        batch: Any,
        *,
        absences: bool = False,
        entropy: bool = False,
    ) -> BatchSums:
        """Compute what `expected_statistics` says of a prepared minibatch."""


@dataclass(frozen=True)
class Engine:
    """The local step in this process: how it is computed.

    Attributes
    ----------
    kernel : module
        `sojourn.kernels.cpu` or `sojourn.kernels.reference`.
    n_threads : int
    dtype : str or None
        Precision of the potentials; None for that of the emission table.
    meanwhile : callable, optional
        Called with the number of steps when a kernel is done and most threads have nothing to do.
    """

    kernel: ModuleType
    n_threads: int
    dtype: str | None = None
    meanwhile: Callable[[int], None] | None = None

    def prepare(self, family: Family, batch: Sequences | Iterable[Sequences]) -> Iterable[Chunk]:
        """Do all that can be done ahead of time; see `prepare`."""
        return prepare(family, batch)

    def expected_statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        batch: Iterable[Chunk],
        *,
        absences: bool = False,
        entropy: bool = False,
    ) -> BatchSums:
        """Run the local step here; see `expected_statistics`."""
        return expected_statistics(
            posterior, family, objective, batch, self, absences=absences, entropy=entropy
        )


class Chunk(NamedTuple):
    """A run of sequences that fits in memory with its responsibilities.

    Attributes
    ----------
    sequences : Sequences
    encoded : object
        What the family's `encode` made of the values.
    """

    sequences: Sequences
    encoded: Any


def prepare(family: Family, data: Sequences | Iterable[Sequences]) -> Iterable[Chunk]:
    """Cut validated data into chunks and encode them: all that can be done ahead of time.

    A single chunk is made at once; several are made one by one as they are used, and so are those
    of a batch that comes in pieces because it does not fit in memory.
    """
    pieces = [data] if isinstance(data, Sequences) else data
    chunks = (
        Chunk(chunk, family.encode(chunk))
        for piece in pieces
        for chunk in piece.chunks(CHUNK_STEPS)
    )
    fits = isinstance(data, Sequences) and data.n_steps <= CHUNK_STEPS
    return list(chunks) if fits else chunks


def expected_statistics(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    batch: Iterable[Chunk],
    engine: Engine,
    *,
    absences: bool = False,
    entropy: bool = False,
    shared: bool = False,
) -> BatchSums:
    """Compute E[C_0], E[C] and E[t] of a batch by forward-backward, eqs (1) and (2).

    Where asked for, also what the HDP, the bound and a merge of states need: `BatchSums` names it.

    Memory: the responsibilities of `CHUNK_STEPS` steps, or of the longest sequence.
    """
    potentials = objective.transition_potentials(
        posterior.transitions.concentrations(posterior.counts)
    )
    sums: BatchSums | None = None
    for (sequences, encoded), factors, index in chunk_potentials(
        posterior, family, batch, potentials, engine, collapsed=objective.collapsed
    ):
        smoothed = engine.kernel.forward_backward(
            factors, index, sequences.offsets, absences=absences, n_threads=engine.n_threads
        )
        if engine.meanwhile is not None:
            engine.meanwhile(sequences.n_steps)
        if not np.isfinite(smoothed.log_normalizers).all():
            bad = int(np.flatnonzero(~np.isfinite(smoothed.log_normalizers))[0])
            raise FloatingPointError(
                f"a sequence of {sequences.lengths[bad]} steps that begins with "
                f"{sequences[bad][0]!r} has no possible state path under the model"
            )
        part = BatchSums(
            smoothed.start,
            smoothed.transitions,
            family.sum_statistics(encoded, smoothed.responsibilities, n_threads=engine.n_threads),
            float(smoothed.log_normalizers.sum()),
            len(sequences),
            sequences.n_steps,
            smoothed.absences,
        )
        if entropy:
            part.entropy = part.log_normalizer - _log_potential(smoothed, factors, index)
            x = family.observations(sequences)
            part.log_base = float(family.log_base_measure(x).sum())
        if shared:
            every = max(1, sequences.n_steps // SHARED_STEPS)
            part.shared = every * shared_entropies(
                smoothed.responsibilities[::every], n_threads=engine.n_threads
            )
        if sums is None:
            sums = part
        else:
            sums += part
    assert sums is not None, "a batch has at least one sequence"
    return sums


def _log_potential(smoothed: Smoothed, factors: Potentials, index: Integers) -> float:
    """E_q of the logarithm of the product of potentials along the path."""
    responsibilities = smoothed.responsibilities
    rows = factors.emissions[:, : responsibilities.shape[1]]
    # A potential of zero has no responsibility: the clip only avoids 0 · log 0.
    logs = np.log(np.maximum(rows, np.finfo(rows.dtype).tiny))
    total = float(np.sum(responsibilities * logs[index], dtype=np.float64))
    if factors.log_scale is not None:
        total += float(factors.log_scale[index].sum(dtype=np.float64))
    total += float(xlogy(smoothed.start, factors.start).sum())
    return total + float(xlogy(smoothed.transitions, factors.transitions).sum())


def chunk_potentials(
    posterior: Posterior,
    family: Family,
    chunks: Iterable[Chunk],
    transitions: Rows,
    engine: Engine,
    *,
    collapsed: bool,
) -> Iterator[tuple[Chunk, Potentials, Integers]]:
    """Give every chunk its potentials, and the index of its steps into them."""
    dtype = np.dtype(engine.dtype or posterior.emissions.dtype)
    start, matrix = transitions.start.astype(dtype), transitions.transitions.astype(dtype)
    for chunk in chunks:
        rows = family.emission_rows(
            chunk.encoded,
            posterior.emissions,
            collapsed=collapsed,
            dtype=dtype,
            n_threads=engine.n_threads,
        )
        yield chunk, Potentials(start, matrix, rows.table, rows.log_scale), rows.index
