"""The state of training: expected counts, and the posterior of the transition prior."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sojourn.families import Family
from sojourn.families.table import DecayedTable
from sojourn.inference.statistics import BatchSums, Statistics
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import DurationPotentials, Floats, Integers
from sojourn.transitions import Rows, Transitions
from sojourn.transitions.constraints import RowConstraints
from sojourn.transitions.durations import StateDurations


@dataclass
class Posterior:
    """Everything that training changes.

    The emission table is large and is changed in place; the rest is replaced.

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
    held : int
        Number of states, the first ones, that keep their places: those that labels name.
    durations : StateDurations or None
        How long states last, where that is not geometric; the diagonal of E[C] then has the steps
        within states, which the rows of `transitions` know nothing of.
    """

    counts: Rows
    emissions: DecayedTable
    transitions: Transitions
    n_updates: int = 0
    held: int = 0
    durations: StateDurations | None = None

    @classmethod
    def from_statistics(
        cls,
        statistics: Statistics,
        transitions: Transitions,
        dtype: str,
        durations: StateDurations | None = None,
    ) -> Posterior:
        """Start from given expected counts; those of durations follow from them."""
        counts = Rows(statistics.start.copy(), statistics.transitions.copy())
        own = None if durations is None else durations.implied(counts)
        return cls(counts, DecayedTable(statistics.emissions, dtype), transitions, durations=own)

    @property
    def n_states(self) -> int:
        """Number of states."""
        return len(self.counts.start)

    @property
    def between(self) -> Rows:
        """E[C_0] and E[C] without the steps within states that last: what the rows are about."""
        constraints = self.transitions.constraints
        return self.counts if constraints is None else constraints.counted(self.counts)

    def duration_potentials(self, *, collapsed: bool = True) -> DurationPotentials | None:
        """Return the factors of q(z) within states; None where they last geometrically."""
        if self.durations is None:
            return None
        return self.durations.potentials(self.transitions, collapsed=collapsed)

    def refuse_durations(self, what: str) -> None:
        """Raise an error for what is not known of states that last."""
        if self.durations is not None:
            raise ValueError(f"{what} not there for states that last: duration=None has them")

    def learned(self, family: Family) -> Family:
        """Return the family with the learned prior, if there is one."""
        prior = self.emissions.prior
        return family if prior is None else family.with_prior(to_host(prior.of(None)))

    def with_prior_learned(self) -> Posterior:
        """Return the posterior with its prior on symbols fitted to the statistics, if it has one.

        The same prior may be that of other posteriors, and is left as it is.
        """
        if self.emissions.prior is None:
            return self
        emissions, prior = copy(self.emissions), copy(self.emissions.prior)
        prior.learn(emissions)
        emissions.prior = prior
        return replace(self, emissions=emissions)

    def extract(self, numbers: Integers | None) -> Posterior:
        """Return the posterior with some of the emission statistics only; None for all."""
        return replace(self, emissions=self.emissions.extract(numbers))

    def regrouped(self, weights: Floats) -> Posterior:
        """Return the posterior of other states, each a weighted sum of these, eq (21).

        Parameters
        ----------
        weights : (K', K) array
            Row i has the share of each current state in the new state i: a merge adds two rows
            of the identity, a deletion leaves one out, a permutation reorders them, and a split
            has the same state in two rows.
        """
        transitions, durations = self.transitions.regrouped(weights), self.durations
        counts = regrouped_counts(self.counts, weights, transitions.constraints)
        if durations is not None:  # one state alone is never left
            durations = None if len(weights) == 1 else durations.regrouped(weights, counts)
        return Posterior(
            counts,
            self.emissions.regrouped(weights),
            transitions,
            self.n_updates,
            self.held,
            durations,
        )

    def align(self, family: Family) -> None:
        """Put what is interchangeable within states into the same order, in place, for merges."""
        statistics = to_host(self.emissions.dense())
        aligned = family.canonical(statistics)
        if aligned is not statistics:
            like = self.emissions.dense()
            placed = namespace(like).placed(np.ascontiguousarray(aligned), like=like)
            self.emissions = self.emissions.refilled(placed)

    def sharpen(self, family: Family) -> None:
        """Replace the emissions by a point estimate, in place."""
        if family.has_point:
            statistics = self.emissions.dense()
            prior = namespace(statistics).placed(family.prior(), like=statistics)
            self.emissions.fill(family.point(prior + statistics) - prior)

    def become(self, other: Posterior) -> None:
        """Take over the states of another posterior, in place; keep the number of updates."""
        self.counts, self.emissions = other.counts, other.emissions
        self.transitions, self.durations = other.transitions, other.durations

    def blend_durations(self, sums: BatchSums, keep: float, weight: float) -> None:
        """Blend the durations of a batch into the expected counts, eq (3)."""
        if self.durations is not None:
            assert sums.durations is not None
            self.durations = self.durations.blended(sums.durations, keep, weight)

    def exchange(
        self, old: BatchSums | None, new: BatchSums | None, *, counts: bool = False
    ) -> None:
        """Subtract statistics of a part of the data, and add others.

        `counts` says that emission statistics are never negative, so that rounding is clipped.
        """
        for sums, weight in ((old, -1.0), (new, 1.0)):
            if sums is None:
                continue
            self.counts = Rows(
                np.maximum(self.counts.start + weight * sums.start, 0.0),
                np.maximum(self.counts.transitions + weight * sums.transitions, 0.0),
            )
            self.emissions.blend(sums.emissions, keep=1.0, weight=weight)
            self.blend_durations(sums, 1.0, weight)
        if old is not None and counts:
            self.emissions.clip(old.emissions.rows)

    def fetched(self) -> Posterior:
        """Return the same with arrays in memory, or itself if they are there already."""
        if isinstance(self.emissions, DecayedTable):
            return self
        return self.converted(fetched, self.emissions.to_host())

    def converted(self, convert: Callable[[Any], Any], emissions: DecayedTable) -> Posterior:
        """Return the same with other emissions, and every other array converted."""
        return replace(
            self,
            counts=Rows(*(convert(part) for part in self.counts)),
            emissions=emissions,
            transitions=self.transitions.converted(convert),
            durations=None if self.durations is None else self.durations.converted(convert),
        )

    def statistics(self) -> Statistics:
        """Return a copy of the expected counts as the public value."""
        start, transitions = (part.copy() for part in self.counts)
        return Statistics(start, transitions, self.emissions.dense())


def regrouped_counts(
    counts: Rows, weights: Floats, constraints: RowConstraints | None = None
) -> Rows:
    """Return E[C_0] and E[C] of other states, each a weighted sum of these, eq (21).

    Counts that their constraints forbid are dropped: of one state to the other, where those that
    become one do not follow themselves.
    """
    start, transitions = counts
    own = namespace(start).placed(weights, like=start)
    found = Rows(own @ start, own @ transitions @ own.T)
    return found if constraints is None else constraints.without_forbidden(found)


def fetched(part: Any) -> Any:
    """Return a number or a copy of an array in memory."""
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
