"""The choice of a family for data of which only the values are known."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.families.base import Family
from sojourn.families.bernoulli import Bernoulli
from sojourn.families.beta import Beta
from sojourn.families.categorical import Categorical
from sojourn.families.checks import LARGEST_COUNT
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.families.gaussian import Gaussian
from sojourn.families.negative_binomial import NegativeBinomial
from sojourn.families.poisson import Poisson
from sojourn.families.product import Product
from sojourn.families.von_mises import VonMises
from sojourn.families.zero_inflated import ZeroInflated
from sojourn.vocabulary import Vocabulary

_WINDOW = 6  # consecutive steps, which are often in one state
_MOST_WINDOWS_NEEDED = 20  # windows from which a quantile is reliable
# The 30% quantile of variance divided by mean within windows is 0.6 for a Poisson distribution.
# With the data of tests/families/test_choose.py it is at most 0.85 for Poisson states that last ten
# steps or more, and at least 2.2 for overdispersed and zero-inflated ones.
_OVERDISPERSED = 1.2
_MORE_ZEROS = 0.1  # share of zeros beyond that of a Poisson distribution
_SEAM_SHARE = 0.002  # share of angles within 0.14 of the seam, which are 4.5% of a circle
_FULL_COVARIANCE = 8  # columns up to which all correlations are learned


class Choice(NamedTuple):
    """A family, and why it was chosen.

    Attributes
    ----------
    family : Family
    reason : str
    """

    family: Family
    reason: str


def choose_family(
    values: NDArray[Any],
    *,
    is_symbols: bool = False,
    words: Mapping[int, Vocabulary] | None = None,
) -> Choice:
    """Choose an emission family by the values of the data.

    Parameters
    ----------
    values : (T,) or (T, D) array
        The steps.  Non-negative whole numbers are taken as counts.
    is_symbols : bool
        Whether whole numbers, one per step, are symbols instead.
    words : mapping of int to Vocabulary, optional
        Columns that are symbols, with the words that they stand for.

    Examples
    --------
    >>> choose_family(np.array([[0.1, 2.0], [1.2, -1.0]]))
    Choice(family=Gaussian(), reason='2 columns of real numbers')
    >>> choose_family(np.array([3, 0, 7])).reason
    'counts: whole numbers from 0 to 7'
    """
    values = np.asarray(values)
    if values.dtype.kind in "UTO":
        return Choice(Categorical(), "words")
    if is_symbols and values.ndim == 1:
        return Choice(Categorical(), f"symbols: whole numbers up to {values.max()}")
    columns = values.reshape(len(values), -1)
    words = words or {}
    kinds: list[Any] = [d if d in words else _kind(columns[:, d]) for d in range(columns.shape[1])]
    runs = [(kind, len(list(run))) for kind, run in groupby(kinds)]
    if len(runs) == 1 and not words:
        return _one_kind(kinds[0], columns)
    ends = np.cumsum([n for _, n in runs])
    choices = [
        _words(words[kind]) if kind in words else _one_kind(kind, columns[:, end - n : end])
        for (kind, n), end in zip(runs, ends, strict=True)
    ]
    parts = [choice.family for choice in choices]
    reason = "; ".join(choice.reason for choice in choices)
    return Choice(Product(*parts, columns=[n for _, n in runs]), f"mixed columns: {reason}")


def _kind(column: NDArray[Any]) -> str:
    known = column[~np.isnan(column)] if column.dtype.kind == "f" else column
    if column.dtype.kind == "b" or np.isin(known, (0, 1)).all():
        return "binary"
    is_whole = bool((known == np.floor(known)).all() and (known >= 0).all())
    is_whole = is_whole and bool((known <= LARGEST_COUNT).all())  # not infinity, for example
    if is_whole:
        return _kind_of_counts(known)
    if len(known) >= _WINDOW and (known > 0).all() and (known < 1).all():
        return "unit"
    return "angles" if _are_angles(known) else "real"


def _are_angles(known: NDArray[Any]) -> bool:
    """Whether numbers fill a circle, from −π to π or from 0 to 2π, its seam included."""
    if len(known) < 10 * _WINDOW:
        return False
    middle = 0.0 if (known < 0).any() else np.pi
    away = np.abs(known - middle)
    return bool((away <= np.pi + 1e-6).all() and (away > 3.0).mean() > _SEAM_SHARE)


def _kind_of_counts(known: NDArray[Any]) -> str:
    """Say whether counts vary more within short windows than a Poisson distribution allows.

    States differ, so that counts of all of them vary more in any case; in most windows of six steps
    all are in one state, and windows that vary least are such.
    """
    n = len(known) // _WINDOW
    windows = np.asarray(known[: n * _WINDOW], np.float64).reshape(n, _WINDOW)
    windows = windows[windows.mean(axis=1) > 0.5] if n else windows
    if len(windows) < _MOST_WINDOWS_NEEDED:
        return "counts"
    ratios = windows.var(axis=1, ddof=1) / windows.mean(axis=1)
    if np.quantile(ratios, 0.3) < _OVERDISPERSED:
        return "counts"
    # Without the zeros: the mean of positive counts gives the rate, and how often it gives a zero.
    zeros = (windows == 0).mean(axis=1)
    positive = np.where(windows > 0, windows, np.nan)[(windows > 0).sum(axis=1) > 2]
    if len(positive) < _MOST_WINDOWS_NEEDED:
        return "overdispersed"
    left = np.nanvar(positive, axis=1, ddof=1) / np.nanmean(positive, axis=1)
    expected = np.exp(-np.nanmean(positive, axis=1))
    more = np.median(zeros) > np.median(expected) + _MORE_ZEROS
    is_left = np.quantile(left, 0.3) >= _OVERDISPERSED
    return "zeros" if more and not is_left else "overdispersed"


def _words(vocabulary: Vocabulary) -> Choice:
    n_words = len(vocabulary) - (vocabulary.unknown is not None)
    return Choice(Categorical(vocabulary=vocabulary), f"words, {n_words:,} in all")


def _one_kind(kind: str, columns: NDArray[Any]) -> Choice:
    n = columns.shape[1]
    some = f"{n} columns of " if n > 1 else ""
    if kind == "binary":
        return Choice(Bernoulli(), f"{some}zeros and ones")
    if kind == "unit":
        return Choice(Beta(), f"{some}numbers between 0 and 1")
    if kind == "angles":
        return Choice(VonMises(), f"{some}angles: numbers that fill a circle")
    if kind == "overdispersed":
        reason = f"{some}counts that vary more within {_WINDOW} steps than Poisson's"
        return Choice(NegativeBinomial(dispersion=None), reason)
    if kind == "zeros":
        reason = f"{some}counts with more zeros than Poisson's"
        return Choice(ZeroInflated(Poisson()), reason)
    if kind == "counts":
        least, most = int(np.nanmin(columns)), int(np.nanmax(columns))
        return Choice(Poisson(), f"{some}counts: whole numbers from {least:,} to {most:,}")
    if n > _FULL_COVARIANCE:
        return Choice(DiagonalGaussian(), f"{some}real numbers, too many for all correlations")
    if np.isnan(columns).any():
        return Choice(DiagonalGaussian(), f"{some}real numbers, some missing")
    return Choice(Gaussian(), f"{some}real numbers")


def family_name(name: str) -> str:
    """Return the name of a family on the command line.

    Examples
    --------
    >>> family_name("DiagonalGaussian")
    'diagonal-gaussian'
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()
