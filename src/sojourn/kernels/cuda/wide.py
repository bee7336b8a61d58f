"""The recursions on a GPU where the transition matrix is too large for a program's registers.

More than 256 states, or double precision.

A step of a block of sequences is a product of matrices, shared out among programs by columns: each
makes a tile of the states.  Messages pass through memory, and programs of a group wait for one
another once per step; nothing else does, and there is one launch for all steps of both directions.

In single precision a product is three products in tf32 on the matrix units, with what tf32 leaves
of a number as a number of its own.  For few sequences, whose steps are a chain of products with a
vector, a program keeps its columns in registers and multiplies plainly.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton

from sojourn.kernels.cuda import settings, wide_triton
from sojourn.kernels.cuda.potentials import affine_parts
from sojourn.kernels.cuda.squares import sum_squares
from sojourn.kernels.interface import Potentials, Smoothed

SPAN = 2**14
"""Steps whose pairs are summed in the precision of the potentials."""

Tensor = Any


class Tiling(NamedTuple):
    """How the recursions are shared out among programs.

    Attributes
    ----------
    block : int
        Sequences of a group of programs.
    tile : int
        States of a program.
    depth : int
        States on the way that are read together.
    product : str
        "vector", "tf32x3", "tf32" or "ieee".
    n_warps, n_stages : int
    """

    block: int
    tile: int
    depth: int
    product: str
    n_warps: int
    n_stages: int


class WideChains(NamedTuple):
    """What the recursions leave of every step.

    Attributes
    ----------
    messages : (2, T, W) tensor
        α forward and e backward, each row up to a factor.  Forward alone: (1, T, W).
    predictions : (T, W) tensor
        v forward: a step's state given the steps before.
    sums : (2, T, P) tensor
        Sums of messages over the states of each program.
    first : (T,) int8 tensor
        Whether a step is the first of its sequence.
    """

    messages: Tensor
    predictions: Tensor
    sums: Tensor
    first: Tensor


def forward_backward(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor, *, squares: bool
) -> Smoothed:
    """Compute posterior expectations by matrix products over blocks of sequences.

    Arguments and results are those of `sojourn.kernels.cuda.forward_backward`.
    """
    chains, log_z = _recursions(potentials, index, offsets, order, both=True)
    before, behind = combine(chains, len(potentials.start))
    responsibilities = chains.predictions[:, : len(potentials.start)]
    start = responsibilities[offsets[:-1]].sum(0, dtype=torch.float64)
    transitions = sum_pairs(before, behind) * potentials.transitions.double()
    squared = None
    if squares:
        squared = sum_squares(
            before, behind, potentials.transitions, None, responsibilities, chains.first, offsets, 1
        )
    return Smoothed(log_z, start, transitions, responsibilities, squared)


def log_normalizers(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor
) -> Tensor:
    """Compute log Z of every sequence by the forward recursion alone."""
    return _recursions(potentials, index, offsets, order, both=False)[1]


def _recursions(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor, *, both: bool
) -> tuple[WideChains, Tensor]:
    """Run the recursions, a group of programs per block of sequences and direction; and log Z."""
    table = affine_parts(potentials)
    exact = settings.precision() == "tf32x3"
    chains = run_chains(
        potentials.start,
        potentials.transitions,
        table,
        index,
        offsets,
        order,
        tiling(len(potentials.start), len(order), table[0].dtype, exact=exact),
        both=both,
        interpreted=settings.INTERPRETED,
    )
    log_scale, n_rows = potentials.log_scale, len(table[0])
    return chains, scores(chains.sums[0], log_scale, index, offsets, n_rows)


def tiling(n_states: int, n_sequences: int, dtype: Any, *, exact: bool) -> Tiling:
    """Choose by shape: what was fastest on an H200 with 256, 512 and 1,024 states."""
    if dtype == torch.float64:
        return Tiling(16, 32, 32, "ieee", 4, 2)
    if n_sequences * n_states**2 <= 2**21:
        # The matrix fits in the device's registers, once for every sequence and direction.
        tile = 16 if n_states <= 512 else 8
        n_warps = max(1, triton.next_power_of_2(n_states) * tile // 2048)
        return Tiling(1, tile, 32, "vector", n_warps, 1)
    product = "tf32x3" if exact else "tf32"
    if n_sequences < 512:
        return Tiling(16, 32, 32, product, 4, 3)
    # Small tiles keep all multiprocessors busy, large ones read less.
    return Tiling(64, 32 if n_sequences * n_states < 2**20 else 64, 32, product, 4, 3)


def run_chains(
    start: Tensor,
    transitions: Tensor,
    table: tuple[Tensor, Tensor | None, Tensor | None],
    index: Tensor,
    offsets: Tensor,
    order: Tensor,
    how: Tiling,
    *,
    both: bool,
    interpreted: bool,
) -> WideChains:
    """Run the recursions of all sequences, which `order` has longest first."""
    rows, gain, shift = table
    n_states, n_sequences, n_steps = len(start), len(order), len(index)
    device, dtype = index.device, rows.dtype
    width = triton.cdiv(n_states, how.tile) * how.tile
    width = triton.cdiv(width, how.depth) * how.depth
    parts = width // how.tile
    n_groups = triton.cdiv(n_sequences, how.block) * (1 + both)
    messages = torch.empty((1 + both, n_steps, width), dtype=dtype, device=device)
    predictions = torch.empty((n_steps if both else 1, width), dtype=dtype, device=device)
    sums = torch.empty((1 + both, n_steps, parts), dtype=dtype, device=device)
    first = torch.empty(n_steps if both else 1, dtype=torch.int8, device=device)
    counters = torch.zeros(1 + n_groups, dtype=torch.int32, device=device)
    matrices = _split_matrices(transitions.to(dtype).contiguous(), width, how)
    # The interpreter runs one program after another: none can wait for one that comes later.
    longest = int(offsets.diff().max()) if interpreted else 0
    for span in [(t, t + 1) for t in range(longest)] or [(0, 2**31 - 1)]:
        wide_triton.shared_chains[(n_groups * parts,)](
            matrices,
            start.to(dtype),
            rows,
            gain,
            shift,
            index,
            offsets,
            order,
            messages,
            predictions,
            sums,
            first,
            counters,
            n_sequences,
            len(rows),
            rows.stride(0),
            n_steps,
            width,
            *span,
            K=n_states,
            W=width,
            BOTH=both,
            AFFINE=gain is not None,
            BLOCK=how.block,
            TILE=how.tile,
            DEPTH=how.depth,
            PRODUCT=how.product,
            WAIT=not interpreted,
            num_warps=how.n_warps,
            num_stages=how.n_stages,
        )
    return WideChains(messages, predictions, sums, first)


def _split_matrices(transitions: Tensor, width: int, how: Tiling) -> Tensor:
    """Return θᵀ for forward and θ for backward, padded; rows go along a product's depth.

    For products in tf32 each is what tf32 holds of it, and behind that the rest.
    """
    n_states, device, dtype = len(transitions), transitions.device, transitions.dtype
    if how.product == "ieee":
        padding = (0, width - n_states, 0, width - n_states)
        padded = torch.nn.functional.pad(transitions, padding)
        return torch.stack([padded.T, padded])
    matrices = torch.empty((2, 2, width, width), dtype=dtype, device=device)
    tiles = triton.cdiv(width, 32)
    wide_triton.split[(tiles, tiles)](
        transitions, matrices, K=n_states, W=width, TILE=32, num_warps=4
    )
    return matrices


def scores(
    sums: Tensor, log_scale: Tensor | None, index: Tensor, offsets: Tensor, n_rows: int
) -> Tensor:
    """Return log Z of every sequence from the sums of its forward messages."""
    n_sequences = len(offsets) - 1
    log_z = torch.empty(n_sequences, dtype=torch.float64, device=index.device)
    wide_triton.score[(n_sequences,)](
        sums,
        log_scale,
        index,
        offsets,
        log_z,
        n_rows,
        PARTS=sums.shape[-1],
        SCALED=log_scale is not None,
        BLOCK=32,
        num_warps=1,
    )
    return log_z


def combine(chains: WideChains, n_states: int) -> tuple[Tensor, Tensor]:
    """Turn predictions into responsibilities, and messages into shares of pairs.

    Returns
    -------
    before, behind : (T − 1, K) tensors
        What stands left and right of θ in q(z_{t−1}, z_t); zero for the first step of a sequence.
    """
    _, n_steps, width = chains.messages.shape
    wide_triton.combine[(n_steps,)](
        chains.messages,
        chains.predictions,
        chains.sums,
        chains.first,
        n_steps,
        K=n_states,
        W=width,
        PARTS=chains.sums.shape[-1],
        LANES=triton.next_power_of_2(n_states),
        num_warps=1 if n_states <= 256 else 4,
    )
    return chains.messages[0, :-1, :n_states], chains.messages[1, 1:, :n_states]


def sum_pairs(before: Tensor, behind: Tensor) -> Tensor:
    """Sum the products of rows in double precision, in a fixed order: (K, K).

    A span of steps is summed in single precision, where longer sums would be inexact.
    """
    n_rows, n_states = before.shape
    total = torch.zeros((n_states, n_states), dtype=torch.float64, device=before.device)
    for begin in range(0, n_rows, SPAN):
        rows = slice(begin, begin + SPAN)
        total += before[rows].T @ behind[rows]
    return total
