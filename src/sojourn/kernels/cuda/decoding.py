"""Best paths on a GPU, Viterbi's algorithm: host side and device side."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.potentials import affine_parts, pad_matrix, written_out
from sojourn.kernels.durations import Folding, with_edges
from sojourn.kernels.interface import Potentials

Tensor = Any


def viterbi(
    potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
) -> tuple[Tensor, Tensor]:
    """Find the best path of every sequence; ties go to the lower state.

    Returns
    -------
    log_potential : (N,) float64 tensor
    path : (T,) int32 tensor
    """
    if potentials.durations is not None:
        scores, copies = viterbi(*with_edges(written_out(potentials), index, offsets), offsets)
        return scores, copies // Folding.of(potentials).n_copies
    _, best, path = _launch(potentials, index, offsets)
    return best, path


def last_scores(
    potentials: Potentials, index: Tensor, offsets: Tensor, *, n_threads: int = 1
) -> Tensor:
    """Return the score of the best path to each state of the last step of sequences, (N, K)."""
    scores, _, _ = _launch(potentials, index, offsets)
    last = (offsets[1:] - offsets[:-1] - 1) % 2  # scores of two steps take turns
    each = torch.arange(len(scores), device=scores.device)
    return scores[each, last.long(), : len(potentials.start)]


def _launch(
    potentials: Potentials, index: Tensor, offsets: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    rows, gain, shift = affine_parts(potentials)
    n_states, n_sequences, n_steps = len(potentials.start), len(offsets) - 1, len(index)
    tile = min(max(16, triton.next_power_of_2(n_states)), 64)
    width = triton.cdiv(n_states, tile) * tile
    device = index.device
    scores = torch.full((n_sequences, 2, width), -torch.inf, dtype=torch.float64, device=device)
    came_from = torch.empty((n_steps, width), dtype=torch.int16, device=device)
    best = torch.empty(n_sequences, dtype=torch.float64, device=device)
    path = torch.empty(n_steps, dtype=torch.int32, device=device)
    matrix = pad_matrix(potentials.transitions.double(), width, width).log()
    start = pad_matrix(potentials.start.double()[None], 1, width).log()
    _viterbi_kernel[(n_sequences,)](
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
    return scores, best, path


@Launched
@triton.jit(do_not_specialize=["n_rows"], do_not_specialize_on_alignment=["index", "offsets"])
def _viterbi_kernel(
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
    in_turn()
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
                table + symbol.to(tl.int64) * stride + state,
                mask=inside & (state * 0 + symbol < n_rows),
                other=0.0,
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
