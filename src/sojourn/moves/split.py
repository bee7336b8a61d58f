"""Split states: how many, what their parts begin with, and the proposal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.occupancy import state_masses, state_shares
from sojourn.inference.posterior import Posterior
from sojourn.kernels.interface import Integers
from sojourn.moves.budget import pruned_work
from sojourn.moves.judge import Judge
from sojourn.moves.merge import prune
from sojourn.moves.settings import MoveSettings
from sojourn.moves.workbench import longest
from sojourn.sequences import Sequences
from sojourn.transitions import Rows


class SplitPlan(NamedTuple):
    """How states are split.

    Attributes
    ----------
    n_parts : int
        States that one is split into at most.
    n_local : int
        Local steps that the parts get to become different.
    """

    n_parts: int
    n_local: int

    @classmethod
    def of(cls, family: Family, settings: MoveSettings) -> SplitPlan:
        """Return the plan for a family: parts of a state of symbols may begin at random."""
        if family.statistics_are_counts:
            return cls(settings.split_parts_symbols, settings.split_steps_symbols)
        return cls(settings.split_parts, settings.split_steps)

    def room(self, n_states: int, most_states: int) -> int:
        """Number of states to add: every state is split, as far as `most_states` allows."""
        return max(0, min((self.n_parts - 1) * n_states, most_states - n_states))

    def work(self, n_states: int, room: int, settings: MoveSettings) -> float:
        """Work per step of the sample to add `room` states by splits, including the baseline."""
        return pruned_work(self.n_local, n_states, n_states + room, settings)


def split_posterior(
    posterior: Posterior,
    family: Family,
    runs: Callable[[int], Sequences | None],
    groups: list[list[int]],
    rng: np.random.Generator,
    settings: MoveSettings,
) -> Posterior:
    """Split states: emissions as a start with so many states has them, transitions alike.

    Segments of the data give parts symbols that occur together, by which some states cannot be
    distinguished; so half of the time each symbol is shared among the parts at random.

    Parameters
    ----------
    runs : callable
        Returns the steps in a state, as sequences; None if there are too few.
    groups : list of lists of int
        A state, and the numbers of those to be split off from it.
    """
    n_states = posterior.n_states
    weights = np.eye(n_states + sum(len(group) - 1 for group in groups), n_states)
    for group in groups:
        weights[group] = 0.0
        weights[group, group[0]] = 1.0 / len(group)
    split = posterior.regrouped(weights)
    emissions = split.emissions.dense().astype(np.float64)
    mass = state_masses(posterior.counts)
    by_chance = family.statistics_are_counts and rng.random() < settings.split_random_share
    for group in groups:
        if by_chance:
            shares = rng.exponential(size=emissions[group].shape)
            emissions[group] *= len(group) * shares / shares.sum(axis=0)
        elif (own := runs(group[0])) is not None:
            parts = family.segment_statistics(own, len(group), float(mass[group[0]]), rng)
            emissions[group] = np.asarray(parts, dtype=np.float64)
    # A little noise distinguishes the parts where only their neighbours differ.
    low, high = 1.0 - settings.split_noise, 1.0 + settings.split_noise
    start, transitions = (part * rng.uniform(low, high, part.shape) for part in split.counts)
    return replace(
        split,
        counts=Rows(start, transitions),
        emissions=posterior.emissions.refilled(emissions),
    )


def runs_of(sequences: Sequences, path: Integers, state: int, min_steps: int) -> Sequences | None:
    """Return the steps in a state, each unbroken run a sequence; None if they are too few."""
    inside = path == state
    if inside.sum() < min_steps:
        return None
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    begins[sequences.offsets[:-1]] |= inside[sequences.offsets[:-1]]
    starts = np.flatnonzero(begins[inside])
    return Sequences(sequences.values[inside], np.append(starts, int(inside.sum())))


def split_states(judge: Judge, rng: np.random.Generator, *, growing: bool = False) -> bool:
    """Split states, large ones more likely, and merge again what does not differ.

    What a merge is sure to gain, or nearly, says which of the states then differ.  The number of
    states need not grow, except in a model that is growing: other states may be better ones.
    """
    settings, fitter, n_states = judge.settings, judge.fitter, judge.n_states
    plan = SplitPlan.of(judge.family, settings)
    room = plan.room(n_states, fitter.most_states)
    n_most = plan.n_local + settings.pruning_rounds
    while room > 0 and not judge.affords(n_states + room, n_most, n_most):
        room //= 2
    if room <= 0 or judge.unseen_states():
        return False
    # Empty states cannot be chosen, and are not worth it.
    shares = state_shares(judge.present.posterior.counts)
    if judge.held:
        shares[: judge.held] = 0.0
        if not shares.any():
            return False
        shares /= shares.sum()
    n_split = min(room, int((shares > 0.0).sum()))
    chosen = rng.choice(n_states, n_split, replace=False, p=shares)
    groups = [[int(k)] for k in chosen]
    for n in range(room):
        groups[n % n_split].append(n_states + n)
    # New parts are drawn from data in memory, wherever else things are computed.
    whole = fitter.bench.fetch(judge.present.posterior)
    parts = split_posterior(whole, judge.family, _runs(judge), groups, rng, settings)
    fitted = fitter.fit(fitter.bench.place(parts), plan.n_local, shared=True)
    proposed, n_local = prune(judge, fitted, plan.n_local)
    wanted = not growing or proposed.posterior.n_states > n_states
    states = [[group[0]] for group in groups]
    return judge.decide("split", states, proposed, n_local, None, wanted=wanted)


def _runs(judge: Judge) -> Callable[[int], Sequences | None]:
    """Return a function that gives the steps of a state, each unbroken run a sequence."""
    chunk = longest(judge.sample.fitted)
    sequences, path = judge.fitter.bench.likely_states(judge.present.posterior, chunk)
    return lambda state: runs_of(sequences, path, state, judge.settings.split_min_steps)
