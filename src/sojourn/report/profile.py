"""How states differ in columns of numbers: means on the columns' own scale, and distributions."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from sojourn.families import (
    AutoregressiveGaussian,
    Categorical,
    Family,
    LinearGaussian,
    Multinomial,
    Product,
)
from sojourn.families.cdf import is_discrete, n_columns, predictive_cdf
from sojourn.families.draws import column_slices, naturals_of
from sojourn.kernels.interface import Floats, Integers
from sojourn.prediction import FittedModel
from sojourn.report.states import column_names
from sojourn.sequences import Sequences

_DRAWS = 1000  # of each state, where there are no data
_BINS = 36
_MOST_VALUES = 60  # of a column of whole numbers, each with a bar of its own


class Histogram(NamedTuple):
    """Distribution of a column, in all data and in each state.

    Attributes
    ----------
    edges : (B + 1,) array
        Bars are the intervals (edge, next edge].
    seen : (B,) array
        Share of the steps in each bar.
    states : (K, B) array
        Share of the steps that are in the state and in the bar.
    is_discrete : bool
    is_model : bool
        Whether `states` are the model's distributions, or those of the decoded data.
    """

    edges: Floats
    seen: Floats
    states: Floats
    is_discrete: bool
    is_model: bool


class Profile(NamedTuple):
    """Means of all columns of numbers in all states.

    Attributes
    ----------
    names : list of str
        Columns.
    means, spreads : (K, D) arrays
        Mean and standard deviation; NaN for states without a step.
    centre, scale : (D,) arrays
        Mean and standard deviation of all steps.
    away : (K, D) array
        Means in standard deviations of the column from its overall mean; zero where unknown.
    histograms : list of Histogram
        One per column where data are given, else empty.
    """

    names: list[str]
    means: Floats
    spreads: Floats
    centre: Floats
    scale: Floats
    away: Floats
    histograms: list[Histogram]

    def telling(self, n: int) -> Integers:
        """Return the columns in which the states differ most, in the order of the data."""
        return np.sort(np.argsort(-np.abs(self.away).max(axis=0), kind="stable")[:n])


def profile(
    fitted: FittedModel, data: Sequences | None = None, paths: list[Integers] | None = None
) -> Profile | None:
    """Compare the states column by column.

    Parameters
    ----------
    fitted : FittedModel
    data : Sequences, optional
        Valid data; without, states are compared by draws from the model.
    paths : list of integer arrays, optional
        States of the data.

    Returns
    -------
    Profile or None
        None for symbols, and for families whose draws depend on a past, if there are no data.
    """
    family = fitted.family
    numeric = _numeric_columns(family)
    if not numeric:
        return None
    if data is None or paths is None:
        drawn = _drawn(fitted)
        if drawn is None:
            return None
        values, states = drawn
    else:
        values, states = _values(data.values), np.concatenate(paths)
    known = column_names(fitted) or ["value"]
    if values.shape[1] != len(known):
        return None
    values = values[:, numeric]
    means, spreads = _moments(values, states, len(fitted.state_shares))
    shares = fitted.state_shares
    weights = shares[:, None] * ~np.isnan(means)
    weights = weights / np.maximum(weights.sum(axis=0), 1e-300)
    filled, squares = np.nan_to_num(means), np.nan_to_num(spreads) ** 2
    centre = (weights * filled).sum(axis=0)
    scale = np.sqrt((weights * (squares + (filled - centre) ** 2)).sum(axis=0))
    away = np.where(np.isnan(means), 0.0, filled - centre) / np.where(scale > 0.0, scale, 1.0)
    histograms = []
    if data is not None:
        histograms = _histograms(fitted, values, states, numeric)
    return Profile([known[d] for d in numeric], means, spreads, centre, scale, away, histograms)


def _values(values: Any) -> Floats:
    found = np.asarray(values, np.float64)
    return found.reshape(len(found), -1)


def _numeric_columns(family: Family) -> list[int]:
    """Return the columns that are numbers, not symbols."""
    if isinstance(family, Product):
        slices = zip(family.parts, column_slices(family), strict=True)
        return [
            column
            for part, own in slices
            if not isinstance(part, Categorical)
            for column in range(own.start, own.stop)
        ]
    n = getattr(family, "n_features", None)
    if isinstance(family, Categorical):
        return []
    return list(range(1 if n is None else int(n)))


def _drawn(fitted: FittedModel) -> tuple[Floats, Integers] | None:
    """Draw steps of each state, where they do not depend on a past."""
    if _depends(fitted.family):
        return None
    n_states = len(fitted.state_shares)
    states = np.repeat(np.arange(n_states), _DRAWS)
    path = Sequences.from_lengths(states)
    drawn = fitted.family.sample(fitted.evidence().natural, path, np.random.default_rng(0))
    return _values(drawn), states


def _depends(family: Family) -> bool:
    """Return whether a column's distribution depends on more than the state."""
    parts = family.parts if isinstance(family, Product) else (family,)
    return any(isinstance(p, AutoregressiveGaussian | LinearGaussian | Multinomial) for p in parts)


def _moments(values: Floats, states: Integers, n_states: int) -> tuple[Floats, Floats]:
    means = np.full((n_states, values.shape[1]), np.nan)
    spreads = means.copy()
    for k in np.unique(states):
        own = values[states == k]
        known = ~np.isnan(own)
        counts = known.sum(axis=0)
        some = np.maximum(counts, 1)
        mean = np.where(known, own, 0.0).sum(axis=0) / some
        square = (np.where(known, own - mean, 0.0) ** 2).sum(axis=0) / some
        means[k] = np.where(counts > 0, mean, np.nan)
        spreads[k] = np.where(counts > 0, np.sqrt(square), np.nan)
    return means, spreads


# ---- distributions ------------------------------------------------------------------------------


def _histograms(
    fitted: FittedModel, values: Floats, states: Integers, numeric: list[int]
) -> list[Histogram]:
    family, shares = fitted.family, fitted.state_shares
    kinds = is_discrete(family)
    kinds = [kinds[d] if d < len(kinds) else False for d in numeric]
    edges = [_edges(column, kind) for column, kind in zip(values.T, kinds, strict=True)]
    masses = None if _depends(family) else _masses(fitted, edges, numeric)
    decoded = np.bincount(states, minlength=len(shares)) / len(states)
    found = []
    for d, (column, kind) in enumerate(zip(values.T, kinds, strict=True)):
        seen = _shares(column, edges[d])
        if masses is None:
            own = np.stack([_shares(column[states == k], edges[d]) for k in range(len(shares))])
            weighted = decoded[:, None] * own
        else:
            weighted = shares[:, None] * masses[d]
        found.append(Histogram(edges[d], seen, weighted, kind, masses is not None))
    return found


def _edges(column: Floats, whole: bool) -> Floats:
    """Return the ends of the bars: of whole numbers each has one, as long as there are few."""
    known = column[~np.isnan(column)]
    if not len(known):
        return np.array([0.0, 1.0])
    low, high = float(known.min()), float(known.max())
    if whole:
        width = max(1.0, np.ceil((high - low + 1.0) / _MOST_VALUES))
        return np.arange(low - 1.0, high + width, width)
    if high <= low:
        low, high = low - 0.5, high + 0.5
    return np.linspace(low - 1e-9 * (high - low), high, _BINS + 1)


def _shares(column: Floats, edges: Floats) -> Floats:
    """Return the share of the known entries in each interval (edge, next edge]."""
    known = np.sort(column[~np.isnan(column)])
    counts = np.diff(np.searchsorted(known, edges, side="right"))
    return counts / max(1, len(known))


def _masses(fitted: FittedModel, edges: list[Floats], numeric: list[int]) -> list[Floats] | None:
    """Return the probability of every bar in every state, under the predictive distribution."""
    family, natural = fitted.family, fitted.evidence().natural
    if n_columns(family) < len(numeric):
        return None
    longest = max(map(len, edges))
    width = (numeric[-1] if numeric else 0) + 1
    if isinstance(family, Product):
        assert family.columns is not None
        width = sum(family.columns)
    grid = np.zeros((longest, width))
    for d, ends in zip(numeric, edges, strict=True):
        grid[: len(ends), d] = ends
        grid[len(ends) :, d] = ends[-1]
    try:
        upto = _cdf(family, grid, natural)
    except NotImplementedError:
        return None
    return [
        np.diff(upto[: len(ends), :, d], axis=0).T for d, ends in zip(numeric, edges, strict=True)
    ]


def _cdf(family: Family, grid: Floats, natural: Floats) -> Floats:
    """Return P(X ≤ x) of every row, state and column of a grid."""
    if not isinstance(family, Product):
        return predictive_cdf(family, grid, natural)[1]
    slices = zip(family.parts, column_slices(family), naturals_of(family, natural), strict=True)
    found: list[Floats] = []
    for part, own, lambdas in slices:
        if isinstance(part, Categorical):
            found.append(np.zeros((len(grid), len(lambdas), 1)))
        else:
            found.append(predictive_cdf(part, grid[:, own], lambdas)[1])
    return np.concatenate(found, axis=2)
