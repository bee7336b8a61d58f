"""Tables for the terminal."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from sojourn.cli.common import printable
from sojourn.models.base import BaseHMM
from sojourn.report.states import summarize


def state_table(model: BaseHMM, n_states: int, width: int) -> Table:
    """Tabulate the largest states: share of the steps, how long they last, what they represent."""
    shown = summarize(model, n_states)
    used, names = model.n_states_, model.state_names_
    table = Table(
        title=f"The {len(shown)} largest of {used} states in use", title_justify="left",
        header_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0),
    )  # fmt: skip
    for name in ("state", "share", "stays"):
        table.add_column(name, justify="right", no_wrap=True)
    room = max(18, width - 30)  # what the other columns leave
    table.add_column("what it stands for", no_wrap=True, max_width=room, overflow="ellipsis")
    table.add_column("next", justify="right", no_wrap=True)
    for entry in shown:
        table.add_row(
            escape(printable(names[entry.state])),
            f"{entry.share:.1%}",
            entry.stay,
            escape(printable(entry.text)),
            escape(printable(names[entry.following])),
        )
    return table
