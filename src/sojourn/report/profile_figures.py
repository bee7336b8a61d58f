"""Figures of states with columns of numbers, as SVG: a heat map, and small histograms."""

from __future__ import annotations

import numpy as np

from sojourn.kernels.interface import Floats
from sojourn.report.figures import (
    MOST_RING,
    NUMBERED,
    cell_text,
    color_class,
    label_text,
    margin,
    svg,
)
from sojourn.report.gather import Contents
from sojourn.report.markup import Markup, tag
from sojourn.report.profile import Histogram, Profile
from sojourn.report.text import columns_of, readable, shortened, signed

MOST_COLUMNS = 40
"""Columns in the heat map."""

MOST_HISTOGRAMS = 12
"""Columns with a histogram."""

_FULL = 2.0  # standard deviations from the mean at which a cell has its full colour
_LETTER = 6.6


def profile_map(contents: Contents, profile: Profile) -> Markup:
    """Draw states × columns: how far each state's mean is from that of all steps."""
    states = [entry.state for entry in contents.states]
    columns = profile.telling(MOST_COLUMNS).tolist()
    numbered = len(columns) <= NUMBERED and len(states) <= MOST_RING
    wide, tall = (62.0, 26.0) if numbered else (26.0, 20.0)
    names = shortened([profile.names[d] for d in columns], 32)
    left = margin([str(k) for k in states]) + 8.0
    slanted = max(map(columns_of, names)) * _LETTER * 0.71
    top = slanted + 20.0
    scales = _scales(profile)
    cells = []
    for i, k in enumerate(states):
        y = top + i * tall
        cells.append(label_text(left - 8, y + 0.5 * tall + 4, str(k), "end"))
        for j, d in enumerate(columns):
            x = left + j * wide
            cells += _cell(profile, k, d, x, y, (wide, tall), scales[d], numbered=numbered)
    for j, name in enumerate(names):
        x = left + (j + 0.5) * wide
        cells.append(
            tag("text", name, x=x, y=top - 8, text_anchor="start", class_="label",
                transform=f"rotate(-45 {x:.1f} {top - 8:.1f})")
        )  # fmt: skip
    width = left + len(columns) * wide + max(8.0, slanted)
    return svg(width, top + len(states) * tall + 4, *cells,
               label="means of the columns in each state", class_="figure heat")  # fmt: skip


def _cell(
    profile: Profile,
    state: int,
    column: int,
    x: float,
    y: float,
    size: tuple[float, float],
    scale: float,
    *,
    numbered: bool,
) -> list[Markup]:
    away, mean = float(profile.away[state, column]), float(profile.means[state, column])
    shade = min(1.0, abs(away) / _FULL)
    side = "above" if away > 0 else "below"
    tip = (
        f"state {state}, {profile.names[column]}: mean {readable(mean, scale)}, "
        f"{readable(abs(away))} standard deviations {side} that of all steps"
    )
    cell = tag(
        "rect", x=x, y=y, width=size[0] - 1, height=size[1] - 1, rx=2, data_tip=tip,
        class_=f"cell {side}", fill_opacity=round(0.04 + 0.96 * shade, 3),
    )  # fmt: skip
    if not numbered:
        return [cell]
    text = readable(mean, scale)
    return [cell, cell_text(x + 0.5 * size[0], y + 0.5 * size[1] + 4, text, shade)]


def _scales(profile: Profile) -> Floats:
    """Return the size of the numbers in each column."""
    found: Floats = np.nan_to_num(np.nanmax(np.abs(profile.means), axis=0, initial=0.0))
    return found


def histograms(contents: Contents, profile: Profile) -> Markup:
    """Draw the distribution of each column, with that of every state over it."""
    panels = []
    size = (250.0, 120.0) if len(profile.names) > 2 else (500.0, 170.0)
    for d in profile.telling(MOST_HISTOGRAMS).tolist():
        found = profile.histograms[d]
        panels.append(
            tag("figure", tag("figcaption", profile.names[d]), _bars(contents, found, size))
        )
    keys = [
        tag("span", str(entry.state), class_=f"badge {color_class(contents, entry.state)}")
        for entry in contents.states
    ]
    kind = "panels few" if len(panels) < 3 else "panels"
    return tag("div", tag("div", *panels, class_=kind), tag("div", *keys, class_="keys"))


def _bars(contents: Contents, found: Histogram, size: tuple[float, float]) -> Markup:
    width, height, bottom = *size, 20.0
    n = len(found.seen)
    wide = width / n
    highest = max(float(found.seen.max()), float(found.states.max()), 1e-12) * 1.06

    def up(share: float) -> float:
        return (height - bottom) * (1.0 - share / highest)

    drawn = []
    for i, share in enumerate(found.seen.tolist()):
        if share > 0.0:
            drawn.append(
                tag("rect", x=i * wide + 0.1 * wide, y=up(share), width=0.8 * wide,
                    height=height - bottom - up(share), class_="seen-bar")
            )  # fmt: skip
    for entry in contents.states:
        shares = found.states[entry.state].tolist()
        points = " ".join(f"{(i + 0.5) * wide:.1f},{up(s):.1f}" for i, s in enumerate(shares))
        drawn.append(
            tag("polyline", points=points, data_tip=f"state {entry.state}",
                class_=f"density {color_class(contents, entry.state)}")
        )  # fmt: skip
        if found.is_discrete and n <= 12:
            drawn += [
                tag("circle", cx=(i + 0.5) * wide, cy=up(s), r=3, data_tip=f"state {entry.state}",
                    class_=f"bar {color_class(contents, entry.state)}")
                for i, s in enumerate(shares)
            ]  # fmt: skip
    drawn.append(tag("line", x1=0, x2=width, y1=height - bottom, y2=height - bottom, class_="grid"))
    low, high = float(found.edges[0]), float(found.edges[-1])
    if found.is_discrete:
        low += 1.0
        drawn += [
            label_text(0.5 * wide, height - 5, readable(low, 0.0), "middle" if n < 12 else "start"),
            label_text(width - 0.5 * wide, height - 5, readable(high, 0.0),
                       "middle" if n < 12 else "end"),
        ]  # fmt: skip
    else:
        scale = max(abs(low), abs(high))
        drawn += [
            label_text(1, height - 5, readable(low, scale)),
            label_text(width - 1, height - 5, readable(high, scale), "end"),
        ]
    return svg(width, height, *drawn, label="distribution of a column in each state")


def telling_columns(profile: Profile, state: int, n: int = 4) -> list[tuple[str, int, str]]:
    """Return the columns in which a state differs most: text, shade from 0 to 4, and a tip."""
    order = np.argsort(-np.abs(profile.away[state]), kind="stable")[:n]
    scales = _scales(profile)
    found = []
    for d in order.tolist():
        away, mean = float(profile.away[state, d]), float(profile.means[state, d])
        arrow, side = ("↑", "above") if away > 0 else ("↓", "below")
        number = readable(mean, float(scales[d]))
        tip = signed(f"{profile.names[d]}: {abs(away):.1f} standard deviations {side} the mean")
        found.append((f"{profile.names[d]} {arrow} {number}", min(4, int(2.0 * abs(away))), tip))
    return found
