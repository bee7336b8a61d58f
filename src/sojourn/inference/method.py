"""Inference methods that share the training loop, as values passed to it."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.inference.bound import COLLAPSED_BOUND, LOG_LIKELIHOOD, MEAN_FIELD_BOUND, Bound
from sojourn.inference.objective import COLLAPSED, MEAN_FIELD, POINT, Objective
from sojourn.inference.schedule import Schedule


@dataclass(frozen=True)
class Method:
    """A variational inference method.

    Attributes
    ----------
    objective : Objective
    bound : Bound
        Objective reported in the history.
    whole : bool
        Whether every update uses all data in one batch, with step size ρ = 1.
    remembers : bool
        Whether the statistics of every sequence are kept, and subtracted before its update.
    """

    objective: Objective
    bound: Bound
    whole: bool = False
    remembers: bool = False

    @property
    def is_stochastic(self) -> bool:
        """Whether the user chooses minibatches and step sizes."""
        return not (self.whole or self.remembers)

    def schedule(self, forgetting_rate: float, delay: float) -> Schedule:
        """Return the step sizes; ρ = 1 if every update uses all data."""
        return Schedule(0.0 if self.whole else forgetting_rate, delay)


METHODS = {
    "scvi": Method(COLLAPSED, COLLAPSED_BOUND),
    "svi": Method(MEAN_FIELD, MEAN_FIELD_BOUND),
    "cvb0": Method(COLLAPSED, COLLAPSED_BOUND, remembers=True),
    "vb": Method(MEAN_FIELD, MEAN_FIELD_BOUND, whole=True),
    # The potentials (1) and (2) are at the maximum of the posterior under Dirichlet(a + 1).
    "em": Method(POINT, LOG_LIKELIHOOD, whole=True),
}
"""All variational methods by name."""
