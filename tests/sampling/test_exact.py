"""Samplers against the exact posterior, which tiny data let us enumerate."""

import numpy as np
import pytest

import sojourn as sj
from sojourn.sampling import (
    Beam,
    BlockedGibbs,
    Chains,
    CollapsedGibbs,
    DirectAssignment,
    SymbolData,
    run_chains,
)
from sojourn.transitions import GammaDistribution
from tests.support.exact import (
    finite_posterior,
    infinite_joint,
    infinite_posterior,
    pair_marginals,
)

DATA = sj.Sequences.from_list([[0, 1, 1, 2], [2, 0, 0], [1, 2]])
LENGTHS = [4, 3, 2]
SYMBOLS = SymbolData.make(DATA, 3)


def finite_priors(k):
    rng = np.random.default_rng(k)
    return rng.uniform(0.2, 1.5, (k + 1, k)), rng.uniform(0.2, 1.5, (k, 3))


def monte_carlo_error(draws, probability):
    """Standard errors of frequencies, from the variance of batch means."""
    means = draws.reshape(50, -1, *draws.shape[1:]).mean(axis=1)
    return np.abs(draws.mean(axis=0) - probability), means.std(axis=0, ddof=1) / np.sqrt(50)


@pytest.mark.parametrize("sampler", [CollapsedGibbs, BlockedGibbs])
@pytest.mark.parametrize("k", [2, 3])
def test_finite_samplers_have_the_exact_pair_marginals(sampler, k):
    prior, symbol_prior = finite_priors(k)
    paths, weights = finite_posterior(DATA.values, LENGTHS, prior, symbol_prior)
    exact = pair_marginals(paths, weights, LENGTHS, k)
    chains = Chains(n_samples=10_000, burn_in=100)
    samples = run_chains(
        sampler(prior, np.ascontiguousarray(symbol_prior.T)), SYMBOLS, chains, n_states=k, seed=1
    )
    z = np.array([draw.states for draw in samples])
    ends = [t for t in range(1, 9) if t not in (4, 7)]
    pairs = (z[:, ends, None] == np.arange(k))[:, :, None, :]
    pairs = pairs & (z[:, [t - 1 for t in ends], None] == np.arange(k))[:, :, :, None]
    gap, error = monte_carlo_error(pairs.astype(float), exact)
    # Four and a half standard errors: one in 3,000 for the largest of 54, and the seed is fixed.
    assert (gap < 4.5 * error + 1e-3).all(), (gap / error).max()
    assert error.max() < 0.015


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [DirectAssignment, Beam])
def test_infinite_samplers_have_the_exact_probabilities_of_sharing_a_state(sampler):
    data = sj.Sequences.from_list([[0, 1, 1, 0], [1, 0, 0]])
    alpha, gamma, symbol_prior = 1.3, 0.8, np.array([0.4, 0.9])
    paths, weights = infinite_posterior(data.values, [4, 3], alpha, gamma, symbol_prior)
    together = paths[:, :, None] == paths[:, None, :]
    exact = np.tensordot(weights, together.astype(float), 1)
    n_states = np.bincount(paths.max(axis=1) + 1, weights, minlength=8)
    # Priors that are all but a point stand for a given α and γ.
    point = 1e7
    chains = Chains(n_samples=10_000, burn_in=100)
    samples = run_chains(
        sampler(
            symbol_prior,
            GammaDistribution(point, point / alpha),
            GammaDistribution(point, point / gamma),
        ),
        SymbolData.make(data, 2),
        chains,
        n_states=3,
        seed=2,
    )
    z = np.array([draw.states for draw in samples])
    gap, error = monte_carlo_error((z[:, :, None] == z[:, None, :]).astype(float), exact)
    off = ~np.eye(7, dtype=bool)
    assert (gap < 4.5 * error + 1e-3)[off].all(), (gap[off] / error[off]).max()
    used = np.array([draw.n_states for draw in samples])
    gap, error = monte_carlo_error((used[:, None] == np.arange(8)).astype(float), n_states)
    assert (gap < 4.5 * error + 1e-3).all(), (gap, error)


def test_the_exact_prior_of_partitions_sums_to_one():
    # With a single symbol the data tell nothing, and what is left is the prior.
    paths, weights = infinite_joint(np.zeros(5, int), [3, 2], 1.3, 0.8, np.ones(1))
    assert weights.sum() == pytest.approx(1.0)
    assert len(paths) == 52  # the fifth Bell number
