"""What states begin as that one is split into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sojourn.families import Family
from sojourn.inference.occupancy import state_masses
from sojourn.inference.posterior import Posterior
from sojourn.kernels.interface import Integers
from sojourn.sequences import Sequences
from sojourn.transitions import Rows


class SplitPlan(NamedTuple):
    """How states are split.

    Attributes
    ----------
    n_parts : int
        States that one is split into at most.
    n_steps : int
        Local steps that the parts get to become different.
    """

    n_parts: int
    n_steps: int

    @classmethod
    def of(cls, family: Family) -> SplitPlan:
        """Return the plan for a family: parts of a state of symbols begin at random."""
        return cls(3, 10) if family.statistics_are_counts else cls(2, 5)

    def room(self, n_states: int, most_states: int) -> int:
        """States to add: every state is split, as far as there may be so many."""
        return max(0, min((self.n_parts - 1) * n_states, most_states - n_states))


def split_posterior(
    posterior: Posterior,
    family: Family,
    runs: Callable[[int], Sequences | None],
    groups: list[list[int]],
    rng: np.random.Generator,
) -> Posterior:
    """Split states: emissions as a start with so many states has them, transitions alike.

    Symbols that occur together are a start, "segments", that some states cannot be told apart by;
    so half of the times each symbol is shared among the parts at random, as "exponential" does.

    Parameters
    ----------
    runs : callable
        Gives the steps that are in a state, as sequences; None for none.
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
    by_chance = family.statistics_are_counts and rng.random() < 0.5
    for group in groups:
        if by_chance:
            shares = rng.exponential(size=emissions[group].shape)
            emissions[group] *= len(group) * shares / shares.sum(axis=0)
        elif (own := runs(group[0])) is not None:
            parts = family.segment_statistics(own, len(group), float(mass[group[0]]), rng)
            emissions[group] = np.asarray(parts, dtype=np.float64)
    # A little noise tells the parts from one another where only their neighbours differ.
    start, transitions = (part * rng.uniform(0.8, 1.2, part.shape) for part in split.counts)
    return replace(
        split,
        counts=Rows(start, transitions),
        emissions=posterior.emissions.refilled(emissions),
    )


def runs_of(sequences: Sequences, path: Integers, state: int) -> Sequences | None:
    """Steps in a state, each unbroken run a sequence; None for less than four steps."""
    inside = path == state
    if inside.sum() < 4:
        return None
    begins = inside.copy()
    begins[1:] &= ~inside[:-1]
    begins[sequences.offsets[:-1]] |= inside[sequences.offsets[:-1]]
    starts = np.flatnonzero(begins[inside])
    return Sequences(sequences.values[inside], np.append(starts, int(inside.sum())))
