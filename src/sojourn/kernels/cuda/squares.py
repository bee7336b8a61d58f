"""Sums of q² on a GPU, eqs (4), (6) and (19): host side and device side."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.interface import Squares

_SPANS = 512  # spans of steps whose expected transitions are summed apart, if they stay short
_ROW_SPAN = 64  # steps whose r² a program sums
_MOST_ROWS = 512  # steps of a span: longer sums in single precision are inexact

Tensor = Any


def sum_squares(
    before: Tensor,
    behind: Tensor,
    matrix: Tensor,
    responsibilities: Tensor,
    first: Tensor,
    offsets: Tensor,
    n_less: int,
) -> Squares:
    """Sum q², with q(z_{t−1}, z_t) = before θ behind.

    Parameters
    ----------
    before, behind : (R, W) tensors
        The first ``offsets[-1] - n_less`` rows count.
    """
    n_states, device, n_rows = len(matrix), before.device, len(behind)
    tile = min(max(16, triton.next_power_of_2(n_states)), 64)
    span = min(max(16, triton.cdiv(n_rows, _SPANS)), _MOST_ROWS)
    n_spans, n_tiles = max(1, triton.cdiv(n_rows, span)), triton.cdiv(n_states, tile)
    side = n_tiles * tile
    squares = torch.empty((n_spans, side, side), dtype=before.dtype, device=device)
    _sum_squares_kernel[(n_spans, n_tiles, n_tiles)](
        before,
        behind,
        matrix,
        squares,
        offsets,
        len(offsets) - 1,
        n_less,
        span,
        K=n_states,
        W=before.stride(0),
        TILE=tile,
        num_warps=4,
    )
    of_steps = _sum_row_squares(responsibilities, first, offsets)
    own: dict[str, Any] = {"dtype": torch.float64, "device": device}
    pairs = torch.empty((n_states, n_states), **own)
    rows = torch.empty((2, n_states), **own)
    n_programs = triton.cdiv(n_states**2, 16) + triton.cdiv(2 * n_states, 16)
    _gather_squares_kernel[(n_programs,)](
        squares, of_steps, pairs, rows, n_spans, len(of_steps), side, n_states,
        TOGETHER=512, num_warps=8,
    )  # fmt: skip
    return Squares(rows[0], pairs, rows[1])


def _sum_row_squares(responsibilities: Tensor, first: Tensor, offsets: Tensor) -> Tensor:
    """Sum r² of first steps, and of those that a transition leaves from, by span: (R, 2, K)."""
    (n_rows, n_states), device = responsibilities.shape, responsibilities.device
    n_spans = max(1, triton.cdiv(n_rows, _ROW_SPAN))
    lanes = min(max(16, triton.next_power_of_2(n_states)), 128)
    sums = torch.empty((n_spans, 2, n_states), dtype=torch.float64, device=device)
    _sum_row_squares_kernel[(n_spans, triton.cdiv(n_states, lanes))](
        responsibilities,
        responsibilities.stride(0),
        first,
        offsets,
        len(offsets) - 1,
        sums,
        _ROW_SPAN,
        K=n_states,
        LANES=lanes,
        TILE=16,
        num_warps=4,
    )
    return sums


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_less", "span", "K"],
    do_not_specialize_on_alignment=["offsets"],
)
def _sum_squares_kernel(
    before,
    behind,
    matrix,
    squares,
    offsets,
    n_sequences,
    n_less,
    span,
    K,
    W: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum q² of a tile of pairs of states over a span of steps."""
    in_turn()
    program = tl.program_id(0)
    left = tl.program_id(1) * TILE + tl.arange(0, TILE)
    right = tl.program_id(2) * TILE + tl.arange(0, TILE)
    inside = (left < K)[:, None] & (right < K)[None, :]
    theta = tl.load(matrix + left[:, None] * K + right[None, :], mask=inside, other=0.0)
    square_sum = tl.zeros((TILE, TILE), before.dtype.element_ty)
    used = tl.load(offsets + n_sequences) - n_less
    begin, end = program * span, tl.minimum((program + 1) * span, used)
    # What stands between K and W has sums of its own, which are left out.
    from_q = tl.load(
        before + begin * W + left, mask=(left < W) & (left * 0 + begin < end), other=0.0
    )
    to_q = tl.load(
        behind + begin * W + right, mask=(right < W) & (right * 0 + begin < end), other=0.0
    )
    for row in range(begin, end):
        # The next step is on its way while this one is used.
        coming = tl.minimum(row + 1, end - 1) * W
        next_from = tl.load(before + coming + left, mask=left < W, other=0.0)
        next_to = tl.load(behind + coming + right, mask=right < W, other=0.0)
        q = from_q[:, None] * theta * to_q[None, :]
        square_sum += q * q
        from_q, to_q = next_from, next_to
    side = tl.num_programs(1) * TILE
    where = program.to(tl.int64) * side * side + left[:, None] * side + right[None, :]
    tl.store(squares + where, square_sum)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "span", "K"],
    do_not_specialize_on_alignment=["first", "offsets"],
)
def _sum_row_squares_kernel(
    responsibilities,
    stride,
    first,
    offsets,
    n_sequences,
    sums,
    span,
    K,
    LANES: tl.constexpr,
    TILE: tl.constexpr,
):
    """Sum r² over a span of steps, in double precision."""
    in_turn()
    program = tl.program_id(0)
    state = tl.program_id(1) * LANES + tl.arange(0, LANES)
    used = tl.load(offsets + n_sequences)
    of_start = tl.zeros((TILE, LANES), tl.float64)
    of_rows = tl.zeros((TILE, LANES), tl.float64)
    for tile in range(program * span, tl.minimum((program + 1) * span, used), TILE):
        row = tile + tl.arange(0, TILE)
        there = row < used
        is_first = there & (tl.load(first + row, mask=there, other=0) != 0)
        # A transition leaves from every step but the last of its sequence.
        leaves = there & (tl.load(first + row + 1, mask=row + 1 < used, other=1) == 0)
        where = row.to(tl.int64)[:, None] * stride + state[None, :]
        mask = there[:, None] & (state < K)[None, :]
        r = tl.load(responsibilities + where, mask=mask, other=0.0).to(tl.float64)
        of_start += tl.where(is_first[:, None], r * r, 0.0)
        of_rows += tl.where(leaves[:, None], r * r, 0.0)
    where = sums + program * 2 * K + state
    tl.store(where, tl.sum(of_start, axis=0), mask=state < K)
    tl.store(where + K, tl.sum(of_rows, axis=0), mask=state < K)


@Launched
@triton.jit(do_not_specialize=["n_spans", "n_row_spans", "side", "K"])
def _gather_squares_kernel(
    squares, of_steps, pairs, rows, n_spans, n_row_spans, side, K, TOGETHER: tl.constexpr
):
    """Sum over spans, sixteen numbers per program: pairs first, then starts and rows."""
    in_turn()
    n_before = tl.cdiv(K * K, 16)
    is_pair = tl.program_id(0) < n_before
    total = tl.zeros((16,), tl.float64)
    if is_pair:
        place = tl.program_id(0) * 16 + tl.arange(0, 16)
        cell = place // K * side + place % K
        for begin in range(0, n_spans, TOGETHER):
            span = begin + tl.arange(0, TOGETHER).to(tl.int64)[:, None]
            mask = (span < n_spans) & (place < K * K)[None, :]
            part = tl.load(squares + span * side * side + cell[None, :], mask=mask, other=0.0)
            total += tl.sum(part.to(tl.float64), axis=0)
        tl.store(pairs + place, total, mask=place < K * K)
    else:
        place = (tl.program_id(0) - n_before) * 16 + tl.arange(0, 16)
        for begin in range(0, n_row_spans, TOGETHER):
            span = begin + tl.arange(0, TOGETHER).to(tl.int64)[:, None]
            mask = (span < n_row_spans) & (place < 2 * K)[None, :]
            part = tl.load(of_steps + span * 2 * K + place[None, :], mask=mask, other=0.0)
            total += tl.sum(part, axis=0)
        tl.store(rows + place, total, mask=place < 2 * K)
