"""The global step: blend a minibatch into the posterior."""

from __future__ import annotations

from typing import Any, NamedTuple

from sojourn.inference.backend import Backend
from sojourn.inference.bound import Bound
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.sources import RememberingSource
from sojourn.transitions import Rows


class StepInfo(NamedTuple):
    """What a step reports.

    Attributes
    ----------
    step_size : float
        ρ_n.
    n_sequences, n_steps : int
        Size of the minibatch.
    log_normalizer : float
        Σ log Z of the minibatch under the potentials before the step.
    bound : float or None
        Objective, estimated on the minibatch, on request.
    """

    step_size: float
    n_sequences: int
    n_steps: int
    log_normalizer: float
    bound: float | None = None


Memory = RememberingSource[BatchSums]


def step(
    problem: Problem,
    posterior: Posterior,
    batch: Any,
    backend: Backend,
    *,
    bound: Bound | None = None,
    memory: Memory | None = None,
) -> StepInfo:
    """Update the posterior with one minibatch, eq (3).

    Everything that can fail happens before the posterior changes.

    Parameters
    ----------
    posterior : Posterior
        Changed in place.
    batch : object
        The minibatch, as the backend's `batches` yields it.
    bound : Bound, optional
        Bound to report; None saves its cost.
    memory : RememberingSource, optional
        Earlier statistics of the minibatch.  They are subtracted from the posterior first, and
        replaced by the new ones.
    """
    family, total = problem.family, problem.total_sequences
    squares = posterior.transitions.wants_squares(total)
    n_update = posterior.n_updates + 1
    divergence = 0.0 if bound is None else bound.divergence(posterior.fetched(), family)
    known = None if memory is None else memory.recall()
    posterior.exchange(known, None, counts=family.statistics_are_counts)
    try:
        sums = backend.step(
            problem,
            posterior,
            batch,
            # What was subtracted is replaced completely.
            rates=None if known is None else (1.0, 1.0),
            squares=squares,
            entropy=bound is not None and bound.needs_entropy,
        )
    except BaseException:
        posterior.exchange(None, known)
        raise
    _observe(problem, posterior, sums, backend)
    if problem.objective.point:
        posterior.sharpen(family)
    value = None
    if bound is not None and memory is None:
        copies = problem.copies(sums.n_sequences, sums.n_steps)
        value = bound.compute(posterior.fetched(), family, sums.fetched(), copies) - divergence
    if memory is not None:
        sums.squares = None
        memory.remember(sums)
    step_size = problem.schedule(n_update) if known is None else 1.0
    return StepInfo(step_size, sums.n_sequences, sums.n_steps, sums.log_normalizer, value)


def _observe(problem: Problem, posterior: Posterior, sums: BatchSums, backend: Backend) -> None:
    """Update the priors on symbols and on transitions."""
    if posterior.emissions.prior is not None:
        posterior.emissions.prior.observe(
            sums.emissions,
            posterior.emissions,
            n_sequences=sums.n_sequences,
            n_steps=sums.n_steps,
            total_sequences=problem.total_sequences,
            n_threads=backend.n_threads,
        )
    posterior.transitions = posterior.transitions.observe(
        Rows(sums.start, sums.transitions),
        sums.squares,
        sums.n_sequences,
        problem.total_sequences,
        update=backend.updated,
    )
    posterior.n_updates += 1
