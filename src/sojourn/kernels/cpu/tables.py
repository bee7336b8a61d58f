"""Expected tables of the HDP's restaurants and of symbols, and an update of the HDP, in numba.

Cells are taken `LANES` at a time: as single numbers, their logarithms and exponentials took as long
as a tenth of forward-backward of 500 short sequences.
"""

from __future__ import annotations

import numpy as np

from sojourn.kernels.cpu.inner import inlined, inner, loops, outer
from sojourn.kernels.cpu.lane_math import (
    divide,
    every,
    largest,
    log_one_plus,
    one_less_exponential,
    subtract,
)
from sojourn.kernels.cpu.lanes import (
    LANES,
    add,
    choose,
    lanes_not_above,
    least,
    load,
    multiply,
    multiply_add,
    store,
)
from sojourn.kernels.cpu.room import empty
from sojourn.kernels.threads import take_unit

_SMALLEST_SUM = 1e-200  # of an event that may occur
_LARGEST_PROBABILITY = 1.0 - 1e-8


def cells_of(n_states: int) -> int:
    """Return the length of the arrays of `exchangeable_tables`: whole vectors of cells.

    Examples
    --------
    >>> cells_of(3)  # 12 cells
    16
    """
    return -(-n_states * (n_states + 1) // LANES) * LANES


@loops
def exchangeable_tables(period, prior, counts, squares, row_squares, totals, tables, log_eta):
    """Write E[s] of every cell, eq (19), and E[log η] of every row, eq (6).

    Cells are flat, row after row with the start first, in arrays of length `cells_of(K)`: `prior`
    has G[α π], which repeats itself after `period` cells, `counts` E[C] and `squares` Σ q².  The
    start certainly occurs.  `row_squares` (K,) has Σ q² of the other rows, and `totals` (K + 1,)
    the concentrations of rows.
    """
    psi = empty(np.float64, prior.shape[0])
    _write_tables(period, prior, counts, squares, row_squares, totals, tables, log_eta, psi)


@inner
def _write_tables(period, prior, counts, squares, row_squares, totals, tables, log_eta, psi):
    """Do so; `psi` is room."""
    n_states = row_squares.shape[0]
    for at in range(0, period, LANES):
        store(psi, at, _digammas(load(prior, at)))
    for at in range(period, prior.shape[0]):
        psi[at] = psi[at - period]
    for at in range(0, tables.shape[0], LANES):
        found = _cells(load(prior, at), load(counts, at), load(squares, at), load(psi, at))
        store(tables, at, found)
    for i in range(n_states + 1):
        row = 0.0
        for at in range(i * n_states, (i + 1) * n_states):
            row += counts[at]
        occurs = 1.0
        if i > 0 and row > _SMALLEST_SUM:
            p = min(max(row_squares[i - 1] / row, 0.0), _LARGEST_PROBABILITY)
            absent = row / p * np.log1p(-p) if p > 1e-12 else -row
            occurs = -np.expm1(min(absent, -row))
        log_eta[i] = 0.0
        if row > _SMALLEST_SUM:
            log_eta[i] = occurs * (_digamma(totals[i]) - _digamma(totals[i] + row / occurs))


@inlined
def _cells(prior, counts, squares, psi):
    """Return E[s] of some cells; `psi` is ψ of the prior."""
    none, smallest = every(0.0), every(_SMALLEST_SUM)
    certain = least(squares, counts)
    unseen = lanes_not_above(certain, smallest)
    some = largest(certain, smallest)
    p = least(divide(some, largest(counts, smallest)), every(_LARGEST_PROBABILITY))
    log_absent = log_one_plus(subtract(none, multiply(p, p)))
    # Where p² underflows, the number of certain events decides.
    log_absent = least(multiply(divide(counts, p), log_absent), subtract(none, some))
    settled = _settled(prior, some, log_absent, psi)
    return multiply_add(prior, _rest(prior, counts, certain), choose(unseen, none, settled))


@inlined
def _settled(prior, certain, log_absent, psi):
    """Return E[s] of events that are certain, if there are any; `psi` is ψ of the prior."""
    occurs = one_less_exponential(log_absent)
    grown = subtract(_digammas(add(prior, divide(certain, occurs))), psi)
    return multiply(multiply(prior, occurs), largest(grown, every(0.0)))


@inlined
def _rest(prior, counts, certain):
    """Return what the other events add to E[s], per unit of the prior."""
    return log_one_plus(divide(subtract(counts, certain), add(prior, certain)))


@inlined
def _digammas(x):
    """ψ of some x > 0, as `_digamma`."""
    one, six = every(1.0), every(6.0)
    low = lanes_not_above(x, six)
    u = multiply(x, add(x, every(5.0)))
    v, w = add(u, every(4.0)), add(u, six)
    vw = multiply(v, w)
    above = multiply_add(u, add(v, w), vw)
    shift = divide(multiply(multiply_add(x, every(2.0), every(5.0)), above), multiply(u, vw))
    shift = choose(low, shift, every(0.0))
    x = choose(low, add(x, six), x)
    inverse = divide(one, x)
    square = multiply(inverse, inverse)
    minus = subtract(every(0.0), square)
    series = multiply_add(minus, every(1.0 / 12.0), every(691.0 / 32760.0))
    series = multiply_add(minus, series, every(1.0 / 132.0))
    series = multiply_add(minus, series, every(1.0 / 240.0))
    series = multiply_add(minus, series, every(1.0 / 252.0))
    series = multiply_add(minus, series, every(1.0 / 120.0))
    series = multiply_add(minus, series, every(1.0 / 12.0))
    near = multiply_add(minus, series, multiply(inverse, every(-0.5)))
    return add(log_one_plus(subtract(x, one)), subtract(near, shift))


@outer
def symbol_tables(counter, n_units, table, scale, prior, out):
    """Write the expected tables of all rows, eq (17): see `symbols.expected_tables`."""
    n_rows, width = table.shape
    counts, total = empty(np.float64, width + LANES), empty(np.float64, LANES)
    for j in range(width + LANES):
        counts[j] = 0.0
    own, none = every(prior), every(0.0)
    at_prior = _digammas(own)
    unit = take_unit(counter)
    while unit < n_units:
        for i in range(n_rows * unit // n_units, n_rows * (unit + 1) // n_units):
            row = 0.0
            for j in range(width):
                counts[j] = scale * table[i, j]
                row += counts[j]
            floor, sums = every(min(1e-3, 1e-4 * row)), none
            for at in range(0, width, LANES):
                n = load(counts, at)
                negligible = lanes_not_above(n, floor)
                if negligible == 2**LANES - 1:
                    continue
                certain = divide(multiply(n, n), every(row))
                settled = _settled(own, certain, subtract(none, certain), at_prior)
                cells = multiply_add(own, _rest(own, n, certain), settled)
                sums = add(sums, choose(negligible, none, cells))
            store(total, 0, sums)
            row = 0.0
            for j in range(LANES):
                row += total[j]
            out[i] = row
        unit = take_unit(counter)


@loops
def update_posteriors(
    copies, start, transitions, start_squares, pair_squares, row_squares, step, by_size, prior,
    shared, tables, weights,
):  # fmt: skip
    """Blend the posteriors with those of a large batch, eqs (5) to (8) and (19).

    `start`, `transitions` and the squares are the sums of a large batch, of which the data set is
    so many `copies`.  `prior` (K,) has G[α π] before the update.

    Changed in place: `tables` (K,) has the blended tables of the states, and `shared`, after shape
    and rate of the priors on α and on γ, the blended E[γ] of the sticks, and shape and rate of α
    and of γ.  Written: `weights` (K,) has G[α π] after the update.
    """
    known, posterior = shared[:4], shared[4:]
    n_states, keep = start.shape[0], 1.0 - step
    n_cells = -(-n_states * (n_states + 1) // LANES) * LANES
    counts, squares = empty(np.float64, n_cells), empty(np.float64, n_cells)
    for at in range(n_cells):
        counts[at], squares[at] = 0.0, 0.0
    own, cells = empty(np.float64, n_cells), empty(np.float64, n_cells)
    psi, log_eta = empty(np.float64, n_cells), empty(np.float64, n_states + 1)
    for j in range(n_states):
        counts[j] = copies * start[j]
        squares[j] = copies * start_squares[j]
    for i in range(n_states):
        for j in range(n_states):
            counts[(i + 1) * n_states + j] = copies * transitions[i, j]
            squares[(i + 1) * n_states + j] = copies * pair_squares[i, j]
    for at in range(n_cells):
        own[at] = prior[at] if at < n_states else own[at - n_states]
    rows, totals = empty(np.float64, n_states), empty(np.float64, n_states + 1)
    totals[n_states] = posterior[1] / posterior[2]
    for j in range(n_states):
        rows[j], totals[j] = copies * row_squares[j], totals[n_states]
    _write_tables(n_states, own, counts, squares, rows, totals, cells, log_eta, psi)
    gamma = posterior[3] / posterior[4]
    # Loops, here and below: NumPy's sums and sorts take the compiler longer than all the rest.
    found, n_tables, log_etas = empty(np.float64, n_states), 0.0, 0.0
    for j in range(n_states):
        found[j] = 0.0
    for i in range(n_states + 1):
        log_etas += log_eta[i]
        for j in range(n_states):
            found[j] += cells[i * n_states + j]
    order = empty(np.int64, n_states)
    _order_sticks(found, by_size, order)
    later, all_rest = 0.0, 0.0
    for n in range(n_states - 1, -1, -1):
        own = found[order[n]]
        all_rest += _digamma(gamma + later) - _digamma(1.0 + own + gamma + later)
        later += own
    for j in range(n_states):
        n_tables += found[j]
        tables[j] = keep * tables[j] + step * found[j]
    posterior[0] = keep * posterior[0] + step * gamma
    posterior[1] = keep * posterior[1] + step * (known[0] + n_tables)
    posterior[2] = keep * posterior[2] + step * (known[1] - log_etas)
    posterior[3] = keep * posterior[3] + step * (known[2] + n_states)
    posterior[4] = keep * posterior[4] + step * (known[3] - all_rest)
    # G[π] of the new sticks, whose parameters follow from the blended tables.
    _write_prior(tables, posterior[0], posterior[1], posterior[2], by_size, weights, log_eta, order)


@loops
def geometric_prior(tables, stick_gamma, shape, rate, by_size, weights):
    """Write G[α π] of every state, eq (8), with α Gamma(`shape`, `rate`) and blended `tables`."""
    log_rest, order = empty(np.float64, tables.shape[0]), empty(np.int64, tables.shape[0])
    _write_prior(tables, stick_gamma, shape, rate, by_size, weights, log_rest, order)


@inner
def _write_prior(tables, stick_gamma, shape, rate, by_size, weights, log_rest, order):
    """Do so; `log_rest` and `order` are room."""
    n_states = tables.shape[0]
    _order_sticks(tables, by_size, order)
    later = 0.0
    for n in range(n_states - 1, -1, -1):
        own = tables[order[n]]
        whole = _digamma(1.0 + own + stick_gamma + later)
        log_rest[n] = _digamma(stick_gamma + later) - whole
        weights[order[n]] = _digamma(1.0 + own) - whole
        later += own
    scale, before = np.exp(_digamma(shape)) / rate, 0.0
    for n in range(n_states):
        j = order[n]
        # The weight of a stick without observations underflows; the rows must stay positive.
        weights[j] = max(scale * np.exp(weights[j] + before), 1e-30)
        before += log_rest[n]


@inner
def _order_sticks(tables, by_size, order):
    """Write the state of the first stick, of the second, and so on; of equals the first first."""
    for j in range(tables.shape[0]):
        n = j
        while by_size and n > 0 and tables[order[n - 1]] < tables[j]:
            order[n] = order[n - 1]
            n -= 1
        order[n] = j


@inner
def _digamma(x):
    """ψ(x) for x > 0, by recurrence to x ≥ 6 and the asymptotic series from there."""
    shift = 0.0
    if x < 6.0:
        # 1 / x + ... + 1 / (x + 5) with one division: first and last term have u, and so on.
        u = x * (x + 5.0)
        v, w = u + 4.0, u + 6.0
        shift = (2.0 * x + 5.0) * (v * w + u * (v + w)) / (u * v * w)
        x += 6.0
    square = 1.0 / (x * x)
    series = 691.0 / 32760.0 - square / 12.0
    series = 1.0 / 132.0 - square * series
    series = 1.0 / 240.0 - square * series
    series = 1.0 / 252.0 - square * series
    series = 1.0 / 120.0 - square * series
    series = 1.0 / 12.0 - square * series
    return np.log(x) - 0.5 / x - square * series - shift
