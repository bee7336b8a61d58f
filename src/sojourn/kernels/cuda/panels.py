"""Recursions by tensor cores for 49 to 256 states, in Triton: launched by `recursions`.

A program of several warps works on eight sequences.  Each warp makes sixteen of the states, and has
their columns of the transition matrix in registers, as the left side of the matrix instruction of
16 × 8 × 8; messages of the eight sequences are its right side.  They pass from warp to warp through
shared memory.  Beyond 128 states four programs share the states, and send each other their messages
through memory: the last bit of a number says whether it is the one that is waited for.

Thread 4 g + c of a warp has rows g and g + 8 of what comes out, which are states 2 g and 2 g + 1,
and columns 2 c and 2 c + 1, which are sequences.  It wants rows c and c + 4 of what goes in, and
column g.  States are numbered so that four of these lie side by side.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sojourn.kernels.cuda.access import (
    load_four_shared,
    load_one,
    receive_three,
    row_of,
    send,
    shared_room,
    store_two,
    store_two_shared,
    wait_for_warps,
)
from sojourn.kernels.cuda.launch import Launched, in_turn
from sojourn.kernels.cuda.warp import (
    add_product,
    from_any_lane,
    sum_over,
    two_parts,
    two_parts_here,
)


@triton.jit
def panel_product(
    x, columns, N: tl.constexpr, HERE: tl.constexpr, EXACT: tl.constexpr, INTERPRET: tl.constexpr
):
    """Multiply N columns of eight rows of messages each with a warp's part of the matrix.

    Sums of large parts are short, as the matrix units cut off what they add up.
    """
    zero = tl.zeros(x[0].shape, tl.float32)
    four = (zero, zero, zero, zero)
    # The sum that was added to longest ago comes next: products that wait for each other are apart.
    main = four + four + four + four
    left = four + four
    right = four + four
    for k in tl.static_range(N):
        if HERE:
            large_a, small_a = two_parts_here(columns[4 * k : 4 * k + 4], INTERPRET)
        else:
            large_a, small_a = two_parts(columns[4 * k : 4 * k + 4])
        large_b, small_b = two_parts(x[2 * k : 2 * k + 2])
        main = main[4:] + add_product(main[:4], large_a, large_b, INTERPRET)
        if EXACT:
            left = left[4:] + add_product(left[:4], small_a, large_b, INTERPRET)
            right = right[4:] + add_product(right[:4], large_a, small_b, INTERPRET)
    found = ()
    for i in tl.static_range(4):
        small = (left[i] + left[4 + i]) + (right[i] + right[4 + i])
        large = (main[i] + main[4 + i]) + (main[8 + i] + main[12 + i])
        found = found + (large + small,)
    return found


@triton.jit
def keep_step(
    x, v, row, active, state, out, predictions, is_ahead,
    W: tl.constexpr, BOTH: tl.constexpr, INTERPRET: tl.constexpr,
):  # fmt: skip
    """Write the messages of a step, and its predictions."""
    for h in tl.static_range(2):
        where = row[h].to(tl.int64) * W + state
        kept = active[h] & (state < W)
        store_two(out + where, x[2 * h : 2 * h + 2], kept, INTERPRET)
        if BOTH:
            store_two(predictions + where, (v[h], v[2 + h]), kept & is_ahead, INTERPRET)


@triton.jit
def load_potentials(
    table, missing, symbol, n_rows, stride, state, K: tl.constexpr, INTERPRET: tl.constexpr
):
    """Load a thread's two states of the rows of its two sequences' symbols."""
    values = ()
    for h in tl.static_range(2):
        here = row_of(table, missing, symbol[h], n_rows, stride) + state
        for i in tl.static_range(2):
            values = values + (load_one(here + i, state + i < K, INTERPRET),)
    return values


@triton.jit
def finish_panel(
    norms, log_scale, index, offsets, order, first, log_z, block, longest, n_sequences, n_rows,
    BOTH: tl.constexpr, SCALED: tl.constexpr, WARPS: tl.constexpr,
):  # fmt: skip
    """Sum the logarithms of eight sequences, each by a warp, and mark their first steps."""
    lane = tl.arange(0, 32)[None, :]
    for i in tl.static_range((7 + WARPS) // WARPS):
        place = WARPS * i + tl.arange(0, WARPS)
        there = (place < 8) & (block * 8 + place < n_sequences)
        which = tl.load(order + block * 8 + place, mask=there, other=0)
        begin = tl.load(offsets + which, mask=there, other=0)[:, None]
        end = tl.load(offsets + which + 1, mask=there, other=0)[:, None]
        total = tl.zeros((WARPS, 32), tl.float64)
        for t in range(0, longest, 32):
            row = begin + t + lane
            mask = row < end
            total += tl.log(tl.load(norms + row, mask=mask, other=1.0)).to(tl.float64)
            if SCALED:
                symbol = tl.load(index + row, mask=mask, other=n_rows)
                total += tl.load(log_scale + symbol, mask=symbol < n_rows, other=0.0)
            if BOTH:
                tl.store(first + row, (row == begin).to(tl.int8), mask=mask)
        tl.store(log_z + which, tl.sum(total, axis=1), mask=there)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_rows", "stride", "n_steps"],
    do_not_specialize_on_alignment=["index", "offsets", "order", "first", "room"],
)
def panel_chains(
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
    norms,
    room,
    K: tl.constexpr,
    W: tl.constexpr,
    BOTH: tl.constexpr,
    AFFINE: tl.constexpr,
    SCALED: tl.constexpr,
    PARTS: tl.constexpr,
    WARPS: tl.constexpr,
    EXACT: tl.constexpr,
    INTERPRET: tl.constexpr,
):
    """Eight sequences in one direction, or a quarter of their states.

    `room` is for what programs send each other, and begins with zeros.
    """
    in_turn()
    n_pairs: tl.constexpr = triton.cdiv(K, 16)
    pitch: tl.constexpr = 16 * (n_pairs + 1 - n_pairs % 2)  # in which no two threads collide
    # Numbers in the order of starting: those that a program waits for have started, or come next.
    number = tl.program_id(0)
    if PARTS > 1:
        number = tl.atomic_add(room, 1, sem="relaxed")
    part = number % PARTS
    program = number // PARTS
    direction = program % 2 if BOTH else program * 0
    block = program // 2 if BOTH else program
    thread = tl.arange(0, 32 * WARPS)
    warp, group, quarter = thread // 32, thread % 32 // 4, thread % 4
    is_ahead = thread * 0 + direction == 0
    state = part * (16 * WARPS) + 16 * warp + 2 * group
    matrix = matrices + direction * K * K
    columns = ()
    for k in tl.static_range(2 * n_pairs):
        for i in tl.static_range(4):
            came = 16 * (k // 2) + 4 * quarter + 2 * (k % 2) + i // 2
            to = state + i % 2
            value = load_one(matrix + came * K + to, (came < K) & (to < K), INTERPRET)
            columns = columns + (value,)
    offset = 0.0
    if AFFINE:
        offset = tl.load(shift) / tl.load(gain)
    inner = ()  # what messages are multiplied by before the product, and after it
    outer = ()
    v = ()
    for i in tl.static_range(2):
        own = tl.full((32 * WARPS,), 1.0, tl.float32)
        if AFFINE:
            own = load_one(gain + state + i, state + i < K, INTERPRET)
        inner = inner + (tl.where(is_ahead, 1.0, own),)
        outer = outer + (tl.where(is_ahead, own, 1.0),)
        init = load_one(start + state + i, (state + i < K) & is_ahead, INTERPRET)
        init = tl.where(is_ahead, init * outer[i], tl.where(state + i < K, 1.0, 0.0))
        v = v + (init, init)
    # Two sequences: those of columns 2 c and 2 c + 1.
    length = ()  # none beyond the last sequence
    row = ()
    symbol = ()
    coming = ()
    step = 1 - 2 * direction
    longest = tl.zeros((), tl.int32)
    for h in tl.static_range(2):
        place = block * 8 + 2 * quarter + h
        which = tl.load(order + place, mask=place < n_sequences, other=0).to(tl.int32)
        begin = tl.load(offsets + which).to(tl.int32)
        end = tl.load(offsets + which + 1).to(tl.int32)
        n = tl.where(place < n_sequences, end - begin, 0)
        longest = tl.maximum(longest, tl.max(n, axis=0))
        length = length + (n,)
        row = row + (tl.where(direction == 0, begin, end - 1),)
        symbol = symbol + (tl.load(index + row[h]),)
        # Symbols are read a step before their potentials.
        coming = coming + (tl.load(index + row[h] + tl.where(n > 1, step, 0)),)
    phi = load_potentials(table, missing, symbol, n_rows, stride, state, K, INTERPRET)
    out = messages + direction.to(tl.int64) * n_steps * W
    # Two places each, for steps in turn: one is written while the other may still be read.
    slot = room + 4 + program.to(tl.int64) * (PARTS * 2 * 128 * WARPS) + 4 * thread
    shared = shared_room(room + thread * 0, INTERPRET)
    for t in range(0, longest):
        turn = (t % 2) * (8 * pitch)
        active = (t < length[0], t < length[1])
        x = ()
        for h in tl.static_range(2):
            for i in tl.static_range(2):
                x = x + ((phi[2 * h + i] + offset) * v[2 * i + h],)
        come = (x[0] * inner[0], x[1] * inner[1], x[2] * inner[0], x[3] * inner[1])
        if PARTS > 1:
            sign = thread * 0 + (1 - t // 2 % 2)
            inbox = slot + (t % 2) * (128 * WARPS)
            send(inbox + part * (256 * WARPS), come, sign)
        for h in tl.static_range(2):
            at = turn + (2 * quarter + h) * pitch + state
            store_two_shared(shared, at, come[2 * h : 2 * h + 2], state < 16 * n_pairs, INTERPRET)
        if PARTS > 1:
            keep_step(x, v, row, active, state, out, predictions, is_ahead, W, BOTH, INTERPRET)
            others = receive_three(
                inbox + (part ^ 1) * (256 * WARPS),
                inbox + (part ^ 2) * (256 * WARPS),
                inbox + (part ^ 3) * (256 * WARPS),
                sign,
            )
            for p in tl.static_range(3):
                theirs = (part ^ (p + 1)) * (16 * WARPS) + 16 * warp + 2 * group
                there = theirs < 16 * n_pairs
                for h in tl.static_range(2):
                    at = turn + (2 * quarter + h) * pitch + theirs
                    two = others[4 * p + 2 * h : 4 * p + 2 * h + 2]
                    store_two_shared(shared, at, two, there, INTERPRET)
        wait_for_warps(thread, INTERPRET)
        whole = ()
        for j in tl.static_range(n_pairs):
            at = turn + group * pitch + 16 * j + 4 * quarter
            whole = whole + load_four_shared(shared, at, INTERPRET)
        d = panel_product(whole, columns, 2 * n_pairs, n_pairs > 8, EXACT, INTERPRET)
        if PARTS == 1:
            keep_step(x, v, row, active, state, out, predictions, is_ahead, W, BOTH, INTERPRET)
        symbol = coming
        phi = load_potentials(table, missing, symbol, n_rows, stride, state, K, INTERPRET)
        norm = tl.zeros((32 * WARPS,), tl.float32)
        for j in tl.static_range(n_pairs):
            norm += (whole[4 * j] + whole[4 * j + 1]) + (whole[4 * j + 2] + whole[4 * j + 3])
        norm = sum_over(norm, 1, 2, INTERPRET)
        v = ()
        inverse = ()
        coming = ()
        next_row = ()
        for h in tl.static_range(2):
            own = from_any_lane(norm, 8 * quarter + 4 * h, INTERPRET)
            tl.store(norms + row[h], own, mask=active[h] & is_ahead & (state == 0))
            inverse = inverse + (1.0 / own,)
            next_row = next_row + (row[h] + tl.where(t + 1 < length[h], step, 0),)
            ahead = tl.where(t + 2 < length[h], step, 0)
            coming = coming + (tl.load(index + next_row[h] + ahead),)
        row = next_row
        for i in tl.static_range(2):
            for h in tl.static_range(2):
                v = v + (d[2 * i + h] * (inverse[h] * outer[i]),)
    if (direction == 0) & (part == 0):
        tl.debug_barrier()
        finish_panel(
            norms, log_scale, index, offsets, order, first, log_z,
            block, longest, n_sequences, n_rows, BOTH, SCALED, WARPS,
        )  # fmt: skip
