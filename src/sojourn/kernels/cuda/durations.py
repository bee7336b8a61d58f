"""States that last, on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sojourn.kernels import reference
from sojourn.kernels.arrays import to_device, to_host
from sojourn.kernels.cuda.potentials import written_out
from sojourn.kernels.durations import folded, with_edges
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
    written = written_out(potentials)
    copies, own = with_edges(written, index, offsets)
    found = folded(without(copies, own, offsets, order=order), potentials, offsets)
    if not squares:
        return found
    host = Potentials(*(_to_host(part) for part in written))
    exact = reference.forward_backward(host, to_host(index), to_host(offsets), squares=True)
    return found._replace(squares=to_device(exact.squares, found.start.device))


def _to_host(part: Any) -> Any:
    if part is None:
        return None
    return type(part)(*map(to_host, part)) if isinstance(part, tuple) else to_host(part)
