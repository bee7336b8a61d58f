"""Sums of q² on a GPU, eqs (4), (6) and (19): host side and device side.

Those of pairs are products of matrices, as the sums of pairs are,

    Σ_t q(z_{t−1}, z_t)² = θ² ∘ Σ_t (before²)ᵀ (behind²),

in double precision, which squares of what is improbable need for their range.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sojourn.kernels.cuda import settings
from sojourn.kernels.cuda.access import load_one, store_two
from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.warp import add_double_product
from sojourn.kernels.interface import Squares

_PROGRAMS = 1056  # that sum pairs at a time: eight warps for each of 132 multiprocessors
_SHORTEST = tl.constexpr(64)  # steps of a span; a shorter one would take less time than its sums do
_ROW_SPAN = 64  # steps whose r² a program sums
_LANES = 64  # states of a program at a time, so that few states need no kernels of their own
_MOST_TILES = 6  # eights of states on a side, of whose pairs a warp has room for the sums

Tensor = Any


def sum_squares(
    before: Tensor,
    behind: Tensor,
    matrix: Tensor,
    gain: Tensor | None,
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
    matrix : (K, K) tensor
    gain : (K,) tensor, optional
        θ is the matrix, each column times its gain.
    responsibilities : (T, K) tensor
    first : (T,) int8 tensor
    offsets : (N + 1,) int64 tensor
    n_less : int
    """
    n_states, device, n_sequences = len(matrix), before.device, len(offsets) - 1
    eights = 2 * triton.cdiv(n_states, 16)  # even, so that there are fewer kernels
    side = triton.cdiv(eights, _MOST_TILES)
    tiles = triton.cdiv(eights, side)
    n_spans = triton.cdiv(_PROGRAMS, side**2)
    n_room = max(1, min(n_spans, triton.cdiv(len(behind), _SHORTEST.value)))
    n_cells = (8 * tiles * side) ** 2
    own: dict[str, Any] = {"dtype": torch.float64, "device": device}
    squares = torch.empty((n_room, n_cells), **own)
    sizes = (n_sequences, n_less, n_spans)
    _sum_squares_kernel[(n_room, side, side)](
        before, behind, squares, offsets, *sizes, before.stride(0), TILES=tiles,
        BY_ROW=settings.BY_ROW, INTERPRET=settings.INTERPRETED, num_warps=1,
    )  # fmt: skip
    of_steps = _sum_row_squares(responsibilities, first, offsets)
    pairs, rows = torch.empty((n_states, n_states), **own), torch.empty((2, n_states), **own)
    together = 64 if settings.INTERPRETED else 16  # a program there takes as long for more of them
    _gather_squares_kernel[(n_cells // together + triton.cdiv(2 * n_states, together),)](
        squares, of_steps, matrix, gain, pairs, rows, offsets, *sizes, len(of_steps), side, tiles,
        K=n_states, GROUP=together, TOGETHER=512, num_warps=8,
    )  # fmt: skip
    return Squares(rows[0], pairs, rows[1])


def _sum_row_squares(responsibilities: Tensor, first: Tensor, offsets: Tensor) -> Tensor:
    """Sum r² of first steps, and of those that a transition leaves from, by span: (R, 2, K)."""
    (n_rows, n_states), device = responsibilities.shape, responsibilities.device
    n_spans = max(1, triton.cdiv(n_rows, _ROW_SPAN))
    sums = torch.empty((n_spans, 2, n_states), dtype=torch.float64, device=device)
    _sum_row_squares_kernel[(n_spans, triton.cdiv(n_states, _LANES))](
        responsibilities,
        responsibilities.stride(0),
        first,
        offsets,
        len(offsets) - 1,
        sums,
        K=n_states,
        LANES=_LANES,
        SPAN=_ROW_SPAN,
        num_warps=4,
    )
    return sums


@triton.jit
def _span_of(n_rows, n_spans):
    """Return how long the spans of so many rows are: the same for all, in whole fours.

    It follows from the rows that there are, so that room for more changes no bit.
    """
    return tl.maximum(tl.cdiv(tl.cdiv(n_rows, 4), n_spans) * 4, _SHORTEST)


@triton.jit
def _load_squares(rows, row, end, state, width, TILES: tl.constexpr, INTERPRET: tl.constexpr):
    """Load a thread's numbers of a row, from every eighth state on, and square them."""
    found = ()
    for i in tl.static_range(TILES):
        there = (row < end) & (state + 8 * i < width)
        where = rows + row * width + state + 8 * i
        if rows.dtype.element_ty == tl.float32:
            value = load_one(where, there, INTERPRET).to(tl.float64)
        else:
            value = tl.load(where, mask=there, other=0.0)
        found = found + (value * value,)  # type: ignore[assignment]
    return found


@triton.jit
def _add_row_of_products(sums, a, b, INTERPRET: tl.constexpr):
    """Add the products of one tile with all others."""
    longer = ()
    for j in tl.static_range(len(b)):
        two = sums[2 * j : 2 * j + 2]
        longer = longer + add_double_product(two, a, b[j], INTERPRET)
    return longer


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_less", "n_spans", "width"],
    do_not_specialize_on_alignment=["before", "behind", "offsets"],
)
def _sum_squares_kernel(
    before,
    behind,
    squares,
    offsets,
    n_sequences,
    n_less,
    n_spans,
    width,
    TILES: tl.constexpr,
    BY_ROW: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Sum products of squares over a span of rows, of so many eights of states by as many.

    A warp has four rows at a time: thread 4 g + c has row c, and of every eight states g.
    """
    in_turn()
    program = tl.program_id(0)
    lane = tl.arange(0, 32)
    group, quarter = lane // 4, lane % 4
    left = tl.program_id(1) * 8 * TILES + group
    right = tl.program_id(2) * 8 * TILES + group
    used = tl.load(offsets + n_sequences) - n_less
    span = _span_of(used, n_spans)
    begin = program * span
    if begin >= used:
        return
    end = tl.minimum(begin + span, used)
    # Of each tile one row after another; and as a warp has them, two numbers of every thread.
    block = (program * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(2)
    out = squares + (block + tl.program_id(2)).to(tl.int64) * (64 * TILES * TILES)
    if BY_ROW:
        zero = tl.zeros((32,), tl.float64)
        sums = ()
        for _ in tl.static_range(2 * TILES * TILES):
            sums = sums + (zero,)  # type: ignore[assignment]
        a = _load_squares(before, begin + quarter, end, left, width, TILES, INTERPRET)
        b = _load_squares(behind, begin + quarter, end, right, width, TILES, INTERPRET)
        for tile in range(begin, end, 4):
            # The next rows are on their way while these are used.
            row = tile + 4 + quarter
            next_a = _load_squares(before, row, end, left, width, TILES, INTERPRET)
            next_b = _load_squares(behind, row, end, right, width, TILES, INTERPRET)
            longer = ()
            for i in tl.static_range(TILES):
                own = sums[2 * i * TILES : 2 * (i + 1) * TILES]
                longer = longer + _add_row_of_products(own, a[i], b, INTERPRET)
            sums = longer
            a, b = next_a, next_b
        for p in tl.static_range(TILES * TILES):
            where = out + 64 * p + 2 * lane
            store_two(where, sums[2 * p : 2 * p + 2], lane >= 0, INTERPRET)
    else:
        _sum_in_whole(before, behind, out, begin, end, width, TILES)


@triton.jit
def _sum_in_whole(before, behind, out, begin, end, width, TILES: tl.constexpr):
    """Do so with many rows and all states at a time."""
    state = tl.arange(0, 64)
    left, right = tl.program_id(1) * 8 * TILES + state, tl.program_id(2) * 8 * TILES + state
    total = tl.zeros((64, 64), tl.float64)
    for tile in range(begin, end, 64):
        row = tile + tl.arange(0, 64)[:, None]
        there = (row < end) & (state < 8 * TILES)[None, :]
        x, mask = before + row * width + left[None, :], there & (left < width)[None, :]
        x = tl.load(x, mask=mask, other=0.0).to(tl.float64)
        y, mask = behind + row * width + right[None, :], there & (right < width)[None, :]
        y = tl.load(y, mask=mask, other=0.0).to(tl.float64)
        total += tl.sum((x * x)[:, :, None] * (y * y)[:, None, :], axis=0)
    i, j = state[:, None], state[None, :]
    where = out + 64 * (i // 8 * TILES + j // 8) + 8 * (i % 8) + j % 8
    tl.store(where, total, mask=(i < 8 * TILES) & (j < 8 * TILES))


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "K"],
    do_not_specialize_on_alignment=["first", "offsets"],
)
def _sum_row_squares_kernel(
    responsibilities,
    stride,
    first,
    offsets,
    n_sequences,
    sums,
    K,
    LANES: tl.constexpr,
    SPAN: tl.constexpr,
):
    """Sum r² over a span of steps, in double precision."""
    in_turn()
    program = tl.program_id(0)
    state = tl.program_id(1) * LANES + tl.arange(0, LANES)
    row = program * SPAN + tl.arange(0, SPAN)
    used = tl.load(offsets + n_sequences)
    there = row < used
    is_first = there & (tl.load(first + row, mask=there, other=0) != 0)
    # A transition leaves from every step but the last of its sequence.
    leaves = there & (tl.load(first + row + 1, mask=row + 1 < used, other=1) == 0)
    where = row.to(tl.int64)[:, None] * stride + state[None, :]
    mask = there[:, None] & (state < K)[None, :]
    r = tl.load(responsibilities + where, mask=mask, other=0.0).to(tl.float64)
    of_start = tl.sum(tl.where(is_first[:, None], r * r, 0.0), axis=0)
    of_rows = tl.sum(tl.where(leaves[:, None], r * r, 0.0), axis=0)
    where = sums + program * 2 * K + state
    tl.store(where, of_start, mask=state < K)
    tl.store(where + K, of_rows, mask=state < K)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_less", "n_spans", "n_row_spans", "side", "n_tiles", "K"],
    do_not_specialize_on_alignment=["offsets"],
)
def _gather_squares_kernel(
    squares,
    of_steps,
    matrix,
    gain,
    pairs,
    rows,
    offsets,
    n_sequences,
    n_less,
    n_spans,
    n_row_spans,
    side,
    n_tiles,
    K,
    GROUP: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Sum over spans, some numbers per program, and bring θ² in; starts and rows are last."""
    in_turn()
    in_block = 64 * n_tiles * n_tiles
    n_cells = side * side * in_block
    place = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    total = tl.zeros((GROUP,), tl.float64)
    if tl.program_id(0) < n_cells // GROUP:
        used = tl.load(offsets + n_sequences) - n_less
        n_filled = tl.cdiv(used, _span_of(used, n_spans)).to(tl.int32)
        for begin in range(0, n_filled, TOGETHER):
            span = begin + tl.arange(0, TOGETHER).to(tl.int64)[:, None]
            part = squares + span * n_cells + place[None, :]
            total += tl.sum(tl.load(part, mask=(span < n_filled) & (place >= 0), other=0.0), axis=0)
        block, tile = place // in_block, place % in_block // 64
        i, j = tile // n_tiles, tile % n_tiles
        left = 8 * (block // side * n_tiles + i) + place % 64 // 8
        right = 8 * (block % side * n_tiles + j) + place % 8
        mask = (left < K) & (right < K)
        theta = tl.load(matrix + left * K + right, mask=mask, other=0.0).to(tl.float64)
        if gain is not None:
            theta *= tl.load(gain + right, mask=mask, other=0.0).to(tl.float64)
        tl.store(pairs + left * K + right, theta * theta * total, mask=mask)
    else:
        place -= n_cells
        for begin in range(0, n_row_spans, TOGETHER):
            span = begin + tl.arange(0, TOGETHER).to(tl.int64)[:, None]
            mask = (span < n_row_spans) & (place < 2 * K)[None, :]
            part = tl.load(of_steps + span * 2 * K + place[None, :], mask=mask, other=0.0)
            total += tl.sum(part, axis=0)
        tl.store(rows + place, total, mask=place < 2 * K)
