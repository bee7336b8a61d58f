"""Prediction with posterior means, by the same kernels as training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sojourn.families import Family
from sojourn.inference.backend import Chunk, LocalBackend
from sojourn.inference.known import refuse_contradictions
from sojourn.inference.local import chunk_potentials, impossible
from sojourn.inference.long import LongPrediction, is_long
from sojourn.inference.posterior import Posterior
from sojourn.kernels.arrays import to_host
from sojourn.kernels.cpu.sampling import draw_states
from sojourn.kernels.interface import DurationPotentials, Floats, Integers, Potentials
from sojourn.sequences import Sequences
from sojourn.sources.tiles import Steps


def log_likelihoods(
    posterior: Posterior, family: Family, data: Steps, backend: LocalBackend
) -> Floats:
    """Log predictive likelihood of each sequence, shape (N,)."""
    if is_long(data):
        return LongPrediction(posterior, family, data, backend).log_likelihoods()
    assert isinstance(data, Sequences)
    chunks = _chunks(posterior, family, data, backend)
    found = np.concatenate([backend.log_normalizers(*part) for part in chunks])
    underflowed = np.flatnonzero(~np.isfinite(found))
    if backend.exact is not None and len(underflowed):
        own = data.take(underflowed)
        found[underflowed] = log_likelihoods(posterior.fetched(), family, own, backend.exact)
    elif len(underflowed):
        raise impossible(data, found)
    return found


def state_probabilities(
    posterior: Posterior, family: Family, data: Sequences, backend: LocalBackend
) -> Floats:
    """Posterior state probabilities of each step, shape (T, K)."""
    dtype = backend.dtype or posterior.emissions.dtype
    out = np.empty((data.n_steps, posterior.emissions.n_states), dtype)
    at = 0
    if is_long(data):
        for rows in LongPrediction(posterior, family, data, backend).state_probabilities():
            out[at : at + len(rows)] = rows
            at += len(rows)
        return out
    for chunk, factors, index in _chunks(posterior, family, data, backend):
        smoothed = backend.forward_backward(chunk, factors, index)
        if backend.exact is None and not np.isfinite(smoothed.log_normalizers).all():
            raise impossible(chunk.sequences, smoothed.log_normalizers)
        out[at : at + chunk.sequences.n_steps] = to_host(smoothed.responsibilities)
        at += chunk.sequences.n_steps
    if backend.exact is not None:
        _fill_underflowed(out, posterior, family, data, backend.exact)
    return out


def _fill_underflowed(
    out: Floats, posterior: Posterior, family: Family, data: Sequences, exact: LocalBackend
) -> None:
    """Recompute the probabilities of sequences that underflowed."""
    underflowed = np.flatnonzero(~(out[data.offsets[:-1]].sum(axis=1) >= 0.5))
    if len(underflowed):
        chosen = data.take(underflowed)
        found = state_probabilities(posterior.fetched(), family, chosen, exact)
        for n, begin, end in zip(underflowed, chosen.offsets[:-1], chosen.offsets[1:], strict=True):
            out[data.offsets[n] : data.offsets[n + 1]] = found[begin:end]


def best_paths(
    posterior: Posterior, family: Family, data: Sequences, backend: LocalBackend
) -> tuple[Floats, NDArray[np.int32]]:
    """Most probable path: log joint probability of each sequence, and the states of each step."""
    # The kernel for states that last needs little memory for a step, and tiles that of all copies.
    if is_long(data) and posterior.durations is None:
        groups = list(LongPrediction(posterior, family, data, backend).best_paths())
        scores = np.zeros(len(data))
        for _, each, numbers in groups:
            np.add.at(scores, numbers, each)
        return scores, np.concatenate([path for path, _, _ in groups])
    chunks = _chunks(posterior, family, data, backend)
    parts = [backend.viterbi(*part) for part in chunks]
    scores = np.concatenate([own for own, _ in parts])
    path = np.concatenate([path for _, path in parts])
    underflowed = np.flatnonzero(~np.isfinite(scores))
    exact = backend.exact
    if len(underflowed) and exact is None:
        raise impossible(data, scores)
    if len(underflowed) and exact is not None:
        chosen = data.take(underflowed)
        found, own = best_paths(posterior.fetched(), family, chosen, exact)
        scores[underflowed] = found
        for n, begin, end in zip(underflowed, chosen.offsets[:-1], chosen.offsets[1:], strict=True):
            path[data.offsets[n] : data.offsets[n + 1]] = own[begin:end]
    return scores, path


def draw(
    posterior: Posterior,
    family: Family,
    lengths: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[Sequences, Sequences]:
    """Draw sequences from the posterior means: observations and states."""
    rows = posterior.transitions.means(posterior.counts)
    start, matrix = np.cumsum(rows.start), np.cumsum(rows.transitions, axis=1)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = np.empty(offsets[-1], dtype=np.int32)
    left = VisitDraws.of(posterior, len(lengths))
    if left is None:
        draw_states(lengths, offsets[:-1], start, matrix, rng.random(len(states)), states)
    else:
        _draw_visits(left, lengths, offsets, start, matrix, rng, states)
    natural = posterior.learned(family).prior() + posterior.emissions.dense()
    drawn = Sequences(states, offsets)
    return Sequences(family.sample(natural, drawn, rng), offsets), drawn


def _draw_visits(
    left: VisitDraws,
    lengths: NDArray[np.int64],
    offsets: Integers,
    start: Floats,
    matrix: Floats,
    rng: np.random.Generator,
    states: NDArray[np.int32],
) -> None:
    """Draw states that last: `sampling.draw_states` with what is left of visits."""
    last = len(start) - 1  # rounding may leave the last cumulative sum below one
    for t in range(int(lengths.max())):
        active = np.flatnonzero(lengths > t)
        u = rng.random(len(active))
        if t == 0:
            now = np.searchsorted(start, u, side="right")
        else:
            before = states[offsets[active] + t - 1]
            now = (matrix[before] <= u[:, None]).sum(axis=1)
        chosen: Integers = np.minimum(now, last)
        chosen = left.step(active, chosen, None if t == 0 else before, rng)
        states[offsets[active] + t] = chosen


class VisitDraws:
    """Visits to states that last, of many sequences side by side.

    Parameters
    ----------
    durations : DurationPotentials
    n_sequences : int
    """

    def __init__(self, durations: DurationPotentials, n_sequences: int) -> None:
        self._entry = np.cumsum(durations.entry, axis=1)
        self._stay = np.asarray(durations.stay)
        self._copies = np.zeros(n_sequences, dtype=np.int64)

    @classmethod
    def of(cls, posterior: Posterior, n_sequences: int) -> VisitDraws | None:
        """Return them for a posterior of states that last; None for others."""
        durations = posterior.duration_potentials()
        return None if durations is None else cls(durations, n_sequences)

    def step(
        self, active: Integers, chosen: Integers, before: Integers | None, rng: np.random.Generator
    ) -> Integers:
        """Go on by a step: stay, go on within the state, or begin a visit to the chosen one."""
        copies, last = self._copies, self._entry.shape[1] - 1
        begins = np.ones(len(active), np.bool_)
        if before is not None:
            goes_on = rng.random(len(active)) >= self._stay[before]
            begins = goes_on & (copies[active] == last)
            copies[active[goes_on & ~begins]] += 1
        entry = self._entry[chosen[begins]]
        u = rng.random(int(begins.sum()))[:, None] * entry[:, -1:]
        copies[active[begins]] = np.minimum((entry <= u).sum(axis=1), last)
        return chosen if before is None else np.where(begins, chosen, before)


def _chunks(
    posterior: Posterior, family: Family, data: Sequences, backend: LocalBackend
) -> Iterator[tuple[Chunk, Potentials, Integers]]:
    if backend.exact is None:  # it gives every state a chance, also those that labels forbid
        refuse_contradictions(data, posterior.transitions.constraints, first=None)
    posterior = backend.place(posterior)
    chunks = backend.chunks(family, data, posterior.emissions.n_states)
    means = posterior.transitions.means(posterior.counts)
    return chunk_potentials(posterior, family, chunks, means, backend, collapsed=True)
