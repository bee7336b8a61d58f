"""How long states last at first, where sequences are long: as suits a sample of the data best.

Transitions at random change the state at almost every step.  From there, states of a recording
that stays in each of them for long end in poor optima, which differ in what is seen and not in
when.  From transitions that stay, data whose states change at every step end in poor ones.  So a
few are tried.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sojourn.backends.cpu import CpuBackend
from sojourn.families import Family
from sojourn.inference.posterior import Posterior
from sojourn.kernels import cpu
from sojourn.models import plan
from sojourn.moves.sample import Sample, SampleFitter
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import Workbench
from sojourn.sequences import Sequences
from sojourn.transitions import Rows


def with_persistence(
    posterior: Posterior, family: Family, data: Sequences, n_threads: int, dtype: str
) -> Posterior:
    """Return the posterior with transitions that stay as often as suits the data best.

    Every share of `sojourn.models.plan.STAYING` is given some full batches of pieces of the data,
    and the one with the highest bound is taken.
    """
    n_states, settings = posterior.n_states, MoveSettings()
    bench = Workbench(family, CpuBackend(cpu, n_threads, dtype)).for_states(n_states)
    pieces = spread_pieces(data)
    sample = Sample.draw([pieces], pieces.n_steps, len(pieces), bench, n_states, settings)
    fitter = SampleFitter(sample, bench, settings, np.inf, n_states)
    starts = [staying(posterior, share) for share in plan.STAYING]
    bounds = [fitter.fit(start, plan.STAYING_STEPS).bound for start in starts]
    return starts[int(np.argmax(bounds))]


def staying(posterior: Posterior, share: float) -> Posterior:
    """Return the posterior with a share of its transitions moved to staying, even for all states.

    Examples
    --------
    >>> from sojourn.families.table import DecayedTable
    >>> from sojourn.transitions import Dirichlet
    >>> drawn = Posterior(
    ...     Rows(np.ones(2), np.array([[1.0, 3.0], [2.0, 2.0]])),
    ...     DecayedTable(np.ones((2, 3)), "float64"),
    ...     Dirichlet.make(2, None, 1.0),
    ... )
    >>> staying(drawn, 0.5).counts.transitions
    array([[2.5, 1.5],
           [1. , 3. ]])
    """
    start, rows = posterior.counts
    n_states = len(start)
    counts = Rows(start, (1.0 - share) * rows + share * rows.sum() / n_states * np.eye(n_states))
    constraints = posterior.transitions.constraints
    if constraints is not None:
        counts = constraints.conformed(counts)
    return replace(posterior, counts=counts)


def spread_pieces(data: Sequences) -> Sequences:
    """Return pieces from all over the data, each within a sequence.

    Examples
    --------
    >>> data = Sequences(np.arange(10**6), np.array([0, 10**6]))
    >>> pieces = spread_pieces(data)
    >>> len(pieces), pieces.n_steps, pieces[1][:3]
    (32, 32768, array([31250, 31251, 31252]))
    """
    begins = np.linspace(0, data.n_steps, plan.STAYING_PIECES, endpoint=False).astype(np.int64)
    ends = data.offsets[np.searchsorted(data.offsets, begins, side="right")]
    ends = np.minimum(begins + plan.STAYING_PIECE, ends)
    begins[1:] = np.maximum(begins[1:], np.maximum.accumulate(ends)[:-1])
    begins, ends = begins[ends > begins], ends[ends > begins]
    steps = np.concatenate([np.arange(*span) for span in zip(begins, ends, strict=True)])
    return Sequences(data.values[steps], np.concatenate([[0], np.cumsum(ends - begins)]))
