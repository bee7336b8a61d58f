"""The data and the state of a chain, and the interface of a sampler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


@dataclass(frozen=True, eq=False)
class SymbolData:
    """Sequences of symbols in the form that the inner loops of samplers use.

    Attributes
    ----------
    values : (T,) int32 array
    offsets : (N + 1,) int64 array
    n_symbols : int
    codes, masks : (T,) int32 and (M, K) arrays
        Row of weights of the states for every step, where steps have labels; else empty.
    first : (T,) bool array
        Whether a step is the first of a sequence.
    """

    values: NDArray[np.int32]
    offsets: NDArray[np.int64]
    n_symbols: int
    codes: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    masks: Floats = field(default_factory=lambda: np.empty((0, 0)))
    first: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        first = np.zeros(len(self.values), dtype=np.bool_)
        first[self.offsets[:-1]] = True
        object.__setattr__(self, "first", first)

    @classmethod
    def make(cls, data: Sequences, n_symbols: int, n_states: int = 0) -> SymbolData:
        """Make the data from validated sequences of symbols, for a model of so many states."""
        values, offsets = np.array(data.values, dtype=np.int32), np.array(data.offsets, np.int64)
        if data.labels is None:
            return cls(values, offsets, n_symbols)
        codes, masks = data.labels.compact(n_states)
        return cls(values, offsets, n_symbols, np.array(codes, np.int32), np.array(masks))

    def possible(self, states: NDArray[np.int32], rng: np.random.Generator) -> NDArray[np.int32]:
        """Replace states that labels exclude by ones that they allow."""
        if len(self.codes) == 0:
            return states
        states = states.copy()
        for step in np.flatnonzero(self.masks[self.codes, states] == 0.0):
            states[step] = rng.choice(np.flatnonzero(self.masks[self.codes[step]]))
        return states

    @property
    def longest(self) -> int:
        """Length of the longest sequence."""
        return int(np.diff(self.offsets).max())

    def count(self, states: NDArray[np.int32], n_states: int) -> Counts:
        """Count starts, transitions and symbols for given states."""
        rows = np.zeros(len(states), dtype=np.int64)
        rows[1:] = states[:-1] + 1
        rows[self.first] = 0
        cells = rows * n_states + states
        transitions = np.bincount(cells, minlength=(n_states + 1) * n_states)
        symbols = np.bincount(
            self.values.astype(np.int64) * n_states + states, minlength=self.n_symbols * n_states
        )
        return Counts(
            transitions.reshape(n_states + 1, n_states).astype(np.float64),
            symbols.reshape(self.n_symbols, n_states).astype(np.float64),
        )


@dataclass(frozen=True, eq=False)
class Counts:
    """Counts of a complete assignment of states.

    Attributes
    ----------
    transitions : (K + 1, K) array
        C, the start first.
    symbols : (V, K) array
        How often each symbol occurs in each state.
    """

    transitions: Floats
    symbols: Floats


@dataclass(frozen=True, eq=False)
class ChainState:
    """Everything that the next sweep of a chain needs.

    Attributes
    ----------
    states : (T,) int32 array
        z, numbered 0..K−1.
    n_states : int
        K; for the infinite model, the number of states in use.
    shares : (K + 1,) array or None
        π_1, ..., π_K and the rest, for the infinite model.
    alpha, gamma : float
        α and γ; NaN for the finite model.
    """

    states: NDArray[np.int32]
    n_states: int
    shares: Floats | None = None
    alpha: float = float("nan")
    gamma: float = float("nan")


class Sampler(ABC):
    """A Markov chain over the states, with their posterior as its stationary distribution."""

    @abstractmethod
    def begin(self, data: SymbolData, n_states: int, rng: np.random.Generator) -> ChainState:
        """Draw the initial state of a chain."""

    @abstractmethod
    def sweep(self, state: ChainState, data: SymbolData, rng: np.random.Generator) -> ChainState:
        """Draw every variable once."""

    @abstractmethod
    def log_joint(self, state: ChainState, data: SymbolData) -> float:
        """Return log p(x, z), parameters integrated out; given π and α for the infinite model."""


def log_evidence(counts: Floats, prior: Floats, prior_totals: Floats) -> float:
    """Return Σ over rows of log p(counts) of Dirichlet rows that are integrated out."""
    rows = gammaln(prior_totals) - gammaln(prior_totals + counts.sum(axis=1))
    cells = np.where(counts > 0, gammaln(prior + counts) - gammaln(prior), 0.0)
    return float(rows.sum() + cells.sum())
