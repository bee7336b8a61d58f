"""The device side of `sojourn.kernels.cuda.recursions`, but for what tensor cores do by the warp.

One function is one launch.  Names in capitals are known when it is compiled; sizes that change from
one minibatch to the next are not, so that none is compiled twice.  Rows of messages are
W numbers apart, of which the first K are states.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sojourn.kernels.cuda.access import (
    UNALIGNED,
    load_sixteenths,
    load_whole,
    row_of,
    store_flag,
    store_one,
)
from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.warp import add_from_lanes, sum_over


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_rows", "stride", "n_steps", "ways"],
    do_not_specialize_on_alignment=UNALIGNED,
)
def warp_chains(
    matrices,
    start,
    table,
    gain,
    shift,
    missing,
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
    ways,
    K: tl.constexpr,
    W: tl.constexpr,
    AFFINE: tl.constexpr,
    SCALED: tl.constexpr,
    PREDICT: tl.constexpr,
    GROUPS: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Two sequences in one of so many directions, each by half a warp, up to three states a thread.

    A thread has the columns of its states in registers, and gets the other threads' messages from
    theirs: nothing on the way from one step to the next passes through memory.
    """
    in_turn()
    program = tl.program_id(0)
    direction = program % ways
    lane = tl.arange(0, 32)
    is_ahead = lane * 0 + direction == 0
    is_kept = is_ahead & (lane * 0 + ways == 2)
    place = program // ways * 2 + lane // 16
    exists = place < n_sequences
    sequence = load_whole(order + tl.minimum(place, n_sequences - 1), INTERPRET)
    begin = load_whole(offsets + sequence, INTERPRET)
    end = tl.where(exists, load_whole(offsets + sequence + 1, INTERPRET), begin + 1)
    longest = tl.max(end - begin, axis=0)
    matrix = matrices + direction * K * K
    # A thread has every sixteenth state.
    state = lane % 16
    n_left = K - state
    columns = ()
    v = ()
    by = ()
    offset = 0.0
    inits = load_sixteenths(start + state, n_left, (), GROUPS, INTERPRET)
    if AFFINE:
        offset = tl.load(shift) / tl.load(gain)
        by = load_sixteenths(gain + state, n_left, (), GROUPS, INTERPRET)
    gains = ()
    for g in tl.static_range(GROUPS):
        init = inits[g]
        if AFFINE:
            init *= by[g]
            gains = gains + (tl.where(is_ahead, by[g], 1.0),)
        v = v + (tl.where(is_ahead, init, tl.where(n_left > 16 * g, 1.0, 0.0)),)
    for k in tl.static_range(K):
        if AFFINE:
            # Of the state that is entered: forward a thread's own, backward the one of the row.
            by = (gain + k + lane * 0, is_ahead.to(tl.int32)) + gains
        here = matrix + k * K + state
        columns = columns + load_sixteenths(here, n_left, by, GROUPS, INTERPRET)
    out = messages + direction.to(tl.int64) * n_steps * W
    row = tl.where(direction == 0, begin, end - 1)
    step = 1 - 2 * direction
    last = tl.where(direction == 0, end - 1, begin)
    coming_row = tl.where(row == last, row, row + step)
    symbol = load_whole(index + row, INTERPRET)
    coming = load_whole(index + coming_row, INTERPRET)
    here = row_of(table, missing, symbol, n_rows, stride) + state
    phi = load_sixteenths(here, n_left, (), GROUPS, INTERPRET)
    here = row_of(table, missing, coming, n_rows, stride) + state
    coming_phi = load_sixteenths(here, n_left, (), GROUPS, INTERPRET)
    later_row = tl.where(coming_row == last, last, coming_row + step)
    later = load_whole(index + later_row, INTERPRET)
    zero = tl.zeros((32,), tl.float32)
    total = tl.zeros((32,), tl.float64)
    for t in range(0, longest):
        active = exists & (t < end - begin)
        # Potentials are on their way for two steps, their symbols for three.
        here = row_of(table, missing, later, n_rows, stride) + state
        later_phi = load_sixteenths(here, n_left, (), GROUPS, INTERPRET)
        next_row = tl.where(later_row == last, last, later_row + step)
        next_symbol = load_whole(index + next_row, INTERPRET)
        x = ()
        norm = zero
        where = row * W + state
        for g in tl.static_range(GROUPS):
            message = (phi[g] + offset) * v[g]
            norm += message
            x = x + (message,)
            store_one(out + where + 16 * g, message, active, INTERPRET)
            if PREDICT:
                store_one(predictions + where + 16 * g, v[g], active & is_kept, INTERPRET)
        store_flag(first + row, row == begin, active & is_kept, INTERPRET)
        if SCALED:
            total += tl.load(log_scale + symbol, mask=active & (symbol < n_rows), other=0.0)
        norm = sum_over(norm, 1, 8, INTERPRET)
        v = ()
        for _ in tl.static_range(GROUPS):
            v = v + (zero,)
        for k in tl.static_range(0, K - K % 4, 4):
            four = columns[k * GROUPS : (k + 4) * GROUPS]
            v = add_from_lanes(v, x[k // 16], k % 16, four, INTERPRET)
        for k in tl.static_range(K - K % 4, K):
            column = columns[k * GROUPS : (k + 1) * GROUPS]
            v = add_from_lanes(v, x[k // 16], k % 16, column, INTERPRET)
        inverse = 1.0 / norm
        scaled = ()
        for g in tl.static_range(GROUPS):
            scaled = scaled + (v[g] * inverse,)
        v = scaled
        total += tl.where(active, tl.log(norm), 0.0).to(tl.float64)
        row, coming_row, later_row = coming_row, later_row, next_row
        symbol, coming, later = coming, later, next_symbol
        phi, coming_phi = coming_phi, later_phi
    tl.store(log_z + sequence, total, mask=exists & is_ahead & (lane % 16 == 0))


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_steps", "span"],
    do_not_specialize_on_alignment=["first", "offsets"],
)
def combine_rows(
    messages,
    predictions,
    norms,
    first,
    offsets,
    scales,
    starts,
    n_sequences,
    n_steps,
    span,
    K: tl.constexpr,
    W: tl.constexpr,
    KEEP: tl.constexpr,
    LANES: tl.constexpr,
    TILE: tl.constexpr,
):
    """Turn predictions of a span of steps into responsibilities, and sum those of first steps.

    Writes what messages are to be multiplied by in q(z_{t-1}, z_t): those of the step before, and
    its own.
    """
    in_turn()
    program = tl.program_id(0)
    used = tl.load(offsets + n_sequences)
    state = tl.arange(0, LANES)
    inside = (state < W)[None, :]
    start = tl.zeros((LANES,), tl.float32)
    backward = messages + n_steps.to(tl.int64) * W
    for tile in range(program * span, tl.minimum((program + 1) * span, used), TILE):
        row = tile + tl.arange(0, TILE)
        there = (row < used)[:, None] & inside
        is_first = (tl.load(first + row, mask=row < used, other=0) != 0)[:, None]
        where = row.to(tl.int64)[:, None] * W + state[None, :]
        ahead = tl.load(predictions + where, mask=there, other=0.0)
        behind = tl.load(backward + where, mask=there, other=0.0)
        joint = ahead * behind
        total = tl.sum(joint, axis=1)[:, None]
        mask = (row < used)[:, None] & ~is_first
        norm = tl.load(norms + row[:, None] - 1, mask=mask, other=1.0)
        possible = total > 0.0
        scale = tl.where(possible, 1.0 / total, 0.0)
        share = tl.where(possible & ~is_first, 1.0 / norm, 0.0)
        joint = tl.where(possible, joint * scale, 0.0)
        tl.store(predictions + where, joint, mask=there)
        start += tl.sum(tl.where(is_first, joint, 0.0), axis=0)
        if KEEP:
            kept = tl.where(possible, behind * scale, 0.0)
            tl.store(backward + where, kept, mask=there)
            before = tl.load(messages + where - W, mask=there & ~is_first, other=0.0)
            # Before a first step stands the last of another sequence, which nobody else reads.
            kept = tl.where(share > 0.0, before * share, 0.0)
            tl.store(messages + where - W, kept, mask=there & (row > 0)[:, None])
            scale = tl.where(possible, 1.0, 0.0)
            share = tl.where(share > 0.0, 1.0, 0.0)
        once = (row < used)[:, None]
        tl.store(scales + row[:, None], share, mask=once)
        tl.store(scales + n_steps + row[:, None], scale, mask=once)
    tl.store(starts + program * K + state, start, mask=state < K)


@triton.jit
def three_parts(x, INTERPRET: tl.constexpr):
    """Cut numbers into three of eight bits each, the largest first."""
    first = (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    rest = x - first
    second = (rest.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)
    if INTERPRET:  # which does not know the products of short numbers
        return first, second, rest - second
    return first.to(tl.bfloat16), second.to(tl.bfloat16), (rest - second).to(tl.bfloat16)


@triton.jit
def product_of_parts(x, y, EXACT: tl.constexpr, INTERPRET: tl.constexpr):
    """Multiply tiles in single precision, without products of parts that are too small to count.

    What the matrix units add up is cut off, not rounded: sums stay short.
    """
    a, b, c = three_parts(x, INTERPRET)
    d, e, f = three_parts(y, INTERPRET)
    v = tl.zeros((x.shape[0], y.shape[1]), tl.float32)
    if EXACT:
        v = tl.dot(c, d, v)
        v = tl.dot(b, e, v)
        v = tl.dot(a, f, v)
    v = tl.dot(b, d, v)
    v = tl.dot(a, e, v)
    return tl.dot(a, d, v)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_steps"], do_not_specialize_on_alignment=["offsets"]
)
def sum_pairs(
    messages,
    scales,
    offsets,
    pairs,
    n_sequences,
    n_steps,
    K: tl.constexpr,
    W: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    EXACT: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Sum a tile of pairs over a span of steps, without θ, the same for all steps."""
    in_turn()
    program = tl.program_id(0)
    used = tl.load(offsets + n_sequences)
    span = tl.cdiv(used, tl.num_programs(0) * DEPTH) * DEPTH
    left = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    right = tl.program_id(2) * TILE + tl.arange(0, TILE)[None, :]
    backward = messages + n_steps.to(tl.int64) * W
    pair = tl.zeros((TILE, TILE), tl.float32)
    for tile in range(program * span, tl.minimum((program + 1) * span, used), DEPTH):
        row = (tile + tl.arange(0, DEPTH))[:, None]
        there = row < used
        share = tl.load(scales + row, mask=there, other=0.0)
        scale = tl.load(scales + n_steps + row, mask=there, other=0.0)
        where = row.to(tl.int64) * W
        before = tl.load(
            messages + where - W + left, mask=there & (row > 0) & (left < W), other=0.0
        )
        behind = tl.load(backward + where + right, mask=there & (right < W), other=0.0)
        before = tl.where(share > 0.0, before * share, 0.0)
        behind = tl.where(scale > 0.0, behind * scale, 0.0)
        pair += product_of_parts(tl.trans(before), behind, EXACT, INTERPRET)
    left = tl.program_id(1) * TILE + tl.arange(0, TILE)[:, None]
    where = program * K * K + left * K + right
    tl.store(pairs + where, pair, mask=(left < K) & (right < K))


@Launched
@triton.jit(do_not_specialize=["n_spans", "n_short"])
def gather_spans(
    pairs,
    starts,
    matrix,
    gain,
    transitions,
    start,
    n_spans,
    n_short,
    K: tl.constexpr,
    TILE: tl.constexpr,
    SPANS: tl.constexpr,
):
    """Sum a row of pairs over spans in double precision, and bring θ in; the last row is starts."""
    in_turn()
    row = tl.program_id(0)
    state = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = state < K
    is_start = row == K
    source = tl.where(is_start, starts, pairs + row * K)
    apart = tl.where(is_start, K, K * K)
    n = tl.where(is_start, n_short, n_spans)
    total = tl.zeros((TILE,), tl.float64)
    for begin in range(0, n, SPANS):
        span = begin + tl.arange(0, SPANS)
        there = (span < n)[:, None] & inside[None, :]
        where = span.to(tl.int64)[:, None] * apart + state[None, :]
        total += tl.sum(tl.load(source + where, mask=there, other=0.0).to(tl.float64), axis=0)
    if is_start:
        tl.store(start + state, total, mask=inside)
    else:
        theta = tl.load(matrix + row * K + state, mask=inside, other=0.0)
        if gain is not None:
            theta *= tl.load(gain + state, mask=inside, other=0.0)
        tl.store(transitions + row * K + state, total * theta.to(tl.float64), mask=inside)
