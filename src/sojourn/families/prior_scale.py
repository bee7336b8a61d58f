"""How large a prior scale Ψ° is that nobody gave, once the states are known: by its evidence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_MOST = 40.0  # log factor: nothing in double precision is further from the guess
_CLOSE = 1e-3
_GOLDEN = 0.5 * (3.0 - np.sqrt(5.0))


def likely_factor(evidence: Callable[[float], float]) -> float:
    """Return the factor, one at least, with which a prior scale has the most evidence.

    The evidence of eq (69) is concave in the logarithm of the factor, and falls in the end: the
    golden section finds its maximum.  One at least, since the evidence of a state whose steps are
    all equal has none: it grows as the scale becomes smaller.

    Parameters
    ----------
    evidence : callable
        Of a factor.

    Examples
    --------
    >>> round(likely_factor(lambda factor: np.log(factor) - factor / 7.0), 3)
    7.0
    >>> likely_factor(lambda factor: -factor)
    1.0
    """

    def at(log_factor: float) -> float:
        return evidence(float(np.exp(log_factor)))

    low, high = 0.0, 1.0
    best, value = 0.0, at(0.0)
    while high < _MOST and (further := at(high)) > value:
        low, best, value, high = best, high, further, 2.0 * high
    while high - low > _CLOSE:
        right = high - best > best - low
        other = best + _GOLDEN * (high - best) if right else best - _GOLDEN * (best - low)
        found = at(other)
        if found > value:
            low, high = (best, high) if right else (low, best)
            best, value = other, found
        elif right:
            high = other
        else:
            low = other
    return float(np.exp(best))
