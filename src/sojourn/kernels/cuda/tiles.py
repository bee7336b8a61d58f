"""Recursions and sums by tensor cores, up to 48 states, in Triton: launched by `recursions`.

A warp works on eight sequences, or on eight steps, with the matrix instruction of 16 × 8 × 8.
Numbers are cut into two parts that the instruction takes as they are; the product of the two small
parts is left out, so that three instructions make one product in single precision.

Thread 4 g + c of the warp has rows g and g + 8 of what comes out, columns 2 c and 2 c + 1, and of
what goes in rows c and c + 4 of column g.  States are numbered so that what a thread has of them
after a tile has been transposed is what it puts in, and four that follow each other in memory.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sojourn.kernels.cuda.access import (
    UNALIGNED,
    load_four,
    load_one,
    load_two,
    load_whole,
    row_of,
    store_flag,
    store_four,
    store_one,
    store_two,
)
from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.warp import (
    add_exact_product,
    add_products,
    quotient,
    sum_over,
    transposed,
    two_parts,
)

SPANS = 1584
"""Spans of steps that are summed at the same time: twelve for each of 132 multiprocessors, which is
what they have registers for."""

_SHORTEST = tl.constexpr(32)  # steps; a shorter span would take less time than its sums do

_LONGEST = tl.constexpr(192)  # steps; longer sums in single precision are inexact


def most_spans(n_steps: int) -> int:
    """Return into how many spans so many steps or fewer are cut, at most."""
    shortest, longest = _SHORTEST.value, _LONGEST.value
    return max(min(SPANS, triton.cdiv(n_steps, shortest)), triton.cdiv(n_steps, longest))


@triton.jit
def span_of(n_steps, n_spans):
    """Return how long the spans of so many steps are: the same for all, in whole eights.

    It follows from the steps that there are, so that room for more changes no bit.
    """
    even = tl.cdiv(tl.cdiv(n_steps, 8), n_spans) * 8
    return tl.minimum(tl.maximum(even, _SHORTEST), _LONGEST)


@triton.jit
def load_potentials(
    table, missing, symbol, n_rows, stride, quarter, W: tl.constexpr, INTERPRET: tl.constexpr
):
    """Load this thread's part of a symbol's row: states 16 j + 4 c + (0, 1, 2, 3)."""
    row = row_of(table, missing, symbol, n_rows, stride)
    values = ()
    for j in tl.static_range(W // 16):
        state = 16 * j + 4 * quarter
        values = values + load_four(row + state, state < stride, INTERPRET)
    return values


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_rows", "stride", "n_steps", "ways", "K"],
    do_not_specialize_on_alignment=UNALIGNED,
)
def tile_chains(
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
    K,
    W: tl.constexpr,
    AFFINE: tl.constexpr,
    SCALED: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Eight sequences in one of so many directions, each by four threads.

    The matrix is on the left, sixteen states by eight, and messages on the right, eight states by
    eight sequences: so a step waits for half as much as with sixteen sequences on the left.  What
    comes out has a state in each row, and is transposed for the next step, within the warp.
    """
    in_turn()
    program = tl.program_id(0)
    direction = program % ways
    lane = tl.arange(0, 32)
    group, quarter = lane // 4, lane % 4
    is_ahead = lane * 0 + direction == 0
    is_kept = is_ahead & (lane * 0 + ways == 2)
    # The matrix: of states gone from a thread has c and c + 4, and of those gone to g and g + 8.
    matrix = matrices + direction * K * K
    values = ()
    for kt in tl.static_range(W // 8):
        for mt in tl.static_range(W // 16):
            for i in tl.static_range(4):
                state = 16 * (kt // 2) + 4 * quarter + 2 * (kt % 2) + i // 2
                to = 16 * mt + 4 * (group // 2) + 2 * (i % 2) + group % 2
                value = load_one(matrix + state * K + to, (state < K) & (to < K), INTERPRET)
                if AFFINE:
                    entered = tl.where(is_ahead, to, state)
                    value *= load_one(gain + entered, entered < K, INTERPRET)
                values = values + (value,)
    large, small = two_parts(values)
    offset = 0.0
    if AFFINE:
        offset = tl.load(shift) / tl.load(gain)
    place = program // ways * 8 + group
    sequence = load_whole(order + tl.minimum(place, n_sequences - 1), INTERPRET).to(tl.int32)
    begin = load_whole(offsets + sequence, INTERPRET).to(tl.int32)
    end = load_whole(offsets + sequence + 1, INTERPRET).to(tl.int32)
    length = tl.where(place < n_sequences, end - begin, 0)  # none beyond the last sequence
    row = tl.where(direction == 0, begin, end - 1)
    step = 1 - 2 * direction
    # Potentials are on their way for two steps, their symbols for three.
    symbol = load_whole(index + row, INTERPRET)
    coming = load_whole(index + row + tl.where(length > 1, step, 0), INTERPRET)
    later = load_whole(index + row + tl.where(length > 2, 2 * step, 0), INTERPRET)
    phi = load_potentials(table, missing, symbol, n_rows, stride, quarter, W, INTERPRET)
    coming_phi = load_potentials(table, missing, coming, n_rows, stride, quarter, W, INTERPRET)
    zero = tl.zeros((32,), tl.float32)
    total = tl.zeros((32,), tl.float64)
    v = ()
    for p in tl.static_range(W // 4):
        state = 16 * (p // 4) + 4 * quarter + p % 4
        init = load_one(start + state, (state < K) & is_ahead, INTERPRET)
        if AFFINE:
            init *= load_one(gain + state, (state < K) & is_ahead, INTERPRET)
        v = v + (tl.where(is_ahead, init, tl.where(state < K, 1.0, 0.0)),)
    out = messages + direction.to(tl.int64) * n_steps * W
    for t in range(0, tl.max(length, axis=0)):
        active = t < length
        later_phi = load_potentials(table, missing, later, n_rows, stride, quarter, W, INTERPRET)
        norm = zero
        x = ()
        for p in tl.static_range(W // 4):
            value = (phi[p] + offset) * v[p]
            norm += value
            x = x + (value,)
        where = row.to(tl.int64) * W + 4 * quarter
        for j in tl.static_range(W // 16):
            store_four(out + where + 16 * j, x[4 * j : 4 * j + 4], active, INTERPRET)
            four = v[4 * j : 4 * j + 4]
            store_four(predictions + where + 16 * j, four, active & is_kept, INTERPRET)
        is_first = quarter * 0 + t == 0
        store_flag(first + row, is_first, active & is_kept & (quarter == 0), INTERPRET)
        norm = sum_over(norm, 1, 2, INTERPRET)
        total += tl.where(active, tl.log(norm), 0.0).to(tl.float64)
        if SCALED:
            total += tl.load(log_scale + symbol, mask=active & (symbol < n_rows), other=0.0)
        row += tl.where(t + 1 < length, step, 0)
        symbol, coming = coming, later
        later = load_whole(index + row + tl.where(t + 3 < length, 2 * step, 0), INTERPRET)
        phi, coming_phi = coming_phi, later_phi
        sums = ()
        rest = ()
        for _ in tl.static_range(W // 4):
            sums = sums + (zero,)
            rest = rest + (zero,)
        for kt in tl.static_range(W // 8):
            a, b = two_parts(x[2 * kt : 2 * kt + 2])
            # Products that wait for each other are apart.
            rest = add_products(rest, large, b, kt, W // 16, INTERPRET)
            sums = add_products(sums, large, a, kt, W // 16, INTERPRET)
            rest = add_products(rest, small, a, kt, W // 16, INTERPRET)
        inverse = 1.0 / norm
        v = ()
        for mt in tl.static_range(W // 16):
            four = ()
            for i in tl.static_range(4):
                four = four + (sums[4 * mt + i] + rest[4 * mt + i],)
            four = transposed(four[:2], INTERPRET) + transposed(four[2:], INTERPRET)
            for i in tl.static_range(4):
                v = v + (four[i] * inverse,)
    own = (length > 0) & is_ahead & (quarter == 0)
    tl.store(log_z + sequence, total, mask=own)


@triton.jit
def load_symbols(index, begin, last, quarter, INTERPRET: tl.constexpr):
    """Load the symbols of a thread's two of eight steps."""
    return (
        load_whole(index + tl.minimum(begin + quarter, last), INTERPRET),
        load_whole(index + tl.minimum(begin + 4 + quarter, last), INTERPRET),
    )


@triton.jit
def load_steps(
    messages, backward, predictions, table, missing, first, symbol, begin, last, n_rows, stride,
    group, quarter, K, W: tl.constexpr, PREDICTED: tl.constexpr,
    INTERPRET: tl.constexpr,
):  # fmt: skip
    """Load what is known of a thread's two of eight steps, and α of the steps before.

    Either predictions, or α and the potentials.
    """
    forward = predictions if PREDICTED else messages
    is_first = ()
    ahead = ()
    behind = ()
    before = ()
    potential = ()
    for h in tl.static_range(2):
        row = tl.minimum(begin + 4 * h + quarter, last)
        is_first = is_first + (load_whole(first + row, INTERPRET) != 0,)
        for j in tl.static_range(W // 16):
            where = row * W + 16 * j + 2 * group
            ahead = ahead + load_two(forward + where, INTERPRET)
            behind = behind + load_two(backward + where, INTERPRET)
            where = tl.maximum(row - 1, 0) * W + 16 * j + 2 * group
            before = before + load_two(messages + where, INTERPRET)
        if not PREDICTED:
            own = row_of(table, missing, symbol[h], n_rows, stride)
            for p in tl.static_range(W // 8):
                state = 16 * (p // 2) + 2 * group + p % 2
                inside = state < K if p // 2 == W // 16 - 1 else group >= 0
                potential = potential + (load_one(own + state, inside, INTERPRET),)
    return is_first, ahead, behind, before, ahead if PREDICTED else potential


@triton.jit
def share_out(
    forward, behind, before, potential, offset, is_first, there, start,
    PREDICTED: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Return what stands right and left of θ in a step's pairs, q(z_t), and sums of first steps.

    A function of its own, like the two that follow: Triton goes through the body of a loop twice,
    to find what changes in it, and through a function once.
    """
    norm = tl.zeros((32,), tl.float32)
    total = tl.zeros((32,), tl.float32)
    ahead = ()
    for p in tl.static_range(len(forward)):
        norm += before[p]
        value = forward[p]
        if not PREDICTED:
            # α is a prediction times the potential; where that is zero, so is `behind`.
            value = quotient(value, potential[p] + offset, INTERPRET)
        ahead = ahead + (value,)
        total += value * behind[p]
    norm = sum_over(norm, 4, 16, INTERPRET)
    total = sum_over(total, 4, 16, INTERPRET)
    possible = there & (total > 0.0)
    scale = 1.0 / total
    share = 1.0 / norm
    kept = ()
    left = ()
    joint = ()
    longer = ()
    for p in tl.static_range(len(forward)):
        scaled = tl.where(possible, behind[p] * scale, 0.0)
        joined = tl.where(possible, ahead[p] * scaled, 0.0)
        kept = kept + (scaled,)
        left = left + (tl.where(possible & ~is_first, before[p] * share, 0.0),)
        joint = joint + (joined,)
        longer = longer + (start[p] + tl.where(is_first, joined, 0.0),)
    return kept, left, joint, longer


@triton.jit
def store_pairs(pointer, values, mask, INTERPRET: tl.constexpr):
    """Store numbers, two in every sixteen."""
    for j in tl.static_range(len(values) // 2):
        store_two(pointer + 16 * j, values[2 * j : 2 * j + 2], mask, INTERPRET)


@triton.jit
def add_row_of_products(sums, origin, large, small, INTERPRET: tl.constexpr):
    """Add the products of two steps' sixteen states gone from with all states gone to."""
    n: tl.constexpr = len(large) // 2
    a, b = two_parts(origin)
    longer = ()
    for nt in tl.static_range(n):
        c, d = (large[nt], large[n + nt]), (small[nt], small[n + nt])
        longer = longer + add_exact_product(sums[4 * nt : 4 * nt + 4], a, b, c, d, INTERPRET)
    return longer


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_rows", "stride", "n_steps", "n_spans", "K"],
    do_not_specialize_on_alignment=UNALIGNED,
)
def tile_combine(
    messages,
    predictions,
    origins,
    table,
    gain,
    shift,
    missing,
    index,
    first,
    offsets,
    pairs,
    starts,
    n_sequences,
    n_rows,
    stride,
    n_steps,
    n_spans,
    K,
    W: tl.constexpr,
    AFFINE: tl.constexpr,
    PREDICTED: tl.constexpr,
    KEEP: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Turn predictions of a span of steps into responsibilities, and sum over it.

    Where there are none they are found again, and there is only room for them.  With KEEP,
    what stands left and right of θ in q(z_{t−1}, z_t) takes the place of origins and of backward
    messages.

    Of eight steps a thread has c and c + 4, of the states 16 j + 2 g and the next.  The sums of
    pairs are without θ, the same for all steps.
    """
    in_turn()
    program = tl.program_id(0)
    lane = tl.arange(0, 32)
    group, quarter = lane // 4, lane % 4
    n_pairs: tl.constexpr = W // 16
    backward = messages + n_steps.to(tl.int64) * W
    used = tl.load(offsets + n_sequences)
    span = span_of(used, n_spans)
    begin = program * span
    if begin >= used:
        return
    end = tl.minimum(begin + span, used)
    zero = tl.zeros((32,), tl.float32)
    pair = ()
    for _ in tl.static_range(n_pairs * n_pairs * 8):
        pair = pair + (zero,)
    start = ()
    for _ in tl.static_range(2 * n_pairs):
        start = start + (zero,)
    offset = 0.0
    if AFFINE:
        offset = tl.load(shift) / tl.load(gain)
    last = tl.maximum(end - 1, 0)
    symbol = load_symbols(index, begin, last, quarter, INTERPRET)
    now = load_steps(
        messages, backward, predictions, table, missing, first, symbol, begin, last, n_rows, stride,
        group, quarter, K, W, PREDICTED, INTERPRET,
    )  # fmt: skip
    symbol = load_symbols(index, begin + 8, last, quarter, INTERPRET)
    for tile in range(begin, end, 8):
        # The next steps are on their way while these are used, and the symbols of later ones.
        coming = load_steps(
            messages, backward, predictions, table, missing, first, symbol, tile + 8, last,
            n_rows, stride, group, quarter, K, W, PREDICTED, INTERPRET,
        )  # fmt: skip
        symbol = load_symbols(index, tile + 16, last, quarter, INTERPRET)
        is_first, forward, behind, before, potential = now
        weight = ()
        origin = ()
        for h in tl.static_range(2):
            row = tile + 4 * h + quarter
            there = row < end
            kept, left, joint, start = share_out(
                forward[2 * h * n_pairs : 2 * (h + 1) * n_pairs],
                behind[2 * h * n_pairs : 2 * (h + 1) * n_pairs],
                before[2 * h * n_pairs : 2 * (h + 1) * n_pairs],
                potential[2 * h * n_pairs : 2 * (h + 1) * n_pairs],
                offset, is_first[h], there, start, PREDICTED, INTERPRET,
            )  # fmt: skip
            where = row * W + 2 * group
            store_pairs(predictions + where, joint, there, INTERPRET)
            if KEEP:
                store_pairs(backward + where, kept, there, INTERPRET)
                # Before a first step stands the last of another sequence; nobody else reads it.
                store_pairs(origins + where - W, left, there & (row > 0), INTERPRET)
            weight = weight + kept
            origin = origin + left
        large, small = two_parts(weight)
        longer = ()
        for i in tl.static_range(n_pairs):
            two = origin[2 * i : 2 * i + 2] + origin[2 * (n_pairs + i) : 2 * (n_pairs + i) + 2]
            sums = pair[8 * n_pairs * i : 8 * n_pairs * (i + 1)]
            longer = longer + add_row_of_products(sums, two, large, small, INTERPRET)
        pair = longer
        now = coming
    # As they lie in the threads; `gather_tiles` knows which is which.
    where = pairs + program.to(tl.int64) * W * W + 4 * lane
    for p in tl.static_range(n_pairs * n_pairs * 2):
        store_four(where + 128 * p, pair[4 * p : 4 * p + 4], lane >= 0, INTERPRET)
    for p in tl.static_range(2 * n_pairs):
        state = 16 * (p // 2) + 2 * group + p % 2
        value = sum_over(start[p], 1, 2, INTERPRET)
        store_one(starts + program * W + state, value, quarter == 0, INTERPRET)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_spans", "K"], do_not_specialize_on_alignment=["offsets"]
)
def gather_tiles(
    pairs,
    starts,
    matrix,
    gain,
    transitions,
    start,
    offsets,
    n_sequences,
    n_spans,
    K,
    W: tl.constexpr,
    TOGETHER: tl.constexpr,
):
    """Sum pairs over spans in double precision, and bring θ in; the last programs have starts."""
    in_turn()
    program = tl.program_id(0)
    is_start = program >= W * W // 16
    place = program * 16 + tl.arange(0, 16)
    state = place - W * W
    used = tl.load(offsets + n_sequences)
    n_filled = tl.cdiv(used, span_of(used, n_spans))
    total = tl.zeros((16,), tl.float64)
    for begin in range(0, n_filled, TOGETHER):
        span = begin + tl.arange(0, TOGETHER).to(tl.int64)[:, None]
        if is_start:
            where = starts + span * W + state[None, :]
            mask = (span < n_filled) & (state < W)[None, :]
        else:
            where = pairs + span * (W * W) + place[None, :]
            mask = (span < n_filled) & (place >= 0)[None, :]
        total += tl.sum(tl.load(where, mask=mask, other=0.0).to(tl.float64), axis=0)
    if is_start:
        tl.store(start + state, total, mask=state < K)
    else:
        # Number e of thread 4 g + c: of states gone from tile i, and of those gone to tile nt.
        lane, e = place // 4 % 32, place % 4
        i, nt = place // (16 * W), place // 128 % (W // 8)
        left = 16 * i + 2 * (lane // 4) + e // 2
        right = 16 * (nt // 2) + 2 * (2 * (lane % 4) + e % 2) + nt % 2
        mask = (left < K) & (right < K)
        theta = tl.load(matrix + left * K + right, mask=mask, other=0.0)
        if gain is not None:
            theta *= tl.load(gain + right, mask=mask, other=0.0)
        tl.store(transitions + left * K + right, total * theta.to(tl.float64), mask=mask)
