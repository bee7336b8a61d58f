"""Geweke's joint distribution test: two ways to draw states, parameters and data together.

One draws everything from the prior, independently.  The other alternates the sampler, which draws
the states given the data, with a draw of the data given the states.  If the sampler is right, both
have the same distribution; if any conditional is wrong, means drift apart.
"""

import copy
import pickle

import numpy as np

from sojourn.random_state import draw_dirichlet
from sojourn.sampling import ChainState, SymbolData
from sojourn.sampling.infinite import compact

LENGTHS = np.array([4, 3, 2])
OFFSETS = np.concatenate([[0], np.cumsum(LENGTHS)])


def choose(weights, rng):
    return int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum(), side="right"))


def draw_symbols(states, symbol_prior, rng):
    """Draw x given z, emission parameters integrated out; `symbol_prior` is (V, K) or (V,)."""
    n_states = states.max() + 1
    prior = symbol_prior if symbol_prior.ndim == 2 else np.tile(symbol_prior[:, None], n_states)
    rows = draw_dirichlet(prior.T, rng)
    values = np.array([choose(rows[k], rng) for k in states], np.int32)
    return SymbolData(values, OFFSETS, len(prior))


def finite_prior(sampler, rng):
    rows = draw_dirichlet(sampler.prior, rng)
    states = []
    for length in LENGTHS:
        before = 0
        for _ in range(length):
            states.append(choose(rows[before], rng))
            before = states[-1] + 1
    state = ChainState(np.array(states, np.int32), rows.shape[1])
    return state, draw_symbols(state.states, sampler.symbol_prior, rng)


def infinite_prior(sampler, rng):
    """Sticks are broken when a step falls beyond those there are; rows are urns."""
    alpha = rng.gamma(sampler.alpha_prior.shape, 1 / sampler.alpha_prior.rate)
    gamma = rng.gamma(sampler.gamma_prior.shape, 1 / sampler.gamma_prior.rate)
    shares, states = np.ones(1), []
    counts = np.zeros((OFFSETS[-1] + 1, OFFSETS[-1]))
    for length in LENGTHS:
        before = 0
        for _ in range(length):
            n = len(shares) - 1
            k = choose(alpha * shares + np.append(counts[before, :n], 0.0), rng)
            if k == n:
                piece = rng.beta(1, gamma)
                shares = np.append(shares[:-1], shares[-1] * np.array([piece, 1 - piece]))
            counts[before, k] += 1
            before = k + 1
            states.append(k)
    state = compact(ChainState(np.array(states, np.int32), len(shares) - 1, shares, alpha, gamma))
    return state, draw_symbols(state.states, sampler.symbol_prior, rng)


def functions(state, data):
    """Numbers that a wrong conditional would move."""
    z, x = state.states, data.values
    inside = ~data.first[1:]
    stays = ((z[1:] == z[:-1]) & inside).sum()
    agree = (z[:, None] == z) & (x[:, None] == x)
    found = [stays, stays**2, agree.sum(), ((x[1:] == x[:-1]) & inside).sum()]
    if state.shares is None:
        found += [(z == 0).sum(), (z[data.first] == 0).sum(), ((z == 0) & (x == 0)).sum()]
    else:
        a, g = state.alpha, state.gamma
        found += [state.n_states, state.n_states**2, a, np.log(a), g, np.log(g), a * g]
        found += [state.shares[-1], (state.shares**2).sum(), len(np.unique(z[data.first]))]
    return np.array(found, dtype=float)


_drawn = {}  # what was drawn from the prior, and where its random numbers ended


def draw_independently(sampler, prior, n_draws, seed):
    """Draw from the prior, once for all samplers that share it; also return the generator."""
    key = (prior, n_draws, seed, pickle.dumps(vars(sampler)))
    if key not in _drawn:
        rng = np.random.default_rng(seed)
        drawn = np.array([functions(*prior(sampler, rng)) for _ in range(n_draws)])
        _drawn[key] = drawn, rng
    drawn, rng = _drawn[key]
    return drawn, copy.deepcopy(rng)


def z_scores(sampler, prior, n_draws, n_sweeps, seed):
    """Differences of the means of the two simulations, in standard errors."""
    independent, rng = draw_independently(sampler, prior, n_draws, seed)
    state, data = prior(sampler, rng)
    successive = []
    for _ in range(n_sweeps):
        state = sampler.sweep(state, data, rng)
        data = draw_symbols(state.states, sampler.symbol_prior, rng)
        successive.append(functions(state, data))
    blocks = np.array(successive).reshape(50, -1, independent.shape[1]).mean(axis=1)
    variance = independent.var(axis=0) / n_draws + blocks.var(axis=0, ddof=1) / len(blocks)
    return (independent.mean(axis=0) - blocks.mean(axis=0)) / np.sqrt(variance)
