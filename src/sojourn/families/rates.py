"""What the families of counts and of positive numbers share.

Every column has one unknown φ per state: a rate with a Gamma prior, or a probability with a Beta
prior.  The prior has two parameters, and t(x) two coordinates.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np

from sojourn.families.base import POINT_STEPS
from sojourn.families.checks import check_columns, column_moments, column_vector
from sojourn.families.columns import ColumnFamily, log_beta
from sojourn.families.dense import DenseFamily
from sojourn.families.fused import QuadraticStatistics
from sojourn.families.scales import first_moments
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


def concatenated(family: DenseFamily, *names: str) -> Floats:
    """Return parameters of a family, one number per column each, one after another."""
    shape, parts = (family.features,), [getattr(family, name) for name in names]
    if not all(isinstance(part, np.ndarray) and part.shape == shape for part in parts):
        given = zip(names, parts, strict=True)
        parts = [column_vector(name, part, *shape) for name, part in given]
    return np.concatenate(parts)


class OneParameterFamily(ColumnFamily):
    """A family with one unknown per state and column, and t(x) linear in x.

    Subclasses say which data they take, and which prior the means of the columns suggest.
    """

    coordinates = 2
    has_point = True
    fused = True

    prior_names: ClassVar[tuple[str, str]]
    """The parameters of the prior that are λ°, in its order."""

    @abstractmethod
    def check(self, data: Sequences, n_features: int) -> Sequences:
        """Return the data; errors name the sequence, the position and the column."""

    @abstractmethod
    def resolved(self, mean: Floats) -> dict[str, Any]:
        """Return the parameters of the family, by default from the means of the columns."""

    def resolve(self, data: Sequences, n_states: int) -> Self:
        """Take columns and prior mean from the data."""
        n_features = check_columns(data, self.n_features, type(self).__name__)
        mean = column_moments(self.check(data, n_features).values).mean
        return self.changed(n_features=n_features, **self.resolved(mean))

    def validate(self, data: Sequences) -> Sequences:
        """Check the data."""
        return self.check(data, self.features)

    def compiled_sums(self, x: Floats, weights: Floats, n_threads: int) -> Floats | None:
        """Return the weighted sums of complete data, as t(x) = t(0) + x (t(1) − t(0))."""
        found = first_moments(x, weights, n_threads)
        if found is None:
            return None
        counts, sums = found
        shape = (1, self.features)
        at_zero, at_one = (self.entry_statistics(np.full(shape, end)) for end in (0.0, 1.0))
        parts = []
        for zero, one in zip(at_zero, at_one, strict=True):
            first, last = (np.broadcast_to(end, shape).T for end in (zero, one))
            parts.append(first * counts + (last - first) * sums)
        return np.concatenate(parts)

    def quadratics(self) -> QuadraticStatistics:
        """Return t(x) = t(0) + x (t(1) − t(0))."""
        shape = (self.coordinates, self.features)
        at_zero, at_one = (
            np.stack([np.broadcast_to(part, shape[1:]) for part in self.entry_statistics(end)])
            for end in (np.zeros(shape[1:]), np.ones(shape[1:]))
        )
        nothing = np.zeros(shape)
        return QuadraticStatistics.by_column(nothing[0], at_zero, at_one - at_zero, nothing)

    def point(self, natural: Floats) -> Floats:
        """Return λ times a large number: t(x) is linear, and the mean its ratio."""
        return POINT_STEPS * natural

    def prior(self) -> Floats:
        """Return λ°, the two parameters of the prior."""
        return concatenated(self, *self.prior_names)


class RateFamily(OneParameterFamily):
    """A family with a rate φ ~ Gamma(a, b) per state and column; λ has a and b in some order."""

    prior_names = ("prior_shape", "prior_rate")

    def shape_and_rate(self, *parts: Floats) -> tuple[Floats, Floats]:
        """Return a and b from the coordinates of λ."""
        a, b = parts
        return a, b

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return log Γ(a) − a log b."""
        a, b = self.shape_and_rate(*parts)
        xp = namespace(a)
        return xp.gammaln(a) - a * xp.log(b)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return the posterior mean rates, shape (K, D)."""
        a, b = self.shape_and_rate(*self.parts(natural))
        return {self.parameter_names[0]: a / b}


class ProbabilityFamily(OneParameterFamily):
    """A family with a probability φ ~ Beta(α, β) per state and column; λ = (α, β)."""

    prior_names = ("alpha", "beta")
    parameter_names = ("probs_",)

    def entry_log_normalizer(self, *parts: Floats) -> Floats:
        """Return log B(α, β)."""
        return log_beta(*parts)

    def parameters(self, natural: Floats) -> dict[str, Floats]:
        """Return ``probs_``, the posterior mean of φ, shape (K, D)."""
        alpha, beta = self.parts(natural)
        return {"probs_": alpha / (alpha + beta)}
