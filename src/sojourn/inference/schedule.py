"""Step sizes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """Step sizes ρ_n = (delay + n) ** −forgetting_rate for n = 1, 2, ...

    A forgetting rate of zero means ρ = 1: every batch replaces what was known.

    Examples
    --------
    >>> Schedule(forgetting_rate=0.5, delay=1.0)(3)
    0.5
    """

    forgetting_rate: float
    delay: float

    def __call__(self, n: int) -> float:
        """Return ρ_n."""
        return float((self.delay + n) ** -self.forgetting_rate)

    def rates(self, n: int, copies: float) -> tuple[float, float]:
        """Return what the n-th step keeps, and the weight of a batch that stands for `copies`."""
        return 1.0 - self(n), self(n) * copies
