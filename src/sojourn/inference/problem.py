"""What is learned, and by which steps: everything about training but the posterior and the data."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.families import Family
from sojourn.inference.objective import Objective
from sojourn.inference.schedule import StepSizes, rates


@dataclass(frozen=True)
class Problem:
    """What training is about.

    Attributes
    ----------
    family : Family
        What is observed.
    objective : Objective
        Collapsed or mean-field.
    schedule : callable
        Step sizes ρ_n.
    total_sequences : int
        N: a minibatch of M sequences stands for N/M copies of itself.
    """

    family: Family
    objective: Objective
    schedule: StepSizes
    total_sequences: int

    def rates(self, n_update: int, n_sequences: int) -> tuple[float, float]:
        """Return what update `n_update` keeps, and the weight of its minibatch, eq (3)."""
        return rates(self.schedule, n_update, self.total_sequences / n_sequences)
