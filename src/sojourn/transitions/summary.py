"""What a fitted HDP reports of its parameters."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sojourn.kernels.interface import Floats


class HDPSummary(NamedTuple):
    """Posterior means of the HDP's parameters.

    Attributes
    ----------
    alpha : float
        E[α], concentration of the rows around the shared weights.
    gamma : float
        E[γ], concentration of the sticks.
    weights : (K,) array
        E[π_k] of each state; the remainder to one belongs to states beyond the
        truncation.
    effective_states : float
        Exponential of the entropy of the normalised weights: K for equal weights, 1 for a single
        state.
    stickiness : float
        κ, the extra concentration on staying in a state; E[κ] where it is learned.
    """

    alpha: float
    gamma: float
    weights: Floats
    effective_states: float
    stickiness: float = 0.0


def effective_states(weights: Floats) -> float:
    """Return the exponential of the entropy of the normalised weights.

    Examples
    --------
    >>> round(effective_states(np.array([0.3, 0.3, 0.0])), 6)
    2.0
    """
    shares = weights / weights.sum()
    return float(np.exp(-np.sum(shares * np.log(np.maximum(shares, 1e-300)))))
