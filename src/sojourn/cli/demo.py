"""``sojourn demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import Seed, console


def demo(
    out: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("demo.sojourn"),
    states: Annotated[int, typer.Option(min=1, help="Truncation level of the HDP-HMM.")] = 30,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 30,
    seed: Seed = 0,
) -> None:
    """Learn word classes from Python's own documentation, in a few seconds.

    Example: [bold]sojourn demo --states 20 --out words.sojourn[/]
    """
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent}", param_hint="--out")
    from sojourn.demo import run_demo  # the estimators load late: --help answers at once

    run_demo(console(), out, n_states=states, n_passes=passes, seed=seed)
