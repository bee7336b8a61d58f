"""The training loop: passes over a source of minibatches.  All methods share it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
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
from sojourn.inference.survey import Survey, survey
from sojourn.sources import Minibatches, RememberingSource
from sojourn.transitions import Rows


class StateMoves(Protocol):
    """Changes the number of states; see `sojourn.moves`."""

    def observe(self, n_steps: int, n_sequences: int, n_states: int, step_size: float) -> None:
        """Record a minibatch that a model of `n_states` states was trained on."""

    def after_pass(
        self, posterior: Posterior, family: Family, n_pass: int, n_passes: int, of_all: Survey
    ) -> list[dict[str, Any]]:
        """Propose changes of states after pass `n_pass`, counted from 0; return the proposals.

        `of_all` takes a local step on all the data.
        """


class TileBuffers(Protocol):
    """Sets the size of the buffers around tiles; see `sojourn.inference.buffers`."""

    def before_pass(self, posterior: Posterior, n_pass: int) -> int:
        """Return the size for pass `n_pass`, and let the source use it."""

    def resume(self, buffer: int) -> None:
        """Let the source use the size of a pass that has begun."""


class Shapes(Protocol):
    """Learns the shapes of durations; see `sojourn.inference.shapes`."""

    def before_pass(self, posterior: Posterior, n_pass: int) -> bool:
        """Learn shapes before pass `n_pass`, counted from 0; return whether any has changed."""

    def when_converged(self, posterior: Posterior, n_pass: int) -> bool:
        """Learn shapes after a pass with which training would end; whether it is to go on."""


class Checkpoint(Protocol):
    """Saves the state of training; see `train`."""

    def __call__(self, position: Position, *, now: bool = False) -> None:
        """Record a position, and write a checkpoint if one is due or `now` is set."""


def train(
    problem: Problem,
    posterior: Posterior,
    source: Minibatches,
    backend: Backend,
    *,
    n_passes: int,
    moves: StateMoves | None = None,
    buffers: TileBuffers | None = None,
    shapes: Shapes | None = None,
    bound: Bound | None = None,
    evaluate: Callable[[], float] | None = None,
    evaluate_every: int | None = None,
    callback: Callable[[Progress], None] | None = None,
    position: Position | None = None,
    checkpoint: Checkpoint | None = None,
    tol: float | None = None,
    n_more: int = 0,
) -> Position:
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
    buffers : TileBuffers, optional
        Where minibatches consist of tiles: sets the size of the buffers before each pass.
    shapes : Shapes, optional
        Where states last: learns the shapes of their durations.
    bound : Bound, optional
        Bound to report for each pass.
    evaluate : callable, optional
        Returns the held-out score; called at the end of each pass.
    evaluate_every : int, optional
        Number of updates after which it is also called within a pass.
    callback : callable, optional
        Called with the `Progress` after each update and after each pass.  An exception
        ends the training and leaves the posterior in its current state.
    position : Position, optional
        Where to continue, with the posterior of that position.
    checkpoint : callable, optional
        Called after each update, when posterior and position are consistent, and with
        ``now=True`` at the end and if the callback raises `KeyboardInterrupt`.

    tol : float, optional
        Ends training after a pass in which the log likelihood has risen by less than this, in nats
        per step; for full batches.
    n_more : int
        Passes after those, at most, until it rises no more; only their ends are looked at then.
        Moves know nothing of them.

    Returns
    -------
    Position
        Where training ended.  Its history has one entry per pass, and one for each score within a
        pass.
    """
    training = _Training(
        problem,
        posterior,
        source,
        backend,
        Position() if position is None else position,
        moves,
        buffers,
        shapes,
        bound,
        evaluate,
        evaluate_every,
        callback,
        checkpoint,
        tol,
        n_more,
    )
    while training.at.n_pass < n_passes + n_more and not training.at.converged:
        training.run_pass(training.at.n_pass, n_passes)
    return training.at


@dataclass
class _Training:
    """A run of training: the arguments of `train`, and the current position (`at`)."""

    problem: Problem
    posterior: Posterior
    source: Minibatches
    backend: Backend
    at: Position
    moves: StateMoves | None
    buffers: TileBuffers | None
    shapes: Shapes | None
    bound: Bound | None
    evaluate: Callable[[], float] | None
    evaluate_every: int | None
    callback: Callable[[Progress], None] | None
    checkpoint: Checkpoint | None
    tol: float | None
    n_more: int

    def run_pass(self, n_pass: int, n_passes: int) -> None:
        """Run a pass from the current position, including moves and scores at its end."""
        last = n_passes + self.n_more
        tol = self.tol if self.n_more == 0 or n_pass + 1 >= n_passes else None
        bound = self._run_minibatches(n_pass, last - n_pass - 1, tol)
        before = time.perf_counter()
        proposals: list[dict[str, Any]] = []
        if self.moves is not None:
            if self.problem.family.latent and not isinstance(self.source, RememberingSource):
                self.posterior.align(self.problem.family)
            # In the order of the pass to come, which may have been drawn already.
            backend = self.backend.sized_for(self.posterior.n_states)
            of_all = partial(
                survey, self.problem, source=self.source, backend=backend, n_pass=n_pass + 1
            )
            proposals = self.moves.after_pass(
                self.posterior, self.problem.family, n_pass, n_passes, of_all
            )
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
            self.checkpoint(self.at, now=n_pass + 1 == last or self.at.converged)

    def _run_minibatches(self, n_pass: int, n_more: int, tol: float | None) -> float | None:
        """Run the remaining steps of a pass; return the bound, if it is tracked."""
        memory = self.source if isinstance(self.source, RememberingSource) else None
        before = time.perf_counter()
        value = None
        self._learn_shapes(n_pass)
        self._set_buffer(n_pass)
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
                n_states = self.posterior.n_states
                self.moves.observe(info.n_steps, info.n_sequences, n_states, info.step_size)
            self.at = self.at.after(info, time.perf_counter() - before)
            if tol is not None:
                self.at = self.at.with_likelihood(info)
            self._after_step()
            before = time.perf_counter()
        self.backend.finish_pass()
        self.at = self.at._replace(seconds=self.at.seconds + time.perf_counter() - before)
        if tol is not None:
            self.at = self.at.after_likelihoods(tol)
        shapes = self.shapes
        if self.at.converged and shapes and shapes.when_converged(self.posterior, n_pass + 1):
            self.backend = self.backend.resized()
            self.at = self.at._replace(converged=False, log_likelihood=None)
        if memory is not None:
            return _settle(self.posterior, self.problem.family, memory, self.bound, n_pass == 0)
        return value

    def _learn_shapes(self, n_pass: int) -> None:
        """Learn the shapes of durations before a pass; within one they stay as they are."""
        if self.shapes is None or self.at.n_batches > 0:
            return
        if self.shapes.before_pass(self.posterior, n_pass):
            self.backend = self.backend.resized()
            self.at = self.at._replace(log_likelihood=None)

    def _set_buffer(self, n_pass: int) -> None:
        """Set the size of the buffers around tiles for a pass; within one it stays as it is."""
        if self.buffers is None:
            return
        if self.at.n_batches == 0 or self.at.buffer is None:
            buffer = self.buffers.before_pass(self.posterior, n_pass)
            self.at = self.at._replace(buffer=buffer)
        else:
            self.buffers.resume(self.at.buffer)

    def _after_step(self) -> None:
        """Score, report and save the state after the last step."""
        passes, score = self.at.sequences / self.source.n_sequences, None
        n_states, every = self.posterior.n_states, self.evaluate_every
        if self.evaluate is not None and every and self.at.updates % every == 0:
            # Steps may have been launched ahead, and a score would wait for them.
            before = time.perf_counter()
            self.backend.finish_pass()
            self.at = self.at._replace(seconds=self.at.seconds + time.perf_counter() - before)
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
    """End a pass of a method that keeps statistics per sequence; return the bound of all data.

    The first pass blends minibatches as SCVI does.  After it the posterior becomes the sum of the
    kept statistics, so that those of a sequence can be subtracted.
    """
    remembered = memory.remembered
    if first:
        start, transitions = (np.zeros_like(part) for part in posterior.counts)
        for n, sums in enumerate(remembered):
            posterior.emissions.blend(sums.emissions, keep=float(n > 0), weight=1.0)
            start += sums.start
            transitions += sums.transitions
            posterior.blend_durations(sums, float(n > 0), 1.0)
        posterior.counts = Rows(start, transitions)
    if bound is None:
        return None
    whole = replace(
        remembered[0],
        n_steps=sum(sums.n_steps for sums in remembered),
        mass=sum(sums.mass or 0.0 for sums in remembered),
        entropy=sum(sums.entropy for sums in remembered),
        log_base=sum(sums.log_base for sums in remembered),
        uncertainty=Uncertainty.total(
            [sums.uncertainty for sums in remembered if sums.uncertainty is not None]
        ),
    )
    return bound.compute(posterior, family, whole, 1.0)
