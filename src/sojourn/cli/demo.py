"""``sojourn demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import console, errors_in_short
from sojourn.cli.options import Force, Seed


def demo(
    out: Annotated[Path, typer.Option(help="Model file to write.")] = Path("demo.sojourn"),
    states: Annotated[int, typer.Option(min=1, help="Maximum number of states.")] = 30,
    passes: Annotated[int, typer.Option(min=1, help="Number of passes over the data.")] = 30,
    seed: Seed = 0,
    files: Annotated[
        bool,
        typer.Option(
            "--files",
            metavar="",
            help="Learn nothing, and write files to try the other commands on to this folder.",
        ),
    ] = False,
    force: Force = False,
) -> None:
    """Learn word classes from Python's own documentation in a few seconds.

    Example: [bold]sojourn demo --states 20 --out words.sojourn[/]
    """
    if files:
        with errors_in_short():
            _write_files(force)
        return
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent}", param_hint="--out")
    from sojourn.demo import run_demo  # the estimators load late: --help answers at once

    run_demo(console(), out, n_states=states, n_passes=passes, seed=seed)


def _write_files(force: bool) -> None:
    """Write all files, or none where one would be replaced."""
    from sojourn.demo import demo_files
    from sojourn.whole_files import check_target, write_whole

    made = demo_files()
    for name in made:
        check_target(Path(name), force)
    for name, (what, text) in made.items():
        write_whole(Path(name), (text + "\n").encode())
        typer.echo(f"written: {name}, {what}")
