"""Prediction with posterior means, through the same kernels as training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from sojourn.families import Family
from sojourn.inference.local import Chunk, Engine, chunk_potentials
from sojourn.inference.posterior import Posterior
from sojourn.kernels import reference
from sojourn.kernels.arrays import to_host
from sojourn.kernels.interface import Floats, Integers, Potentials
from sojourn.sequences import Sequences


def log_likelihoods(
    posterior: Posterior, family: Family, data: Sequences, engine: Engine
) -> Floats:
    """Log predictive likelihood of each sequence, shape (N,)."""
    parts = [
        to_host(
            engine.kernel.log_normalizers(
                factors, index, chunk.sequences.offsets, n_threads=engine.n_threads
            )
        )
        for chunk, factors, index in _chunks(posterior, family, data, engine)
    ]
    found = np.concatenate(parts)
    lost = np.flatnonzero(~np.isfinite(found))
    if engine.device is not None and len(lost):
        # What underflows there is done in logarithms here.
        on_host = replace(engine, kernel=reference, device=None)
        found[lost] = log_likelihoods(posterior.to_host(), family, data.take(lost), on_host)
    return found


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
        out[at : at + sequences.n_steps] = to_host(smoothed.responsibilities)
        at += sequences.n_steps
    if engine.device is not None:
        _fill_lost(out, posterior, family, data, engine)
    return out


def _fill_lost(
    out: Floats, posterior: Posterior, family: Family, data: Sequences, engine: Engine
) -> None:
    """Compute probabilities that underflowed on the device in logarithms on the host."""
    lost = np.flatnonzero(out[data.offsets[:-1]].sum(axis=1) < 0.5)
    if len(lost):
        on_host = replace(engine, kernel=reference, device=None)
        chosen = data.take(lost)
        found = state_probabilities(posterior.to_host(), family, chosen, on_host)
        for n, begin, end in zip(lost, chosen.offsets[:-1], chosen.offsets[1:], strict=True):
            out[data.offsets[n] : data.offsets[n + 1]] = found[begin:end]


def best_paths(
    posterior: Posterior, family: Family, data: Sequences, engine: Engine
) -> tuple[Floats, NDArray[np.int32]]:
    """Most probable path: log joint probability of each sequence, and the states of each step."""
    parts = [
        engine.kernel.viterbi(factors, index, chunk.sequences.offsets, n_threads=engine.n_threads)
        for chunk, factors, index in _chunks(posterior, family, data, engine)
    ]
    return (
        np.concatenate([to_host(scores) for scores, _ in parts]),
        np.concatenate([to_host(path) for _, path in parts]),
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
    if engine.device is not None:
        posterior = posterior.to_device(engine.device)
    chunks = engine.chunks(family, data, posterior.emissions.n_states)
    means = posterior.transitions.means(posterior.counts)
    return chunk_potentials(posterior, family, chunks, means, engine, collapsed=True)
