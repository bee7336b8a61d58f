"""Definition of the training: everything except the posterior and the data."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.families import Family
from sojourn.inference.objective import Objective
from sojourn.inference.schedule import StepSizes, rates


@dataclass(frozen=True)
class Problem:
    """What is learned, and with which objective and step sizes.

    Attributes
    ----------
    family : Family
        Emission family.
    objective : Objective
        Collapsed or mean-field.
    schedule : callable
        Step sizes ρ_n.
    total_sequences : int
        N: a minibatch of M sequences has the weight of N/M copies of itself.
    """

    family: Family
    objective: Objective
    schedule: StepSizes
    total_sequences: int

    def rates(self, n_update: int, n_sequences: int) -> tuple[float, float]:
        """Return the weights of old statistics and minibatch in update `n_update`, eq (3)."""
        return rates(self.schedule, n_update, self.total_sequences / n_sequences)
