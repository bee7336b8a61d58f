"""Distributions whose parameters the priors on the transitions learn."""

from __future__ import annotations

from typing import Any, NamedTuple

from scipy.special import betaln, gammaln

from sojourn import file_values
from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats


class GammaDistribution(NamedTuple):
    """Parameters of a Gamma distribution, as a prior or as a posterior.

    Attributes
    ----------
    shape : float
    rate : float

    Examples
    --------
    >>> GammaDistribution(3.0, 2.0).mean
    1.5
    """

    shape: float
    rate: float

    @property
    def mean(self) -> float:
        """E[x]."""
        return self.shape / self.rate

    @property
    def geometric_mean(self) -> Any:
        """G[x] = exp E[log x]."""
        xp = namespace(self.shape)
        return xp.exp(xp.digamma(self.shape)) / self.rate

    def divergence(self, other: GammaDistribution) -> float:
        """Return KL(self || other)."""
        (a, b), (c, d) = self, other
        xp = namespace(a)
        log_ratio = c * xp.log(b / d) + gammaln(c) - xp.gammaln(a)
        return float((a - c) * xp.digamma(a) + log_ratio + a * (d - b) / b)

    def blend(self, shape: float, rate: float, step_size: float) -> GammaDistribution:
        """Blend the parameters with new ones, eq (7)."""
        keep = 1.0 - step_size
        return GammaDistribution(
            keep * self.shape + step_size * shape, keep * self.rate + step_size * rate
        )

    def check(self, name: str) -> None:
        """Raise a ValueError unless both parameters are positive numbers."""
        for field, value in zip(self._fields, self, strict=True):
            file_values.positive(f"{name}.{field}", value)


class BetaDistribution(NamedTuple):
    """Parameters of a Beta distribution, as a prior or as a posterior.

    Attributes
    ----------
    a : float
    b : float
    """

    a: float
    b: float

    @property
    def mean(self) -> float:
        """E[x]."""
        return self.a / (self.a + self.b)

    @property
    def log_means(self) -> tuple[float, float]:
        """E[log x] and E[log(1 − x)]."""
        xp = namespace(self.a)
        total = xp.digamma(self.a + self.b)
        return xp.digamma(self.a) - total, xp.digamma(self.b) - total

    def divergence(self, other: BetaDistribution) -> float:
        """Return KL(self || other)."""
        log_mean, log_rest = self.log_means
        return float(
            betaln(*other)
            - namespace(self.a).betaln(*self)
            + (self.a - other.a) * log_mean
            + (self.b - other.b) * log_rest
        )

    def blend(self, a: float, b: float, step_size: float) -> BetaDistribution:
        """Blend the parameters with new ones, eq (7)."""
        keep = 1.0 - step_size
        return BetaDistribution(keep * self.a + step_size * a, keep * self.b + step_size * b)

    def check(self, name: str) -> None:
        """Raise a ValueError unless both parameters are positive numbers."""
        for field, value in zip(self._fields, self, strict=True):
            file_values.positive(f"{name}.{field}", value)


class Sticks(NamedTuple):
    """Beta(u_k, v_k) posteriors of the stick proportions π̃_k, in the order of the sticks.

    Attributes
    ----------
    u : (K,) array
    v : (K,) array
    """

    u: Floats
    v: Floats

    @classmethod
    def from_tables(cls, tables: Floats, gamma: float) -> Sticks:
        """Return u_k = 1 + s_k and v_k = γ + Σ_{l>k} s_l, eq (7)."""
        xp = namespace(tables)
        later = xp.flip(xp.cumsum(xp.flip(tables))) - tables
        return cls(1.0 + tables, gamma + later)

    @property
    def log_rest(self) -> Floats:
        """E[log(1 − π̃_k)]."""
        xp = namespace(self.u)
        return xp.digamma(self.v) - xp.digamma(self.u + self.v)

    @property
    def mean_weights(self) -> Floats:
        """E[π_k]; the remainder to one belongs to states beyond the truncation."""
        mean = self.u / (self.u + self.v)
        xp = namespace(mean)
        return mean * xp.concatenate([xp.full_like(mean[:1], 1.0), xp.cumprod(1.0 - mean)[:-1]])
