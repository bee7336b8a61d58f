"""The local step: posterior expectations of a batch under the current posterior."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import xlogy

from sojourn.families import Family
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed
from sojourn.kernels.overlap import shared_entropies
from sojourn.sequences import Sequences
from sojourn.transitions import Rows

CHUNK_STEPS = 2**16
"""Steps that are in memory as responsibilities at a time; a larger batch goes in several chunks."""

SHARED_STEPS = 2**11
"""About how many steps of a chunk tell the entropies that pairs of states share."""


class Place(Protocol):
    """Where the local step runs: an `Engine` in this process, or a cluster."""

    @property
    def n_threads(self) -> int:
        """Threads of this process that the step may use."""

    @property
    def device(self) -> Any:
        """Where the posterior's arrays are tensors; None for arrays in memory."""

    @property
    def recorder(self) -> Any:
        """What replays a step on a device; None where steps are not recorded."""

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
    kernel : module, or what has its functions
        `sojourn.kernels.cpu`, `sojourn.kernels.reference` or `sojourn.kernels.cuda`.
    n_threads : int
    dtype : str or None
        Precision of the potentials; None for that of the emission table.
    meanwhile : callable, optional
        Called with the number of steps when a kernel is done and most threads have nothing to do.
    device : torch.device, optional
        Where arrays are tensors.
    failures : tensor, optional
        There, the number of sequences without a possible path is collected here.
    recorder : Recorder, optional
        There, what replays a step.
    """

    kernel: Any
    n_threads: int
    dtype: str | None = None
    meanwhile: Callable[[int], None] | None = None
    device: Any = None
    failures: Any = None
    recorder: Any = None

    def prepare(self, family: Family, batch: Sequences | Iterable[Sequences]) -> Iterable[Chunk]:
        """Do all that can be done ahead of time; see `prepare`."""
        return prepare(family, batch)

    def chunks(self, family: Family, data: Sequences, n_states: int) -> Iterable[Chunk]:
        """Cut validated data into chunks of a model of so many states, where they are needed."""
        if self.device is None:
            return prepare(family, data)
        from sojourn.backends.cuda import chunks_on_device

        return chunks_on_device(family, data, n_states, self.device)

    def for_states(self, n_states: int) -> Engine:
        """Return the engine for models of at most so many states, of which many are tried.

        On a device they share what is compiled for that number.
        """
        if self.device is None:
            return self
        return replace(self, kernel=self.kernel.at_least(n_states))

    def check(self) -> None:
        """Wait for a device, and refuse to go on if a sequence had no possible path there."""
        if self.device is not None:
            from sojourn.backends.cuda import check_failures

            check_failures(self.failures)

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
    sequences : Sequences, or DeviceBatch on a device
    encoded : object
        What the family's `encode` made of the values.
    """

    sequences: Any
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
    potentials = transition_potentials(posterior, objective, engine)
    options: dict[str, Any] = {"absences": absences, "n_threads": engine.n_threads}
    sums: BatchSums | None = None
    for (sequences, encoded), factors, index in chunk_potentials(
        posterior, family, batch, potentials, engine, collapsed=objective.collapsed
    ):
        if engine.device is not None:
            options["order"] = sequences.order
        smoothed = engine.kernel.forward_backward(factors, index, sequences.offsets, **options)
        if engine.meanwhile is not None:
            engine.meanwhile(sequences.n_steps)
        if engine.device is not None:
            # Failures are looked at when the host waits for the device anyway.
            log_z = engine.kernel.collect_failures(smoothed.log_normalizers, engine.failures)
        elif np.isfinite(smoothed.log_normalizers).all():
            log_z = smoothed.log_normalizers.sum()
        else:
            raise _impossible(sequences, smoothed.log_normalizers)
        part = BatchSums(
            smoothed.start,
            smoothed.transitions,
            family.sum_statistics(encoded, smoothed.responsibilities, n_threads=engine.n_threads),
            log_z,
            len(sequences),
            sequences.n_steps,
            smoothed.absences,
        )
        if getattr(encoded, "is_complete", False):
            # Every step has a symbol, and was come to from a state or is a first one.
            part.emissions.totals = engine.kernel.state_masses(*smoothed[1:3])
        if entropy:
            part.entropy = part.log_normalizer - _log_potential(smoothed, factors, index)
            if engine.device is not None:
                part.log_base = sequences.log_base
            else:
                part.log_base = sum_log_base(family, sequences)
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


def sum_log_base(family: Family, sequences: Sequences) -> float:
    """Return Σ log h(x)."""
    return float(family.log_base_measure(family.observations(sequences)).sum())


def _impossible(sequences: Sequences, log_normalizers: Floats) -> FloatingPointError:
    bad = int(np.flatnonzero(~np.isfinite(log_normalizers))[0])
    return FloatingPointError(
        f"a sequence of {sequences.lengths[bad]} steps that begins with "
        f"{sequences[bad][0]!r} has no possible state path under the model"
    )


def transition_potentials(posterior: Posterior, objective: Objective, engine: Engine) -> Rows:
    """Return the potentials of start and transitions; on a device eq (1) is one kernel."""
    if engine.device is not None and objective.collapsed:
        prior, total = posterior.transitions.prior_counts()
        dtype = engine.dtype or posterior.emissions.dtype
        start, matrices = engine.kernel.row_potentials(*prior, total, posterior.counts, dtype)
        return Rows(start, matrices[0])
    return objective.transition_potentials(posterior.transitions.concentrations(posterior.counts))


def _log_potential(smoothed: Smoothed, factors: Potentials, index: Integers) -> Any:
    """E_q of the logarithm of the product of potentials along the path; on a device a tensor."""
    if is_tensor(index):
        from sojourn.kernels import cuda as gpu

        return gpu.log_potential(smoothed, factors, index)
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
    start, matrix = (namespace(part).astype(part, dtype) for part in transitions)
    for chunk in chunks:
        rows = family.emission_rows(
            chunk.encoded,
            posterior.emissions,
            collapsed=collapsed,
            dtype=dtype,
            n_threads=engine.n_threads,
        )
        yield chunk, Potentials(start, matrix, rows.table, rows.log_scale), rows.index
