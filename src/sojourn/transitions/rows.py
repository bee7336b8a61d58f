"""A start vector and the rows of a transition matrix, which belong together."""

from __future__ import annotations

from typing import NamedTuple

from sojourn.kernels.arrays import namespace
from sojourn.kernels.interface import Floats


class Rows(NamedTuple):
    """A start vector and the rows of a transition matrix.

    Attributes
    ----------
    start : (K,) array
    transitions : (K, K) array
    """

    start: Floats
    transitions: Floats


def normalized(rows: Rows) -> Rows:
    """Divide every row by its sum."""
    return Rows(
        rows.start / rows.start.sum(),
        rows.transitions / rows.transitions.sum(axis=1, keepdims=True),
    )


def stacked(rows: Rows) -> Floats:
    """Return the start and the rows below it as one matrix, shape (K + 1, K)."""
    return namespace(rows.start).concatenate([rows.start[None], rows.transitions])
