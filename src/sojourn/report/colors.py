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
    "#840c54",
    "#3c5400",
    "#a8d8b4",
    "#303c9c",
    "#fcb49c",
    "#c090fc",
    "#603c48",
    "#00b8c4",
    "#006060",
    "#ccc0e4",
)
"""After Okabe and Ito (2008), with more that are as far from all others as these are: 20 states
have 20 colours."""

_LIGHT = {
    "#a6a000",
    "#cc79a7",
    "#a8d8b4",
    "#fcb49c",
    "#c090fc",
    "#ccc0e4",
    "#e69f00",
    "#56b4e9",
    "#00b8c4",
}


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


def text_on(color: str) -> str:
    """Return the colour of text on one of the palette: dark or white.

    Examples
    --------
    >>> text_on("#0072b2"), text_on("#e69f00")
    ('#fff', '#14181d')
    """
    return "#14181d" if color in _LIGHT else "#fff"


def color_classes() -> str:
    """Return the style of the classes ``c0``, ``c1``, ...: a colour, and that of text on it."""
    return "\n".join(
        f".c{i} {{ --c: {color}; --on: {text_on(color)}; }}" for i, color in enumerate(PALETTE)
    )
