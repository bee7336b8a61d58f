"""A local step on all the data, whose sums say what a change of the states would gain."""

from __future__ import annotations

from collections.abc import Callable

from sojourn.inference.backend import Backend
from sojourn.inference.occupancy import state_masses
from sojourn.inference.posterior import Posterior
from sojourn.inference.problem import Problem
from sojourn.inference.statistics import BatchSums
from sojourn.sources import Minibatches

SHARED_STEPS = 2**14
"""Approximate number of steps used for the entropies that pairs of states share."""

Survey = Callable[[Posterior], BatchSums]
"""Returns the sums of all the data under a posterior, which it does not change."""


def survey(
    problem: Problem, posterior: Posterior, source: Minibatches, backend: Backend, n_pass: int
) -> BatchSums:
    """Take a local step on every minibatch of a pass, and add the sums up, eq (67).

    They have what the bound and merges need beside the counts: entropies, those that pairs of
    states share, and how far the counts may be from their expectations.

    Parameters
    ----------
    n_pass : int
        The pass whose minibatches they are, counted from 0.  All the data are in any pass.
    """
    n_steps = float(state_masses(posterior.counts).sum())
    shared = max(1, round(n_steps) // SHARED_STEPS)
    total: BatchSums | None = None
    for batch in backend.pieces(problem, source, posterior.n_states, n_pass):
        part = backend.statistics(
            posterior, problem.family, problem.objective, batch, entropy=True, shared=shared
        )
        total = part if total is None else total.__iadd__(part)
    backend.finish_pass()
    assert total is not None, "a source has at least one minibatch"
    return total
