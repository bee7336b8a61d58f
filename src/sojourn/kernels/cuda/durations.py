"""States that last, on a GPU: a program per sequence, with the copies of a step as a tile.

A model whose states or copies are too many for the registers of a program is computed as one of
K·J states without durations, by the other kernels; then sums of q² are the host's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton

from sojourn.kernels import reference
from sojourn.kernels.arrays import to_device, to_host
from sojourn.kernels.cuda.durations_triton import copy_chains
from sojourn.kernels.cuda.potentials import written_out
from sojourn.kernels.cuda.squares import sum_squares
from sojourn.kernels.cuda.wide import sum_pairs
from sojourn.kernels.durations import Folding, folded, with_edges
from sojourn.kernels.interface import DurationCounts, Potentials, Smoothed, Squares

PROGRAMS = 2**12
"""Programs that share the sequences, each with its own sums."""

_STATES = 128  # whose transitions stay in the registers of a program; half in double precision
_COPIES = 2**12  # of all states, rounded up, that do so too
_WARPS = 8

Tensor = Any


def forward_backward(
    without: Callable[..., Smoothed],
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    order: Tensor,
    *,
    squares: bool,
) -> Smoothed:
    """Compute posterior expectations of every sequence.

    `without` is the kernel that does so where states do not last.
    """
    written = written_out(potentials)
    if not fits(potentials):
        return _by_copies(without, written, index, offsets, order, squares=squares)
    n_steps, n_states = len(index), len(written.start)
    like = written.emissions
    flows, last = like.new_zeros((2, n_steps, n_states))
    leaving = like.new_zeros((n_steps if squares else 0, n_states))
    rows = like.new_zeros((n_steps, n_states))
    found = _run(written, index, offsets, order, flows=flows, last=last, leaving=leaving, rows=rows)
    log_z, stays, inner, entries, ends, theta = found
    assert written.durations is not None
    exits = sum_pairs(last[:-1], flows[1:]) * theta.double()
    heads = rows[offsets[:-1]].double()
    if written.edges is not None:
        heads = torch.where(written.edges.inner[:, None], 0.0, heads)
    squared = None
    if squares:
        first = torch.zeros(n_steps, dtype=torch.int8, device=like.device)
        pairs = sum_squares(last, flows[1:], theta, None, rows, first, offsets, 1).pairs
        squared = Squares((heads**2).sum(0), pairs, (leaving.double() ** 2).sum(0))
    entry, stay, advance = (part.double() for part in written.durations)
    counts = DurationCounts(entries * entry, stays * stay, inner * advance + exits.sum(1))
    return Smoothed(log_z, heads.sum(0), exits, rows, squared, counts, ends)


def log_normalizers(
    without: Callable[..., Tensor],
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    order: Tensor,
) -> Tensor:
    """Compute log Z of every sequence by the forward recursion alone."""
    written = written_out(potentials)
    if not fits(potentials):
        return without(*with_edges(written, index, offsets), offsets)
    return _run(written, index, offsets, order)[0]


def fits(potentials: Potentials) -> bool:
    """Whether states and copies are few enough for the registers of a program."""
    n_states, n_copies = (triton.next_power_of_2(n) for n in Folding.of(potentials))
    most = _STATES if potentials.start.dtype == torch.float32 else _STATES // 2
    return n_states <= most and n_states * n_copies <= _COPIES


def _run(
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    order: Tensor,
    **steps: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor]:
    """Launch the recursions: forward alone, or both with room for what every step leaves.

    Returns
    -------
    log_z, stays, advances, entries, ends, theta
        Sums without the factors that all steps have in common.
    """
    table, both = potentials.emissions, bool(steps)
    n_states, n_copies = Folding.of(potentials)
    n_sequences, device = len(offsets) - 1, index.device
    n_programs = min(n_sequences, PROGRAMS)
    assert potentials.durations is not None
    entry, stay, advance = (part.to(table.dtype).contiguous() for part in potentials.durations)
    theta = (advance[:, None] * potentials.transitions).to(table.dtype).contiguous()
    edges, scale = potentials.edges, potentials.log_scale
    messages = table.new_empty((len(index) if both else 2 * n_programs, n_states, n_copies))
    none = table.new_empty(1)
    stays, advances, entries = (
        torch.zeros((n_programs, *shape), dtype=torch.float64, device=device)
        for shape in ((n_states,), (n_states,), (n_states, n_copies))
    )
    ends = None if edges is None else table.new_zeros((2, n_sequences, n_states, n_copies))
    log_z = torch.empty(n_sequences, dtype=torch.float64, device=device)
    side, copies = (triton.next_power_of_2(n) for n in (n_states, n_copies))
    copy_chains[(n_programs,)](
        theta,
        potentials.start.to(table.dtype),
        entry,
        stay,
        advance,
        table,
        none if scale is None else scale.double(),
        index,
        offsets,
        order,
        *_around(potentials, none),
        messages,
        table.new_empty(len(index) if both else 1),
        steps.get("last", none),
        steps.get("flows", none),
        steps.get("leaving", none),
        steps.get("rows", none),
        stays,
        advances,
        entries,
        none if ends is None else ends,
        log_z,
        n_sequences,
        table.stride(0),
        K=n_states,
        J=n_copies,
        STATES=side,
        COPIES=copies,
        BOTH=both,
        EDGES=edges is not None,
        SCALED=scale is not None,
        LEAVING=both and len(steps["leaving"]) == len(index),
        num_warps=max(1, min(_WARPS, max(side * side // 1024, side * copies // 256))),
    )
    return log_z, stays.sum(0), advances.sum(0), entries.sum(0), ends, theta


def _around(potentials: Potentials, none: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return what lies around sequences as the kernel takes it; `none` where nothing does."""
    edges, dtype = potentials.edges, potentials.emissions.dtype
    if edges is None:
        return none, none, none
    before, after = (part.to(dtype).contiguous() for part in (edges.before, edges.after))
    return edges.inner.to(torch.int8), before, after


def _by_copies(
    without: Callable[..., Smoothed],
    written: Potentials,
    index: Tensor,
    offsets: Tensor,
    order: Tensor,
    *,
    squares: bool,
) -> Smoothed:
    """Compute the same as a model of K·J states; sums of q² on the host."""
    copies, own = with_edges(written, index, offsets)
    found = folded(without(copies, own, offsets, order=order), written, offsets)
    if not squares:
        return found
    host = Potentials(*(_to_host(part) for part in written))
    exact = reference.forward_backward(host, to_host(index), to_host(offsets), squares=True)
    return found._replace(squares=to_device(exact.squares, found.start.device))


def _to_host(part: Any) -> Any:
    if part is None:
        return None
    return type(part)(*map(to_host, part)) if isinstance(part, tuple) else to_host(part)
