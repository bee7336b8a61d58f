"""Where training begins if some steps are labelled: with the statistics of those."""

from __future__ import annotations

import numpy as np

from sojourn.families import Family
from sojourn.inference import Statistics
from sojourn.inference.local import CHUNK_STEPS
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences


def labelled_start(drawn: Statistics, family: Family, data: Sequences) -> Statistics:
    """Replace what was drawn for states that have labelled steps by counts of these.

    With few of them the predictive densities of such a state are broad, and steps without a label
    go to the state that they resemble most.  Its transitions to and from states without labels
    stay as they were drawn, in proportion.
    """
    n_states = len(drawn.start)
    start, transitions = np.zeros(n_states), np.zeros((n_states, n_states))
    emissions, seen = np.zeros(drawn.emissions.shape), np.zeros(n_states)
    for chunk in data.chunks(CHUNK_STEPS):
        assert chunk.labels is not None
        codes, table = chunk.labels.compact(n_states)
        single = np.where((table > 0.0).sum(axis=1) == 1, table.argmax(axis=1), -1)
        states = single[codes]
        known = states >= 0
        if not known.any():
            continue
        firsts = states[chunk.offsets[:-1]]
        np.add.at(start, firsts[firsts >= 0], 1.0)
        inside = np.ones(len(states), dtype=bool)
        inside[chunk.offsets[:-1]] = False
        inside[1:] &= known[1:] & known[:-1]
        inside[0] = False
        later = np.flatnonzero(inside)
        np.add.at(transitions, (states[later - 1], states[later]), 1.0)
        responsibilities = np.zeros((len(states), n_states))
        responsibilities[np.flatnonzero(known), states[known]] = 1.0
        encoded = family.encode(chunk)
        if family.latent:  # nothing is known yet about the unknowns of steps
            emissions += family.start_sums(encoded, responsibilities, np.random.default_rng(0)).T
        else:
            emissions += family.sum_statistics(encoded, responsibilities, n_threads=1).dense().T
        seen += responsibilities.sum(axis=0)
    return _replaced(drawn, Statistics(start, transitions, emissions), seen)


def _replaced(drawn: Statistics, own: Statistics, mass: Floats) -> Statistics:
    seen = mass > 0.0
    if not seen.any():
        return drawn
    # Other states begin with as little: they would take every step if they knew more.
    total = drawn.start.sum() + drawn.transitions.sum()
    scale = mass[seen].mean() * len(seen) / total
    emissions = np.where(seen[:, None], own.emissions, scale * drawn.emissions)
    if seen.all():
        return Statistics(own.start, own.transitions, emissions)
    # A row that labels know keeps as much of what was drawn as there are other states.
    share = np.where(seen, 1.0, 0.0).sum() / len(seen)
    rows = np.maximum(own.transitions.sum(axis=1), 1.0)
    other = drawn.transitions / drawn.transitions.sum(axis=1, keepdims=True)
    mixed = share * own.transitions + (1.0 - share) * rows[:, None] * other
    transitions = np.where(seen[:, None], mixed, scale * drawn.transitions)
    total = max(1.0, float(own.start.sum()))
    start = share * own.start + (1.0 - share) * total * drawn.start / drawn.start.sum()
    return Statistics(start, transitions, emissions)
