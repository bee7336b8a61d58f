"""Initial assignments of steps to states by k-means++."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sojourn.families.checks import column_moments, plain_values
from sojourn.kernels.cpu.clusters import lloyd, shared, spread_centres
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences

_SAMPLE_STEPS = 10_000  # steps in the sample that is clustered
_ROUNDS = 10  # Lloyd's iterations
_SOFTNESS = 0.1  # share of a step's weight that is spread over all states


def assign_steps(
    data: Sequences,
    coordinates: Callable[[Floats], Floats],
    n_states: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats]:
    """Cluster single steps by standardised coordinates; return the steps and their weights."""
    x = plain_values(sample_sequences(data, rng))
    if len(x) > _SAMPLE_STEPS:
        x = x[np.sort(rng.choice(len(x), _SAMPLE_STEPS, replace=False))]
    return x, soft_assignments(standardized(coordinates(x)), n_states, rng)


def sample_sequences(data: Sequences, rng: np.random.Generator) -> Sequences:
    """Draw whole sequences, enough for a sample of steps."""
    if data.n_steps <= 2 * _SAMPLE_STEPS:
        return data
    order = rng.permutation(len(data))
    enough = int(np.searchsorted(np.cumsum(data.lengths[order]), 2 * _SAMPLE_STEPS)) + 1
    return data.take(np.sort(order[:enough]))


def standardized(points: Floats) -> Floats:
    """Return columns with mean zero and variance one; missing entries become the mean."""
    moments = column_moments(points)
    scaled = (points - moments.mean) / np.sqrt(moments.variance)
    missing = np.isnan(scaled)
    return np.where(missing, 0.0, scaled) if missing.any() else scaled


def soft_assignments(points: Floats, n_states: int, rng: np.random.Generator) -> Floats:
    """Assign points softly to clusters from k-means++ and Lloyd's iterations, shape (T, K).

    A point is shared among clusters whose centres are about equally far, and a tenth of its weight
    is spread over all clusters, so that no state starts without mass.
    """
    points = np.ascontiguousarray(points)
    first, others = rng.integers(len(points)), rng.random(n_states - 1)
    centres = spread_centres(points, first, others)
    lloyd(points, centres, _ROUNDS)
    return shared(points, centres, _SOFTNESS)
