"""Forward-backward of several models of the same data at once, in numba: restarts of one fit.

Models are lanes of a vector, `LANES` at most: each has its own potentials, all have the same steps,
and one sweep over the data serves all of them.

    forward    a_t = (a_{t−1} Θ) ∘ φ_t s_t,   s_t = 1 / Σ_k (a_{t−1} Θ)_k φ_tk
    backward   b_{t−1} = Θ e_t,   e_t = φ_t ∘ b_t s_t
    counts     Θ ∘ Σ_t a_{t−1}ᵀ e_t

Memory: the forward vectors of the longest sequence.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.inner import inner, outer
from sojourn.kernels.cpu.lanes import (
    LANES,
    add,
    choose,
    inverse,
    lanes_not_above,
    load,
    multiply,
    multiply_add,
    splat,
    store,
    zeros_of,
)
from sojourn.kernels.cpu.room import empty
from sojourn.kernels.cpu.symbols import consecutive
from sojourn.kernels.interface import Floats, Integers, Potentials, Smoothed

LIMITS = np.array([np.finfo(np.float64).tiny * 1e6, 1e-250, 1e250, 1.0])
_SMALLEST, _LOW, _HIGH, _ONE = range(4)


class Sweeps:
    """Forward-backward of M models of the same steps, with memory that is used again.

    Parameters
    ----------
    offsets : (N + 1,) integer array
        Sequence n is the steps ``offsets[n]:offsets[n + 1]``.

    Examples
    --------
    >>> start, rows = np.full((1, 2), 1.0), np.full((1, 1, 2), 1.0)
    >>> table = np.array([[0.5, 0.25]])
    >>> potentials = Potentials(start, rows, table)
    >>> np.exp(Sweeps(np.array([0, 3])).smooth(potentials, np.zeros(3)).log_normalizers)
    array([0.125   , 0.015625])
    """

    def __init__(self, offsets: Integers) -> None:
        self.offsets = np.asarray(offsets, dtype=np.int64)
        self._places = consecutive(int(self.offsets[-1]))
        self._longest = int(np.diff(self.offsets).max())
        self._alpha = np.empty(0)
        self._scales = np.empty(self._longest * LANES)

    def smooth(self, potentials: Potentials, index: Integers) -> Smoothed:
        """Compute what `Kernel.forward_backward` does; log Z is NaN where a total underflows.

        Parameters
        ----------
        potentials : Potentials
            In double precision: start (K, M), transitions (K, K, M) and emissions (U, W) with
            W ≥ K M, in which number k M + m of a row belongs to state k of model m.  The factors
            of rows are those of all models.
        index : (T,) integer array
            Row of the emission table for each step.

        Returns
        -------
        Smoothed
            log Z summed over sequences (M,), start (K, M), transitions (K, K, M) and
            responsibilities (T, K M) in the order of the emissions.
        """
        n_states, n_models = potentials.start.shape
        start = _in_lanes(potentials.start)
        transitions = _in_lanes(potentials.transitions)
        own = potentials.emissions[:, : n_states * n_models]
        phi = _in_lanes(own.reshape(-1, n_states, n_models))
        if self._alpha.size != self._longest * n_states * LANES:
            self._alpha = np.empty(self._longest * n_states * LANES)
        responsibilities = np.zeros((len(self._places), n_states, LANES))
        log_z, start_counts = np.empty(LANES), np.zeros(start.shape)
        counts = np.zeros(transitions.shape)
        smooth_lanes(
            np.ascontiguousarray(index, dtype=np.int32),
            self.offsets,
            start.ravel(),
            transitions.ravel(),
            phi.ravel(),
            n_states,
            LIMITS,
            self._alpha,
            self._scales,
            log_z,
            self._places,
            responsibilities.ravel(),
            start_counts.ravel(),
            counts.ravel(),
        )
        found = log_z[:n_models]
        if potentials.log_scale is not None:
            found = found + potentials.log_scale[index].sum()
        return Smoothed(
            found,
            start_counts[:, :n_models],
            (counts * transitions)[..., :n_models],
            responsibilities[..., :n_models].reshape(-1, n_states * n_models),
            None,
        )


def _in_lanes(own: Floats) -> Floats:
    """Return numbers of models (..., M) as (..., LANES), with ones where there is no model."""
    lanes = np.ones((*own.shape[:-1], LANES))
    lanes[..., : own.shape[-1]] = own
    return lanes


@outer
def smooth_lanes(
    index, offsets, start, transitions, phi, n_states, limits, alpha, scales, log_z, places,
    responsibilities, start_counts, counts,
):  # fmt: skip
    """Sweep over all sequences; the responsibilities of a step are added to those of its place."""
    beta, epsilon = empty(np.float64, n_states * LANES), empty(np.float64, n_states * LANES)
    product, logs = empty(np.float64, LANES), empty(np.float64, LANES)
    sweep_lanes(
        index, offsets, start, transitions, phi, n_states, limits, alpha, scales, log_z, places,
        responsibilities, start_counts, counts, beta, epsilon, product, logs,
    )  # fmt: skip


@inner
def sweep_lanes(
    index, offsets, start, transitions, phi, n_states, limits, alpha, scales, log_z, places,
    responsibilities, start_counts, counts, beta, epsilon, product, logs,
):  # fmt: skip
    """Do so; the last four arrays are room."""
    for i in range(LANES):
        product[i], logs[i] = 1.0, 0.0
    failed = 0
    for n in range(offsets.shape[0] - 1):
        steps = index[offsets[n] : offsets[n + 1]]
        failed |= _forward(
            steps, start, transitions, phi, n_states, limits, alpha, scales, product, logs
        )
        _backward(
            steps, transitions, phi, n_states, alpha, scales, beta, epsilon,
            places[offsets[n] : offsets[n + 1]], responsibilities, start_counts, counts,
        )  # fmt: skip
    for i in range(LANES):
        log_z[i] = np.nan if failed >> i & 1 else logs[i] + np.log(product[i])


@inner
def _forward(index, start, transitions, phi, n_states, limits, alpha, scales, product, logs):
    """Go through a sequence; return the lanes in which a total underflows, as bits."""
    row, failed = n_states * LANES, 0
    zero, smallest = zeros_of(phi), splat(limits, _SMALLEST)
    low, high, one = splat(limits, _LOW), splat(limits, _HIGH), splat(limits, _ONE)
    for t in range(index.shape[0]):
        emitted, here = np.int64(index[t]) * row, t * row
        total = zero
        for j in range(n_states):
            x = zero
            if t == 0:
                x = load(start, j * LANES)
            else:
                for k in range(n_states):
                    theta = load(transitions, (k * n_states + j) * LANES)
                    x = multiply_add(load(alpha, here - row + k * LANES), theta, x)
            x = multiply(x, load(phi, emitted + j * LANES))
            store(alpha, here + j * LANES, x)
            total = add(total, x)
        failing = lanes_not_above(total, smallest)
        failed |= failing
        total = choose(failing, one, total)
        scale = inverse(total)
        store(scales, t * LANES, scale)
        for at in range(here, here + row, LANES):
            store(alpha, at, multiply(load(alpha, at), scale))
        value = multiply(load(product, np.int64(0)), total)
        store(product, np.int64(0), value)
        # One logarithm for many steps: the product is kept within range.
        if lanes_not_above(value, low) != 0 or lanes_not_above(high, value) != 0:
            for i in range(LANES):
                logs[i] += np.log(product[i])
                product[i] = 1.0
    return failed


@inner
def _backward(
    index, transitions, phi, n_states, alpha, scales, beta, epsilon, places, responsibilities,
    start_counts, counts,
):  # fmt: skip
    """Go back through a sequence, and add up what is expected."""
    row, zero = n_states * LANES, zeros_of(phi)
    for at in range(row):
        beta[at] = 1.0
    for t in range(index.shape[0] - 1, -1, -1):
        emitted, place, here = np.int64(index[t]) * row, np.int64(places[t]) * row, t * row
        scale = load(scales, t * LANES)
        for at in range(0, row, LANES):
            own = load(beta, at)
            store(epsilon, at, multiply(multiply(load(phi, emitted + at), own), scale))
            own = multiply(load(alpha, here + at), own)
            store(responsibilities, place + at, add(load(responsibilities, place + at), own))
            if t == 0:
                store(start_counts, at, add(load(start_counts, at), own))
        if t == 0:
            break
        for k in range(n_states):
            before, x = load(alpha, here - row + k * LANES), zero
            for j in range(n_states):
                at = (k * n_states + j) * LANES
                e = load(epsilon, j * LANES)
                store(counts, at, multiply_add(before, e, load(counts, at)))
                x = multiply_add(load(transitions, at), e, x)
            store(beta, k * LANES, x)
