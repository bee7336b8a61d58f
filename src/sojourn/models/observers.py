"""What observes the training of a model: held-out data, a callback, the bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sojourn.data import Data
from sojourn.families import Family
from sojourn.models.start import Callback


@dataclass(frozen=True)
class Observers:
    """What observes the training of a model.

    Attributes
    ----------
    validation : data or (X, lengths) or None
        Held-out data, as given by the user.
    validation_every : int or None
        Updates between two scores within a pass.
    callback : callable or None
        Called with the `Progress` after each update and each pass.
    track_bound : bool or None
        Whether the history has the bound; None where a method sees all the data at every update.
    """

    validation: Any = None
    validation_every: int | None = None
    callback: Callback | None = None
    track_bound: bool | None = None

    @property
    def allow_starts_at_once(self) -> bool:
        """Whether nothing is computed after every pass of every restart."""
        return self.validation is None and not self.track_bound

    def held_out(self, family: Family, data: Data, n_states: int) -> Data | None:
        """Return the held-out data in the form that the family and the training data have."""
        if self.validation is None:
            return None
        is_pair = isinstance(self.validation, tuple)
        X, lengths = self.validation if is_pair else (self.validation, None)
        own = Data(X, lengths, family, use=data.use_for(family))
        return own.label(data.names, n_states, all_states=True).validated(family)
