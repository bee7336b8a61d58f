"""States that last, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from sojourn.kernels import reference
from sojourn.kernels.arrays import to_device, to_host
from sojourn.kernels.cuda.potentials import plain
from sojourn.kernels.durations import Folding, expanded, folded
from sojourn.kernels.interface import Potentials, Smoothed

Tensor = Any


def forward_backward(
    without: Callable[..., Smoothed],
    potentials: Potentials,
    index: Tensor,
    offsets: Tensor,
    order: Tensor,
    *,
    squares: bool,
) -> Smoothed:
    """Compute posterior expectations of every sequence, by `without`: the same without durations.

    Sums of q² are computed on the host.
    """
    written = plain(potentials)
    found = folded(without(expanded(written), index, offsets, order=order), Folding.of(potentials))
    if not squares:
        return found
    table = to_host(written.emissions)
    ones = np.ones_like(table[:1])  # of a missing observation
    scale = None if written.log_scale is None else np.append(to_host(written.log_scale), 0.0)
    assert potentials.durations is not None
    host = Potentials(
        to_host(written.start),
        to_host(written.transitions),
        np.concatenate([table, ones]),
        scale,
        type(potentials.durations)(*map(to_host, potentials.durations)),
    )
    exact = reference.forward_backward(host, to_host(index), to_host(offsets), squares=True)
    return found._replace(squares=to_device(exact.squares, found.start.device))
