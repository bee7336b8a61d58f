"""Forward-backward on a GPU, in Triton, on PyTorch tensors.

The signatures are those of `sojourn.kernels.cpu`, with tensors for arrays.  Nothing here makes the
host wait for the device.

Up to `NARROW` states one program works on one sequence in one direction.  A thread has a column of
the transition matrix in its registers, and reads the message of the step before from memory that is
in the cache: plain multiply-adds in full single precision, with a short chain of dependent
operations a step.  Forward and backward are the same recursion,

    x_t = φ_t ∘ v_t,   v_{t+1} = x_t M / Σ x_t,

with M = θ and v_1 = θ_0 forward, and M = θᵀ and v = 1 backward, and run side by side.  What they
leave is combined afterwards, where all steps are independent:

    q(z_t) ∝ v_t ∘ e_t,   q(z_{t−1}, z_t) ∝ α_{t−1} θ e_t,

with α and v from forward and e from backward.  Beyond, a program works on a block of sequences with
matrix products of tiles.

With ``TRITON_INTERPRET=1`` the same code runs on the CPU, slowly, for tests.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from sojourn.kernels.interface import Absences, Potentials, Smoothed, padded_states
from sojourn.kernels.reference import SMALLEST_ABSENCE

NARROW = 128
"""Largest number of states whose transition matrix stays in registers."""

_HALF_WARP = 48  # states up to which half a warp has room for it, in single precision

SUMS = "sorted"
"""How responsibilities are summed by symbol.  "sorted": steps of a symbol in a fixed order, the
same bits every time.  "atomic": in the order in which they are done, other last bits every time."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether kernels run on the CPU, by Triton's interpreter."""

_SPANS = 256  # spans of steps whose expected transitions are summed apart, if they stay short
_MOST_ROWS = 512  # steps of a span: longer sums in single precision are inexact
_PIECE = 16  # rows of one symbol that are summed together

Tensor = Any


class AffineTable(NamedTuple):
    """Emission potentials ``rows * gain + shift``, computed as they are read.

    Attributes
    ----------
    rows : (S, W) tensor
        One row a symbol; columns beyond K are not read.
    gain, shift : (K,) tensors
    """

    rows: Tensor
    gain: Tensor
    shift: Tensor


class Segments(NamedTuple):
    """The steps of a batch sorted by symbol, for sums in a fixed order.

    A symbol's steps are cut into pieces of at most 16.  Tensors may be longer than needed.

    Attributes
    ----------
    steps : (T,) int32 tensor
        Steps, sorted by symbol.
    pieces : (P + 1,) int32 tensor
        Piece p is ``steps[pieces[p]:pieces[p + 1]]``.
    symbols : (U,) int32 tensor
        The distinct symbols; a missing one is as large as the alphabet.
    bounds : (U + 1,) int32 tensor
        The pieces of symbol u are ``bounds[u]:bounds[u + 1]``.
    sizes : (2,) int32 tensor
        P and U.
    """

    steps: Tensor
    pieces: Tensor
    symbols: Tensor
    bounds: Tensor
    sizes: Tensor


# ---- the kernel signature -----------------------------------------------------------------------


def forward_backward(
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    *,
    absences: bool = False,
    n_threads: int = 1,
    order: Tensor | None = None,
) -> Smoothed:
    """Compute posterior expectations of every sequence.

    Parameters
    ----------
    potentials : Potentials
        Tensors; ``emissions`` is a table or an `AffineTable`.
    index : (T,) int32 tensor
        Row of the emission table for each step; one beyond the table stands for a missing
        observation, whose potential is one.  Up to `NARROW` states it may be longer than the
        sequences are.
    offsets : (N + 1,) int64 tensor
    absences : bool
        Whether to collect the sums of log(1 − q).
    n_threads : int
        Part of the signature.
    order : (N,) tensor, optional
        The sequences, longest first; found here where not given.

    Returns
    -------
    Smoothed
        Tensors.  A sequence without a possible path adds nothing; its log normaliser is not finite.
    """
    if is_narrow(len(potentials.start), _affine(potentials)[0].dtype):
        return _narrow(potentials, index, offsets, order, absences=absences)
    return _wide(potentials, index, offsets, absences=absences)


def log_normalizers(
    potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
) -> Tensor:
    """Compute log Z of every sequence; arguments as for `forward_backward`."""
    if is_narrow(len(potentials.start), _affine(potentials)[0].dtype):
        return _narrow_chains(potentials, index, offsets, None, both=False).log_z
    packed = _Packed.of(offsets)
    return _wide_chains(potentials, index[packed.steps], packed, both=False).log_z[packed.places]


def viterbi(
    potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
) -> tuple[Tensor, Tensor]:
    """Find the best path of every sequence; ties go to the lower state.

    Returns
    -------
    log_potential : (N,) float64 tensor
    path : (T,) int32 tensor
    """
    rows, gain, shift = _affine(potentials)
    n_states, n_sequences, n_steps = len(potentials.start), len(offsets) - 1, len(index)
    tile = min(max(16, triton.next_power_of_2(n_states)), 64)
    width = triton.cdiv(n_states, tile) * tile
    device = index.device
    scores = torch.full((n_sequences, 2, width), -torch.inf, dtype=torch.float64, device=device)
    came_from = torch.empty((n_steps, width), dtype=torch.int16, device=device)
    best = torch.empty(n_sequences, dtype=torch.float64, device=device)
    path = torch.empty(n_steps, dtype=torch.int32, device=device)
    matrix = _padded(potentials.transitions.double(), width, width).log()
    start = _padded(potentials.start.double()[None], 1, width).log()
    _viterbi[(n_sequences,)](
        matrix,
        start,
        rows,
        gain,
        shift,
        potentials.log_scale,
        index,
        offsets,
        scores,
        came_from,
        best,
        path,
        len(rows),
        rows.stride(0),
        K=n_states,
        W=width,
        TILE=tile,
        SCALED=potentials.log_scale is not None,
        num_warps=4,
    )
    return best, path


def sum_by_symbol(segments: Segments, rows: Tensor, n_symbols: int) -> Tensor:
    """Sum rows (T, K) by symbol in a fixed order, shape (U, K) in double precision.

    Rows of the result that belong to no symbol, or to the missing one, are zero.
    """
    n_states = rows.shape[1]
    block = min(max(16, triton.next_power_of_2(n_states)), 64)
    n_pieces, n_segments = len(segments.pieces) - 1, len(segments.symbols)
    partial = torch.empty((n_pieces, n_states), dtype=rows.dtype, device=rows.device)
    out = torch.empty((n_segments, n_states), dtype=torch.float64, device=rows.device)
    columns = triton.cdiv(n_states, block)
    sizes = {"K": n_states, "BLOCK": block, "PIECE": _PIECE, "GROUP": 4}
    _sum_pieces[(triton.cdiv(n_pieces, 4), columns)](
        segments.steps,
        segments.pieces,
        segments.sizes,
        rows,
        rows.stride(0),
        partial,
        **sizes,
        num_warps=4,
    )
    _sum_segments[(triton.cdiv(n_segments, 4), columns)](
        segments.symbols,
        segments.bounds,
        segments.sizes,
        partial,
        out,
        n_symbols,
        n_segments,
        **sizes,
        num_warps=4,
    )
    return out


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
    _sum_columns[(n_groups, columns)](
        rows, rows.stride(0), symbols, n_symbols, partial, n_rows, 64, **sizes
    )
    _sum_columns[(1, columns)](partial, n_states, None, 0, out, n_groups, n_groups, **sizes)
    return out


def add_rows(table: Tensor, rows: Tensor | None, values: Tensor, factor: Tensor) -> None:
    """Do ``table[rows] += factor * values``; rows beyond the table are left out."""
    n_states = values.shape[1]
    if rows is None:
        table[:, :n_states] += factor * values
        return
    block = min(max(16, triton.next_power_of_2(n_states)), 64)
    _add_rows[(triton.cdiv(len(rows), 8), triton.cdiv(n_states, block))](
        table,
        table.stride(0),
        len(table),
        rows,
        len(rows),
        values,
        values.stride(0),
        factor,
        K=n_states,
        BLOCK=block,
        GROUP=8,
        ATOMIC=SUMS == "atomic",
        num_warps=4,
    )


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
        """Return all of them in a row."""
        return (*self[:2], *self.segments, *self[3:])

    @classmethod
    def of(cls, tensors: Iterable[Tensor]) -> Minibatch:
        """Undo `tensors`."""
        index, places, *segments, offsets, order, rates = tensors
        return cls(index, places, Segments(*segments), offsets, order, rates)


def load_minibatch(
    target: Minibatch, window: Minibatch, begins: Tensor, number: Tensor, n_symbols: int
) -> None:
    """Copy the minibatch with a number that is on the device out of several.

    Beyond those of the minibatch symbols become `n_symbols`, which no table has.
    """
    n_sequences = len(target.order)
    capacity = max(len(tensor) for tensor in target.tensors())
    _load_minibatch[(triton.cdiv(capacity, 1024), 7)](
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


def rescale_rows(table: Tensor, factor: Tensor) -> None:
    """Multiply a table by a factor; by one nothing is done."""
    n, block = table.numel(), 1024
    programs = min(triton.cdiv(n, block), 1024)
    _rescale[(programs,)](table, factor, n, BLOCK=block, num_warps=4)


def row_potentials(
    start: Tensor,
    transitions: Tensor,
    total: Tensor | None,
    counts: tuple[Tensor, Tensor],
    dtype: Any,
) -> tuple[Tensor, Tensor]:
    """Return prior counts plus expected counts, normalised, eq (1): (K,), and (2, K, K).

    The matrix comes with its transpose behind it.  ``transitions`` may be one row for all.
    """
    n_states = len(start)
    dtype = getattr(torch, np.dtype(dtype).name)
    out_start = torch.empty(n_states, dtype=dtype, device=start.device)
    out = torch.empty((2, n_states, n_states), dtype=dtype, device=start.device)
    _row_potentials[(n_states + 1,)](
        start,
        transitions,
        total,
        *counts,
        out_start,
        out,
        K=n_states,
        LANES=triton.next_power_of_2(n_states),
        ONE_ROW=transitions.ndim == 1,
        num_warps=1 if n_states <= 128 else 4,
    )
    return out_start, out


def blend_counts(
    counts: tuple[Tensor, Tensor], sums: tuple[Tensor, Tensor], rates: Tensor
) -> tuple[Tensor, Tensor]:
    """Return ``keep * counts + weight * sums`` for start and transitions."""
    out = tuple(torch.empty_like(part) for part in counts)
    n = counts[1].numel()
    _blend_counts[(triton.cdiv(n, 256),)](
        *counts, *sums, *out, rates, len(counts[0]), n, BLOCK=256, num_warps=4
    )
    return out[0], out[1]


def decay(totals: Tensor, added: Tensor, scale: Tensor, rates: Tensor, smallest: float) -> Tensor:
    """Blend the totals of a table and multiply its scale, in place.

    Returns
    -------
    (2,) float64 tensor
        What rows that are added are to be multiplied by, and what all rows are, because the scale
        was too small and has become one.
    """
    factors = torch.empty(2, dtype=torch.float64, device=scale.device)
    _decay[(1,)](
        totals, added, scale, rates, factors, smallest, len(totals),
        LANES=triton.next_power_of_2(len(totals)), num_warps=1,
    )  # fmt: skip
    return factors


def means_of_symbols(
    totals: Tensor, scale: Tensor, prior: float, prior_total: float, dtype: Any
) -> tuple[Tensor, Tensor]:
    """Return gain and shift with which a row of the table becomes posterior means, eq (2)."""
    gain, shift = torch.empty((2, len(totals)), dtype=dtype, device=totals.device)
    _means_of_symbols[(1,)](
        totals, scale, prior, prior_total, gain, shift, len(totals),
        LANES=triton.next_power_of_2(len(totals)), num_warps=1,
    )  # fmt: skip
    return gain, shift


def as_rates(keep: Any, weight: Any, like: Tensor) -> Tensor:
    """Return the two rates as one (2,) tensor; those of a recorded step are one already."""
    if isinstance(keep, torch.Tensor):
        assert keep._base is not None and keep._base.shape == (2,), "views of one tensor"
        return keep._base
    return torch.tensor([keep, weight], dtype=torch.float64, device=like.device)


def note(log_z: Tensor, failures: Tensor) -> Tensor:
    """Count values that are not finite, and return the sum of all."""
    out = torch.empty((), dtype=torch.float64, device=log_z.device)
    _note[(1,)](log_z, failures, out, len(log_z), BLOCK=4096, num_warps=16)
    return out


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
        Pieces and bounds have one entry more a minibatch than there are pieces or symbols.
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


def find_segments(symbols: Tensor, batches: Tensor, n_symbols: int) -> SortedSteps:
    """Sort the steps of several minibatches by symbol.  The host waits for the sizes.

    Parameters
    ----------
    symbols : (T,) int tensor
        Symbols of all steps, the missing one as `n_symbols`.
    batches : (B + 1,) int64 tensor
        Minibatch b has the steps ``batches[b]:batches[b + 1]``.
    """
    n_steps, n_batches, device = len(symbols), len(batches) - 1, symbols.device
    place = torch.arange(n_steps, device=device)
    batch = torch.searchsorted(batches, place, right=True) - 1
    key = batch * (n_symbols + 1) + symbols
    if n_batches * (n_symbols + 1) < 2**31:
        key = key.int()  # half the work to sort
    key, order = torch.sort(key, stable=True)
    is_new = torch.ones(n_steps, dtype=torch.bool, device=device)
    is_new[1:] = key[1:] != key[:-1]
    segment_begin = torch.nonzero(is_new)[:, 0]
    segment = torch.cumsum(is_new, 0) - 1
    rank = place - segment_begin[segment]
    piece_begin = torch.nonzero(rank % _PIECE == 0)[:, 0]
    owner = segment[piece_begin]
    segment_key = key[segment_begin].long()
    segment_batch = segment_key // (n_symbols + 1)
    piece_batch = segment_batch[owner]
    edges = torch.arange(n_batches + 1, device=device)
    symbol_edges = torch.searchsorted(segment_batch, edges)
    piece_edges = torch.searchsorted(piece_batch, edges)
    n_symbols_of, n_pieces_of = symbol_edges.diff(), piece_edges.diff()
    sizes = batches.diff()
    pieces = torch.empty(len(piece_begin) + n_batches, dtype=torch.int32, device=device)
    at = torch.arange(len(piece_begin), device=device) + piece_batch
    pieces[at] = (piece_begin - batches[piece_batch]).int()
    pieces[piece_edges[1:] + edges[:-1]] = sizes.int()
    bounds = torch.empty(len(segment_begin) + n_batches, dtype=torch.int32, device=device)
    numbers = torch.arange(len(segment_begin), device=device)
    first_piece = torch.searchsorted(owner, numbers)
    bounds[numbers + segment_batch] = (first_piece - piece_edges[segment_batch]).int()
    bounds[symbol_edges[1:] + edges[:-1]] = n_pieces_of.int()
    places = torch.empty(n_steps, dtype=torch.int32, device=device)
    places[order] = (segment - symbol_edges[batch]).int()
    segments = Segments(
        (order - batches[batch]).int(),  # sorting keeps minibatches where they are
        pieces,
        (segment_key % (n_symbols + 1)).int(),
        bounds,
        torch.stack([n_pieces_of, n_symbols_of], dim=1).int().reshape(-1),
    )
    begins = torch.stack(
        [
            batches[:-1],
            piece_edges[:-1] + edges[:-1],
            symbol_edges[:-1],
            sizes,
            n_pieces_of,
            n_symbols_of,
        ],
        dim=1,
    )
    return SortedSteps(segments, places, begins, begins.tolist())


def plain(potentials: Potentials) -> Potentials:
    """Return potentials with the emission table written out."""
    rows, gain, shift = _affine(potentials)
    if gain is None:
        return potentials
    return potentials._replace(emissions=rows[:, : len(gain)] * gain + shift)


# ---- host side ----------------------------------------------------------------------------------


def _affine(potentials: Potentials) -> tuple[Tensor, Tensor | None, Tensor | None]:
    table = potentials.emissions
    return table if isinstance(table, AffineTable) else (table, None, None)


def is_narrow(n_states: int, dtype: torch.dtype) -> bool:
    """Whether the transition matrix stays in registers."""
    # A column in double precision takes two registers a number.
    return n_states <= (NARROW if dtype == torch.float32 else NARROW // 2)


def _fits_half_warp(n_states: int, dtype: torch.dtype) -> bool:
    return n_states <= _HALF_WARP and dtype == torch.float32


def _padded(matrix: Tensor, n_rows: int, n_columns: int) -> Tensor:
    rows, columns = matrix.shape
    return torch.nn.functional.pad(matrix, (0, n_columns - columns, 0, n_rows - rows)).contiguous()


class _Chains(NamedTuple):
    """What the recursions leave of every step.

    Attributes
    ----------
    messages : (2, T, W) tensor
        α forward and e backward, each row up to a factor.  Forward alone: (1, T, W).
    predictions : (T, W) tensor
        v forward: a step's state given the steps before.
    first : (T,) int8 tensor
        Whether a step is the first of its sequence.
    log_z : (N,) float64 tensor
    """

    messages: Tensor
    predictions: Tensor
    first: Tensor
    log_z: Tensor


def _narrow_chains(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor | None, *, both: bool
) -> _Chains:
    """Run the recursions, a program a sequence and direction."""
    rows, gain, shift = _affine(potentials)
    n_states, n_sequences, n_steps = len(potentials.start), len(offsets) - 1, len(index)
    device, dtype = index.device, rows.dtype
    if order is None:
        order = torch.argsort(offsets.diff(), descending=True, stable=True)
    width = padded_states(n_states)
    messages = torch.empty((1 + both, n_steps, width), dtype=dtype, device=device)
    predictions = torch.empty((n_steps if both else 1, width), dtype=dtype, device=device)
    first = torch.empty(n_steps if both else 1, dtype=torch.int8, device=device)
    log_z = torch.empty(n_sequences, dtype=torch.float64, device=device)
    matrix = potentials.transitions
    # The transpose may be there already, behind the matrix: see `row_potentials`.
    has_transpose = matrix._base is not None and matrix._base.shape == (2, *matrix.shape)
    arguments = (
        matrix._base if has_transpose else torch.stack([matrix, matrix.T]) if both else matrix,
        potentials.start,
        rows,
        gain,
        shift,
        potentials.log_scale,
        index,
        offsets,
        order,
        messages,
        predictions,
        first,
        log_z,
        n_sequences,
        len(rows),
        rows.stride(0),
        n_steps,
    )
    options = {
        "K": n_states,
        "W": width,
        "BOTH": both,
        "AFFINE": gain is not None,
        "SCALED": potentials.log_scale is not None,
    }
    if _fits_half_warp(n_states, dtype):
        groups = triton.cdiv(n_states, 16)
        n_programs = triton.cdiv(n_sequences, 2) * (1 + both)
        _warp_chains[(n_programs,)](
            *arguments, **options, GROUPS=groups, INTERPRET=INTERPRETED, num_warps=1
        )
    else:
        lanes = max(32, triton.next_power_of_2(n_states))
        _block_chains[(n_sequences * (1 + both),)](
            *arguments, **options, LANES=lanes, num_warps=lanes // 32
        )
    return _Chains(messages, predictions, first, log_z)


def _narrow(
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    order: Tensor | None,
    *,
    absences: bool,
) -> Smoothed:
    """Run the recursions, and combine what they leave."""
    messages, predictions, first, log_z = _narrow_chains(
        potentials, index, offsets, order, both=True
    )
    n_states, (n_steps, width) = len(potentials.start), predictions.shape
    half_warp = _fits_half_warp(n_states, predictions.dtype)
    # Spans follow from the number of sequences alone, so that room to spare changes no bit.
    span = min(max(16, triton.next_power_of_2(len(offsets) - 1) // 32), 128)
    n_spans = triton.cdiv(n_steps, span)
    device, dtype = predictions.device, predictions.dtype
    pairs = torch.empty((n_spans, n_states, n_states), dtype=dtype, device=device)
    starts = torch.empty((n_spans, n_states), dtype=dtype, device=device)
    arguments = (
        messages, predictions, first, offsets, pairs, starts, len(offsets) - 1, n_steps, span
    )
    options: dict[str, Any] = {"K": n_states, "W": width, "KEEP": absences}
    if half_warp:
        groups = triton.cdiv(n_states, 16)
        _warp_combine[(n_spans,)](
            *arguments, **options, GROUPS=groups, INTERPRET=INTERPRETED, num_warps=1
        )
    else:
        lanes = max(16, triton.next_power_of_2(width))
        _block_combine[(n_spans,)](
            *arguments, **options, LANES=lanes, TILE=16, PRECISION=_precision(dtype),
            num_warps=4 if lanes <= 64 else 8, num_stages=1,
        )
    start = torch.empty(n_states, dtype=torch.float64, device=device)
    transitions = torch.empty((n_states, n_states), dtype=torch.float64, device=device)
    _gather_spans[(n_states + 1, triton.cdiv(n_states, 16))](
        pairs, starts, potentials.transitions, transitions, start, n_spans,
        K=n_states, TILE=16, SPANS=256, num_warps=8,
    )
    responsibilities = predictions[:, :n_states]
    never = None
    if absences:
        forward, backward = messages
        never = _absences(
            forward, backward[1:], potentials.transitions, responsibilities, first, offsets, 1
        )
    return Smoothed(log_z, start, transitions, responsibilities, never)


class _Packed(NamedTuple):
    """The steps of a batch in the order of time, the longest sequences first.

    Attributes
    ----------
    sizes : list of int
        Number of sequences that have a step t, for t = 0, 1, ...
    steps : (T,) int64 tensor
        The steps in this order.
    before : (T − N,) int64 tensor
        Place here of the step before, for every step that is not a first one.
    places : (N,) int64 tensor
        Place of a sequence among the sorted ones.
    """

    sizes: list[int]
    steps: Tensor
    before: Tensor
    places: Tensor

    @classmethod
    def of(cls, offsets: Tensor) -> _Packed:
        """Sort; the host must know the lengths, and waits for them."""
        begins = offsets.cpu().numpy()
        lengths = np.diff(begins)
        order = np.argsort(-lengths, kind="stable")
        n_longer = np.bincount(lengths)[::-1].cumsum()[::-1]  # with at least t steps
        sizes = n_longer[1:]
        time = np.repeat(np.arange(len(sizes)), sizes)
        edges = np.concatenate([[0], np.cumsum(sizes)])
        place = np.arange(edges[-1]) - edges[time]
        later = slice(int(sizes[0]), None)
        before = edges[time[later] - 1] + place[later]
        parts = (begins[order[place]] + time, before, np.argsort(order))
        return cls(sizes.tolist(), *(torch.from_numpy(part).to(offsets.device) for part in parts))


def _wide(potentials: Potentials, index: Tensor, offsets: Tensor, *, absences: bool) -> Smoothed:
    """Do the same by matrix products over all sequences that have a step t."""
    packed = _Packed.of(offsets)
    (forward, backward), predictions, _, log_z = _wide_chains(
        potentials, index[packed.steps], packed, both=True
    )
    n_states, n_first = len(potentials.start), packed.sizes[0]
    total = torch.linalg.vecdot(predictions, backward)[:, None]
    possible = total > 0
    zero = torch.zeros((), dtype=total.dtype, device=total.device)
    predictions.mul_(backward).div_(total)
    torch.where(possible, predictions, zero, out=predictions)
    torch.where(possible, backward.div_(total), zero, out=backward)
    before = forward[packed.before]
    before /= before.sum(1, keepdim=True)
    torch.where(possible[n_first:], before, zero, out=before)
    pairs = torch.zeros((n_states, n_states), dtype=torch.float64, device=total.device)
    behind = backward[n_first:]
    for begin in range(0, len(before), 2**15):  # long sums in single precision are inexact
        rows = slice(begin, begin + 2**15)
        pairs += (before[rows].T @ behind[rows]).double()
    start = predictions[:n_first].sum(0, dtype=torch.float64)
    responsibilities = torch.empty_like(predictions)
    responsibilities[packed.steps] = predictions
    never = None
    if absences:
        first = torch.zeros(len(index), dtype=torch.int8, device=index.device)
        first[offsets[:-1]] = 1
        never = _absences(
            before, behind, potentials.transitions, responsibilities, first, offsets,
            len(offsets) - 1,
        )
    transitions = pairs * potentials.transitions.double()
    return Smoothed(log_z[packed.places], start, transitions, responsibilities, never)


def _wide_chains(
    potentials: Potentials, index: Tensor, packed: _Packed, *, both: bool
) -> _Chains:
    """Run the recursions step by step over sequences sorted by length."""
    rows, gain, shift = _affine(potentials)
    n_states, n_steps, sizes = len(potentials.start), len(index), packed.sizes
    device, dtype = index.device, rows.dtype
    messages = torch.empty((1 + both, n_steps, n_states), dtype=dtype, device=device)
    predictions = torch.empty((n_steps if both else 1, n_states), dtype=dtype, device=device)
    log_z = torch.zeros(sizes[0], dtype=torch.float64, device=device)
    norms = torch.empty(sizes[0], dtype=dtype, device=device)
    product = torch.empty((sizes[0], n_states), dtype=dtype, device=device)
    matrix = potentials.transitions.to(dtype)

    def advance(t: int, begin: int, n_before: int, product: Tensor, *, forward: bool) -> None:
        _advance[(sizes[t],)](
            product,
            norms,
            rows,
            gain,
            shift,
            potentials.log_scale,
            index,
            messages[0 if forward else 1],
            predictions,
            norms,
            log_z,
            begin,
            n_before,
            len(rows),
            rows.stride(0),
            K=n_states,
            W=triton.next_power_of_2(n_states),
            FIRST=forward and t == 0,
            PREDICT=forward and both,
            SCORE=forward,
            AFFINE=gain is not None,
            SCALED=potentials.log_scale is not None,
            num_warps=4,
        )

    begin = 0
    for t in range(len(sizes)):
        if t == 0:
            advance(t, 0, 0, potentials.start.to(dtype), forward=True)
        else:
            left = messages[0, begin : begin + sizes[t]]
            torch.mm(left, matrix, out=product[: sizes[t]])
            begin += sizes[t - 1]
            advance(t, begin, sizes[t], product, forward=True)
    if not both:
        return _Chains(messages, predictions, index, log_z)
    for t in reversed(range(len(sizes))):
        n_before = 0
        if t + 1 < len(sizes):
            n_before = sizes[t + 1]
            left = messages[1, begin : begin + n_before]
            torch.mm(left, matrix.T, out=product[:n_before])
            begin -= sizes[t]
        advance(t, begin, n_before, product, forward=False)
    return _Chains(messages, predictions, index, log_z)


def _absences(
    before: Tensor,
    behind: Tensor,
    matrix: Tensor,
    responsibilities: Tensor,
    first: Tensor,
    offsets: Tensor,
    n_less: int,
) -> Absences:
    """Sum log(1 − q) and q², with q(z_{t−1}, z_t) = before θ behind.

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
    logs = torch.empty((n_spans, side, side), dtype=before.dtype, device=device)
    squares = torch.empty_like(logs)
    _sum_absences[(n_spans, n_tiles, n_tiles)](
        before,
        behind,
        matrix,
        logs,
        squares,
        offsets,
        len(offsets) - 1,
        n_less,
        span,
        K=n_states,
        W=before.shape[1],
        TILE=tile,
        SMALLEST=SMALLEST_ABSENCE,
        num_warps=4,
    )
    q = responsibilities.double()
    log_absent = torch.log((1.0 - q).clamp(min=SMALLEST_ABSENCE))
    zero = torch.zeros((), dtype=torch.float64, device=device)
    place = torch.arange(len(q), device=device)[:, None]
    used = place < offsets[-1]
    is_first = first.bool()[:, None] & used
    # A transition leaves from every step but the last of its sequence.
    is_last = torch.roll(is_first, -1, 0) | (place == offsets[-1] - 1)
    return Absences(
        torch.where(is_first, log_absent, zero).sum(0),
        logs.sum(0, dtype=torch.float64)[:n_states, :n_states],
        torch.where(used & ~is_last, log_absent, zero).sum(0),
        torch.where(is_first, q * q, zero).sum(0),
        squares.sum(0, dtype=torch.float64)[:n_states, :n_states],
    )


def _precision(dtype: torch.dtype) -> str:
    """How Triton multiplies: as exactly as `torch.set_float32_matmul_precision` asks for."""
    if dtype != torch.float32:
        return "ieee"
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"


# ---- device side --------------------------------------------------------------------------------


@triton.jit
def _from_lane(x, LANE: tl.constexpr, INTERPRET: tl.constexpr):
    """Give every thread of half a warp what one of them has."""
    if INTERPRET:
        halves = tl.reshape(x, (2, 16))
        chosen = tl.sum(tl.where(tl.arange(0, 16)[None, :] == LANE, halves, 0.0), axis=1)
        return tl.reshape(tl.broadcast_to(chosen[:, None], (2, 16)), (32,))
    return tl.inline_asm_elementwise(
        "shfl.sync.idx.b32 $0, $1, $2, 0x101f, 0xffffffff;",
        "=f,f,r",
        [x, LANE],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )


@triton.jit
def _half_sum(x, INTERPRET: tl.constexpr):
    """Sum over half a warp, for each of its threads."""
    if INTERPRET:
        sums = tl.sum(tl.reshape(x, (2, 16)), axis=1)
        return tl.reshape(tl.broadcast_to(sums[:, None], (2, 16)), (32,))
    for i in tl.static_range(4):
        x += tl.inline_asm_elementwise(
            "shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;",
            "=f,f,r",
            [x, 8 >> i],
            dtype=tl.float32,
            is_pure=True,
            pack=1,
        )
    return x


@triton.jit
def _both_halves(x, INTERPRET: tl.constexpr):
    """Add what the two halves of a warp have, thread by thread."""
    if INTERPRET:
        sums = tl.sum(tl.reshape(x, (2, 16)), axis=0)
        return tl.reshape(tl.broadcast_to(sums[None, :], (2, 16)), (32,))
    other = tl.inline_asm_elementwise(
        "shfl.sync.bfly.b32 $0, $1, 16, 0x1f, 0xffffffff;",
        "=f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    return x + other


@triton.jit
def _row(table, symbol, state, inside, n_rows, stride):
    """Load a row of the emission table; nothing of a missing observation."""
    mask = inside & (symbol < n_rows)
    return tl.load(table + symbol.to(tl.int64) * stride + state, mask=mask, other=0.0)


@triton.jit
def _warp_chains(
    matrices,
    start,
    table,
    gain,
    shift,
    log_scale,
    index,
    offsets,
    order,
    messages,
    predictions,
    first,
    log_z,
    n_sequences,
    n_rows,
    stride,
    n_steps,
    K: tl.constexpr,
    W: tl.constexpr,
    BOTH: tl.constexpr,
    AFFINE: tl.constexpr,
    SCALED: tl.constexpr,
    GROUPS: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Two sequences in one direction, each by half a warp, up to three states a thread.

    A thread has the columns of its states in registers, and gets the other threads' messages from
    theirs: nothing on the way from one step to the next passes through memory.
    """
    program = tl.program_id(0)
    direction = program % 2 if BOTH else program * 0
    lane = tl.arange(0, 32)
    place = (program // 2 if BOTH else program) * 2 + lane // 16
    exists = place < n_sequences
    sequence = tl.load(order + place, mask=exists, other=0)
    begin = tl.load(offsets + sequence)
    end = tl.where(exists, tl.load(offsets + sequence + 1), begin + 1)
    longest = tl.max(end - begin, axis=0)
    matrix = matrices + direction * K * K
    columns = ()
    v = ()
    gains = ()
    shifts = ()
    for g in tl.static_range(GROUPS):
        state = lane % 16 + g * 16
        for k in tl.static_range(K):
            columns = columns + (tl.load(matrix + k * K + state, mask=state < K, other=0.0),)
        init = tl.load(start + state, mask=(state < K) & (direction == 0), other=1.0)
        v = v + (tl.where(state < K, init, 0.0),)
        if AFFINE:
            gains = gains + (tl.load(gain + state, mask=state < K, other=0.0),)
            shifts = shifts + (tl.load(shift + state, mask=state < K, other=0.0),)
    out = messages + direction.to(tl.int64) * n_steps * W
    row = tl.where(direction == 0, begin, end - 1)
    step = 1 - 2 * direction
    last = tl.where(direction == 0, end - 1, begin)
    coming_row = tl.where(row == last, row, row + step)
    symbol = tl.load(index + row)
    coming = tl.load(index + coming_row)
    phi = ()
    coming_phi = ()
    for g in tl.static_range(GROUPS):
        state = lane % 16 + g * 16
        phi = phi + (_row(table, symbol, state, state < K, n_rows, stride),)
        coming_phi = coming_phi + (_row(table, coming, state, state < K, n_rows, stride),)
    later_row = tl.where(coming_row == last, last, coming_row + step)
    later = tl.load(index + later_row)
    total = tl.zeros((32,), tl.float64)
    for t in range(0, longest):
        active = exists & (t < end - begin)
        # Potentials are on their way for two steps, their symbols for three.
        later_phi = ()
        for g in tl.static_range(GROUPS):
            state = lane % 16 + g * 16
            later_phi = later_phi + (_row(table, later, state, state < K, n_rows, stride),)
        next_row = tl.where(later_row == last, last, later_row + step)
        next_symbol = tl.load(index + next_row)
        seen = symbol < n_rows
        x = ()
        norm = tl.zeros((32,), tl.float32)
        for g in tl.static_range(GROUPS):
            state = lane % 16 + g * 16
            potential = phi[g]
            if AFFINE:
                potential = potential * gains[g] + shifts[g]
            message = tl.where(seen, potential, 1.0) * v[g]
            norm += message
            x = x + (message,)
            tl.store(out + row * W + state, message, mask=active & (state < W))
            if BOTH:
                ahead = active & (direction == 0) & (state < W)
                tl.store(predictions + row * W + state, v[g], mask=ahead)
        if BOTH:
            tl.store(first + row, (row == begin).to(tl.int8), mask=active & (direction == 0))
        if SCALED:
            total += tl.load(log_scale + symbol, mask=active & seen, other=0.0)
        norm = _half_sum(norm, INTERPRET)
        v = ()
        for g in tl.static_range(GROUPS):
            v = v + (tl.zeros((32,), tl.float32),)
        for k in tl.static_range(K):
            message = _from_lane(x[k // 16], k % 16, INTERPRET)
            longer = ()
            for g in tl.static_range(GROUPS):
                longer = longer + (v[g] + message * columns[g * K + k],)
            v = longer
        inverse = 1.0 / norm
        scaled = ()
        for g in tl.static_range(GROUPS):
            scaled = scaled + (v[g] * inverse,)
        v = scaled
        total += tl.where(active, tl.log(norm), 0.0).to(tl.float64)
        row, coming_row, later_row = coming_row, later_row, next_row
        symbol, coming, later = coming, later, next_symbol
        phi, coming_phi = coming_phi, later_phi
    tl.store(log_z + sequence, total, mask=exists & (direction == 0) & (lane % 16 == 0))


@triton.jit
def _warp_combine(
    messages,
    predictions,
    first,
    offsets,
    pairs,
    starts,
    n_sequences,
    n_steps,
    span,
    K: tl.constexpr,
    W: tl.constexpr,
    KEEP: tl.constexpr,
    GROUPS: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Turn predictions of a span of steps into responsibilities, and sum over it.

    Half a warp has every second step.  The sums of pairs are without θ, the same for all steps.
    """
    program = tl.program_id(0)
    used = tl.load(offsets + n_sequences)
    lane = tl.arange(0, 32)
    backward = messages + n_steps.to(tl.int64) * W
    pair = ()
    start = ()
    for g in tl.static_range(GROUPS):
        start = start + (tl.zeros((32,), tl.float32),)
        for k in tl.static_range(K):
            pair = pair + (tl.zeros((32,), tl.float32),)
    begin = (program * span).to(tl.int64)
    end = tl.minimum(begin + span, used)
    row = begin + lane // 16
    is_first = tl.load(first + row, mask=row < end, other=0) != 0
    ahead = ()
    before = ()
    behind = ()
    for g in tl.static_range(GROUPS):
        state = lane % 16 + g * 16
        mask = (row < end) & (state < W)
        where = row * W + state
        ahead = ahead + (tl.load(predictions + where, mask=mask, other=0.0),)
        behind = behind + (tl.load(backward + where, mask=mask, other=0.0),)
        before = before + (tl.load(messages + where - W, mask=mask & ~is_first, other=0.0),)
    for tile in range(begin, end, 2):
        row = tile + lane // 16
        # The next two steps are on their way while these are used.
        next_row = row + 2
        next_first = tl.load(first + next_row, mask=next_row < end, other=0) != 0
        next_ahead = ()
        next_before = ()
        next_behind = ()
        for g in tl.static_range(GROUPS):
            state = lane % 16 + g * 16
            mask = (next_row < end) & (state < W)
            where = next_row * W + state
            next_ahead = next_ahead + (tl.load(predictions + where, mask=mask, other=0.0),)
            next_behind = next_behind + (tl.load(backward + where, mask=mask, other=0.0),)
            next_before = next_before + (
                tl.load(messages + where - W, mask=mask & ~next_first, other=0.0),
            )
        norm = tl.zeros((32,), tl.float32)
        total = tl.zeros((32,), tl.float32)
        for g in tl.static_range(GROUPS):
            norm += before[g]
            total += ahead[g] * behind[g]
        norm = _half_sum(norm, INTERPRET)
        total = _half_sum(total, INTERPRET)
        possible = total > 0.0
        scale = tl.where(possible, 1.0 / total, 0.0)
        share = tl.where(possible & ~is_first, 1.0 / norm, 0.0)
        origins = ()
        weights = ()
        starts_ = ()
        for g in tl.static_range(GROUPS):
            state = lane % 16 + g * 16
            mask = (row < end) & (state < W)
            where = row * W + state
            weight = tl.where(possible, behind[g] * scale, 0.0)
            joint = tl.where(possible, ahead[g] * weight, 0.0)
            origin = tl.where(possible & ~is_first, before[g] * share, 0.0)
            tl.store(predictions + where, joint, mask=mask)
            if KEEP:
                tl.store(backward + where, weight, mask=mask)
                # Before a first step stands the last of another sequence; nobody else reads it.
                tl.store(messages + where - W, origin, mask=mask & (row > 0))
            starts_ = starts_ + (start[g] + tl.where(is_first, joint, 0.0),)
            weights = weights + (weight,)
            origins = origins + (origin,)
        start = starts_
        longer = ()
        for g in tl.static_range(GROUPS):
            for k in tl.static_range(K):
                origin = _from_lane(origins[k // 16], k % 16, INTERPRET)
                longer = longer + (pair[g * K + k] + origin * weights[g],)
        pair = longer
        is_first = next_first
        ahead, before, behind = next_ahead, next_before, next_behind
    for g in tl.static_range(GROUPS):
        state = lane % 16 + g * 16
        mask = (lane < 16) & (state < K)
        for k in tl.static_range(K):
            value = _both_halves(pair[g * K + k], INTERPRET)
            tl.store(pairs + (program * K + k) * K + state, value, mask=mask)
        tl.store(starts + program * K + state, _both_halves(start[g], INTERPRET), mask=mask)


@triton.jit
def _block_chains(
    matrices,
    start,
    table,
    gain,
    shift,
    log_scale,
    index,
    offsets,
    order,
    messages,
    predictions,
    first,
    log_z,
    n_sequences,
    n_rows,
    stride,
    n_steps,
    K: tl.constexpr,
    W: tl.constexpr,
    BOTH: tl.constexpr,
    AFFINE: tl.constexpr,
    SCALED: tl.constexpr,
    LANES: tl.constexpr,
):
    """One sequence in one direction by several warps, a state a thread.

    As `_warp_chains`, but the messages of a step are read back from the cache.
    """
    program = tl.program_id(0)
    direction = program % 2 if BOTH else program * 0
    sequence = tl.load(order + (program // 2 if BOTH else program))
    begin = tl.load(offsets + sequence)
    end = tl.load(offsets + sequence + 1)
    state = tl.arange(0, LANES)
    inside = state < K
    matrix = matrices + direction * K * K
    columns = ()
    for k in tl.static_range(K):
        columns = columns + (tl.load(matrix + k * K + state, mask=inside, other=0.0),)
    v = tl.load(start + state, mask=inside & (direction == 0), other=1.0)
    v = tl.where(inside, v, 0.0)
    if AFFINE:
        gains = tl.load(gain + state, mask=inside, other=0.0)
        shifts = tl.load(shift + state, mask=inside, other=0.0)
    out = messages + direction.to(tl.int64) * n_steps * W
    row = tl.where(direction == 0, begin, end - 1)
    step = 1 - 2 * direction
    symbol = tl.load(index + row)
    phi = _row(table, symbol, state, inside, n_rows, stride)
    total = tl.zeros((), tl.float64)
    for t in range(begin, end):
        if AFFINE:
            phi = phi * gains + shifts
        seen = symbol < n_rows
        x = tl.where(seen, phi, 1.0) * v
        here = out + row * W
        tl.store(here + state, x, mask=state < W)
        if BOTH:
            ahead = direction == 0
            tl.store(predictions + row * W + state, v, mask=(state < W) & ahead)
            tl.store(first + row, (row == begin).to(tl.int8), mask=ahead)
        if SCALED:
            total += tl.load(log_scale + symbol, mask=seen, other=0.0)
        row = tl.minimum(tl.maximum(row + step, begin), end - 1)
        symbol = tl.load(index + row)
        phi = _row(table, symbol, state, inside, n_rows, stride)
        tl.debug_barrier()
        v = tl.zeros_like(x)
        norm = tl.zeros((), x.dtype)
        for k in tl.static_range(K):
            message = tl.load(here + k)
            v += message * columns[k]
            norm += message
        v /= norm
        total += tl.log(norm).to(tl.float64)
    tl.store(log_z + sequence, total, mask=direction == 0)


@triton.jit
def _advance(
    product,
    norms,
    table,
    gain,
    shift,
    log_scale,
    index,
    messages,
    predictions,
    new_norms,
    log_z,
    begin,
    n_before,
    n_rows,
    stride,
    K: tl.constexpr,
    W: tl.constexpr,
    FIRST: tl.constexpr,
    PREDICT: tl.constexpr,
    SCORE: tl.constexpr,
    AFFINE: tl.constexpr,
    SCALED: tl.constexpr,
):
    """Make the message of one sequence at one step: x = φ ∘ v with v = product / norm.

    Sequences beyond the first `n_before` begin here, with v from the first row of `product`.
    """
    sequence = tl.program_id(0)
    state = tl.arange(0, W)
    inside = state < K
    goes_on = sequence < n_before
    from_row = tl.where(goes_on, sequence, 0) if not FIRST else sequence * 0
    v = tl.load(product + from_row.to(tl.int64) * K + state, mask=inside, other=0.0)
    if not FIRST:
        v = tl.where(goes_on, v / tl.load(norms + sequence, mask=goes_on, other=1.0), 1.0)
    v = tl.where(inside, v, 0.0)
    row = begin + sequence
    symbol = tl.load(index + row)
    seen = symbol < n_rows
    phi = _row(table, symbol, state, inside, n_rows, stride)
    if AFFINE:
        phi = phi * tl.load(gain + state, mask=inside, other=0.0)
        phi += tl.load(shift + state, mask=inside, other=0.0)
    x = tl.where(seen, phi, 1.0) * v
    where = row.to(tl.int64) * K + state
    tl.store(messages + where, x, mask=inside)
    if PREDICT:
        tl.store(predictions + where, v, mask=inside)
    norm = tl.sum(x, axis=0)
    tl.store(new_norms + sequence, norm)
    if SCORE:
        total = tl.load(log_z + sequence) + tl.log(norm).to(tl.float64)
        if SCALED:
            total += tl.load(log_scale + symbol, mask=seen, other=0.0)
        tl.store(log_z + sequence, total)


@triton.jit
def _block_combine(
    messages,
    predictions,
    first,
    offsets,
    pairs,
    starts,
    n_sequences,
    n_steps,
    span,
    K: tl.constexpr,
    W: tl.constexpr,
    KEEP: tl.constexpr,
    LANES: tl.constexpr,
    TILE: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """As `_warp_combine`, by products of tiles."""
    program = tl.program_id(0)
    used = tl.load(offsets + n_sequences)
    state = tl.arange(0, LANES)
    inside = (state < W)[None, :]
    pair = tl.zeros((LANES, LANES), messages.dtype.element_ty)
    start = tl.zeros((LANES,), messages.dtype.element_ty)
    backward = messages + n_steps.to(tl.int64) * W
    for tile in range(program * span, tl.minimum((program + 1) * span, used), TILE):
        row = tile + tl.arange(0, TILE)
        there = (row < used)[:, None] & inside
        is_first = (tl.load(first + row, mask=row < used, other=0) != 0)[:, None]
        where = row[:, None] * W + state[None, :]
        ahead = tl.load(predictions + where, mask=there, other=0.0)
        behind = tl.load(backward + where, mask=there, other=0.0)
        before = tl.load(messages + where - W, mask=there & ~is_first, other=0.0)
        joint = ahead * behind
        total = tl.sum(joint, axis=1)[:, None]
        possible = total > 0.0
        joint = tl.where(possible, joint / total, 0.0)
        behind = tl.where(possible, behind / total, 0.0)
        before = tl.where(possible & ~is_first, before / tl.sum(before, axis=1)[:, None], 0.0)
        tl.store(predictions + where, joint, mask=there)
        if KEEP:
            tl.store(backward + where, behind, mask=there)
            # Before a first step stands the last of another sequence, which nobody else reads.
            tl.store(messages + where - W, before, mask=there & (row > 0)[:, None])
        pair = tl.dot(
            tl.trans(before),
            behind,
            pair,
            input_precision=PRECISION,
            out_dtype=messages.dtype.element_ty,
        )
        start += tl.sum(tl.where(is_first, joint, 0.0), axis=0)
    where = program * K * K + state[:, None] * K + state[None, :]
    tl.store(pairs + where, pair, mask=(state < K)[:, None] & (state < K)[None, :])
    tl.store(starts + program * K + state, start, mask=state < K)


@triton.jit
def _gather_spans(
    pairs,
    starts,
    matrix,
    transitions,
    start,
    n_spans,
    K: tl.constexpr,
    TILE: tl.constexpr,
    SPANS: tl.constexpr,
):
    """Sum a row of pairs over spans in double precision, and bring θ in; the last row is starts."""
    row = tl.program_id(0)
    state = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = state < K
    total = tl.zeros((TILE,), tl.float64)
    is_start = row == K
    for begin in range(0, n_spans, SPANS):
        span = begin + tl.arange(0, SPANS)
        there = (span < n_spans)[:, None] & inside[None, :]
        where = (span * K * K)[:, None] + row * K + state[None, :]
        values = tl.load(pairs + where, mask=there & ~is_start, other=0.0)
        where = (span * K)[:, None] + state[None, :]
        values += tl.load(starts + where, mask=there & is_start, other=0.0)
        total += tl.sum(values.to(tl.float64), axis=0)
    theta = tl.load(matrix + row * K + state, mask=inside & ~is_start, other=0.0)
    tl.store(transitions + row * K + state, total * theta.to(tl.float64), mask=inside & ~is_start)
    tl.store(start + state, total, mask=inside & is_start)


@triton.jit
def _sum_absences(
    before,
    behind,
    matrix,
    logs,
    squares,
    offsets,
    n_sequences,
    n_less,
    span,
    K: tl.constexpr,
    W: tl.constexpr,
    TILE: tl.constexpr,
    SMALLEST: tl.constexpr,
):
    """Sum log(1 − q) and q² of a tile of pairs of states over a span of steps."""
    program = tl.program_id(0)
    left = tl.program_id(1) * TILE + tl.arange(0, TILE)
    right = tl.program_id(2) * TILE + tl.arange(0, TILE)
    inside = (left < K)[:, None] & (right < K)[None, :]
    theta = tl.load(matrix + left[:, None] * K + right[None, :], mask=inside, other=0.0)
    log_sum = tl.zeros((TILE, TILE), before.dtype.element_ty)
    square_sum = tl.zeros((TILE, TILE), before.dtype.element_ty)
    used = tl.load(offsets + n_sequences) - n_less
    for row in range(program * span, tl.minimum((program + 1) * span, used)):
        from_q = tl.load(before + row * W + left, mask=left < K, other=0.0)
        to_q = tl.load(behind + row * W + right, mask=right < K, other=0.0)
        q = from_q[:, None] * theta * to_q[None, :]
        # Near zero 1 − q would lose what q has.
        near = -q * (1.0 + q * (0.5 + q * (0.333333333333 + 0.25 * q)))
        log_sum += tl.where(q < 0.001, near, tl.log(tl.maximum(1.0 - q, SMALLEST)))
        square_sum += q * q
    side = tl.num_programs(1) * TILE
    where = program.to(tl.int64) * side * side + left[:, None] * side + right[None, :]
    tl.store(logs + where, log_sum)
    tl.store(squares + where, square_sum)


@triton.jit
def _viterbi(
    matrix,
    start,
    table,
    gain,
    shift,
    log_scale,
    index,
    offsets,
    scores,
    came_from,
    best,
    path,
    n_rows,
    stride,
    K: tl.constexpr,
    W: tl.constexpr,
    TILE: tl.constexpr,
    SCALED: tl.constexpr,
):
    """Find the best path of one sequence, in logarithms and double precision."""
    sequence = tl.program_id(0)
    begin = tl.load(offsets + sequence)
    end = tl.load(offsets + sequence + 1)
    own = scores + sequence.to(tl.int64) * 2 * W
    tiles = tl.arange(0, TILE)
    for row in range(begin, end):
        symbol = tl.load(index + row)
        seen = symbol < n_rows
        now = own + ((row - begin) % 2) * W
        before = own + ((row - begin + 1) % 2) * W
        for tile in range(0, W, TILE):
            state = tile + tiles
            inside = state < K
            phi = tl.load(
                table + symbol.to(tl.int64) * stride + state, mask=inside & seen, other=0.0
            ).to(tl.float64)
            if gain is not None:
                phi = phi * tl.load(gain + state, mask=inside, other=0.0).to(tl.float64)
                phi += tl.load(shift + state, mask=inside, other=0.0).to(tl.float64)
            phi = tl.where(seen, phi, 1.0)
            if row == begin:
                highest = tl.load(start + state)
            else:
                highest = tl.full((TILE,), float("-inf"), tl.float64)
                origin = tl.zeros((TILE,), tl.int32)
                for k in range(0, W, TILE):
                    come = tl.load(before + k + tiles)
                    theta = tl.load(matrix + (k + tiles)[:, None] * W + state[None, :])
                    value, at = tl.max(come[:, None] + theta, axis=0, return_indices=True)
                    better = value > highest
                    highest = tl.where(better, value, highest)
                    origin = tl.where(better, at + k, origin)
                tl.store(came_from + row * W + state, origin.to(tl.int16))
            tl.store(now + state, tl.where(inside, highest + tl.log(phi), float("-inf")))
        tl.debug_barrier()
    last = own + ((end - 1 - begin) % 2) * W
    highest = tl.full((), float("-inf"), tl.float64)
    at = tl.zeros((), tl.int32)
    for tile in range(0, W, TILE):
        value, place = tl.max(tl.load(last + tile + tiles), axis=0, return_indices=True)
        better = value > highest
        highest = tl.where(better, value, highest)
        at = tl.where(better, place + tile, at)
    total = highest
    for back in range(begin, end):
        row = end - 1 - (back - begin)
        tl.store(path + row, at)
        if SCALED:
            symbol = tl.load(index + row)
            total += tl.load(log_scale + symbol, mask=symbol < n_rows, other=0.0)
        if row > begin:
            at = tl.load(came_from + row * W + at).to(tl.int32)
    tl.store(best + sequence, total)


@triton.jit
def _sum_pieces(
    steps,
    pieces,
    sizes,
    rows,
    stride,
    partial,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    PIECE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sum the rows of some pieces of symbols' steps."""
    piece = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    exists = piece < tl.load(sizes)
    state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(pieces + piece, mask=exists, other=0)
    end = tl.load(pieces + piece + 1, mask=exists, other=0)
    place = begin[:, None] + tl.arange(0, PIECE)[None, :]
    there = place < end[:, None]
    step = tl.load(steps + place, mask=there, other=0).to(tl.int64)
    mask = there[:, :, None] & (state < K)[None, None, :]
    values = tl.load(rows + step[:, :, None] * stride + state[None, None, :], mask=mask, other=0.0)
    where = piece.to(tl.int64)[:, None] * K + state[None, :]
    tl.store(
        partial + where, tl.sum(values, axis=1), mask=exists[:, None] & (state < K)[None, :]
    )


@triton.jit
def _sum_segments(
    symbols,
    bounds,
    sizes,
    partial,
    out,
    n_symbols,
    n_segments,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    PIECE: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sum the pieces of some symbols; what belongs to none, or to the missing one, is zero."""
    segment = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    exists = segment < tl.load(sizes + 1)
    exists = exists & (tl.load(symbols + segment, mask=exists, other=n_symbols) < n_symbols)
    state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(bounds + segment, mask=exists, other=0)
    end = tl.load(bounds + segment + 1, mask=exists, other=0)
    total = tl.zeros((GROUP, BLOCK), tl.float64)
    for tile in range(0, tl.max(end - begin, axis=0), PIECE):
        piece = begin[:, None] + tile + tl.arange(0, PIECE)[None, :]
        where = piece.to(tl.int64)[:, :, None] * K + state[None, None, :]
        mask = (piece < end[:, None])[:, :, None] & (state < K)[None, None, :]
        total += tl.sum(tl.load(partial + where, mask=mask, other=0.0).to(tl.float64), axis=1)
    where = segment.to(tl.int64)[:, None] * K + state[None, :]
    tl.store(out + where, total, mask=(segment < n_segments)[:, None] & (state < K)[None, :])


@triton.jit
def _sum_columns(
    rows, width, symbols, n_symbols, out, n_rows, span, K: tl.constexpr, BLOCK: tl.constexpr
):
    """Sum a span of rows."""
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


@triton.jit
def _add_rows(
    table,
    stride,
    n_rows,
    rows,
    n_added,
    values,
    width,
    factor,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
    GROUP: tl.constexpr,
    ATOMIC: tl.constexpr,
):
    """Add some rows of values to the table; a row may come more than once where it is atomic."""
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


@triton.jit
def _rescale(table, factor, n, BLOCK: tl.constexpr):
    """Multiply everything by a factor, unless that is one."""
    by = tl.load(factor)
    if by != 1.0:
        for begin in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
            where = begin + tl.arange(0, BLOCK).to(tl.int64)
            values = tl.load(table + where, mask=where < n, other=0.0)
            tl.store(table + where, (values * by).to(table.dtype.element_ty), mask=where < n)


@triton.jit
def _row_potentials(
    prior_start,
    prior,
    total,
    start,
    transitions,
    out_start,
    out,
    K: tl.constexpr,
    LANES: tl.constexpr,
    ONE_ROW: tl.constexpr,
):
    """Normalise one row; the last program has the start."""
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
        norm = tl.load(total) + tl.sum(added, axis=0)
    means = (sums / norm).to(kind)
    if row == K:
        tl.store(out_start + state, means, mask=inside)
    else:
        tl.store(out + row * K + state, means, mask=inside)
        tl.store(out + K * K + state * K + row, means, mask=inside)


@triton.jit
def _blend_counts(
    start, transitions, added_start, added, out_start, out, rates, K, n, BLOCK: tl.constexpr
):
    """Blend a part of the counts, and the first program the start too."""
    keep = tl.load(rates)
    weight = tl.load(rates + 1)
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


@triton.jit
def _decay(totals, added, scale, rates, factors, smallest, K, LANES: tl.constexpr):
    """Blend totals, and find the factors that follow from the scale."""
    keep = tl.load(rates)
    weight = tl.load(rates + 1)
    state = tl.arange(0, LANES)
    old = tl.load(totals + state, mask=state < K, other=0.0)
    new = tl.load(added + state, mask=state < K, other=0.0)
    tl.store(totals + state, keep * old + weight * new, mask=state < K)
    decayed = tl.load(scale) * keep
    is_small = decayed < smallest
    tl.store(factors + 1, tl.where(is_small, decayed, 1.0))
    decayed = tl.where(is_small, 1.0, decayed)
    tl.store(scale, decayed)
    tl.store(factors, weight / decayed)


@triton.jit
def _means_of_symbols(
    totals, scale, prior, prior_total, gain, shift, K, LANES: tl.constexpr
):
    """Find gain and shift of every state."""
    state = tl.arange(0, LANES)
    norm = tl.load(totals + state, mask=state < K, other=1.0) + prior_total
    kind = gain.dtype.element_ty
    tl.store(gain + state, (tl.load(scale) / norm).to(kind), mask=state < K)
    tl.store(shift + state, (prior / norm).to(kind), mask=state < K)


@triton.jit
def _note(log_z, failures, out, n, BLOCK: tl.constexpr):
    """Sum, and count what is not finite."""
    total = tl.zeros((BLOCK,), tl.float64)
    bad = tl.zeros((BLOCK,), tl.int64)
    for begin in range(0, n, BLOCK):
        at = begin + tl.arange(0, BLOCK)
        value = tl.load(log_z + at, mask=at < n, other=0.0)
        total += value
        bad += tl.where(tl.abs(value) < float("inf"), 0, 1)
    tl.store(out, tl.sum(total, axis=0))
    tl.store(failures, tl.load(failures) + tl.sum(bad, axis=0))


@triton.jit
def _copy(source, begin, target, n, BLOCK: tl.constexpr):
    """Copy this program's part of an array."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + begin + at, mask=at < n, other=0), mask=at < n)


@triton.jit
def _load_minibatch(
    index,
    places,
    steps,
    pieces,
    symbols,
    bounds,
    sizes,
    offsets,
    order,
    rates,
    to_index,
    to_places,
    to_steps,
    to_pieces,
    to_symbols,
    to_bounds,
    to_sizes,
    to_offsets,
    to_order,
    to_rates,
    begins,
    number,
    n_sequences,
    step_capacity,
    symbol_capacity,
    n_symbols_in_all,
    BLOCK: tl.constexpr,
):
    """Copy one minibatch out of several."""
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
        _copy(places, step, to_places, n_steps, BLOCK)
    elif which == 2:
        _copy(steps, step, to_steps, n_steps, BLOCK)
    elif which == 3:
        _copy(pieces, piece, to_pieces, n_pieces + 1, BLOCK)
        _copy(sizes, b * 2, to_sizes, 2, BLOCK)
    elif which == 4:
        found = tl.load(symbols + symbol + at, mask=at < n_symbols, other=0)
        found = tl.where(at < n_symbols, found, n_symbols_in_all)
        tl.store(to_symbols + at, found, mask=at < symbol_capacity)
    elif which == 5:
        _copy(bounds, symbol + b, to_bounds, n_symbols + 1, BLOCK)
        _copy(rates, b * 2, to_rates, 2, BLOCK)
    else:
        _copy(offsets, b * (n_sequences + 1), to_offsets, n_sequences + 1, BLOCK)
        _copy(order, b * n_sequences, to_order, n_sequences, BLOCK)
