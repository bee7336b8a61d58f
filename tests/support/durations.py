"""States that last, for kernels."""

import numpy as np

from sojourn.kernels.arrays import to_host
from sojourn.kernels.interface import DurationPotentials, Potentials


def model(rng, n_states, n_copies, kind):
    """Draw the potentials of states that last, for a table of four rows."""
    transitions = rng.random((n_states, n_states))
    np.fill_diagonal(transitions, 0.0)
    entry = rng.random((n_states, n_copies))
    stay = rng.random(n_states)
    if kind == "negative binomial":
        entry = np.eye(n_copies)[rng.integers(n_copies, size=n_states)]
    if kind == "explicit":
        stay = np.zeros(n_states)
    durations = DurationPotentials(entry, stay, rng.random(n_states) + 0.1)
    emissions = rng.random((4, n_states)) + 0.05
    return Potentials(rng.random(n_states), transitions, emissions, rng.normal(size=4), durations)


def batch(seed, n_states, n_copies, lengths, kind="both", dtype=np.float64):
    """Draw a model and data."""
    rng = np.random.default_rng(seed)
    potentials = model(rng, n_states, n_copies, kind)
    durations = DurationPotentials(*(part.astype(dtype) for part in potentials.durations))
    start, transitions, table = (part.astype(dtype) for part in potentials[:3])
    offsets = np.cumsum([0, *lengths])
    index = rng.integers(4, size=offsets[-1]).astype(np.int32)
    return Potentials(start, transitions, table, potentials.log_scale, durations), index, offsets


def assert_same(got, expected, tolerance):
    """Compare all that is summed."""
    for name in ("log_normalizers", "start", "transitions", "responsibilities"):
        ours, theirs = to_host(getattr(got, name)), getattr(expected, name)
        np.testing.assert_allclose(ours, theirs, rtol=tolerance, atol=tolerance)
    for name in ("durations", "squares"):
        for ours, theirs in zip(getattr(got, name), getattr(expected, name), strict=True):
            np.testing.assert_allclose(to_host(ours), theirs, rtol=tolerance, atol=tolerance)
