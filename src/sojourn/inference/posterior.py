"""The state of training: expected counts, and what the transition prior keeps beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from sojourn.families import Family
from sojourn.families.table import DecayedTable
from sojourn.inference.statistics import BatchSums, Statistics
from sojourn.kernels.arrays import to_device, to_host
from sojourn.kernels.interface import Integers
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

    def learned(self, family: Family) -> Family:
        """Return the family with the prior that was learned, where one was."""
        prior = self.emissions.prior
        return family if prior is None else family.with_prior(prior.of(None))

    def extract(self, numbers: Integers | None) -> Posterior:
        """Return what potentials of some emission statistics depend on; None for all of them."""
        return replace(self, emissions=self.emissions.extract(numbers))

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
        from sojourn.families.device import DeviceTable

        def convert(array: Any) -> Any:
            return to_device(np.asarray(array, dtype=np.float64), device)

        return Posterior(
            Rows(*(convert(part) for part in self.counts)),
            cast(Any, DeviceTable(self.emissions, device)),
            self.transitions.converted(convert),
            self.n_updates,
        )

    def to_host(self) -> Posterior:
        """Undo `to_device`."""
        if isinstance(self.emissions, DecayedTable):
            return self

        def convert(tensor: Any) -> Any:
            array = to_host(tensor)
            return float(array) if array.ndim == 0 else array.copy()

        return Posterior(
            Rows(*(convert(part) for part in self.counts)),
            self.emissions.to_host(),
            self.transitions.converted(convert),
            self.n_updates,
        )

    def statistics(self) -> Statistics:
        """Return a copy of the expected counts as the public value."""
        start, transitions = (part.copy() for part in self.counts)
        return Statistics(start, transitions, self.emissions.dense())


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
