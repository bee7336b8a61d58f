"""The forward recursion by itself: filtering, smoothing with a lag, paths by their rank.

Everything is computed in float64, one sequence at a time, and needs O(K²) a step.  `weights` are
rows of emission potentials, each up to a factor whose logarithm is in `log_scale` (empty for one).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.kernels.threads import run_units, take_unit

Prepared = tuple[Floats, Floats, Floats, Floats]


def prepared(potentials: Potentials) -> Prepared:
    """Return start, transitions, table and log scale as the compiled functions take them.

    Of states that last it takes the copies: see `kernels.durations.expanded`.
    """
    if potentials.durations is not None:
        raise NotImplementedError("write states that last as their copies")
    n_states = len(potentials.start)
    scale = potentials.log_scale
    return (
        np.ascontiguousarray(potentials.start, np.float64),
        np.ascontiguousarray(potentials.transitions, np.float64),
        np.ascontiguousarray(potentials.emissions[:, :n_states], np.float64),
        np.zeros(0) if scale is None else np.asarray(scale, np.float64),
    )


def filter_steps(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    first: Floats | None = None,
    lag: int = 0,
    n_threads: int = 1,
) -> tuple[Floats, Floats, Floats]:
    """Compute p(z_t | x_1..x_{t+lag}) of every step, by the forward recursion.

    Parameters
    ----------
    potentials, index, offsets
        As for `Kernel.forward_backward`; the rows of transitions sum to one.
    first : (N, K) array, optional
        p(z_1 | what came before) of each sequence; by default the start distribution.
    lag : int
        Number of later steps that are known too; less at the end of a sequence.
    n_threads : int

    Returns
    -------
    probabilities : (T, K) array
        ``p(z_t | x_1, ..., x_{t+lag})``.
    log_densities : (T,) array
        ``log p(x_t | x_1, ..., x_{t−1})``; −inf where no state is possible.
    last : (N, K) array
        ``p(z_T | x_1, ..., x_T)`` of the last step of each sequence.
    """
    start, transitions, table, log_scale = prepared(potentials)
    n_sequences = len(offsets) - 1
    if first is None:
        first = np.broadcast_to(start, (n_sequences, len(start)))
    out = np.empty((len(index), len(start)))
    log_densities = np.empty(len(index))
    last = np.empty((n_sequences, len(start)))
    run_units(
        _filter_units,
        n_sequences,
        n_threads,
        np.asarray(offsets, np.int64),
        np.asarray(index, np.int32),
        np.ascontiguousarray(first, np.float64),
        transitions,
        table,
        log_scale,
        lag,
        out,
        log_densities,
        last,
    )
    return out, log_densities, last


@njit(nogil=True, cache=True)
def _filter_units(
    counter, n_units, offsets, index, first, transitions, table, log_scale, lag, out, logs, last
):
    """Filter sequences; a unit is a sequence."""
    unit = take_unit(counter)
    while unit < n_units:
        begin, end = offsets[unit], offsets[unit + 1]
        predicted = first[unit].copy()
        for t in range(begin, end):
            logs[t] = filter_step(predicted, transitions, table[index[t]], out[t])
            if log_scale.shape[0]:
                logs[t] += log_scale[index[t]]
        last[unit] = out[end - 1]
        if lag > 0:
            _smooth_with_lag(out[begin:end], index[begin:end], transitions, table, lag)
        unit = take_unit(counter)


@njit(nogil=True, cache=True)
def filter_step(predicted, transitions, weights, filtered):
    """Take one step: p(z_t | x_<t) and the weights of x_t give p(z_t | x_≤t) and p(z_{t+1} | x_≤t).

    `predicted` is overwritten by that of the next step.  Returns log Σ_k predicted_k weights_k,
    −inf where no state is possible; then the step is taken as if x_t were missing.
    """
    n_states = predicted.shape[0]
    total = 0.0
    for k in range(n_states):
        filtered[k] = predicted[k] * weights[k]
        total += filtered[k]
    log_total = -np.inf
    if total > 0.0:
        log_total = np.log(total)
        for k in range(n_states):
            filtered[k] /= total
    else:
        filtered[:] = predicted
    for j in range(n_states):
        predicted[j] = 0.0
    for k in range(n_states):
        mass = filtered[k]
        for j in range(n_states):
            predicted[j] += mass * transitions[k, j]
    return log_total


@njit(nogil=True, cache=True)
def _smooth_with_lag(filtered, index, transitions, table, lag):
    """Turn p(z_t | x_≤t) into p(z_t | x_≤t+lag), in place; earlier steps are not needed later."""
    n_steps, n_states = filtered.shape
    ahead = np.empty(n_states)
    back = np.empty(n_states)
    for t in range(n_steps):
        back[:] = 1.0
        for s in range(min(t + lag, n_steps - 1), t, -1):
            largest = 0.0
            for k in range(n_states):
                ahead[k] = back[k] * table[index[s], k]
            for k in range(n_states):
                total = 0.0
                for j in range(n_states):
                    total += transitions[k, j] * ahead[j]
                back[k] = total
                largest = max(largest, total)
            if largest > 0.0:
                for k in range(n_states):
                    back[k] /= largest
        total = 0.0
        for k in range(n_states):
            back[k] *= filtered[t, k]
            total += back[k]
        if total > 0.0:
            for k in range(n_states):
                filtered[t, k] = back[k] / total


@njit(nogil=True, cache=True)
def update_streams(predicted, fresh, start, transitions, weights, log_scale, filtered, surprise):
    """Take one step in every stream; a fresh stream begins with the start distribution."""
    for n in range(predicted.shape[0]):
        if fresh[n]:
            predicted[n] = start
            fresh[n] = False
        surprise[n] = -filter_step(predicted[n], transitions, weights[n], filtered[n])
        surprise[n] -= log_scale[n]


@njit(nogil=True, cache=True)
def student_row(x, location, weights, spans, factors, powers, constants, out):
    """Compute one row of `densities.student_rows`, scaled so that the largest entry is one.

    Returns the logarithm of the factor taken out; NaN if x is not finite, and nothing is computed.
    """
    n_states = out.shape[1]
    for d in range(x.shape[0]):
        if not np.isfinite(x[d]):
            return np.nan
    top = -np.inf
    for k in range(n_states):
        total, square = 0.0, 0.0
        for e in range(spans.shape[0]):
            value = weights[0, e, k]
            for i in range(spans[e, 0], spans[e, 1]):
                value += (x[i - 1] - location[i - 1]) * weights[i, e, k]
            square += value * value
            if spans[e, 2]:
                total += np.log1p(factors[k] * square)
                square = 0.0
        out[0, k] = constants[k] - powers[k] * total
        top = max(top, out[0, k])
    for k in range(n_states):
        out[0, k] = np.exp(out[0, k] - top)
    return top


# ---- the k best paths ---------------------------------------------------------------------------


def best_paths(
    potentials: Potentials, index: Integers, offsets: Integers, k: int, *, n_threads: int = 1
) -> tuple[Floats, Integers]:
    """Find the k best paths of every sequence, the best first.

    Returns
    -------
    scores : (N, k) array
        Log of the product of potentials along the path; −inf where there are fewer paths.
    paths : (k, T) int32 array
        The states, flat; −1 where there are fewer paths.

    Notes
    -----
    Memory per thread: six bytes per state, rank and step of the longest sequence.
    """
    start, transitions, table, log_scale = prepared(potentials)
    with np.errstate(divide="ignore"):
        start, transitions, table = np.log(start), np.log(transitions), np.log(table)
    if len(log_scale):
        table += log_scale[:, None]
    scores = np.empty((len(offsets) - 1, k))
    paths = np.empty((k, len(index)), np.int32)
    run_units(
        _best_units,
        len(scores),
        n_threads,
        np.asarray(offsets, np.int64),
        np.asarray(index, np.int32),
        start,
        transitions,
        table,
        scores,
        paths,
    )
    return scores, paths


@njit(nogil=True, cache=True)
def _best_units(counter, n_units, offsets, index, start, transitions, table, scores, paths):
    """Viterbi's algorithm with k candidates per state; a unit is a sequence."""
    n_states, n_best = start.shape[0], scores.shape[1]
    unit = take_unit(counter)
    while unit < n_units:
        begin, end = offsets[unit], offsets[unit + 1]
        came_from = np.empty((end - begin, n_states, n_best), np.int32)
        rank_of = np.empty((end - begin, n_states, n_best), np.int16)
        score = np.full((n_states, n_best), -np.inf)
        for j in range(n_states):
            score[j, 0] = start[j] + table[index[begin], j]
        for t in range(1, end - begin):
            score = _advance(score, transitions, table[index[begin + t]], came_from[t], rank_of[t])
        taken = np.zeros(n_states, np.int64)
        for r in range(n_best):
            state = -1
            for j in range(n_states):
                own = score[j, taken[j]] if taken[j] < n_best else -np.inf
                if own > (-np.inf if state < 0 else score[state, taken[state]]):
                    state = j
            if state < 0:
                scores[unit, r] = -np.inf
                paths[r, begin:end] = -1
                continue
            rank = taken[state]
            scores[unit, r] = score[state, rank]
            taken[state] += 1
            for t in range(end - begin - 1, -1, -1):
                paths[r, begin + t] = state
                if t > 0:
                    before = came_from[t, state, rank]
                    rank = rank_of[t, state, rank]
                    state = before
        unit = take_unit(counter)


@njit(nogil=True, cache=True)
def _advance(score, transitions, weights, came_from, rank_of):
    """Find the best k candidates of every state by merging those of the states before."""
    n_states, n_best = score.shape
    out = np.full((n_states, n_best), -np.inf)
    taken = np.zeros(n_states, np.int64)
    for j in range(n_states):
        taken[:] = 0
        for r in range(n_best):
            best, value = -1, -np.inf
            for k in range(n_states):
                if taken[k] < n_best:
                    candidate = score[k, taken[k]] + transitions[k, j]
                    if candidate > value:
                        best, value = k, candidate
            if best < 0:
                came_from[j, r], rank_of[j, r] = 0, 0
                continue
            out[j, r] = value + weights[j]
            came_from[j, r], rank_of[j, r] = best, taken[best]
            taken[best] += 1
    return out


# ---- probabilities along a path -----------------------------------------------------------------


def path_probabilities(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    path: Integers,
    *,
    n_threads: int = 1,
) -> tuple[Floats, Floats]:
    """Compute how probable each step of a path is, by itself and given the step before.

    Returns
    -------
    marginals : (T,) array
        ``p(z_t = path_t | x)``.
    conditionals : (T,) array
        ``p(z_t = path_t | z_{t−1} = path_{t−1}, x)``; the marginal at the first step.
    """
    start, transitions, table, _ = prepared(potentials)
    marginals, conditionals = np.empty((2, len(index)))
    run_units(
        _path_units,
        len(offsets) - 1,
        n_threads,
        np.asarray(offsets, np.int64),
        np.asarray(index, np.int32),
        start,
        transitions,
        table,
        np.asarray(path, np.int32),
        marginals,
        conditionals,
    )
    return marginals, conditionals


@njit(nogil=True, cache=True)
def _path_units(
    counter, n_units, offsets, index, start, transitions, table, path, marginals, conditionals
):
    """Backward messages, then forward along the path; a unit is a sequence."""
    n_states = start.shape[0]
    unit = take_unit(counter)
    while unit < n_units:
        begin, end = offsets[unit], offsets[unit + 1]
        n_steps = end - begin
        # ahead[t, k] = φ_k(x_t) β_t(k), up to a factor for each step.
        ahead = np.empty((n_steps, n_states))
        ahead[n_steps - 1] = table[index[end - 1]]
        for t in range(n_steps - 2, -1, -1):
            largest = 0.0
            for k in range(n_states):
                total = 0.0
                for j in range(n_states):
                    total += transitions[k, j] * ahead[t + 1, j]
                ahead[t, k] = total * table[index[begin + t], k]
                largest = max(largest, ahead[t, k])
            if largest > 0.0:
                for k in range(n_states):
                    ahead[t, k] /= largest
        predicted = start.copy()
        filtered = np.empty(n_states)
        for t in range(n_steps):
            state = path[begin + t]
            total = 0.0
            for k in range(n_states):
                total += predicted[k] * ahead[t, k]
            marginals[begin + t] = predicted[state] * ahead[t, state] / total
            if t == 0:
                conditionals[begin] = marginals[begin]
            else:
                before = path[begin + t - 1]
                total = 0.0
                for k in range(n_states):
                    total += transitions[before, k] * ahead[t, k]
                conditionals[begin + t] = transitions[before, state] * ahead[t, state] / total
            filter_step(predicted, transitions, table[index[begin + t]], filtered)
        unit = take_unit(counter)
