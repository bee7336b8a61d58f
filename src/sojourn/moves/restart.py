"""Restart transitions: keep the emissions, and learn the transitions again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sojourn.inference.occupancy import state_shares
from sojourn.moves.budget import pruned_work
from sojourn.moves.judge import Judge
from sojourn.moves.merge import prune
from sojourn.moves.settings import MoveSettings
from sojourn.transitions import Rows


def restart_transitions(judge: Judge) -> bool:
    """Forget which state follows which, eq (25), and merge what does not differ without that.

    Several states may stand for one by taking turns: no two of them can be merged without a loss,
    because the others' rows expect the turns.
    """
    settings, fitter = judge.settings, judge.fitter
    n_local = settings.long_proposal_steps
    n_most = n_local + settings.pruning_rounds
    if judge.unseen_states() or not judge.affords(judge.n_states, n_most, n_most):
        return False
    before = fitter.bench.fetch(judge.present.posterior)
    start, transitions = before.between
    shares = state_shares(before.counts)
    fresh_rows = np.outer(transitions.sum(axis=1), shares)
    fresh_rows[: judge.held] = transitions[: judge.held]
    counts = Rows(start.sum() * shares, fresh_rows)
    constraints = before.transitions.constraints
    if constraints is not None:
        chances = constraints.probabilities(counts)
        within = before.counts.transitions - transitions  # how long states last is not forgotten
        leaving = transitions.sum(axis=1, keepdims=True)
        counts = Rows(start.sum() * chances.start, leaving * chances.transitions + within)
    fresh = replace(before, counts=counts, transitions=before.transitions.refitted(counts))
    fitted = fitter.fit(fitter.bench.place(fresh), n_local, shared=True)
    proposed, n_local = prune(judge, fitted, n_local)
    return judge.decide("restart", [], proposed, n_local, None)


def restart_work(n_states: int, settings: MoveSettings) -> float:
    """Work per step of the sample to restart the transitions, and for the baseline."""
    return pruned_work(settings.long_proposal_steps, n_states, n_states, settings)
