"""Compiled sums of columns and of their squares: a vector has `LANES` columns of one step.

Rows are read as they are, without a transpose; for one column `densities.sum_products`, whose
vectors have `LANES` steps, is faster.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.densities import summed_weights
from sojourn.kernels.cpu.inner import inner, outer
from sojourn.kernels.cpu.lane_math import every, subtract
from sojourn.kernels.cpu.lanes import LANES, get, load, multiply, multiply_add, store
from sojourn.kernels.interface import Floats
from sojourn.kernels.threads import run_units, take_unit

FEW_COLUMNS = 1
"""Columns up to which `densities.sum_products` is faster.

On an AMD EPYC, 2 states, one core: a step with one column takes 2.6 ns there and 3.2 ns here, with
ten columns 15.7 and 3.3.
"""

_STEPS_PER_UNIT = 1024
_RUN = 128  # steps that stay in the cache while states are gone through


def sum_moments(
    x: Floats, location: Floats, weights: Floats, *, squares: bool, n_threads: int
) -> tuple[Floats, Floats, Floats] | None:
    """Return the sums of ``weights[t]``, ``weights[t] * y[t]`` and ``weights[t] * y[t] ** 2``.

    y is ``x - location``, and the shapes are (1, K), (D, K) and (D, K); without `squares` the last
    is zero.  None if an entry is missing.  The parts that are summed follow from the sizes alone,
    so that the number of threads does not change a bit.
    """
    (n_steps, n_columns), n_states = x.shape, weights.shape[1]
    width = -(-n_columns // LANES) * LANES
    centre = np.zeros(width)
    centre[:n_columns] = location
    # A vector reads beyond the end of a row: the last rows are copied.
    n_tail = min(n_steps, -(-LANES // n_columns))
    tail = np.zeros((n_tail + LANES, n_columns))
    tail[:n_tail] = x[n_steps - n_tail :]
    n_units = max(1, min(16, n_steps // _STEPS_PER_UNIT))
    parts = np.zeros((n_units, n_states, 2, width))
    counts = np.zeros((n_units, n_states))
    run_units(
        _sum_moments,
        n_units,
        n_threads,
        np.ascontiguousarray(x, dtype=np.float64),
        tail,
        n_tail,
        centre,
        summed_weights(weights),
        squares,
        parts,
        counts,
    )
    total = parts.sum(axis=0)[:, :, :n_columns]
    if np.isnan(total[:, 0]).any():
        return None
    return counts.sum(axis=0)[None], total[:, 0].T, total[:, 1].T


@outer
def _sum_moments(counter, n_units, x, tail, n_tail, centre, weights, squares, parts, counts):
    (n_steps, n_columns), n_states = x.shape, weights.shape[1]
    zero = np.int64(0)
    unit = take_unit(counter)
    while unit < n_units:
        sums = parts[unit].ravel()
        end = n_steps * (unit + 1) // n_units
        for begin in range(n_steps * unit // n_units, end, _RUN):
            last = min(begin + _RUN, end)
            safe = min(last, n_steps - n_tail)
            for d in range(0, n_columns, LANES):
                for k in range(0, n_states, 4):
                    if begin < safe:
                        _add_run(
                            x, begin, safe, zero, d, centre, weights, k, squares, sums, counts[unit]
                        )
                    if safe < last:
                        _add_run(
                            tail, max(begin, safe), last, n_tail - n_steps, d, centre, weights, k,
                            squares, sums, counts[unit],
                        )  # fmt: skip
        unit = take_unit(counter)


@inner
def _add_run(x, begin, end, shift, d, centre, weights, k, squares, sums, counts):
    """Add some steps to the sums of four states at most; row t is ``x[t + shift]``."""
    n_columns, n_states, width = x.shape[1], weights.shape[1], centre.shape[0]
    location, down = load(centre, d), 2 * width
    first = 1.0 if d == 0 else 0.0  # the weights themselves are added once
    if k + 4 <= n_states:
        at = k * down + d
        a, b = load(sums, at), load(sums, at + down)
        c, e = load(sums, at + 2 * down), load(sums, at + 3 * down)
        f, g = load(sums, at + width), load(sums, at + width + down)
        h, i = load(sums, at + width + 2 * down), load(sums, at + width + 3 * down)
        u, v, w, z = 0.0, 0.0, 0.0, 0.0
        for t in range(begin, end):
            y = subtract(load(x, (t + shift) * n_columns + d), location)
            place = t * n_states + k
            p, q = np.float64(get(weights, place)), np.float64(get(weights, place + 1))
            r, s = np.float64(get(weights, place + 2)), np.float64(get(weights, place + 3))
            u, v, w, z = u + p, v + q, w + r, z + s
            a, b = multiply_add(y, every(p), a), multiply_add(y, every(q), b)
            c, e = multiply_add(y, every(r), c), multiply_add(y, every(s), e)
            if squares:
                y = multiply(y, y)
                f, g = multiply_add(y, every(p), f), multiply_add(y, every(q), g)
                h, i = multiply_add(y, every(r), h), multiply_add(y, every(s), i)
        store(sums, at, a)
        store(sums, at + down, b)
        store(sums, at + 2 * down, c)
        store(sums, at + 3 * down, e)
        store(sums, at + width, f)
        store(sums, at + width + down, g)
        store(sums, at + width + 2 * down, h)
        store(sums, at + width + 3 * down, i)
        counts[k] += first * u
        counts[k + 1] += first * v
        counts[k + 2] += first * w
        counts[k + 3] += first * z
        return
    while k < n_states:
        other = min(k + 1, n_states - 1)  # two at a time, or the last one twice
        at, beside = k * down + d, other * down + d
        a, b = load(sums, at), load(sums, beside)
        f, g = load(sums, at + width), load(sums, beside + width)
        u, v = 0.0, 0.0
        for t in range(begin, end):
            y = subtract(load(x, (t + shift) * n_columns + d), location)
            p = np.float64(get(weights, t * n_states + k))
            q = np.float64(get(weights, t * n_states + other))
            u, v = u + p, v + q
            a, b = multiply_add(y, every(p), a), multiply_add(y, every(q), b)
            y = multiply(y, y)
            f, g = multiply_add(y, every(p), f), multiply_add(y, every(q), g)
        store(sums, at, a)
        store(sums, beside, b)
        store(sums, at + width, f)
        store(sums, beside + width, g)
        counts[k] += first * u
        if other > k:
            counts[other] += first * v
        k += 2
