"""What the commands share: errors on one line, output for people and for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn
from unicodedata import category

import typer
from rich.console import Console

from sojourn.cli.wording import in_options

STANDARD = Path("-")
"""The name of standard output."""


def console(*, quiet: bool = False, errors: bool = False) -> Console:
    """Return the console for results; without a terminal its output is plain text.

    `errors` writes to standard error, where standard output is for a file.
    """
    return Console(highlight=False, quiet=quiet, stderr=errors)


def print_json(value: dict[str, Any]) -> None:
    """Print one JSON object on one line."""
    typer.echo(printable(json.dumps(value, ensure_ascii=False)))


def printable(text: str) -> str:
    r"""Replace control characters, so that data cannot control the terminal.

    Letters of all scripts stay, with the invisible ones that join them; what moves the cursor,
    breaks the line or reverses the direction of writing does not.

    Examples
    --------
    >>> printable("a\x1b[2Jb")
    'a�[2Jb'
    """
    if text.isprintable():
        return text
    return "".join("\ufffd" if category(c) in _HARMFUL or c in _DIRECTIONS else c for c in text)


def some(names: Sequence[str], most: int = 8) -> str:
    """List names, the first of many.

    Examples
    --------
    >>> some(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


_HARMFUL = {"Cc", "Cs", "Zl", "Zp"}
_DIRECTIONS = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@contextmanager
def errors_in_short() -> Iterator[None]:
    """Turn errors that a user can fix into one line; all others keep their traceback.

    The exit code is 1 for errors in data, models and files, 2 for errors in the command line, and
    130 after Ctrl-C.
    """
    try:
        yield
    except FileExistsError as error:
        text = in_options(str(error))
        _stop(text if "--force" in text else f"{text}; --force replaces it")
    except BrokenPipeError:
        sys.stderr.close()  # the reader of a pipe has seen enough
        raise typer.Exit(0) from None
    except FileNotFoundError as error:
        name = error.filename
        _stop(f"there is no file {name}" if name else str(error))
    except MemoryError as error:
        _stop(f"not enough memory: {error}")
    except (OSError, ValueError, TypeError, ImportError, FloatingPointError) as error:
        _stop(str(error))
    except KeyboardInterrupt as error:
        typer.echo(in_options(f"Stopped. {error}".strip()), err=True)
        raise typer.Exit(130) from None


def _stop(message: str) -> NoReturn:
    lines = (printable(line) for line in in_options(message).splitlines())
    typer.echo(f"Error: {' '.join(lines)}", err=True)
    raise typer.Exit(1) from None
