"""Delete states: small ones, and ones between others."""

from __future__ import annotations

import numpy as np

from sojourn.inference.occupancy import state_masses, state_shares
from sojourn.moves.judge import Judge


def delete_small(judge: Judge) -> None:
    """Delete small states, whose steps then go to the others."""
    settings = judge.settings
    refused: set[int] = set()
    while len(refused) < settings.max_refusals:
        shares = state_shares(judge.present.posterior.counts)
        kept = refused | judge.unseen_states() | needed_states(judge)
        kept |= set(range(judge.held))
        by_mass = [int(k) for k in np.argsort(shares, kind="stable") if k not in kept]
        small = [k for k in by_mass if shares[k] < settings.small_share]
        if not small or judge.n_states == 1:
            return
        weights = np.delete(np.eye(judge.n_states), small[0], axis=0)
        if (tried := judge.fit_regrouped(weights)) is None:
            return
        if judge.decide("delete", [[small[0]]], *tried, weights):
            refused.clear()
        else:
            refused.add(small[0])


def dissolve(judge: Judge) -> None:
    """Delete a state that lies between others, and has steps of theirs.

    It is one with the largest shared entropy per step.  The sample says where its steps go.
    """
    shared = judge.present.shared
    assert shared is not None
    if judge.unseen_states() or judge.n_states == 1:
        return
    n_local = judge.settings.long_proposal_steps
    masses = np.maximum(state_masses(judge.present.posterior.counts), 1e-300)
    uncertainty = (shared + shared.T).sum(axis=1) / masses
    needed, most = needed_states(judge), judge.settings.max_refusals
    needed |= set(range(judge.held))
    ranked = [int(k) for k in np.argsort(-uncertainty, kind="stable") if k not in needed]
    for state in ranked[:most]:
        weights = np.delete(np.eye(judge.n_states), state, axis=0)
        if not judge.affords(len(weights), n_local, n_local):
            return
        begin = judge.present.posterior.regrouped(weights)
        proposed = judge.fitter.fit(begin, n_local, shared=True)
        if judge.decide("delete", [[state]], proposed, n_local, None):
            return


def needed_states(judge: Judge) -> set[int]:
    """Return the states that constraints on the transitions do not let the others do without."""
    constraints = judge.present.posterior.transitions.constraints
    if constraints is None:
        return set()
    return {k for k in range(judge.n_states) if not constraints.may_delete(k)}
