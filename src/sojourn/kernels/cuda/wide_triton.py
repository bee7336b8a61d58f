"""The device side of `sojourn.kernels.cuda.wide`: recursions of many states.

A group of programs works on a block of sequences in one direction, each program on a tile of the
states.  Every step they wait for one another, for each needs the messages of all.
"""

from __future__ import annotations

import triton
import triton.language as tl

from sojourn.kernels.cuda.launch import Launched, in_turn

PATIENCE = tl.constexpr(2**26)
"""Looks at a counter, of half a microsecond or more each, after which a program gives up."""


@triton.jit
def as_tf32(x):
    """Round to the eleven bits that a product in tf32 reads."""
    bits = x.to(tl.uint32, bitcast=True)
    return ((bits + 0x1000) & 0xFFFFE000).to(tl.float32, bitcast=True)


@triton.jit
def product(x, high, low, PRODUCT: tl.constexpr):
    """Multiply tiles.  What the matrix units add up is cut off, not rounded: sums stay short."""
    if PRODUCT == "ieee":
        v = tl.dot(x, high, input_precision="ieee", out_dtype=x.dtype)
    else:
        x_high = as_tf32(x)
        v = tl.zeros((x.shape[0], high.shape[1]), tl.float32)
        if PRODUCT == "tf32x3":
            v = tl.dot(x - x_high, high, v, input_precision="tf32")
            v = tl.dot(x_high, low, v, input_precision="tf32")
        v = tl.dot(x_high, high, v, input_precision="tf32")
    return v


@Launched
@triton.jit
def split(matrix, out, K: tl.constexpr, W: tl.constexpr, TILE: tl.constexpr):
    """Write a tile of θᵀ and of θ, padded with zeros: what tf32 holds, and behind it the rest."""
    in_turn()
    left = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    right = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    value = tl.load(matrix + left * K + right, mask=(left < K) & (right < K), other=0.0)
    high = as_tf32(value)
    inside = (left < W) & (right < W)
    for direction in tl.static_range(2):
        where = out + direction * 2 * W * W
        where += right * W + left if direction == 0 else left * W + right
        tl.store(where, high, mask=inside)
        tl.store(where + W * W, value - high, mask=inside)


@Launched
@triton.jit(
    do_not_specialize=["n_sequences", "n_rows", "n_steps", "width", "t_begin", "t_end"],
    do_not_specialize_on_alignment=["index", "offsets", "order", "first", "counters"],
)
def shared_chains(
    matrices,
    start,
    table,
    gain,
    shift,
    index,
    offsets,
    order,
    messages,
    predictions,
    sums,
    first,
    counters,
    n_sequences,
    n_rows,
    stride,
    n_steps,
    width,
    t_begin,
    t_end,
    K: tl.constexpr,
    W: tl.constexpr,
    BOTH: tl.constexpr,
    AFFINE: tl.constexpr,
    BLOCK: tl.constexpr,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    PRODUCT: tl.constexpr,
    WAIT: tl.constexpr,
):
    """Run the recursion of a block of sequences in one direction, for a tile of the states.

    Steps from `t_begin` to `t_end`; more than one only where programs wait for one another.
    """
    in_turn()
    PARTS: tl.constexpr = W // TILE
    COUNTED: tl.constexpr = triton.next_power_of_2(W // TILE)
    # Numbers in the order of starting: those that a program waits for have started, or come next.
    number = tl.atomic_add(counters, 1, sem="relaxed") if WAIT else tl.program_id(0)
    part = number % PARTS
    group = number // PARTS
    direction = group % 2 if BOTH else group * 0
    lane = (group // 2 if BOTH else group) * BLOCK + tl.arange(0, BLOCK)
    exists = lane < n_sequences
    sequence = tl.load(order + lane, mask=exists, other=0)
    begin = tl.load(offsets + sequence, mask=exists, other=0).to(tl.int32)
    length = tl.load(offsets + sequence + 1, mask=exists, other=0).to(tl.int32) - begin
    end = tl.minimum(tl.max(length, axis=0), t_end)
    counter = counters + 1 + group
    state = part * TILE + tl.arange(0, TILE)
    inside = (state < K)[None, :]
    ahead = inside & (state * 0 + direction == 0)[None, :]
    gains = tl.full((1, TILE), 1.0, table.dtype.element_ty)
    shifts = tl.zeros((1, TILE), table.dtype.element_ty)
    if AFFINE:
        gains = tl.load(gain + state, mask=state < K, other=0.0)[None, :]
        shifts = tl.load(shift + state, mask=state < K, other=0.0)[None, :]
    matrix = matrices + direction * (W * W if PRODUCT == "ieee" else 2 * W * W)
    out = messages + direction.to(tl.int64) * n_steps * W
    own_sums = sums + direction.to(tl.int64) * n_steps * PARTS
    step = 1 - 2 * direction
    row = tl.where(lane * 0 + direction == 0, begin, begin + length - 1) + t_begin * step
    counted = tl.arange(0, COUNTED)[None, :]
    if PRODUCT == "vector":
        every = tl.arange(0, triton.next_power_of_2(W))
        column = matrix + state[None, :] * W + every[:, None]
        columns = tl.load(column, mask=(every < W)[:, None], other=0.0)
        columns += tl.load(column + W * W, mask=(every < W)[:, None], other=0.0)
    tries = tl.zeros((), tl.int32)
    for t in range(t_begin, end):
        active = t < length
        symbol = tl.load(index + row, mask=active, other=0)
        seen = active & (symbol < n_rows)
        where = symbol.to(tl.int64)[:, None] * stride + state[None, :]
        phi = tl.load(table + where, mask=seen[:, None] & inside, other=0.0)
        if t == 0:
            v = tl.load(start + state, mask=state < K, other=0.0)[None, :]
            v = tl.where(direction == 0, v, 1.0) + tl.zeros((BLOCK, TILE), v.dtype)
        else:
            if WAIT:
                done = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
                while (done < t * PARTS) & (tries < PATIENCE):
                    done = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
                    tries += 1
            before = row - step
            norm = tl.load(
                own_sums + before.to(tl.int64)[:, None] * PARTS + counted,
                mask=active[:, None] & (counted < PARTS),
                other=0.0,
            )
            norm = tl.sum(norm, axis=1)[:, None]
            if PRODUCT == "vector":
                here = out + tl.sum(before, axis=0).to(tl.int64) * W
                whole = tl.load(here + every, mask=every < W, other=0.0)
                v = tl.sum(whole[:, None] * columns, axis=0)[None, :]
            else:
                come = out + before.to(tl.int64)[:, None] * W
                v = tl.zeros((BLOCK, TILE), table.dtype.element_ty)
                for k in range(0, width, DEPTH):
                    depth = k + tl.arange(0, DEPTH)
                    x = tl.load(come + depth[None, :], mask=active[:, None], other=0.0)
                    theta = matrix + state[None, :] * W + depth[:, None]
                    high = tl.load(theta)
                    low = tl.load(theta + W * W) if PRODUCT == "tf32x3" else high
                    v += product(x, high, low, PRODUCT)
            v = tl.where((norm > 0.0) & (tries < PATIENCE), v / norm, 0.0)
        phi = tl.where(seen[:, None], phi * gains + shifts, 1.0)
        message = tl.where(active[:, None] & inside, phi * v, 0.0)
        to = row.to(tl.int64)[:, None] * W + state[None, :]
        tl.store(out + to, message, mask=active[:, None])
        tl.store(own_sums + row.to(tl.int64) * PARTS + part, tl.sum(message, axis=1), mask=active)
        if WAIT:
            tl.debug_barrier()
            tl.atomic_add(counter, 1, sem="release", scope="gpu")
        if BOTH:
            tl.store(predictions + to, v, mask=active[:, None] & ahead)
            one = (lane * 0 + part == 0) & (lane * 0 + direction == 0)
            tl.store(first + row, (row == begin).to(tl.int8), mask=active & one)
        row += step


@Launched
@triton.jit(do_not_specialize=["n_rows"], do_not_specialize_on_alignment=["index", "offsets"])
def score(
    sums,
    log_scale,
    index,
    offsets,
    log_z,
    n_rows,
    PARTS: tl.constexpr,
    SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find log Z of one sequence from the sums of its messages."""
    in_turn()
    sequence = tl.program_id(0)
    begin = tl.load(offsets + sequence)
    end = tl.load(offsets + sequence + 1)
    part = tl.arange(0, triton.next_power_of_2(PARTS))[None, :]
    total = tl.zeros((BLOCK,), tl.float64)
    for at in range(begin, end, BLOCK):
        row = at + tl.arange(0, BLOCK)
        there = row < end
        mask = there[:, None] & (part < PARTS)
        norm = tl.sum(tl.load(sums + row[:, None] * PARTS + part, mask=mask, other=0.0), axis=1)
        total += tl.log(tl.where(there, norm, 1.0)).to(tl.float64)
        if SCALED:
            symbol = tl.load(index + row, mask=there, other=0)
            total += tl.load(log_scale + symbol, mask=there & (symbol < n_rows), other=0.0)
    tl.store(log_z + sequence, tl.sum(total, axis=0))


@Launched
@triton.jit(do_not_specialize=["n_steps"], do_not_specialize_on_alignment=["first"])
def combine(
    messages,
    predictions,
    sums,
    first,
    n_steps,
    K: tl.constexpr,
    W: tl.constexpr,
    PARTS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Turn a step's prediction into responsibilities, and what pairs are made of into shares.

    The row of θ's left side is that of the step before, which nobody else reads.
    """
    in_turn()
    row = tl.program_id(0).to(tl.int64)
    state = tl.arange(0, LANES)
    inside = state < K
    is_first = tl.load(first + row) != 0
    backward = messages + n_steps.to(tl.int64) * W
    before = messages + (row - 1) * W
    part = tl.arange(0, triton.next_power_of_2(PARTS))
    goes_on = state * 0 + is_first.to(tl.int32) == 0
    ahead = tl.load(predictions + row * W + state, mask=inside, other=0.0)
    behind = tl.load(backward + row * W + state, mask=inside, other=0.0)
    origin = tl.load(before + state, mask=inside & goes_on, other=0.0)
    mask = (part < PARTS) & (part * 0 + is_first.to(tl.int32) == 0)
    norm = tl.sum(tl.load(sums + (row - 1) * PARTS + part, mask=mask, other=0.0), axis=0)
    total = tl.sum(ahead * behind, axis=0)
    possible = state * 0 + total > 0.0
    weight = tl.where(possible, behind / total, 0.0)
    tl.store(predictions + row * W + state, ahead * weight, mask=inside)
    tl.store(backward + row * W + state, weight, mask=inside)
    origin = tl.where(possible & goes_on, origin / norm, 0.0)
    tl.store(before + state, origin, mask=inside & (state * 0 + row > 0))
