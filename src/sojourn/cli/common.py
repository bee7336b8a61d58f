"""What the commands share: options, errors in a line, output for people and for machines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

DATA = "Reading the data"  # a panel of the help

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")]
DataFile = Annotated[str, typer.Argument(metavar="DATA", help="File, folder or pattern.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of everything random.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Tables: column with the steps; several make vectors.",
        rich_help_panel=DATA,
    ),
]
Sequence = Annotated[
    str | None,
    typer.Option(
        help="Tables with a row a step: column with the sequence's id.", rich_help_panel=DATA
    ),
]
Lower = Annotated[
    bool | None,
    typer.Option("--lower/--no-lower", help="Text in lower case.", rich_help_panel=DATA),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        help="Text: regular expression of a word; else whitespace separates.",
        rich_help_panel=DATA,
    ),
]


def console() -> Console:
    """Return where results are printed: plain text where that is no terminal."""
    return Console(highlight=False)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    typer.echo(json.dumps(value, ensure_ascii=False))


@contextmanager
def errors_in_short() -> Iterator[None]:
    """Turn what a user can mend into one line, and everything else into a traceback.

    Exit codes are 1 for data, models and files, 2 for the words of the command line, and 130
    after Ctrl-C.
    """
    try:
        yield
    except FileExistsError as error:
        _stop(f"{error}; --force replaces it")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has seen enough
        raise typer.Exit(0) from None
    except FileNotFoundError as error:
        name = error.filename
        _stop(f"there is no file {name}" if name else str(error))
    except (OSError, ValueError, ImportError) as error:
        _stop(str(error))
    except KeyboardInterrupt as error:
        typer.echo(f"Stopped. {error}".strip(), err=True)
        raise typer.Exit(130) from None


def _stop(message: str) -> NoReturn:
    typer.echo(f"Error: {message}", err=True)
    raise typer.Exit(1) from None
