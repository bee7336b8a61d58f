"""Forward-backward on the copies of states that last, in numba: compiled for `durations`.

`LANES` sequences of similar length, the longest first, are a group: every vector has the same step
of all of them, and a copy of a state is a vector, so that no lane is wasted on padding and no sum
goes across lanes.  Copies are counted from the last one, p = 0, up to the first that is entered.
With θ' = advance ∘ θ, φ_t of a state shared by its copies, and s_t = 1 / Σ a_t:

    entering   f_t = a_{t−1}[p=0] θ',   f_1 = start
    forward    a_t[p] = (stay a_{t−1}[p] + advance a_{t−1}[p+1] + entry[p] f_t) φ_t s_{t−1}
    backward   g_t[p] = φ_t b_t[p] s_{t−1} / Σ a_t b_t,   e_t = Σ_p entry[p] g_t[p]
               b_{t−1}[p] = stay g_t[p] + advance g_t[p−1],   θ' e_t in place of advance g_t[−1]
    counts     exits θ' ∘ Σ_t a_{t−1}[0]ᵀ e_t,   entries entry[p] Σ_t f_t g_t[p]
               stays stay Σ_t Σ_p a_{t−1}[p] g_t[p],   the same with g_t[p−1] for advances

The steps of a group are taken in chunks.  A thread keeps the vectors of one chunk; where there are
several, it keeps those at the boundaries of chunks and computes a chunk again on the way back.
Lanes without a sequence, or whose sequence has ended, have zeros.

A group whose sums are not finite adds nothing, and log Z of its sequences is NaN.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels.cpu.copy_steps import (
    KEPT,
    add_logs,
    add_pairs,
    backward_step,
    begin_lanes,
    first_step,
    forward_step,
    load_rows,
    store_rows,
    write_ends,
)
from sojourn.kernels.cpu.inner import inner
from sojourn.kernels.cpu.lanes import (
    LANES,
    choose,
    inverse,
    lanes_not_above,
    load,
    multiply,
    splat,
    store,
    zeros_of,
)
from sojourn.kernels.cpu.steps import move_sums
from sojourn.kernels.threads import take_unit


@njit(nogil=True, cache=True)
def copy_units(
    counter,
    n_units,
    order,
    offsets,
    index,
    chunk,
    sizes,
    layout,
    start,
    matrix,
    stay,
    advance,
    entry,
    emissions,
    row_width,
    constants,
    before,
    after,
    log_z,
    backward,
    squares,
    responsibilities,
    totals,
    ends,
):
    """Smooth groups u, u + n_units, ... of every unit u taken.

    Parameters
    ----------
    sizes : tuple of five integers
        States, states rounded up to four and to `LANES`, copies, vectors of a step.
    layout : (4, K) integer array
        For every state its number of copies, the number of its copy p = 0, the place of the copy
        p = 1 in the vectors of a step, and whether it is entered elsewhere than at its highest p.
    start, stay, advance : (K,) arrays
    matrix : flat array
        θ', rows and columns rounded up to four.
    entry : (copies,) array
    emissions : flat array
        Rows of `row_width` numbers.
    constants : array
        The smallest total that is sound, and what keeps squares in range: see `steps`.
    before, after : (N, copies) arrays, or (0, copies)
        What stands in the place of start and entry, and of ones after the last step; NaN first
        where nothing does.
    totals : (units, sums) array
        Exits and their squares, stays, advances within states, squares of exits by state, entries,
        starts and their squares.
    ends : (2, N, copies) array, or (2, 0, copies)
        Filled with the probabilities of the copies at the first and the last step.
    """
    n_states, n_four, n_wide, n_copies, n_vectors = sizes
    n_sequences = order.shape[0]
    longest = offsets[order[0] + 1] - offsets[order[0]]
    chunk = min(longest, chunk)
    dtype = start.dtype
    slot = n_vectors * LANES
    alpha = np.zeros((chunk + 1) * slot, dtype)
    scales = np.zeros((chunk + 1) * LANES, dtype)
    n_kept = -(-longest // chunk) - 1 if backward else 0
    kept, kept_scales = np.empty(n_kept * slot, dtype), np.empty(n_kept * LANES, dtype)
    beta = np.empty(n_copies * LANES, dtype)
    epsilon = np.zeros(chunk * n_four * LANES, dtype)
    width = n_four * LANES
    side = chunk * width if squares else 0
    squared = np.zeros(2 * side, dtype)
    room = np.zeros(KEPT * n_four * LANES, dtype)
    gamma = np.zeros(n_wide * LANES, dtype)
    scratch = np.ones(2 * LANES * n_wide, dtype)
    tile = np.empty(2 * LANES * LANES, dtype)
    total = np.empty(LANES, dtype)
    # Sums of every lane: stays, advances, squares of exits, entries.
    n_sums = 3 * n_states + n_copies
    sums = np.zeros(n_sums * LANES, dtype)
    own = np.zeros(totals.shape[1])
    n_cells = n_four * n_four
    # Of rows that are read, of the sums of a tile, and of rows that are written.
    places = np.empty(3 * LANES, np.int64)
    for i in range(LANES):
        places[i], places[LANES + i], places[2 * LANES + i] = (
            i * n_wide,
            i * LANES,
            (LANES + i) * n_wide,
        )
    lanes, lengths = np.zeros(LANES, np.int64), np.zeros(LANES, np.int64)
    firsts = np.zeros(LANES, np.int64)
    product, logs = np.empty(LANES), np.empty(LANES)
    n_groups = -(-n_sequences // LANES)
    unit = take_unit(counter)
    while unit < n_units:
        for group in range(unit, n_groups, n_units):
            low = group * LANES
            for i in range(LANES):
                lanes[i], lengths[i] = -1, 0
                if low + i < n_sequences:
                    lanes[i] = order[low + i]
                    firsts[i] = offsets[lanes[i]]
                    lengths[i] = offsets[lanes[i] + 1] - firsts[i]
            last = lengths[0]
            n_chunks = -(-last // chunk)
            bad = 0
            product[:] = 1.0
            logs[:] = 0.0
            # All chunks forward, and then back.
            move, n_moves = 0, 2 * n_chunks if backward else n_chunks
            while move < n_moves:
                ahead = move < n_chunks
                c = move if ahead else 2 * n_chunks - 1 - move
                end = min(last, (c + 1) * chunk)
                if not ahead and 0 < c < n_chunks - 1:
                    alpha[:slot] = kept[(c - 1) * slot : c * slot]
                    scales[:LANES] = kept_scales[(c - 1) * LANES : c * LANES]
                if ahead or c < n_chunks - 1:
                    bad |= _forward(
                        c * chunk, end, sizes, layout, lanes, lengths, firsts, index, start, matrix,
                        stay, advance, entry, emissions, row_width, constants, before, scratch,
                        places, alpha, scales, product, logs,
                    )  # fmt: skip
                move += 1
                if move < n_chunks:
                    for j in range(slot):
                        alpha[j] = alpha[chunk * slot + j]
                    for j in range(LANES):
                        scales[j] = scales[chunk * LANES + j]
                    if backward:
                        kept[c * slot : move * slot] = alpha[:slot]
                        kept_scales[c * LANES : move * LANES] = scales[:LANES]
                    continue
                if ahead:
                    for i in range(LANES):
                        if bad >> i & 1:
                            log_z[lanes[i]] = np.nan
                            lengths[i] = 0
                        elif lengths[i] > 0:
                            log_z[lanes[i]] = logs[i] + np.log(product[i])
                    if bad != 0:
                        # Again without the sequences that underflow and would spoil the sums.
                        bad = move = 0
                        product[:] = 1.0
                        logs[:] = 0.0
                    own[:] = 0.0
                    beta[:] = 0.0
                    room[:] = 0.0
                    total[:] = 0.0
                    continue
                bad |= _backward(
                    c * chunk, end, sizes, layout, lanes, lengths, firsts, matrix, stay, advance,
                    entry, constants, before, after, alpha, scales, beta, epsilon, squared, room,
                    gamma, total, sums, scratch, places, responsibilities, own[2 * n_cells :], ends,
                    log_z,
                )  # fmt: skip
                first = 1 if c == 0 else 0
                n_pairs = end - c * chunk - first
                left, left_at, left_step = alpha, first * slot, slot
                right, right_at = epsilon, first * width
                for which in range(2 if squares else 1):
                    add_pairs(
                        left, left_at, left_step, right, right_at, width, n_pairs, n_four, places,
                        tile, own[which * n_cells : (which + 1) * n_cells],
                    )  # fmt: skip
                    left, left_at, left_step = squared, first * width, width
                    right, right_at = squared, side + first * width
                move_sums(sums, own[2 * n_cells : 2 * n_cells + n_sums], np.float64(1.0))
            if not backward:
                continue
            check = own[0] - own[0]
            for j in range(own.shape[0]):
                check += own[j] - own[j]
            if bad == 0 and check == 0.0:
                for j in range(own.shape[0]):
                    totals[unit, j] += own[j]
            else:
                for i in range(LANES):
                    if lengths[i] > 0:
                        log_z[lanes[i]] = np.nan
        unit = take_unit(counter)


@inner
def _alive(lengths, t):
    """Return the lanes, as bits, whose sequence has a step t."""
    bits = 0
    for i in range(LANES):
        if lengths[i] > t:
            bits |= 1 << i
    return bits


@inner
def _forward(
    begin, end, sizes, layout, lanes, lengths, firsts, index, start, matrix, stay, advance, entry,
    emissions, row_width, constants, before, scratch, places, alpha, scales, product, logs,
):  # fmt: skip
    """Vectors of the steps begin..end−1 in slots 1.. of alpha; slot 0 has those of the step before.

    Returns the lanes in which a total underflows, as bits.
    """
    _, n_four, n_wide, _, n_vectors = sizes
    slot, phi = n_vectors * LANES, 2 * n_four * LANES
    zero, smallest = zeros_of(alpha), splat(constants, np.int64(0))
    bad = 0
    for t in range(begin, end):
        here = (t - begin + 1) * slot
        alive = _alive(lengths, t)
        load_rows(
            t, lengths, firsts, index, emissions, row_width, n_wide, scratch, places, alpha,
            here + phi,
        )  # fmt: skip
        if t == 0:
            total = first_step(here, sizes, layout, lanes, start, entry, before, alpha)
        else:
            scale = load(scales, (t - begin) * LANES)
            total = forward_step(here, sizes, layout, matrix, stay, advance, entry, scale, alpha)
        bad |= alive & lanes_not_above(total, smallest)
        store(scales, (t - begin + 1) * LANES, choose(alive, inverse(total), zero))
        add_logs(alive, total, product, logs)
    return bad


@inner
def _backward(
    begin, end, sizes, layout, lanes, lengths, firsts, matrix, stay, advance, entry, constants,
    before, after, alpha, scales, beta, epsilon, squared, room, gamma, total, sums, scratch, places,
    responsibilities, own, ends, log_z,
):  # fmt: skip
    """Smooth the steps end−1..begin given beta for the sequences that go on after them.

    Returns the lanes in which a total underflows, as bits.
    """
    n_states, _, n_wide, n_copies, n_vectors = sizes
    slot = n_vectors * LANES
    zero, smallest = zeros_of(alpha), splat(constants, np.int64(0))
    starts = 3 * n_states + n_copies
    bad = 0
    for t in range(end - 1, begin - 1, -1):
        here = (t - begin + 1) * slot
        alive = _alive(lengths, t)
        begun = alive & ~_alive(lengths, t + 1)
        if begun != 0:
            begin_lanes(begun, here, sizes, layout, lanes, after, alpha, beta, room, total, ends)
            if after.shape[0] > 0:
                for i in range(LANES):
                    if begun >> i & 1:
                        own_scale = scales[(t - begin + 1) * LANES + i]
                        log_z[lanes[i]] += np.log(np.float64(total[i]) * np.float64(own_scale))
        sum_now = load(total, np.int64(0))
        bad |= alive & lanes_not_above(sum_now, smallest)
        norm = choose(alive, inverse(sum_now), zero)
        store_rows(
            t, lengths, firsts, n_states, n_wide, norm, room, gamma, scratch, places,
            responsibilities,
        )  # fmt: skip
        if t == 0:
            for i in range(LANES):
                inner_one = before.shape[0] > 0 and not np.isnan(before[lanes[i], 0])
                if lengths[i] > 0 and not inner_one:
                    for k in range(n_states):
                        q = np.float64(gamma[k * LANES + i])
                        own[starts + k] += q
                        own[starts + n_states + k] += q * q
            if ends.shape[1] > 0:
                write_ends(np.int64(0), alive, here, sizes, layout, lanes, alpha, beta, total, ends)
            weight = norm
            scale = zero
        else:
            scale = load(scales, (t - begin) * LANES)
            weight = choose(alive, multiply(norm, scale), zero)
        backward_step(
            t, here, begin, sizes, layout, matrix, stay, advance, entry, constants, alive, scale,
            weight, alpha, beta, epsilon, squared, room, total, sums,
        )  # fmt: skip
    return bad
