"""Merges judged by the evidence of the whole stream: its counts, and a sample's entropies.

A sample of much data is a smaller data set, in which fewer states can be told apart.  But what a
merge is sure to gain, eq (22), depends on the counts, which the running statistics have of all the
data, and on how uncertain it is which of two states a step is in, which a sample tells per step.
"""

from __future__ import annotations

import numpy as np

from sojourn.inference.occupancy import state_masses
from sojourn.kernels.arrays import to_host
from sojourn.kernels.interface import Floats
from sojourn.moves.budget import search_work
from sojourn.moves.judge import Judge, Verdict
from sojourn.moves.merge import successive_merges


def merge_in_stream(judge: Judge) -> None:
    """Make all merges that are sure to gain in the whole stream.

    Sequences that were trained on cannot check it: they prefer more states than fresh ones do.
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
