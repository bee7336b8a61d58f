"""Columns with an unknown that is integrated, and a prior that is worth some steps at a mean."""

from __future__ import annotations

from abc import abstractmethod
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families.checks import as_given, check_columns, column_moments, column_vector
from sojourn.families.integrated import IntegratedFamily
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


class PriorMeanFamily(IntegratedFamily):
    """Base class of such families, whose data have a range of their own."""

    def __init__(
        self,
        n_features: int | None = None,
        prior_steps: float | ArrayLike = 0.1,
        prior_mean: float | ArrayLike | None = None,
    ) -> None:
        self.n_features = n_features
        self.prior_steps = prior_steps
        self.prior_mean = prior_mean

    @abstractmethod
    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Check that all numbers are in the range of the family."""

    @abstractmethod
    def usual_mean(self, mean: Floats) -> Floats:
        """Return the prior means where the data have these, which may be none or at the edge."""

    def resolve(self, data: Sequences, n_states: int) -> Self:
        """Take columns and prior mean from the data."""
        n_features = check_columns(data, self.n_features, type(self).__name__)
        mean = column_moments(self.check(data, n_features).values).mean
        mean = as_given(self.prior_mean, self.usual_mean(mean))
        return self.changed(
            n_features=n_features,
            prior_steps=column_vector("prior_steps", self.prior_steps, n_features),
            prior_mean=column_vector("prior_mean", mean, n_features),
        )

    def validate(self, data: Sequences) -> Sequences:
        """Check that the data are in the range of the family."""
        return self.check(data, self.features)

    def prior(self) -> Floats:
        """Return λ° = n° t(m)."""
        steps, mean = np.asarray(self.prior_steps), np.asarray(self.prior_mean)
        parts = self.entry_statistics(mean[None])
        return np.concatenate([steps * np.broadcast_to(part, (1, len(mean)))[0] for part in parts])
