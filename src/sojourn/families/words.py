"""Columns of words in vectors: `Categorical` parts of a `Product`, with their vocabularies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from sojourn.families.base import Family
from sojourn.families.categorical import Categorical
from sojourn.families.product import Product, assigned_columns
from sojourn.vocabulary import Vocabulary


def words_of(family: Family) -> dict[int, Vocabulary]:
    """Return the words of the symbols in columns of vectors, by the number of the column."""
    if not isinstance(family, Product) or family.columns is None:
        return {}
    begins = np.cumsum([0, *family.columns])[:-1].tolist()
    return {
        begin: part.vocabulary
        for begin, part in zip(begins, family.parts, strict=True)
        if isinstance(part, Categorical) and part.vocabulary is not None
    }


def with_words(
    family: Family,
    words: Mapping[int, Vocabulary],
    n_columns: int,
    named: Callable[[int], str] = "column {}".format,
) -> Product:
    """Let columns of words be those of `Categorical` parts, with their words unless given.

    Parameters
    ----------
    family : Family
    words : mapping of int to Vocabulary
        Words of the columns that have some.
    n_columns : int
        Number of columns of the data.
    named : callable
        Describes a column by its number.

    Examples
    --------
    >>> family = Product(Categorical(), columns=[1])
    >>> words_of(with_words(family, {0: Vocabulary(["sun", "rain"])}, 1))[0].words
    ('sun', 'rain')
    """
    columns = [n_columns]
    parts: list[Family] = [family]
    if isinstance(family, Product):
        columns, parts = assigned_columns(family, n_columns), list(family.parts)
    begins = np.cumsum([0, *columns])[:-1]
    for column, vocabulary in words.items():
        at = int(np.searchsorted(begins, column, side="right")) - 1
        part = parts[at]
        if not isinstance(part, Categorical):
            raise TypeError(
                f"{named(column)} has words, and {type(part).__name__} takes numbers: leave it "
                "out with drop=, or describe it by Categorical() in a Product"
            )
        if part.vocabulary is None:
            parts[at] = Categorical(part.n_symbols, part.concentration, vocabulary)
    return Product(*parts, columns=columns)
