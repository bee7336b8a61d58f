"""Minibatches of symbols on a GPU: sorted by symbol, gathered, and taken out of several.

The device side follows the host side.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.symbols import SHORTEST_SPAN, Segments, span_of

Tensor = Any


class Minibatch(NamedTuple):
    """Everything of a minibatch of symbols that kernels take, or of several one after another.

    Attributes
    ----------
    index : (T,) int32 tensor
    segments : Segments
    offsets : (N + 1,) int64 tensor
    order : (N,) int64 tensor
    rates : (2,) float64 tensor
        What is kept of the statistics, and the weight of new ones.
    """

    index: Tensor
    segments: Segments
    offsets: Tensor
    order: Tensor
    rates: Tensor

    def tensors(self) -> tuple[Tensor, ...]:
        """Return all tensors in one tuple."""
        return (self.index, *self.segments, *self[2:])

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Minibatch:
        """Undo `tensors`."""
        index, *segments, offsets, order, rates = tensors
        return cls(index, Segments(*segments), offsets, order, rates)


class RowBatch(NamedTuple):
    """Everything of a minibatch of rows of numbers but the rows: where their sequences are.

    Attributes
    ----------
    offsets : (N + 1,) int64 tensor
    order : (N,) int64 tensor
    rates : (2,) float64 tensor
        As in `Minibatch`.
    """

    offsets: Tensor
    order: Tensor
    rates: Tensor


def addresses(tensors: Iterable[Tensor]) -> NDArray[np.int64]:
    """Return where tensors are on the device, from where `load_minibatch` takes a minibatch."""
    return np.array([tensor.data_ptr() for tensor in tensors])


def load_rows(
    target: RowBatch, values: Tensor, window: Tensor, source: Tensor, number: Tensor
) -> None:
    """Gather the minibatch with a number that is on the device, one of several, from all data.

    The next launch gathers the next one.

    Parameters
    ----------
    target : RowBatch
    values : (T, C) tensor
        Its rows, written to as far as the minibatch has steps.
    window : (4,) int64 tensor
        Addresses of where sequences begin among all data, and of `RowBatch` of all minibatches.
    source : (S, C) tensor
        All data.
    number : (2,) int32 tensor
        The number, and a zero, at first: how many programs are done.
    """
    n_sequences = len(target.order)
    _load_rows_kernel[(triton.cdiv(n_sequences, 4),)](
        source, window, values, *target, number, n_sequences, _columns(values),
        GROUP=4, BLOCK=128, num_warps=4,
    )  # fmt: skip


def load_minibatch(target: Minibatch, window: Tensor, number: Tensor, n_symbols: int) -> None:
    """Copy the minibatch with a number that is on the device out of several, as `load_rows` does.

    Beyond those of the minibatch symbols become `n_symbols`, which no table has.

    Parameters
    ----------
    target : Minibatch
    window : (10,) int64 tensor
        Addresses of the tensors of the minibatches, a `Minibatch`, and of ``SortedSteps.begins``.
    number : (2,) int32 tensor
    n_symbols : int
    """
    segments, block = target.segments, 1024
    parts = (target.index, *segments[:4], target.offsets)
    *ends, n_programs = itertools.accumulate(triton.cdiv(len(part), block) for part in parts)
    _load_minibatch_kernel[(n_programs,)](
        window, *target.tensors(), number, len(target.order), len(target.index),
        len(segments.symbols), n_symbols, *ends, BLOCK=block, num_warps=4,
    )  # fmt: skip


class SortedSteps(NamedTuple):
    """The steps of several minibatches, each sorted by symbol.

    Attributes
    ----------
    segments : Segments
        Of all minibatches, one after another; every number counts from the beginning of its own
        minibatch; ``sizes`` is (2 B,).
    begins : (B, 4) int64 tensor
        Where the steps and the symbols of a minibatch begin, and how many there are.  Bounds have
        one entry more per minibatch than there are symbols; spans begin at `_first_span`.
    layout : list
        The same, on the host.
    """

    segments: Segments
    begins: Tensor
    layout: list[list[int]]

    def batch(self, b: int) -> Segments:
        """Return the segments of one minibatch."""
        step, symbol, n_steps, n_symbols = self.layout[b]
        span = step // SHORTEST_SPAN.value + b
        return Segments(
            self.segments.steps[step : step + n_steps],
            self.segments.spans[span : span + triton.cdiv(n_steps, SHORTEST_SPAN.value)],
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
    marks = empty(n_steps)  # as they are summed, so that they are not copied before
    _mark_segments_kernel[by_step](keys, marks, n_steps, **options)
    segments, distinct = torch.cumsum(marks, 0, dtype=torch.int32), empty(n_steps)
    _mark_pieces_kernel[by_batch](
        keys, batches, segments, marks, distinct, n_keys, n_tiles, **options
    )
    numbers = torch.cumsum(marks, 0, dtype=torch.int32)
    steps, bounds, sizes = empty(n_steps), empty(n_steps + n_batches), empty(2 * n_batches)
    spans = empty(n_steps // SHORTEST_SPAN.value + n_batches)
    layout = torch.zeros((n_batches, 4), dtype=torch.int64, device=device)
    _write_steps_kernel[by_batch](
        order, batches, segments, numbers, steps, spans, bounds, sizes, layout, n_tiles, **options
    )
    on_host = layout.tolist()
    n_distinct = on_host[-1][1] + on_host[-1][3]
    found = Segments(steps, spans, distinct[:n_distinct], bounds[: n_distinct + n_batches], sizes)
    return SortedSteps(found, layout, on_host)


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
    tl.store(marks + at, (key != before).to(tl.int32), mask=at < n)


@Launched
@triton.jit(do_not_specialize=["n_keys", "n_tiles"])
def _mark_pieces_kernel(
    keys, batches, segments, marks, symbols, n_keys, n_tiles, BLOCK: tl.constexpr
):
    """Mark where segments and spans begin, and note the symbols of segments."""
    in_turn()
    batch, tile = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles
    begin, end = tl.load(batches + batch), tl.load(batches + batch + 1)
    at = begin + tile * BLOCK + tl.arange(0, BLOCK)
    mask = at < end
    segment = tl.load(segments + at, mask=mask, other=0)
    before = tl.load(segments + at - 1, mask=mask & (at > begin), other=0)
    is_new = mask & ((segment != before) | (at == begin))
    key = tl.load(keys + at, mask=is_new, other=0)
    symbol = key - batch.to(keys.dtype.element_ty) * n_keys
    tl.store(symbols + segment - 1, symbol.to(tl.int32), mask=is_new)
    is_piece = is_new | ((at - begin) % span_of(end - begin) == 0)
    tl.store(marks + at, is_piece.to(tl.int32), mask=mask)


@triton.jit
def _first_span(begin, batch):
    """Return where the spans of a minibatch begin: others before it have no more than so many."""
    return begin // SHORTEST_SPAN + batch


@Launched
@triton.jit(do_not_specialize=["n_tiles"])
def _write_steps_kernel(
    order,
    batches,
    segments,
    numbers,
    steps,
    spans,
    bounds,
    sizes,
    layout,
    n_tiles,
    BLOCK: tl.constexpr,
):
    """Write down the steps, spans and segments of a minibatch, counted from its own beginning."""
    in_turn()
    batch, tile = tl.program_id(0) // n_tiles, tl.program_id(0) % n_tiles
    begin, end = tl.load(batches + batch), tl.load(batches + batch + 1)
    first_segment = tl.load(segments + begin) - 1
    first_piece = tl.load(numbers + begin) - 1
    at = begin + tile * BLOCK + tl.arange(0, BLOCK)
    mask = at < end
    segment = tl.load(segments + at, mask=mask, other=0) - 1
    number = tl.load(numbers + at, mask=mask, other=0) - 1
    following = tl.load(numbers + at + 1, mask=at + 1 < end, other=0) - 1
    step = (tl.load(order + at, mask=mask, other=0) - begin).to(tl.int32)
    tl.store(steps + at, tl.where(number != following, ~step, step), mask=mask)
    piece, span = number - first_piece, span_of(end - begin)
    is_span = mask & ((at - begin) % span == 0)
    tl.store(spans + _first_span(begin, batch) + (at - begin) // span, piece, mask=is_span)
    before = tl.load(segments + at - 1, mask=mask & (at > begin), other=0) - 1
    tl.store(bounds + segment + batch, piece, mask=mask & ((segment != before) | (at == begin)))
    is_last = at == end - 1
    n_segments = segment + 1 - first_segment
    tl.store(bounds + segment + 1 + batch, piece + 1, mask=is_last)
    tl.store(sizes + 2 * batch + at * 0, (end - begin + at * 0).to(tl.int32), mask=is_last)
    tl.store(sizes + 2 * batch + 1 + at * 0, n_segments, mask=is_last)
    row = layout + 4 * batch + at * 0
    tl.store(row, begin + at * 0, mask=is_last)
    tl.store(row + 1, (first_segment + at * 0).to(tl.int64), mask=is_last)
    tl.store(row + 2, end - begin + at * 0, mask=is_last)
    tl.store(row + 3, n_segments.to(tl.int64), mask=is_last)


@triton.jit
def _number_of(number):
    """Return the number of the minibatch: as many came before as all programs were done with.

    Those of this launch that are done change nothing, as this one is not.
    """
    return (tl.load(number) + tl.load(number + 1) // tl.num_programs(0)).to(tl.int64)


@triton.jit
def _count_up(number):
    """Say that this program is done."""
    tl.debug_barrier()  # all of its threads have read the number
    tl.atomic_add(number + 1, 1, sem="relaxed")


@triton.jit
def _numbers_at(addresses, which, kind: tl.constexpr):
    """Point at the tensor that has one of the addresses."""
    return tl.load(addresses + which).to(tl.pointer_type(kind))


@triton.jit
def _copy_part(source, begin, target, n, at):
    """Copy some numbers of an array."""
    tl.store(target + at, tl.load(source + begin + at, mask=at < n, other=0), mask=at < n)


@Launched
@triton.jit(
    do_not_specialize=[
        *("n_sequences", "step_capacity", "symbol_capacity", "n_symbols_in_all"),
        *("index_end", "steps_end", "spans_end", "symbols_end", "bounds_end"),
    ],
    do_not_specialize_on_alignment=[
        *("index", "steps", "spans", "symbols", "bounds", "sizes", "offsets", "order"),
    ],
)
def _load_minibatch_kernel(
    window, index, steps, spans, symbols, bounds, sizes, offsets, order, rates, number,
    n_sequences, step_capacity, symbol_capacity, n_symbols_in_all,
    index_end, steps_end, spans_end, symbols_end, bounds_end, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy one minibatch out of several: each program a part of one array."""
    in_turn()
    # What does not depend on other numbers is read first.
    b = _number_of(number)
    begins = _numbers_at(window, 9, tl.int64)
    program = tl.program_id(0)
    which = (program >= index_end).to(tl.int32) + (program >= steps_end) + (program >= spans_end)
    which += (program >= symbols_end).to(tl.int32) + (program >= bounds_end)
    source = _numbers_at(window, which, tl.int32)  # the last is that of sizes
    row = begins + b * 4
    step = tl.load(row)
    symbol = tl.load(row + 1)
    n_steps = tl.load(row + 2)
    n_symbols = tl.load(row + 3)
    at = tl.arange(0, BLOCK)
    if which == 0:
        at += program * BLOCK
        found = tl.load(source + step + at, mask=at < n_steps, other=0)
        found = tl.where(at < n_steps, found, n_symbols_in_all)
        tl.store(index + at, found, mask=at < step_capacity)
    elif which == 1:
        _copy_part(source, step, steps, n_steps, at + (program - index_end) * BLOCK)
    elif which == 2:
        at += (program - steps_end) * BLOCK
        n_spans = tl.cdiv(n_steps, span_of(n_steps))
        _copy_part(source, _first_span(step, b), spans, n_spans, at)
    elif which == 3:
        at += (program - spans_end) * BLOCK
        found = tl.load(source + symbol + at, mask=at < n_symbols, other=0)
        found = tl.where(at < n_symbols, found, n_symbols_in_all)
        tl.store(symbols + at, found, mask=at < symbol_capacity)
    elif which == 4:
        at += (program - symbols_end) * BLOCK
        _copy_part(source, symbol + b, bounds, n_symbols + 1, at)
    else:
        at += (program - bounds_end) * BLOCK
        begin = b * n_sequences
        _copy_part(source, b * 2, sizes, 2, at)
        _copy_part(_numbers_at(window, 6, tl.int64), begin + b, offsets, n_sequences + 1, at)
        _copy_part(_numbers_at(window, 7, tl.int64), begin, order, n_sequences, at)
        _copy_part(_numbers_at(window, 8, tl.float64), b * 2, rates, 2, at)
    _count_up(number)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_columns"],
    do_not_specialize_on_alignment=["to_offsets", "to_order", "to_rates"],
)
def _load_rows_kernel(
    source, window, values, to_offsets, to_order, to_rates, number,
    n_sequences, n_columns,
    GROUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Copy some sequences of a minibatch, and what is known of them."""
    in_turn()
    b = _number_of(number)
    begins, offsets = _numbers_at(window, 0, tl.int64), _numbers_at(window, 1, tl.int64)
    order, rates = _numbers_at(window, 2, tl.int64), _numbers_at(window, 3, tl.float64)
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
    _count_up(number)
