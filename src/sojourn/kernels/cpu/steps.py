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
    load,
    multiply,
    multiply_add,
    put,
    splat,
    store,
    zeros_of,
)
from sojourn.kernels.cpu.pairs import store_likeliest

STEPS = 16
"""Steps of a block; a tile begins at a multiple of this."""

WIDTH = 2 * LANES
"""Tiles of a strip."""

_SMALLEST = 0  # place of the smallest total that is sound in the array of constants


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
def add_row_squares(row, masks, gamma, row_sums):
    """Add the squares of q of a block, but for steps with which a sequence ends."""
    zero = zeros_of(gamma)
    for k in range(0, row, WIDTH):
        total, other_total = load(row_sums, k // 2), zero
        for s in range(STEPS):
            ended, other_ended = masks[s + 1], masks[s + 1] >> LANES
            x = choose(ended, zero, load(gamma, s * row + k))
            y = choose(other_ended, zero, load(gamma, s * row + k + LANES))
            total = multiply_add(x, x, total)
            other_total = multiply_add(y, y, other_total)
        store(row_sums, k // 2, add(total, other_total))


@inner
def add_likely(
    n_steps, first, every, n_states, after_at, alpha, gamma, epsilon, likely, ahead, places, pairs
):
    """Add the squares of pairs of the most probable states of steps and of those after them.

    With those of one step in `every`, as often, the sums are then exact for these and estimates
    for others: the steps `first`, `first + every`, ..., of which all squares are in the sums, count
    1 − `every` times.  `likely` and `ahead` have the state of the step after, its e, and how often
    it counts; then those of the first step.  The vectors of step s are in `alpha` from
    `after_at` + s rows on, and `places` is room for the states.
    """
    row = n_states * WIDTH
    for s in range(n_steps - 1, -1, -1):
        store_likeliest(gamma, s * row, n_states, places, np.int64(0))
        weight = ahead[WIDTH]
        for i in range(WIDTH):
            state = get(places, i)
            at = s * row + state * WIDTH + i
            cell = state * n_states + get(likely, i)
            pair = np.float64(get(alpha, after_at + at)) * get(ahead, i)
            put(pairs, cell, get(pairs, cell) + weight * pair * pair)
            put(likely, i, state)
            put(ahead, i, np.float64(get(epsilon, at)))
        ahead[WIDTH] = 1.0 - every if (s - first) % every == 0 else 1.0


@inner
def backward_block(
    slot, n_states, transitions, constants, phi, phi_at, masks, alpha, scales, beta, gamma, epsilon
):
    """Smooth a block given b of its last step in `beta`, which is then that of the step before it.

    Returns the lanes in which a total underflows, as bits.
    """
    zero, smallest = zeros_of(phi), splat(constants, _SMALLEST)
    row = n_states * WIDTH
    bad = 0
    down, along, none = n_states, np.int64(1), np.int64(0)
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
        _mix(
            n_states, transitions, down, along, epsilon, here, beta, none,
            choose(bits, scale, zero), choose(other_bits, other_scale, zero),
        )  # fmt: skip
    return bad


@inner
def move_sums(sums, total, weight):
    """Add the weighted sums of all lanes to a total in double precision, and clear them."""
    for i in range(total.shape[0]):
        value = 0.0
        for j in range(i * LANES, (i + 1) * LANES):
            value += np.float64(sums[j])
            sums[j] = 0.0
        total[i] += weight * value
