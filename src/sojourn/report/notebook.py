"""A fitted model as a notebook shows it."""

from __future__ import annotations

from sojourn.models.base import BaseHMM
from sojourn.report.markup import Markup, tag
from sojourn.report.states import summarize

_MOST = 10
_CELL = "text-align: left; padding: 2px 12px 2px 0;"


def notebook_card(model: BaseHMM) -> Markup:
    """Return a small table of the largest states, in the notebook's own colours."""
    scores = [entry["score"] for entry in model.history_ if entry["score"] is not None]
    facts = [
        f"{model.n_states_} of {len(model.state_shares_)} states in use",
        f"{type(model.emission_).__name__} emissions",
        f"{model.n_updates_:,} updates",
    ]
    if scores:
        facts.append(f"held-out {scores[-1]:.4f} per step")
    heads = ("state", "share", "stays", "what it stands for", "next")
    rows = [
        tag(
            "tr",
            *(
                tag("td", text, style=_CELL)
                for text in (
                    str(entry.state),
                    f"{entry.share:.1%}",
                    entry.stay,
                    entry.text,
                    str(entry.following),
                )
            ),
        )
        for entry in summarize(model, _MOST)
    ]
    return tag(
        "div",
        tag("b", type(model).__name__),
        tag("div", " · ".join(facts)),
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", head, style=_CELL) for head in heads))),
            tag("tbody", *rows),
        ),
    )
