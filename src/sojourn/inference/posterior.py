"""The state of training: expected counts, and what the transition prior keeps beside them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sojourn.families import Family
from sojourn.families.table import DecayedTable
from sojourn.inference.statistics import BatchSums, Statistics
from sojourn.kernels.arrays import namespace, to_device, to_host
from sojourn.kernels.interface import Floats, Integers
from sojourn.transitions import Rows, Transitions


@dataclass
class Posterior:
    """Everything that training changes.

    The emission table is large and changes in place; the rest are values.

    Attributes
    ----------
    counts : Rows
        E[C_0] and E[C].
    emissions : DecayedTable
        E[t].
    transitions : Transitions
        The prior on transitions with its own posterior.
    n_updates : int
        Minibatch updates so far.
    """

    counts: Rows
    emissions: DecayedTable
    transitions: Transitions
    n_updates: int = 0

    @classmethod
    def from_statistics(
        cls, statistics: Statistics, transitions: Transitions, dtype: str
    ) -> Posterior:
        """Start from given expected counts."""
        counts = Rows(statistics.start.copy(), statistics.transitions.copy())
        return cls(counts, DecayedTable(statistics.emissions, dtype), transitions)

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.counts.start)

    def learned(self, family: Family) -> Family:
        """Return the family with the prior that was learned, where one was."""
        prior = self.emissions.prior
        return family if prior is None else family.with_prior(to_host(prior.of(None)))

    def extract(self, numbers: Integers | None) -> Posterior:
        """Return what potentials of some emission statistics depend on; None for all of them."""
        return replace(self, emissions=self.emissions.extract(numbers))

    def regrouped(self, weights: Floats) -> Posterior:
        """Return the posterior of other states, each a weighted sum of these, eq (21).

        Parameters
        ----------
        weights : (K', K) array
            Row i says what share of each present state the new state i takes: a merge adds two
            rows of the identity, a deletion leaves one out, a permutation reorders them, and a
            split has the same state in two rows.
        """
        return Posterior(
            regrouped_counts(self.counts, weights),
            self.emissions.regrouped(weights),
            self.transitions.regrouped(weights),
            self.n_updates,
        )

    def become(self, other: Posterior) -> None:
        """Take over the states of another posterior, in place; updates go on counting."""
        self.counts, self.emissions = other.counts, other.emissions
        self.transitions = other.transitions

    def exchange(
        self, old: BatchSums | None, new: BatchSums | None, *, counts: bool = False
    ) -> None:
        """Take the statistics of a part of the data out, and put others in.

        `counts` says that emission statistics are never negative: then rounding is clipped.
        """
        for sums, weight in ((old, -1.0), (new, 1.0)):
            if sums is None:
                continue
            self.counts = Rows(
                np.maximum(self.counts.start + weight * sums.start, 0.0),
                np.maximum(self.counts.transitions + weight * sums.transitions, 0.0),
            )
            self.emissions.blend(sums.emissions, keep=1.0, weight=weight)
        if old is not None and counts:
            self.emissions.clip(old.emissions.rows)

    def to_device(self, device: Any) -> Posterior:
        """Return the same on a device, or itself where it is there."""
        if not isinstance(self.emissions, DecayedTable):
            return self
        from sojourn.families.tensors import TensorTable as DeviceTable

        emissions = cast(Any, DeviceTable.of(self.emissions, device))
        return self._converted(lambda part: sent(part, device), emissions)

    def to_host(self) -> Posterior:
        """Undo `to_device`."""
        if isinstance(self.emissions, DecayedTable):
            return self
        return self._converted(fetched, self.emissions.to_host())

    def _converted(self, convert: Callable[[Any], Any], emissions: DecayedTable) -> Posterior:
        return replace(
            self,
            counts=Rows(*(convert(part) for part in self.counts)),
            emissions=emissions,
            transitions=self.transitions.converted(convert),
        )

    def statistics(self) -> Statistics:
        """Return a copy of the expected counts as the public value."""
        start, transitions = (part.copy() for part in self.counts)
        return Statistics(start, transitions, self.emissions.dense())


def regrouped_counts(counts: Rows, weights: Floats) -> Rows:
    """Return E[C_0] and E[C] of other states, each a weighted sum of these, eq (21)."""
    start, transitions = counts
    own = namespace(start).placed(weights, like=start)
    return Rows(own @ start, own @ transitions @ own.T)


def sent(part: Any, device: Any) -> Any:
    """Return a number or an array as a tensor on a device."""
    return to_device(np.asarray(part, dtype=np.float64), device)


def fetched(part: Any) -> Any:
    """Undo `sent`, with a copy."""
    array = to_host(part)
    return float(array) if array.ndim == 0 else array.copy()


def initial_counts(
    n_states: int, n_sequences: float, n_steps: float, rng: np.random.Generator
) -> Rows:
    """Draw E[C_0] and E[C] from exponential distributions with the mass of the data.

    E[C_0] ~ Exp(N / K) and E[C] ~ Exp(ΣT / K²).
    """
    return Rows(
        rng.exponential(n_sequences / n_states, n_states),
        rng.exponential(n_steps / n_states**2, (n_states, n_states)),
    )
