"""Expected numbers of tables in the restaurants of an HDP, eqs (5), (6) and (19).

A row of transitions is a Chinese restaurant: the transitions to a state are customers who sit at
the tables of its dish.  The number of tables, and an auxiliary variable η for each row, make the
updates of the HDP's weights and concentrations conjugate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats


class Occurrence(NamedTuple):
    """How certain it is that each transition occurs at all; the start is row 0.

    Attributes
    ----------
    log_absent : (K + 1, K) array
        Σ log(1 − q) of every transition.
    log_row_absent : (K,) array
        The same for the row of every state as a whole.
    variances : (K + 1, K) array
        Σ q (1 − q).
    """

    log_absent: Floats
    log_row_absent: Floats
    variances: Floats


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


def exchangeable_tables(
    prior: Floats, counts: Floats, log_absent: Floats, variances: Floats
) -> Floats:
    r"""Return the expected number of tables when uncertain steps are exchangeable, eq (19).

    .. math::

        E[s] \approx G\,P_c\,\bigl(\psi(G + c/P_c) - \psi(G)\bigr)
        + G \log\Bigl(1 + \frac{V}{G + c}\Bigr), \quad c = E[C] - V

    Parameters
    ----------
    prior : (K,) or (R, K) array
        G[α π].
    counts : (R, K) array
        E[C] = Σ q.
    log_absent : (R, K) array
        Σ log(1 − q).
    variances : (R, K) array
        V = Σ q (1 − q), so that c = Σ q² is the certain part of the count.

    Examples
    --------
    The same expected count from one certain step, and from a hundred improbable ones:

    >>> counts, variances = np.ones((1, 2)), np.array([[0.0, 0.99]])
    >>> log_absent = np.array([[-np.inf, 100 * np.log(0.99)]])
    >>> exchangeable_tables(np.full(2, 0.1), counts, log_absent, variances).round(2)
    array([[1.  , 0.24]])
    """
    xp = namespace(counts)
    certain = xp.clip(counts - variances, 0.0, None)
    # Σ log(1 − q²), with log(1 + q) ≈ q − (1 − log 2) q², which is exact at 0 and 1.
    none_certain = log_absent + counts - (1.0 - np.log(2.0)) * certain
    settled = expected_tables(prior, certain, xp.minimum(none_certain, -certain), None)
    return settled + prior * xp.log1p(variances / (prior + certain))


def expected_log_eta(alpha: float | Floats, row_counts: Floats, log_absent: Floats) -> Floats:
    """Return E[log η_k] of every row, eq (6); `log_absent` is log q(C_k· = 0)."""
    xp = namespace(row_counts)
    seen = row_counts > 1e-200
    occurs = xp.where(seen, -xp.expm1(log_absent), 1.0)
    given = xp.where(seen, row_counts, 1.0) / occurs
    alpha = alpha + xp.zeros_like(row_counts)
    return xp.where(seen, occurs * (xp.digamma(alpha) - xp.digamma(alpha + given)), 0.0)
