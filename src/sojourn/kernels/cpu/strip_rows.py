"""Blocks of `strips` between vectors and memory: where sequences begin, potentials, and sums.

The potentials of a step are a row of a table, or a row of its own.  Its responsibilities are
written to a row of its own, or added to a row that all steps with the same row of the table share.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.inner import inner
from sojourn.kernels.cpu.lanes import LANES, load, store, transpose, transpose_back
from sojourn.kernels.cpu.pads import add_to_rows, take_rows
from sojourn.kernels.cpu.rows import lowest_bit
from sojourn.kernels.cpu.steps import STEPS, WIDTH
from sojourn.kernels.interface import PAD
from sojourn.kernels.threads import prefetch

_ALL = 2**STEPS - 1


@inner
def mark_block(begins, shift, starts, n_steps, masks):
    """Find the lanes in which a sequence begins at each step of a block.

    Steps outside of the data count as sequences of one step.
    """
    for s in range(STEPS):
        masks[s] = 0
    for i in range(WIDTH):
        t = begins[i] + shift
        bits = np.int64(starts[t // STEPS]) if 0 <= t < n_steps else _ALL
        while bits != 0:
            masks[lowest_bit(bits)] |= 1 << i
            bits &= bits - 1


@inner
def load_block(
    begins, shift, ahead, walks, table, n_steps, n_states, scratch, near, places, phi, phi_at
):
    """Load the potentials of a block from rows of a table, or of consecutive steps.

    Those of steps outside of the data are ones, or any where nothing is summed, on a walk.
    """
    index, emissions, width = table
    if width == 0:
        _load_steps(
            begins, shift, ahead, walks, emissions, n_steps, n_states, scratch, places, phi, phi_at
        )
        return
    numbers, steps, at = index, begins, shift
    outside = begins[0] + shift < 0 or begins[WIDTH - 1] + shift + STEPS > n_steps
    if outside:
        steps, at = places, np.int64(0)
        if _find_steps(begins, shift, index, n_steps, near, places):
            numbers = near
    for i in range(WIDTH):
        prefetch(index, begins[i] + shift + ahead * STEPS)
    for s in range(STEPS):
        for half in range(0, WIDTH, LANES):
            for k in range(0, n_states, PAD):
                take_rows(
                    emissions, k, numbers, steps, half, at + s, width, n_states - k, phi,
                    phi_at + (s * n_states + k) * WIDTH + half, WIDTH,
                )  # fmt: skip
    if outside and not walks:
        one = emissions.dtype.type(1.0)
        _fill_outside(begins, shift, n_steps, n_states, one, phi, phi_at)


@inner
def _find_steps(begins, shift, index, n_steps, near, places):
    """Find steps of the data for all lanes of a block, where some lanes are outside of them.

    Returns whether the numbers of their rows were copied to `near`: where a lane is partly outside.
    """
    copied = n_steps < STEPS
    for i in range(WIDTH):
        t = begins[i] + shift
        places[i] = t if 0 <= t <= n_steps - STEPS else 0
        copied |= n_steps - STEPS < t < n_steps
    if copied:
        for i in range(WIDTH):
            t = begins[i] + shift
            places[i] = i * STEPS
            for s in range(STEPS):
                near[i * STEPS + s] = index[t + s] if 0 <= t + s < n_steps else 0
    return copied


@inner
def _fill_outside(begins, shift, n_steps, n_states, value, out, out_at):
    """Write a number for all states at the steps of a block that are outside of the data."""
    for i in range(WIDTH):
        t = begins[i] + shift
        if 0 <= t <= n_steps - STEPS:
            continue
        for s in range(STEPS):
            if not 0 <= t + s < n_steps:
                at = out_at + s * n_states * WIDTH + i
                for k in range(n_states):
                    out[at + k * WIDTH] = value


@inner
def _load_steps(
    begins, shift, ahead, walks, emissions, n_steps, n_states, scratch, places, phi, phi_at
):
    """Load the potentials of a block from rows of consecutive steps."""
    run = STEPS * n_states
    source, first, direct = emissions, 0, True
    for i in range(WIDTH):
        t = begins[i] + shift
        places[i] = t * n_states
        if walks and not 0 <= t < n_steps:
            places[i] = t = 0
        direct = direct and 0 <= t <= n_steps - STEPS
    if not direct:
        source, first = scratch, WIDTH
        for i in range(WIDTH):
            at = i * (run + LANES)
            end = at + run
            places[WIDTH + i] = at
            t = begins[i] + shift
            inside = n_steps - t if t >= 0 else 0
            inside = STEPS if inside > STEPS else inside
            if inside == STEPS:
                for j in range(0, run, LANES):
                    store(scratch, at + j, load(emissions, t * n_states + j))
                continue
            for j in range(inside * n_states):
                scratch[at] = emissions[t * n_states + j]
                at += 1
            while at < end:
                scratch[at] = 1.0
                at += 1
    if direct:
        # Too many streams for the processor to foresee: ask for the next block.
        for i in range(WIDTH):
            for at in range(ahead * run, (ahead + 1) * run, LANES):
                prefetch(emissions, places[i] + at)
    for half in range(0, WIDTH, LANES):
        for at in range(0, run, LANES):
            transpose(source, places, first + half, at, phi, phi_at + at * WIDTH + half, WIDTH)


@inner
def store_block(begins, shift, n_steps, n_states, gamma, scratch, places, responsibilities):
    """Write the probabilities of a block to the rows of its steps."""
    run = STEPS * n_states
    whole = begins[WIDTH - 1] + shift + STEPS <= n_steps
    target = responsibilities if whole else scratch
    for i in range(WIDTH):
        places[i] = (begins[i] + shift) * n_states if whole else i * run
    for half in range(0, WIDTH, LANES):
        for at in range(0, run, LANES):
            transpose_back(gamma, at * WIDTH + half, WIDTH, target, places, half, at)
    if not whole:
        for i in range(WIDTH):
            t = begins[i] + shift
            if t + STEPS <= n_steps:
                for j in range(0, run, LANES):
                    store(responsibilities, t * n_states + j, load(scratch, i * run + j))
                continue
            for j in range((n_steps - t) * n_states):
                responsibilities[t * n_states + j] = scratch[i * run + j]


@inner
def add_block(begins, shift, table, n_steps, n_states, gamma, near, places, sums):
    """Add the probabilities of a block to the rows of a table of sums, in double precision.

    There may be four such tables, each like that of the potentials: a sum waits for the one before
    it, and where rows are few, steps that follow each other go to different tables.
    """
    index, emissions, width = table
    numbers, steps, at = index, begins, shift
    if begins[WIDTH - 1] + shift + STEPS > n_steps:
        nothing, here = gamma.dtype.type(0.0), np.int64(0)
        _fill_outside(begins, shift, n_steps, n_states, nothing, gamma, here)
        steps, at = places, here
        if _find_steps(begins, shift, index, n_steps, near, places):
            numbers = near
    for s in range(STEPS):
        for half in range(0, WIDTH, LANES):
            own = (2 * (s & 1) + half // LANES) * emissions.shape[0] % sums.shape[0]
            for k in range(0, n_states, PAD):
                add_to_rows(
                    sums, own + k, numbers, steps, half, at + s, width, gamma,
                    (s * n_states + k) * WIDTH + half, WIDTH,
                )  # fmt: skip


@inner
def add_starts(begins, shift, n_steps, n_states, masks, gamma, start_counts, start_squares):
    """Add the probabilities at the steps of a block at which a sequence begins."""
    for s in range(STEPS):
        bits = masks[s]
        while bits != 0:
            i = lowest_bit(bits)
            bits &= bits - 1
            if begins[i] + shift + s < n_steps:
                for k in range(n_states):
                    q = np.float64(gamma[(s * n_states + k) * WIDTH + i])
                    start_counts[k] += q
                    if start_squares.shape[0] > 0:
                        start_squares[k] += q * q
