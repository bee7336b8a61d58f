"""Emission tables and their scales, in the form in which compiled functions take them."""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.strip_edges import add_log_scales
from sojourn.kernels.interface import Floats, Integers, Potentials, padded_states
from sojourn.kernels.threads import run_units


def padded_table(potentials: Potentials) -> Floats:
    """Return the emission table with rows of `padded_states`; it may have them already."""
    emissions, n_states = potentials.emissions, len(potentials.start)
    width = padded_states(n_states)
    if emissions.shape[1] != width:
        emissions = np.zeros((len(emissions), width), emissions.dtype)
        emissions[:, :n_states] = potentials.emissions
    return np.ascontiguousarray(emissions)


def add_scales(
    log_z: Floats,
    log_scale: Floats | None,
    index: Integers,
    offsets: Integers,
    *,
    is_dense: bool,
    n_threads: int,
) -> None:
    """Add the logarithms of the factors of rows to log Z of sequences, in place.

    `is_dense` says that the rows of consecutive steps are consecutive.
    """
    if log_scale is None:
        return
    run_units(
        add_log_scales,
        max(1, min(16, len(log_z) // 64)),
        n_threads,
        offsets,
        index,
        is_dense,
        np.asarray(log_scale, dtype=np.float64),
        log_z,
    )
