"""Where training begins if some steps are labelled: with the statistics of those."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sojourn.families import Family
from sojourn.inference import Statistics
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences

_STEPS = 2**13  # in a chunk, so that its responsibilities stay in the cache


def labelled_start(drawn: Statistics, family: Family, data: Sequences) -> Statistics:
    """Replace what was drawn for states that have labelled steps by counts of these.

    With few of them the predictive densities of such a state are broad, and steps without a label
    go to the state that they resemble most.  Its transitions to and from states without labels
    stay as they were drawn, in proportion.
    """
    n_states = len(drawn.start)
    start, transitions = np.zeros(n_states), np.zeros((n_states, n_states))
    emissions, seen = np.zeros(drawn.emissions.shape), np.zeros(n_states)
    alone = np.eye(n_states + 1, n_states)  # the last row, also that of −1, is for unknown states
    for chunk, states in _with_labels(data, n_states):
        known = states >= 0
        firsts = states[chunk.offsets[:-1]]
        start += np.bincount(firsts[firsts >= 0], minlength=n_states)
        inside = np.ones(len(states), dtype=bool)
        inside[chunk.offsets[:-1]] = False
        inside[1:] &= known[1:] & known[:-1]
        inside[0] = False
        later = np.flatnonzero(inside)
        pairs = n_states * states[later - 1] + states[later]
        transitions += np.bincount(pairs, minlength=n_states**2).reshape(n_states, n_states)
        responsibilities = np.take(alone, states, axis=0)
        encoded = family.encode(chunk)
        if family.latent:  # nothing is known yet about the unknowns of steps
            emissions += family.start_sums(encoded, responsibilities, np.random.default_rng(0)).T
        else:
            emissions += family.sum_statistics(encoded, responsibilities, n_threads=1).dense().T
        seen += np.bincount(states[known], minlength=n_states)
    return _replaced(drawn, Statistics(start, transitions, emissions), seen)


def _with_labels(data: Sequences, n_states: int) -> Iterator[tuple[Sequences, Integers]]:
    """Yield sequences with labels of one state, and the states of their steps, −1 for unknown."""
    assert data.labels is not None
    codes, table = data.labels.compact(n_states)
    single = np.where((table > 0.0).sum(axis=1) == 1, table.argmax(axis=1), -1).astype(np.int32)
    states = single[codes]
    known = np.maximum.reduceat(states, data.offsets[:-1]) >= 0
    if known.any():
        states = states if known.all() else states[np.repeat(known, data.lengths)]
        chosen = data if known.all() else data.take(np.flatnonzero(known))
        for chunk in chosen.chunks(_STEPS):
            yield chunk, states[: chunk.n_steps]
            states = states[chunk.n_steps :]


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
