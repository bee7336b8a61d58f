"""Best paths, Viterbi's algorithm, one sequence at a time in numba."""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels import reference
from sojourn.kernels.cpu import durations
from sojourn.kernels.interface import Floats, Integers, Potentials, padded_states
from sojourn.kernels.ragged import longest_first
from sojourn.kernels.threads import run_units, take_unit


def viterbi(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> tuple[Floats, Integers]:
    """Find the best path of every sequence, in float64; ties go to the lower state.

    Memory per thread: two bytes per state and step of the longest sequence.
    """
    if potentials.durations is not None:
        return durations.viterbi(potentials, index, offsets, n_threads=n_threads)
    width = padded_states(len(potentials.start))
    start, transitions, emissions = reference.logarithms(potentials)
    best = np.empty(len(offsets) - 1)
    path = np.empty(len(index), dtype=np.int32)
    run_units(
        _viterbi_units,
        len(best),
        n_threads,
        longest_first(offsets),
        np.asarray(offsets, dtype=np.int64),
        np.asarray(index, dtype=np.int32),
        _padded(start, width),
        _padded(transitions, width, width),
        _padded(emissions, len(emissions), width),
        best,
        path,
    )
    return best, path


def _padded(logs: Floats, *shape: int) -> Floats:
    """Return logarithms with those of zero beyond them."""
    if logs.shape == shape:
        return logs
    out = np.full(shape, -np.inf)
    out[tuple(slice(0, n) for n in logs.shape)] = logs
    return out


@njit(nogil=True, cache=True)
def _viterbi_units(
    counter, n_units, order, offsets, index, start, transitions, emissions, best, path
):
    """Run Viterbi's algorithm; a unit is a sequence."""
    width = start.shape[0]
    longest = offsets[order[0] + 1] - offsets[order[0]]
    came_from = np.empty((longest, width), np.uint16)
    score = np.empty(width)
    best_score = np.empty(width)
    best_state = np.empty(width, np.int64)
    unit = take_unit(counter)
    while unit < n_units:
        n = order[unit]
        begin = offsets[n]
        steps = offsets[n + 1] - begin
        for j in range(width):
            score[j] = start[j] + emissions[index[begin], j]
        for t in range(1, steps):
            for j in range(width):
                best_score[j] = score[0] + transitions[0, j]
                best_state[j] = 0
            for k in range(1, width):
                for j in range(width):
                    candidate = score[k] + transitions[k, j]
                    better = candidate > best_score[j]
                    best_score[j] = candidate if better else best_score[j]
                    best_state[j] = k if better else best_state[j]
            symbol = index[begin + t]
            for j in range(width):
                score[j] = best_score[j] + emissions[symbol, j]
                came_from[t, j] = best_state[j]
        state = np.argmax(score)
        best[n] = score[state]
        for t in range(steps - 1, -1, -1):
            path[begin + t] = state
            state = np.int64(came_from[t, state])
        unit = take_unit(counter)
