"""Potentials and ragged batches for kernels."""

import numpy as np

from sojourn.kernels import Potentials


def random_batch(seed, n_states, lengths, *, n_rows=11, scaled=False, dtype=np.float64):
    """Draw potentials whose rows do not sum to one, and a ragged batch."""
    rng = np.random.default_rng(seed)
    potentials = Potentials(
        rng.gamma(0.5, size=n_states).astype(dtype) + dtype(1e-3),
        rng.gamma(0.5, size=(n_states, n_states)).astype(dtype) + dtype(1e-3),
        rng.gamma(0.5, size=(n_rows, n_states)).astype(dtype) + dtype(1e-3),
        rng.normal(scale=5.0, size=n_rows) if scaled else None,
    )
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    index = rng.integers(n_rows, size=offsets[-1]).astype(np.int32)
    return potentials, index, offsets


def long_chain(n_steps, n_states=3, *, stay=0.95, doubt=0.5, dtype=np.float64, seed=0):
    """Potentials of one long sequence; with a high `doubt` its states are forgotten late."""
    rng = np.random.default_rng(seed)
    transitions = np.full((n_states, n_states), (1.0 - stay) / max(1, n_states - 1))
    np.fill_diagonal(transitions, stay)
    emissions = doubt + (1.0 - doubt) * rng.random((n_steps, n_states))
    start = np.arange(1.0, n_states + 1)
    parts = (start / start.sum(), transitions, emissions)
    potentials = Potentials(*(part.astype(dtype) for part in parts))
    return potentials, np.arange(n_steps, dtype=np.int32), np.array([0, n_steps])


def assert_same(got, expected, tolerance):
    """Check that expectations with squares agree."""
    for name in ("log_normalizers", "start", "transitions", "responsibilities"):
        np.testing.assert_allclose(
            getattr(got, name), getattr(expected, name), rtol=tolerance, atol=10 * tolerance
        )
    for ours, theirs in zip(got.squares, expected.squares, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=10 * tolerance)
