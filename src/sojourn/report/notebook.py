"""A fitted model as a notebook shows it: a small picture of its states and transitions."""

from __future__ import annotations

import math

from sojourn.prediction import FittedModel
from sojourn.report.colors import PALETTE, ranks, text_on
from sojourn.report.layout import arrow, strong_transitions
from sojourn.report.markup import Markup, tag
from sojourn.report.states import StateSummary, summarize
from sojourn.report.text import percent, signed

_MOST = 10
_SIZE, _RADIUS = 250.0, 96.0
_CELL = "text-align: left; padding: 3px 14px 3px 0; vertical-align: middle;"
_BADGE = "display: inline-block; min-width: 24px; text-align: center; border-radius: 6px;"


def notebook_card(fitted: FittedModel) -> Markup:
    """Return the strongest transitions as a graph, beside the largest states.

    Text has the notebook's own colour, in light and dark mode; nothing else is needed than what
    is in the markup itself.
    """
    shown = summarize(fitted, _MOST)
    used = fitted.n_states
    facts = [
        f"{used} of {len(fitted.state_shares)} states in use",
        f"{type(fitted.family).__name__} emissions",
        f"{fitted.n_updates:,} updates",
    ]
    scores = [entry["score"] for entry in fitted.history if entry["score"] is not None]
    if scores:
        facts.append(f"held-out score {signed(f'{scores[-1]:.4f}')} per step")
    if len(shown) < used:
        facts.append(f"the {len(shown)} largest states are shown")
    colors = [PALETTE[rank % len(PALETTE)] for rank in ranks(fitted.state_shares)]
    parts = [_states(shown, colors)]
    if len(shown) > 1:
        parts.insert(0, _ring(fitted, colors))
    return tag(
        "div",
        tag("b", fitted.estimator.name),
        tag("div", " · ".join(facts)),
        tag(
            "div", *parts, style="display: flex; flex-wrap: wrap; gap: 8px 28px; "
            "align-items: center; margin-top: 6px;",
        ),
    )  # fmt: skip


def _states(shown: list[StateSummary], colors: list[str]) -> Markup:
    """Return a row for each state: its share as a bar, and what it stands for."""
    largest = max(entry.share for entry in shown)
    rows = []
    for entry in shown:
        color = colors[entry.state]
        style = f"{_BADGE} background: {color}; color: {text_on(color)};"
        badge = tag("span", str(entry.state), style=style)
        bar = tag(
            "svg",
            tag("rect", x=0, y=0, width=max(60.0 * entry.share / largest, 1.0), height=8, rx=2,
                fill=color),
            width=60, height=8, viewBox="0 0 60 8", role="img", aria_label=percent(entry.share),
        )  # fmt: skip
        cells = (badge, bar, f"{entry.share:.1%}", entry.text, f"lasts {entry.stay} steps")
        styles = (_CELL, _CELL, _CELL, _CELL, f"{_CELL} white-space: nowrap;")
        rows.append(
            tag("tr", *(tag("td", cell, style=s) for cell, s in zip(cells, styles, strict=True)))
        )
    return tag("div", tag("table", tag("tbody", *rows)), style="flex: 1 1 300px;")


def _ring(fitted: FittedModel, colors: list[str]) -> Markup:
    """Draw the largest states around a circle, with the strongest transitions between them."""
    found = strong_transitions(fitted, _MOST)
    centre = (_SIZE / 2, _SIZE / 2)
    place = {
        int(k): (centre[0] + _RADIUS * x, centre[1] - _RADIUS * y)
        for k, x, y in zip(found.states, found.x, found.y, strict=True)
    }
    shares = fitted.state_shares
    size = {k: 9.0 + 9.0 * math.sqrt(shares[k] / shares.max()) for k in place}
    drawn = []
    for edge in found.edges:
        width = 0.8 + 3.0 * edge.probability
        way, head = arrow(
            place[edge.source], place[edge.target], centre, width,
            (size[edge.source] + 2.0, size[edge.target] + 3.0),
        )  # fmt: skip
        color = colors[edge.source]
        drawn.append(tag("path", d=way, fill="none", stroke=color, stroke_width=width))
        drawn.append(tag("path", d=head, fill=color))
    for k, (x, y) in place.items():
        tip = f"state {k}: {percent(float(shares[k]))} of the steps"
        drawn.append(
            tag(
                "g",
                tag("title", tip),
                tag("circle", cx=x, cy=y, r=size[k], fill=colors[k]),
                tag("text", str(k), x=x, y=y + 4.0, text_anchor="middle", font_size=11,
                    fill=text_on(colors[k])),
            )
        )  # fmt: skip
    return tag(
        "svg", *drawn, width=_SIZE, height=_SIZE, viewBox=f"0 0 {_SIZE:g} {_SIZE:g}", role="img",
        aria_label="strongest transitions between states",
    )  # fmt: skip
