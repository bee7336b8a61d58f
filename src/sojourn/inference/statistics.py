"""Expected counts, which determine the posterior."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families.table import RowSums
from sojourn.kernels.arrays import is_tensor, to_host
from sojourn.kernels.interface import DurationCounts, Floats, Squares


@dataclass(frozen=True, eq=False)
class Statistics:
    """Expected counts of a data set, without the prior.  Can be added, and multiplied by a number.

    Parameters
    ----------
    start : (K,) array
        E[C_0]: number of sequences that start in each state.
    transitions : (K, K) array
        E[C]: number of transitions from state k to state l.
    emissions : (K, S) array
        E[t]: sums of the emission family's statistics; S is V for `Categorical`.

    Examples
    --------
    >>> one = Statistics(start=[1, 0], transitions=[[0, 2], [1, 0]], emissions=[[3, 0], [0, 1]])
    >>> (one + 2 * one).transitions
    array([[0., 6.],
           [3., 0.]])
    """

    start: Floats
    transitions: Floats
    emissions: Floats

    def __init__(self, start: ArrayLike, transitions: ArrayLike, emissions: ArrayLike) -> None:
        for name, value in (("start", start), ("transitions", transitions)):
            object.__setattr__(self, name, np.asarray(value, dtype=np.float64))
        emissions = np.asarray(emissions)
        if emissions.dtype.kind != "f":
            emissions = emissions.astype(np.float64)
        object.__setattr__(self, "emissions", emissions)
        n_states = self.start.shape[0] if self.start.ndim == 1 else 0
        if (
            n_states == 0
            or self.transitions.shape != (n_states, n_states)
            or self.emissions.ndim != 2
            or self.emissions.shape[0] != n_states
        ):
            raise ValueError(
                f"shapes {self.start.shape}, {self.transitions.shape} and "
                f"{self.emissions.shape} are not (K,), (K, K) and (K, S)"
            )

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        return Statistics(
            self.start + other.start,
            self.transitions + other.transitions,
            self.emissions + other.emissions,
        )

    def __mul__(self, factor: float) -> Statistics:
        return Statistics(self.start * factor, self.transitions * factor, self.emissions * factor)

    __rmul__ = __mul__


@dataclass(frozen=True)
class Uncertainty:
    """How far the counts of a batch may be from their expectations: what eq (27) needs.

    Attributes
    ----------
    rows : Squares
        Σ q² of start and transitions.
    emissions : RowSums
        Of the emission statistics, in the family's own terms: `Family.uncertainty`.
    """

    rows: Squares
    emissions: RowSums

    def fetched(self) -> Uncertainty:
        """Return the same with arrays in memory."""
        emissions = self.emissions
        if is_tensor(emissions.values):  # there, rows may repeat or lie beyond the last
            emissions = RowSums(None, to_host(emissions.dense()), emissions.n_rows)
        return Uncertainty(Squares(*map(to_host, self.rows)), emissions)

    @classmethod
    def total(cls, parts: Sequence[Uncertainty]) -> Uncertainty:
        """Add many, first to last; no argument is changed."""
        columns = zip(*(part.rows for part in parts), strict=True)
        rows = Squares(*(reduce(add, each) for each in columns))
        return cls(rows, RowSums.total([part.emissions for part in parts]))


@dataclass
class BatchSums:
    """What the local step collects from a batch: statistics, and further sums.

    Emission statistics are `RowSums`, which contain only the symbols of the batch.

    Attributes
    ----------
    start : (K,) array
    transitions : (K, K) array
    emissions : RowSums
    log_normalizer : float
        Σ_n log Z of the sequences.
    n_sequences, n_steps : int
        Sequences, or tiles of sequences, and steps that count.  A batch stands for N/M copies of
        itself whatever the weights of its sequences, so that on average the copies have the sums of
        all the data.
    squares : Squares or None
        Sums of q² for the HDP, on request.
    n_starts : int
        Sequences that begin in the batch: all, but for tiles.
    entropy, log_base : float
        Entropy of q(z) and Σ log h(x), for the collapsed bound, on request.  The latter includes
        what unknowns of single steps add: see `Family.sum_given`.
    uncertainty : Uncertainty or None
        How far the counts may be from their expectations, for the collapsed bound.
    shared : (K, K) array or None
        For each pair of states, the entropy of the choice between the two, summed over steps,
        eq (22), on request; estimated from a part of the steps of a large batch.
    mass : float
        Steps times the weights of their sequences.
    durations : DurationCounts or None
        Counts within states that last; those steps are on the diagonal of `transitions` too.
    """

    start: Floats
    transitions: Floats
    emissions: RowSums
    log_normalizer: float
    n_sequences: int
    n_steps: int
    squares: Squares | None
    n_starts: int = 0
    entropy: float = 0.0
    log_base: float = 0.0
    uncertainty: Uncertainty | None = None
    shared: Floats | None = None
    mass: float | None = None
    durations: DurationCounts | None = None

    def __post_init__(self) -> None:
        if self.mass is None:
            self.mass = self.n_steps

    def scaled(self, weight: float) -> BatchSums:
        """Return the sums of sequences that count `weight` times each."""
        squares, uncertainty, shared = self.squares, self.uncertainty, self.shared
        durations = self.durations
        if durations is not None:
            durations = DurationCounts(*(weight * part for part in durations))
        if uncertainty is not None:
            rows = Squares(*(weight * part for part in uncertainty.rows))
            uncertainty = Uncertainty(rows, uncertainty.emissions.scaled(weight))
        assert self.mass is not None
        return replace(
            self,
            start=weight * self.start,
            transitions=weight * self.transitions,
            emissions=self.emissions.scaled(weight),
            log_normalizer=weight * self.log_normalizer,
            squares=None if squares is None else Squares(*(weight * part for part in squares)),
            entropy=weight * self.entropy,
            log_base=weight * self.log_base,
            uncertainty=uncertainty,
            shared=None if shared is None else weight * shared,
            mass=weight * self.mass,
            durations=durations,
        )

    def __iadd__(self, other: BatchSums) -> BatchSums:
        self.start = self.start + other.start
        self.transitions = self.transitions + other.transitions
        self.emissions += other.emissions
        self.log_normalizer += other.log_normalizer
        self.n_sequences += other.n_sequences
        self.n_steps += other.n_steps
        self.n_starts += other.n_starts
        assert self.mass is not None
        assert other.mass is not None
        self.mass += other.mass
        self.entropy += other.entropy
        self.log_base += other.log_base
        if self.squares is not None and other.squares is not None:
            parts = zip(self.squares, other.squares, strict=True)
            self.squares = Squares(*(a + b for a, b in parts))
        if self.uncertainty is not None and other.uncertainty is not None:
            rows = Squares(*map(add, self.uncertainty.rows, other.uncertainty.rows))
            emissions = self.uncertainty.emissions
            emissions += other.uncertainty.emissions
            self.uncertainty = Uncertainty(rows, emissions)
        if self.shared is not None and other.shared is not None:
            self.shared = self.shared + other.shared
        if self.durations is not None and other.durations is not None:
            self.durations = DurationCounts(*map(add, self.durations, other.durations))
        return self

    def fetched(self) -> BatchSums:
        """Return the same with arrays in memory."""
        squares, uncertainty, durations = self.squares, self.uncertainty, self.durations
        return replace(
            self,
            start=to_host(self.start),
            transitions=to_host(self.transitions),
            emissions=self.emissions.to_host(),
            log_normalizer=float(self.log_normalizer),
            entropy=float(self.entropy),
            log_base=float(self.log_base),
            uncertainty=None if uncertainty is None else uncertainty.fetched(),
            shared=None if self.shared is None else to_host(self.shared),
            squares=None if squares is None else Squares(*(to_host(a) for a in squares)),
            durations=None if durations is None else DurationCounts(*map(to_host, durations)),
        )

    @classmethod
    def total(cls, parts: Sequence[BatchSums]) -> BatchSums:
        """Add many, first to last, without changing an argument."""
        numbers = {
            name: reduce(add, (getattr(part, name) for part in parts))
            for name in (
                "start",
                "transitions",
                "log_normalizer",
                "n_sequences",
                "n_steps",
                "n_starts",
                "entropy",
                "log_base",
                "mass",
            )
        }
        squares = [part.squares for part in parts if part.squares is not None]
        columns = zip(*squares, strict=True)
        uncertain = [part.uncertainty for part in parts if part.uncertainty is not None]
        shared = [part.shared for part in parts if part.shared is not None]
        lasting = zip(*(p.durations for p in parts if p.durations is not None), strict=True)
        durations = [reduce(add, each) for each in lasting]
        return cls(
            emissions=RowSums.total([part.emissions for part in parts]),
            squares=Squares(*(reduce(add, each) for each in columns)) if squares else None,
            uncertainty=Uncertainty.total(uncertain) if uncertain else None,
            shared=reduce(add, shared) if shared else None,
            durations=DurationCounts(*durations) if durations else None,
            **numbers,
        )

    def statistics(self) -> Statistics:
        """Return the expected counts as the public value, emissions in full."""
        return Statistics(self.start, self.transitions, self.emissions.dense().T)
