"""How much is done to find a good optimum: restarts, and exchanges of states."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sojourn.data import Data
from sojourn.families import Family
from sojourn.models.observers import Observers
from sojourn.models.parameters import is_sampled
from sojourn.models.plan import Plan, Size, n_exchanges, n_restarts
from sojourn.models.start import starts_together
from sojourn.sequences import Sequences

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM


class Effort(NamedTuple):
    """What is done beyond one run of the training loop, to find a good optimum.

    Attributes
    ----------
    restarts : int
    at_once : bool
        Whether they can be trained at once.
    exchanges : int
        Exchanges of states at most.
    is_given : bool
        Whether the user has said how many restarts there are.
    """

    restarts: int
    at_once: bool
    exchanges: int
    is_given: bool

    @classmethod
    def of(cls, model: BaseHMM, data: Data, observers: Observers, *, is_plain: bool) -> Effort:
        """Return what the size of the data suggests; `is_plain` if they are here, and no more."""
        at_once = is_plain and observers.allow_starts_at_once and not is_sampled(model)
        exchanges = n_exchanges(model, data.n_steps) if is_plain else 0
        if not isinstance(model.n_init, str):
            return cls(int(model.n_init), at_once, exchanges, is_given=True)
        restarts = n_restarts(model, data.n_sequences, data.n_steps) if is_plain else 1
        return cls(restarts, at_once, exchanges, is_given=False)

    def planned(
        self, model: BaseHMM, plan: Plan, data: Data, family: Family, sample: Sequences
    ) -> Effort:
        """Return what is left of it: exchanges take the place of restarts one by one."""
        is_small = plan.size is Size.SMALL
        exchanges = self.exchanges if is_small and not data.n_labelled else 0
        restarts = self.restarts if is_small or self.is_given else 1
        at_once = self.at_once and starts_together(model, plan, family, sample, restarts)
        if exchanges and not at_once:
            restarts = 1
        return Effort(restarts, at_once, exchanges, self.is_given)
