"""How large a prior scale Ψ° is that nobody gave, once the states are known: by its evidence."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any

import numpy as np

from sojourn.families.base import Family
from sojourn.families.dense import DenseFamily
from sojourn.families.product import Product
from sojourn.kernels.interface import Floats

_STEP, _CLOSE, _MOST_STEPS = 1e-3, 1e-3, 50  # of the logarithm of the factor


def rescaled(family: Family, given: Family, statistics: Floats) -> Family:
    """Return a family with the prior scale Ψ° that suits statistics best, eq (69).

    That is the family itself if it has no such scale, or if one was given.

    Parameters
    ----------
    family : Family
        After `resolve`.
    given : Family
        The same before it.
    statistics : (K, S) array
        E[t].
    """
    if isinstance(family, Product) and isinstance(given, Product):
        ends = np.cumsum([part.n_statistics for part in family.parts])[:-1]
        own = np.split(statistics, ends, axis=1)
        parts = map(rescaled, family.parts, given.parts, own)
        return Product(*parts, columns=family.columns)
    names, before = ("scale", "degrees_of_freedom"), given.get_params(deep=False)
    if not isinstance(family, DenseFamily) or any(before.get(n, n) is not None for n in names):
        return family
    scaled: Any = copy(family)
    scale, nothing = np.asarray(scaled.scale), np.zeros_like(statistics)

    def total(factor: float, of: Floats) -> float:
        scaled.scale = factor * scale
        return float(scaled.log_normalizer(scaled.prior() + of).sum())

    factor = likely_factor(partial(total, of=nothing), partial(total, of=statistics))
    return family if factor == 1.0 else family.changed(scale=factor * scale)


def likely_factor(nothing: Callable[[float], float], data: Callable[[float], float]) -> float:
    """Return the factor, one at least, with which a prior scale has the most evidence, eq (69).

    The log normaliser of the prior falls by the same for every e-fold of the scale, that of the
    posterior by the less the smaller the scale is.  Where they fall alike, the difference is
    largest: the secants of the logarithms of these slopes lead there, at first as an EM step does.
    One at least, since the evidence of a state whose steps are all equal has no maximum: it grows
    as the scale becomes smaller.

    Parameters
    ----------
    nothing, data : callable
        Σ_k a_g(λ°) and Σ_k a_g(λ° + E[t_k]) of the scale times a factor.

    Examples
    --------
    >>> factor = likely_factor(lambda s: -3.0 * np.log(s), lambda s: -9.0 * np.log(s + 8.0))
    >>> round(factor, 3)
    4.0
    >>> likely_factor(lambda s: -3.0 * np.log(s), lambda s: -9.0 * np.log(s + 1.0))
    1.0
    """

    def slope(log_normalizer: Callable[[float], float], at: float) -> float:
        low, high = (log_normalizer(float(np.exp(at + end))) for end in (-_STEP, _STEP))
        return (low - high) / (2.0 * _STEP)

    wanted = slope(nothing, 0.0)
    last, at = 0.0, 0.0
    excess = before = float(np.log(wanted / slope(data, 0.0)))
    move = excess
    for _ in range(_MOST_STEPS):
        if at + move <= 0.0:
            return 1.0
        last, at, before = at, at + move, excess
        if abs(move) < _CLOSE:
            break
        excess = float(np.log(wanted / slope(data, at)))
        change = (before - excess) / (at - last)
        move = excess / change if change > 0.0 else excess
    return float(np.exp(at))
