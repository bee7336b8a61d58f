"""The training loop: passes over a source of minibatches.  There is no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from sojourn.families import Family
from sojourn.inference.local import Engine, prepare
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import Schedule
from sojourn.inference.step import step
from sojourn.sources import MemorySource


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
    """

    passes: float
    sequences: int
    steps: int
    updates: int
    seconds: float
    score: float | None


def train(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    schedule: Schedule,
    source: MemorySource,
    engine: Engine,
    *,
    n_passes: int,
    evaluate: Callable[[], float] | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> list[Progress]:
    """Run `n_passes` passes, moving the posterior in place.

    Parameters
    ----------
    evaluate : callable, optional
        Gives the held-out score; called at the end of each pass.
    callback : callable, optional
        Called with the `Progress` after each update and after each pass.  What it raises ends
        the training and leaves the posterior as it is then.

    Returns
    -------
    list of Progress
        One entry a pass.
    """
    history = []
    sequences = steps = updates = 0
    seconds = 0.0
    for n_pass in range(n_passes):
        before = time.perf_counter()
        for batch in source.batches(n_pass):
            chunks = prepare(family, batch)
            info = step(posterior, family, objective, schedule, chunks, source.n_sequences, engine)
            sequences += info.n_sequences
            steps += info.n_steps
            updates += 1
            now = time.perf_counter()
            seconds += now - before
            before = now
            if callback is not None:
                passes = sequences / source.n_sequences
                callback(Progress(passes, sequences, steps, updates, seconds, None))
        score = None if evaluate is None else evaluate()
        history.append(Progress(n_pass + 1.0, sequences, steps, updates, seconds, score))
        if callback is not None:
            callback(history[-1])
    return history
