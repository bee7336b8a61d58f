"""Where training begins if some steps are labelled: with the statistics of those."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from sojourn.families import Family
from sojourn.inference import Statistics
from sojourn.kernels.interface import Floats, Integers
from sojourn.sequences import Sequences

_STEPS = 2**13  # in a chunk, so that its responsibilities stay in the cache
_MATCHED = 512  # steps of a chunk, about, by which clusters are found for labels: a small share


def labelled_start(drawn: Statistics, family: Family, data: Sequences) -> Statistics:
    """Replace what was drawn for states that have labelled steps by counts of these.

    With few symbols the predictive distribution of such a state is broad, and steps without a label
    go to the state that they resemble most.  With few vectors it is not: a covariance of the steps
    of one recording leaves out those of the others, which then go to states without a label.  So
    where there are such, and states were drawn as clusters, the cluster that most of its steps fall
    in is added.
    Transitions to and from states without labels stay as they were drawn, in proportion.
    """
    assert data.labels is not None
    from sojourn.kernels.cpu.masks import count_labels  # compiled

    n_states = len(drawn.start)
    rows, table = data.labels.compact(n_states)
    single = np.where((table > 0.0).sum(axis=1) == 1, 1 + table.argmax(axis=1), 0)
    if not single.any():
        return drawn
    # 1 + the state of steps whose labels allow but one, 0 for the others.
    codes, begins, pairs = count_labels(rows, single, data.offsets, n_states + 1)
    seen = (begins + pairs.sum(axis=0))[1:].astype(np.float64)
    shares: Floats = np.zeros(n_states)
    if family.step_ndim == 1 and not seen.all():
        drawn, shares = _clusters_of_labels(drawn, family, data, codes)
    emissions = _labelled_sums(family, data, codes, n_states)
    own = Statistics(begins[1:].astype(np.float64), pairs[1:, 1:].astype(np.float64), emissions)
    return _replaced(drawn, own, seen, shares)


def _labelled_sums(family: Family, data: Sequences, codes: Integers, n_states: int) -> Floats:
    """Return the statistics of the labelled steps of every state."""
    emissions = np.zeros((n_states, family.n_statistics))
    alone = np.eye(n_states + 1, n_states, -1)
    if family.past == 0 and not codes.all():  # the other steps do not matter
        steps = np.flatnonzero(codes)
        data, codes = data.spans(steps, np.ones_like(steps)), codes[steps]
    for chunk, labels in _with_labels(data, codes):
        responsibilities = np.take(alone, labels, axis=0)
        encoded = family.encode(chunk)
        if family.latent:  # nothing is known yet about the unknowns of steps
            emissions += family.start_sums(encoded, responsibilities, np.random.default_rng(0)).T
        else:
            emissions += family.sum_statistics(encoded, responsibilities, n_threads=1).dense().T
    return emissions


def _with_labels(data: Sequences, codes: Integers) -> Iterator[tuple[Sequences, Integers]]:
    """Yield sequences some of whose steps are labelled, and the codes of all their steps."""
    for chunk in data.chunks(_STEPS):
        own, codes = codes[: chunk.n_steps], codes[chunk.n_steps :]
        if own.any():
            yield chunk, own


def _clusters_of_labels(
    drawn: Statistics, family: Family, data: Sequences, codes: Integers
) -> tuple[Statistics, Floats]:
    """Put the clusters of a start in the order of the labelled states whose steps fall in them.

    Returns
    -------
    drawn : Statistics
        With other emissions.
    shares : (K,) array
        Share of the labelled steps of a state that fall in its cluster.
    """
    n_states = len(drawn.start)
    natural, found = family.prior() + drawn.emissions, np.zeros((n_states + 1, n_states))
    for chunk, labels in _with_labels(data, codes):
        steps = np.flatnonzero(labels)
        steps = steps[:: max(1, len(steps) // _MATCHED)]
        observed: Any = family.observations(chunk)  # of a `Product` a list, an array a part
        several = isinstance(observed, list)
        x: Any = [part[steps] for part in observed] if several else observed[steps]
        nearest = family.log_predictive(x, natural).argmax(axis=1)
        np.add.at(found, (labels[steps], nearest), 1.0)
    from scipy.optimize import linear_sum_assignment

    states, clusters = linear_sum_assignment(found[1:], maximize=True)
    shares = found[1:][states, clusters] / np.maximum(found[1:].sum(axis=1), 1.0)
    return Statistics(drawn.start, drawn.transitions, drawn.emissions[clusters]), shares


def _replaced(drawn: Statistics, own: Statistics, mass: Floats, shares: Floats) -> Statistics:
    seen = mass > 0.0
    if not seen.any():
        return drawn
    # Other states begin with as little: they would take every step if they knew more.
    total = drawn.start.sum() + drawn.transitions.sum()
    scale = mass[seen].mean() * len(seen) / total
    clusters = np.where(seen, shares, 1.0)[:, None] * scale * drawn.emissions
    emissions = np.where(seen[:, None], own.emissions, 0.0) + clusters
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
