"""Inner loops of the samplers, in numba: one state, or one path, at a time.

Row 0 of counts and priors is the start; row k + 1 is state k.  Random numbers come from a NumPy
generator that is handed in, so that a seed gives the same draws on any machine and thread.
"""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def collapsed_sweep(
    rng,
    values,
    first,
    states,
    counts,
    row_totals,
    symbol_counts,
    state_totals,
    prior,
    prior_totals,
    symbol_prior,
    symbol_prior_totals,
    weights,
    codes,
    masks,
):
    """Draw every state of a finite model given all the others, parameters integrated out.

    For step t between p and n, with the counts of all other steps, the weight of state k is

        (a_pk + C_pk) (a_kn + C_kn + [p = k = n]) / (A_k + C_k· + [p = k])
            (λ_kx + t_kx) / (Λ_k + t_k·)

    `counts`, `row_totals`, `symbol_counts`, `state_totals` and `states` change in place.
    `first` marks the first step of each sequence; `weights` is room for K numbers.  The weights of
    step t are multiplied by row ``codes[t]`` of `masks`, where there are codes.
    """
    n_states = counts.shape[1]
    n_steps = values.shape[0]
    for t in range(n_steps):
        x = values[t]
        old = states[t]
        before = 0 if first[t] else states[t - 1] + 1
        has_next = t + 1 < n_steps and not first[t + 1]
        after = states[t + 1] if has_next else 0
        counts[before, old] -= 1.0
        row_totals[before] -= 1.0
        symbol_counts[x, old] -= 1.0
        state_totals[old] -= 1.0
        if has_next:
            counts[old + 1, after] -= 1.0
            row_totals[old + 1] -= 1.0
        total = 0.0
        for k in range(n_states):
            weight = prior[before, k] + counts[before, k]
            weight *= symbol_prior[x, k] + symbol_counts[x, k]
            weight /= symbol_prior_totals[k] + state_totals[k]
            if has_next:
                came = 1.0 if before == k + 1 else 0.0
                both = came if after == k else 0.0
                weight *= prior[k + 1, after] + counts[k + 1, after] + both
                weight /= prior_totals[k + 1] + row_totals[k + 1] + came
            if codes.shape[0] > 0:
                weight *= masks[codes[t], k]
            total += weight
            weights[k] = total
        u = rng.random() * total
        new = 0
        while new < n_states - 1 and weights[new] <= u:
            new += 1
        states[t] = new
        counts[before, new] += 1.0
        row_totals[before] += 1.0
        symbol_counts[x, new] += 1.0
        state_totals[new] += 1.0
        if has_next:
            counts[new + 1, after] += 1.0
            row_totals[new + 1] += 1.0


@njit(cache=True, nogil=True)
def direct_assignment_sweep(
    rng,
    begin,
    values,
    first,
    states,
    counts,
    row_totals,
    symbol_counts,
    state_totals,
    shares,
    alpha,
    gamma,
    symbol_prior,
    symbol_prior_total,
    weights,
):
    """Draw the states of an HDP-HMM from step `begin` on, given π, α and γ.

    The weights are those of `collapsed_sweep` with a = απ.  A new state has the weight
    α π_rest · π_n · λ_x / Λ, and takes a Beta(1, γ) share of π_rest.  A state that nothing is left
    of gives its share back.

    Arrays have room for more states than there are; `shares` is π_k, zero for a free place, with
    π_rest last.  Returns the step at which a new state found no place, or the number of steps.
    """
    room = counts.shape[1]
    n_steps = values.shape[0]
    for t in range(begin, n_steps):
        x = values[t]
        old = states[t]
        before = 0 if first[t] else states[t - 1] + 1
        has_next = t + 1 < n_steps and not first[t + 1]
        after = states[t + 1] if has_next else 0
        free = -1
        for k in range(room):
            if shares[k] == 0.0:
                free = k
                break
        if free < 0:
            return t
        counts[before, old] -= 1.0
        row_totals[before] -= 1.0
        symbol_counts[x, old] -= 1.0
        state_totals[old] -= 1.0
        if has_next:
            counts[old + 1, after] -= 1.0
            row_totals[old + 1] -= 1.0
        if state_totals[old] == 0.0:
            shares[room] += shares[old]
            shares[old] = 0.0
        total = 0.0
        for k in range(room):
            if shares[k] > 0.0:
                weight = alpha * shares[k] + counts[before, k]
                weight *= symbol_prior[x] + symbol_counts[x, k]
                weight /= symbol_prior_total + state_totals[k]
                if has_next:
                    came = 1.0 if before == k + 1 else 0.0
                    both = came if after == k else 0.0
                    weight *= alpha * shares[after] + counts[k + 1, after] + both
                    weight /= alpha + row_totals[k + 1] + came
                total += weight
            weights[k] = total
        fresh = alpha * shares[room] * symbol_prior[x] / symbol_prior_total
        if has_next:
            fresh *= shares[after]
        u = rng.random() * (total + fresh)
        if u < total:
            new = 0
            while weights[new] <= u:
                new += 1
        else:
            new = free
            # Beta(1, γ) by inversion.
            share = 1.0 - (1.0 - rng.random()) ** (1.0 / gamma)
            share = min(max(share, 1e-12), 1.0 - 1e-12)
            shares[new] = share * shares[room]
            shares[room] *= 1.0 - share
        states[t] = new
        counts[before, new] += 1.0
        row_totals[before] += 1.0
        symbol_counts[x, new] += 1.0
        state_totals[new] += 1.0
        if has_next:
            counts[new + 1, after] += 1.0
            row_totals[new + 1] += 1.0
    return n_steps


@njit(cache=True, nogil=True)
def sample_paths(
    rng, values, offsets, transitions, emissions, slices, states, forward, codes, masks
):
    """Draw the path of every sequence: filter forward, sample backward.

    Parameters
    ----------
    transitions : (K + 1, K) array
        Probabilities, the start first.
    emissions : (V, K) array
        Probability of each symbol in each state.
    slices : (T,) array
        Empty, or u: then a transition counts as one where its probability is above u, and as
        nothing otherwise.
    states : (T,) array
        Filled with the path.
    forward : (longest sequence, K) array
        Room.
    codes, masks : (T,) and (M, K) arrays
        Empty, or what emissions are multiplied by: a row of the masks for every step.

    Returns
    -------
    int
        The first sequence that has no possible path, −1 if there is none.
    """
    n_states = transitions.shape[1]
    sliced = slices.shape[0] > 0
    for n in range(offsets.shape[0] - 1):
        begin, length = offsets[n], offsets[n + 1] - offsets[n]
        for t in range(length):
            x = values[begin + t]
            total = 0.0
            for k in range(n_states):
                forward[t, k] = 0.0
            # The rows of transitions are read in their order; zeros are passed over.
            for before in range(1 if t == 0 else n_states):
                row = 0 if t == 0 else before + 1
                mass = 1.0 if t == 0 else forward[t - 1, before]
                if mass == 0.0:
                    continue
                for k in range(n_states):
                    if sliced:
                        if transitions[row, k] > slices[begin + t]:
                            forward[t, k] += mass
                    else:
                        forward[t, k] += mass * transitions[row, k]
            for k in range(n_states):
                forward[t, k] *= emissions[x, k]
                if codes.shape[0] > 0:
                    forward[t, k] *= masks[codes[begin + t], k]
                total += forward[t, k]
            if not total > 0.0:
                return n
            for k in range(n_states):
                forward[t, k] /= total
        after = -1
        for t in range(length - 1, -1, -1):
            total = 0.0
            for k in range(n_states):
                if after >= 0:
                    step = transitions[k + 1, after]
                    if sliced:
                        step = 1.0 if step > slices[begin + t + 1] else 0.0
                    forward[t, k] *= step
                total += forward[t, k]
            u = rng.random() * total
            chosen, running = -1, 0.0
            for k in range(n_states):
                if forward[t, k] > 0.0:
                    chosen = k
                    running += forward[t, k]
                    if running > u:
                        break
            states[begin + t] = chosen
            after = chosen
    return -1


@njit(cache=True, nogil=True)
def draw_tables(rng, counts, prior, tables):
    """Draw how many tables the customers of each cell sit at: Σ_{i<n} Bernoulli(a / (a + i))."""
    for j in range(counts.shape[0]):
        for k in range(counts.shape[1]):
            a = prior[k]
            n = int(counts[j, k])
            seated = 1 if n > 0 else 0  # the first customer always opens one
            for i in range(1, n):
                if rng.random() * (a + i) < a:
                    seated += 1
            tables[j, k] = seated


@njit(cache=True, nogil=True)
def draw_states(lengths, first, start, rows, u, states):
    """Draw the states of sequences, step by step, from uniform numbers in that order.

    `start` and `rows` are cumulative sums; the states of sequence n go to ``first[n]`` and on.  All
    sequences that are long enough draw step t, in their order, before any of them draws the next.
    """
    active = np.arange(lengths.shape[0])
    n_active, taken, last = active.shape[0], 0, start.shape[0] - 1
    t = 0
    while n_active > 0:
        n_left = 0
        for i in range(n_active):
            n = active[i]
            if lengths[n] <= t:
                continue
            active[n_left] = n
            n_left += 1
            at = first[n] + t
            sums = start if t == 0 else rows[states[at - 1]]
            low, high = 0, last  # rounding may leave the last sum below one
            while low < high:
                middle = (low + high) // 2
                if sums[middle] <= u[taken]:
                    low = middle + 1
                else:
                    high = middle
            states[at] = low
            taken += 1
        n_active = n_left
        t += 1
