"""Sums by symbol on a GPU, in a fixed order, and tables of a row per symbol.

The steps of a batch, sorted by symbol, are *segments*: runs of equal symbols.  The device side
follows the host side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from sojourn.kernels.arrays import namespace
from sojourn.kernels.cuda import settings
from sojourn.kernels.cuda.access import load_two, load_whole, store_two
from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.warp import from_any_lane

Tensor = Any

_LANES = 64  # at least, so that few states need no kernels of their own


MOST_SPANS = tl.constexpr(2048)
"""Spans of sorted steps that are summed at the same time, a warp each: about sixteen for each of
132 multiprocessors, which is what they have registers for."""

SHORTEST_SPAN = tl.constexpr(32)
"""Steps of a span, at least: as many as a warp has threads."""

_LONGEST_SPAN = tl.constexpr(256)  # longer sums in single precision are inexact


class Segments(NamedTuple):
    """The steps of a batch sorted by symbol, for sums in a fixed order.

    They are cut into spans of equal length, and a span where its symbol changes: what is left are
    *pieces*, of one symbol each.  Tensors may be longer than needed.

    Attributes
    ----------
    steps : (T,) int32 tensor
        Steps, sorted by symbol; the last one of a piece as ``~step``.
    spans : (S,) int32 tensor
        The first piece of each span.
    symbols : (U,) int32 tensor
        The distinct symbols; a missing one is as large as the alphabet.
    bounds : (U + 1,) int32 tensor
        The pieces of symbol u are ``bounds[u]:bounds[u + 1]``.
    sizes : (2,) int32 tensor
        T and U.
    """

    steps: Tensor
    spans: Tensor
    symbols: Tensor
    bounds: Tensor
    sizes: Tensor


class Pieces(NamedTuple):
    """Sums of the pieces of symbols' steps, from which sums by symbol are made.

    Attributes
    ----------
    segments : Segments
    sums : (P, W) tensor
        Of which the first K columns are states; P may be larger than needed.
    n_states, n_symbols : int
    """

    segments: Segments
    sums: Tensor
    n_states: int
    n_symbols: int


def sum_by_symbol(segments: Segments, rows: Tensor, n_symbols: int) -> Tensor:
    """Sum rows (T, K) by symbol in a fixed order, shape (U, K) in double precision.

    Rows of the result that belong to no symbol, or to the missing one, are zero.
    """
    return sum_of_pieces(sum_pieces(segments, rows, n_symbols))


def sum_pieces(segments: Segments, rows: Tensor, n_symbols: int) -> Pieces:
    """Sum rows (T, K) by piece."""
    # Columns beyond the states are summed too: rows of the recursions are whole sixteens apart, or
    # eights with more than 48 states, and models padded to the states of another use its kernels.
    # Rows of other widths are made wide enough for most: each width has kernels of its own.
    n_states, width = rows.shape[1], rows.stride(0)
    if width < n_states or width % (16 if n_states <= 48 else 8):
        width = 48 if n_states <= 48 else triton.cdiv(n_states, 64) * 64
        rows = torch.nn.functional.pad(rows, (0, width - n_states))
    n_steps = len(segments.steps)
    # Every span begins one, and so does every symbol.
    n_pieces = len(segments.symbols) + most_spans(n_steps)
    partial = torch.empty((n_pieces, width), dtype=rows.dtype, device=rows.device)
    _sum_pieces_kernel[(most_spans(n_steps), triton.cdiv(width, 64))](
        segments.steps, segments.spans, segments.sizes, rows, partial, width,
        BY_ROW=settings.BY_ROW, INTERPRET=settings.INTERPRETED, num_warps=1,
    )  # fmt: skip
    return Pieces(segments, partial, n_states, n_symbols)


def most_spans(n_steps: int) -> int:
    """Return into how many spans so many steps or fewer are cut, at most."""
    shortest, longest = SHORTEST_SPAN.value, _LONGEST_SPAN.value
    return max(min(MOST_SPANS.value, triton.cdiv(n_steps, shortest)), triton.cdiv(n_steps, longest))


def sum_of_pieces(pieces: Pieces) -> Tensor:
    """Return what `sum_by_symbol` does."""
    shape = (len(pieces.segments.symbols), pieces.sums.shape[1])
    out = torch.empty(shape, dtype=torch.float64, device=pieces.sums.device)
    _launch_segments(pieces, out, None, (None, None), is_table=False)
    return out[:, : pieces.n_states]


def add_pieces(
    table: Tensor, pieces: Pieces, factor: Tensor, scales: tuple[Tensor, Tensor]
) -> None:
    """Add sums by symbol to a table, which are not written first; as `add_rows`."""
    _launch_segments(pieces, table, factor, scales, is_table=True)


def _launch_segments(
    pieces: Pieces, out: Tensor, factor: Tensor | None, scales: Any, *, is_table: bool
) -> None:
    segments, width = pieces.segments, pieces.sums.shape[1]
    block, n_segments = 64 if width <= 64 else 128, len(segments.symbols)
    # Measured with 45 states, 7,600 and 27,900 symbols: one and four warps, 16 and 64 at a time.
    _sum_segments_kernel[(triton.cdiv(n_segments, 4), triton.cdiv(width, block))](
        segments.symbols,
        segments.bounds,
        segments.sizes,
        pieces.sums,
        out,
        out.stride(0),
        factor,
        *scales,
        pieces.n_symbols,
        n_segments,
        pieces.n_states if is_table else width,
        width // 8,
        BLOCK=block,
        TOGETHER=2048 // block,
        GROUP=4,
        num_warps=2,
    )


def sum_columns(rows: Tensor, symbols: Tensor | None, n_symbols: int) -> Tensor:
    """Sum rows (U, K) in double precision, without those of symbols that are not in the alphabet.

    Rows left out at the end change no bit.
    """
    n_rows, n_states = rows.shape
    block = min(max(16, triton.next_power_of_2(n_states)), 64)
    columns, n_groups = triton.cdiv(n_states, block), triton.cdiv(n_rows, 64)
    partial = torch.empty((n_groups, n_states), dtype=torch.float64, device=rows.device)
    out = torch.empty(n_states, dtype=torch.float64, device=rows.device)
    sizes = {"K": n_states, "BLOCK": block, "num_warps": 4}
    _sum_columns_kernel[(n_groups, columns)](
        rows, rows.stride(0), symbols, n_symbols, partial, n_rows, 64, **sizes
    )
    _sum_columns_kernel[(1, columns)](partial, n_states, None, 0, out, n_groups, n_groups, **sizes)
    return out


def add_rows(
    table: Tensor,
    rows: Tensor | None,
    values: Tensor,
    factor: Tensor,
    scales: tuple[Tensor | None, Tensor | None] = (None, None),
) -> None:
    """Do ``table[rows] += factor * values``; rows beyond the table are left out.

    Of `scales` the first becomes the second, in the same launch.
    """
    n_states, (scale, new_scale) = values.shape[1], scales
    if rows is None:
        table[:, :n_states] += factor * values
        if scale is not None:
            scale.copy_(new_scale)
        return
    block = min(max(16, triton.next_power_of_2(n_states)), 64)
    _add_rows_kernel[(triton.cdiv(len(rows), 8), triton.cdiv(n_states, block))](
        table,
        table.stride(0),
        len(table),
        rows,
        len(rows),
        values,
        values.stride(0),
        factor,
        scale,
        new_scale,
        K=n_states,
        BLOCK=block,
        GROUP=8,
        ATOMIC=settings.SUMS == "atomic",
        num_warps=4,
    )


def means_of_symbols(
    totals: Tensor, scale: Tensor, prior: float, prior_total: float, dtype: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gain and shift with which a row of the table becomes posterior means, eq (2).

    And a row that becomes one, for a missing symbol.
    """
    lanes = triton.next_power_of_2(max(_LANES, len(totals)))
    # In double precision, which a number given to a kernel does not have.
    priors = namespace(totals).asarray([prior, prior_total], like=totals)
    out = torch.empty((3, lanes), dtype=dtype, device=totals.device)
    _means_of_symbols_kernel[(1,)](
        totals, scale, priors, *out, len(totals), LANES=lanes, num_warps=1
    )
    return out[0, : len(totals)], out[1, : len(totals)], out[2]


# ---- device side ---------------------------------------------------------------------------------


@triton.jit
def span_of(n_steps):
    """Return how long the spans of so many sorted steps are: the same for all, in whole warps.

    It follows from the steps that there are, so that room for more changes no bit.
    """
    even = tl.cdiv(tl.cdiv(n_steps, SHORTEST_SPAN), MOST_SPANS) * SHORTEST_SPAN
    return tl.minimum(tl.maximum(even, SHORTEST_SPAN), _LONGEST_SPAN)


@Launched
@triton.jit(
    do_not_specialize=["width"],
    do_not_specialize_on_alignment=["steps", "spans", "sizes", "rows", "partial"],
)
def _sum_pieces_kernel(
    steps, spans, sizes, rows, partial, width, BY_ROW: tl.constexpr, INTERPRET: tl.constexpr
):
    """Sum the rows of a span of sorted steps, by symbol; a thread has two columns of 64."""
    in_turn()
    lane = tl.arange(0, 32)
    n_steps = tl.load(sizes)
    span = span_of(n_steps)
    begin = tl.program_id(0) * span
    if begin >= n_steps:
        return
    end = tl.minimum(begin + span, n_steps)
    column = tl.program_id(1) * 64 + 2 * lane
    there = column < width
    own = rows + tl.where(there, column, 0)
    target = partial + tl.load(spans + tl.program_id(0)).to(tl.int64) * width + column
    total = (tl.zeros((32,), rows.dtype.element_ty), tl.zeros((32,), rows.dtype.element_ty))
    coming = load_whole(steps + tl.minimum(begin + lane, end - 1), INTERPRET)
    for tile in range(begin, end, 32):
        at, step = tile + lane, coming
        coming = load_whole(steps + tl.minimum(at + 32, end - 1), INTERPRET)
        row = tl.where(step < 0, ~step, step)
        ends = ((step < 0) & (at < end)).to(tl.int32)
        if BY_ROW:
            target, total = _add_rows(own, row, ends, target, total, there, width, INTERPRET)
        else:
            found, total = _sums_of_pieces(own, row, ends, total, width)
            n_ended = tl.sum(ends, axis=0)
            for i in tl.static_range(2):
                where = target[None, :] + lane[:, None] * width + i
                tl.store(where, found[i], mask=(lane < n_ended)[:, None] & there[None, :])
            target += n_ended * width


@triton.jit
def _add_rows(own, row, ends, target, total, there, width, INTERPRET: tl.constexpr):
    """Add 32 rows, one after another, and store the sum where a piece ends; return what follows.

    In functions, through which Triton goes once.
    """
    # All rows are on their way before the first is used.
    values = ()
    lane = row * 0
    for r in tl.static_range(32):
        values = values + _load_row(own, row, lane + r, width, INTERPRET)
    for r in tl.static_range(32):
        two = values[2 * r : 2 * r + 2]
        target, total = _add_row(two, ends, lane + r, target, total, there, width, INTERPRET)
    return target, total


@triton.jit
def _load_row(own, row, lane, width, INTERPRET: tl.constexpr):
    """Load a thread's two numbers of the row that one of the threads has."""
    where = own + from_any_lane(row, lane, INTERPRET).to(tl.int64) * width
    return load_two(where, INTERPRET)


@triton.jit
def _add_row(two, ends, lane, target, total, there, width, INTERPRET: tl.constexpr):
    """Add two numbers, and store the sums if a piece ends there."""
    is_last = from_any_lane(ends, lane, INTERPRET) != 0
    sums = (total[0] + two[0], total[1] + two[1])
    store_two(target, sums, is_last & there, INTERPRET)
    target += tl.where(is_last, width, 0)
    return target, (tl.where(is_last, 0.0, sums[0]), tl.where(is_last, 0.0, sums[1]))


@triton.jit
def _sums_of_pieces(rows, row, ends, before, width):
    """Return the sums of the pieces of 32 rows, and of what follows the last of them."""
    lane = tl.arange(0, 32)
    local = tl.cumsum(ends, axis=0) - ends
    is_own = local[None, :] == lane[:, None]
    is_rest = lane == tl.sum(ends, axis=0)
    sums = ()
    rest = ()
    for i in tl.static_range(2):
        values = tl.load(rows[None, :] + row[:, None].to(tl.int64) * width + i)
        found = tl.sum(tl.where(is_own[:, :, None], values[None, :, :], 0.0), axis=1)
        found += tl.where((lane == 0)[:, None], before[i][None, :], 0.0)
        sums = sums + (found,)  # type: ignore[assignment]
        rest = rest + (tl.sum(tl.where(is_rest[:, None], found, 0.0), axis=0),)  # type: ignore[assignment]
    return sums, rest


@Launched
@triton.jit(
    do_not_specialize=["stride", "n_symbols", "n_segments", "n_wanted", "n_eights"],
    do_not_specialize_on_alignment=["symbols", "bounds", "sizes"],
)
def _sum_segments_kernel(
    symbols,
    bounds,
    sizes,
    partial,
    out,
    stride,
    factor,
    scale,
    new_scale,
    n_symbols,
    n_segments,
    n_wanted,
    n_eights,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sum the pieces of some symbols; what belongs to none, or to the missing one, is zero.

    With a factor, its product with the sum is added to the symbol's row.
    """
    in_turn()
    width = n_eights * 8  # as is seen here, so that a thread loads several numbers at once
    if factor is not None:
        if tl.program_id(0) + tl.program_id(1) == 0:
            tl.store(scale, tl.load(new_scale))
    member = tl.arange(0, GROUP)
    segment = tl.program_id(0) * GROUP + member
    there = segment < n_segments
    symbol = tl.load(symbols + segment, mask=there, other=n_symbols)
    begin = tl.load(bounds + segment, mask=there, other=0)
    end = tl.load(bounds + segment + 1, mask=there, other=0)
    exists = (segment < tl.load(sizes + 1)) & (symbol < n_symbols)
    end = tl.where(exists, end, begin)
    state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if factor is not None:  # what is added to is on its way meanwhile
        target = out + symbol.to(tl.int64)[:, None] * stride + state[None, :]
        is_own = exists[:, None] & (state < n_wanted)[None, :]
        old = tl.load(target, mask=is_own, other=0.0)
        by = tl.load(factor)
    # Most symbols have one piece.
    row = partial + begin.to(tl.int64)[:, None] * width + state[None, :]
    filled = (begin < end)[:, None] & (state < width)[None, :]
    total = tl.load(row, mask=filled, other=0.0).to(tl.float64)
    if tl.max(end - begin, axis=0) > 1:
        for one in tl.static_range(GROUP):
            own = member == one
            last = tl.sum(tl.where(own, end, 0), axis=0)
            found = tl.zeros((BLOCK,), tl.float64)
            for tile in range(tl.sum(tl.where(own, begin, 0), axis=0) + 1, last, TOGETHER):
                piece = tile + tl.arange(0, TOGETHER)
                where = piece.to(tl.int64)[:, None] * width + state[None, :]
                mask = (piece < last)[:, None] & (state < width)[None, :]
                part = tl.load(partial + where, mask=mask, other=0.0)
                found += tl.sum(part.to(tl.float64), axis=0)
            total += tl.where(own[:, None], found[None, :], 0.0)
    if factor is None:
        where = segment.to(tl.int64)[:, None] * stride + state[None, :]
        mask = (segment < n_segments)[:, None] & (state < n_wanted)[None, :]
        tl.store(out + where, total, mask=mask)
    else:
        tl.store(target, (old + by * total).to(out.dtype.element_ty), mask=is_own)


@Launched
@triton.jit(
    do_not_specialize=["n_symbols", "n_rows", "span"],
    do_not_specialize_on_alignment=["rows", "symbols"],
)
def _sum_columns_kernel(rows, width, symbols, n_symbols, out, n_rows, span, K, BLOCK: tl.constexpr):
    """Sum a span of rows."""
    in_turn()
    program = tl.program_id(0)
    state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float64)
    end = tl.minimum((program + 1) * span, n_rows)
    for begin in range(program * span, end, 64):
        row = begin + tl.arange(0, 64)
        there = row < end
        if symbols is not None:
            there = there & (tl.load(symbols + row, mask=there, other=n_symbols) < n_symbols)
        mask = there[:, None] & (state < K)[None, :]
        where = row.to(tl.int64)[:, None] * width + state[None, :]
        total += tl.sum(tl.load(rows + where, mask=mask, other=0.0).to(tl.float64), axis=0)
    tl.store(out + program * K + state, total, mask=state < K)


@Launched
@triton.jit(
    do_not_specialize=["n_rows", "n_added", "width", "K"],
    do_not_specialize_on_alignment=["rows", "values"],
)
def _add_rows_kernel(
    table,
    stride,
    n_rows,
    rows,
    n_added,
    values,
    width,
    factor,
    scale,
    new_scale,
    K,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    ATOMIC: tl.constexpr,
):
    """Add some rows of values to the table; a row may come more than once where it is atomic."""
    in_turn()
    if scale is not None and tl.program_id(0) + tl.program_id(1) == 0:
        tl.store(scale, tl.load(new_scale))
    place = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    row = tl.load(rows + place, mask=place < n_added, other=n_rows)
    state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = (row < n_rows)[:, None] & (state < K)[None, :]
    where = table + row.to(tl.int64)[:, None] * stride + state[None, :]
    value = values + place.to(tl.int64)[:, None] * width + state[None, :]
    added = tl.load(factor) * tl.load(value, mask=mask, other=0.0)
    if ATOMIC:
        tl.atomic_add(where, added.to(table.dtype.element_ty), mask=mask, sem="relaxed")
    else:
        new = tl.load(where, mask=mask, other=0.0) + added
        tl.store(where, new.to(table.dtype.element_ty), mask=mask)


@Launched
@triton.jit(do_not_specialize=["K"])
def _means_of_symbols_kernel(totals, scale, priors, gain, shift, missing, K, LANES: tl.constexpr):
    """Find gain and shift of every state, and the row that makes the potential one."""
    in_turn()
    state = tl.arange(0, LANES)
    prior = tl.load(priors)
    norm = tl.load(totals + state, mask=state < K, other=1.0) + tl.load(priors + 1)
    kind = gain.dtype.element_ty
    by = tl.load(scale)
    tl.store(gain + state, (by / norm).to(kind), mask=state < K)
    tl.store(shift + state, (prior / norm).to(kind), mask=state < K)
    tl.store(missing + state, tl.where(state < K, (norm - prior) / by, 0.0).to(kind))
