"""The application: all commands are registered here, each from a module of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from sojourn import __version__
from sojourn.cli.decode import decode
from sojourn.cli.demo import demo
from sojourn.cli.filter import filter
from sojourn.cli.fit import fit
from sojourn.cli.forecast import forecast
from sojourn.cli.generate import generate
from sojourn.cli.ingest import ingest
from sojourn.cli.inspect import inspect
from sojourn.cli.report import report
from sojourn.cli.reproduce import reproduce
from sojourn.cli.sample import sample
from sojourn.cli.score import score
from sojourn.cli.watch import watch

app = typer.Typer(
    help="Bayesian hidden Markov models from more sequences than fit in memory.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

LEARN, USE, DATA, PAPER = "Learn", "Use a model", "Prepare data", "The paper"

app.command(rich_help_panel=LEARN)(demo)
app.command(rich_help_panel=LEARN)(fit)
app.command(rich_help_panel=USE)(score)
app.command(rich_help_panel=USE)(decode)
app.command(rich_help_panel=USE)(filter)
app.command(rich_help_panel=USE)(forecast)
app.command(rich_help_panel=USE)(watch)
app.command(rich_help_panel=USE)(sample)
app.command(rich_help_panel=USE)(inspect)
app.command(rich_help_panel=USE)(report)
app.command(rich_help_panel=DATA)(ingest)
app.command(rich_help_panel=DATA)(generate)
app.command(rich_help_panel=PAPER)(reproduce)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sojourn {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            callback=_print_version,
            is_eager=True,
            help="Show the version.",
        ),
    ] = False,
) -> None:
    """Define the options that belong to no command."""


def main() -> None:
    """Run the command line."""
    app()
