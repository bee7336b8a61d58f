"""Gibbs samplers of the finite model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sojourn.kernels.cpu import sampling as kernel
from sojourn.kernels.interface import Floats
from sojourn.random_state import draw_dirichlet
from sojourn.sampling.state import ChainState, Sampler, SymbolData, log_evidence
from sojourn.transitions.base import RowConstraints, Rows, log_row_evidence, stacked


@dataclass(frozen=True, eq=False)
class FiniteSampler(Sampler):
    """Base class of the samplers of the finite model.

    Attributes
    ----------
    prior : (K + 1, K) array
        Concentrations of the rows, the start first.
    symbol_prior : (V, K) array
        λ° of every symbol and state.
    constraints : RowConstraints or None
        Probabilities that are given; the others of a row are a Dirichlet times what is left.
    """

    prior: Floats
    symbol_prior: Floats
    constraints: RowConstraints | None = None

    def begin(self, data: SymbolData, n_states: int, rng: np.random.Generator) -> ChainState:
        """Draw every state uniformly, or a path that the constraints allow."""
        if self.constraints is not None:
            equal = np.ones((data.n_symbols, n_states))
            rows = self._draw_rows(np.zeros_like(self.prior), rng)
            return ChainState(draw_paths(data, rows, equal, np.empty(0), rng), n_states)
        states = rng.integers(n_states, size=len(data.values), dtype=np.int32)
        return ChainState(data.possible(states, rng), n_states)

    def _draw_rows(self, counts: Floats, rng: np.random.Generator) -> Floats:
        """Draw start and transitions given counts, shape (K + 1, K)."""
        cells = self.prior + counts
        if self.constraints is None:
            return draw_dirichlet(cells, rng)
        free, given = (stacked(part) for part in self.constraints[:2])
        return given + (1.0 - given.sum(axis=1, keepdims=True)) * draw_dirichlet(cells, rng, free)

    def log_joint(self, state: ChainState, data: SymbolData) -> float:
        """Return log p(x, z)."""
        counts = data.count(state.states, state.n_states)
        rows = self._log_rows(counts.transitions)
        symbols, prior = counts.symbols.T, self.symbol_prior.T
        return rows + log_evidence(symbols, prior, prior.sum(axis=1))

    def _log_rows(self, counts: Floats) -> float:
        """Return log p(C) of start and transitions."""
        if self.constraints is None:
            return log_evidence(counts, self.prior, self.prior.sum(axis=1))
        prior = self.constraints.rows(Rows(self.prior[0], self.prior[1:]))
        totals = Rows(*(part.sum(axis=-1) for part in prior))
        own = Rows(counts[0], counts[1:])
        return log_row_evidence(prior, totals, own, None, self.constraints)


class CollapsedGibbs(FiniteSampler):
    """One state at a time given all the others, with θ and φ integrated out."""

    def sweep(self, state: ChainState, data: SymbolData, rng: np.random.Generator) -> ChainState:
        """Draw every state once, in order."""
        counts = data.count(state.states, state.n_states)
        states = state.states.copy()
        kernel.collapsed_sweep(
            rng,
            data.values,
            data.first,
            states,
            counts.transitions,
            counts.transitions.sum(axis=1),
            counts.symbols,
            counts.symbols.sum(axis=0),
            self.prior,
            self.prior.sum(axis=1),
            self.symbol_prior,
            self.symbol_prior.sum(axis=0),
            np.empty(state.n_states),
            data.codes,
            data.masks,
        )
        return ChainState(states, state.n_states)


class BlockedGibbs(FiniteSampler):
    """θ and φ given z, then paths given θ and φ by forward filtering and backward sampling."""

    def sweep(self, state: ChainState, data: SymbolData, rng: np.random.Generator) -> ChainState:
        """Draw parameters and every path once."""
        counts = data.count(state.states, state.n_states)
        transitions = self._draw_rows(counts.transitions, rng)
        emissions = draw_dirichlet((self.symbol_prior + counts.symbols).T, rng).T
        states = draw_paths(data, transitions, emissions, np.empty(0), rng)
        return ChainState(states, state.n_states)


def draw_paths(
    data: SymbolData,
    transitions: Floats,
    emissions: Floats,
    slices: Floats,
    rng: np.random.Generator,
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Draw the path of every sequence given parameters; see `kernels.cpu.sampling.sample_paths`."""
    states = np.empty(len(data.values), dtype=np.int32)
    failed = kernel.sample_paths(
        rng,
        data.values,
        data.offsets,
        np.ascontiguousarray(transitions),
        np.ascontiguousarray(emissions),
        slices,
        states,
        np.empty((data.longest, transitions.shape[1])),
        data.codes,
        data.masks,
    )
    if failed >= 0:
        raise FloatingPointError(f"sequence {failed} has no possible state path")
    return states
