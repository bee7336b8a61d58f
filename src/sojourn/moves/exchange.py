"""Exchange states at a fixed number of them: one is split, and two others become one.

Where training ends with all states that are allowed, it may still be in a poor optimum: two states
share what one could explain, and another stands for two.  Neither a merge nor a split alone leads
out of it.  Where it ends with fewer, a split alone may.
"""

from __future__ import annotations

import numpy as np

from sojourn.families import Family
from sojourn.inference.backend import LocalBackend
from sojourn.inference.posterior import Posterior
from sojourn.moves.judge import Move
from sojourn.moves.pairs import Pair, merge_weights
from sojourn.moves.sample import Fit
from sojourn.moves.search import StateSearch
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import Workbench
from sojourn.random_state import SPLIT_STREAM
from sojourn.sequences import Sequences


def exchange_on(
    data: Sequences,
    posterior: Posterior,
    family: Family,
    backend: LocalBackend,
    n_rounds: int,
    tol: float,
    settings: MoveSettings,
    seed: int,
    *,
    most_states: int = 0,
) -> tuple[Posterior | None, list[Move]]:
    """Split states of a model on these data up to `most_states`; at that number, exchange them.

    See `split_in_turn` and `exchange_states`.
    """
    n_most = max(posterior.n_states + 1, most_states)
    bench = Workbench(family, backend).for_states(n_most)
    search = StateSearch.on(data, bench, n_most, tol, settings)
    rng = np.random.default_rng([seed, SPLIT_STREAM])
    placed = bench.place(posterior)
    if posterior.n_states < most_states:
        found, moves = split_in_turn(search, placed, rng)
    else:
        found, moves = exchange_states(search, placed, n_rounds, rng)
    bench.check()
    return found, moves


def split_in_turn(
    search: StateSearch, posterior: Posterior, rng: np.random.Generator
) -> tuple[Posterior | None, list[Move]]:
    """Make the best split as long as it raises the bound and there may be more states.

    Returns
    -------
    posterior : Posterior or None
        With the statistics of the data of the search; None where no split raises the bound.
    moves : list of Move
        The best split of each round.
    """
    settings, moves = search.fitter.settings, list[Move]()
    present, found = search.stepped(posterior, settings.search_steps), None
    while present.posterior.n_states < search.fitter.most_states:
        trials = search.splits(present, rng)[:1]
        present = search.stepped(present.posterior, settings.search_screen_steps)
        for fit, state in trials:
            gain, n_states = fit.bound - present.bound, present.posterior.n_states
            accepted = gain > search.least_of_another
            moves.append(Move("split", [[state]], gain, 0.0, accepted, n_states + accepted))
        if not trials or not accepted:
            break
        present = search.stepped(fit.posterior, settings.search_steps)
        found = present.posterior
    return found, moves


def exchange_states(
    search: StateSearch, posterior: Posterior, n_rounds: int, rng: np.random.Generator
) -> tuple[Posterior | None, list[Move]]:
    """Make the best exchange as long as it raises the bound, `n_rounds` times at most.

    It must gain more than a model may yet gain that counts as converged, since others lead back,
    and more than one nat.

    Returns
    -------
    posterior : Posterior or None
        With the statistics of the data of the search; None where no exchange raises the bound.
    moves : list of Move
        The best exchange of each round: the state that was split, and those that were merged.
    """
    n_steps, moves = search.fitter.settings.search_steps, list[Move]()
    least = search.least_of_another
    present, found = search.stepped(posterior, n_steps), None
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
    for found, state in search.splits(present, rng)[: settings.search_finalists]:
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
