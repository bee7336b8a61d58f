"""Samplers of the HDP-HMM without truncation: direct assignment, and beam sampling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.kernels.cpu import sampling as kernel
from sojourn.kernels.interface import Floats
from sojourn.random_state import draw_dirichlet
from sojourn.sampling.finite import draw_paths
from sojourn.sampling.state import ChainState, Sampler, SymbolData, log_evidence
from sojourn.transitions import GammaDistribution

_SMALLEST = 1e-300  # a share that has underflowed still has a Dirichlet


@dataclass(frozen=True, eq=False)
class InfiniteSampler(Sampler):
    """Base class of the samplers of the HDP-HMM: the prior, and the draws of π, α and γ.

    Attributes
    ----------
    symbol_prior : (V,) array
        λ° of every symbol, the same for all states.
    alpha_prior, gamma_prior : GammaDistribution
    """

    symbol_prior: Floats
    alpha_prior: GammaDistribution
    gamma_prior: GammaDistribution

    def begin(self, data: SymbolData, n_states: int, rng: np.random.Generator) -> ChainState:
        """Draw every state uniformly among `n_states`."""
        states = rng.integers(n_states, size=len(data.values), dtype=np.int32)
        equal = np.full(n_states + 1, 1.0 / (n_states + 1))
        alpha, gamma = self.alpha_prior.mean, self.gamma_prior.mean
        return self.draw_hyperparameters(
            compact(ChainState(states, n_states, equal, alpha, gamma)), data, rng
        )

    def draw_hyperparameters(
        self, state: ChainState, data: SymbolData, rng: np.random.Generator
    ) -> ChainState:
        """Draw tables, then α, γ and π given them (Teh et al. 2006, section 5.3 and appendix A)."""
        assert state.shares is not None
        counts = data.count(state.states, state.n_states).transitions
        tables = np.empty(counts.shape, dtype=np.int64)
        kernel.draw_tables(rng, counts, state.alpha * state.shares[:-1], tables)
        alpha = draw_concentration(
            state.alpha, self.alpha_prior, counts.sum(axis=1), int(tables.sum()), rng
        )
        gamma = draw_concentration(
            state.gamma, self.gamma_prior, tables.sum(keepdims=True), state.n_states, rng
        )
        shares = draw_dirichlet(np.append(tables.sum(axis=0), gamma), rng)
        shares = np.maximum(shares, _SMALLEST)
        return ChainState(state.states, state.n_states, shares, alpha, gamma)

    def log_joint(self, state: ChainState, data: SymbolData) -> float:
        """Return log p(x, z | π, α)."""
        assert state.shares is not None
        counts = data.count(state.states, state.n_states)
        prior = np.broadcast_to(state.alpha * state.shares[:-1], counts.transitions.shape)
        rows = log_evidence(counts.transitions, prior, np.full(len(prior), state.alpha))
        symbols = np.broadcast_to(self.symbol_prior, counts.symbols.T.shape)
        return rows + log_evidence(counts.symbols.T, symbols, symbols.sum(axis=1))


class DirectAssignment(InfiniteSampler):
    """One state at a time given all the others, θ and φ integrated out (Teh et al. 2006)."""

    def sweep(self, state: ChainState, data: SymbolData, rng: np.random.Generator) -> ChainState:
        """Draw every state once, in order, then π, α and γ."""
        assert state.shares is not None
        states, shares = state.states.copy(), state.shares
        n_states, begin = state.n_states, 0
        while begin < len(states):
            room = n_states + max(4, n_states // 2)
            counts = data.count(states, room)
            padded = np.zeros(room + 1)
            padded[:n_states], padded[room] = shares[:-1], shares[-1]
            begin = kernel.direct_assignment_sweep(
                rng,
                begin,
                data.values,
                data.first,
                states,
                counts.transitions,
                counts.transitions.sum(axis=1),
                counts.symbols,
                counts.symbols.sum(axis=0),
                padded,
                state.alpha,
                state.gamma,
                self.symbol_prior,
                float(self.symbol_prior.sum()),
                np.empty(room),
            )
            n_states, shares = room, padded
        swept = compact(ChainState(states, n_states, shares, state.alpha, state.gamma))
        return self.draw_hyperparameters(swept, data, rng)


class Beam(InfiniteSampler):
    """Complete paths, among the finitely many that the slices allow (Van Gael et al. 2008)."""

    def sweep(self, state: ChainState, data: SymbolData, rng: np.random.Generator) -> ChainState:
        """Draw θ, φ and slices, break sticks until they suffice, draw paths, then π, α and γ."""
        assert state.shares is not None
        counts = data.count(state.states, state.n_states)
        base = state.alpha * state.shares
        cells = np.hstack([counts.transitions, np.zeros((state.n_states + 1, 1))])
        rows = draw_dirichlet(np.maximum(base + cells, _SMALLEST), rng)
        emissions = draw_dirichlet(self.symbol_prior + counts.symbols.T, rng)
        before = np.zeros(len(state.states), dtype=np.int64)
        before[1:] = state.states[:-1] + 1
        before[data.first] = 0
        slices = rows[before, state.states] * rng.random(len(before))
        rows, emissions, shares = self._break_sticks(
            rows, emissions, state, float(slices.min()), rng
        )
        states = draw_paths(data, rows[:, :-1], emissions.T, slices, rng)
        swept = ChainState(states, rows.shape[1] - 1, shares, state.alpha, state.gamma)
        return self.draw_hyperparameters(compact(swept), data, rng)

    def _break_sticks(
        self,
        rows: Floats,
        emissions: Floats,
        state: ChainState,
        smallest: float,
        rng: np.random.Generator,
    ) -> tuple[Floats, Floats, Floats]:
        """Add states until no row has more than the smallest slice left for further states."""
        shares = state.shares
        assert shares is not None
        n_new = 8  # at a time: a Dirichlet cell splits into many as well as into two
        while rows[:, -1].max() > smallest:
            left = np.cumprod(1.0 - rng.beta(1.0, state.gamma, n_new)) * shares[-1]
            pieces = -np.diff(left, prepend=shares[-1])
            shares = np.concatenate([shares[:-1], pieces, left[-1:]])
            shares = np.maximum(shares, _SMALLEST)
            base = np.maximum(state.alpha * shares, _SMALLEST)
            split = np.broadcast_to(base[-n_new - 1 :], (len(rows), n_new + 1))
            rows = np.hstack([rows[:, :-1], rows[:, -1:] * draw_dirichlet(split, rng)])
            fresh = draw_dirichlet(np.broadcast_to(base, (n_new, len(base))), rng)
            rows = np.vstack([rows, fresh])
            symbols = np.broadcast_to(self.symbol_prior, (n_new, len(self.symbol_prior)))
            emissions = np.vstack([emissions, draw_dirichlet(symbols, rng)])
            n_new *= 2
        return rows, emissions, shares


def compact(state: ChainState) -> ChainState:
    """Renumber the states in use 0, 1, ...; the share of the others is added to the rest."""
    assert state.shares is not None
    used, states = np.unique(state.states, return_inverse=True)
    kept = state.shares[:-1][used]
    idle = np.delete(state.shares[:-1], used).sum()
    shares = np.append(kept, state.shares[-1] + idle)
    return ChainState(states.astype(np.int32), len(used), shares, state.alpha, state.gamma)


def draw_concentration(
    value: float,
    prior: GammaDistribution,
    customers: Floats,
    tables: int,
    rng: np.random.Generator,
) -> float:
    r"""Draw the concentration of Chinese restaurants from its posterior.

    The likelihood :math:`a^{s} \prod_j \Gamma(a) / \Gamma(a + n_j)` becomes that of a Gamma by
    w_j ~ Beta(a + 1, n_j) and b_j ~ Bernoulli(n_j / (n_j + a)):
    a ~ Gamma(shape + s − Σ b_j, rate − Σ log w_j).

    Parameters
    ----------
    customers : array
        n_j of every restaurant; empty ones have no influence.
    tables : int
        s, the total over all restaurants.
    """
    n = np.asarray(customers, dtype=np.float64)
    n = n[n > 0]
    log_w = np.log(rng.beta(value + 1.0, n))
    b = rng.random(len(n)) * (n + value) < n
    shape = prior.shape + tables - b.sum()
    return max(float(rng.gamma(shape, 1.0 / (prior.rate - log_w.sum()))), 1e-12)
