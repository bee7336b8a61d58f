"""The application: all commands are registered here, each from a module of its own."""

from __future__ import annotations

import inspect as source
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

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


class _Plain:
    """A command whose option for help is shown as the flag that it is."""

    def get_help_option(self, ctx: Any) -> Any:
        """Return the option, without the name of a type."""
        option = super().get_help_option(ctx)  # type: ignore[misc]
        if option is not None:
            option.metavar = ""
        return option


class _Command(_Plain, TyperCommand):
    pass


class _Group(_Plain, TyperGroup):
    pass


app = typer.Typer(
    cls=_Group,
    help="Bayesian hidden Markov models from more sequences than fit in memory.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_show_locals=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _add(command: Callable[..., Any], panel: str) -> None:
    """Register a command; the lines of its docstring are those of the source, not of a terminal."""
    paragraphs = source.cleandoc(command.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(cls=_Command, rich_help_panel=panel, help=text)(command)


LEARN, USE, DATA, PAPER = "Learn", "Use a model", "Prepare data", "The paper"

_add(demo, LEARN)
_add(fit, LEARN)
_add(score, USE)
_add(decode, USE)
_add(filter, USE)
_add(forecast, USE)
_add(watch, USE)
_add(sample, USE)
_add(inspect, USE)
_add(report, USE)
_add(ingest, DATA)
_add(generate, DATA)
_add(reproduce, PAPER)


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
