"""Base class of backends whose posterior consists of arrays in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from sojourn.families import Family
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.kernels.updates import blend_counts
from sojourn.sources import Minibatches
from sojourn.transitions import Rows


class HostBackend(ABC):
    """A backend that keeps the posterior in memory, wherever the local step runs."""

    n_threads: int

    @abstractmethod
    def statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        batch: Any,
        *,
        squares: bool = False,
        entropy: bool = False,
        shared: int = 0,
    ) -> BatchSums:
        """Compute the expected counts of a prepared minibatch."""

    @abstractmethod
    def batches(
        self,
        problem: Problem,
        source: Minibatches,
        n_states: int,
        n_pass: int,
        start: int,
        n_more: int,
    ) -> Iterator[Any]:
        """Yield the prepared minibatches of a pass, without the first `start`."""

    def pieces(
        self, problem: Problem, source: Minibatches, n_states: int, n_pass: int
    ) -> Iterator[Any]:
        """Yield all the data of a pass, in its minibatches."""
        return self.batches(problem, source, n_states, n_pass, 0, 0)

    def place(self, posterior: Posterior) -> Posterior:
        """Return the posterior itself, which is in memory already."""
        return posterior

    def step(
        self,
        problem: Problem,
        posterior: Posterior,
        batch: Any,
        *,
        rates: tuple[float, float] | None = None,
        squares: bool = False,
        entropy: bool = False,
    ) -> BatchSums:
        """Run the local step and blend its sums into the expected counts, eq (3)."""
        sums = self.statistics(
            posterior,
            problem.family,
            problem.objective,
            batch,
            squares=squares,
            entropy=entropy,
        )
        n_update = posterior.n_updates + 1
        keep, weight = rates or problem.rates(n_update, sums.n_sequences, sums.n_steps)
        own, before = (sums.start, sums.transitions), posterior.counts
        blended = blend_counts(before, own, keep, weight)
        posterior.emissions.blend(
            sums.emissions, keep=keep, weight=weight, n_threads=self.n_threads
        )
        posterior.blend_durations(sums, keep, weight)
        if problem.tiled is not None:
            keep, weight = problem.start_rates(keep, sums.n_starts)
            blended = (keep * before.start + weight * sums.start, blended[1])
        posterior.counts = Rows(*blended)
        return sums

    def updated(self, transitions: Any, total_sequences: int) -> Any:
        """Return a prior on transitions, updated from its complete large batch."""
        return transitions.updated(total_sequences)

    def finish_pass(self) -> None:
        """Do nothing: steps are synchronous, and raise their own errors."""
        return

    def sized_for(self, n_states: int) -> Self:
        """Return the backend itself: what is compiled works for any number of states."""
        return self

    def resized(self) -> Self:
        """Return the backend itself, which does not depend on the number of states."""
        return self

    def running(self) -> AbstractContextManager[None]:
        """Return a context that changes nothing."""
        return nullcontext()
