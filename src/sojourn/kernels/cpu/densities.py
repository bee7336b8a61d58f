"""Compiled log densities of Gaussian kind: states are the inner loop, so that they fill vectors.

The NumPy forms in `sojourn.families` say what is computed, and tests hold these to them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from sojourn.kernels.interface import Floats, padded_states
from sojourn.kernels.threads import run_units, take_unit

_STEPS_PER_UNIT = 1024
_GROUP = 8  # factors that are multiplied before a logarithm is taken
_LARGEST = 1e37  # squared distance at which a factor is cut off, so that the product is finite
_FAST = {"contract", "nsz", "arcp", "reassoc"}


def student_rows(
    z: Floats,
    weights: Floats,
    spans: NDArray[np.int64],
    factors: Floats,
    powers: Floats,
    constants: Floats,
    dtype: Any,
    *,
    collapsed: bool,
    n_threads: int,
) -> tuple[Floats, Floats]:
    """Compute ``exp(rows - rows.max(1))`` and ``rows.max(1)`` for rows of a Gaussian kind.

    The first column of z is one.  With
    ``q[t, g, k] = sum over e of group g of (z[t] @ weights[:, e, k]) ** 2``, rows are
    ``constants - powers * sum over g of log1p(factors * q)`` (collapsed) or
    ``constants - powers * sum over g of factors * q``.

    Parameters
    ----------
    z : (T, side) float64 array
    weights : (side, E, K) array
    spans : (E, 3) integer array
        First and last row of ``weights[:, e]`` beyond row 0 that are not all zero (the last is
        exclusive), and whether a group ends with e.
    factors, powers, constants : (K,) arrays

    Returns
    -------
    table : (T, padded K) array
    log_scale : (T,) array
    """
    n_states = weights.shape[2]
    width = padded_states(n_states)

    def padded(array: Floats) -> Floats:
        out = np.zeros((*array.shape[:-1], width))
        out[..., :n_states] = array
        return out

    table = np.zeros((len(z), width), dtype)
    log_scale = np.empty(len(z))
    n_units = max(1, -(-len(z) // _STEPS_PER_UNIT))
    run_units(
        _student_rows,
        n_units,
        n_threads,
        np.ascontiguousarray(z),
        padded(weights),
        np.ascontiguousarray(spans, dtype=np.int64),
        padded(factors),
        padded(powers),
        padded(constants),
        n_states,
        collapsed,
        table,
        log_scale,
    )
    return table, log_scale


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"}, inline="always")
def _log1p(x, bits, out):
    """log(1 + x) for x ≥ 0, in loops without branches, so that they become vector code.

    1 + x = 2^e m with m near one, and log m = 2 artanh((m − 1)/(m + 1)) by its series (fdlibm's
    coefficients).  What 1 + x lost in rounding is added at the end.
    """
    view = bits.view(np.float64)
    for j in range(x.size):
        view[j] = 1.0 + x[j]
    for j in range(x.size):
        u = view[j]
        exponent = (bits[j] + np.int64(0x3FF0000000000000 - 0x3FE6A09E667F3BCD)) >> 52
        e = np.float64(exponent - 1023)
        out[j] = e
        bits[j] = bits[j] - ((exponent - 1023) << 52)
        lost = (x[j] - (u - 1.0)) / u
        m = view[j]
        s = (m - 1.0) / (m + 1.0)
        w = s * s
        series = 1.479819860511658591e-01
        series = 1.531383769920937332e-01 + w * series
        series = 1.818357216161805012e-01 + w * series
        series = 2.222219843214978396e-01 + w * series
        series = 2.857142874366239149e-01 + w * series
        series = 3.999999999940941908e-01 + w * series
        series = 6.666666666666735130e-01 + w * series
        out[j] = e * 0.6931471805599453 + (s * (2.0 + w * series) + lost)


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"}, inline="always")
def _exp(x, bits, out):
    """exp(x) for x ≤ 0, in loops without branches; below −700 it is zero."""
    view = bits.view(np.float64)
    for j in range(x.size):
        value = max(x[j], -700.0)
        n = np.floor(value * 1.4426950408889634 + 0.5)
        r = value - n * 0.693145751953125 - n * 1.42860682030941723212e-6
        p = 1.0 / 39916800.0
        p = 1.0 / 3628800.0 + r * p
        p = 1.0 / 362880.0 + r * p
        p = 1.0 / 40320.0 + r * p
        p = 1.0 / 5040.0 + r * p
        p = 1.0 / 720.0 + r * p
        p = 1.0 / 120.0 + r * p
        p = 1.0 / 24.0 + r * p
        p = 1.0 / 6.0 + r * p
        p = 0.5 + r * p
        p = 1.0 + r * p
        p = 1.0 + r * p
        bits[j] = (np.int64(n) + 1023) << 52
        out[j] = p * view[j] if x[j] > -700.0 else 0.0


@njit(nogil=True, cache=True, fastmath=_FAST, inline="always")
def _squares(z, weights, first, last, value, total):
    """``total += (weights[0] + z[first:last] @ weights[first:last]) ** 2``, four rows at a time."""
    width = total.size
    i = first + 1
    a = z[first]
    for j in range(width):
        value[j] = weights[0, j] + a * weights[first, j]
    while i + 4 <= last:
        a, b, c, d = z[i], z[i + 1], z[i + 2], z[i + 3]
        for j in range(width):
            value[j] += (a * weights[i, j] + b * weights[i + 1, j]) + (
                c * weights[i + 2, j] + d * weights[i + 3, j]
            )
        i += 4
    while i < last:
        a = z[i]
        for j in range(width):
            value[j] += a * weights[i, j]
        i += 1
    for j in range(width):
        total[j] += value[j] * value[j]


@njit(nogil=True, cache=True, fastmath={"contract", "nsz"})
def _student_rows(
    counter,
    n_units,
    z,
    weights,
    spans,
    factors,
    powers,
    constants,
    n_states,
    collapsed,
    table,
    log_scale,
):
    n_steps, width = table.shape
    n_targets = spans.shape[0]
    bits = np.empty(width, np.int64)
    value, square, product = np.empty(width), np.empty(width), np.empty(width)
    logs, row = np.empty(width), np.empty(width)
    flat = np.empty((n_targets, weights.shape[0], width))
    for e in range(n_targets):
        flat[e] = weights[:, e]
    unit = take_unit(counter)
    while unit < n_units:
        for t in range(n_steps * unit // n_units, n_steps * (unit + 1) // n_units):
            for j in range(width):
                square[j] = 0.0
                product[j] = 0.0
                row[j] = 0.0
            n_factors = 0
            for e in range(n_targets):
                _squares(z[t], flat[e], spans[e, 0], spans[e, 1], value, square)
                if spans[e, 2] == 0:
                    continue
                if not collapsed:
                    for j in range(width):
                        row[j] += factors[j] * square[j]
                        square[j] = 0.0
                    continue
                # (1 + a)(1 + b) − 1 = a + b + a b: many factors, and few logarithms.
                for j in range(width):
                    q = factors[j] * square[j]
                    q = q if q < _LARGEST else _LARGEST
                    product[j] += q + product[j] * q
                    square[j] = 0.0
                n_factors += 1
                if n_factors == _GROUP:
                    _log1p(product, bits, logs)
                    for j in range(width):
                        row[j] += logs[j]
                        product[j] = 0.0
                    n_factors = 0
            if n_factors > 0:
                _log1p(product, bits, logs)
                for j in range(width):
                    row[j] += logs[j]
            top = -np.inf
            for j in range(n_states):
                row[j] = constants[j] - powers[j] * row[j]
                top = max(top, row[j])
            for j in range(width):
                row[j] -= top
            _exp(row, bits, logs)
            for j in range(n_states):
                table[t, j] = logs[j]
            log_scale[t] = top
        unit = take_unit(counter)


def sum_products(z: Floats, pairs: NDArray[np.int64], weights: Floats, *, n_threads: int) -> Floats:
    """Compute ``sum over t of z[t, i] * z[t, j] * weights[t]`` for every pair (i, j), (pairs, K).

    The parts that are summed follow from the sizes alone, so that the number of threads does not
    change a bit.
    """
    n_states = weights.shape[1]
    width = padded_states(n_states)
    n_units = max(1, min(16, len(z) // _STEPS_PER_UNIT))
    parts = np.zeros((n_units, len(pairs), width))
    run_units(
        _sum_products,
        n_units,
        n_threads,
        np.ascontiguousarray(z),
        np.ascontiguousarray(pairs, dtype=np.int64),
        weights,
        parts,
    )
    return np.ascontiguousarray(parts.sum(axis=0)[:, :n_states])


@njit(nogil=True, cache=True, fastmath=_FAST)
def _sum_products(counter, n_units, z, pairs, weights, parts):
    n_steps, n_states = weights.shape
    width = parts.shape[2]
    first, second, third, fourth = np.zeros((4, width))
    unit = take_unit(counter)
    while unit < n_units:
        total = parts[unit]
        t, end = n_steps * unit // n_units, n_steps * (unit + 1) // n_units
        # Four steps at a time: the sums are read and written a quarter as often.
        while t < end:
            n = min(4, end - t)
            for j in range(n_states):
                first[j] = weights[t, j]
                second[j] = weights[t + 1, j] if n > 1 else 0.0
                third[j] = weights[t + 2, j] if n > 2 else 0.0
                fourth[j] = weights[t + 3, j] if n > 3 else 0.0
            b, c, d = min(t + 1, end - 1), min(t + 2, end - 1), min(t + 3, end - 1)
            for s in range(pairs.shape[0]):
                x, y = pairs[s, 0], pairs[s, 1]
                p, q = z[t, x] * z[t, y], z[b, x] * z[b, y]
                r, v = z[c, x] * z[c, y], z[d, x] * z[d, y]
                for j in range(width):
                    total[s, j] += (p * first[j] + q * second[j]) + (r * third[j] + v * fourth[j])
            t += 4
        unit = take_unit(counter)
