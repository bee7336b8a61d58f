"""Quantiles of mixtures of predictive distributions, by solving for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from sojourn.families import Binomial, Categorical, Family, Multinomial, Product
from sojourn.families.cdf import is_discrete, predictive_cdf
from sojourn.families.draws import naturals_of
from sojourn.families.means import expected_values
from sojourn.families.regression import RegressionFamily
from sojourn.kernels.interface import Floats

_ROWS = 2**15  # quantiles that are solved for at once
_ITERATIONS = 100
_PRECISION = 1e-10  # of a quantile, relative to its size and to the width of the distribution

Function = Callable[[Floats], Floats]


def has_closed_form(family: Family) -> bool:
    """Return whether predictive distributions depend on the state alone.

    Those of regressions depend on regressors, and those of `Multinomial` on the number of trials.

    Examples
    --------
    >>> import sojourn as sj
    >>> has_closed_form(sj.Poisson()), has_closed_form(sj.AutoregressiveGaussian())
    (True, False)
    """
    if isinstance(family, Product):
        return all(map(has_closed_form, family.parts))
    return not isinstance(family, RegressionFamily | Multinomial)


def mixture_quantiles(family: Family, natural: Floats, weights: Floats, levels: Floats) -> Floats:
    """Return quantiles of Σ_k w_k p_k(x) for every column, shape (Q, R, D).

    Parameters
    ----------
    family : Family
        With a closed form.
    natural : (K, S) array
    weights : (R, K) array
        Weights of the states, one row per mixture.
    levels : (Q,) array
        Between 0 and 1.

    Examples
    --------
    >>> import sojourn as sj
    >>> family = sj.Exponential(1, prior_shape=1.0, prior_rate=1.0)
    >>> mixture_quantiles(family, np.array([[1e9, 1e9]]), np.ones((1, 1)), np.array([0.5])).round(4)
    array([[[0.6931]]])
    """
    if isinstance(family, Product):
        parts = zip(family.parts, naturals_of(family, natural), strict=True)
        found = [mixture_quantiles(part, own, weights, levels) for part, own in parts]
        return np.concatenate(found, axis=2)
    if isinstance(family, Binomial) and family.n_trials is None:
        known = family.changed(n_features=family.n_successes, n_trials=family.typical_trials)
        successes = mixture_quantiles(known, natural, weights, levels)
        trials = np.full((*successes.shape[:2], 1), family.typical_trials)
        return np.concatenate([successes, trials], axis=2)
    out = []
    for at in range(0, len(weights), max(1, _ROWS // len(levels))):
        rows = weights[at : at + max(1, _ROWS // len(levels))]
        if isinstance(family, Categorical):
            out.append(_symbols(natural, rows, levels))
        else:
            out.append(_solved(family, natural, rows, levels))
    return np.concatenate(out, axis=1)


def _symbols(natural: Floats, weights: Floats, levels: Floats) -> Floats:
    """Return the smallest symbols w with P(X ≤ w) ≥ level."""
    sums = np.cumsum(weights @ (natural / natural.sum(axis=1, keepdims=True)), axis=1)
    found = [(sums < q * sums[:, -1:] * (1.0 - 1e-12)).sum(axis=1) for q in levels]
    return np.array(found, np.float64)[:, :, None]


def _solved(family: Family, natural: Floats, weights: Floats, levels: Floats) -> Floats:
    n_rows, n_levels = len(weights), len(levels)
    means = weights @ expected_values(family, natural)
    columns = means.shape[1]
    wanted = np.repeat(levels, n_rows)[:, None] + np.zeros((1, columns))
    repeated = np.tile(weights, (n_levels, 1))

    def cdf(x: Floats) -> Floats:
        upto = predictive_cdf(family, x, natural)[1]
        return np.einsum("rk,rkd->rd", repeated, upto) - wanted

    centre = np.tile(np.nan_to_num(means, posinf=1e300), (n_levels, 1))
    solve = _smallest_whole if is_discrete(family)[0] else _root
    return solve(cdf, centre).reshape(n_levels, n_rows, columns)


def _bracket(function: Function, centre: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Find x below and above the root of an increasing function, with its values."""
    low, high = centre - 1.0, centre + 1.0
    at_low, at_high = function(low), function(high)
    width = np.ones_like(centre)
    for _ in range(200):
        below, above = at_low >= 0.0, at_high < 0.0
        if not (below | above).any():
            break
        width = np.where(below | above, 2.0 * width, width)
        # What was too high is above the root, and the other way round.
        low, high = np.where(below, centre - width, low), np.where(below, low, high)
        low, high = np.where(above, high, low), np.where(above, centre + width, high)
        at_low, at_high = function(low), function(high)
    return low, high, at_low, at_high


def _root(function: Function, centre: Floats) -> Floats:
    """Solve f(x) = 0 for increasing f: false position, with a bisection every third time."""
    low, high, at_low, at_high = _bracket(function, centre)
    first_width = high - low
    for n in range(_ITERATIONS):
        width = high - low
        size = np.maximum(np.abs(low), np.abs(high))
        if (width <= _PRECISION * np.minimum(first_width, np.maximum(size, 1e-300))).all():
            break
        middle = low + 0.5 * width
        if n % 3 != 2:
            slope = at_high - at_low
            share = np.where(slope > 0.0, -at_low / np.where(slope > 0.0, slope, 1.0), 0.5)
            # Not quite the root, so that the other end moves as well.
            share = np.clip(share, 1e-9, 1.0 - 1e-9)
            share = share + np.where(share < 0.5, 1.0, -1.0) * 1e-3 * np.minimum(share, 1 - share)
            middle = low + share * width
        value = function(middle)
        up = value < 0.0
        low, at_low = np.where(up, middle, low), np.where(up, value, at_low)
        high, at_high = np.where(up, high, middle), np.where(up, at_high, value)
    return 0.5 * (low + high)


def _smallest_whole(function: Function, centre: Floats) -> Floats:
    """Return the smallest whole number x with f(x) ≥ 0, by bisection."""

    def tolerant(x: Floats) -> Floats:
        return function(x) + 1e-12  # a sum of probabilities that should reach the level does

    low, high, _, _ = _bracket(tolerant, np.floor(np.maximum(centre, 0.0)))
    low, high = np.floor(low), np.ceil(high)
    while (high - low > 1.0).any():
        middle = np.floor(0.5 * (low + high))
        up = tolerant(middle) < 0.0
        low, high = np.where(up, middle, low), np.where(up, high, middle)
    return high
