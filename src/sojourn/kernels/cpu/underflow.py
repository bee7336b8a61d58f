"""Sequences whose scaled arithmetic underflows: computed again, in logarithms."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sojourn.kernels import reference
from sojourn.kernels.durations import of_sequence
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed


def times_transitions(products: Floats, transitions: Floats) -> Floats:
    """Return sums of products of pairs times their transitions; zero where these never happen.

    Products of such pairs may be out of range.
    """
    with np.errstate(invalid="ignore"):
        found = products * transitions
    if not math.isfinite(found.sum()):
        found[transitions == 0.0] = 0.0
    return found


def leads_one_way(transitions: Floats) -> bool:
    """Whether a state leads to another that does not lead back, by however many steps.

    A state that is improbable for long then vanishes, as nothing comes back to it; and what comes
    later may show that it was the one.

    Examples
    --------
    >>> leads_one_way(np.array([[0.5, 0.5], [1.0, 0.0]]))
    False
    >>> leads_one_way(np.array([[0.5, 0.5], [0.0, 1.0]]))
    True
    """
    never = transitions == 0.0
    return bool(never.any()) and _leads_one_way(np.packbits(never).tobytes(), len(transitions))


@lru_cache(maxsize=64)
def _leads_one_way(never: bytes, n_states: int) -> bool:
    """Find that from the transitions that never happen, as bits."""
    bits = np.unpackbits(np.frombuffer(never, np.uint8), count=n_states**2)
    reached = (bits.reshape(n_states, -1) == 0) | np.eye(n_states, dtype=bool)
    for _ in range(n_states.bit_length()):
        reached = reached @ reached
    return bool((reached != reached.T).any())


def recompute_normalizers(
    log_z: Floats, potentials: Potentials, index: Integers, offsets: Integers
) -> None:
    """Compute log Z of the sequences that have NaN for it, in place."""
    for n in np.flatnonzero(np.isnan(log_z)).tolist():
        steps = slice(offsets[n], offsets[n + 1])
        alone = np.array([0, offsets[n + 1] - offsets[n]])
        log_z[n] = reference.log_normalizers(of_sequence(potentials, n), index[steps], alone)[0]


def add_underflowed(
    smoothed: Smoothed,
    failed: Integers,
    potentials: Potentials,
    index: Integers,
    offsets: Integers,
) -> None:
    """Compute the sequences whose arithmetic underflowed in the log domain, and add them."""
    for n in failed.tolist():
        steps = slice(offsets[n], offsets[n + 1])
        alone = np.array([0, offsets[n + 1] - offsets[n]])
        own = of_sequence(potentials, n)
        exact = reference.forward_backward(own, index[steps], alone, squares=True)
        smoothed.log_normalizers[n] = exact.log_normalizers[0]
        smoothed.responsibilities[steps] = exact.responsibilities
        if smoothed.ends is not None and exact.ends is not None:
            smoothed.ends[:, n] = exact.ends[:, 0]
        add_expectations(smoothed, exact)


def add_expectations(smoothed: Smoothed, found: Smoothed) -> None:
    """Add the expected counts of other sequences, in place."""
    smoothed.start[:] += found.start
    smoothed.transitions[:] += found.transitions
    for name in ("squares", "durations"):
        totals, parts = getattr(smoothed, name), getattr(found, name)
        if totals is not None:
            for total, part in zip(totals, parts, strict=True):
                total += part
