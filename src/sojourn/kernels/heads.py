"""Factors of the first and the last steps of sequences, multiplied into their potentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from sojourn.kernels.arrays import namespace, to_host
from sojourn.kernels.interface import Floats, Potentials


def multiplied(
    potentials: Potentials, index: Any, offsets: Any, heads: Floats, tails: Floats
) -> tuple[Potentials, Any]:
    """Return potentials with rows of their own for the ends of sequences, and the index into them.

    Parameters
    ----------
    potentials : Potentials
        Without durations; the start is that of `heads`.
    index, offsets
        As for `Kernel.forward_backward`.
    heads, tails : (N, K) arrays
        Factors of the states at the first step of every sequence and at the last.
    """
    table = potentials.emissions
    xp, n_states = namespace(table), len(potentials.start)
    n, single = len(offsets) - 1, np.flatnonzero(np.diff(to_host(offsets)) == 1)
    firsts, lasts = offsets[:-1], offsets[1:] - 1
    rows, ends = table[index[firsts]], table[index[lasts]]
    rows[:, :n_states] *= heads
    ends[:, :n_states] *= tails
    if len(single):  # both ends are the same step
        places = xp.placed(single, like=table)
        rows[places, :n_states] *= tails[places]
    scale = potentials.log_scale
    if scale is not None:
        scale = xp.concatenate([scale, scale[index[firsts]], scale[index[lasts]]])
    numbers = xp.arange(n, dtype=str(index.dtype).rpartition(".")[2], like=index) + len(table)
    own = index + 0 * index
    own[lasts] = numbers + n
    own[firsts] = numbers
    ones = xp.ones_like(potentials.start)
    return Potentials(ones, potentials.transitions, xp.concatenate([table, rows, ends]), scale), own
