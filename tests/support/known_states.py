"""Sequences drawn from known states: what moves and warm-ups are held to."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

import sojourn as sj
from sojourn.kernels import cpu
from sojourn.kernels.interface import Potentials


class Drawn(NamedTuple):
    """Data drawn from known states, and how well the truth itself does on the held-out part."""

    train: sj.Sequences
    test: sj.Sequences
    test_states: np.ndarray
    truth_score: float
    truth_error: float


Draw = Callable[[np.random.Generator, np.ndarray], np.ndarray]
Density = Callable[[np.ndarray], np.ndarray]


def gaussian(
    n_states: int, rng: np.random.Generator, spread: float = 3.0
) -> tuple[sj.Gaussian, Draw, Density]:
    """Make Gaussian states in the plane that overlap moderately."""
    means = rng.normal(0.0, spread, (n_states, 2))
    shapes = rng.normal(size=(n_states, 2, 2))
    covariances = shapes @ shapes.transpose(0, 2, 1) + 0.3 * np.eye(2)
    covariances *= 0.8 / np.sqrt(np.linalg.det(covariances))[:, None, None]
    roots = np.linalg.cholesky(covariances)

    def draw(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
        return means[z] + np.einsum("tij,tj->ti", roots[z], rng.normal(size=(len(z), 2)))

    def density(x: np.ndarray) -> np.ndarray:
        parts = zip(means, covariances, strict=True)
        return np.stack([stats.multivariate_normal(m, c).logpdf(x) for m, c in parts], axis=1)

    return sj.Gaussian(), draw, density


def categorical(n_states: int, rng: np.random.Generator) -> tuple[sj.Categorical, Draw, Density]:
    """Make states with moderately overlapping distributions on 100 symbols, Dirichlet(0.03)."""
    shares = rng.dirichlet(np.full(100, 0.03), n_states)
    bounds = np.cumsum(shares, axis=1)

    def draw(rng: np.random.Generator, z: np.ndarray) -> np.ndarray:
        return np.minimum((bounds[z] <= rng.random(len(z))[:, None]).sum(axis=1), 99)

    return sj.Categorical(100), draw, lambda x: np.log(shares[:, x].T + 1e-300)


KINDS = {"gaussian": gaussian, "categorical": categorical}


def chain(start: np.ndarray, rows: np.ndarray, lengths: np.ndarray, rng: Any) -> np.ndarray:
    """Draw the states of all sequences, one after another."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    states = np.empty(offsets[-1], dtype=np.int64)
    last = len(start) - 1
    for t in range(lengths.max()):
        active = offsets[:-1][lengths > t] + t
        before = np.tile(start, (len(active), 1)) if t == 0 else rows[states[active - 1]]
        u = rng.random(len(active))[:, None]
        states[active] = np.minimum((np.cumsum(before, axis=1) <= u).sum(axis=1), last)
    return states


def with_truth(
    data: sj.Sequences,
    states: np.ndarray,
    n_train: int,
    start: np.ndarray,
    rows: np.ndarray,
    density: Density,
) -> Drawn:
    """Hold sequences out, and score and decode them with the true parameters."""
    test = data[n_train:]
    logs = density(np.asarray(test.values))
    scale = logs.max(axis=1)
    table = np.exp(logs - scale[:, None])
    index = np.arange(len(table), dtype=np.int32)
    potentials = Potentials(start, rows, table, scale)
    score = cpu.log_normalizers(potentials, index, test.offsets, n_threads=1).sum() / test.n_steps
    _, path = cpu.viterbi(potentials, index, test.offsets, n_threads=1)
    labels = states[data.offsets[n_train] :]
    error = float(np.mean(path != labels))
    return Drawn(data[:n_train], test, labels, float(score), error)


def simulate(kind: str, n_states: int, seed: int, n_train: int = 2000) -> tuple[Any, Drawn]:
    """Draw sequences of 10 to 60 steps: rows half Dirichlet(0.3), half staying."""
    rng = np.random.default_rng([seed, n_states, len(kind)])
    family, draw, density = KINDS[kind](n_states, rng)
    rows = 0.5 * rng.dirichlet(np.full(n_states, 0.3), n_states) + 0.5 * np.eye(n_states)
    start = rng.dirichlet(np.ones(n_states))
    lengths = rng.integers(10, 61, n_train + 400)
    states = chain(start, rows, lengths, rng)
    data = sj.Sequences.from_lengths(draw(rng, states), lengths)
    return family, with_truth(data, states, n_train, start, rows, density)


def segments(path: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Positions at which a path changes its state within a sequence."""
    changes = np.flatnonzero(np.diff(path)) + 1
    return np.setdiff1d(changes, offsets)


def recording(dwell: int, seed: int) -> tuple[Any, Drawn, np.ndarray, np.ndarray]:
    """Draw twelve recordings of 5,000 steps, six of them held out, with five noisy states."""
    rng = np.random.default_rng([seed, dwell, 5])
    n_states, n_sequences, length = 5, 12, 5000
    family, draw, density = gaussian(n_states, rng, spread=1.5)
    jumps = rng.dirichlet(np.ones(n_states), n_states) * (1 - np.eye(n_states))
    rows = jumps / jumps.sum(axis=1, keepdims=True) / dwell + (1 - 1 / dwell) * np.eye(n_states)
    start = np.full(n_states, 1 / n_states)
    lengths = np.full(n_sequences, length)
    states = chain(start, rows, lengths, rng)
    data = sj.Sequences.from_lengths(draw(rng, states), lengths)
    drawn = with_truth(data, states, n_sequences // 2, start, rows, density)
    offsets = np.asarray(drawn.test.offsets)
    return family, drawn, segments(drawn.test_states, offsets), offsets
