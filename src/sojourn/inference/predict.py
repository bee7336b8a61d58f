"""Prediction with posterior means, through the same kernels as training."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from sojourn.families import Family
from sojourn.inference.local import Chunk, Engine, chunk_potentials, prepare
from sojourn.inference.posterior import Posterior
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences


def log_likelihoods(
    posterior: Posterior, family: Family, data: Sequences, engine: Engine
) -> Floats:
    """Log predictive likelihood of each sequence, shape (N,)."""
    parts = [
        engine.kernel.log_normalizers(
            factors, index, chunk.sequences.offsets, n_threads=engine.n_threads
        )
        for chunk, factors, index in _chunks(posterior, family, data, engine)
    ]
    return np.concatenate(parts)


def state_probabilities(
    posterior: Posterior, family: Family, data: Sequences, engine: Engine
) -> Floats:
    """Posterior state probabilities of each step, shape (T, K)."""
    dtype = engine.dtype or posterior.emissions.dtype
    out = np.empty((data.n_steps, posterior.emissions.n_states), dtype)
    at = 0
    for (sequences, _), factors, index in _chunks(posterior, family, data, engine):
        smoothed = engine.kernel.forward_backward(
            factors, index, sequences.offsets, n_threads=engine.n_threads
        )
        out[at : at + sequences.n_steps] = smoothed.responsibilities
        at += sequences.n_steps
    return out


def best_paths(
    posterior: Posterior, family: Family, data: Sequences, engine: Engine
) -> tuple[Floats, NDArray[np.int32]]:
    """Most probable path: log joint probability of each sequence, and the states of each step."""
    parts = [
        engine.kernel.viterbi(factors, index, chunk.sequences.offsets, n_threads=engine.n_threads)
        for chunk, factors, index in _chunks(posterior, family, data, engine)
    ]
    return (
        np.concatenate([scores for scores, _ in parts]),
        np.concatenate([path for _, path in parts]),
    )


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
    last = len(start) - 1  # rounding may leave the last cumulative sum below one
    for t in range(int(lengths.max())):
        active = np.flatnonzero(lengths > t)
        u = rng.random(len(active))
        if t == 0:
            now = np.searchsorted(start, u, side="right")
        else:
            before = states[offsets[active] + t - 1]
            now = (matrix[before] <= u[:, None]).sum(axis=1)
        states[offsets[active] + t] = np.minimum(now, last)
    natural = posterior.learned(family).prior() + posterior.emissions.dense()
    drawn = Sequences(states, offsets)
    return Sequences(family.sample(natural, drawn, rng), offsets), drawn


def _chunks(
    posterior: Posterior, family: Family, data: Sequences, engine: Engine
) -> Iterator[tuple[Chunk, Potentials, Integers]]:
    means = posterior.transitions.means(posterior.counts)
    chunks = prepare(family, data)
    return chunk_potentials(posterior, family, chunks, means, engine, collapsed=True)
