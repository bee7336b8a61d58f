"""Colours for plots and reports that can be distinguished with any colour vision."""

from __future__ import annotations

import numpy as np

from sojourn.kernels.interface import Floats

PALETTE = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#7b5ea7",
    "#a6a000",
    "#7f7f7f",
    "#a0522d",
)
"""After Okabe and Ito (2008), with three more for lists that are longer."""


def ranks(shares: Floats) -> list[int]:
    """Return the place of each state by size, from 0: the largest states get different colours.

    Examples
    --------
    >>> ranks(np.array([0.2, 0.5, 0.3]))
    [2, 0, 1]
    """
    order = np.argsort(-np.asarray(shares), kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return [int(place) for place in places]


def state_color(rank: int) -> str:
    """Return the colour of the state that is at this place by size."""
    return PALETTE[rank % len(PALETTE)]
