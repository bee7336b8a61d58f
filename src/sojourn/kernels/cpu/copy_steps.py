"""The steps of the recursions on copies, in vectors: the arithmetic of `copies`, in numba.

The vectors of a step are a slot: those of the copies p = 0 of all states, of f and of φ, and of the
other copies, state by state.  Arrays are flat, and places in them are counted in numbers.

Literal numbers in a call make numba compile the function once for each of them: they are variables.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.inner import inner
from sojourn.kernels.cpu.lane_math import every_like
from sojourn.kernels.cpu.lanes import (
    LANES,
    add,
    choose,
    copy_pad,
    inverse,
    lanes_not_above,
    least,
    load,
    multiply,
    multiply_add,
    splat,
    store,
    transpose,
    transpose_back,
    widened,
    zeros_of,
)
from sojourn.kernels.cpu.rows import lowest_bit
from sojourn.kernels.interface import PAD

KEPT = 5
"""Vectors of each state that are kept between the parts of a step: probabilities, g and what is
summed of a step."""

# Places in the array of constants, as in `steps`.
_SHIFT, _UNSHIFT, _LARGEST = 1, 2, 3
_LOW, _HIGH = 1e-250, 1e250  # the product of totals is kept between these
_SQUARABLE = 2.0**-63  # the smallest number whose square is in the normal range of float32


@inner
def _mix(n_four, matrix, down, along, source, at, out, out_at):
    """``out[k] = Σ_j matrix[k * down + j * along] * source[j]``."""
    zero = zeros_of(source)
    k = 0
    while k < n_four:
        a = zero
        b = zero
        c = zero
        d = zero
        place = k * down
        to = out_at + k * LANES
        if k + 8 <= n_four:
            e = zero
            f = zero
            g = zero
            h = zero
            for j in range(at, at + n_four * LANES, LANES):
                x = load(source, j)
                a = multiply_add(x, splat(matrix, place), a)
                b = multiply_add(x, splat(matrix, place + down), b)
                c = multiply_add(x, splat(matrix, place + 2 * down), c)
                d = multiply_add(x, splat(matrix, place + 3 * down), d)
                e = multiply_add(x, splat(matrix, place + 4 * down), e)
                f = multiply_add(x, splat(matrix, place + 5 * down), f)
                g = multiply_add(x, splat(matrix, place + 6 * down), g)
                h = multiply_add(x, splat(matrix, place + 7 * down), h)
                place += along
            store(out, to + 4 * LANES, e)
            store(out, to + 5 * LANES, f)
            store(out, to + 6 * LANES, g)
            store(out, to + 7 * LANES, h)
            k += 4
        else:
            for j in range(at, at + n_four * LANES, LANES):
                x = load(source, j)
                a = multiply_add(x, splat(matrix, place), a)
                b = multiply_add(x, splat(matrix, place + down), b)
                c = multiply_add(x, splat(matrix, place + 2 * down), c)
                d = multiply_add(x, splat(matrix, place + 3 * down), d)
                place += along
        store(out, to, a)
        store(out, to + LANES, b)
        store(out, to + 2 * LANES, c)
        store(out, to + 3 * LANES, d)
        k += 4


@inner
def load_rows(
    t, lengths, firsts, index, emissions, row_width, n_wide, scratch, places, out, out_at
):
    """Load the potentials of a step; lanes that have ended keep their last ones."""
    for i in range(LANES):
        if t < lengths[i]:
            row = np.int64(index[firsts[i] + t]) * row_width
            for j in range(0, row_width, PAD):
                copy_pad(emissions, row + j, scratch, places[i] + j)
    for j in range(0, n_wide, LANES):
        transpose(scratch, places, np.int64(0), j, out, out_at + j * LANES, np.int64(LANES))


@inner
def store_rows(
    t, lengths, firsts, n_states, n_wide, norm, room, gamma, scratch, places, responsibilities
):
    """Write the probabilities of a step to the rows of its sequences."""
    for k in range(0, n_states * LANES, LANES):
        store(gamma, k, multiply(load(room, k), norm))
    for j in range(0, n_wide, LANES):
        transpose_back(gamma, j * LANES, np.int64(LANES), scratch, places, np.int64(2 * LANES), j)
    width = responsibilities.shape[1]
    for i in range(LANES):
        if t < lengths[i]:
            row = (firsts[i] + t) * width
            for j in range(0, width, PAD):
                copy_pad(scratch, places[2 * LANES + i] + j, responsibilities, row + j)


@inner
def first_step(here, sizes, layout, lanes, start, entry, before, alpha):
    """Fill the slot of the first step, and return its totals."""
    n_states, n_four, _, _, _ = sizes
    phi = here + 2 * n_four * LANES
    total = zeros_of(alpha)
    for k in range(n_states):
        n, first, rest = layout[0, k], layout[1, k], here + layout[2, k] * LANES
        begun = splat(start, k)
        store(alpha, here + (n_four + k) * LANES, begun)
        for p in range(n):
            at = here + k * LANES if p == 0 else rest + (p - 1) * LANES
            store(alpha, at, multiply(begun, splat(entry, first + p)))
        if before.shape[0] > 0:
            for i in range(LANES):
                if lanes[i] >= 0 and not np.isnan(before[lanes[i], 0]):
                    alpha[here + (n_four + k) * LANES + i] = 0.0
                    for p in range(n):
                        at = here + k * LANES if p == 0 else rest + (p - 1) * LANES
                        alpha[at + i] = before[lanes[i], first + p]
        weight = load(alpha, phi + k * LANES)
        for p in range(n):
            at = here + k * LANES if p == 0 else rest + (p - 1) * LANES
            x = multiply(load(alpha, at), weight)
            store(alpha, at, x)
            total = add(total, x)
    return total


@inner
def forward_step(here, sizes, layout, matrix, stay, advance, entry, scale, alpha):
    """Fill the slot of a step from the one before, and return its totals."""
    n_states, n_four, _, _, n_vectors = sizes
    slot = n_vectors * LANES
    entering, phi = here + n_four * LANES, here + 2 * n_four * LANES
    _mix(n_four, matrix, np.int64(1), n_four, alpha, here - slot, alpha, entering)
    zero = zeros_of(alpha)
    total = zero
    for k in range(n_states):
        n, first = layout[0, k], layout[1, k]
        own, further = splat(stay, k), splat(advance, k)
        weight = multiply(load(alpha, phi + k * LANES), scale)
        f = multiply(load(alpha, entering + k * LANES), weight)
        own, further = multiply(own, weight), multiply(further, weight)
        place = here + k * LANES
        rest = here + layout[2, k] * LANES
        x = load(alpha, place - slot)
        part = zero
        if layout[3, k] == 0:
            for p in range(rest, rest + (n - 1) * LANES, LANES):
                above = load(alpha, p - slot)
                x = multiply_add(above, further, multiply(x, own))
                part = add(part, x)
                store(alpha, place, x)
                x = above
                place = p
        else:
            for p in range(rest, rest + (n - 1) * LANES, LANES):
                above = load(alpha, p - slot)
                x = multiply_add(above, further, multiply(x, own))
                x = multiply_add(f, splat(entry, first), x)
                part = add(part, x)
                store(alpha, place, x)
                x = above
                place = p
                first += 1
        x = multiply_add(f, splat(entry, layout[1, k] + n - 1), multiply(x, own))
        store(alpha, place, x)
        total = add(total, add(part, x))
    return total


@inner
def add_logs(alive, total, product, logs):
    """Multiply the totals of a step; one logarithm for many steps."""
    none = np.int64(0)
    so_far = load(product, none)
    store(product, none, choose(alive, multiply(so_far, widened(total)), so_far))
    for i in range(LANES):
        if not _LOW < product[i] < _HIGH:
            logs[i] += np.log(product[i])
            product[i] = 1.0


@inner
def begin_lanes(begun, here, sizes, layout, lanes, after, alpha, beta, room, total, ends):
    """Begin the way back in the lanes whose last step this is."""
    n_states, _, _, n_copies, _ = sizes
    zero = zeros_of(alpha)
    bits = begun
    for c in range(n_copies):
        at = c * LANES
        for i in range(LANES):
            if begun >> i & 1:
                beta[at + i] = 1.0
    while after.shape[0] > 0 and bits != 0:
        i = lowest_bit(bits)
        bits &= bits - 1
        if not np.isnan(after[lanes[i], 0]):
            for c in range(n_copies):
                beta[c * LANES + i] = after[lanes[i], c]
    together = zero
    for k in range(n_states):
        n, at, rest = layout[0, k], layout[1, k] * LANES, here + layout[2, k] * LANES
        part = multiply(load(alpha, here + k * LANES), load(beta, at))
        for p in range(1, n):
            part = multiply_add(
                load(alpha, rest + (p - 1) * LANES), load(beta, at + p * LANES), part
            )
        store(room, k * LANES, choose(begun, part, load(room, k * LANES)))
        together = add(together, part)
    store(total, np.int64(0), choose(begun, together, load(total, np.int64(0))))
    if ends.shape[1] > 0:
        write_ends(np.int64(1), begun, here, sizes, layout, lanes, alpha, beta, total, ends)


@inner
def write_ends(which, bits, here, sizes, layout, lanes, alpha, beta, total, ends):
    """Write the probabilities of the copies at a step of some lanes."""
    n_states = sizes[0]
    while bits != 0:
        i = lowest_bit(bits)
        bits &= bits - 1
        for k in range(n_states):
            n, first, rest = layout[0, k], layout[1, k], here + layout[2, k] * LANES
            for p in range(n):
                at = here + k * LANES if p == 0 else rest + (p - 1) * LANES
                q = np.float64(alpha[at + i]) * np.float64(beta[(first + p) * LANES + i])
                ends[which, lanes[i], first + p] = q / np.float64(total[i])


@inner
def backward_step(
    t, here, begin, sizes, layout, matrix, stay, advance, entry, constants, alive, scale, weight,
    alpha, beta, epsilon, squared, room, total, sums,
):  # fmt: skip
    """Go from b of a step to that of the step before, and sum what lies between the two.

    `room` has what is to become the probabilities of the step before, and room for g.
    """
    n_states, n_four, _, _, n_vectors = sizes
    slot, width = n_vectors * LANES, n_four * LANES
    before, entering, phi = here - slot, here + width, here + 2 * width
    kept_g, kept_stay, kept_inner, out = width, 2 * width, 3 * width, 4 * width
    e_at = (t - begin) * width
    zero = zeros_of(alpha)
    entries = 3 * n_states * LANES
    for k in range(n_states):
        at = k * LANES
        n, first = layout[0, k], layout[1, k] * LANES
        own, further = splat(stay, k), splat(advance, k)
        w = multiply(load(alpha, phi + at), weight)
        f = load(alpha, entering + at)
        g = multiply(load(beta, first), w)
        store(room, kept_g + at, g)
        e = zero
        top = layout[1, k] + n - 1
        if t == 0:
            # Nothing comes before the first step but its beginning.
            for p in range(first, first + n * LANES, LANES):
                g = multiply(load(beta, p), w)
                store(sums, entries + p, multiply_add(f, g, load(sums, entries + p)))
            continue
        stayed = multiply(load(alpha, before + at), g)
        inside = zero
        rest = before + layout[2, k] * LANES
        if layout[3, k] == 0:
            for p in range(first + LANES, first + n * LANES, LANES):
                below = g
                g = multiply(load(beta, p), w)
                a = load(alpha, rest)
                rest += LANES
                stayed = multiply_add(a, g, stayed)
                inside = multiply_add(a, below, inside)
                store(beta, p, multiply_add(below, further, multiply(g, own)))
        else:
            j = layout[1, k]
            for p in range(first + LANES, first + n * LANES, LANES):
                below = g
                e = multiply_add(g, splat(entry, j), e)
                place = entries + p - LANES
                store(sums, place, multiply_add(f, g, load(sums, place)))
                g = multiply(load(beta, p), w)
                a = load(alpha, rest)
                rest += LANES
                j += 1
                stayed = multiply_add(a, g, stayed)
                inside = multiply_add(a, below, inside)
                store(beta, p, multiply_add(below, further, multiply(g, own)))
        store(epsilon, e_at + at, multiply_add(g, splat(entry, top), e))
        place = entries + top * LANES
        store(sums, place, multiply_add(f, g, load(sums, place)))
        store(room, kept_stay + at, stayed)
        store(room, kept_inner + at, inside)
        store(sums, at, add(load(sums, at), stayed))
        place = n_states * LANES + at
        store(sums, place, add(load(sums, place), inside))
    if t == 0:
        return
    _mix(n_four, matrix, n_four, np.int64(1), epsilon, e_at, room, out)
    together = zero
    for at in range(0, n_states * LANES, LANES):
        k = at // LANES
        own, further = splat(stay, k), splat(advance, k)
        x, a = load(room, out + at), load(alpha, before + at)
        left = multiply(a, x)
        store(beta, layout[1, k] * LANES, multiply_add(load(room, kept_g + at), own, x))
        q = multiply_add(load(room, kept_inner + at), further, left)
        q = multiply_add(load(room, kept_stay + at), own, q)
        store(room, at, q)
        together = add(together, q)
        if squared.shape[0] > 0:
            place = 2 * n_states * LANES + at
            store(sums, place, multiply_add(left, left, load(sums, place)))
            a = multiply(multiply(a, scale), splat(constants, _SHIFT))
            # Squares below the normal range slow some processors down by a factor of ten.
            a = choose(lanes_not_above(a, every_like(a, _SQUARABLE)), zero, a)
            store(squared, e_at + at, multiply(a, a))
            whole = choose(alive, inverse(scale), zero)
            e = least(multiply(load(epsilon, e_at + at), whole), splat(constants, _LARGEST))
            e = multiply(e, splat(constants, _UNSHIFT))
            e = choose(lanes_not_above(e, every_like(e, _SQUARABLE)), zero, e)
            store(squared, squared.shape[0] // 2 + e_at + at, multiply(e, e))
    store(total, np.int64(0), together)


@inner
def add_pairs(
    left, left_at, left_step, right, right_at, right_step, n_steps, n_four, places, tile, totals
):
    """Add ``Σ left[s, k] * right[s, l]`` over steps and lanes to totals, (K, K)."""
    none = np.int64(0)
    for k in range(0, n_four, 4):
        for j in range(0, n_four, 4):
            _tile(
                left, left_at + k * LANES, left_step, right, right_at + j * LANES, right_step,
                n_steps, tile,
            )  # fmt: skip
            transpose(tile, places, np.int64(LANES), none, tile, LANES * LANES, np.int64(LANES))
            x = zeros_of(tile)
            for i in range(LANES * LANES, 2 * LANES * LANES, LANES):
                x = add(x, load(tile, i))
            store(tile, none, x)
            for i in range(4):
                for n in range(4):
                    totals[(k + i) * n_four + j + n] += np.float64(tile[4 * i + n])


@inner
def _tile(left, a, left_step, right, b, right_step, n_steps, out):
    """Four states by four: sixteen sums in registers."""
    zero = zeros_of(left)
    c00 = zero
    c01 = zero
    c02 = zero
    c03 = zero
    c10 = zero
    c11 = zero
    c12 = zero
    c13 = zero
    c20 = zero
    c21 = zero
    c22 = zero
    c23 = zero
    c30 = zero
    c31 = zero
    c32 = zero
    c33 = zero
    for _ in range(n_steps):
        w = load(right, b)
        x = load(right, b + LANES)
        y = load(right, b + 2 * LANES)
        z = load(right, b + 3 * LANES)
        p = load(left, a)
        c00 = multiply_add(p, w, c00)
        c01 = multiply_add(p, x, c01)
        c02 = multiply_add(p, y, c02)
        c03 = multiply_add(p, z, c03)
        p = load(left, a + LANES)
        c10 = multiply_add(p, w, c10)
        c11 = multiply_add(p, x, c11)
        c12 = multiply_add(p, y, c12)
        c13 = multiply_add(p, z, c13)
        p = load(left, a + 2 * LANES)
        c20 = multiply_add(p, w, c20)
        c21 = multiply_add(p, x, c21)
        c22 = multiply_add(p, y, c22)
        c23 = multiply_add(p, z, c23)
        p = load(left, a + 3 * LANES)
        c30 = multiply_add(p, w, c30)
        c31 = multiply_add(p, x, c31)
        c32 = multiply_add(p, y, c32)
        c33 = multiply_add(p, z, c33)
        a += left_step
        b += right_step
    store(out, np.int64(0), c00)
    store(out, np.int64(1 * LANES), c01)
    store(out, np.int64(2 * LANES), c02)
    store(out, np.int64(3 * LANES), c03)
    store(out, np.int64(4 * LANES), c10)
    store(out, np.int64(5 * LANES), c11)
    store(out, np.int64(6 * LANES), c12)
    store(out, np.int64(7 * LANES), c13)
    store(out, np.int64(8 * LANES), c20)
    store(out, np.int64(9 * LANES), c21)
    store(out, np.int64(10 * LANES), c22)
    store(out, np.int64(11 * LANES), c23)
    store(out, np.int64(12 * LANES), c30)
    store(out, np.int64(13 * LANES), c31)
    store(out, np.int64(14 * LANES), c32)
    store(out, np.int64(15 * LANES), c33)
