"""Several starts, trained at once with full batches; the best of them goes on.

All starts see the same steps.  A family computes potentials and sums of states one by one, so that
the states of all starts are those of one large table; the recursions have a lane for each start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from sojourn.families import Family
from sojourn.families.base import CompiledPasses
from sojourn.families.table import DecayedTable, RowSums
from sojourn.inference.backend import Chunk
from sojourn.inference.posterior import Posterior
from sojourn.inference.progress import Position, Progress
from sojourn.kernels.cpu.lanes import LANES
from sojourn.kernels.cpu.together import Sweeps
from sojourn.kernels.interface import NARROW, Floats, Potentials
from sojourn.transitions import Dirichlet, Rows, Transitions

_DTYPE = "float64"  # of potentials and statistics of all starts

SAME_OPTIMUM = 1.0
"""Difference of log evidence, in nats, that is worth no more than a mention, as Kass and Raftery
(1995) put it: smaller ones tell no optimum from another.  No experiment."""


def may_train_together(
    family: Family, transitions: Transitions, n_states: int, n_starts: int
) -> bool:
    """Whether so many starts can be trained at once: emission priors of states must not differ."""
    return (
        1 < n_starts <= LANES
        and n_states <= NARROW
        and isinstance(transitions, Dirichlet)
        and transitions.constraints is None
        and family.prior().ndim == 1
    )


class BestStart(NamedTuple):
    """The start with the highest likelihood.

    Attributes
    ----------
    posterior : Posterior
    position : Position
        From where training can go on.
    is_alone : bool
        Whether no other start came as far, to within a nat: then there may be better ones.
    """

    posterior: Posterior
    position: Position
    is_alone: bool = True


def best_start(
    family: Family,
    starts: Sequence[Posterior],
    chunk: Chunk,
    *,
    n_passes: int,
    compare_after: int,
    tol: float,
    alone: bool = False,
    n_threads: int = 1,
    callback: Callable[[Progress], None] | None = None,
) -> BestStart:
    """Train from several starts with full batches; return the one with the highest likelihood.

    Parameters
    ----------
    family : Family
    starts : sequence of Posterior
        With `Dirichlet` priors on transitions; not changed.
    chunk : Chunk
        All of the data.
    n_passes : int
        Passes at most.
    compare_after : int
        Passes after which the starts are compared; those that converge before take no more.
    tol : float
        Rise of the log likelihood, in nats per step, below which a start has converged.
    alone : bool
        Whether the best start takes more passes here, until it converges.
    n_threads : int
    callback : callable, optional
        Called as in `train`.
    """
    begun, steps = time.perf_counter(), chunk.sequences.n_steps
    runs, seen = _Runs.of(starts), _Seen.of(family, chunk)
    before: Floats = np.full(len(starts), -np.inf)
    best: _Found | None = None
    ends: list[float] = []
    history: list[Progress] = []
    for n_pass in range(1, n_passes + 1):
        sums = runs.swept(family, seen, n_threads)
        runs, now = runs.after(sums), sums.log_likelihoods
        history.append(_progress(chunk, n_pass, begun, starts[0].n_states))
        if callback is not None:
            for _ in ("update", "pass"):
                callback(history[-1])
        converged = ~(now - before >= tol * steps)  # also where the likelihood is no number
        ended = converged | (n_pass == n_passes)
        if n_pass == compare_after:
            ended |= ~(now == now[~ended].max(initial=-np.inf)) if alone else True
            ends.extend(now[~ended])
        if n_pass <= compare_after:
            ends.extend(now[ended])
        for lane in map(int, np.flatnonzero(ended & np.isfinite(now))):
            if best is None or now[lane] > best.log_likelihood:
                best = _Found(runs, lane, bool(converged[lane]), float(now[lane]), n_pass)
        if ended.all():
            break
        before = now[~ended]
        if ended.any():
            runs = runs.only(np.flatnonzero(~ended))
    if best is None:  # the loop that computes step by step may still find a path
        return BestStart(starts[0], Position())
    last = history[best.n_pass - 1]
    position = Position(
        best.n_pass,
        sequences=last.sequences,
        steps=last.steps,
        updates=last.updates,
        seconds=history[-1].seconds,
        history=tuple(history[: best.n_pass]),
        log_likelihood=best.log_likelihood,
        converged=best.converged,
    )
    is_alone = (np.array(ends) > np.nanmax(ends) - SAME_OPTIMUM).sum() < 2
    return BestStart(
        best.runs.posterior(best.lane, starts[0], best.n_pass), position, bool(is_alone)
    )


def _progress(chunk: Chunk, n_pass: int, begun: float, n_states: int) -> Progress:
    """Return the report of a pass, which is one update."""
    return Progress(
        passes=float(n_pass),
        sequences=n_pass * len(chunk.sequences),
        steps=n_pass * chunk.sequences.n_steps,
        updates=n_pass,
        seconds=time.perf_counter() - begun,
        score=None,
        states=n_states,
    )


class _Found(NamedTuple):
    """A start that takes no more passes: where it is, and how far it came."""

    runs: _Runs
    lane: int
    converged: bool
    log_likelihood: float
    n_pass: int


class _Seen(NamedTuple):
    """The data of all passes, and what goes through them."""

    encoded: Any
    sweeps: Sweeps
    compiled: CompiledPasses | None

    @classmethod
    def of(cls, family: Family, chunk: Chunk) -> Self:
        """Prepare passes over a chunk."""
        offsets = chunk.sequences.offsets
        return cls(chunk.encoded, Sweeps(offsets), family.compiled_passes(chunk.encoded, offsets))


class _Sums(NamedTuple):
    """Sums of a pass: log Z (M,), E[C_0] (K, M), E[C] (K, K, M), and of emissions."""

    log_likelihoods: Floats
    start: Floats
    transitions: Floats
    emissions: Any


@dataclass(frozen=True)
class _Runs:
    """Posteriors of M runs: number k M + m of the table's states is state k of run m."""

    prior: Rows
    start: Floats
    transitions: Floats
    emissions: DecayedTable

    @classmethod
    def of(cls, starts: Sequence[Posterior]) -> Self:
        """Put posteriors side by side."""
        transitions = starts[0].transitions
        assert isinstance(transitions, Dirichlet)
        n_states = starts[0].n_states
        statistics = np.stack([start.emissions.dense() for start in starts], axis=1)
        return cls(
            Rows(transitions.prior.start[:, None], transitions.prior.transitions[..., None]),
            np.stack([start.counts.start for start in starts], axis=-1),
            np.stack([start.counts.transitions for start in starts], axis=-1),
            DecayedTable(statistics.reshape(n_states * len(starts), -1), _DTYPE),
        )

    def swept(self, family: Family, seen: _Seen, n_threads: int) -> _Sums:
        """Compute the expected counts of all runs, eqs (1) and (2)."""
        if seen.compiled is not None:
            own = self.emissions.dense()
            found = seen.compiled.run(*self.prior, self.start, self.transitions, own)
            return _Sums(*found[:3], RowSums(None, found[3], len(found[3])))
        first, rows = self.prior.start + self.start, self.prior.transitions + self.transitions
        emitted = family.emission_rows(
            seen.encoded,
            self.emissions,
            collapsed=True,
            dtype=np.dtype(_DTYPE),
            n_threads=n_threads,
        )
        smoothed = seen.sweeps.smooth(
            Potentials(
                first / first.sum(axis=0),
                rows / rows.sum(axis=1, keepdims=True),
                emitted.table,
                emitted.log_scale,
            ),
            emitted.index,
        )
        emissions, _ = family.sum_given(
            seen.encoded,
            smoothed.responsibilities,
            self.emissions,
            collapsed=True,
            n_threads=n_threads,
        )
        return _Sums(*smoothed[:3], emissions)

    def after(self, sums: _Sums) -> Self:
        """Return what expected counts say, with step size one, eq (3)."""
        self.emissions.blend(sums.emissions, keep=0.0, weight=1.0)
        return replace(self, start=sums.start, transitions=sums.transitions)

    def only(self, lanes: Any) -> Self:
        """Return some of the runs."""
        n_states, n_runs = self.start.shape
        statistics = self.emissions.dense().reshape(n_states, n_runs, -1)[:, lanes]
        return replace(
            self,
            start=self.start[:, lanes],
            transitions=self.transitions[..., lanes],
            emissions=DecayedTable(statistics.reshape(n_states * len(lanes), -1), _DTYPE),
        )

    def posterior(self, lane: int, like: Posterior, n_updates: int) -> Posterior:
        """Return the posterior of a run."""
        own = self.only([lane])
        return Posterior(
            Rows(own.start[:, 0].copy(), own.transitions[..., 0].copy()),
            like.emissions.refilled(own.emissions.dense()),
            like.transitions,
            n_updates,
        )
