"""The loop of all samplers: sweeps of several chains, some of which are kept."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sojourn.sampling.draws import Draw, Samples
from sojourn.sampling.state import ChainState, Sampler, SymbolData

_CHAIN_STREAM = 2**33  # random streams that no other part of a model uses


@dataclass(frozen=True)
class Chains:
    """Number of sweeps, and which are kept.

    Attributes
    ----------
    n_samples : int
        Draws kept from each chain.
    burn_in : int
        Sweeps of each chain before the first that may be kept.
    thin : int
        Sweeps from one kept draw to the next.
    n_chains : int
        Number of chains, each from its own random start.

    Examples
    --------
    >>> Chains(n_samples=10, burn_in=50, thin=3).n_sweeps
    80
    """

    n_samples: int = 100
    burn_in: int = 100
    thin: int = 1
    n_chains: int = 1

    @property
    def n_sweeps(self) -> int:
        """Total number of sweeps per chain."""
        return self.burn_in + self.n_samples * self.thin

    def keeps(self, sweep: int) -> bool:
        """Whether the state after sweep number `sweep`, counted from 1, is kept."""
        past = sweep - self.burn_in
        return past > 0 and past % self.thin == 0


class SamplingProgress(NamedTuple):
    """Progress of the chains: sweeps of each, and seconds."""

    sweeps: int
    seconds: float


def run_chains(
    sampler: Sampler,
    data: SymbolData,
    chains: Chains,
    *,
    n_states: int,
    seed: int,
    n_threads: int = 1,
    callback: Callable[[SamplingProgress], None] | None = None,
) -> Samples:
    """Run every chain and collect its draws.

    The random numbers of a chain depend on the seed and its number only, so that the result does
    not depend on threads.

    Parameters
    ----------
    n_states : int
        Initial number of states of a chain.
    callback : callable, optional
        Called after each sweep of all chains.
    """
    rngs = [np.random.default_rng([seed, _CHAIN_STREAM + c]) for c in range(chains.n_chains)]
    draws: list[list[Draw]] = [[] for _ in rngs]
    states = [sampler.begin(data, n_states, rng) for rng in rngs]

    def advance(c: int) -> ChainState:
        return sampler.sweep(states[c], data, rngs[c])

    begin = time.perf_counter()
    with ThreadPoolExecutor(max(1, min(n_threads, chains.n_chains))) as pool:
        for sweep in range(1, chains.n_sweeps + 1):
            states = list(pool.map(advance, range(chains.n_chains)))
            if chains.keeps(sweep):
                for kept, state in zip(draws, states, strict=True):
                    kept.append(Draw.of(state, sampler.log_joint(state, data)))
            if callback is not None:
                callback(SamplingProgress(sweep, time.perf_counter() - begin))
    return Samples(tuple(tuple(kept) for kept in draws), data)
