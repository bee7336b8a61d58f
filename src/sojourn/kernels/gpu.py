"""Forward-backward on a GPU, in Triton, on PyTorch tensors.

The signatures are those of `sojourn.kernels.cpu`, with tensors for arrays.  Nothing here makes the
host wait for the device.

Up to `NARROW` states the transition matrix stays in registers.  With few sequences a thread has a
column of it, and gets the message of the step before from other threads: plain multiply-adds in
full single precision, with a short chain of dependent operations a step.  With many sequences, and
up to 48 states, a warp works on sixteen of them by tensor cores.  Forward and backward are the same
recursion,

    x_t = φ_t ∘ v_t,   v_{t+1} = x_t M / Σ x_t,

with M = θ and v_1 = θ_0 forward, and M = θᵀ and v = 1 backward, and run side by side.  What they
leave is combined afterwards, where all steps are independent:

    q(z_t) ∝ v_t ∘ e_t,   q(z_{t−1}, z_t) ∝ α_{t−1} θ e_t,

with α and v from forward and e from backward.  `sojourn.kernels.gpu_wide` has the recursions of
more states, and of double precision.

With ``TRITON_INTERPRET=1`` the same code runs on the CPU, slowly, for tests.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import triton

from sojourn.kernels import gpu_device, gpu_tiles, gpu_wide
from sojourn.kernels.interface import Absences, Potentials, Smoothed, padded_states
from sojourn.kernels.reference import SMALLEST_ABSENCE

NARROW = 128
"""Largest number of states whose transition matrix stays in registers, in single precision."""

_HALF_WARP = 48  # states up to which half a warp, or a warp by tiles, has room for it

TILED = 4096
"""Number of sequences from which a warp works on sixteen of them by tensor cores.  With fewer it is
waited for: a step takes longer, though one of sixteen sequences."""

LONG = 8
"""One of so many sequences, the longest, goes the other way all the same."""

SUMS = "sorted"
"""How responsibilities are summed by symbol.  "sorted": steps of a symbol in a fixed order, the
same bits every time.  "atomic": in the order in which they are done, other last bits every time."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
"""Whether kernels run on the CPU, by Triton's interpreter."""

_SPANS = 256  # spans of steps whose expected transitions are summed apart, if they stay short
_MOST_ROWS = 512  # steps of a span: longer sums in single precision are inexact
_PIECE = 64  # rows of one symbol that are summed by one program
_LOG_STEPS = 2**20  # steps whose logarithms are there at a time

Tensor = Any


class AffineTable(NamedTuple):
    """Emission potentials ``rows * gain + shift``, computed as they are read.

    Attributes
    ----------
    rows : (S, W) tensor
        One row a symbol; columns beyond K are not read.
    gain, shift : (K,) tensors
        ``shift / gain`` is the same number for all states.
    missing : tensor
        A row of at least K numbers whose potentials are one.
    """

    rows: Tensor
    gain: Tensor
    shift: Tensor
    missing: Tensor


class Segments(NamedTuple):
    """The steps of a batch sorted by symbol, for sums in a fixed order.

    A symbol's steps are cut into pieces of at most 64.  Tensors may be longer than needed.

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
    return _wide(potentials, index, offsets, order, absences=absences)


def log_normalizers(
    potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
) -> Tensor:
    """Compute log Z of every sequence; arguments as for `forward_backward`."""
    if is_narrow(len(potentials.start), _affine(potentials)[0].dtype):
        return _narrow_chains(potentials, index, offsets, None, both=False).log_z
    return _wide_chains(potentials, index, offsets, None, both=False)[1]


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
    gpu_device.viterbi[(n_sequences,)](
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
    # Columns beyond the states are summed too, where that makes rows of whole eights.
    padded = padded_states(n_states)
    width = padded if padded <= rows.stride(0) and rows.stride(0) % 4 == 0 else n_states
    block = min(max(16, triton.next_power_of_2(width)), 64)
    n_pieces, n_segments = len(segments.pieces) - 1, len(segments.symbols)
    partial = torch.empty((n_pieces, width), dtype=rows.dtype, device=rows.device)
    out = torch.empty((n_segments, width), dtype=torch.float64, device=rows.device)
    columns = triton.cdiv(width, block)
    sizes = {"W": width, "BLOCK": block, "TOGETHER": 16}
    gpu_device.sum_pieces[(triton.cdiv(n_pieces, 2), columns)](
        segments.steps,
        segments.pieces,
        segments.sizes,
        rows,
        rows.stride(0),
        partial,
        **sizes,
        GROUP=2,
        num_warps=1,
    )
    gpu_device.sum_segments[(triton.cdiv(n_segments, 4), columns)](
        segments.symbols,
        segments.bounds,
        segments.sizes,
        partial,
        out,
        n_symbols,
        n_segments,
        **sizes,
        GROUP=4,
        num_warps=4,
    )
    return out[:, :n_states]


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
    gpu_device.sum_columns[(n_groups, columns)](
        rows, rows.stride(0), symbols, n_symbols, partial, n_rows, 64, **sizes
    )
    gpu_device.sum_columns[(1, columns)](
        partial, n_states, None, 0, out, n_groups, n_groups, **sizes
    )
    return out


def add_rows(table: Tensor, rows: Tensor | None, values: Tensor, factor: Tensor) -> None:
    """Do ``table[rows] += factor * values``; rows beyond the table are left out."""
    n_states = values.shape[1]
    if rows is None:
        table[:, :n_states] += factor * values
        return
    block = min(max(16, triton.next_power_of_2(n_states)), 64)
    gpu_device.add_rows[(triton.cdiv(len(rows), 8), triton.cdiv(n_states, block))](
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
    gpu_device.load_minibatch[(triton.cdiv(capacity, 1024), 7)](
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
    gpu_device.rescale[(programs,)](table, factor, n, BLOCK=block, num_warps=4)


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
    gpu_device.row_potentials[(n_states + 1,)](
        start,
        transitions,
        torch.stack(total) if apart else total,
        *counts,
        out_start,
        out,
        K=n_states,
        APART=apart,
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
    gpu_device.blend_counts[(triton.cdiv(n, 256),)](
        *counts, *sums, *out, rates, len(counts[0]), n, BLOCK=256, num_warps=4
    )
    return out[0], out[1]


def state_masses(start: Tensor, transitions: Tensor) -> Tensor:
    """Return how many steps are expected in each state: those that start there or go there."""
    n_states, out = len(start), torch.empty_like(start)
    gpu_device.state_masses[(triton.cdiv(n_states, 16),)](
        start, transitions, out, K=n_states, num_warps=4
    )
    return out


def decay(totals: Tensor, added: Tensor, scale: Tensor, rates: Tensor, smallest: float) -> Tensor:
    """Blend the totals of a table and multiply its scale, in place.

    Returns
    -------
    (2,) float64 tensor
        What rows that are added are to be multiplied by, and what all rows are, because the scale
        was too small and has become one.
    """
    factors = torch.empty(2, dtype=torch.float64, device=scale.device)
    gpu_device.decay[(1,)](
        totals, added, scale, rates, factors, smallest, len(totals),
        LANES=triton.next_power_of_2(len(totals)), num_warps=1,
    )  # fmt: skip
    return factors


def means_of_symbols(
    totals: Tensor, scale: Tensor, prior: float, prior_total: float, dtype: Any
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gain and shift with which a row of the table becomes posterior means, eq (2).

    And a row that becomes one, for a missing symbol.
    """
    lanes = triton.next_power_of_2(max(16, len(totals)))
    out = torch.empty((3, lanes), dtype=dtype, device=totals.device)
    gpu_device.means_of_symbols[(1,)](
        totals, scale, prior, prior_total, *out, len(totals), LANES=lanes, num_warps=1
    )
    return out[0, : len(totals)], out[1, : len(totals)], out[2]


def as_rates(keep: Any, weight: Any, like: Tensor) -> Tensor:
    """Return the two rates as one (2,) tensor; those of a recorded step are one already."""
    if isinstance(keep, torch.Tensor):
        assert keep._base is not None, "views of one tensor"
        return keep._base
    return torch.tensor([keep, weight], dtype=torch.float64, device=like.device)


def note(log_z: Tensor, failures: Tensor) -> Tensor:
    """Count values that are not finite, and return the sum of all."""
    out = torch.empty((), dtype=torch.float64, device=log_z.device)
    gpu_device.note[(1,)](log_z, failures, out, len(log_z), BLOCK=4096, num_warps=16)
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


def gather_sequences(values: Tensor, begins: Tensor, lengths: Tensor, n_steps: int) -> Tensor:
    """Return sequences, which have so many steps together, one after another."""
    ends = torch.cumsum(lengths, 0)
    out = torch.empty(n_steps, dtype=values.dtype, device=values.device)
    gpu_device.gather_sequences[(triton.cdiv(len(lengths), 8),)](
        values, begins, lengths, ends, out, len(lengths), GROUP=8, BLOCK=32, num_warps=4
    )
    return out


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

    by_batch, by_step = (
        (n_batches, triton.cdiv(largest or n_steps, 1024)),
        (triton.cdiv(n_steps, 1024),),
    )
    options = {"BLOCK": 1024, "num_warps": 4}
    # Half the work to sort, if they fit.
    keys = empty(n_steps, torch.int32 if n_batches * n_keys < 2**31 else torch.int64)
    gpu_device.make_keys[by_batch](symbols, batches, keys, n_keys, **options)
    # Minibatches stay where they are.
    keys, order = torch.sort(keys, stable=True)
    marks = empty(n_steps, torch.int8)
    gpu_device.mark_segments[by_step](keys, marks, n_steps, **options)
    segments = torch.cumsum(marks, 0, dtype=torch.int32)
    begins, distinct = empty(n_steps), empty(n_steps)
    gpu_device.begin_segments[by_batch](
        keys, batches, segments, begins, distinct, n_keys, **options
    )
    gpu_device.mark_pieces[by_step](segments, begins, marks, n_steps, PIECE=_PIECE, **options)
    numbers = torch.cumsum(marks, 0, dtype=torch.int32)
    steps, places, sizes = empty(n_steps), empty(n_steps), empty(2 * n_batches)
    pieces, bounds = empty(n_steps + n_batches), empty(n_steps + n_batches)
    layout = empty(6 * n_batches, torch.int64).reshape(n_batches, 6)
    gpu_device.note_pieces[by_batch](
        order, batches, segments, numbers, steps, places, pieces, bounds, sizes, layout, **options
    )
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


def plain(potentials: Potentials) -> Potentials:
    """Return potentials with the emission table written out."""
    rows, gain, shift = _affine(potentials)
    if gain is None:
        return potentials
    return potentials._replace(emissions=rows[:, : len(gain)] * gain + shift)


def log_potential(smoothed: Smoothed, potentials: Potentials, index: Tensor) -> Tensor:
    """E_q of the logarithm of the product of potentials along the path."""
    start, matrix, rows, log_scale = plain(potentials)
    n_states = len(start)
    # A potential of zero has no responsibility: the clamp only avoids 0 · log 0.
    logs = rows[:, :n_states].clamp(min=torch.finfo(rows.dtype).tiny).log()
    # A row beyond the table is a missing observation, whose potential is one.
    logs = torch.nn.functional.pad(logs, (0, 0, 0, 1))
    total = torch.xlogy(smoothed.start, start).sum()
    total += torch.xlogy(smoothed.transitions, matrix).sum()
    for begin in range(0, len(index), _LOG_STEPS):
        steps = slice(begin, begin + _LOG_STEPS)
        logs_here = logs[index[steps]]
        total += (smoothed.responsibilities[steps] * logs_here).sum(dtype=torch.float64)
    if log_scale is not None:
        scales = torch.nn.functional.pad(log_scale.double(), (0, 1))
        total += scales[index].sum()
    return total


# ---- host side ----------------------------------------------------------------------------------


def _affine(potentials: Potentials) -> tuple[Tensor, Tensor | None, Tensor | None]:
    table = potentials.emissions
    return table[:3] if isinstance(table, AffineTable) else (table, None, None)


def is_narrow(n_states: int, dtype: Any) -> bool:
    """Whether the transition matrix stays in registers."""
    return n_states <= NARROW and dtype in (torch.float32, np.dtype(np.float32), "float32")


def _padded(matrix: Tensor, n_rows: int, n_columns: int) -> Tensor:
    rows, columns = matrix.shape
    return torch.nn.functional.pad(matrix, (0, n_columns - columns, 0, n_rows - rows)).contiguous()


def _width(n_states: int) -> int:
    """Return how far rows of messages are apart."""
    return triton.cdiv(n_states, 16) * 16 if n_states <= _HALF_WARP else padded_states(n_states)


class _Chains(NamedTuple):
    """What the recursions leave of every step.

    Attributes
    ----------
    messages : (2, T, W) tensor
        α forward and e backward, each row up to a factor.  Forward alone: (1, T, W).
    predictions : (T, W) tensor
        v forward: a step's state given the steps before.  Narrow ones have the gain of an
        `AffineTable` in v and not in e, so that potentials are a sum: (row + offset) ∘ gain.
    first : (T,) int8 tensor
        Whether a step is the first of its sequence.
    log_z : (N,) float64 tensor
    """

    messages: Tensor
    predictions: Tensor
    first: Tensor
    log_z: Tensor


@contextmanager
def _beside(device: Any) -> Iterator[Callable[[], None]]:
    """Launch things on a stream of their own; gives what makes the other stream wait for it."""
    if device.type != "cuda":
        yield lambda: None
        return
    side, main = _side_stream(device), torch.cuda.current_stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield lambda: main.wait_stream(side)


@functools.cache
def _side_stream(device: Any) -> Any:
    return torch.cuda.Stream(device)


def _narrow_chains(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor | None, *, both: bool
) -> _Chains:
    """Run the recursions, a program a sequence and direction."""
    rows, gain, shift = _affine(potentials)
    n_states, n_sequences, n_steps = len(potentials.start), len(offsets) - 1, len(index)
    device, dtype = index.device, rows.dtype
    if order is None:
        order = torch.argsort(offsets.diff(), descending=True, stable=True)
    width = _width(n_states)
    messages = torch.empty((1 + both, n_steps, width), dtype=dtype, device=device)
    predictions = torch.empty((n_steps if both else 1, width), dtype=dtype, device=device)
    first = torch.empty(n_steps if both else 1, dtype=torch.int8, device=device)
    log_z = torch.empty(n_sequences, dtype=torch.float64, device=device)
    matrix = potentials.transitions
    # The transpose may be there already, behind the matrix: see `row_potentials`.
    has_transpose = matrix._base is not None and matrix._base.shape == (2, *matrix.shape)
    by_tiles = n_states <= _HALF_WARP and n_sequences >= TILED
    if by_tiles and rows.stride(0) % 4:
        rows = _padded(rows, len(rows), width)
    if isinstance(potentials.emissions, AffineTable):
        missing = potentials.emissions.missing
    else:
        missing = torch.ones(width, dtype=dtype, device=device)
    if not has_transpose and both:
        matrix = torch.stack([matrix, matrix.T])
    inputs = (
        matrix._base if has_transpose else matrix,
        potentials.start,
        rows,
        gain,
        shift,
        missing,
        potentials.log_scale,
        index,
        offsets,
    )
    outputs = (messages, predictions, first, log_z)
    options = {
        "K": n_states,
        "W": width,
        "BOTH": both,
        "AFFINE": gain is not None,
        "SCALED": potentials.log_scale is not None,
    }

    def run(kernel: Any, order: Tensor, together: int, **own: int) -> None:
        n = len(order)
        kernel[(triton.cdiv(n, together) * (1 + both),)](
            *inputs, order, *outputs, n, len(rows), rows.stride(0), n_steps, **options, **own
        )

    warp = {"INTERPRET": INTERPRETED, "num_warps": 1}
    groups = triton.cdiv(n_states, 16)
    if by_tiles:
        # The longest are waited for: they go the way on which a step takes less time.
        n_long = n_sequences // LONG
        with _beside(device) as joined:
            if n_long:
                run(gpu_device.warp_chains, order[:n_long], 2, GROUPS=groups, **warp)
        run(gpu_tiles.tile_chains, order[n_long:], 16, **warp)
        joined()
    elif n_states <= _HALF_WARP:
        run(gpu_device.warp_chains, order, 2, GROUPS=groups, **warp)
    else:
        lanes = max(32, triton.next_power_of_2(n_states))
        run(gpu_device.block_chains, order, 1, LANES=lanes, num_warps=lanes // 32)
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
    _, gain, _ = _affine(potentials)
    # Spans follow from the number of sequences alone, so that room to spare changes no bit.
    span = min(max(16, triton.next_power_of_2(len(offsets) - 1) // 32), 192)
    n_spans = triton.cdiv(n_steps, span)
    device, dtype = predictions.device, predictions.dtype
    by_tiles = n_states <= _HALF_WARP
    pairs = torch.empty(
        (n_spans, (width if by_tiles else n_states) ** 2), dtype=dtype, device=device
    )
    starts = torch.empty((n_spans, n_states), dtype=dtype, device=device)
    arguments = (
        messages,
        predictions,
        first,
        offsets,
        pairs,
        starts,
        len(offsets) - 1,
        n_steps,
        span,
    )
    options: dict[str, Any] = {"K": n_states, "W": width, "KEEP": absences}
    if by_tiles:
        gpu_tiles.tile_combine[(n_spans,)](
            *arguments, **options, INTERPRET=INTERPRETED, num_warps=1
        )
    else:
        lanes = max(16, triton.next_power_of_2(width))
        gpu_device.block_combine[(n_spans,)](
            *arguments,
            **options,
            LANES=lanes,
            TILE=16,
            PRECISION=_precision(),
            num_warps=4 if lanes <= 64 else 8,
            num_stages=1,
        )
    start = torch.empty(n_states, dtype=torch.float64, device=device)
    transitions = torch.empty((n_states, n_states), dtype=torch.float64, device=device)
    sums = (pairs, starts, potentials.transitions, gain, transitions, start, n_spans)
    if by_tiles:
        n_programs = width * width // 16 + triton.cdiv(n_states, 16)
        gpu_tiles.gather_tiles[(n_programs,)](*sums, K=n_states, W=width, SPANS=256, num_warps=4)
    else:
        gpu_device.gather_spans[(n_states + 1, triton.cdiv(n_states, 16))](
            *sums, K=n_states, TILE=16, SPANS=256, num_warps=8
        )
    responsibilities = predictions[:, :n_states]
    never = None
    if absences:
        forward, backward = messages
        matrix = potentials.transitions if gain is None else potentials.transitions * gain
        never = _absences(forward, backward[1:], matrix, responsibilities, first, offsets, 1)
    return Smoothed(log_z, start, transitions, responsibilities, never)


def _wide_chains(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor | None, *, both: bool
) -> tuple[gpu_wide.Chains, Tensor]:
    """Run the recursions, a group of programs a block of sequences and direction; and log Z."""
    table = _affine(potentials)
    if order is None:
        order = torch.argsort(offsets.diff(), descending=True, stable=True)
    chains = gpu_wide.run_chains(
        potentials.start,
        potentials.transitions,
        table,
        index,
        offsets,
        order,
        gpu_wide.tiling(
            len(potentials.start), len(order), table[0].dtype, exact=_precision() == "tf32x3"
        ),
        both=both,
        interpreted=INTERPRETED,
    )
    log_scale, n_rows = potentials.log_scale, len(table[0])
    return chains, gpu_wide.scores(chains.sums[0], log_scale, index, offsets, n_rows)


def _wide(
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    order: Tensor | None,
    *,
    absences: bool,
) -> Smoothed:
    """Do the same by matrix products over blocks of sequences."""
    chains, log_z = _wide_chains(potentials, index, offsets, order, both=True)
    before, behind = gpu_wide.combine(chains, len(potentials.start))
    responsibilities = chains.predictions[:, : len(potentials.start)]
    start = responsibilities[offsets[:-1]].sum(0, dtype=torch.float64)
    transitions = gpu_wide.sum_pairs(before, behind) * potentials.transitions.double()
    never = None
    if absences:
        never = _absences(
            before, behind, potentials.transitions, responsibilities, chains.first, offsets, 1
        )
    return Smoothed(log_z, start, transitions, responsibilities, never)


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
    gpu_device.sum_absences[(n_spans, n_tiles, n_tiles)](
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
        W=before.stride(0),
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


def _precision() -> str:
    """How Triton multiplies: as exactly as `torch.set_float32_matmul_precision` asks for."""
    return "tf32x3" if torch.get_float32_matmul_precision() == "highest" else "tf32"
