"""The steps of the recursions on strips, in vectors: the arithmetic of `strips`, in numba.

A block is `STEPS` steps of the `WIDTH` tiles of a strip.  Its arrays are flat: the number of
state k of tile i at step s is at ``(s * n_states + k) * WIDTH + i``.

Literal numbers in a call make numba compile the function once for each of them: they are variables.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.inner import inlined, inner
from sojourn.kernels.cpu.lanes import (
    LANES,
    add,
    choose,
    get,
    inverse,
    lanes_not_above,
    least,
    load,
    multiply,
    multiply_add,
    put,
    splat,
    store,
    zeros_of,
)

STEPS = 16
"""Steps of a block; a tile begins at a multiple of this."""

WIDTH = 2 * LANES
"""Tiles of a strip."""

# Places in the array of constants: the smallest total that is sound, and what keeps squares in
# range.  a is multiplied by the shift before it is squared, e divided, and cut off at the largest.
_SMALLEST, _SHIFT, _UNSHIFT, _LARGEST = range(4)


@inlined
def _mix(n_states, transitions, down, along, source, at, out, out_at, first, other_first):
    """``out[k] = first + Σ_j transitions[k * down + j * along] * source[j]``."""
    k = 0
    while k + 4 <= n_states:
        a = first
        b = first
        c = first
        d = first
        e = other_first
        f = other_first
        g = other_first
        h = other_first
        place = k * down
        for j in range(at, at + n_states * WIDTH, WIDTH):
            x = load(source, j)
            y = load(source, j + LANES)
            w = splat(transitions, place)
            a = multiply_add(x, w, a)
            e = multiply_add(y, w, e)
            w = splat(transitions, place + down)
            b = multiply_add(x, w, b)
            f = multiply_add(y, w, f)
            w = splat(transitions, place + 2 * down)
            c = multiply_add(x, w, c)
            g = multiply_add(y, w, g)
            w = splat(transitions, place + 3 * down)
            d = multiply_add(x, w, d)
            h = multiply_add(y, w, h)
            place += along
        to = out_at + k * WIDTH
        store(out, to, a)
        store(out, to + LANES, e)
        store(out, to + WIDTH, b)
        store(out, to + WIDTH + LANES, f)
        store(out, to + 2 * WIDTH, c)
        store(out, to + 2 * WIDTH + LANES, g)
        store(out, to + 3 * WIDTH, d)
        store(out, to + 3 * WIDTH + LANES, h)
        k += 4
    while k < n_states:
        a = first
        e = other_first
        place = k * down
        for j in range(at, at + n_states * WIDTH, WIDTH):
            w = splat(transitions, place)
            a = multiply_add(load(source, j), w, a)
            e = multiply_add(load(source, j + LANES), w, e)
            place += along
        store(out, out_at + k * WIDTH, a)
        store(out, out_at + k * WIDTH + LANES, e)
        k += 1


@inner
def forward_block(
    slot, n_states, start, transitions, constants, phi, phi_at, masks, alpha, scales, totals
):
    """Vectors of a block in the slots after `slot`, which has those of the step before it.

    The potentials of the block are in `phi` from `phi_at` on.

    Returns the lanes in which a total underflows, as bits.
    """
    zero, smallest = zeros_of(phi), splat(constants, _SMALLEST)
    row = n_states * WIDTH
    bad = 0
    down, along = np.int64(1), n_states
    for s in range(STEPS):
        here = (slot + s + 1) * row
        _mix(n_states, transitions, down, along, alpha, here - row, alpha, here, zero, zero)
        bits, other_bits = masks[s], masks[s] >> LANES
        scale = load(scales, (slot + s) * WIDTH)
        other_scale = load(scales, (slot + s) * WIDTH + LANES)
        total = zero
        other_total = zero
        for k in range(n_states):
            at = k * WIDTH
            begun = splat(start, k)
            x = choose(bits, begun, multiply(load(alpha, here + at), scale))
            y = choose(other_bits, begun, multiply(load(alpha, here + at + LANES), other_scale))
            x = multiply(x, load(phi, phi_at + s * row + at))
            y = multiply(y, load(phi, phi_at + s * row + at + LANES))
            total = add(total, x)
            other_total = add(other_total, y)
            store(alpha, here + at, x)
            store(alpha, here + at + LANES, y)
        bad |= lanes_not_above(total, smallest) | lanes_not_above(other_total, smallest)
        store(totals, s * WIDTH, total)
        store(totals, s * WIDTH + LANES, other_total)
        store(scales, (slot + s + 1) * WIDTH, inverse(total))
        store(scales, (slot + s + 1) * WIDTH + LANES, inverse(other_total))
    return bad


@inner
def _square_step(
    before, here, taken, row, bits, scale, other_scale, constants, alpha, gamma, epsilon, squared,
    row_sums,
):  # fmt: skip
    """Write the squares of a step's a and e, and add those of rows where no sequence ends."""
    zero, side = zeros_of(alpha), squared.shape[0] // 2
    ended, other_ended = bits, bits >> LANES
    shift, unshift = splat(constants, _SHIFT), splat(constants, _UNSHIFT)
    own, other_own = inverse(scale), inverse(other_scale)
    shifted, other_shifted = multiply(scale, shift), multiply(other_scale, shift)
    largest = splat(constants, _LARGEST)
    for k in range(0, row, WIDTH):
        x = choose(ended, zero, load(gamma, here + k))
        y = choose(other_ended, zero, load(gamma, here + k + LANES))
        so_far = load(row_sums, k // 2)
        store(row_sums, k // 2, multiply_add(x, x, multiply_add(y, y, so_far)))
        x = multiply(load(alpha, before + k), shifted)
        y = multiply(load(alpha, before + k + LANES), other_shifted)
        store(squared, taken + k, multiply(x, x))
        store(squared, taken + k + LANES, multiply(y, y))
        x = least(multiply(load(epsilon, here + k), own), largest)
        y = least(multiply(load(epsilon, here + k + LANES), other_own), largest)
        x = multiply(x, unshift)
        y = multiply(y, unshift)
        store(squared, side + taken + k, multiply(x, x))
        store(squared, side + taken + k + LANES, multiply(y, y))


@inner
def add_likely(
    after_at, here, n_states, ended, factor, names, alpha, gamma, epsilon, likely, ahead, places,
    pairs, rows,
):  # fmt: skip
    """Add the squares of the most probable state of a step, and of its pair with the step after.

    With those of one step in n, n times, the sums are then exact for these and estimates for
    others: `factor` is one, or 1 − n where all squares of the step are in the sums.  `likely` and
    `ahead` have the state of the step after, its e, and the factor there; then those of this step.
    `names` are the states as numbers, and `places` is room for a few.
    """
    zero = zeros_of(gamma)
    for half in range(0, WIDTH, LANES):
        most, place = load(gamma, here + half), splat(names, np.int64(0))
        for k in range(1, n_states):
            value = load(gamma, here + k * WIDTH + half)
            bits = lanes_not_above(value, most)
            most = choose(bits, most, value)
            place = choose(bits, place, splat(names, k))
        store(places, half, place)
        own = choose(ended >> half, zero, most)
        store(places, WIDTH + half, multiply(own, own))
    after = ahead[WIDTH]
    for i in range(WIDTH):
        state = np.int64(get(places, i))
        at = state * WIDTH + i
        cell = state * n_states + get(likely, i)
        pair = np.float64(get(alpha, after_at + at)) * get(ahead, i)
        put(pairs, cell, get(pairs, cell) + after * pair * pair)
        put(rows, state, get(rows, state) + factor * np.float64(get(places, WIDTH + i)))
        put(likely, i, state)
        put(ahead, i, np.float64(get(epsilon, here + at)))
    ahead[WIDTH] = factor


@inner
def backward_block(
    slot, n_states, transitions, constants, phi, phi_at, masks, alpha, scales, beta, gamma,
    epsilon, every, squared, row_sums, names, likely, ahead, places, pairs, rows,
):  # fmt: skip
    """Smooth a block given b of its last step in `beta`, which is then that of the step before it.

    Returns the lanes in which a total underflows, as bits.  Where there is room in `squared`, it
    gets the squares of one step in `every`, and `row_sums` are added to; if that is not every step,
    `pairs` and `rows` get what makes those of the most probable states exact, see `add_likely`.
    """
    zero, smallest = zeros_of(phi), splat(constants, _SMALLEST)
    row = n_states * WIDTH
    bad = 0
    down, along, none = n_states, np.int64(1), np.int64(0)
    has_squares, taken = squared.shape[0] > 0, none
    for s in range(STEPS - 1, -1, -1):
        before, here, potential = (slot + s) * row, s * row, phi_at + s * row
        total = zero
        other_total = zero
        for k in range(0, row, WIDTH):
            total = multiply_add(load(alpha, before + row + k), load(beta, k), total)
            other_total = multiply_add(
                load(alpha, before + row + k + LANES), load(beta, k + LANES), other_total
            )
        bad |= lanes_not_above(total, smallest) | lanes_not_above(other_total, smallest)
        norm, other_norm = inverse(total), inverse(other_total)
        scale = load(scales, (slot + s) * WIDTH)
        other_scale = load(scales, (slot + s) * WIDTH + LANES)
        # Where a sequence begins there is no pair, and the one before it has ended.
        bits, other_bits = masks[s], masks[s] >> LANES
        weight = choose(bits, zero, multiply(norm, scale))
        other_weight = choose(other_bits, zero, multiply(other_norm, other_scale))
        for k in range(0, row, WIDTH):
            x = multiply(load(beta, k), norm)
            y = multiply(load(beta, k + LANES), other_norm)
            store(gamma, here + k, multiply(load(alpha, before + row + k), x))
            store(gamma, here + k + LANES, multiply(load(alpha, before + row + k + LANES), y))
            x = multiply(load(beta, k), weight)
            y = multiply(load(beta, k + LANES), other_weight)
            store(epsilon, here + k, multiply(load(phi, potential + k), x))
            store(epsilon, here + k + LANES, multiply(load(phi, potential + k + LANES), y))
        is_taken = has_squares and (s + slot // STEPS) % every == 0
        if is_taken:
            _square_step(
                before, here, taken, row, masks[s + 1], scale, other_scale, constants, alpha, gamma,
                epsilon, squared, row_sums,
            )  # fmt: skip
            taken += row
        if has_squares and every > 1:
            add_likely(
                before + row, here, n_states, masks[s + 1], 1.0 - every if is_taken else 1.0, names,
                alpha, gamma, epsilon, likely, ahead, places, pairs, rows,
            )  # fmt: skip
        _mix(
            n_states, transitions, down, along, epsilon, here, beta, none,
            choose(bits, scale, zero), choose(other_bits, other_scale, zero),
        )  # fmt: skip
    return bad


@inner
def add_products(left, left_at, right, right_at, n_states, n_steps, sums):
    """Add ``left[s, k] * right[s, l]`` of some steps to the sums of every lane, (K, K, `LANES`)."""
    row = n_states * WIDTH
    k = 0
    while k < n_states:
        j = 0
        n_left = 4 if k + 4 <= n_states else 1
        while j < n_states:
            at = (k * n_states + j) * LANES
            if n_left == 4 and j + 4 <= n_states:
                _add_tile(
                    left, left_at + k * WIDTH, right, right_at + j * WIDTH, row, n_states, n_steps,
                    sums, at,
                )  # fmt: skip
                j += 4
                continue
            for i in range(n_left):
                x = load(sums, at)
                y = zeros_of(left)
                a, b = left_at + (k + i) * WIDTH, right_at + j * WIDTH
                for _ in range(n_steps):
                    x = multiply_add(load(left, a), load(right, b), x)
                    y = multiply_add(load(left, a + LANES), load(right, b + LANES), y)
                    a += row
                    b += row
                store(sums, at, add(x, y))
                at += n_states * LANES
            j += 1
        k += n_left


@inner
def _add_tile(left, a, right, b, row, n_states, n_steps, sums, at):
    """Four states by four: sixteen sums in registers."""
    down = n_states * LANES
    c00 = load(sums, at)
    c01 = load(sums, at + LANES)
    c02 = load(sums, at + 2 * LANES)
    c03 = load(sums, at + 3 * LANES)
    c10 = load(sums, at + down)
    c11 = load(sums, at + down + LANES)
    c12 = load(sums, at + down + 2 * LANES)
    c13 = load(sums, at + down + 3 * LANES)
    c20 = load(sums, at + 2 * down)
    c21 = load(sums, at + 2 * down + LANES)
    c22 = load(sums, at + 2 * down + 2 * LANES)
    c23 = load(sums, at + 2 * down + 3 * LANES)
    c30 = load(sums, at + 3 * down)
    c31 = load(sums, at + 3 * down + LANES)
    c32 = load(sums, at + 3 * down + 2 * LANES)
    c33 = load(sums, at + 3 * down + 3 * LANES)
    for _ in range(n_steps):
        for half in range(0, WIDTH, LANES):
            w = load(right, b + half)
            x = load(right, b + half + WIDTH)
            y = load(right, b + half + 2 * WIDTH)
            z = load(right, b + half + 3 * WIDTH)
            p = load(left, a + half)
            c00 = multiply_add(p, w, c00)
            c01 = multiply_add(p, x, c01)
            c02 = multiply_add(p, y, c02)
            c03 = multiply_add(p, z, c03)
            p = load(left, a + half + WIDTH)
            c10 = multiply_add(p, w, c10)
            c11 = multiply_add(p, x, c11)
            c12 = multiply_add(p, y, c12)
            c13 = multiply_add(p, z, c13)
            p = load(left, a + half + 2 * WIDTH)
            c20 = multiply_add(p, w, c20)
            c21 = multiply_add(p, x, c21)
            c22 = multiply_add(p, y, c22)
            c23 = multiply_add(p, z, c23)
            p = load(left, a + half + 3 * WIDTH)
            c30 = multiply_add(p, w, c30)
            c31 = multiply_add(p, x, c31)
            c32 = multiply_add(p, y, c32)
            c33 = multiply_add(p, z, c33)
        a += row
        b += row
    store(sums, at, c00)
    store(sums, at + LANES, c01)
    store(sums, at + 2 * LANES, c02)
    store(sums, at + 3 * LANES, c03)
    store(sums, at + down, c10)
    store(sums, at + down + LANES, c11)
    store(sums, at + down + 2 * LANES, c12)
    store(sums, at + down + 3 * LANES, c13)
    store(sums, at + 2 * down, c20)
    store(sums, at + 2 * down + LANES, c21)
    store(sums, at + 2 * down + 2 * LANES, c22)
    store(sums, at + 2 * down + 3 * LANES, c23)
    store(sums, at + 3 * down, c30)
    store(sums, at + 3 * down + LANES, c31)
    store(sums, at + 3 * down + 2 * LANES, c32)
    store(sums, at + 3 * down + 3 * LANES, c33)


@inner
def move_sums(sums, total, weight):
    """Add the weighted sums of all lanes to a total in double precision, and clear them."""
    for i in range(total.shape[0]):
        value = 0.0
        for j in range(i * LANES, (i + 1) * LANES):
            value += np.float64(sums[j])
            sums[j] = 0.0
        total[i] += weight * value
