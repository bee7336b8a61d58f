"""Best paths, Viterbi's algorithm, one sequence at a time in numba.

Forwards only the score of the best path to every state is computed, two instructions for every
vector of transitions; which state it came from is found backwards, along the best path alone.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from sojourn.kernels.cpu import durations
from sojourn.kernels.cpu.inner import inner, outer
from sojourn.kernels.cpu.lane_math import largest
from sojourn.kernels.cpu.lanes import LANES, add, load, splat, store
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.kernels.ragged import longest_first
from sojourn.kernels.threads import Background, run_units, take_unit

_CHUNK_ELEMENTS = 2**22  # scores that a thread keeps
_LOGARITHMS = 2**15  # that are computed at a time, and make another thread worthwhile


def viterbi(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> tuple[Floats, Integers]:
    """Find the best path of every sequence, in float64; ties go to the lower state."""
    if potentials.durations is not None:
        return durations.viterbi(potentials, index, offsets, n_threads=n_threads)
    return best_paths(potentials, index, offsets, n_threads=n_threads)


def best_paths(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    n_threads: int = 1,
    chunk_elements: int = _CHUNK_ELEMENTS,
) -> tuple[Floats, Integers]:
    """Find them in chunks of a size that can be chosen, which changes no bit.

    Memory per thread: eight bytes per state and step of the longest sequence, or of a chunk of
    `chunk_elements` scores.  Of longer ones it keeps the scores at the beginnings of chunks, and
    computes a chunk again on the way back.
    """
    best, path = np.empty(len(offsets) - 1), np.empty(len(index), dtype=np.int32)
    _run(potentials, index, offsets, n_threads, chunk_elements, best, path, np.empty((0, 0)))
    return best, path


def last_scores(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> Floats:
    """Return the score of the best path to each state of the last step of sequences, (N, K)."""
    n_states = len(potentials.start)
    scores = np.empty((len(offsets) - 1, _width(n_states)))
    best, path = np.empty(len(scores)), np.empty(0, dtype=np.int32)
    _run(potentials, index, offsets, n_threads, _CHUNK_ELEMENTS, best, path, scores)
    return scores[:, :n_states]


def _run(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    n_threads: int,
    chunk_elements: int,
    best: Floats,
    path: Integers,
    lasts: Floats,
) -> None:
    n_states = len(potentials.start)
    width = _width(n_states)
    with np.errstate(divide="ignore"):
        start, transitions = (np.log(np.asarray(part, np.float64)) for part in potentials[:2])
    transitions = _padded(transitions, width, width)
    run_units(
        _viterbi_units,
        len(best),
        n_threads,
        longest_first(offsets),
        np.asarray(offsets, dtype=np.int64),
        np.asarray(index, dtype=np.int32),
        n_states,
        _padded(start, width),
        transitions.ravel(),
        transitions.T.ravel(),
        _log_rows(potentials, width, n_threads).ravel(),
        max(2, chunk_elements // width),
        best,
        path,
        lasts.ravel(),
    )


def _width(n_states: int) -> int:
    """Round up to whole vectors."""
    return -(-n_states // LANES) * LANES


def _log_rows(potentials: Potentials, width: int, n_threads: int) -> Floats:
    """Return logarithms of the emission table, padded: some rows at a time, while they are near."""
    table, log_scale, n_states = potentials.emissions, potentials.log_scale, len(potentials.start)
    n_rows, size = len(table), max(1, _LOGARITHMS // n_states)
    out = np.empty((n_rows, width))

    def fill(part: int) -> None:
        end = n_rows * (part + 1) // n_parts
        for begin in range(n_rows * part // n_parts, end, size):
            rows = slice(begin, min(begin + size, end))
            with np.errstate(divide="ignore"):  # of this thread
                logs = np.log(np.asarray(table[rows, :n_states], dtype=np.float64))
            if log_scale is not None:
                logs += np.asarray(log_scale[rows], dtype=np.float64)[:, None]
            out[rows, :n_states] = logs
            out[rows, n_states:] = -np.inf

    n_parts = max(1, min(n_threads, n_rows * n_states // _LOGARITHMS))
    others = [Background(partial(fill, part)) for part in range(1, n_parts)]
    fill(0)
    for other in others:
        other.result()
    return out


def _padded(logs: Floats, *shape: int) -> Floats:
    """Return logarithms with those of zero beyond them."""
    if logs.shape == shape:
        return np.ascontiguousarray(logs)
    out = np.full(shape, -np.inf)
    out[tuple(slice(0, n) for n in logs.shape)] = logs
    return out


@outer
def _viterbi_units(
    counter, n_units, order, offsets, index, n_states, start, transitions, transposed, emissions,
    chunk, best, path, lasts,
):  # fmt: skip
    """Run Viterbi's algorithm; a unit is a sequence.

    Without room for paths, the scores of last steps are written instead.
    """
    width = start.shape[0]
    longest = offsets[order[0] + 1] - offsets[order[0]]
    chunk = min(chunk, longest)
    scores = np.empty(chunk * width)
    edges = np.empty(-(-longest // chunk) * width)  # the first scores of every chunk
    found = np.empty(LANES)
    unit = take_unit(counter)
    while unit < n_units:
        n = order[unit]
        begin = offsets[n]
        steps = offsets[n + 1] - begin
        n_chunks = -(-steps // chunk)
        for c in range(n_chunks):
            if c == 0:
                for j in range(width):
                    scores[j] = start[j] + emissions[index[begin] * width + j]
            else:
                row = index[begin + c * chunk]
                _advance(scores, chunk - 1, 0, transitions, emissions, row, n_states, width)
            for j in range(width):
                edges[c * width + j] = scores[j]
            _fill(
                scores, transitions, emissions, index, begin + c * chunk,
                min(chunk, steps - c * chunk), n_states, width,
            )  # fmt: skip
        at = (steps - 1) % chunk
        state = 0
        for j in range(1, n_states):
            if scores[at * width + j] > scores[at * width + state]:
                state = j
        best[n] = scores[at * width + state]
        if path.shape[0] == 0:
            for j in range(width):
                lasts[n * width + j] = scores[at * width + j]
        for c in range(n_chunks - 1 if path.shape[0] > 0 else -1, -1, -1):
            if c < n_chunks - 1:
                for j in range(width):
                    scores[j] = edges[c * width + j]
                _fill(
                    scores, transitions, emissions, index, begin + c * chunk, chunk, n_states, width
                )
                at = chunk - 1
                state = _came_from(scores, at, transposed, state, found, width)
            path[begin + c * chunk + at] = state
            for t in range(at - 1, -1, -1):
                state = _came_from(scores, t, transposed, state, found, width)
                path[begin + c * chunk + t] = state
        unit = take_unit(counter)


@inner
def _fill(scores, transitions, emissions, index, begin, n_steps, n_states, width):
    """Compute the scores of the steps of a chunk after its first."""
    for t in range(1, n_steps):
        _advance(scores, t - 1, t, transitions, emissions, index[begin + t], n_states, width)


@inner
def _advance(scores, before, at, transitions, emissions, row, n_states, width):
    """Compute the scores of a step from those of the step before."""
    before *= width
    for j in range(0, width, LANES):
        # Two maxima, as each waits for the one before.
        even = add(splat(scores, before), load(transitions, j))
        odd = add(splat(scores, before + 1), load(transitions, width + j))
        for k in range(2, n_states, 2):
            own = k * width + j
            even = largest(add(splat(scores, before + k), load(transitions, own)), even)
            own += width
            odd = largest(add(splat(scores, before + k + 1), load(transitions, own)), odd)
        own = load(emissions, row * width + j)
        store(scores, at * width + j, add(largest(odd, even), own))


@inner
def _came_from(scores, at, transposed, state, found, width):
    """Return from which state the best path comes to a state; the lowest of several."""
    at, own = at * width, state * width
    top = add(load(scores, at), load(transposed, own))
    for k in range(LANES, width, LANES):
        top = largest(add(load(scores, at + k), load(transposed, own + k)), top)
    store(found, 0, top)
    most = found[0]
    for i in range(1, LANES):
        most = max(most, found[i])
    k = 0
    while scores[at + k] + transposed[own + k] < most:
        k += 1
    return k
