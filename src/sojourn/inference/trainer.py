"""The training loop: passes over a source of minibatches.  There is no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import Backend
from sojourn.inference.bound import Bound
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.progress import Position, Progress
from sojourn.inference.statistics import Uncertainty
from sojourn.inference.step import Memory, step
from sojourn.sources import Minibatches, RememberingSource
from sojourn.transitions import Rows


class StateMoves(Protocol):
    """What may change the number of states; see `sojourn.moves`."""

    def observe(self, n_steps: int, n_sequences: int, n_states: int) -> None:
        """Take in a minibatch that a model of so many states was trained on."""

    def after_pass(
        self, posterior: Posterior, family: Family, n_pass: int, n_passes: int
    ) -> list[dict[str, Any]]:
        """Change the states after pass `n_pass`, counted from 0, or not; list what was tried."""


class Checkpoint(Protocol):
    """What keeps training safe; see `train`."""

    def __call__(self, position: Position, *, now: bool = False) -> None:
        """Take note of a position; write it if it is time, or if it must be now."""


def train(
    problem: Problem,
    posterior: Posterior,
    source: Minibatches,
    backend: Backend,
    *,
    n_passes: int,
    moves: StateMoves | None = None,
    bound: Bound | None = None,
    evaluate: Callable[[], float] | None = None,
    evaluate_every: int | None = None,
    callback: Callable[[Progress], None] | None = None,
    position: Position | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[Progress]:
    """Run `n_passes` passes over a source, and update the posterior in place.

    Parameters
    ----------
    problem : Problem
    posterior : Posterior
        Placed where the backend computes.
    source : Minibatches
    backend : Backend
    moves : StateMoves, optional
        May change the number of states at the end of a pass.
    bound : Bound, optional
        What to report of each pass.
    evaluate : callable, optional
        Gives the held-out score; called at the end of each pass.
    evaluate_every : int, optional
        Updates after which it is called within a pass too.
    callback : callable, optional
        Called with the `Progress` after each update and after each pass.  What it raises ends
        the training and leaves the posterior as it is then.
    position : Position, optional
        Where to go on, with the posterior of that moment.
    checkpoint : callable, optional
        Called after each update, when posterior and position belong together, and with
        ``now=True`` at the end and when the callback raises `KeyboardInterrupt`.

    Returns
    -------
    list of Progress
        One entry per pass, and one for each score within a pass.
    """
    training = _Training(
        problem,
        posterior,
        source,
        backend,
        Position() if position is None else position,
        moves,
        bound,
        evaluate,
        evaluate_every,
        callback,
        checkpoint,
    )
    for n_pass in range(training.at.n_pass, n_passes):
        training.run_pass(n_pass, n_passes)
    return list(training.at.history)


@dataclass
class _Training:
    """A training under way: the arguments of `train`, and where it stands (`at`)."""

    problem: Problem
    posterior: Posterior
    source: Minibatches
    backend: Backend
    at: Position
    moves: StateMoves | None
    bound: Bound | None
    evaluate: Callable[[], float] | None
    evaluate_every: int | None
    callback: Callable[[Progress], None] | None
    checkpoint: Checkpoint | None

    def run_pass(self, n_pass: int, n_passes: int) -> None:
        """Run a pass from where training stands, and what belongs to its end."""
        bound = self._run_minibatches(n_pass, n_passes - n_pass - 1)
        before = time.perf_counter()
        proposals: list[dict[str, Any]] = []
        if self.moves is not None:
            proposals = self.moves.after_pass(self.posterior, self.problem.family, n_pass, n_passes)
            if any(move["accepted"] for move in proposals):
                self.backend = self.backend.resized()
        move_seconds = time.perf_counter() - before if self.moves is not None else 0.0
        self.at = self.at._replace(seconds=self.at.seconds + move_seconds)
        score = None if self.evaluate is None else self.evaluate()
        entry = self.at.progress(n_pass + 1.0, self.posterior.n_states, score)._replace(
            bound=bound, moves=proposals, move_seconds=move_seconds
        )
        self.at = self.at.ended_pass(entry)
        self._report(self.at.history[-1])
        if self.checkpoint is not None:
            self.checkpoint(self.at, now=n_pass + 1 == n_passes)

    def _run_minibatches(self, n_pass: int, n_more: int) -> float | None:
        """Run the steps of a pass that are left; return the bound, where it is tracked."""
        memory = self.source if isinstance(self.source, RememberingSource) else None
        before = time.perf_counter()
        value = None
        batches = self.backend.batches(
            self.problem, self.source, self.posterior.n_states, n_pass, self.at.n_batches, n_more
        )
        for batch in batches:
            is_first = self.at.n_batches == 0
            bound = self.bound if is_first or memory is not None else None
            info = step(
                self.problem, self.posterior, batch, self.backend, bound=bound, memory=memory
            )
            value = info.bound if is_first else value
            if self.moves is not None:
                self.moves.observe(info.n_steps, info.n_sequences, self.posterior.n_states)
            self.at = self.at.after(info, time.perf_counter() - before)
            self._after_step()
            before = time.perf_counter()
        self.backend.finish_pass()
        self.at = self.at._replace(seconds=self.at.seconds + time.perf_counter() - before)
        if memory is not None:
            return _settle(self.posterior, self.problem.family, memory, self.bound, n_pass == 0)
        return value

    def _after_step(self) -> None:
        """Score, report and keep safe what the last step led to."""
        passes, score = self.at.sequences / self.source.n_sequences, None
        n_states, every = self.posterior.n_states, self.evaluate_every
        if self.evaluate is not None and every and self.at.updates % every == 0:
            score = self.evaluate()
            entry = self.at.progress(passes, n_states, score)
            self.at = self.at._replace(history=(*self.at.history, entry))
        self._report(self.at.progress(passes, n_states, score))
        if self.checkpoint is not None:
            self.checkpoint(self.at)

    def _report(self, progress: Progress) -> None:
        if self.callback is None:
            return
        try:
            self.callback(progress)
        except KeyboardInterrupt:
            if self.checkpoint is not None:
                self.checkpoint(self.at, now=True)
            raise


def _settle(
    posterior: Posterior, family: Family, memory: Memory, bound: Bound | None, first: bool
) -> float | None:
    """End a pass in which every sequence was remembered; give the bound of all of them.

    The first pass blends minibatches as SCVI does.  After it the posterior becomes the sum of what
    is remembered, so that a sequence can be taken out of it.
    """
    remembered = memory.remembered
    if first:
        start, transitions = (np.zeros_like(part) for part in posterior.counts)
        for n, sums in enumerate(remembered):
            posterior.emissions.blend(sums.emissions, keep=float(n > 0), weight=1.0)
            start += sums.start
            transitions += sums.transitions
        posterior.counts = Rows(start, transitions)
    if bound is None:
        return None
    whole = replace(
        remembered[0],
        n_steps=sum(sums.n_steps for sums in remembered),
        entropy=sum(sums.entropy for sums in remembered),
        log_base=sum(sums.log_base for sums in remembered),
        uncertainty=Uncertainty.total(
            [sums.uncertainty for sums in remembered if sums.uncertainty is not None]
        ),
    )
    return bound.compute(posterior, family, whole, 1.0)
