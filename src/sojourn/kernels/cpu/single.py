"""Potentials of Gaussian kind in single precision, in half the time that `densities` takes.

Logarithms are binary, and relative to the largest constant of all states, so that they are small
numbers where they matter.  Where they are not, the lanes are reported, and `densities` computes
them in double precision.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.kernels.cpu.inner import inlined
from sojourn.kernels.cpu.lane_math import (
    SMALL,
    every_like,
    largest,
    log_one_plus,
    log_one_plus_small,
    power_of_two,
    subtract,
)
from sojourn.kernels.cpu.lanes import (
    LANES,
    add,
    lanes_not_above,
    load,
    multiply_add,
    splat,
    store,
    zeros_of,
)
from sojourn.kernels.interface import Floats

LEVERAGE = 2
"""In the last column of spans: the sum so far is a leverage; see `densities.student_rows`."""

LOG_2 = 0.6931471805599453
_GROUP = 16  # factors that are multiplied before a logarithm is taken
_LARGEST = 1e37  # a product above this may have overflowed
_LOWEST = -32.0  # binary logarithm of the largest potential: rounding is below 10⁻⁶ of one above it
_REACH = 16.0  # standard deviations from the location up to which rounding is below 10⁻⁶ of one
_WORTH_SINGLE = 2048  # steps from which it pays to look whether single precision is enough
_RANGE = 1e15  # of numbers whose squares are far from the largest of single precision
_SAMPLE = 64  # steps, at least, that show how far data are from their location


class SingleWeights(NamedTuple):
    """Arguments of `single_rows`, flat and in single precision.

    Attributes
    ----------
    weights, shares, powers, constants : float32 arrays
    offset : float
        What is subtracted from logarithms, in nats.
    lengths : (1 + D, E * K) array
        What a unit of a column is worth in every coordinate, in standard deviations.
    """

    weights: NDArray[np.float32]
    shares: NDArray[np.float32]
    powers: NDArray[np.float32]
    constants: NDArray[np.float32]
    offset: float
    lengths: Floats

    def are_enough_for(self, x: Floats, location: Floats) -> bool:
        """Whether data are near their location, in standard deviations of every state.

        Otherwise a coordinate is a difference of numbers much larger than itself, and lost.
        """
        if len(x) < _WORTH_SINGLE:
            return False
        sample = np.nan_to_num(x[:: len(x) // _SAMPLE] - location)
        # Of each column where it matters most: elsewhere rounding leaves numbers near zero.
        units = self.lengths[1:].max(axis=1)
        if not all(_fits(part) for part in (units, 1.0 / units[units > 0.0], sample)):
            return False
        size = np.sqrt(np.square(sample).mean(axis=0))
        reach = self.lengths[0] + size @ self.lengths[1:]
        return bool(reach.max() <= _REACH)


def _fits(values: Floats) -> bool:
    """Whether numbers and their products with a few others are in the range of single precision."""
    return bool(np.abs(values).max(initial=0.0) <= _RANGE)


def single_weights(
    weights: Floats,
    factors: Floats,
    shares: Floats,
    powers: Floats,
    constants: Floats,
    *,
    collapsed: bool,
) -> SingleWeights:
    """Return the arguments of `student_rows` for single precision."""
    in_deviations = weights * np.sqrt(factors * powers)
    if collapsed:
        scaled, powers = weights * np.sqrt(factors), powers / LOG_2
    else:
        scaled, powers = in_deviations / np.sqrt(LOG_2), np.ones_like(powers)
    offset = float(constants.max())
    with np.errstate(over="ignore", under="ignore"):  # then they are not enough for any data
        return SingleWeights(
            scaled.transpose(2, 1, 0).astype(np.float32).ravel(),
            shares.astype(np.float32),
            (-powers).astype(np.float32),
            ((constants - offset) / LOG_2).astype(np.float32),
            offset,
            np.abs(in_deviations).reshape(len(weights), -1),
        )


@inlined
def single_rows(
    z, z_at, z_stride, z_next, single, spans, collapsed, out, at, stride, after, tops, top_at
):
    """Write potentials of four vectors of steps, relative to the largest, and its logarithm.

    Column i of the data is at ``z_at + i * z_stride``, and state k goes to ``at + k * stride``; two
    vectors are there, and two `z_next` and `after` numbers further on.  Logarithms are binary.
    `single` has the arrays of `SingleWeights`, in their order, as far as constants.

    Returns the lanes, as bits, for which single precision is not enough, or which have a NaN.
    """
    weights, shares, powers, constants = single
    n_states, n_targets = constants.shape[0], spans.shape[0]
    side = weights.shape[0] // (n_states * n_targets)
    zero = zeros_of(z)
    lowest, small = every_like(zero, _LOWEST), every_like(zero, SMALL)
    top_a = every_like(zero, -np.inf)
    top_b = top_a
    top_c = top_a
    top_d = top_a
    doubtful = 0
    for k in range(n_states):
        # Four at a time: a sum waits for the one before it.
        a, b, c, d = zero, zero, zero, zero
        p, q, r, s = zero, zero, zero, zero
        total_a, total_b, total_c, total_d = zero, zero, zero, zero
        n_factors = 0
        place = k * n_targets * side
        for e in range(n_targets):
            v = splat(weights, place)
            w, x, y = v, v, v
            for i in range(spans[e, 0], spans[e, 1]):
                weight, column = splat(weights, place + i), z_at + (i - 1) * z_stride
                v = multiply_add(load(z, column), weight, v)
                w = multiply_add(load(z, column + LANES), weight, w)
                x = multiply_add(load(z, column + z_next), weight, x)
                y = multiply_add(load(z, column + z_next + LANES), weight, y)
            place += side
            a, b = multiply_add(v, v, a), multiply_add(w, w, b)
            c, d = multiply_add(x, x, c), multiply_add(y, y, d)
            if spans[e, 2] == 0 or not collapsed:
                continue
            if spans[e, 2] == LEVERAGE:
                share = splat(shares, k)
                total_a = multiply_add(log_one_plus(a), share, total_a)
                total_b = multiply_add(log_one_plus(b), share, total_b)
                total_c = multiply_add(log_one_plus(c), share, total_c)
                total_d = multiply_add(log_one_plus(d), share, total_d)
                continue
            # (1 + a)(1 + b) − 1 = a + b + a b: many factors, and few logarithms.
            p, q = multiply_add(p, a, add(p, a)), multiply_add(q, b, add(q, b))
            r, s = multiply_add(r, c, add(r, c)), multiply_add(s, d, add(s, d))
            a, b, c, d = zero, zero, zero, zero
            n_factors += 1
            if n_factors == _GROUP or e == n_targets - 1:
                most = largest(largest(p, q), largest(r, s))
                doubtful |= lanes_not_above(every_like(zero, _LARGEST), most)
                # With many data the products are small for almost all steps.
                if lanes_not_above(small, most) == 0:
                    total_a = add(total_a, log_one_plus_small(p))
                    total_b = add(total_b, log_one_plus_small(q))
                    total_c = add(total_c, log_one_plus_small(r))
                    total_d = add(total_d, log_one_plus_small(s))
                else:
                    total_a = add(total_a, log_one_plus(p))
                    total_b = add(total_b, log_one_plus(q))
                    total_c = add(total_c, log_one_plus(r))
                    total_d = add(total_d, log_one_plus(s))
                p, q, r, s = zero, zero, zero, zero
                n_factors = 0
        if not collapsed:
            total_a, total_b, total_c, total_d = a, b, c, d
        constant, power, place = splat(constants, k), splat(powers, k), at + k * stride
        a = multiply_add(total_a, power, constant)
        b = multiply_add(total_b, power, constant)
        c = multiply_add(total_c, power, constant)
        d = multiply_add(total_d, power, constant)
        top_a, top_b = largest(a, top_a), largest(b, top_b)
        top_c, top_d = largest(c, top_c), largest(d, top_d)
        store(out, place, a)
        store(out, place + LANES, b)
        store(out, place + after, c)
        store(out, place + after + LANES, d)
    for k in range(n_states):
        place = at + k * stride
        store(out, place, power_of_two(subtract(load(out, place), top_a)))
        place += LANES
        store(out, place, power_of_two(subtract(load(out, place), top_b)))
        place += after - LANES
        store(out, place, power_of_two(subtract(load(out, place), top_c)))
        place += LANES
        store(out, place, power_of_two(subtract(load(out, place), top_d)))
    store(tops, top_at, top_a)
    store(tops, top_at + LANES, top_b)
    store(tops, top_at + 2 * LANES, top_c)
    store(tops, top_at + 3 * LANES, top_d)
    doubtful |= lanes_not_above(top_a, lowest) | lanes_not_above(top_b, lowest)
    return doubtful | lanes_not_above(top_c, lowest) | lanes_not_above(top_d, lowest)
