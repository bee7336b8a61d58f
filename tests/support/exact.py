"""The exact posterior of tiny data: every assignment of states, weighed by its definition."""

from functools import lru_cache
from itertools import product

import numpy as np
from scipy.special import gammaln


def log_polya(prior, counts):
    """log probability of an ordered sequence of draws with the row integrated out."""
    return (
        gammaln(prior.sum())
        - gammaln(prior.sum() + counts.sum())
        + (gammaln(prior + counts) - gammaln(prior)).sum()
    )


def count(path, lengths, symbols, n_states, n_symbols):
    transitions = np.zeros((n_states + 1, n_states))
    emissions = np.zeros((n_states, n_symbols))
    at = 0
    for length in lengths:
        before = 0
        for t in range(at, at + length):
            transitions[before, path[t]] += 1
            emissions[path[t], symbols[t]] += 1
            before = path[t] + 1
        at += length
    return transitions, emissions


def finite_posterior(symbols, lengths, prior, symbol_prior):
    """Every path and its posterior probability; priors are (K + 1, K) and (K, V)."""
    n_states, n_symbols = symbol_prior.shape
    paths = np.array(list(product(range(n_states), repeat=len(symbols))))
    logs = np.empty(len(paths))
    for i, path in enumerate(paths):
        transitions, emissions = count(path, lengths, symbols, n_states, n_symbols)
        logs[i] = sum(map(log_polya, prior, transitions))
        logs[i] += sum(map(log_polya, symbol_prior, emissions))
    weights = np.exp(logs - logs.max())
    return paths, weights / weights.sum()


def pair_marginals(paths, weights, lengths, n_states):
    """p(z_{t−1}=k, z_t=l | x) of every pair of neighbours, shape (pairs, K, K)."""
    firsts = set(np.concatenate([[0], np.cumsum(lengths)[:-1]]).tolist())
    pairs = []
    for t in range(1, paths.shape[1]):
        if t not in firsts:
            table = np.zeros((n_states, n_states))
            np.add.at(table, (paths[:, t - 1], paths[:, t]), weights)
            pairs.append(table)
    return np.array(pairs)


def partitions(n):
    """Every way to give n steps to unnamed states, numbered in order of appearance."""

    def grow(prefix):
        if len(prefix) == n:
            yield prefix
            return
        for k in range(max(prefix, default=-1) + 2):
            yield from grow([*prefix, k])

    return np.array(list(grow([])))


@lru_cache
def stirling(n, m):
    """Unsigned Stirling number of the first kind."""
    if n == m:
        return 1
    if m == 0 or m > n:
        return 0
    return stirling(n - 1, m - 1) + (n - 1) * stirling(n - 1, m)


def infinite_posterior(symbols, lengths, alpha, gamma, symbol_prior):
    """Every partition and its posterior probability under the HDP-HMM with given α and γ."""
    paths, joint = infinite_joint(symbols, lengths, alpha, gamma, symbol_prior)
    return paths, joint / joint.sum()


def infinite_joint(symbols, lengths, alpha, gamma, symbol_prior):
    """Every partition, and its probability together with the data.

    π is integrated out by the sum over the tables m of the Chinese restaurant franchise:
    p(z, m) = ∏_j Γ(α)/Γ(α + n_j) ∏_jk S(n_jk, m_jk) α^{m_jk}
              · γ^K Γ(γ)/Γ(γ + m) ∏_k Γ(m_k).
    """
    all_partitions = partitions(len(symbols))
    weights = np.empty(len(all_partitions))
    for i, path in enumerate(all_partitions):
        k = path.max() + 1
        transitions, emissions = count(path, lengths, symbols, k, len(symbol_prior))
        log_base = sum(log_polya(symbol_prior, row) for row in emissions)
        log_base += (gammaln(alpha) - gammaln(alpha + transitions.sum(axis=1))).sum()
        log_base += k * np.log(gamma)
        # The distribution of the tables of each state, as a polynomial in their number.
        columns = []
        for column in transitions.T.astype(int):
            polynomial = np.ones(1)
            for n in column:
                cell = np.array([stirling(n, m) * alpha**m for m in range(n + 1)], float)
                polynomial = np.convolve(polynomial, cell)
            m = np.arange(len(polynomial))
            polynomial[1:] *= np.exp(gammaln(m[1:]))
            columns.append(polynomial)
        total = np.ones(1)
        for column in columns:
            total = np.convolve(total, column)
        m = np.arange(len(total))
        weights[i] = np.exp(log_base) * (total * np.exp(gammaln(gamma) - gammaln(gamma + m))).sum()
    return all_partitions, weights
