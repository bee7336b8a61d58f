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
