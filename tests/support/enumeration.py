"""Every path of a small HMM, one after another: the definition, with nothing clever in it."""

from itertools import product

import numpy as np


def enumerate_paths(start, transitions, rows):
    """Yield every path and the product of its potentials; `rows` is (T, K)."""
    n_steps, n_states = rows.shape
    for path in product(range(n_states), repeat=n_steps):
        weight = start[path[0]] * rows[0, path[0]]
        for t in range(1, n_steps):
            weight *= transitions[path[t - 1], path[t]] * rows[t, path[t]]
        yield path, weight


def smooth(start, transitions, rows):
    """Sum over all paths: log Z, state marginals, pair marginals of each step, best path."""
    n_steps, n_states = rows.shape
    total, best = 0.0, (-1.0, None)
    marginals = np.zeros((n_steps, n_states))
    pairs = np.zeros((n_steps - 1, n_states, n_states))
    for path, weight in enumerate_paths(start, transitions, rows):
        total += weight
        best = max(best, (weight, path), key=lambda item: item[0])
        for t, k in enumerate(path):
            marginals[t, k] += weight
        for t in range(n_steps - 1):
            pairs[t, path[t], path[t + 1]] += weight
    return np.log(total), marginals / total, pairs / total, best[1], np.log(best[0])
