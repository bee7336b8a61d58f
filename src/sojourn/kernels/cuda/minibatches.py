"""Minibatches of symbols on a GPU: sorted by symbol, gathered, and taken out of several.

The device side follows the host side.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.symbols import Segments

_SHORTEST = tl.constexpr(64)  # rows of one symbol that are summed by one program, at least

_LONGEST = tl.constexpr(256)  # and at most: longer sums in single precision are inexact

Tensor = Any


class Minibatch(NamedTuple):
    """Everything of a minibatch of symbols that kernels take, or of several one after another.

    Attributes
    ----------
    index, places : (T,) int32 tensors
    segments : Segments
    offsets : (N + 1,) int64 tensor
    order : (N,) int64 tensor
    rates : (2,) float64 tensor
        What is kept of the statistics, and the weight of new ones.
    """

    index: Tensor
    places: Tensor
    segments: Segments
    offsets: Tensor
    order: Tensor
    rates: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors in one tuple."""
        return (*self[:2], *self.segments, *self[3:])

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Minibatch:
        """Undo `tensors`."""
        index, places, *segments, offsets, order, rates = tensors
        return cls(index, places, Segments(*segments), offsets, order, rates)


class RowBatch(NamedTuple):
    """Everything of a minibatch of rows of numbers, or of several: where their sequences are.

    Attributes
    ----------
    begins : (N,) int64 tensor
        First step of each sequence among all the data.
    offsets : (N + 1,) int64 tensor
    order : (N,) int64 tensor
    rates : (2,) float64 tensor
        As in `Minibatch`.
    """

    begins: Tensor
    offsets: Tensor
    order: Tensor
    rates: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors in one tuple."""
        return tuple(self)

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> RowBatch:
        """Undo `tensors`."""
        return cls(*tensors)


def load_rows(
    target: RowBatch, values: Tensor, window: RowBatch, source: Tensor, number: Tensor
) -> None:
    """Gather the minibatch with a number that is on the device, one of several, from all data.

    The number becomes that of the next.

    Parameters
    ----------
    target : RowBatch
        Written to, without ``begins``.
    values : (T, C) tensor
        Its rows, written to as far as the minibatch has steps.
    window : RowBatch
        The minibatches.
    source : (S, C) tensor
        All data.
    number : (2,) int64 tensor
        The number, and a zero: how many programs have read it.
    """
    n_sequences = len(target.order)
    _load_rows_kernel[(triton.cdiv(n_sequences, 4),)](
        source, *window, values, *target[1:], number, n_sequences, _columns(values),
        GROUP=4, BLOCK=128, num_warps=4,
    )  # fmt: skip


def load_minibatch(
    target: Minibatch, window: Minibatch, begins: Tensor, number: Tensor, n_symbols: int
) -> None:
    """Copy the minibatch with a number that is on the device out of several, as `load_rows` does.

    Beyond those of the minibatch symbols become `n_symbols`, which no table has.
    """
    n_sequences = len(target.order)
    capacity = max(len(tensor) for tensor in target.tensors())
    _load_minibatch_kernel[(triton.cdiv(capacity, 1024), 7)](
        *window.tensors(),
        *target.tensors(),
        begins,
        number,
        n_sequences,
        len(target.index),
        len(target.segments.symbols),
        n_symbols,
        BLOCK=1024,
        num_warps=4,
    )


class SortedSteps(NamedTuple):
    """The steps of several minibatches, each sorted by symbol.

    Attributes
    ----------
    segments : Segments
        Of all minibatches, one after another; every number counts from the beginning of its own
        minibatch; ``sizes`` is (2 B,).
    places : (T,) int32 tensor
        Place of each step's symbol among the distinct ones of its minibatch.
    begins : (B, 6) int64 tensor
        Where the steps, the pieces and the symbols of a minibatch begin, and how many there are.
        Pieces and bounds have one entry more per minibatch than there are pieces or symbols.
    layout : list
        The same, on the host.
    """

    segments: Segments
    places: Tensor
    begins: Tensor
    layout: list[list[int]]

    def batch(self, b: int) -> Segments:
        """Return the segments of one minibatch."""
        step, piece, symbol, n_steps, n_pieces, n_symbols = self.layout[b]
        return Segments(
            self.segments.steps[step : step + n_steps],
            self.segments.pieces[piece : piece + n_pieces + 1],
            self.segments.symbols[symbol : symbol + n_symbols],
            self.segments.bounds[symbol + b : symbol + b + n_symbols + 1],
            self.segments.sizes[2 * b : 2 * b + 2],
        )


def gather_sequences(values: Tensor, begins: Tensor, lengths: Tensor, n_steps: int) -> Tensor:
    """Return sequences concatenated; `n_steps` is their total number of steps.

    A step is a number, or a row of them.
    """
    ends = torch.cumsum(lengths, 0)
    out = torch.empty((n_steps, *values.shape[1:]), dtype=values.dtype, device=values.device)
    _gather_sequences_kernel[(triton.cdiv(len(lengths), 8),)](
        values, begins, lengths, ends, out, len(lengths), _columns(values),
        GROUP=8, BLOCK=32, num_warps=4,
    )  # fmt: skip
    return out


def _columns(values: Tensor) -> int:
    """Return how many numbers a step has."""
    return 1 if values.ndim == 1 else int(values.shape[1])


def find_segments(
    symbols: Tensor, batches: Tensor, n_symbols: int, largest: int | None = None
) -> SortedSteps:
    """Sort the steps of several minibatches by symbol.  The host waits for the sizes.

    Parameters
    ----------
    symbols : (T,) int32 tensor
        Symbols of all steps, the missing one as `n_symbols`.
    batches : (B + 1,) int64 tensor
        Minibatch b has the steps ``batches[b]:batches[b + 1]``, at least one.
    largest : int, optional
        The largest number of steps of a minibatch, if known.
    """
    n_steps, n_batches, device = len(symbols), len(batches) - 1, symbols.device
    n_keys = n_symbols + 1

    def empty(n: int, dtype: Any = torch.int32) -> Tensor:
        return torch.empty(n, dtype=dtype, device=device)

    # One minibatch after another: what is written here and there in one stays in the cache.
    n_tiles = triton.cdiv(int(largest or n_steps), 1024)
    by_batch, by_step = (n_batches * n_tiles,), (triton.cdiv(n_steps, 1024),)
    options = {"BLOCK": 1024, "num_warps": 4}
    # Half the work to sort, if they fit.
    keys = empty(n_steps, torch.int32 if n_batches * n_keys < 2**31 else torch.int64)
    _make_keys_kernel[by_batch](symbols, batches, keys, n_keys, n_tiles, **options)
    # Minibatches stay where they are.
    keys, order = torch.sort(keys, stable=True)
    marks = empty(n_steps, torch.int8)
    _mark_segments_kernel[by_step](keys, marks, n_steps, **options)
    segments = torch.cumsum(marks, 0, dtype=torch.int32)
    begins, distinct = empty(n_steps), empty(n_steps)
    _begin_segments_kernel[by_batch](
        keys, batches, segments, begins, distinct, n_keys, n_tiles, **options
    )
    _mark_pieces_kernel[by_batch](segments, batches, begins, marks, n_tiles, **options)
    numbers = torch.cumsum(marks, 0, dtype=torch.int32)
    steps, places, sizes = empty(n_steps), empty(n_steps), empty(2 * n_batches)
    pieces, bounds = empty(n_steps + n_batches), empty(n_steps + n_batches)
    layout = torch.zeros((n_batches, 6), dtype=torch.int64, device=device)
    _write_pieces_kernel[by_batch](
        order, batches, segments, numbers, steps, places, pieces, bounds, sizes, layout, n_tiles,
        **options,
    )  # fmt: skip
    on_host = layout.tolist()
    _, piece, symbol, _, n_pieces, n_distinct = on_host[-1]
    found = Segments(
        steps,
        pieces[: piece + n_pieces + 1],
        distinct[: symbol + n_distinct],
        bounds[: symbol + n_distinct + n_batches],
        sizes,
    )
    return SortedSteps(found, places, layout, on_host)


# ---- device side ---------------------------------------------------------------------------------


@Launched
@triton.jit(do_not_specialize=["n_sequences", "n_columns"])
def _gather_sequences_kernel(
    values, begins, lengths, ends, out, n_sequences, n_columns,
    GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy some sequences, each from where it begins, one after another."""
    in_turn()
    place = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    there = place < n_sequences
    n = tl.load(lengths + place, mask=there, other=0) * n_columns
    source = tl.load(begins + place, mask=there, other=0) * n_columns
    target = tl.load(ends + place, mask=there, other=0) * n_columns - n
    for begin in range(0, tl.max(n, axis=0), BLOCK):
        step = begin + tl.arange(0, BLOCK)[None, :]
        mask = step < n[:, None]
        value = tl.load(values + source[:, None] + step, mask=mask, other=0)
        tl.store(out + target[:, None] + step, value, mask=mask)


@Launched
@triton.jit(do_not_specialize=["n_keys", "n_tiles"])
def _make_keys_kernel(symbols, batches, keys, n_keys, n_tiles, BLOCK: tl.constexpr):
    """Number the symbols of a minibatch apart from those of others."""
    in_turn()
    batch, tile = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles
    at = tl.load(batches + batch) + tile * BLOCK + tl.arange(0, BLOCK)
    mask = at < tl.load(batches + batch + 1)
    symbol = tl.load(symbols + at, mask=mask, other=0)
    key = batch.to(keys.dtype.element_ty) * n_keys + symbol
    tl.store(keys + at, key, mask=mask)


@Launched
@triton.jit(do_not_specialize=["n"])
def _mark_segments_kernel(keys, marks, n, BLOCK: tl.constexpr):
    """Mark the first of equal keys."""
    in_turn()
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < n, other=0)
    before = tl.load(keys + at - 1, mask=(at < n) & (at > 0), other=-1)
    tl.store(marks + at, (key != before).to(tl.int8), mask=at < n)


@Launched
@triton.jit(do_not_specialize=["n_keys", "n_tiles"])
def _begin_segments_kernel(
    keys, batches, segments, begins, symbols, n_keys, n_tiles, BLOCK: tl.constexpr
):
    """Note where each segment begins, and its symbol."""
    in_turn()
    batch, tile = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles
    at = tl.load(batches + batch) + tile * BLOCK + tl.arange(0, BLOCK)
    mask = at < tl.load(batches + batch + 1)
    segment = tl.load(segments + at, mask=mask, other=0)
    before = tl.load(segments + at - 1, mask=mask & (at > 0), other=0)
    is_new = mask & (segment != before)
    key = tl.load(keys + at, mask=is_new, other=0)
    tl.store(begins + segment - 1, at.to(tl.int32), mask=is_new)
    symbol = key - batch.to(keys.dtype.element_ty) * n_keys
    tl.store(symbols + segment - 1, symbol.to(tl.int32), mask=is_new)


@Launched
@triton.jit(do_not_specialize=["n_tiles"])
def _mark_pieces_kernel(segments, batches, begins, marks, n_tiles, BLOCK: tl.constexpr):
    """Mark every so many steps of a segment.

    A symbol that has an eighth of a minibatch has about as many pieces as these have steps.
    """
    in_turn()
    batch, tile = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles
    first, end = tl.load(batches + batch), tl.load(batches + batch + 1)
    length = _SHORTEST
    for _ in tl.static_range(2):
        longer = (length < _LONGEST) & (8 * (2 * length) * (2 * length) <= end - first)
        length = tl.where(longer, 2 * length, length)
    at = first + tile * BLOCK + tl.arange(0, BLOCK)
    segment = tl.load(segments + at, mask=at < end, other=1)
    begin = tl.load(begins + segment - 1, mask=at < end, other=0)
    tl.store(marks + at, ((at - begin) % length == 0).to(tl.int8), mask=at < end)


@Launched
@triton.jit(do_not_specialize=["n_tiles"])
def _write_pieces_kernel(
    order,
    batches,
    segments,
    numbers,
    steps,
    places,
    pieces,
    bounds,
    sizes,
    layout,
    n_tiles,
    BLOCK: tl.constexpr,
):
    """Write down the steps, pieces and segments of a minibatch, counted from its own beginning."""
    in_turn()
    batch, tile = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles
    begin = tl.load(batches + batch)
    end = tl.load(batches + batch + 1)
    first_segment = tl.load(segments + begin) - 1
    first_piece = tl.load(numbers + begin) - 1
    at = begin + tile * BLOCK + tl.arange(0, BLOCK)
    mask = at < end
    segment = tl.load(segments + at, mask=mask, other=0) - 1
    piece = tl.load(numbers + at, mask=mask, other=0) - 1
    earlier = mask & (at > begin)
    is_segment = mask & (segment != tl.load(segments + at - 1, mask=earlier, other=0) - 1)
    is_piece = mask & (piece != tl.load(numbers + at - 1, mask=earlier, other=0) - 1)
    step = tl.load(order + at, mask=mask, other=0)
    tl.store(steps + at, (step - begin).to(tl.int32), mask=mask)
    tl.store(places + step, segment - first_segment, mask=mask)
    tl.store(pieces + piece + batch, (at - begin).to(tl.int32), mask=is_piece)
    tl.store(bounds + segment + batch, piece - first_piece, mask=is_segment)
    is_last = at == end - 1
    n_pieces = piece + 1 - first_piece
    n_segments = segment + 1 - first_segment
    tl.store(pieces + piece + 1 + batch, (end - begin + at * 0).to(tl.int32), mask=is_last)
    tl.store(bounds + segment + 1 + batch, n_pieces, mask=is_last)
    tl.store(sizes + 2 * batch + at * 0, n_pieces, mask=is_last)
    tl.store(sizes + 2 * batch + 1 + at * 0, n_segments, mask=is_last)
    row = layout + 6 * batch + at * 0
    tl.store(row, begin + at * 0, mask=is_last)
    tl.store(row + 1, (first_piece + batch + at * 0).to(tl.int64), mask=is_last)
    tl.store(row + 2, (first_segment + at * 0).to(tl.int64), mask=is_last)
    tl.store(row + 3, end - begin + at * 0, mask=is_last)
    tl.store(row + 4, n_pieces.to(tl.int64), mask=is_last)
    tl.store(row + 5, n_segments.to(tl.int64), mask=is_last)


@triton.jit
def _count_up(number, read):
    """Make a number that all programs have read the next, in the last program to get here."""
    tl.debug_barrier()  # all threads are here
    n_programs = tl.num_programs(0) * tl.num_programs(1)
    if tl.atomic_add(number + 1, 1, sem="relaxed") == n_programs - 1:
        tl.store(number + 1, 0)
        tl.store(number, read + 1)


@triton.jit
def _copy_part(source, begin, target, n, BLOCK: tl.constexpr):
    """Copy this program's part of an array."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + begin + at, mask=at < n, other=0), mask=at < n)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "step_capacity", "symbol_capacity", "n_symbols_in_all"],
    do_not_specialize_on_alignment=[
        "index",
        "steps",
        "pieces",
        "symbols",
        "bounds",
        "sizes",
        "offsets",
        "order",
    ],
)
def _load_minibatch_kernel(
    index, places, steps, pieces, symbols, bounds, sizes, offsets, order, rates,
    to_index, to_places, to_steps, to_pieces, to_symbols, to_bounds, to_sizes, to_offsets,
    to_order, to_rates, begins, number, n_sequences, step_capacity, symbol_capacity,
    n_symbols_in_all, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy one minibatch out of several."""
    in_turn()
    b = tl.load(number)
    row = begins + b * 6
    step = tl.load(row)
    piece = tl.load(row + 1)
    symbol = tl.load(row + 2)
    n_steps = tl.load(row + 3)
    n_pieces = tl.load(row + 4)
    n_symbols = tl.load(row + 5)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    which = tl.program_id(1)
    if which == 0:
        found = tl.load(index + step + at, mask=at < n_steps, other=0)
        found = tl.where(at < n_steps, found, n_symbols_in_all)
        tl.store(to_index + at, found, mask=at < step_capacity)
    elif which == 1:
        _copy_part(places, step, to_places, n_steps, BLOCK)
    elif which == 2:
        _copy_part(steps, step, to_steps, n_steps, BLOCK)
    elif which == 3:
        _copy_part(pieces, piece, to_pieces, n_pieces + 1, BLOCK)
        _copy_part(sizes, b * 2, to_sizes, 2, BLOCK)
    elif which == 4:
        found = tl.load(symbols + symbol + at, mask=at < n_symbols, other=0)
        found = tl.where(at < n_symbols, found, n_symbols_in_all)
        tl.store(to_symbols + at, found, mask=at < symbol_capacity)
    elif which == 5:
        _copy_part(bounds, symbol + b, to_bounds, n_symbols + 1, BLOCK)
        _copy_part(rates, b * 2, to_rates, 2, BLOCK)
    else:
        _copy_part(offsets, b * (n_sequences + 1), to_offsets, n_sequences + 1, BLOCK)
        _copy_part(order, b * n_sequences, to_order, n_sequences, BLOCK)
    _count_up(number, b)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_columns"],
    do_not_specialize_on_alignment=["begins", "offsets", "order", "rates"],
)
def _load_rows_kernel(
    source, begins, offsets, order, rates, values, to_offsets, to_order, to_rates, number,
    n_sequences, n_columns,
    GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy some sequences of a minibatch, and what is known of them."""
    in_turn()
    b = tl.load(number)
    place = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    there = place < n_sequences
    here = offsets + b * (n_sequences + 1) + place
    begin = tl.load(here, mask=there, other=0)
    end = tl.load(here + 1, mask=there, other=0)
    row = tl.load(begins + b * n_sequences + place, mask=there, other=0)
    tl.store(to_offsets + place, begin, mask=there)
    tl.store(to_offsets + place + 1, end, mask=place == n_sequences - 1)
    tl.store(to_order + place, tl.load(order + b * n_sequences + place, mask=there), mask=there)
    which = tl.arange(0, 2)
    tl.store(
        to_rates + which, tl.load(rates + b * 2 + which), mask=tl.program_id(0) + which * 0 == 0
    )
    n = (end - begin) * n_columns
    for first in range(0, tl.max(n, axis=0), BLOCK):
        at = first + tl.arange(0, BLOCK)[None, :]
        mask = at < n[:, None]
        found = tl.load(source + (row * n_columns)[:, None] + at, mask=mask, other=0.0)
        tl.store(values + (begin * n_columns)[:, None] + at, found, mask=mask)
    _count_up(number, b)
