"""Expected numbers of tables in the restaurants of an HDP, eqs (5), (6) and (19).

A row of transitions is a Chinese restaurant: the transitions to a state are customers who sit at
the tables of its dish.  The number of tables, and an auxiliary variable η for each row, make the
updates of the HDP's weights and concentrations conjugate.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sojourn.kernels.arrays import is_tensor, namespace
from sojourn.kernels.cpu import tables as compiled
from sojourn.kernels.expectations import Spread
from sojourn.kernels.interface import Floats, Squares
from sojourn.transitions.base import Rows, RowSpread

_SMALLEST_ABSENCE = 1e-8  # 1 − q is clipped from below by this, so that its logarithm is finite


class Occurrence(NamedTuple):
    """How certain it is that each transition occurs at all; the start is row 0.

    Attributes
    ----------
    squares : (K + 1, K) array
        Σ q² of every transition.
    row_squares : (K,) array
        The same for the row of every state as a whole.
    """

    squares: Floats
    row_squares: Floats


def tables_and_log_eta(
    prior: Floats,
    counts: Floats,
    occurrence: Occurrence | None,
    totals: Rows,
    *,
    exchangeable: bool,
    second_order: bool,
) -> tuple[Floats, Floats]:
    """Return E[s] of every cell, eq (5) or (19), and E[log η] of every row, eq (6).

    Parameters
    ----------
    prior : (K,) or (K + 1, K) array
        G[α π].
    counts : (K + 1, K) array
        E[C], the start first; it certainly occurs, once per sequence.
    occurrence : Occurrence or None
        None for the fast form.
    totals : Rows
        Concentrations of the start and of the other rows.
    exchangeable, second_order : bool
        As in `HDP`.
    """
    xp = namespace(counts)
    concentrations = xp.zeros_like(counts[:, 0])
    concentrations[1:] += totals.transitions
    concentrations[0] = totals.start
    if exchangeable and occurrence is not None:
        if not is_tensor(counts):
            return _host_tables(prior, counts, occurrence, concentrations)
        tables = exchangeable_tables(prior, counts, occurrence.squares)
    row_counts = counts.sum(axis=1)
    squares, row_squares = occurrence or (xp.zeros_like(counts), xp.zeros_like(row_counts[1:]))
    if not exchangeable or occurrence is None:
        log_absent = xp.minimum(log_absence(counts, squares), -counts)
        variances = xp.clip(counts - squares, 0.0, None) if second_order else None
        tables = expected_tables(prior, counts, log_absent, variances)
    certain = xp.full_like(row_counts[:1], -np.inf)
    log_row_absent = xp.minimum(log_absence(row_counts[1:], row_squares), -row_counts[1:])
    log_row_absent = xp.concatenate([certain, log_row_absent])
    return tables, expected_log_eta(concentrations, row_counts, log_row_absent)


def _host_tables(
    prior: Floats, counts: Floats, occurrence: Occurrence, concentrations: Floats
) -> tuple[Floats, Floats]:
    """Return the same by compiled code: `exchangeable_tables` and `expected_log_eta`."""
    n_states, size = counts.shape[1], compiled.cells_of(counts.shape[1])
    flat = np.zeros((3, size))
    parts = np.broadcast_to(prior, counts.shape), counts, occurrence.squares
    for row, cells in zip(flat, parts, strict=True):
        row[: cells.size] = cells.ravel()
    flat[0, counts.size :] = 1.0  # not used, but a number
    tables, log_eta = np.empty(size), np.empty(len(counts))
    row_squares = np.ascontiguousarray(occurrence.row_squares)
    write: Any = compiled.exchangeable_tables
    write(size, *flat, row_squares, concentrations, tables, log_eta)
    return tables[: counts.size].reshape(-1, n_states), log_eta


def log_absence(sums: Floats, squares: Floats) -> Floats:
    r"""Return Σ log(1 − q), the log probability that no event occurs, from two moments, eq (4).

    .. math::

        L \approx \frac{E^2}{Q} \log\Bigl(1 - \frac{Q}{E}\Bigr), \quad E = \sum q, \; Q = \sum q^2

    as if E²/Q events had the probability Q/E each.  It is exact where they have, also for a single
    event, and never below the exact value nor above −E.

    Examples
    --------
    >>> import numpy as np
    >>> q = np.array([0.5, 0.5, 0.1])
    >>> float(log_absence(q.sum(), (q**2).sum()).round(3)), float(np.log1p(-q).sum().round(3))
    (-1.478, -1.492)
    """
    return _equal_events(sums, squares, power=1)


def _equal_events(sums: Floats, squares: Floats, *, power: int) -> Floats:
    """Return Σ log(1 − q^power) of E²/Q events of the probability p = Q/E; −E or −Q if p = 0."""
    xp = namespace(sums)
    seen = sums > 1e-200
    p = xp.clip(squares / xp.where(seen, sums, 1.0), 0.0, 1.0 - _SMALLEST_ABSENCE)
    probable = p > 1e-12
    p = xp.where(probable, p, 1.0)
    by_logarithm = sums / p * xp.log1p(-(xp.clip(p, 0.0, 1.0 - _SMALLEST_ABSENCE) ** power))
    return xp.where(probable, by_logarithm, -sums if power == 1 else -squares)


def expected_tables(
    prior: Floats, counts: Floats, log_absent: Floats, variances: Floats | None
) -> Floats:
    r"""Return the expected number of tables E[s], eq (5).

    .. math::

        E[s] \approx G\,P\,\bigl(\psi(G + E_+) - \psi(G) + \tfrac12 V_+ \psi''(G + E_+)\bigr),
        \quad P = 1 - e^{L}, \; E_+ = E[C]/P, \; V_+ = V/P - (1 - P) E_+^2

    Parameters
    ----------
    prior : (K,) or (R, K) array
        G[α π].
    counts : (R, K) array
        E[C].
    log_absent : (R, K) array
        L = log q(C = 0), at most −E[C].
    variances : (R, K) array or None
        Var[C] for the second-order term, which is omitted if None.

    Examples
    --------
    With counts that are certain the expectation is exact, here 1 + 1/2 + 1/3:

    >>> import numpy as np
    >>> expected_tables(np.ones(1), np.full((1, 1), 3.0), np.full((1, 1), -np.inf), None).round(6)
    array([[1.833333]])
    """
    xp = namespace(counts)
    seen = counts > 1e-200
    occurs = xp.where(seen, -xp.expm1(log_absent), 1.0)
    given = xp.where(seen, counts, 1.0) / occurs
    excess = xp.digamma(prior + given) - xp.digamma(prior)
    if variances is not None:
        spread = xp.clip(variances / occurs - (1.0 - occurs) * given**2, 0.0, None)
        excess = excess + 0.5 * spread * xp.polygamma(2, prior + given)
    return xp.where(seen, prior * occurs * xp.clip(excess, 0.0, None), 0.0)


def exchangeable_tables(prior: Floats, counts: Floats, squares: Floats) -> Floats:
    r"""Return the expected number of tables when uncertain steps are exchangeable, eq (19).

    .. math::

        E[s] \approx G\,P_c\,\bigl(\psi(G + c/P_c) - \psi(G)\bigr)
        + G \log\Bigl(1 + \frac{V}{G + c}\Bigr), \quad
        \log(1 - P_c) = \frac{E[C]^2}{c} \log\Bigl(1 - \frac{c^2}{E[C]^2}\Bigr)

    Parameters
    ----------
    prior : (K,) or (R, K) array
        G[α π].
    counts : (R, K) array
        E[C] = Σ q.
    squares : (R, K) array
        c = Σ q², the certain part of the count; V = E[C] − c is the rest.

    Examples
    --------
    The same expected count from one certain step, and from a hundred improbable ones:

    >>> import numpy as np
    >>> counts, squares = np.ones((1, 2)), np.array([[1.0, 0.01]])
    >>> exchangeable_tables(np.full(2, 0.1), counts, squares).round(2)
    array([[1.  , 0.24]])
    """
    xp = namespace(counts)
    certain = xp.minimum(squares, counts)
    none_certain = _equal_events(counts, certain, power=2)
    settled = expected_tables(prior, certain, xp.minimum(none_certain, -certain), None)
    return settled + prior * xp.log1p((counts - certain) / (prior + certain))


def expected_log_eta(alpha: float | Floats, row_counts: Floats, log_absent: Floats) -> Floats:
    """Return E[log η_k] of every row, eq (6); `log_absent` is log q(C_k· = 0)."""
    xp = namespace(row_counts)
    seen = row_counts > 1e-200
    occurs = xp.where(seen, -xp.expm1(log_absent), 1.0)
    given = xp.where(seen, row_counts, 1.0) / occurs
    alpha = alpha + xp.zeros_like(row_counts)
    return xp.where(seen, occurs * (xp.digamma(alpha) - xp.digamma(alpha + given)), 0.0)


def row_spread(counts: Rows, squares: Squares) -> RowSpread:
    """Return how far expected counts may be from what happened, from Σ q and Σ q², eq (27)."""
    leaving = counts.transitions.sum(axis=1)
    pairs = (
        (counts.start, squares.start),
        (counts.transitions, squares.pairs),
        (leaving, squares.rows),
    )
    return RowSpread(*(_spread(sums, own) for sums, own in pairs))


def _spread(sums: Floats, squares: Floats) -> Spread:
    variances = namespace(sums).clip(sums - squares, 0.0, None)
    return Spread(log_absence(sums, squares), variances)
