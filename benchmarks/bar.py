"""A bar and tables in the terminal, for benchmarks that take minutes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markdown import Markdown
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

_open: list[Progress] = []


@contextmanager
def shown(seconds: float) -> Iterator[None]:
    """Show a bar of about so many seconds, unless one is there already, or no terminal.

    What is printed meanwhile appears above it.
    """
    console = Console()
    if _open or not console.is_terminal:
        yield
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as bar:
        bar.add_task("measuring", total=seconds)
        _open.append(bar)
        try:
            yield
        finally:
            _open.clear()


def done(seconds: float, what: str) -> None:
    """Say that something is done that takes about so many seconds on two quiet cores."""
    if _open:
        _open[0].update(_open[0].task_ids[0], advance=seconds, description=what)


def print_table(markdown: str) -> None:
    """Print what goes to the README: as tables in a terminal, and as it is elsewhere."""
    console = Console()
    if console.is_terminal:
        console.print(Markdown(markdown))
    else:
        print(markdown)
