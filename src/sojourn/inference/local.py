"""The local step: posterior expectations of a batch under the current posterior."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np

from sojourn.families import Family
from sojourn.families.base import EmissionRows
from sojourn.families.table import RowSums
from sojourn.inference.backend import Chunk, LocalPieces
from sojourn.inference.known import masked, of_equal_weight, refuse_contradictions
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.statistics import BatchSums, Uncertainty
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import SQUARE_EVERY, Floats, Integers, Potentials, Smoothed
from sojourn.kernels.overlap import shared_entropies
from sojourn.kernels.updates import state_masses
from sojourn.sequences import Sequences
from sojourn.sources.base import pieces_of
from sojourn.transitions import Rows

CHUNK_STEPS = 2**16
"""Maximum number of steps per chunk, whose responsibilities are in memory at the same time."""


SWEPT_NUMBERS = 2**22
"""Steps times states of a chunk whose responsibilities need not be in memory, at most."""

SWEPT_STEPS = 2**20
"""Steps of such a chunk, at most."""


def prepare(
    family: Family, data: Sequences | Iterable[Sequences], n_states: int | None = None
) -> Iterable[Chunk]:
    """Cut validated data into chunks and encode them, which can be done ahead of time.

    Chunks are larger where `n_states` is given, and sums of numbers need one sweep.

    A single chunk is encoded at once; several chunks, and those of a batch that comes in pieces
    because it does not fit in memory, are encoded one by one as they are used.
    """
    n_steps = CHUNK_STEPS
    if n_states is not None and family.sweeps:
        n_steps = max(n_steps, min(SWEPT_STEPS, SWEPT_NUMBERS // n_states))
    chunks = (
        Chunk(chunk, family.encode(chunk))
        for piece in pieces_of(data)
        for part in of_equal_weight(piece)
        for chunk in part.chunks(n_steps)
    )
    fits = isinstance(data, Sequences) and data.n_steps <= n_steps
    return list(chunks) if fits else chunks


def expected_statistics(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    chunks: Iterable[Chunk],
    backend: LocalPieces,
    *,
    squares: bool = False,
    entropy: bool = False,
    shared: int = 0,
) -> BatchSums:
    """Compute E[C_0], E[C] and E[t] of a batch by forward-backward, eqs (1) and (2).

    On request, also the sums that the HDP, the bound and merges need; see `BatchSums`.  All
    sequences of a chunk have the same weight, and its sums are multiplied by that.  Entropies that
    pairs of states share come from one step in `shared`.

    Memory: the responsibilities of one chunk, or of the longest sequence.
    """
    potentials = backend.transition_potentials(posterior, objective)
    sums: BatchSums | None = None
    for chunk in chunks:
        part = None
        if not (entropy or shared):
            part = _swept(posterior, family, objective, chunk, potentials, backend, squares=squares)
        if part is None:
            part = _apart(
                posterior,
                family,
                objective,
                chunk,
                potentials,
                backend,
                squares=squares,
                entropy=entropy,
                shared=shared,
            )
        if chunk.sequences.weights is not None:
            part = part.scaled(float(chunk.sequences.weights[0]))
        sums = part if sums is None else sums.__iadd__(part)
    assert sums is not None, "a batch has at least one sequence"
    return sums


def _swept(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    chunk: Chunk,
    transitions: Rows,
    backend: LocalPieces,
    *,
    squares: bool,
) -> BatchSums | None:
    """Compute the sums of a chunk of numbers in one sweep; None where that is not possible."""
    sequences, collapsed = chunk.sequences, objective.collapsed
    if sequences.labels is not None or sequences.counted is not None:
        return None
    if posterior.duration_potentials(collapsed=collapsed) is not None:
        return None
    numbers = family.numbers(chunk.encoded, posterior.emissions, collapsed=collapsed)
    if numbers is None:
        return None
    found = backend.sweep(chunk, transitions, numbers, squares=SQUARE_EVERY if squares else 0)
    if found is None:
        return None
    smoothed, products = found
    return BatchSums(
        smoothed.start,
        smoothed.transitions,
        RowSums(None, family.of_products(products), family.n_statistics),
        backend.total(chunk, smoothed.log_normalizers),
        len(sequences),
        sequences.n_counted,
        smoothed.squares,
        sequences.n_starts,
    )


def _apart(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    chunk: Chunk,
    transitions: Rows,
    backend: LocalPieces,
    *,
    squares: bool,
    entropy: bool,
    shared: int,
) -> BatchSums:
    """Compute the sums of a chunk: potentials, forward-backward and statistics."""
    collapsed = objective.collapsed
    sequences = chunk.sequences
    wanted = 1 if entropy else SQUARE_EVERY if squares else 0  # the bound compares models
    # Labels give rows of their own to some steps, and what follows needs single steps.
    summed = family.sums_rows and sequences.labels is None and not (entropy or shared)
    ((_, factors, index),) = chunk_potentials(
        posterior,
        family,
        [chunk],
        transitions,
        backend,
        collapsed=collapsed,
        from_counts=summed and sequences.counted is None and backend.reads_counts,
    )
    smoothed = backend.forward_backward(chunk, factors, index, squares=wanted, summed=summed)
    exact = backend.exact_for(smoothed)
    if exact is not None:
        smoothed, factors, index = _in_full(
            posterior, family, objective, chunk, smoothed, exact, squares=wanted
        )
    log_z = backend.total(chunk, smoothed.log_normalizers)
    whole = with_steps_within(smoothed)
    emissions, local = emission_sums(
        posterior, family, objective, chunk, whole, backend, bound=entropy
    )
    part = BatchSums(
        *whole[1:3],  # start and transitions
        emissions,
        log_z,
        len(sequences),
        sequences.n_counted,
        smoothed.squares if squares else None,
        sequences.n_starts,
        durations=smoothed.durations,
    )
    if entropy:
        # The messages at the edges of tiles cancel in the sum over all of them.
        along = backend.log_potential(chunk, smoothed, factors, index)
        part.entropy, part.log_base = log_z - along, backend.log_base(family, chunk) + local
        rows = EmissionRows(factors.emissions, factors.log_scale, index)
        part.uncertainty = _uncertainty(posterior, family, chunk, rows, smoothed, backend)
    if shared:
        every = smoothed.responsibilities
        some = every[shared // 2 % len(every) :: shared]
        of_some = shared_entropies(some, n_threads=backend.n_threads)
        part.shared = len(every) / len(some) * of_some
    return part


def emission_sums(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    chunk: Chunk,
    smoothed: Smoothed,
    backend: LocalPieces,
    *,
    bound: bool = False,
) -> tuple[RowSums, Any]:
    """Return the sums of a chunk's statistics, and what unknowns of steps add: `sum_given`."""
    if smoothed.row_sums is not None:
        rows = family.rows_needed(chunk.encoded)
        # One row more is that of missing symbols.
        n_rows = family.n_statistics if rows is None else len(rows)
        sums = smoothed.row_sums
        first = sums[:n_rows] if isinstance(sums, np.ndarray) else sums.first(n_rows)
        return RowSums(rows, first, family.n_statistics), 0.0
    return family.sum_given(
        chunk.encoded,
        smoothed.responsibilities,
        posterior.emissions,
        collapsed=objective.collapsed,
        masses=partial(backend.state_masses, smoothed.start, smoothed.transitions),
        n_threads=backend.n_threads,
        bound=bound,
    )


def with_steps_within(smoothed: Smoothed) -> Smoothed:
    """Return expectations with the steps within states that last on the diagonal, eq (62)."""
    if smoothed.durations is None:
        return smoothed
    _, stays, advances = smoothed.durations
    transitions = smoothed.transitions
    within = stays + advances - transitions.sum(axis=1)
    eye = namespace(transitions).eye(len(stays), like=transitions)
    return smoothed._replace(transitions=transitions + within[:, None] * eye)


def _in_full(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    chunk: Chunk,
    before: Smoothed,
    exact: LocalPieces,
    *,
    squares: int,
) -> tuple[Smoothed, Potentials, Integers]:
    """Compute a chunk again in which a sequence underflowed, by a backend that is more exact."""
    # In the end it gives every state a chance, also those that labels forbid.
    refuse_contradictions(chunk.sequences, posterior.transitions.constraints, first=None)
    transitions = exact.transition_potentials(posterior, objective)
    collapsed = objective.collapsed
    (_, factors, index), *_ = chunk_potentials(
        posterior, family, [chunk], transitions, exact, collapsed=collapsed
    )
    found = exact.forward_backward(chunk, factors, index, squares=squares)
    further = exact.exact_for(found)
    if further is not None:
        return _in_full(posterior, family, objective, chunk, before, further, squares=squares)
    dtype = before.responsibilities.dtype
    return found._replace(responsibilities=found.responsibilities.astype(dtype)), factors, index


def _uncertainty(
    posterior: Posterior,
    family: Family,
    chunk: Chunk,
    rows: EmissionRows,
    smoothed: Smoothed,
    backend: LocalPieces,
) -> Uncertainty:
    """Return how far the counts of a chunk may be from their expectations, eq (27)."""
    assert smoothed.squares is not None
    return Uncertainty(
        smoothed.squares,
        family.uncertainty(
            chunk.encoded,
            smoothed.responsibilities,
            rows,
            posterior.emissions,
            state_masses(*posterior.counts),
            n_threads=backend.n_threads,
        ),
    )


def sum_log_base(family: Family, sequences: Sequences) -> float:
    """Return Σ log h(x) of the steps that count."""
    each = family.log_base_measure(family.observations(sequences))
    return float(each[sequences.counted_steps].sum())


def impossible(sequences: Sequences, log_normalizers: Floats) -> FloatingPointError:
    """Return the error for a sequence without a possible path."""
    bad = int(np.flatnonzero(~np.isfinite(log_normalizers))[0])
    return FloatingPointError(
        f"a sequence of {sequences.lengths[bad]} steps that starts with "
        f"{sequences[bad][0]!r} has no possible state path under the model"
    )


def chunk_potentials(
    posterior: Posterior,
    family: Family,
    chunks: Iterable[Chunk],
    transitions: Rows,
    backend: LocalPieces,
    *,
    collapsed: bool,
    from_counts: bool = False,
) -> Iterator[tuple[Chunk, Potentials, Integers]]:
    """Yield every chunk with its potentials, and the index of its steps into them.

    Those `from_counts` are left to the kernel where they can be.
    """
    dtype = np.dtype(backend.dtype or posterior.emissions.dtype)
    from_counts = from_counts and collapsed and dtype == posterior.emissions.dtype
    start, matrix = (namespace(part).astype(part, dtype) for part in transitions)
    durations = posterior.duration_potentials(collapsed=collapsed)
    for chunk in chunks:
        rows = family.count_rows(chunk.encoded, posterior.emissions) if from_counts else None
        if rows is None:
            rows = family.emission_rows(
                chunk.encoded,
                posterior.emissions,
                collapsed=collapsed,
                dtype=dtype,
                n_threads=backend.n_threads,
            )
        if chunk.sequences.labels is not None:
            rows = masked(
                rows,
                chunk.sequences.labels,
                chunk.sequences,
                posterior,
                family,
                collapsed=collapsed,
                n_threads=backend.n_threads,
            )
        potentials = Potentials(start, matrix, rows.table, rows.log_scale, durations)
        yield chunk, potentials, rows.index
