"""Exchange states at a fixed number of them: one is split, and two others become one.

Where training ends with all states that are allowed, it may still be in a poor optimum: two states
share what one could explain, and another stands for two.  Neither a merge nor a split alone leads
out of it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sojourn.inference.posterior import Posterior
from sojourn.moves.judge import Move
from sojourn.moves.merge import Pair, merge_weights
from sojourn.moves.sample import Fit
from sojourn.moves.search import StateSearch
from sojourn.moves.split import runs_of
from sojourn.moves.workbench import longest
from sojourn.sequences import Sequences
from sojourn.transitions import Dirichlet, Rows


def exchange_states(
    search: StateSearch, posterior: Posterior, n_rounds: int, rng: np.random.Generator
) -> tuple[Posterior | None, list[Move]]:
    """Make the best exchange as long as it raises the bound, `n_rounds` times at most.

    It must gain more than a model may yet gain that counts as converged: others lead back.

    Returns
    -------
    posterior : Posterior or None
        With the statistics of the data of the search; None where no exchange raises the bound.
    moves : list of Move
        The best exchange of each round: the state that was split, and those that were merged.
    """
    n_steps, moves = search.fitter.settings.search_steps, list[Move]()
    present, found = search.stepped(posterior, n_steps), None
    least = search.tol * search.fitter.sample.n_steps * n_steps
    for _ in range(n_rounds):
        best = _best_exchange(search, present, rng)
        present = search.stepped(present.posterior, n_steps)
        if best is None:
            break
        fit, states = best
        gain, n_states = fit.bound - present.bound, posterior.n_states
        moves.append(Move("exchange", states, gain, 0.0, gain > least, n_states))
        if gain <= least:
            break
        present = fit
        found = fit.posterior
    return found, moves


def _best_exchange(
    search: StateSearch, present: Fit, rng: np.random.Generator
) -> tuple[Fit, list[list[int]]] | None:
    """Return the exchange with the highest bound, and its states: the split one, and the merged."""
    settings, n_states = search.fitter.settings, present.posterior.n_states
    trials: list[tuple[Fit, int, Pair]] = []
    for found, state in _best_splits(search, present, rng):
        more = search.stepped(found.posterior, settings.search_steps)
        for pair in search.candidates(more):
            if pair != (state, n_states):
                merged = more.posterior.regrouped(merge_weights(n_states + 1, [pair]))
                trials.append((search.stepped(merged, settings.search_screen_steps), state, pair))
    trials.sort(key=lambda trial: -trial[0].bound)
    finalists = [
        (search.stepped(found.posterior, settings.search_steps), [[state], list(pair)])
        for found, state, pair in trials[: settings.search_finalists]
    ]
    return max(finalists, key=lambda trial: trial[0].bound, default=None)


def _best_splits(
    search: StateSearch, present: Fit, rng: np.random.Generator
) -> list[tuple[Fit, int]]:
    """Return the splits with the highest bounds, and which states they split."""
    settings, bench = search.fitter.settings, search.fitter.bench
    whole = bench.fetch(present.posterior)
    sequences, path = bench.likely_states(present.posterior, longest(search.fitter.sample.fitted))
    trials = []
    for state in range(whole.n_states):
        own = runs_of(sequences, path, state, 2 * settings.split_min_steps)
        if own is not None:
            parts = split_by_runs(search, whole, state, own, rng)
            fit = search.stepped(bench.place(parts), settings.search_screen_steps)
            trials.append((fit, state))
    trials.sort(key=lambda trial: -trial[0].bound)
    return trials[: settings.search_finalists]


def split_by_runs(
    search: StateSearch, whole: Posterior, state: int, own: Sequences, rng: np.random.Generator
) -> Posterior:
    """Split a state into the two of a model of its runs, which costs little to learn.

    At first they follow each other as rarely as the state is left.  Runs are entered and left as
    that model begins.
    """
    fitter, n_states, n_steps = search.fitter, whole.n_states, float(own.n_steps)
    row = whole.counts.transitions[state]
    leave = 1.0 - row[state] / max(row.sum(), 1e-300)
    changes = np.array([[1.0 - leave, leave], [leave, 1.0 - leave]])
    parts = fitter.family.segment_statistics(own, 2, n_steps, rng)
    two = Posterior(
        Rows(np.full(2, len(own) / 2.0), n_steps / 2.0 * changes),
        whole.emissions.refilled(np.asarray(parts, dtype=np.float64)),
        Dirichlet.make(2, None, 1.0),
    )
    bench, settings = fitter.bench, fitter.settings
    alone = StateSearch.on(own, bench, 2, search.tol, settings)
    two = bench.fetch(alone.stepped(bench.place(two), settings.search_steps).posterior)
    group = [state, n_states]
    weights = np.eye(n_states + 1, n_states)
    weights[group, state] = 0.5
    split = whole.regrouped(weights)
    emissions = split.emissions.dense().astype(np.float64)
    mass = whole.counts.start[state] + whole.counts.transitions[:, state].sum()
    emissions[group] = mass / n_steps * two.emissions.dense()
    begins = two.counts.start / two.counts.start.sum()
    start, transitions = (np.array(part, dtype=np.float64) for part in split.counts)
    start[group] = start[group].sum() * begins
    within = transitions[np.ix_(group, group)].sum()
    transitions[:, group] = transitions[:, group].sum(axis=1, keepdims=True) * begins
    transitions[group] = begins[:, None] * transitions[group].sum(axis=0)
    own_changes = two.counts.transitions + 1.0
    transitions[np.ix_(group, group)] = within * own_changes / own_changes.sum()
    return replace(
        split,
        counts=Rows(start, transitions),
        emissions=whole.emissions.refilled(emissions),
    )
