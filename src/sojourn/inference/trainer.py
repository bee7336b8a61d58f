"""The training loop: passes over a source of minibatches.  There is no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from sojourn.families import Family
from sojourn.inference.bound import Bound
from sojourn.inference.local import Engine, Place
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import StepSizes
from sojourn.inference.step import Memory, StepInfo, step
from sojourn.kernels.threads import Background
from sojourn.sources import Minibatches, RememberingSource
from sojourn.transitions import Rows

_WORTH_A_THREAD = 2**13  # steps of a minibatch from which another thread pays for its start


class Progress(NamedTuple):
    """How far training has come.

    Attributes
    ----------
    passes : float
        Passes over the data, with the fraction of the current one.
    sequences, steps, updates : int
        Sequences and time steps seen, and minibatch updates made.
    seconds : float
        Time spent training, without the scoring of held-out data.
    score : float or None
        Held-out log likelihood a time step, at the end of a pass where there is held-out data.
    bound : float or None
        What the method makes larger, where it is tracked: estimated on the first minibatch of the
        pass, or, where statistics are remembered, of all the data at the end of the pass.
    states : int
        Number of states in use.
    moves : list of dict
        Proposals at the end of the pass for other states: kind, states, gain of
        the bound in nats, change of the log likelihood a step of fresh sequences, whether it was
        accepted, and the number of states afterwards.
    move_seconds : float
        Time that they took, a part of `seconds`.
    """

    passes: float
    sequences: int
    steps: int
    updates: int
    seconds: float
    score: float | None
    bound: float | None = None
    states: int = 0
    moves: Sequence[dict[str, Any]] = ()
    move_seconds: float = 0.0


class Position(NamedTuple):
    """Where training stands: enough to go on from there, with the posterior.

    Attributes
    ----------
    n_pass : int
        Passes that are complete.
    n_batches : int
        Minibatches of the current pass that are done.
    sequences, steps, updates, seconds
        As in `Progress`.
    history : tuple of Progress
        What training returns in the end, so far.
    """

    n_pass: int = 0
    n_batches: int = 0
    sequences: int = 0
    steps: int = 0
    updates: int = 0
    seconds: float = 0.0
    history: tuple[Progress, ...] = ()

    def progress(self, passes: float, states: int, score: float | None = None) -> Progress:
        """Tell people."""
        return Progress(
            passes, self.sequences, self.steps, self.updates, self.seconds, score, states=states
        )

    @classmethod
    def warmed_up(cls, history: Sequence[Progress]) -> Position:
        """Stand at the beginning, after a warm-up: the first pass will tell of its proposals."""
        entry = Progress(0.0, 0, 0, 0, history[-1].seconds, None, states=history[-1].states)
        return cls(seconds=entry.seconds, history=(_told(entry, history),))

    def ended_pass(self, entry: Progress) -> Position:
        """Take in the end of a pass."""
        before = [earlier for earlier in self.history if earlier.passes == 0.0]
        history = (*self.history[len(before) :], _told(entry, [*before, entry]))
        return self._replace(n_pass=self.n_pass + 1, n_batches=0, history=history)

    def after(self, info: StepInfo, seconds: float) -> Position:
        """Take in a step that took some seconds."""
        return self._replace(
            n_batches=self.n_batches + 1,
            sequences=self.sequences + info.n_sequences,
            steps=self.steps + info.n_steps,
            updates=self.updates + 1,
            seconds=self.seconds + seconds,
        )


def _told(entry: Progress, history: Sequence[Progress]) -> Progress:
    """Have one entry tell of the proposals of several."""
    return entry._replace(
        moves=[move for part in history for move in part.moves],
        move_seconds=sum(part.move_seconds for part in history),
    )


class Moves(Protocol):
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
    posterior: Posterior,
    family: Family,
    objective: Objective,
    schedule: StepSizes,
    source: Minibatches,
    engine: Place,
    *,
    n_passes: int,
    moves: Moves | None = None,
    bound: Bound | None = None,
    evaluate: Callable[[], float] | None = None,
    evaluate_every: int | None = None,
    callback: Callable[[Progress], None] | None = None,
    position: Position | None = None,
    checkpoint: Checkpoint | None = None,
) -> list[Progress]:
    """Run `n_passes` passes, moving the posterior in place.

    Parameters
    ----------
    moves : Moves, optional
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
        One entry a pass, and one for each score within a pass.
    """
    at = Position() if position is None else position
    memory = source if isinstance(source, RememberingSource) else None

    on_device = None
    if isinstance(engine, Engine) and engine.device is not None:
        from sojourn.backends.cuda import DeviceBatches, recording

        on_device = DeviceBatches(family, source, posterior.n_states, engine)
        engine = recording(engine, posterior, schedule, source.n_sequences)

    def tell(progress: Progress) -> None:
        if callback is None:
            return
        try:
            callback(progress)
        except KeyboardInterrupt:
            if checkpoint is not None:
                checkpoint(at, now=True)
            raise

    for n_pass in range(at.n_pass, n_passes):
        before = time.perf_counter()
        value = None
        batches: Iterable[Any]
        if on_device is not None:
            batches = on_device.batches(n_pass, at.n_batches, n_passes - n_pass - 1)
        else:
            batches = _Batches(engine, family, source.batches(n_pass, at.n_batches))
            if memory is None and isinstance(engine, Engine) and engine.n_threads > 1:
                engine = replace(engine, meanwhile=batches.start_next)
        for chunks in batches:
            info = step(
                posterior,
                family,
                objective,
                schedule,
                chunks,
                source.n_sequences,
                engine,
                bound=bound if at.n_batches == 0 or memory is not None else None,
                memory=memory,
            )
            value = info.bound if at.n_batches == 0 else value
            if moves is not None:
                moves.observe(info.n_steps, info.n_sequences, posterior.n_states)
            now = time.perf_counter()
            at = at.after(info, now - before)
            before = now
            score = None
            passes = at.sequences / source.n_sequences
            if evaluate and evaluate_every and at.updates % evaluate_every == 0:
                score = evaluate()
                entry = at.progress(passes, posterior.n_states, score)
                at = at._replace(history=(*at.history, entry))
                before = time.perf_counter()
            tell(at.progress(passes, posterior.n_states, score))
            if checkpoint is not None:
                checkpoint(at)
        if on_device is not None:
            on_device.check()
            at = at._replace(seconds=at.seconds + time.perf_counter() - before)
        if memory is not None:
            value = _settle(posterior, family, memory, bound, first=n_pass == 0)
        made: list[dict[str, Any]] = []
        move_seconds = 0.0
        if moves is not None:
            before = time.perf_counter()
            made = moves.after_pass(posterior, family, n_pass, n_passes)
            move_seconds = time.perf_counter() - before
            at = at._replace(seconds=at.seconds + move_seconds)
            if on_device is not None and any(move["accepted"] for move in made):
                assert isinstance(engine, Engine)
                on_device.n_states = posterior.n_states
                engine = recording(engine, posterior, schedule, source.n_sequences)
        score = None if evaluate is None else evaluate()
        entry = at.progress(n_pass + 1.0, posterior.n_states, score)._replace(
            bound=value, moves=made, move_seconds=move_seconds
        )
        at = at.ended_pass(entry)
        tell(at.history[-1])
        if checkpoint is not None:
            checkpoint(at, now=n_pass + 1 == n_passes)
    return list(at.history)


class _Batches:
    """The minibatches of a pass, prepared; the next one while the last is summed up, if asked for.

    The kernel uses every thread, the sums after it one: that is the time to gather and encode.
    """

    def __init__(self, engine: Place, family: Family, batches: Iterator[Any]) -> None:
        self._engine = engine
        self._family = family
        self._batches = batches
        self._next: Background | None = None

    def _make(self) -> Any:
        batch = next(self._batches, None)
        return None if batch is None else self._engine.prepare(self._family, batch)

    def start_next(self, n_steps: int) -> None:
        """Begin with the next minibatch in the background, where this one was large enough."""
        if self._next is None and n_steps >= _WORTH_A_THREAD:
            self._next = Background(self._make)

    def __iter__(self) -> Iterator[Any]:
        try:
            while True:
                coming, self._next = self._next, None
                chunks = self._make() if coming is None else coming.result()
                if chunks is None:
                    return
                yield chunks
        finally:
            if self._next is not None:
                with suppress(Exception):  # training has ended for a reason of its own
                    self._next.result()


def _settle(
    posterior: Posterior, family: Family, memory: Memory, bound: Bound | None, *, first: bool
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
    )
    return bound.compute(posterior, family, whole, 1.0)
