"""Forward-backward on a GPU, in Triton, on PyTorch tensors.

Nothing here makes the host wait for the device.

Up to `NARROW` states the transition matrix stays in registers.  Up to 48 of them, and with few
sequences, a thread has a column of it, and gets the message of the step before from other threads:
plain multiply-adds in full single precision, with a short chain of dependent operations per step.
With many sequences a warp works on eight of them by tensor cores; with more states several warps
do.  Forward and backward are the same recursion,

    x_t = φ_t ∘ v_t,   v_{t+1} = x_t M / Σ x_t,

with M = θ and v_1 = θ_0 forward, and M = θᵀ and v = 1 backward, and run side by side.  What they
leave is combined afterwards, where all steps are independent:

    q(z_t) ∝ v_t ∘ e_t,   q(z_{t−1}, z_t) ∝ α_{t−1} θ e_t,

with α = x and v from forward and e = x from backward.  `sojourn.kernels.cuda.wide` has the
recursions of more states, and of double precision.

With ``TRITON_INTERPRET=1`` the same code runs on the CPU, slowly, for tests.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
import triton

from sojourn.kernels.cuda import durations, panels, recursions_triton, settings, tiles, wide
from sojourn.kernels.cuda.potentials import (
    AffineTable,
    affine_parts,
    pad_matrix,
    with_transpose,
)
from sojourn.kernels.cuda.squares import sum_squares
from sojourn.kernels.interface import Potentials, Smoothed, padded_states

NARROW = 256
"""Largest number of states whose transition matrix stays in registers, in single precision."""

_HALF_WARP = 48  # states up to which half a warp, or a warp by tiles, has room for it

_WARPS = 8  # that have room for sixteen columns of it each

TILED = 4096
"""Number of sequences from which a warp works on eight of them by tensor cores.  With fewer it is
waited for: a step takes longer, though one of eight sequences.  With 1,000 to 1,500 sequences `fit`
is as fast both ways, with 2,000 and 3,000 this way 5 to 10% faster (20 and 45 states, on an H200);
but proposals are judged on so many, whose kernels would then have to be compiled, too."""

PROGRAMS = 132
"""Programs that sum pairs of more states, each over a span of the steps: as many as there are
multiprocessors, for a minibatch of a thousand sequences."""

LONG = 264
"""So many sequences, the longest, go the other way all the same, at most one of eight: two warps of
them for each of 132 multiprocessors, a quarter of what these have room for.  The recursions of
10,000 sentences take 61, 62, 64 and 68 µs with 100, 208, 312 and 625, and 71 with none."""

Tensor = Any


def forward_backward(
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    *,
    squares: int = False,
    summed: bool = False,
    order: Tensor | None = None,
    n_threads: int = 1,
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
    squares : int
        Whether to collect the sums of q².
    summed : bool
        Part of the signature: responsibilities are always given.
    order : (N,) tensor, optional
        The sequences, longest first; found here where not given.
    n_threads : int
        Part of the signature.

    Returns
    -------
    Smoothed
        Tensors.  A sequence without a possible path adds nothing; its log normaliser is not finite.
    """
    if order is None:
        order = _longest_first(offsets)
    wanted = bool(squares)
    if potentials.durations is not None:
        return durations.forward_backward(
            forward_backward, potentials, index, offsets, order, squares=wanted
        )
    if is_narrow(len(potentials.start), affine_parts(potentials)[0].dtype):
        return _narrow(potentials, index, offsets, order, squares=wanted)
    return wide.forward_backward(potentials, index, offsets, order, squares=wanted)


def log_normalizers(
    potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
) -> Tensor:
    """Compute log Z of every sequence; arguments as for `forward_backward`."""
    order = _longest_first(offsets)
    if potentials.durations is not None:
        return durations.log_normalizers(log_normalizers, potentials, index, offsets, order)
    if is_narrow(len(potentials.start), affine_parts(potentials)[0].dtype):
        return _narrow_chains(potentials, index, offsets, order, both=False).log_z
    return wide.log_normalizers(potentials, index, offsets, order)


def is_narrow(n_states: int, dtype: Any) -> bool:
    """Whether the transition matrix stays in registers."""
    return n_states <= NARROW and dtype in (torch.float32, np.dtype(np.float32), "float32")


def _width(n_states: int) -> int:
    """Return how far rows of messages are apart."""
    return triton.cdiv(n_states, 16) * 16 if n_states <= _HALF_WARP else padded_states(n_states)


def _longest_first(offsets: Tensor) -> Tensor:
    return torch.argsort(offsets.diff(), descending=True, stable=True)


class _Chains(NamedTuple):
    """What the recursions leave of every step.

    Attributes
    ----------
    messages : (2, T, W) tensor
        α forward and e backward, each row up to a factor.  Forward alone: (1, T, W).
    predictions : (T, W) tensor
        v forward: a step's state given the steps before.  Narrow ones have the gain of an
        `AffineTable` in v and not in e, so that potentials are a sum: (row + offset) ∘ gain.
        Where it `_is_waited_for`, room for them alone.
    first : (T,) int8 tensor
        Whether a step is the first of its sequence.
    log_z : (N,) float64 tensor
    norms : (T,) tensor, optional
        Sums of α; with few states they are found where they are needed.
    missing : (W,) tensor
        The row of the emission table that a missing observation has.
    """

    messages: Tensor
    predictions: Tensor
    first: Tensor
    log_z: Tensor
    norms: Tensor | None
    missing: Tensor


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
    return torch.cuda.Stream(device, priority=-1)  # the longest sequences are waited for


def _narrow_chains(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor, *, both: bool
) -> _Chains:
    """Run the recursions, a program per sequence and direction."""
    rows, gain, shift = affine_parts(potentials)
    n_states, n_sequences, n_steps = len(potentials.start), len(offsets) - 1, len(index)
    device, dtype = index.device, rows.dtype
    width, table = _width(n_states), potentials.emissions
    chains = _Chains(
        torch.empty((1 + both, n_steps, width), dtype=dtype, device=device),
        torch.empty((n_steps if both else 1, width), dtype=dtype, device=device),
        torch.empty(n_steps if both else 1, dtype=torch.int8, device=device),
        torch.empty(n_sequences, dtype=torch.float64, device=device),
        torch.empty(n_steps, dtype=dtype, device=device) if n_states > _HALF_WARP else None,
        table.missing if isinstance(table, AffineTable) else table.new_ones(width),
    )
    if n_states <= _HALF_WARP and n_sequences >= TILED and rows.stride(0) % 4:
        rows = pad_matrix(rows, len(rows), width)
    matrix, log_scale = potentials.transitions, potentials.log_scale
    inputs = (
        with_transpose(matrix) if both else matrix,
        potentials.start,
        rows,
        gain,
        shift,
        chains.missing,
        log_scale,
        index,
        offsets,
    )
    options = {
        "K": n_states,
        "W": width,
        "AFFINE": gain is not None,
        "SCALED": log_scale is not None,
    }

    def run(kernel: Any, order: Tensor, together: int, *more: Any, **own: int) -> None:
        n, parts = len(order), own.get("PARTS", 1)
        sizes = (n, len(rows), rows.stride(0), n_steps)
        kernel[(triton.cdiv(n, together) * (1 + both) * parts,)](
            *inputs, order, *chains[:4], *sizes, *more, **options, **own
        )

    _launch_chains(run, n_states, order, chains.norms, both=both)
    return chains


def _is_waited_for(n_states: int, n_sequences: int) -> bool:
    """Whether the longest sequence is what takes time: with few states and few sequences.

    Recursions do not write predictions then, as that takes time on its way.  They follow from α
    and the potentials; with many sequences that takes longer than to write and read them.
    """
    return n_states <= _HALF_WARP and n_sequences < TILED


def _launch_chains(
    run: Callable[..., None], n_states: int, order: Tensor, norms: Tensor | None, *, both: bool
) -> None:
    """Choose how sequences are worked on by the numbers of states and of sequences."""
    warp = {"INTERPRET": settings.INTERPRETED, "num_warps": 1}
    groups, n_sequences = triton.cdiv(n_states, 16), len(order)
    narrow = {"GROUPS": groups, **warp}
    if n_states > _HALF_WARP:
        n_warps = triton.next_power_of_2(groups)
        # Four programs wait for one another, which the interpreter runs one after the other.
        parts = 4 if n_warps > _WARPS and not settings.INTERPRETED else 1
        n_warps //= parts
        blocks = triton.cdiv(n_sequences, 8) * (1 + both) * (parts - 1)
        room = torch.zeros(2**13 + blocks * 2048 * n_warps, dtype=torch.int32, device=order.device)
        exact = settings.precision() == "tf32x3"
        own = {"BOTH": both, "PARTS": parts, "WARPS": n_warps, "EXACT": exact}
        own["num_warps"] = n_warps
        run(panels.panel_chains, order, 8, norms, room, **warp | own)
    elif _is_waited_for(n_states, n_sequences):
        run(recursions_triton.warp_chains, order, 2, 1 + both, PREDICT=False, **narrow)
    else:
        # The longest are waited for: they go the way on which a step takes less time.
        n_long = min(LONG, n_sequences // 8)
        with _beside(order.device) as joined:
            if n_long:
                long = order[:n_long]
                run(recursions_triton.warp_chains, long, 2, 1 + both, PREDICT=True, **narrow)
        run(tiles.tile_chains, order[n_long:], 8, 1 + both, **warp)
        joined()


def _narrow(
    potentials: Potentials, index: Tensor, offsets: Tensor, order: Tensor, *, squares: bool
) -> Smoothed:
    """Run the recursions, and combine what they leave."""
    chains = _narrow_chains(potentials, index, offsets, order, both=True)
    start, transitions, origins = _combine(chains, potentials, index, offsets, keep=squares)
    responsibilities = chains.predictions[:, : len(potentials.start)]
    squared = None
    if squares:
        _, gain, _ = affine_parts(potentials)
        behind, matrix = chains.messages[1, 1:], potentials.transitions
        squared = sum_squares(
            origins, behind, matrix, gain, responsibilities, chains.first, offsets, 1
        )
    return Smoothed(chains.log_z, start, transitions, responsibilities, squared)


def _combine(
    chains: _Chains, potentials: Potentials, index: Tensor, offsets: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Turn predictions into responsibilities, in place, and sum starts and pairs.

    With `keep`, what is returned last and the backward messages become what stands left and right
    of θ in q(z_{t−1}, z_t).
    """
    n_states, device = len(potentials.start), index.device
    start = torch.empty(n_states, dtype=torch.float64, device=device)
    transitions = torch.empty((n_states, n_states), dtype=torch.float64, device=device)
    combine = _combine_tiles if n_states <= _HALF_WARP else _combine_rows
    origins = combine(chains, potentials, index, offsets, (transitions, start), keep=keep)
    return start, transitions, origins


def _combine_tiles(
    chains: _Chains,
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    out: tuple[Tensor, Tensor],
    *,
    keep: bool,
) -> Tensor:
    """Do so with few states; return what stands left of θ."""
    messages, predictions, first, _, _, missing = chains
    (n_steps, width), n_sequences = predictions.shape, len(offsets) - 1
    n_states, n_spans = len(potentials.start), tiles.most_spans(n_steps)
    rows, gain, shift = affine_parts(potentials)
    sizes, options = (n_sequences, len(rows), rows.stride(0)), {"K": n_states, "W": width}
    starts = predictions.new_empty((n_spans, width))
    pairs = predictions.new_empty((n_spans, width**2))
    origins, predicted = messages[0], not _is_waited_for(n_states, n_sequences)
    if keep and not predicted:  # α is read for predictions, too
        origins = torch.empty_like(origins)
    tiles.tile_combine[(n_spans,)](
        *(messages, predictions, origins, rows, gain, shift, missing, index),
        *(first, offsets, pairs, starts, *sizes, n_steps, tiles.SPANS),
        **options, AFFINE=gain is not None, PREDICTED=predicted, KEEP=keep,
        INTERPRET=settings.INTERPRETED, num_warps=1,
    )  # fmt: skip
    # As many numbers at a time as there may be: what a program does one after another takes longer.
    tiles.gather_tiles[(width * width // 16 + triton.cdiv(n_states, 16),)](
        *(pairs, starts, potentials.transitions, gain, *out, offsets, n_sequences, tiles.SPANS),
        **options, TOGETHER=1024, num_warps=16,
    )  # fmt: skip
    return origins


def _combine_rows(
    chains: _Chains,
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    out: tuple[Tensor, Tensor],
    *,
    keep: bool,
) -> Tensor:
    """Do so with more states; return what stands left of θ."""
    messages, predictions, first, _, norms, _ = chains
    n_states, (n_steps, width) = len(potentials.start), predictions.shape
    n_sequences = len(offsets) - 1
    # Spans follow from the number of sequences alone, so that room to spare changes no bit.
    many = triton.next_power_of_2(n_sequences)
    span = min(max(16, many // 32), 192)
    n_spans, lanes = triton.cdiv(n_steps, span), triton.next_power_of_2(width)
    sizes, options = (n_sequences, n_steps), {"K": n_states, "W": width}
    _, gain, _ = affine_parts(potentials)
    starts = predictions.new_empty((n_spans, n_states))
    scales = predictions.new_empty((2, n_steps))
    recursions_triton.combine_rows[(n_spans,)](
        *(messages, predictions, norms, first, offsets, scales, starts, *sizes, span),
        **options, KEEP=keep, LANES=lanes, TILE=16, num_warps=max(1, lanes // 64),
    )  # fmt: skip
    tile, exact = min(lanes, 128), settings.precision() == "tf32x3"
    side = triton.cdiv(n_states, tile)
    n_longer = triton.cdiv(PROGRAMS, side**2) * max(1, many // 1024)
    pairs = predictions.new_empty((n_longer, n_states**2))
    recursions_triton.sum_pairs[(n_longer, side, side)](
        *(messages, scales, offsets, pairs, *sizes),
        **options, TILE=tile, DEPTH=32, EXACT=exact, INTERPRET=settings.INTERPRETED,
        num_warps=tile // 16, num_stages=1,
    )  # fmt: skip
    recursions_triton.gather_spans[(n_states + 1, triton.cdiv(n_states, 16))](
        *(pairs, starts, potentials.transitions, gain, *out, n_longer, n_spans),
        K=n_states, TILE=16, SPANS=256 // side**2, num_warps=8 // side,
    )  # fmt: skip
    return messages[0]
