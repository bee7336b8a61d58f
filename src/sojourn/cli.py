"""The ``sojourn`` command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sojourn import __version__

app = typer.Typer(
    help="Bayesian hidden Markov models from more sequences than fit in memory.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sojourn {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("demo.sojourn"),
    states: Annotated[int, typer.Option(min=1, help="Truncation level of the HDP-HMM.")] = 30,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """Learn word classes from Python's own documentation, in a few seconds.

    Example: sojourn demo --states 20 --out words.sojourn
    """
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent}", param_hint="--out")
    from sojourn.demo import run_demo  # the estimators load late: --help answers at once

    run_demo(Console(), out, n_states=states, n_passes=passes, seed=seed)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
