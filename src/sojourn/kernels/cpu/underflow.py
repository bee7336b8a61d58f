"""Sequences whose scaled arithmetic underflows: computed again, in logarithms."""

from __future__ import annotations

import numpy as np

from sojourn.kernels import reference
from sojourn.kernels.durations import of_sequence
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed


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
        smoothed.start[:] += exact.start
        smoothed.transitions[:] += exact.transitions
        smoothed.responsibilities[steps] = exact.responsibilities
        if smoothed.ends is not None and exact.ends is not None:
            smoothed.ends[:, n] = exact.ends[:, 0]
        for name in ("squares", "durations"):
            totals, parts = getattr(smoothed, name), getattr(exact, name)
            if totals is not None:
                for total, part in zip(totals, parts, strict=True):
                    total += part
