"""A fitted model as a notebook shows it."""

from __future__ import annotations

from sojourn.prediction import FittedModel
from sojourn.report.markup import Markup, tag
from sojourn.report.states import summarize

_MOST = 10
_CELL = "text-align: left; padding: 2px 12px 2px 0;"


def notebook_card(fitted: FittedModel) -> Markup:
    """Return a small table of the largest states, in the notebook's own colours."""
    scores = [entry["score"] for entry in fitted.history if entry["score"] is not None]
    facts = [
        f"{fitted.n_states} of {len(fitted.state_shares)} states in use",
        f"{type(fitted.family).__name__} emissions",
        f"{fitted.n_updates:,} updates",
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
                    fitted.labels_of_states[entry.state],
                    f"{entry.share:.1%}",
                    entry.stay,
                    entry.text,
                    str(entry.following),
                )
            ),
        )
        for entry in summarize(fitted, _MOST)
    ]
    return tag(
        "div",
        tag("b", fitted.estimator.name),
        tag("div", " · ".join(facts)),
        tag(
            "table",
            tag("thead", tag("tr", *(tag("th", head, style=_CELL) for head in heads))),
            tag("tbody", *rows),
        ),
    )
