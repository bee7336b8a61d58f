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
from sojourn.families.categorical import Categorical
from sojourn.families.checks import LARGEST_COUNT
from sojourn.families.diagonal_gaussian import DiagonalGaussian
from sojourn.families.gaussian import Gaussian
from sojourn.families.poisson import Poisson
from sojourn.families.product import Product
from sojourn.vocabulary import Vocabulary

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
    return "counts" if is_whole else "real"


def _words(vocabulary: Vocabulary) -> Choice:
    n_words = len(vocabulary) - (vocabulary.unknown is not None)
    return Choice(Categorical(vocabulary=vocabulary), f"words, {n_words:,} in all")


def _one_kind(kind: str, columns: NDArray[Any]) -> Choice:
    n = columns.shape[1]
    some = f"{n} columns of " if n > 1 else ""
    if kind == "binary":
        return Choice(Bernoulli(), f"{some}zeros and ones")
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
