"""What runs on the GPU, in Triton: the device side of `sojourn.kernels.gpu`.

One function is one launch.  Names in capitals are known when it is compiled; sizes that change from
one minibatch to the next are not, so that none is compiled twice.  Rows of messages are
W numbers apart, of which the first K are states.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def from_lane(x, LANE: tl.constexpr, INTERPRET: tl.constexpr):
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
def sum_over(x, FIRST: tl.constexpr, LAST: tl.constexpr, INTERPRET: tl.constexpr):
    """Sum over the threads of a warp whose numbers differ in the bits from FIRST to LAST."""
    if INTERPRET:
        parts = tl.reshape(x, (16 // LAST, 2 * LAST // FIRST, FIRST))
        sums = tl.sum(parts, axis=1)[:, None, :]
        return tl.reshape(tl.broadcast_to(sums, parts.shape), (32,))
    for i in tl.static_range(5):
        if FIRST <= (16 >> i) and (16 >> i) <= LAST:
            x += tl.inline_asm_elementwise(
                "shfl.sync.bfly.b32 $0, $1, $2, 0x1f, 0xffffffff;",
                "=f,f,r",
                [x, 16 >> i],
                dtype=tl.float32,
                is_pure=True,
                pack=1,
            )
    return x


@triton.jit
def row_of(table, missing, symbol, n_rows, stride):
    """Point at a row of the emission table, or at the one for a missing observation."""
    return tl.where(symbol < n_rows, table + symbol.to(tl.int64) * stride, missing + symbol * 0)


@triton.jit(
    do_not_specialize=["n_sequences", "n_rows", "n_steps"],
    do_not_specialize_on_alignment=["index", "offsets", "order", "first"],
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
    is_ahead = lane * 0 + direction == 0
    place = (program // 2 if BOTH else program) * 2 + lane // 16
    exists = place < n_sequences
    sequence = tl.load(order + place, mask=exists, other=0)
    begin = tl.load(offsets + sequence)
    end = tl.where(exists, tl.load(offsets + sequence + 1), begin + 1)
    longest = tl.max(end - begin, axis=0)
    matrix = matrices + direction * K * K
    columns = ()
    v = ()
    offset = 0.0
    if AFFINE:
        offset = tl.load(shift) / tl.load(gain)
    for g in tl.static_range(GROUPS):
        state = lane % 16 + g * 16
        gains = tl.full((32,), 1.0, tl.float32)
        if AFFINE:
            gains = tl.load(gain + state, mask=(state < K) & is_ahead, other=1.0)
        for k in tl.static_range(K):
            value = tl.load(matrix + k * K + state, mask=state < K, other=0.0) * gains
            if AFFINE:
                value = tl.where(is_ahead, value, value * tl.load(gain + k))
            columns = columns + (value,)
        init = tl.load(start + state, mask=(state < K) & is_ahead, other=1.0) * gains
        v = v + (tl.where(state < K, init, 0.0),)
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
        own = tl.load(
            row_of(table, missing, symbol, n_rows, stride) + state, mask=state < K, other=0.0
        )
        next_own = tl.load(
            row_of(table, missing, coming, n_rows, stride) + state, mask=state < K, other=0.0
        )
        phi, coming_phi = phi + (own,), coming_phi + (next_own,)
    later_row = tl.where(coming_row == last, last, coming_row + step)
    later = tl.load(index + later_row)
    total = tl.zeros((32,), tl.float64)
    for t in range(0, longest):
        active = exists & (t < end - begin)
        # Potentials are on their way for two steps, their symbols for three.
        later_phi = ()
        for g in tl.static_range(GROUPS):
            state = lane % 16 + g * 16
            own = tl.load(
                row_of(table, missing, later, n_rows, stride) + state, mask=state < K, other=0.0
            )
            later_phi = later_phi + (own,)
        next_row = tl.where(later_row == last, last, later_row + step)
        next_symbol = tl.load(index + next_row)
        x = ()
        norm = tl.zeros((32,), tl.float32)
        for g in tl.static_range(GROUPS):
            state = lane % 16 + g * 16
            message = (phi[g] + offset) * v[g]
            norm += message
            x = x + (message,)
            tl.store(out + row * W + state, message, mask=active & (state < W))
            if BOTH:
                ahead = active & is_ahead & (state < W)
                tl.store(predictions + row * W + state, v[g], mask=ahead)
        if BOTH:
            tl.store(first + row, (row == begin).to(tl.int8), mask=active & is_ahead)
        if SCALED:
            total += tl.load(log_scale + symbol, mask=active & (symbol < n_rows), other=0.0)
        norm = sum_over(norm, 1, 8, INTERPRET)
        v = ()
        for g in tl.static_range(GROUPS):
            v = v + (tl.zeros((32,), tl.float32),)
        for k in tl.static_range(K):
            message = from_lane(x[k // 16], k % 16, INTERPRET)
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
    tl.store(log_z + sequence, total, mask=exists & is_ahead & (lane % 16 == 0))


@triton.jit(
    do_not_specialize=["n_sequences", "n_rows", "n_steps"],
    do_not_specialize_on_alignment=["index", "offsets", "order", "first"],
)
def block_chains(
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
    K: tl.constexpr,
    W: tl.constexpr,
    BOTH: tl.constexpr,
    AFFINE: tl.constexpr,
    SCALED: tl.constexpr,
    LANES: tl.constexpr,
):
    """One sequence in one direction by several warps, a state a thread.

    As `warp_chains`, but the messages of a step are read back from the cache.
    """
    program = tl.program_id(0)
    direction = program % 2 if BOTH else program * 0
    sequence = tl.load(order + (program // 2 if BOTH else program))
    begin = tl.load(offsets + sequence)
    end = tl.load(offsets + sequence + 1)
    state = tl.arange(0, LANES)
    inside = state < K
    is_ahead = state * 0 + direction == 0
    matrix = matrices + direction * K * K
    columns = ()
    gains = tl.full((LANES,), 1.0, tl.float32)
    offset = 0.0
    if AFFINE:
        gains = tl.load(gain + state, mask=inside & is_ahead, other=1.0)
        offset = tl.load(shift) / tl.load(gain)
    for k in tl.static_range(K):
        value = tl.load(matrix + k * K + state, mask=inside, other=0.0) * gains
        if AFFINE:
            value = tl.where(is_ahead, value, value * tl.load(gain + k))
        columns = columns + (value,)
    v = tl.load(start + state, mask=inside & is_ahead, other=1.0) * gains
    v = tl.where(inside, v, 0.0)
    out = messages + direction.to(tl.int64) * n_steps * W
    row = tl.where(direction == 0, begin, end - 1)
    step = 1 - 2 * direction
    symbol = tl.load(index + row)
    phi = tl.load(row_of(table, missing, symbol, n_rows, stride) + state, mask=inside, other=0.0)
    total = tl.zeros((), tl.float64)
    for t in range(begin, end):
        x = (phi + offset) * v
        here = out + row * W
        tl.store(here + state, x, mask=state < W)
        if BOTH:
            ahead = (state < W) & is_ahead
            tl.store(predictions + row * W + state, v, mask=ahead)
            if direction == 0:
                tl.store(first + row, (row == begin).to(tl.int8))
        if SCALED:
            total += tl.load(log_scale + symbol, mask=symbol < n_rows, other=0.0)
        row = tl.minimum(tl.maximum(row + step, begin), end - 1)
        symbol = tl.load(index + row)
        phi = tl.load(
            row_of(table, missing, symbol, n_rows, stride) + state, mask=inside, other=0.0
        )
        tl.debug_barrier()
        v = tl.zeros_like(x)
        norm = tl.zeros((), x.dtype)
        for k in tl.static_range(K):
            message = tl.load(here + k)
            v += message * columns[k]
            norm += message
        v /= norm
        total += tl.log(norm).to(tl.float64)
    if direction == 0:
        tl.store(log_z + sequence, total)


@triton.jit(
    do_not_specialize=["n_sequences", "n_steps", "span"],
    do_not_specialize_on_alignment=["first", "offsets"],
)
def block_combine(
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
    """Turn predictions of a span of steps into responsibilities, and sum over it.

    The sums of pairs are without θ, the same for all steps.
    """
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


@triton.jit(do_not_specialize=["n_spans"])
def gather_spans(
    pairs,
    starts,
    matrix,
    gain,
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
    is_start = state * 0 + row == K
    for begin in range(0, n_spans, SPANS):
        span = begin + tl.arange(0, SPANS)
        there = (span < n_spans)[:, None] & inside[None, :]
        where = (span * K * K)[:, None] + row * K + state[None, :]
        values = tl.load(pairs + where, mask=there & ~is_start[None, :], other=0.0)
        where = (span * K)[:, None] + state[None, :]
        values += tl.load(starts + where, mask=there & is_start[None, :], other=0.0)
        total += tl.sum(values.to(tl.float64), axis=0)
    theta = tl.load(matrix + row * K + state, mask=inside & ~is_start, other=0.0)
    if gain is not None:
        theta *= tl.load(gain + state, mask=inside, other=0.0)
    tl.store(transitions + row * K + state, total * theta.to(tl.float64), mask=inside & ~is_start)
    tl.store(start + state, total, mask=inside & is_start)


@triton.jit(
    do_not_specialize=["n_sequences", "n_less", "span"], do_not_specialize_on_alignment=["offsets"]
)
def sum_absences(
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


@triton.jit(do_not_specialize=["n_rows"], do_not_specialize_on_alignment=["index", "offsets"])
def viterbi(
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


@triton.jit(do_not_specialize_on_alignment=["steps", "pieces", "sizes"])
def sum_pieces(
    steps,
    pieces,
    sizes,
    rows,
    stride,
    partial,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sum the rows of some pieces of symbols' steps, so many of each at a time."""
    piece = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    exists = piece < tl.load(sizes)
    state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(pieces + piece, mask=exists, other=0)
    end = tl.load(pieces + piece + 1, mask=exists, other=0)
    total = tl.zeros((GROUP, BLOCK), rows.dtype.element_ty)
    for tile in range(0, tl.max(end - begin, axis=0), TOGETHER):
        place = begin[:, None] + tile + tl.arange(0, TOGETHER)[None, :]
        there = place < end[:, None]
        step = tl.load(steps + place, mask=there, other=0).to(tl.int64)
        mask = there[:, :, None] & (state < W)[None, None, :]
        row = rows + step[:, :, None] * stride
        total += tl.sum(tl.load(row + state[None, None, :], mask=mask, other=0.0), axis=1)
    where = piece.to(tl.int64)[:, None] * W + state[None, :]
    tl.store(partial + where, total, mask=exists[:, None] & (state < W)[None, :])


@triton.jit(
    do_not_specialize=["n_symbols", "n_segments"],
    do_not_specialize_on_alignment=["symbols", "bounds", "sizes"],
)
def sum_segments(
    symbols,
    bounds,
    sizes,
    partial,
    out,
    n_symbols,
    n_segments,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    TOGETHER: tl.constexpr,
    GROUP: tl.constexpr,
):
    """Sum the pieces of some symbols; what belongs to none, or to the missing one, is zero."""
    segment = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    exists = segment < tl.load(sizes + 1)
    exists = exists & (tl.load(symbols + segment, mask=exists, other=n_symbols) < n_symbols)
    state = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(bounds + segment, mask=exists, other=0)
    end = tl.load(bounds + segment + 1, mask=exists, other=0)
    # Most symbols have one piece.
    row = partial + begin.to(tl.int64)[:, None] * W + state[None, :]
    filled = (begin < end)[:, None] & (state < W)[None, :]
    total = tl.load(row, mask=filled, other=0.0).to(tl.float64)
    for tile in range(1, tl.max(end - begin, axis=0), TOGETHER):
        piece = begin[:, None] + tile + tl.arange(0, TOGETHER)[None, :]
        where = piece.to(tl.int64)[:, :, None] * W + state[None, None, :]
        mask = (piece < end[:, None])[:, :, None] & (state < W)[None, None, :]
        total += tl.sum(tl.load(partial + where, mask=mask, other=0.0).to(tl.float64), axis=1)
    where = segment.to(tl.int64)[:, None] * W + state[None, :]
    tl.store(out + where, total, mask=(segment < n_segments)[:, None] & (state < W)[None, :])


@triton.jit(
    do_not_specialize=["n_symbols", "n_rows", "span"],
    do_not_specialize_on_alignment=["rows", "symbols"],
)
def sum_columns(rows, width, symbols, n_symbols, out, n_rows, span, K, BLOCK: tl.constexpr):
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


@triton.jit(do_not_specialize=["n_rows", "n_added"], do_not_specialize_on_alignment=["rows"])
def add_rows(
    table,
    stride,
    n_rows,
    rows,
    n_added,
    values,
    width,
    factor,
    K,
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


@triton.jit(do_not_specialize=["n"])
def rescale(table, factor, n, BLOCK: tl.constexpr):
    """Multiply everything by a factor, unless that is one."""
    by = tl.load(factor)
    if by != 1.0:
        for begin in range(tl.program_id(0) * BLOCK, n, tl.num_programs(0) * BLOCK):
            where = begin + tl.arange(0, BLOCK).to(tl.int64)
            values = tl.load(table + where, mask=where < n, other=0.0)
            tl.store(table + where, (values * by).to(table.dtype.element_ty), mask=where < n)


@triton.jit
def row_potentials(
    prior_start,
    prior,
    total,
    start,
    transitions,
    out_start,
    out,
    K,
    LANES: tl.constexpr,
    ONE_ROW: tl.constexpr,
    APART: tl.constexpr,
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
        own = tl.where(row == K, 0, 1) if APART else 0
        norm = tl.load(total + own) + tl.sum(added, axis=0)
    means = (sums / norm).to(kind)
    if row == K:
        tl.store(out_start + state, means, mask=inside)
    else:
        tl.store(out + row * K + state, means, mask=inside)
        tl.store(out + K * K + state * K + row, means, mask=inside)


@triton.jit(do_not_specialize=["K", "n"])
def blend_counts(
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
def state_masses(start, transitions, out, K):
    """Sum the columns of expected transitions and the start, some states a program."""
    state = tl.program_id(0) * 16 + tl.arange(0, 16)
    total = tl.load(start + state, mask=state < K, other=0.0)
    for begin in range(0, K, 64):
        row = begin + tl.arange(0, 64)
        where = row[:, None] * K + state[None, :]
        mask = (row < K)[:, None] & (state < K)[None, :]
        total += tl.sum(tl.load(transitions + where, mask=mask, other=0.0), axis=0)
    tl.store(out + state, total, mask=state < K)


@triton.jit(do_not_specialize=["K"])
def decay(totals, added, scale, rates, factors, smallest, K, LANES: tl.constexpr):
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


@triton.jit(do_not_specialize=["K"])
def means_of_symbols(
    totals, scale, prior, prior_total, gain, shift, missing, K, LANES: tl.constexpr
):
    """Find gain and shift of every state, and the row that makes the potential one."""
    state = tl.arange(0, LANES)
    norm = tl.load(totals + state, mask=state < K, other=1.0) + prior_total
    kind = gain.dtype.element_ty
    by = tl.load(scale)
    tl.store(gain + state, (by / norm).to(kind), mask=state < K)
    tl.store(shift + state, (prior / norm).to(kind), mask=state < K)
    tl.store(missing + state, tl.where(state < K, (norm - prior) / by, 0.0).to(kind))


@triton.jit(do_not_specialize=["n"])
def note(log_z, failures, out, n, BLOCK: tl.constexpr):
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


@triton.jit(do_not_specialize=["n_sequences"])
def gather_sequences(
    values, begins, lengths, ends, out, n_sequences, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    """Copy some sequences, each from where it begins, one after another."""
    place = tl.program_id(0) * GROUP + tl.arange(0, GROUP)
    there = place < n_sequences
    n = tl.load(lengths + place, mask=there, other=0)
    source = tl.load(begins + place, mask=there, other=0)
    target = tl.load(ends + place, mask=there, other=0) - n
    for begin in range(0, tl.max(n, axis=0), BLOCK):
        step = begin + tl.arange(0, BLOCK)[None, :]
        mask = step < n[:, None]
        value = tl.load(values + source[:, None] + step, mask=mask, other=0)
        tl.store(out + target[:, None] + step, value, mask=mask)


@triton.jit(do_not_specialize=["n_keys"])
def make_keys(symbols, batches, keys, n_keys, BLOCK: tl.constexpr):
    """Number the symbols of a minibatch apart from those of others."""
    batch = tl.program_id(0)
    at = tl.load(batches + batch) + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < tl.load(batches + batch + 1)
    symbol = tl.load(symbols + at, mask=mask, other=0)
    key = batch.to(keys.dtype.element_ty) * n_keys + symbol
    tl.store(keys + at, key, mask=mask)


@triton.jit(do_not_specialize=["n"])
def mark_segments(keys, marks, n, BLOCK: tl.constexpr):
    """Mark the first of equal keys."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    key = tl.load(keys + at, mask=at < n, other=0)
    before = tl.load(keys + at - 1, mask=(at < n) & (at > 0), other=-1)
    tl.store(marks + at, (key != before).to(tl.int8), mask=at < n)


@triton.jit(do_not_specialize=["n_keys"])
def begin_segments(keys, batches, segments, begins, symbols, n_keys, BLOCK: tl.constexpr):
    """Note where each segment begins, and its symbol."""
    batch = tl.program_id(0)
    at = tl.load(batches + batch) + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = at < tl.load(batches + batch + 1)
    segment = tl.load(segments + at, mask=mask, other=0)
    before = tl.load(segments + at - 1, mask=mask & (at > 0), other=0)
    is_new = mask & (segment != before)
    key = tl.load(keys + at, mask=is_new, other=0)
    tl.store(begins + segment - 1, at.to(tl.int32), mask=is_new)
    symbol = key - batch.to(keys.dtype.element_ty) * n_keys
    tl.store(symbols + segment - 1, symbol.to(tl.int32), mask=is_new)


@triton.jit(do_not_specialize=["n"])
def mark_pieces(segments, begins, marks, n, PIECE: tl.constexpr, BLOCK: tl.constexpr):
    """Mark every so many steps of a segment."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    segment = tl.load(segments + at, mask=at < n, other=1)
    begin = tl.load(begins + segment - 1, mask=at < n, other=0)
    tl.store(marks + at, ((at - begin) % PIECE == 0).to(tl.int8), mask=at < n)


@triton.jit
def note_pieces(
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
    BLOCK: tl.constexpr,
):
    """Write down the steps, pieces and segments of a minibatch, counted from its own beginning."""
    batch = tl.program_id(0)
    begin = tl.load(batches + batch)
    end = tl.load(batches + batch + 1)
    first_segment = tl.load(segments + begin) - 1
    first_piece = tl.load(numbers + begin) - 1
    at = begin + tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
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
def copy_part(source, begin, target, n, BLOCK: tl.constexpr):
    """Copy this program's part of an array."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + at, tl.load(source + begin + at, mask=at < n, other=0), mask=at < n)


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
def load_minibatch(
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
        copy_part(places, step, to_places, n_steps, BLOCK)
    elif which == 2:
        copy_part(steps, step, to_steps, n_steps, BLOCK)
    elif which == 3:
        copy_part(pieces, piece, to_pieces, n_pieces + 1, BLOCK)
        copy_part(sizes, b * 2, to_sizes, 2, BLOCK)
    elif which == 4:
        found = tl.load(symbols + symbol + at, mask=at < n_symbols, other=0)
        found = tl.where(at < n_symbols, found, n_symbols_in_all)
        tl.store(to_symbols + at, found, mask=at < symbol_capacity)
    elif which == 5:
        copy_part(bounds, symbol + b, to_bounds, n_symbols + 1, BLOCK)
        copy_part(rates, b * 2, to_rates, 2, BLOCK)
    else:
        copy_part(offsets, b * (n_sequences + 1), to_offsets, n_sequences + 1, BLOCK)
        copy_part(order, b * n_sequences, to_order, n_sequences, BLOCK)
