"""``sojourn demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import console
from sojourn.cli.options import Seed


def demo(
    out: Annotated[Path, typer.Option(help="Model file to write.")] = Path("demo.sojourn"),
    states: Annotated[int, typer.Option(min=1, help="Maximum number of states.")] = 30,
    passes: Annotated[int, typer.Option(min=1, help="Number of passes over the data.")] = 30,
    seed: Seed = 0,
) -> None:
    """Learn word classes from Python's own documentation in a few seconds.

    Example: [bold]sojourn demo --states 20 --out words.sojourn[/]
    """
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent}", param_hint="--out")
    from sojourn.demo import run_demo  # the estimators load late: --help answers at once

    run_demo(console(), out, n_states=states, n_passes=passes, seed=seed)
