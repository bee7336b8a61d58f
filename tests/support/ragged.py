"""Ragged symbols, and statistics to begin with, for comparisons with hmmlearn."""

import numpy as np

import sojourn as sj

A, B = 0.3, 0.7  # concentrations of transitions and emissions


def ragged_symbols(seed, n_sequences=30, n_symbols=6):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 15, n_sequences)
    return rng.integers(n_symbols, size=lengths.sum()), lengths


def first_statistics(seed, n_states, n_symbols=6):
    rng = np.random.default_rng(seed)
    shapes = (n_states,), (n_states, n_states), (n_states, n_symbols)
    return sj.Statistics(*(rng.exponential(10.0, shape) for shape in shapes))


def normalize(array):
    return array / array.sum(axis=-1, keepdims=True)
