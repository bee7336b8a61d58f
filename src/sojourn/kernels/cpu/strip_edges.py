"""What surrounds `strips`: where sequences begin, whether tiles meet, and factors of rows."""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels.cpu.lanes import LANES, add, load, store, zeros_of
from sojourn.kernels.cpu.steps import STEPS
from sojourn.kernels.threads import take_unit


@njit(nogil=True, cache=True)
def finish(
    tile, n_steps, starts, edges, backward, tolerance, floor, log_z, part_values, part_sequences
):
    """Add up the logarithms of sequences over tiles; return whether all edges meet."""
    n_tiles, n_states = edges.shape[1], edges.shape[2]
    for i in range(n_tiles):
        for which in range(2):
            sequence = part_sequences[which, i]
            if 0 <= sequence < log_z.shape[0]:
                log_z[sequence] += part_values[which, i]
    for i in range(1, n_tiles):
        t = i * tile
        if t >= n_steps or starts[t // STEPS] & 1 != 0:
            continue
        for which in range(0, 4 if backward else 2, 2):
            for k in range(n_states):
                a, b = edges[which, i - which // 2, k], edges[which + 1, i - 1 + which // 2, k]
                if not abs(a - b) <= tolerance * max(a, b) + floor:
                    return False
    return True


@njit(nogil=True, cache=True)
def prepare(offsets, tile, sequences, bits):
    """Count the sequences that begin before each tile, and mark the steps at which they begin.

    Steps after the last one are marked too.  Returns the length of the longest sequence.
    """
    longest = 0
    n_sequences = offsets.shape[0] - 1
    for i in range(n_sequences):
        longest = max(longest, offsets[i + 1] - offsets[i])
        bits[offsets[i] // STEPS] |= 1 << (offsets[i] % STEPS)
    for t in range(offsets[-1], bits.shape[0] * STEPS):
        bits[t // STEPS] |= 1 << (t % STEPS)
    n = 0
    for i in range(sequences.shape[0]):
        while n < n_sequences and offsets[n] < i * tile:
            n += 1
        sequences[i] = n
    return longest


@njit(nogil=True, cache=True)
def is_consecutive(index):
    """Whether ``index[t] == t`` everywhere."""
    differs = 0
    for t in range(index.shape[0]):
        differs |= index[t] ^ t
    return differs == 0


@njit(nogil=True, cache=True)
def add_log_scales(counter, n_units, offsets, index, is_dense, log_scale, log_z):
    """Add the logarithms of the factors of a sequence's rows."""
    n_sequences = log_z.shape[0]
    sums = np.empty(LANES)
    unit = take_unit(counter)
    while unit < n_units:
        for n in range(n_sequences * unit // n_units, n_sequences * (unit + 1) // n_units):
            t, end = offsets[n], offsets[n + 1]
            total = 0.0
            if is_dense and end - t >= LANES:
                lanes = zeros_of(sums)
                while t + LANES <= end:
                    lanes = add(lanes, load(log_scale, t))
                    t += LANES
                store(sums, np.int64(0), lanes)
                for i in range(LANES):
                    total += sums[i]
            while t < end:
                total += log_scale[t if is_dense else index[t]]
                t += 1
            log_z[n] += total
        unit = take_unit(counter)
