"""Definition of the training: everything except the posterior and the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sojourn.families import Family
from sojourn.inference.objective import Objective
from sojourn.inference.schedule import StepSizes, rates


class Tiled(NamedTuple):
    """Sizes of data that are dealt in tiles.

    Attributes
    ----------
    n_sequences : int
        Sequences, each of which begins once.
    n_steps : int
        Steps of all of them, each of which is in one tile.
    """

    n_sequences: int
    n_steps: int


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
        N: a minibatch of M sequences has the weight of N/M copies of itself.  Where minibatches
        consist of tiles, the number of these.
    tiled : Tiled or None
        Sizes of the data, where minibatches consist of tiles.
    """

    family: Family
    objective: Objective
    schedule: StepSizes
    total_sequences: int
    tiled: Tiled | None = None

    def rates(self, n_update: int, n_sequences: int, n_steps: int = 0) -> tuple[float, float]:
        """Return the weights of old statistics and minibatch in update `n_update`, eq (3)."""
        return rates(self.schedule, n_update, self.copies(n_sequences, n_steps))

    def copies(self, n_sequences: int, n_steps: int) -> float:
        """Return how many copies of itself a minibatch stands for: by steps, if it has tiles."""
        if self.tiled is not None:
            return self.tiled.n_steps / n_steps
        return self.total_sequences / n_sequences

    def start_rates(self, keep: float, n_starts: int) -> tuple[float, float]:
        """Return the weights for the start in a minibatch of tiles, in which sequences may begin.

        Where none does, what is known about the start stays as it is.
        """
        assert self.tiled is not None
        if n_starts == 0:
            return 1.0, 0.0
        return keep, (1.0 - keep) * self.tiled.n_sequences / n_starts
