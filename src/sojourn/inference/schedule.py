"""Step sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

StepSizes = Callable[[int], float]
"""Gives ρ_n for n = 1, 2, ..."""

_STEPS_A_STATE = 10.0


@dataclass(frozen=True)
class Schedule:
    """Step sizes ρ_n = (delay + n) ** −forgetting_rate for n = 1, 2, ...

    A forgetting rate of zero means ρ = 1: every batch replaces the statistics.

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


@dataclass(frozen=True)
class LinearDecay:
    """Step sizes that decrease linearly, from large ones to the smallest useful one, eq (20).

    They start at s / (s + 10 K) for minibatches of s steps, so that the statistics are based on at
    least ten steps per state, and end at M/N, where they contain every sequence once.  Large steps
    let states escape poor local optima; the decay then averages out the noise.

    Attributes
    ----------
    first, last : float
        Step sizes at the start, and from update `n_updates` on.
    n_updates : int

    Examples
    --------
    >>> steps = LinearDecay(first=0.9, last=0.1, n_updates=8)
    >>> [round(steps(n), 2) for n in (1, 4, 8, 9)]
    [0.8, 0.5, 0.1, 0.1]
    """

    first: float
    last: float
    n_updates: int

    @classmethod
    def plan(
        cls, n_states: int, n_passes: int, batch_size: float, n_sequences: int, n_steps: float
    ) -> LinearDecay:
        """Plan passes over N sequences with `n_steps` steps in total, in minibatches of M."""
        batch_size = min(batch_size, n_sequences)
        steps = n_steps * batch_size / n_sequences
        last = batch_size / n_sequences
        first = max(last, steps / (steps + _STEPS_A_STATE * n_states))
        return cls(first, last, n_passes * -(-n_sequences // int(batch_size)))

    def __call__(self, n: int) -> float:
        """Return ρ_n."""
        return self.first + (self.last - self.first) * min(1.0, n / self.n_updates)


@dataclass(frozen=True)
class ThenWhole:
    """Step sizes of minibatches, and then those of full batches, which are one.

    Attributes
    ----------
    first : callable
        Step sizes of the minibatches.
    n_updates : int
        Number of minibatches.

    Examples
    --------
    >>> steps = ThenWhole(Schedule(forgetting_rate=0.5, delay=1.0), n_updates=3)
    >>> steps(3), steps(4)
    (0.5, 1.0)
    """

    first: StepSizes
    n_updates: int

    def __call__(self, n: int) -> float:
        """Return ρ_n."""
        return self.first(n) if n <= self.n_updates else 1.0


def rates(step_sizes: StepSizes, n: int, copies: float) -> tuple[float, float]:
    """Return the weights in step n of the old statistics, and of a batch that counts as `copies`.

    Examples
    --------
    >>> rates(Schedule(forgetting_rate=0.5, delay=1.0), 3, 10.0)
    (0.5, 5.0)
    """
    step_size = step_sizes(n)
    return 1.0 - step_size, step_size * copies
