"""Every conditional that the inner loops draw from, against ratios of the joint probability."""

import numpy as np
import pytest

from sojourn.kernels.cpu import sampling as kernel
from sojourn.sampling import ChainState, CollapsedGibbs, DirectAssignment, SymbolData
from sojourn.transitions import GammaDistribution

DATA = SymbolData(np.array([0, 1, 1, 2, 2, 0, 0, 1, 2, 2], np.int32), np.array([0, 5, 8, 9, 10]), 3)


class SpyNumber(float):
    """A uniform number that looks at what it is multiplied by, and chooses the first state."""

    def __new__(cls, note):
        number = super().__new__(cls, 0.0)
        number.note = note
        return number

    def __mul__(self, total):
        self.note(total)
        return 0.0


class Spy:
    """Stands in for a generator: records the weights and states at every draw."""

    def __init__(self, weights, states):
        self.weights, self.states, self.seen = weights, states, []

    def random(self):
        return SpyNumber(
            lambda total: self.seen.append((self.weights.copy(), self.states.copy(), total))
        )


def normalized(logs):
    weights = np.exp(np.array(logs) - np.max(logs))
    return weights / weights.sum()


@pytest.mark.parametrize("seed", range(20))
def test_finite_conditionals(seed):
    rng = np.random.default_rng(seed)
    k = 3
    sampler = CollapsedGibbs(rng.uniform(0.1, 1.5, (k + 1, k)), rng.uniform(0.1, 1.5, (3, k)))
    states = rng.integers(k, size=10, dtype=np.int32)
    counts = DATA.count(states, k)
    weights = np.empty(k)
    spy = Spy(weights, states)
    kernel.collapsed_sweep.py_func(
        spy,
        DATA.values,
        DATA.first,
        states,
        counts.transitions,
        counts.transitions.sum(axis=1),
        counts.symbols,
        counts.symbols.sum(axis=0),
        sampler.prior,
        sampler.prior.sum(axis=1),
        sampler.symbol_prior,
        sampler.symbol_prior.sum(axis=0),
        weights,
        DATA.codes,
        DATA.masks,
    )
    assert len(spy.seen) == 10
    for t, (cumulative, z, total) in enumerate(spy.seen):
        found = np.diff(cumulative, prepend=0.0) / total
        logs = []
        for other in range(k):
            z[t] = other
            logs.append(sampler.log_joint(ChainState(z, k), DATA))
        np.testing.assert_allclose(found, normalized(logs), rtol=1e-9)
    # What is left in the counts is the count of what is left in the states.
    np.testing.assert_array_equal(counts.transitions, DATA.count(states, k).transitions)
    np.testing.assert_array_equal(counts.symbols, DATA.count(states, k).symbols)


@pytest.mark.parametrize("seed", range(20))
def test_infinite_conditionals(seed):
    rng = np.random.default_rng(seed)
    k, room = 3, 6
    prior = rng.uniform(0.1, 1.5, 3)
    sampler = DirectAssignment(prior, GammaDistribution(1.0, 1.0), GammaDistribution(1.0, 1.0))
    alpha, gamma = rng.uniform(0.3, 3.0, 2)
    states = np.concatenate([np.arange(k), rng.integers(k, size=7)]).astype(np.int32)
    rng.shuffle(states)
    counts = DATA.count(states, room)
    shares = np.zeros(room + 1)
    shares[[0, 1, 2, room]] = rng.dirichlet(np.ones(4))
    weights = np.empty(room)
    spy = Spy(weights, states)
    shares_at = []
    spy_random = spy.random

    def random():
        shares_at.append(shares.copy())
        return spy_random()

    spy.random = random
    kernel.direct_assignment_sweep.py_func(
        spy,
        0,
        DATA.values,
        DATA.first,
        states,
        counts.transitions,
        counts.transitions.sum(axis=1),
        counts.symbols,
        counts.symbols.sum(axis=0),
        shares,
        alpha,
        gamma,
        prior,
        prior.sum(),
        weights,
    )
    assert len(spy.seen) == 10
    for t, (cumulative, z, total) in enumerate(spy.seen):
        now = shares_at[t]
        found = np.diff(np.append(cumulative, total), prepend=0.0) / total
        alive = np.flatnonzero(now[:-1])
        # A new state is one place with all of the rest.
        logs = []
        for other in [*alive, room]:
            z[t] = other
            padded = np.append(np.maximum(now, 1e-300), 0.0)
            state = ChainState(z, room + 1, padded, alpha, gamma)
            logs.append(sampler.log_joint(state, DATA))
        np.testing.assert_allclose(found[[*alive, room]], normalized(logs), rtol=1e-9)
    np.testing.assert_array_equal(counts.transitions, DATA.count(states, room).transitions)
    assert shares.sum() == pytest.approx(1.0)
