"""Small updates on a GPU, one launch each: potentials of transitions, blended counts, failures.

The device side follows the host side.
"""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from sojourn.kernels.cuda.launch import Launched, in_turn

Tensor = Any

_LANES = 64  # at least, so that few states need no kernels of their own


class LogNormalizers(NamedTuple):
    """log Z of the sequences of a minibatch, and where they are counted and summed.

    Attributes
    ----------
    values : (N,) float64 tensor
    failures : () int64 tensor
        Where the number of those that are not finite is added.
    total : () float64 tensor
        Where their sum is written.
    """

    values: Tensor
    failures: Tensor
    total: Tensor


def row_potentials(
    start: Tensor,
    transitions: Tensor,
    total: Tensor | tuple[Tensor, Tensor] | None,
    counts: tuple[Tensor, Tensor],
    dtype: Any,
) -> tuple[Tensor, Tensor]:
    """Return prior counts plus expected counts, normalised, eq (1): (K,), and (2, K, K).

    The matrix comes with its transpose behind it.  ``transitions`` may be one row for all, and
    ``total`` one number for the start and one for the rows.
    """
    apart = isinstance(total, tuple)
    n_states = len(start)
    dtype = getattr(torch, np.dtype(dtype).name)
    out_start = torch.empty(n_states, dtype=dtype, device=start.device)
    out = torch.empty((2, n_states, n_states), dtype=dtype, device=start.device)
    _row_potentials_kernel[(n_states + 1,)](
        start,
        transitions,
        torch.stack(total) if apart else total,
        *counts,
        out_start,
        out,
        K=n_states,
        APART=apart,
        LANES=triton.next_power_of_2(max(_LANES, n_states)),
        ONE_ROW=transitions.ndim == 1,
        num_warps=1 if n_states <= 128 else 4,
    )
    return out_start, out


def transition_potentials(
    prior: tuple[Tensor, Tensor],
    total: Tensor | tuple[Tensor, Tensor] | None,
    counts: tuple[Tensor, Tensor],
    dtype: Any,
) -> tuple[Tensor, Tensor]:
    """Return the potentials of start and transitions, eq (1).

    The transpose of the matrix lies behind it, where `forward_backward` finds it.
    """
    start, matrices = row_potentials(*prior, total, counts, dtype)
    return start, matrices[0]


def blend_counts(
    counts: tuple[Tensor, Tensor], sums: tuple[Tensor, Tensor], keep: Any, weight: Any
) -> tuple[Tensor, Tensor]:
    """Return ``keep * counts + weight * sums`` for start and transitions, eq (3).

    Rates that are tensors are views of one, as `as_rates` takes them; the host does not wait.  They
    are those of a recorded step, whose counts are replaced where they are.
    """
    rates, out = as_rates(keep, weight, counts[0]), blended_into(counts, keep)
    n = counts[1].numel()
    _blend_counts_kernel[(triton.cdiv(n, 256),)](
        *counts, *sums, *out, rates, len(counts[0]), n, BLOCK=256, num_warps=4
    )
    return out


def blended_into(counts: tuple[Tensor, Tensor], keep: Any) -> tuple[Tensor, Tensor]:
    """Return where blended counts are to be written."""
    start, transitions = counts
    if isinstance(keep, torch.Tensor):
        return start, transitions
    return torch.empty_like(start), torch.empty_like(transitions)


def state_masses(start: Tensor, transitions: Tensor) -> Tensor:
    """Return how many steps are expected in each state: those that start there or go there."""
    n_states, out = len(start), torch.empty_like(start)
    _state_masses_kernel[(triton.cdiv(n_states, 16),)](
        start, transitions, out, K=n_states, num_warps=4
    )
    return out


def decay(
    rows: Tensor,
    totals: Tensor,
    added: Tensor | None,
    scale: Tensor,
    rates: Tensor,
    smallest: float,
    beside: tuple[tuple[Tensor, Tensor], ...] | None = None,
    logs: LogNormalizers | None = None,
) -> Tensor:
    """Blend the totals of a table and decay its rows, in place, but for the scale.

    A scale below `smallest` becomes one, and the rows are multiplied by it.

    Start and transitions `beside` them are blended in the same launch: counts, sums, and what the
    blended ones are written to.  What is added to the totals are then the masses of these sums, if
    it is not given.  And `logs` are summed in it, where given.

    Returns
    -------
    (2,) float64 tensor
        What rows that are added are to be multiplied by, and the new scale.
    """
    factors = torch.empty(2, dtype=torch.float64, device=scale.device)
    n, n_states, block = rows.numel(), len(totals), 1024
    # Rows are rarely multiplied, and programs that only look whether they are take time to launch.
    n_programs = min(triton.cdiv(n, block), 264)
    if beside is not None:
        n_programs = max(n_programs, triton.cdiv(n_states**2, 256), triton.cdiv(n_states, 16))
    _decay_kernel[(n_programs + (logs is not None),)](
        rows, totals, added, scale, rates, factors, smallest, n_states, n,
        *itertools.chain(*(beside or ((None, None),) * 3)),
        *(logs or (None,) * 3), 0 if logs is None else len(logs.values),
        LANES=triton.next_power_of_2(max(_LANES, n_states)), BLOCK=block, num_warps=4,
    )  # fmt: skip
    return factors


def as_rates(keep: Any, weight: Any, like: Tensor) -> Tensor:
    """Return the two rates as one (2,) tensor; those of a recorded step are one already."""
    if isinstance(keep, torch.Tensor):
        assert keep._base is not None, "views of one tensor"
        return keep._base
    return torch.tensor([keep, weight], dtype=torch.float64, device=like.device)


def collect_failures(logs: LogNormalizers) -> None:
    """Sum log Z, and count those that are not finite."""
    _collect_failures_kernel[(1,)](*logs, len(logs.values), BLOCK=4096, num_warps=16)


# ---- device side ---------------------------------------------------------------------------------


@Launched
@triton.jit(do_not_specialize=["K"])
def _row_potentials_kernel(
    prior_start,
    prior,
    total,
    start,
    transitions,
    out_start,
    out,
    K,
    LANES: tl.constexpr,
    ONE_ROW: tl.constexpr,
    APART: tl.constexpr,
):
    """Normalise one row; the last program has the start."""
    in_turn()
    row = tl.program_id(0)
    state = tl.arange(0, LANES)
    inside = state < K
    kind = out.dtype.element_ty
    if row == K:
        added = tl.load(start + state, mask=inside, other=0.0)
        sums = tl.load(prior_start + state, mask=inside, other=0.0) + added
    else:
        added = tl.load(transitions + row * K + state, mask=inside, other=0.0)
        place = state if ONE_ROW else row * K + state
        sums = tl.load(prior + place, mask=inside, other=0.0) + added
    if total is None:
        norm = tl.sum(sums, axis=0)
    else:
        own = tl.where(row == K, 0, 1) if APART else 0
        norm = tl.load(total + own) + tl.sum(added, axis=0)
    means = (sums / norm).to(kind)
    if row == K:
        tl.store(out_start + state, means, mask=inside)
    else:
        tl.store(out + row * K + state, means, mask=inside)
        tl.store(out + K * K + state * K + row, means, mask=inside)


@Launched
@triton.jit(do_not_specialize=["K", "n"])
def _blend_counts_kernel(
    start, transitions, added_start, added, out_start, out, rates, K, n, BLOCK: tl.constexpr
):
    """Blend a part of the counts, and the first program the start too."""
    in_turn()
    keep = tl.load(rates)
    weight = tl.load(rates + 1)
    _blend_part(start, transitions, added_start, added, out_start, out, keep, weight, K, n, BLOCK)


@triton.jit
def _blend_part(
    start, transitions, added_start, added, out_start, out, keep, weight, K, n, BLOCK: tl.constexpr
):
    """Do so with the rates that are given."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.load(transitions + at, mask=at < n, other=0.0)
    new = tl.load(added + at, mask=at < n, other=0.0)
    tl.store(out + at, keep * old + weight * new, mask=at < n)
    if tl.program_id(0) == 0:
        for begin in range(0, K, BLOCK):
            at = begin + tl.arange(0, BLOCK)
            old = tl.load(start + at, mask=at < K, other=0.0)
            new = tl.load(added_start + at, mask=at < K, other=0.0)
            tl.store(out_start + at, keep * old + weight * new, mask=at < K)


@Launched
@triton.jit(do_not_specialize=["K"])
def _state_masses_kernel(start, transitions, out, K):
    """Sum the columns of expected transitions and the start, some states per program."""
    in_turn()
    state = tl.program_id(0) * 16 + tl.arange(0, 16)
    tl.store(out + state, _masses(start, transitions, state, K), mask=state < K)


@triton.jit
def _masses(start, transitions, state, K):
    """Sum the columns of some states."""
    total = tl.load(start + state, mask=state < K, other=0.0)
    for begin in range(0, K, 64):
        row = begin + tl.arange(0, 64)
        where = row[:, None] * K + state[None, :]
        mask = (row < K)[:, None] & (state < K)[None, :]
        total += tl.sum(tl.load(transitions + where, mask=mask, other=0.0), axis=0)
    return total


@Launched
@triton.jit(do_not_specialize=["K", "n", "n_sequences"])
def _decay_kernel(
    rows,
    totals,
    added,
    scale,
    rates,
    factors,
    smallest,
    K,
    n,
    start,
    transitions,
    added_start,
    added_transitions,
    out_start,
    out_transitions,
    log_z,
    failures,
    log_z_sum,
    n_sequences,
    LANES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Multiply rows by the scale if it is too small; the first program blends the totals too.

    All programs read the scale, so that none of them may change it.  The last has the logarithms.
    """
    in_turn()
    if log_z is not None:
        if tl.program_id(0) == tl.num_programs(0) - 1:
            _collect(log_z, failures, log_z_sum, n_sequences, 4 * BLOCK)
    keep = tl.load(rates)
    weight = tl.load(rates + 1)
    decayed = tl.load(scale) * keep
    if start is not None:
        _blend_part(
            start, transitions, added_start, added_transitions, out_start, out_transitions,
            keep, weight, K, K * K, 256,
        )  # fmt: skip
    if added is None:
        state = tl.program_id(0) * 16 + tl.arange(0, 16)
        if tl.program_id(0) * 16 < K:
            new = _masses(added_start, added_transitions, state, K)
            old = tl.load(totals + state, mask=state < K, other=0.0)
            tl.store(totals + state, keep * old + weight * new, mask=state < K)
    if tl.program_id(0) == 0:
        if added is not None:
            state = tl.arange(0, LANES)
            old = tl.load(totals + state, mask=state < K, other=0.0)
            new = tl.load(added + state, mask=state < K, other=0.0)
            tl.store(totals + state, keep * old + weight * new, mask=state < K)
        own = tl.where(decayed < smallest, 1.0, decayed)
        tl.store(factors, weight / own)
        tl.store(factors + 1, own)
    if decayed < smallest:
        for begin in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
            where = begin + tl.arange(0, BLOCK).to(tl.int64)
            values = tl.load(rows + where, mask=where < n, other=0.0)
            tl.store(rows + where, (values * decayed).to(rows.dtype.element_ty), mask=where < n)


@Launched
@triton.jit(do_not_specialize=["n"])
def _collect_failures_kernel(log_z, failures, out, n, BLOCK: tl.constexpr):
    """Sum, and count what is not finite."""
    in_turn()
    _collect(log_z, failures, out, n, BLOCK)


@triton.jit
def _collect(log_z, failures, out, n, BLOCK: tl.constexpr):
    """Do so, in one program."""
    total = tl.zeros((BLOCK,), tl.float64)
    bad = tl.zeros((BLOCK,), tl.int64)
    for begin in range(0, n, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        value = tl.load(log_z + at, mask=at < n, other=0.0)
        total += value
        bad += tl.where(tl.abs(value) < float("inf"), 0, 1)
    tl.store(out, tl.sum(total, axis=0))
    tl.store(failures, tl.load(failures) + tl.sum(bad, axis=0))
