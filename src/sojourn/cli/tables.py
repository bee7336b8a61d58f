"""Tables for the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from sojourn.models.base import BaseHMM
from sojourn.report.states import summarize


def state_table(model: BaseHMM, n_states: int) -> Table:
    """Tabulate the largest states: share of the steps, how long they last, what they stand for."""
    shown = summarize(model, n_states)
    used = model.n_states_used_
    table = Table(
        title=f"The {len(shown)} largest of {used} states in use", title_justify="left",
        header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0),
    )  # fmt: skip
    for name in ("state", "share", "stays"):
        table.add_column(name, justify="right", no_wrap=True, min_width=5)
    table.add_column("what it stands for", ratio=1, overflow="ellipsis", no_wrap=True)
    table.add_column("next", justify="right", no_wrap=True, min_width=4)
    for entry in shown:
        table.add_row(
            str(entry.state),
            f"{entry.share:.1%}",
            f"{entry.dwell:.1f}",
            escape(printable(entry.text)),
            str(entry.following),
        )
    return table


def printable(text: str) -> str:
    r"""Replace what would move the cursor: data from others must not write to the terminal.

    Examples
    --------
    >>> printable("a\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join(c if c.isprintable() else "\ufffd" for c in text)
