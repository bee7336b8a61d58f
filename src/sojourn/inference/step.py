"""The global step: blend a minibatch into the posterior."""

from __future__ import annotations

from typing import Any, NamedTuple

from sojourn.families import Family
from sojourn.inference.bound import Bound
from sojourn.inference.local import Place
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import Schedule
from sojourn.inference.statistics import BatchSums
from sojourn.sources import RememberingSource
from sojourn.transitions import Rows


class StepInfo(NamedTuple):
    """What a step tells people.

    Attributes
    ----------
    step_size : float
        ρ_n.
    n_sequences, n_steps : int
        Size of the minibatch.
    log_normalizer : float
        Σ log Z of the minibatch under the potentials before the step.
    bound : float or None
        What the step makes larger, estimated on the minibatch, where asked for.
    """

    step_size: float
    n_sequences: int
    n_steps: int
    log_normalizer: float
    bound: float | None = None


Memory = RememberingSource[BatchSums]


def step(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    schedule: Schedule,
    batch: Any,
    total_sequences: int,
    engine: Place,
    *,
    bound: Bound | None = None,
    memory: Memory | None = None,
) -> StepInfo:
    """Take one minibatch and move the posterior, eq (3).

    Everything that can fail happens before the posterior is touched.

    Parameters
    ----------
    posterior : Posterior
        Changed in place.
    batch : object
        The minibatch, as the engine's `prepare` gives it.
    total_sequences : int
        N; the minibatch stands for N/M copies of itself, M being its real size.
    bound : Bound, optional
        What to report; None spares its cost.
    memory : RememberingSource, optional
        What is known of the minibatch from before.  It is taken out of the posterior first, and
        what is found now takes its place.
    """
    before = None if memory is None else memory.recall()
    posterior.exchange(before, None, counts=family.statistics_are_counts)
    try:
        sums = engine.expected_statistics(
            posterior,
            family,
            objective,
            batch,
            absences=posterior.transitions.wants_absences(total_sequences),
            entropy=bound is not None and bound.after_step,
        )
    except BaseException:
        posterior.exchange(None, before)
        raise
    step_size = schedule(posterior.n_updates + 1)
    copies = total_sequences / sums.n_sequences
    keep, weight = 1.0 - step_size, step_size * copies
    if before is not None:
        keep = weight = step_size = 1.0
    value = None
    if bound is not None and not bound.after_step:
        value = bound.compute(posterior, family, sums, copies)
    transitions = posterior.transitions.observe(
        Rows(sums.start, sums.transitions), sums.absences, sums.n_sequences, total_sequences
    )
    posterior.counts = Rows(
        keep * posterior.counts.start + weight * sums.start,
        keep * posterior.counts.transitions + weight * sums.transitions,
    )
    posterior.emissions.blend(sums.emissions, keep=keep, weight=weight, n_threads=engine.n_threads)
    posterior.transitions = transitions
    posterior.n_updates += 1
    posterior.moves = posterior.moves.earned(sums.n_steps, sums.n_sequences, posterior.n_states)
    if bound is not None and bound.after_step and memory is None:
        value = bound.compute(posterior, family, sums, copies)
    if memory is not None:
        sums.absences = None
        memory.remember(sums)
    return StepInfo(step_size, sums.n_sequences, sums.n_steps, sums.log_normalizer, value)
