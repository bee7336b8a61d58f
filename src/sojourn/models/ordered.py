"""Initial statistics of states that come in order, and do not come back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sojourn.backends.cpu import CpuBackend
from sojourn.families import Family
from sojourn.inference import Posterior, predict
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences
from sojourn.transitions import Transitions

_BORDERS, _OTHERS = 20.0, 0.1
"""How regular the first borders between states are, and the share of each step that belongs to all
of them.  No experiment: chosen by hand."""


def comes_in_order(transitions: Transitions, data: Sequences) -> bool:
    """Whether states follow one another, none comes back, and sequences may show all of them."""
    constraints = transitions.constraints
    if constraints is None or data.counted is not None:
        return False
    return constraints.is_ordered and data.n_steps >= len(data) * len(constraints.free.start)


def put_in_order(
    drawn: Posterior,
    family: Family,
    data: Sequences,
    total_steps: float,
    rng: np.random.Generator,
    backend: CpuBackend,
) -> Posterior:
    """Return the better of two starts for states that come in order, by the likelihood of data.

    One has the drawn states, sorted by when they are likely in the course of a sequence.  The other
    gives each state a stretch of every sequence: states that look alike, but come at other times,
    are then told apart.
    """
    at = _positions(data)
    masses = drawn.emissions.dense()
    likely = _likely(drawn, family, data, backend)
    when = (likely * at[:, None]).sum(axis=0) / np.maximum(likely.sum(axis=0), 1e-300)
    by_time = masses[np.argsort(when, kind="stable")]
    stretches = _stretches(family, data, at, drawn.n_states, rng) * (total_steps / data.n_steps)
    starts = [
        replace(drawn, emissions=drawn.emissions.refilled(own)) for own in (by_time, stretches)
    ]
    scores = [predict.log_likelihoods(own, family, data, backend).sum() for own in starts]
    return starts[int(np.argmax(scores))]


def _positions(data: Sequences) -> Floats:
    """Return where each step is in its sequence, from 0 to 1."""
    lengths = np.repeat(data.lengths, data.lengths)
    return (np.arange(data.n_steps) - np.repeat(data.offsets[:-1], data.lengths) + 0.5) / lengths


def _likely(drawn: Posterior, family: Family, data: Sequences, backend: CpuBackend) -> Floats:
    """Return how likely each state is at each step, by the emissions alone, (T, K)."""
    rows = family.emission_rows(
        family.encode(data),
        drawn.emissions,
        collapsed=True,
        dtype=np.dtype("float64"),
        n_threads=backend.n_threads,
    )
    table = np.asarray(rows.table[:, : drawn.n_states], dtype=np.float64)
    shares = table / np.maximum(table.sum(axis=1, keepdims=True), 1e-300)
    likely: Floats = shares[rows.index]
    return likely


def _stretches(
    family: Family, data: Sequences, at: Floats, n_states: int, rng: np.random.Generator
) -> Floats:
    """Return statistics of stretches of every sequence, in order, with random borders."""
    borders = np.cumsum(rng.dirichlet(np.full(n_states, _BORDERS)))[:-1]
    own = np.full((data.n_steps, n_states), _OTHERS / n_states)
    own[np.arange(data.n_steps), np.searchsorted(borders, at)] += 1.0 - _OTHERS
    encoded = family.encode(data)
    if family.latent:
        return family.start_sums(encoded, own, rng).T
    sums = family.sum_statistics(encoded, own, n_threads=1).dense()
    return np.asarray(sums, dtype=np.float64).T
