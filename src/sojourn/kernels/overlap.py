"""How much of the uncertainty about the states is about which of two states it is."""

from __future__ import annotations

import numpy as np
from numba import njit

from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.interface import Floats
from sojourn.kernels.threads import run_units, take_unit

_PARTS = 8  # sums that the steps are cut into, whatever the number of threads
_SMALLEST = 1e-4  # probability below which a state is passed over
_NUMBERS = 2**24  # in an array of all pairs of states of some steps on a device


def shared_entropies(responsibilities: Floats, *, n_threads: int) -> Floats:
    """Entropy of which of two states a step is in, summed over steps, for every pair, (K, K).

    With ``x = responsibilities`` and ``f = -xlogy(x, x)`` entry (i, j) above the diagonal is
    ``(f(x[:, i]) + f(x[:, j]) - f(x[:, i] + x[:, j])).sum()``; the others are zero.  A state with
    a probability below 1e-4 is passed over at that step.  Of tensors the result is one.
    """
    if is_tensor(responsibilities):
        return _on_device(responsibilities)
    n_states = responsibilities.shape[1]
    parts = np.zeros((min(_PARTS, len(responsibilities)), n_states, n_states))
    n_threads = max(1, min(n_threads, len(parts)))
    own = np.ascontiguousarray(responsibilities)  # one layout, so that it is compiled once
    run_units(_shared_entropies, len(parts), n_threads, own, parts)
    return parts.sum(axis=0)


@njit(nogil=True, cache=True)
def _shared_entropies(counter, n_units, responsibilities, parts):
    n_steps, n_states = responsibilities.shape
    active = np.empty(n_states, np.int64)
    logs = np.empty(n_states)
    unit = take_unit(counter)
    while unit < n_units:
        out = parts[unit]
        for t in range(n_steps * unit // n_units, n_steps * (unit + 1) // n_units):
            n_active = 0
            for k in range(n_states):
                if responsibilities[t, k] > _SMALLEST:
                    active[n_active] = k
                    x = np.float64(responsibilities[t, k])
                    logs[n_active] = x * np.log(x)
                    n_active += 1
            for a in range(n_active):
                i = active[a]
                for b in range(a + 1, n_active):
                    j = active[b]
                    x = np.float64(responsibilities[t, i]) + np.float64(responsibilities[t, j])
                    out[i, j] += x * np.log(x) - logs[a] - logs[b]
        unit = take_unit(counter)


def _on_device(responsibilities: Floats) -> Floats:
    """Do the same for all pairs at a time, in blocks of steps."""
    xp, n_states = namespace(responsibilities), responsibilities.shape[1]
    size = max(1, _NUMBERS // n_states**2)
    total = xp.zeros((n_states, n_states), "float64", like=responsibilities)
    for begin in range(0, len(responsibilities), size):
        x = xp.astype(responsibilities[begin : begin + size], "float64")
        x = xp.where(x > _SMALLEST, x, 0.0)
        both = x[:, :, None] + x[:, None, :]
        alone = xp.xlogy(x, x).sum(axis=0)
        total += xp.xlogy(both, both).sum(axis=0) - alone[:, None] - alone
    return xp.triu(total, 1)
