"""Forward-backward for few states, in numba: compiled for `narrow`.

All steps of a batch, one after another, are cut into tiles of the same length, wherever sequences
begin and end.  `WIDTH` tiles side by side are a strip: every vector has the same step of `LANES`
tiles, and a state is a vector, so that no lane is wasted on padding and no sum goes across lanes.

    forward    a_t = (a_{t−1} Θ) ∘ φ_t s_{t−1},   s_t = 1 / Σ_k a_t
    backward   b_{t−1} = Θ e_t,   e_t = φ_t ∘ b_t s_{t−1} / Σ_k a_t b_t
    counts     Θ ∘ Σ_t a_{t−1}ᵀ e_t

Where a sequence begins, a lane takes the start potentials for a_{t−1} Θ, and e_t is zero.

What enters a tile from its neighbours is found by a walk: the recursion begins some steps outside
of the tile with equal numbers, and the number of steps is doubled until that no longer changes what
arrives.  Positive matrices never move two vectors apart in Hilbert's projective metric, and bring
them together where states are forgotten.  In the end what left a tile is compared with what entered
the next one; if they differ by more than rounding, the batch is computed by `blocks` instead.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from sojourn.kernels.cpu.inner import bare, inner
from sojourn.kernels.cpu.lane_math import every as all_lanes
from sojourn.kernels.cpu.lanes import (
    LANES,
    add,
    lanes_not_above,
    load,
    multiply,
    store,
    widened,
)
from sojourn.kernels.cpu.pairs import add_outer
from sojourn.kernels.cpu.room import Arrays, Room, part
from sojourn.kernels.cpu.rows import lowest_bit
from sojourn.kernels.cpu.steps import (
    STEPS,
    WIDTH,
    add_likely,
    add_row_squares,
    backward_block,
    forward_block,
    move_sums,
)
from sojourn.kernels.cpu.strip_rows import (
    add_block,
    add_starts,
    load_block,
    mark_block,
    store_block,
)
from sojourn.kernels.cpu.sweeps import add_moments, load_numbers
from sojourn.kernels.interface import PAD
from sojourn.kernels.threads import take_unit

_FIRST_WALK = 16  # steps of the shortest walk
_LONGEST_WALK = 4096  # steps of the longest: what is remembered longer is computed step by step
_BLOCKS_A_SUM = 16  # blocks whose products are summed in single precision


@cache
def strip_room(n_states: int, tile: int, dtype: Any, n_columns: int, n_pairs: int) -> Room:
    """Describe the room that a thread needs, in the order in which `strip_units` takes its parts.

    With no columns, potentials are rows of a table.
    """
    row, of_pair = n_states * WIDTH, n_states * n_states * LANES
    n_left, n_right = -(-n_pairs // 4) * 4, -(-n_states // 2) * 2
    floats = Arrays(
        dtype,
        [
            (tile + 1) * row,  # alpha
            (tile + 1) * WIDTH,  # scales
            (tile + STEPS) * row,  # phi: behind those of the tile are those of a walk
            STEPS * row,  # epsilon
            STEPS * WIDTH,  # totals
            row,  # beta
            2 * WIDTH,  # tops
            STEPS * n_columns * WIDTH,  # run
            (tile + STEPS) * n_columns * WIDTH,  # columns
            n_states * LANES,  # potentials
        ],
        zeros=[
            STEPS * row + PAD * WIDTH,  # gamma: rows are added with their padding
            of_pair,  # sums
            of_pair,  # square_sums
            n_states * LANES,  # row_sums
        ],
        ones=[
            (STEPS + 1) * row,  # ones
            WIDTH * (STEPS * n_states + LANES),  # scratch
        ],
    )
    doubles = Arrays(
        np.float64,
        [
            WIDTH,  # product
            WIDTH,  # logs
            WIDTH + 1,  # ahead
            STEPS * WIDTH if n_columns else 0,  # heights
            n_states * LANES,  # rows
            n_columns * LANES,  # z_of_step
            n_left * n_right * LANES,  # moment_sums
        ],
        zeros=[
            2 * STEPS * n_left * LANES,  # products
            2 * STEPS * n_right * LANES if n_columns else 0,  # shares
        ],
        ones=[(n_columns + 1) * LANES if n_columns else 0],  # z
    )
    wholes = Arrays(
        np.int64,
        [
            WIDTH,  # likely
            WIDTH,  # found
            WIDTH,  # begins
            WIDTH,  # current
            2 * WIDTH,  # places
            STEPS + 1,  # masks
        ],
    )
    return Room(floats, doubles, wholes, Arrays(np.int32, [WIDTH * STEPS]))  # near


@bare
def strip_units(
    counter,
    n_units,
    floats,
    doubles,
    wholes,
    near,
    ends,
    sequences,
    starts,
    n_steps,
    tile,
    longest,
    start,
    transitions,
    table,
    numbers,
    constants,
    tolerance,
    floor,
    log_z,
    part_values,
    part_sequences,
    edges,
    failed,
    walks,
    probing,
    backward,
    responsibilities,
    every,
    start_counts,
    transition_counts,
    start_squares,
    pair_squares,
    row_squares,
    pairs,
    moments,
    table_sums,
):
    """Smooth strips u, u + n_units, ... of every unit u taken.

    The potentials of steps are rows of a table, or functions of `numbers`, which are then summed
    here too, and the responsibilities are not written.  Nor are they where there is room in
    `table_sums` for sums by row of the table: see `add_block`.

    `walks` has the steps of the walks forwards and backwards.  Where they are zero, the first strip
    of a unit finds them, and if only `probing`, writes them there and ends.

    Squares of pairs are those of one step in `every`, and of the most probable states of all steps.

    `strip_room` makes the first arrays, and says what they have in them.
    """
    n_states = start.shape[0]
    n_strips = -(-n_steps // (tile * WIDTH))
    row = n_states * WIDTH
    has_squares = pair_squares.shape[1] > 0
    alpha, scales = part(floats, ends, 0), part(floats, ends, 1)
    phi, epsilon = part(floats, ends, 2), part(floats, ends, 3)
    totals, beta = part(floats, ends, 4), part(floats, ends, 5)
    tops, run = part(floats, ends, 6), part(floats, ends, 7)
    columns, potentials = part(floats, ends, 8), part(floats, ends, 9)
    gamma, sums = part(floats, ends, 10), part(floats, ends, 11)
    square_sums, row_sums = part(floats, ends, 12), part(floats, ends, 13)
    ones, scratch = part(floats, ends, 14), part(floats, ends, 15)
    product, logs = part(doubles, ends, 17), part(doubles, ends, 18)
    ahead, heights = part(doubles, ends, 19), part(doubles, ends, 20)
    rows, z_of_step = part(doubles, ends, 21), part(doubles, ends, 22)
    moment_sums, products = part(doubles, ends, 23), part(doubles, ends, 24)
    shares, z = part(doubles, ends, 25), part(doubles, ends, 26)
    likely, found = part(wholes, ends, 28), part(wholes, ends, 29)
    begins, current = part(wholes, ends, 30), part(wholes, ends, 31)
    places, masks = part(wholes, ends, 32), part(wholes, ends, 33)
    n_taken, weight = STEPS // every, np.float64(every)  # steps of a block with squares
    none, one, block, once = np.int64(0), np.int64(1), np.int64(STEPS), np.float64(1.0)
    n_columns = z.shape[0] // LANES - 1
    unit = take_unit(counter)
    while unit < n_units:
        own_starts, own_squares = start_counts[unit], start_squares[unit]
        own_sums = table_sums[unit]
        to_tiles, from_tiles = walks[0], walks[1]
        if numbers is not None:
            for j in range(moment_sums.shape[0]):
                moment_sums[j] = 0.0
        for strip in range(unit, n_strips, n_units):
            if failed[0] != 0:
                break
            for i in range(WIDTH):
                begins[i] = (strip * WIDTH + i) * tile
                product[i] = 1.0
                logs[i] = 0.0
                likely[i] = 0
                current[i] = -1 - sequences[strip * WIDTH + i]
            bad = 0
            # Walk to the tiles in ever more steps, and then through them.
            entered, finds = False, to_tiles == 0
            walk = _FIRST_WALK if to_tiles < _FIRST_WALK else to_tiles
            while True:
                shift, slot = (none, none) if entered else (-walk, none)
                if not entered:
                    for j in range(row):
                        alpha[j] = 1.0
                    for j in range(WIDTH):
                        scales[j] = 1.0
                while shift < (tile if entered else none):
                    mark_block(begins, shift, starts, n_steps, masks)
                    phi_at = (shift if entered else tile) * row
                    if numbers is None:
                        load_block(
                            begins, shift, one, not entered, table, n_steps, n_states, scratch,
                            near, places, phi, phi_at,
                        )  # fmt: skip
                    else:
                        unfit = load_numbers(
                            begins, shift, n_steps, n_states, numbers, run, tops, z_of_step, rows,
                            potentials, places, columns, phi_at // n_states * n_columns, phi,
                            phi_at, heights,
                        )  # fmt: skip
                        bad |= np.int64(unfit)
                    lanes = forward_block(
                        slot, n_states, start, transitions, constants, phi, phi_at, masks, alpha,
                        scales, totals,
                    )  # fmt: skip
                    shift += STEPS
                    if entered:
                        bad |= lanes
                        slot += STEPS
                        _add_logs(
                            strip, totals, heights, masks, product, logs, current, log_z,
                            part_values, part_sequences,
                        )  # fmt: skip
                        continue
                    for j in range(row):
                        alpha[j] = alpha[STEPS * row + j]
                    for j in range(WIDTH):
                        scales[j] = scales[STEPS * WIDTH + j]
                which = np.int64(1) if entered else none
                same = _note(
                    alpha, slot * row, n_states, begins, none, starts, n_steps, tolerance, floor,
                    edges, which, strip,
                )  # fmt: skip
                if entered:
                    break
                # After the longest walk the check in the end decides.
                entered = not finds or same or walk >= longest or walk >= _LONGEST_WALK
                if entered:
                    to_tiles = walk
                    if probing:
                        break
                walk *= 2
            if bad == 0 and backward:
                entered, finds = False, from_tiles == 0
                walk = _FIRST_WALK if from_tiles < _FIRST_WALK else from_tiles
                for i in range(WIDTH + 1):  # the pair with the next tile's step is not of this one
                    ahead[i] = 0.0
                while True:
                    shift = tile if entered else tile + walk
                    n_sums = 0
                    if not entered:
                        for j in range(row):
                            beta[j] = 1.0
                    while shift > (none if entered else tile):
                        shift -= STEPS
                        mark_block(begins, shift, starts, n_steps, masks)
                        phi_at = (shift if entered else tile) * row
                        if not entered:
                            if numbers is None:
                                load_block(
                                    begins, shift, -one, not entered, table, n_steps, n_states,
                                    scratch, near, places, phi, phi_at,
                                )  # fmt: skip
                            else:
                                unfit = load_numbers(
                                    begins, shift, n_steps, n_states, numbers, run, tops, z_of_step,
                                    rows, potentials, places, columns, tile * n_columns * WIDTH,
                                    phi, phi_at, heights,
                                )  # fmt: skip
                                bad |= np.int64(unfit)
                            backward_block(
                                none, n_states, transitions, constants, phi, phi_at, masks, ones,
                                ones, beta, gamma, epsilon,
                            )  # fmt: skip
                            masks[STEPS] = masks[0]
                            continue
                        lanes = backward_block(
                            shift, n_states, transitions, constants, phi, phi_at, masks, alpha,
                            scales, beta, gamma, epsilon,
                        )  # fmt: skip
                        bad |= lanes
                        if has_squares:
                            taken = -(shift // STEPS) % every  # the first step with squares
                            add_row_squares(row, masks, gamma, row_sums)
                        if has_squares and every == 1:
                            add_outer(
                                alpha, shift * row, epsilon, none, n_states, block, row, sums,
                                square_sums,
                            )  # fmt: skip
                        else:
                            add_outer(
                                alpha, shift * row, epsilon, none, n_states, block, row, sums, None
                            )
                        if has_squares and every > 1:
                            add_outer(
                                alpha, (shift + taken) * row, epsilon, taken * row, n_states,
                                n_taken, every * row, None, square_sums,
                            )  # fmt: skip
                            add_likely(
                                block, taken, every, n_states, (shift + 1) * row, alpha, gamma,
                                epsilon, likely, ahead, found, pair_squares[unit],
                            )  # fmt: skip
                        masks[STEPS] = masks[0]
                        n_sums += 1
                        if n_sums == _BLOCKS_A_SUM or shift == 0:
                            move_sums(sums, transition_counts[unit], once)
                            move_sums(square_sums, pair_squares[unit], weight)
                            move_sums(row_sums, row_squares[unit], once)
                            n_sums = 0
                        add_starts(
                            begins, shift, n_steps, n_states, masks, gamma, own_starts, own_squares
                        )
                        if numbers is None:
                            if own_sums.shape[0] > 0:
                                add_block(
                                    begins, shift, table, n_steps, n_states, gamma, near, places,
                                    own_sums,
                                )  # fmt: skip
                            else:
                                store_block(
                                    begins, shift, n_steps, n_states, gamma, scratch, places,
                                    responsibilities,
                                )  # fmt: skip
                        else:
                            add_moments(
                                begins, shift, n_steps, n_states, pairs, columns,
                                shift * n_columns * WIDTH, gamma, z, products, shares, moment_sums,
                            )  # fmt: skip
                    if entered and has_squares and every > 1:
                        # The pair of the tile's first step with the step before it.
                        for j in range(0, row, LANES):
                            store(gamma, j, multiply(load(alpha, j), load(beta, j)))
                        add_likely(
                            one, none, every, n_states, none, alpha, gamma, epsilon, likely, ahead,
                            found, pair_squares[unit],
                        )  # fmt: skip
                    which = np.int64(3) if entered else np.int64(2)
                    same = _note(
                        beta, none, n_states, begins, none if entered else tile, starts, n_steps,
                        tolerance, floor, edges, which, strip,
                    )  # fmt: skip
                    if entered:
                        break
                    entered = not finds or same or walk >= longest or walk >= _LONGEST_WALK
                    if entered:
                        from_tiles = walk
                        if probing:
                            break
                    walk *= 2
            if probing:
                walks[0], walks[1] = to_tiles, from_tiles
                return
            for i in range(WIDTH):  # what is left at the end of a tile
                last, at = (0, -1 - current[i] - 1) if current[i] < 0 else (1, current[i])
                part_values[last, strip * WIDTH + i] = logs[i] + np.log(product[i])
                part_sequences[last, strip * WIDTH + i] = at
            if bad != 0:
                failed[0] = 1
        if numbers is not None:
            n_right = -(-n_states // 2) * 2
            for p in range(pairs.shape[0]):
                for k in range(n_states):
                    value = 0.0
                    for i in range(LANES):
                        value += moment_sums[(p * n_right + k) * LANES + i]
                    moments[unit, p, k] = value
        unit = take_unit(counter)


@inner
def _add_logs(
    strip, totals, heights, masks, product, logs, current, log_z, part_values,
    part_sequences,
):  # fmt: skip
    """Multiply the totals of a block; where a sequence begins, write what the one before had.

    `heights`, if there are any, are logarithms of factors of the potentials.
    """
    low, high = all_lanes(1e-250), all_lanes(1e250)
    for s in range(STEPS):
        bits = masks[s]
        while bits != 0:
            i = lowest_bit(bits)
            bits &= bits - 1
            value = logs[i] + np.log(product[i])
            product[i] = 1.0
            logs[i] = 0.0
            if current[i] < 0:  # it began before the tile
                part_values[0, strip * WIDTH + i] = value
                part_sequences[0, strip * WIDTH + i] = -1 - current[i] - 1
                current[i] = -1 - current[i]
            else:
                if current[i] < log_z.shape[0]:
                    log_z[current[i]] = value
                current[i] += 1
        for half in range(0, WIDTH, LANES):
            if heights.shape[0] > 0:
                store(logs, half, add(load(logs, half), load(heights, s * WIDTH + half)))
            total = widened(load(totals, s * WIDTH + half))
            value = multiply(load(product, half), total)
            store(product, half, value)
            # One logarithm for many steps: the product is kept within range.
            bits = lanes_not_above(value, low) | lanes_not_above(high, value)
            while bits != 0:
                i = half + lowest_bit(bits)
                bits &= bits - 1
                logs[i] += np.log(product[i])
                product[i] = 1.0


@inner
def _note(
    vectors, at, n_states, begins, shift, starts, n_steps, tolerance, floor, edges, which, strip
):
    """Write the vectors at an edge, and tell whether they were the same before.

    Lanes in which a sequence begins there do not count.
    """
    same = True
    for i in range(WIDTH):
        t = begins[i] + shift
        counts = t < n_steps and starts[t // STEPS] & 1 == 0
        total = 0.0
        for k in range(n_states):
            total += vectors[at + k * WIDTH + i]
        if total == 0.0:
            total = np.nan  # no path came here: the edge is not the same as any
        for k in range(n_states):
            a, b = vectors[at + k * WIDTH + i] / total, edges[which, strip * WIDTH + i, k]
            larger = a if a > b else b  # numba compiles `max` by itself
            if counts and not abs(a - b) <= tolerance * larger + floor:
                same = False
            edges[which, strip * WIDTH + i, k] = a
    return same
