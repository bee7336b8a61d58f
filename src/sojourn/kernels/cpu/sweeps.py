"""Potentials and sums of numbers inside of `strips`: a vector has the same step of `LANES` tiles.

Where both are computed there, neither potentials nor responsibilities are ever rows in memory: a
strip keeps what it needs in the second cache, and no vector is transposed but those of the data.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.cpu.densities import add_square, double_rows
from sojourn.kernels.cpu.inner import inner
from sojourn.kernels.cpu.lane_math import every, subtract
from sojourn.kernels.cpu.lanes import (
    LANES,
    load,
    multiply,
    multiply_add,
    narrowed,
    store,
    transpose,
    widened,
)
from sojourn.kernels.cpu.single import LOG_2, SingleWeights, single_rows
from sojourn.kernels.cpu.steps import STEPS, WIDTH
from sojourn.kernels.interface import Floats
from sojourn.kernels.threads import prefetch

_LARGEST = 1e30  # numbers whose squares may not fit into single precision are left to others


@dataclass(frozen=True, eq=False)
class Numbers:
    """Observations, the function that their potentials are, and the products to be summed.

    Attributes
    ----------
    values : (T, D) array
    location : (D,) array
    spans : (E, 3) integer array
        As `densities.student_rows` takes them, and what follows.
    weights : (1 + D, E, K) array
    of_states : tuple of arrays
        Factors, shares, powers and constants.
    single : SingleWeights
    collapsed : bool
    pairs : (P, 2) integer array
        As `densities.sum_products` takes them.
    """

    values: Floats
    location: Floats
    spans: NDArray[np.int64]
    weights: Floats
    of_states: tuple[Floats, Floats, Floats, Floats]
    single: SingleWeights
    collapsed: bool
    pairs: NDArray[np.int64]

    def arguments(self) -> tuple[Any, ...]:
        """Return what `load_numbers` takes."""
        return (
            np.ascontiguousarray(self.values, dtype=np.float64).ravel(),
            np.ascontiguousarray(self.location, dtype=np.float64),
            np.tile(np.asarray(self.location, dtype=np.float64), LANES),
            tuple(self.single[:4]),
            np.ascontiguousarray(self.spans, dtype=np.int64),
            np.ascontiguousarray(self.weights.transpose(2, 1, 0)).ravel(),
            tuple(np.ascontiguousarray(part, dtype=np.float64) for part in self.of_states),
            self.single.offset,
            self.collapsed,
        )


@inner
def load_numbers(
    begins, shift, n_steps, n_states, numbers, run, tops, z, rows, potentials, places, columns,
    columns_at, phi, phi_at, heights,
):  # fmt: skip
    """Compute the potentials of a block; write the logarithms of their factors to `heights`.

    `columns` gets the numbers themselves, less the location, in single precision.  Steps outside of
    the data are zeros.  Returns whether a number is missing, or too large for single precision.
    """
    x, location, locations, single, spans, weights, of_states, offset, collapsed = numbers
    n_columns = location.shape[0]
    row, length, none = n_states * WIDTH, STEPS * n_columns, np.int64(0)
    for i in range(WIDTH):
        t, at = begins[i] + shift, i * length
        places[i] = at
        if 0 <= t <= n_steps - STEPS:
            for j in range(0, length, LANES):
                # Too many streams for the processor to foresee: ask for the next block.
                prefetch(x, t * n_columns + length + j)
                prefetch(x, t * n_columns + length + j + LANES // 2)
                less = subtract(load(x, t * n_columns + j), load(locations, j))
                store(run, at + j, narrowed(less))
            continue
        for s in range(STEPS):
            for d in range(n_columns):
                run[at] = 0.0
                if 0 <= t + s < n_steps:
                    run[at] = x[(t + s) * n_columns + d] - location[d]
                at += 1
    for half in range(0, WIDTH, LANES):
        for at in range(0, length, LANES):
            transpose(run, places, half, at, columns, columns_at + at * WIDTH + half, WIDTH)
    log_2, base, unfit = every(LOG_2), every(offset), False
    for s in range(0, STEPS, 2):
        doubtful = single_rows(
            columns, columns_at + s * n_columns * WIDTH, WIDTH, n_columns * WIDTH, single, spans,
            collapsed, phi, phi_at + s * row, WIDTH, row, tops, none,
        )  # fmt: skip
        for at in range(0, 2 * WIDTH, LANES):
            height = multiply_add(widened(load(tops, at)), log_2, base)
            store(heights, s * WIDTH + at, height)
        if doubtful == 0:
            continue
        factors, shares, powers, constants = of_states
        for lanes in range(s * WIDTH, (s + 2) * WIDTH, LANES):
            step, half = lanes // WIDTH, lanes % WIDTH
            for i in range(LANES):
                t = begins[half + i] + shift + step
                for d in range(n_columns):
                    value = x[t * n_columns + d] - location[d] if 0 <= t < n_steps else 0.0
                    unfit |= not abs(value) <= _LARGEST
                    z[d * LANES + i] = value
            double_rows(
                z, weights, spans, factors, shares, powers, constants, collapsed, rows, potentials,
                heights, lanes,
            )  # fmt: skip
            for k in range(n_states):
                store(phi, phi_at + step * row + k * WIDTH + half, load(potentials, k * LANES))
    return unfit


@inner
def add_moments(
    begins, shift, n_steps, n_states, pairs, columns, columns_at, gamma, z, products, shares, sums
):
    """Add the products of pairs of columns of a block, times `gamma`, to the sums of every lane."""
    n_pairs, n_columns = pairs.shape[0], z.shape[0] // LANES - 1
    n_rows, n_right, group = -(-n_pairs // 4) * 4, -(-n_states // 2) * 2, 0
    outside = begins[WIDTH - 1] + shift + STEPS > n_steps
    for s in range(STEPS):
        for half in range(0, WIDTH, LANES):
            at = columns_at + s * n_columns * WIDTH + half
            for d in range(n_columns):
                store(z, (d + 1) * LANES, widened(load(columns, at + d * WIDTH)))
            for p in range(n_pairs):
                left, right = load(z, pairs[p, 0] * LANES), load(z, pairs[p, 1] * LANES)
                store(products, (group * n_rows + p) * LANES, multiply(left, right))
            at = s * n_states * WIDTH + half
            for k in range(n_states):
                share = widened(load(gamma, at + k * WIDTH))
                store(shares, (group * n_right + k) * LANES, share)
            if outside:
                for i in range(LANES):
                    if begins[half + i] + shift + s >= n_steps:
                        for k in range(n_states):
                            shares[(group * n_right + k) * LANES + i] = 0.0
            group += 1
    for p in range(0, n_rows, 4):
        for k in range(0, n_right, 2):
            add_square(products, p, n_rows, shares, k, n_right, group, sums)
