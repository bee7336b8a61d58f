"""Forward-backward and Viterbi in NumPy, float64 and the log domain, written to be read.

It is the oracle of the other kernels, and their fallback for sequences whose scaled arithmetic
would underflow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
from scipy.special import logsumexp

from sojourn.kernels.durations import Folding, folded, with_edges
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed, Squares
from sojourn.kernels.updates import (
    blend_counts,
    log_potential,
    state_masses,
    transition_potentials,
)

__all__ = [
    "blend_counts",
    "forward_backward",
    "last_scores",
    "log_normalizers",
    "log_potential",
    "logarithms",
    "reads_counts",
    "state_masses",
    "transition_potentials",
    "viterbi",
]

reads_counts = False


@np.errstate(invalid="ignore")  # of a sequence without a possible path
def forward_backward(
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
    *,
    squares: int = False,
    summed: bool = False,
    order: Integers | None = None,
    n_threads: int = 1,
) -> Smoothed:
    """Compute posterior expectations of every sequence.

    Parameters
    ----------
    potentials : Potentials
        The factors of q(z).
    index : (T,) integer array
        Row of the emission table for each step of the flat batch.
    offsets : (N + 1,) integer array
        Sequence n is the steps ``offsets[n]:offsets[n + 1]``; none is empty.
    squares : int
        Whether to collect the sums of q² of eqs (4), (6) and (19).
    summed : bool
        Part of the signature: responsibilities are always given.
    order : (N,) integer array, optional
        The sequences, longest first; part of the signature, as the order does not matter here.
    n_threads : int
        Part of the signature; one thread does the work here.

    Returns
    -------
    Smoothed
    """
    if potentials.durations is not None:
        return _with_durations(potentials, index, offsets, squares=squares)
    log_start, log_transitions, log_emissions = logarithms(potentials)
    n_states = len(log_start)
    log_z = np.empty(len(offsets) - 1)
    start = np.zeros(n_states)
    transitions = np.zeros((n_states, n_states))
    responsibilities = np.empty((len(index), n_states))
    squared = Squares(np.zeros(n_states), np.zeros((n_states, n_states)), np.zeros(n_states))
    for n, (begin, end) in enumerate(itertools.pairwise(offsets)):
        rows = log_emissions[index[begin:end]]
        forward = _forward(log_start, log_transitions, rows)
        backward = _backward(log_transitions, rows)
        log_z[n] = logsumexp(forward[-1])
        marginals = np.exp(forward + backward - log_z[n])
        responsibilities[begin:end] = marginals
        start += marginals[0]
        squared.start[:] += marginals[0] ** 2
        squared.rows[:] += (marginals[:-1] ** 2).sum(axis=0)
        for t in range(1, end - begin):
            pair = np.exp(
                forward[t - 1][:, None] + log_transitions + rows[t] + backward[t] - log_z[n]
            )
            transitions += pair
            squared.pairs[:] += pair**2
    return Smoothed(log_z, start, transitions, responsibilities, squared if squares else None)


def _with_durations(
    potentials: Potentials, index: Integers, offsets: Integers, *, squares: int
) -> Smoothed:
    """Compute posterior expectations of K·J states, and sum the copies of each of the K."""
    folding = Folding.of(potentials)
    plain, index = with_edges(potentials, index, offsets)
    summed = folded(forward_backward(plain, index, offsets), potentials, offsets)
    if not squares:
        return summed
    n_states = folding.n_states
    squared = Squares(np.zeros(n_states), np.zeros((n_states, n_states)), np.zeros(n_states))
    for n, (begin, end) in enumerate(itertools.pairwise(offsets)):
        if potentials.edges is None or not potentials.edges.inner[n]:
            squared.start[:] += summed.responsibilities[begin] ** 2
        for pair in _pairs(plain, index[begin:end]):
            leaves, _ = folding.pairs(pair)
            squared.pairs[:] += leaves**2
            squared.rows[:] += leaves.sum(axis=1) ** 2
    return summed._replace(squares=squared)


def _pairs(potentials: Potentials, index: Integers) -> Iterator[Floats]:
    """Yield q(z_{t−1}, z_t) of a sequence for every t but the first."""
    log_start, log_transitions, log_emissions = logarithms(potentials)
    rows = log_emissions[index]
    forward, backward = _forward(log_start, log_transitions, rows), _backward(log_transitions, rows)
    log_z = logsumexp(forward[-1])
    for t in range(1, len(rows)):
        yield np.exp(forward[t - 1][:, None] + log_transitions + rows[t] + backward[t] - log_z)


def log_normalizers(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> Floats:
    """Compute log Z of every sequence; arguments as for `forward_backward`."""
    if potentials.durations is not None:
        potentials, index = with_edges(potentials, index, offsets)
    log_start, log_transitions, log_emissions = logarithms(potentials)
    return np.array(
        [
            logsumexp(_forward(log_start, log_transitions, log_emissions[index[begin:end]])[-1])
            for begin, end in itertools.pairwise(offsets)
        ]
    )


def viterbi(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> tuple[Floats, Integers]:
    """Find the best path of every sequence; ties go to the lower state.

    Returns
    -------
    log_potential : (N,) array
        Log of the product of potentials along the best path.
    path : (T,) int32 array
        The states, flat.
    """
    if potentials.durations is not None:
        plain, own = with_edges(potentials, index, offsets)
        score_of, copies = viterbi(plain, own, offsets)
        return score_of, copies // np.int32(Folding.of(potentials).n_copies)
    log_start, log_transitions, log_emissions = logarithms(potentials)
    best = np.empty(len(offsets) - 1)
    path = np.empty(len(index), dtype=np.int32)
    for n, (begin, end) in enumerate(itertools.pairwise(offsets)):
        rows = log_emissions[index[begin:end]]
        score, came_from = _best_scores(log_start, log_transitions, rows)
        state = score.argmax()
        best[n] = score[state]
        for t in range(len(rows) - 1, -1, -1):
            path[begin + t] = state
            state = came_from[t, state]
    return best, path


def last_scores(
    potentials: Potentials, index: Integers, offsets: Integers, *, n_threads: int = 1
) -> Floats:
    """Return the score of the best path to each state of the last step of sequences, (N, K)."""
    log_start, log_transitions, log_emissions = logarithms(potentials)
    return np.array(
        [
            _best_scores(log_start, log_transitions, log_emissions[index[begin:end]])[0]
            for begin, end in itertools.pairwise(offsets)
        ]
    )


def _best_scores(
    log_start: Floats, log_transitions: Floats, rows: Floats
) -> tuple[Floats, Integers]:
    """Return the scores of the last step, and for each step the state that the best came from."""
    score = log_start + rows[0]
    came_from = np.empty(rows.shape, dtype=np.int64)
    for t in range(1, len(rows)):
        candidates = score[:, None] + log_transitions
        came_from[t] = candidates.argmax(axis=0)
        score = candidates.max(axis=0) + rows[t]
    return score, came_from


def logarithms(potentials: Potentials) -> tuple[Floats, Floats, Floats]:
    """Return start, transitions and emission rows as float64 logarithms."""
    n_states = len(potentials.start)
    with np.errstate(divide="ignore"):
        start, transitions, emissions = (
            np.log(np.asarray(part[..., :n_states], dtype=np.float64)) for part in potentials[:3]
        )
    if potentials.log_scale is not None:
        emissions = emissions + np.asarray(potentials.log_scale, dtype=np.float64)[:, None]
    return start, transitions, emissions


def _forward(log_start: Floats, log_transitions: Floats, rows: Floats) -> Floats:
    """``forward[t, k] = log Σ_{z_1..z_{t−1}} potentials of z_1..z_t with z_t = k``."""
    forward = np.empty(rows.shape)
    forward[0] = log_start + rows[0]
    for t in range(1, len(rows)):
        forward[t] = logsumexp(forward[t - 1][:, None] + log_transitions, axis=0) + rows[t]
    return forward


def _backward(log_transitions: Floats, rows: Floats) -> Floats:
    """``backward[t, k] = log Σ_{z_{t+1}..z_T} potentials after t given z_t = k``."""
    backward = np.zeros(rows.shape)
    for t in range(len(rows) - 1, 0, -1):
        backward[t - 1] = logsumexp(log_transitions + rows[t] + backward[t], axis=1)
    return backward
