"""The global step: blend a minibatch into the posterior."""

from __future__ import annotations

from typing import Any, NamedTuple

from sojourn.families import Family
from sojourn.inference.bound import Bound
from sojourn.inference.local import Chunk, Place
from sojourn.inference.objective import Objective
from sojourn.inference.posterior import Posterior
from sojourn.inference.schedule import StepSizes, rates
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
    schedule: StepSizes,
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
    absences = posterior.transitions.wants_absences(total_sequences)
    step_size = schedule(posterior.n_updates + 1)
    if engine.recorder is not None and bound is None:
        recorded = _replayed(posterior, family, objective, batch, engine, absences=absences)
        if recorded is not None:
            _observe(posterior, recorded, total_sequences, engine)
            return _info(step_size, recorded, None)
    before = None if memory is None else memory.recall()
    posterior.exchange(before, None, counts=family.statistics_are_counts)
    try:
        sums = engine.expected_statistics(
            posterior,
            family,
            objective,
            batch,
            absences=absences,
            entropy=bound is not None and bound.after_step,
        )
    except BaseException:
        posterior.exchange(None, before)
        raise
    copies = total_sequences / sums.n_sequences
    keep, weight = rates(schedule, posterior.n_updates + 1, copies)
    if before is not None:
        keep = weight = step_size = 1.0
    value = None
    if bound is not None and not bound.after_step:
        value = bound.compute(posterior.to_host(), family, sums.to_host(), copies)
    blend(posterior, sums, keep, weight, engine)
    _observe(posterior, sums, total_sequences, engine)
    if bound is not None and bound.after_step and memory is None:
        value = bound.compute(posterior.to_host(), family, sums.to_host(), copies)
    if memory is not None:
        sums.absences = None
        memory.remember(sums)
    return _info(step_size, sums, value)


def blend(posterior: Posterior, sums: BatchSums, keep: Any, weight: Any, engine: Place) -> None:
    """Move the expected counts, eq (3)."""
    if engine.device is not None:
        from sojourn.kernels import cuda as gpu

        new = gpu.blend_counts(posterior.counts, (sums.start, sums.transitions), keep, weight)
        posterior.counts = Rows(*new)
    else:
        posterior.counts = Rows(
            keep * posterior.counts.start + weight * sums.start,
            keep * posterior.counts.transitions + weight * sums.transitions,
        )
    posterior.emissions.blend(sums.emissions, keep=keep, weight=weight, n_threads=engine.n_threads)


def _observe(posterior: Posterior, sums: BatchSums, total_sequences: int, engine: Place) -> None:
    """Move what the priors on symbols and on transitions keep beside the counts."""
    if posterior.emissions.prior is not None:
        posterior.emissions.prior.observe(
            sums.emissions,
            posterior.emissions,
            n_sequences=sums.n_sequences,
            n_steps=sums.n_steps,
            total_sequences=total_sequences,
            n_threads=engine.n_threads,
        )
    posterior.transitions = posterior.transitions.observe(
        Rows(sums.start, sums.transitions),
        sums.absences,
        sums.n_sequences,
        total_sequences,
        update=None if engine.recorder is None else engine.recorder.update,
    )
    posterior.n_updates += 1


def _replayed(
    posterior: Posterior,
    family: Family,
    objective: Objective,
    batch: Any,
    engine: Place,
    *,
    absences: bool,
) -> BatchSums | None:
    """Have the device do a step that it knows; None where it does not."""
    if not engine.recorder.takes(batch):
        return None

    def move(posterior: Posterior, chunks: list[Chunk], keep: Any, weight: Any) -> BatchSums:
        sums = engine.expected_statistics(posterior, family, objective, chunks, absences=absences)
        blend(posterior, sums, keep, weight, engine)
        return sums

    replayed: BatchSums = engine.recorder.replay(move, posterior, batch)
    return replayed


def _info(step_size: float, sums: BatchSums, value: float | None) -> StepInfo:
    return StepInfo(step_size, sums.n_sequences, sums.n_steps, sums.log_normalizer, value)
