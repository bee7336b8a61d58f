"""Ways of inference that share the training loop: values handed to it."""

from __future__ import annotations

from dataclasses import dataclass

from sojourn.inference.bound import COLLAPSED_BOUND, LOG_LIKELIHOOD, MEAN_FIELD_BOUND, Bound
from sojourn.inference.objective import COLLAPSED, MEAN_FIELD, Objective
from sojourn.inference.schedule import Schedule


@dataclass(frozen=True)
class Method:
    """What tells one way of variational inference from another.

    Attributes
    ----------
    objective : Objective
    bound : Bound
        What its history reports.
    whole : bool
        Whether every update sees the whole data set and replaces what was known: one batch, ρ = 1.
    remembers : bool
        Whether the statistics of every sequence are kept, and taken out before its update.
    """

    objective: Objective
    bound: Bound
    whole: bool = False
    remembers: bool = False

    @property
    def is_stochastic(self) -> bool:
        """Whether minibatches and step sizes are the user's to choose."""
        return not (self.whole or self.remembers)

    def schedule(self, forgetting_rate: float, delay: float) -> Schedule:
        """Return the step sizes: ρ = 1 where every update sees everything."""
        return Schedule(0.0 if self.whole else forgetting_rate, delay)


METHODS = {
    "scvi": Method(COLLAPSED, COLLAPSED_BOUND),
    "svi": Method(MEAN_FIELD, MEAN_FIELD_BOUND),
    "cvb0": Method(COLLAPSED, COLLAPSED_BOUND, remembers=True),
    "vb": Method(MEAN_FIELD, MEAN_FIELD_BOUND, whole=True),
    # The potentials (1) and (2) are the maximum of the posterior under Dirichlet(a + 1).
    "em": Method(COLLAPSED, LOG_LIKELIHOOD, whole=True),
}
"""Every way by its name."""
