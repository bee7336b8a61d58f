"""The training loop: passes over a source of minibatches.  There is no other."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.bound import Bound
from sojourn.inference.local import Engine, prepare
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import Schedule
from sojourn.inference.step import Memory, step
from sojourn.sources import MemorySource, RememberingSource
from sojourn.transitions import Rows


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
    """

    passes: float
    sequences: int
    steps: int
    updates: int
    seconds: float
    score: float | None
    bound: float | None = None


def train(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    schedule: Schedule,
    source: MemorySource,
    engine: Engine,
    *,
    n_passes: int,
    bound: Bound | None = None,
    evaluate: Callable[[], float] | None = None,
    callback: Callable[[Progress], None] | None = None,
) -> list[Progress]:
    """Run `n_passes` passes, moving the posterior in place.

    Parameters
    ----------
    bound : Bound, optional
        What to report of each pass.
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
    memory = source if isinstance(source, RememberingSource) else None
    sequences = steps = updates = 0
    seconds = 0.0
    for n_pass in range(n_passes):
        before = time.perf_counter()
        value = None
        for n_batch, batch in enumerate(source.batches(n_pass)):
            info = step(
                posterior,
                family,
                objective,
                schedule,
                prepare(family, batch),
                source.n_sequences,
                engine,
                bound=bound if n_batch == 0 or memory is not None else None,
                memory=memory,
            )
            value = info.bound if n_batch == 0 else value
            sequences += info.n_sequences
            steps += info.n_steps
            updates += 1
            now = time.perf_counter()
            seconds += now - before
            before = now
            if callback is not None:
                passes = sequences / source.n_sequences
                callback(Progress(passes, sequences, steps, updates, seconds, None))
        if memory is not None:
            value = _settle(posterior, family, memory, bound, first=n_pass == 0)
        score = None if evaluate is None else evaluate()
        history.append(Progress(n_pass + 1.0, sequences, steps, updates, seconds, score, value))
        if callback is not None:
            callback(history[-1])
    return history


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
        entropy=sum(sums.entropy for sums in remembered),
        log_base=sum(sums.log_base for sums in remembered),
    )
    return bound.compute(posterior, family, whole, 1.0)
