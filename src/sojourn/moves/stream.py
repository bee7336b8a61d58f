"""Merges judged by the evidence of the whole stream, where it is more than a sample stands for.

A sample of much data is a smaller data set, in which fewer states can be told apart.  Therefore
merges are found and judged by a local step on all the data, before and after: its sums add up over
the minibatches of a pass, wherever these are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from sojourn.inference.backend import Chunk
from sojourn.inference.occupancy import state_masses
from sojourn.inference.posterior import Posterior
from sojourn.inference.statistics import BatchSums
from sojourn.inference.survey import Survey
from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import Floats
from sojourn.moves.budget import search_work
from sojourn.moves.entropies import EntropyEstimate
from sojourn.moves.judge import Judge, Verdict
from sojourn.moves.left_out import can_leave_out, left_out_likelihoods
from sojourn.moves.merge import merge_states
from sojourn.moves.pairs import MergedStates, successive_merges
from sojourn.moves.sample import SampleFitter
from sojourn.moves.workbench import Workbench
from sojourn.sequences import Sequences

_LEFT_OUT_STEPS = 2**16  # of the sample: their likelihood is known to about 0.001 nats a step


@dataclass(frozen=True)
class StreamBench(Workbench):
    """A workbench on which there is all the data, and nothing else.

    Attributes
    ----------
    of_all : Survey
        Takes a local step on them.
    some : Sequences
        A sample of them, which tells how well new data would be predicted.
    beside : Workbench
        Where these are computed.
    """

    of_all: Survey
    some: Sequences
    beside: Workbench

    def chunks(self, data: Sequences, n_states: int) -> list[Chunk]:
        """Return nothing: minibatches of the stream come one by one."""
        return []

    def statistics(
        self,
        posterior: Posterior,
        chunks: list[Chunk],
        *,
        entropy: bool = False,
        shared: int = 0,
    ) -> BatchSums:
        """Compute expected statistics of all the data, eqs (1) and (2)."""
        return self.of_all(posterior)

    def uncertain(self, sums: BatchSums) -> Floats | None:
        """Return how far the emission statistics may be from E[t], by state, (C, K, U)."""
        assert sums.uncertainty is not None
        dense = sums.uncertainty.emissions.dense()
        xp, n_states = namespace(dense), len(sums.start)
        parts = xp.astype(dense, "float64").reshape(len(dense), -1, n_states)
        by_state: Floats = xp.ascontiguousarray(xp.transpose(parts, (1, 2, 0)))
        return by_state

    def left_out(self, posterior: Posterior, weights: Floats | None = None) -> Floats:
        """Return the log likelihood of each sequence of the sample, without its own counts."""
        family, beside = self.family, self.beside
        if can_leave_out(family, posterior, self.some):
            n_threads = self.backend.n_threads
            return left_out_likelihoods(
                posterior, family, self.some, n_threads=n_threads, weights=weights
            )
        if weights is not None:
            posterior = posterior.regrouped(weights)
        chunks = beside.chunks(self.some, posterior.n_states)
        return beside.log_likelihoods(posterior, chunks)

    def entropies(
        self, parameters: Posterior, counts: Posterior
    ) -> Callable[[Floats], float] | None:
        """Return what estimates H(q(z)) of all the data from the sample, where it is known how."""
        if not can_leave_out(self.family, parameters, self.some):
            return None
        n_threads = self.backend.n_threads
        return EntropyEstimate(parameters, counts, self.family, self.some, n_threads=n_threads)

    def with_shapes(self, posterior: Posterior, data: Sequences) -> Posterior:
        """Return the posterior as it is: shapes are learned between passes."""
        return posterior


def merge_in_survey(judge: Judge, of_all: Survey, n_sequences: int) -> Judge:
    """Merge states by the bound of all the data; return the judge that has made the moves.

    One look at the stream is spared where even at best no merge would gain: by the counts of the
    stream, and the entropies that states share in the sample of `judge`.
    """
    if not _is_promising(judge):
        return judge
    surveyed = on_all_the_data(judge, of_all, n_sequences)
    merge_states(surveyed)
    return surveyed


def on_all_the_data(judge: Judge, of_all: Survey, n_sequences: int) -> Judge:
    """Return a judge for which all the data are the sample."""
    fitter, n_steps = judge.fitter, float(state_masses(judge.start.counts).sum())
    some = next(judge.sample.data.chunks(_LEFT_OUT_STEPS))
    whole = replace(
        judge.sample,
        fitted=[],
        held_out=[],
        n_sequences=n_sequences,
        n_steps=round(n_steps),
        held_out_steps=some.n_steps,
        copies=1.0,
        stands_for_all=True,
        is_all=True,
    )
    bench = StreamBench(fitter.family, fitter.bench.backend, of_all, some, fitter.bench)
    on_all = SampleFitter(
        whole, bench, fitter.settings, fitter.budget, fitter.most_states, fitter.overhead_steps
    )
    return Judge.begin(on_all, judge.start, judge.held_out_change, judge.held_out_variance)


def _is_promising(judge: Judge) -> bool:
    """Whether the evidence of the stream would rise by a merge, if it took no entropy away."""
    states = MergedStates.of(judge.family, judge.start, stream_entropies(judge), judge.settings)
    return bool((states.gains + states.entropy_bounds >= 0.0).any())


def merge_in_stream(judge: Judge) -> None:
    """Make all merges that are sure to gain in the whole stream, where it cannot be seen again.

    The entropies that states share are those of the sample.  Sequences that were trained on cannot
    check it: they prefer more states than fresh ones do.
    """
    family, settings = judge.family, judge.settings
    judge.fitter.spend(search_work(judge.n_states, family.n_statistics, settings))
    gain, groups, states = 0.0, None, []
    kept, shared = judge.unseen_states(), stream_entropies(judge)
    for merge in successive_merges(family, judge.start, shared, settings, kept):
        if merge.gain <= 0.0:
            break
        gain, groups, states = gain + merge.gain, merge.groups, merge.states
    if groups is not None:
        merged = judge.present._replace(posterior=judge.start.regrouped(groups))
        verdict = Verdict(gain, 0.0, judge.held_out_variance, is_safe=True)
        judge.accept(merged, verdict, groups)
        judge.record("merge", states, verdict, accepted=True)


def stream_entropies(judge: Judge) -> Floats:
    """Return the entropies that pairs of states share in all the data, eq (22).

    That per step in either state is the sample's; the number of steps is the stream's.
    """
    shared = judge.present.shared
    assert shared is not None
    own, whole = (
        to_host(state_masses(posterior.counts))
        for posterior in (judge.present.posterior, judge.start)
    )
    own_pairs, pairs = (masses[:, None] + masses for masses in (own, whole))
    return shared * pairs / np.maximum(own_pairs, 1e-300)
