"""``sojourn watch``."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli.common import errors_in_short
from sojourn.cli.options import ModelFile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sojourn.analysis.stream import Stream
    from sojourn.families import Family

_MISSING = {"", "na", "nan", "null", "none", "?"}


def watch(
    model: ModelFile,
    words: Annotated[
        bool,
        typer.Option(
            "--words",
            metavar="",
            help="A line is a sequence of words: print its surprise per word.",
        ),
    ] = False,
    alarm: Annotated[
        float | None, typer.Option(help="Mark lines whose surprise, in nats, is above this.")
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", metavar="", help="Print one JSON object per line that is read."),
    ] = False,
) -> None:
    """Follow observations as they come: read lines from standard input, write one line for each.

    A line is one step: a symbol, or numbers separated by commas, tabs or spaces; empty fields and
    NA are missing. An empty line begins a new sequence. Written are the surprise of the step in
    nats, −log p(step | steps before), the most probable state, and its probability.

    Example: [bold]sojourn watch log.sojourn --alarm 12 < log[/], or after [bold]tail -f log |[/].
    """
    from sojourn.families import Categorical
    from sojourn.models import load

    with errors_in_short():
        fitted = load(model)
        if words and not isinstance(fitted.emission_, Categorical):
            raise ValueError("--words is for models of symbols")
        stream = fitted.stream()
        for number, line in enumerate(sys.stdin, 1):
            text = line.strip()
            if words:
                found = _of_words(stream, text.split(), number)
            elif not text:
                stream.reset()
                found = {}
            else:
                found = _of_step(stream, fitted.emission_, text, number)
            _print(found, alarm, as_json=as_json)


def _of_step(stream: Stream, family: Family, text: str, number: int) -> dict[str, Any]:
    """Take in one step; what cannot be read is reported, and counts as missing."""
    from sojourn.families import Categorical

    is_symbols = isinstance(family, Categorical)
    try:
        stream.update(_symbol(family, text) if is_symbols else _numbers(text))
    except (ValueError, TypeError) as error:
        typer.echo(f"line {number}: {error}; taken as missing", err=True)
        stream.update(-1 if is_symbols else _nothing(family))
    return _now(stream)


def _of_words(stream: Stream, words: Iterable[str], number: int) -> dict[str, Any]:
    """Take in a sequence of words, and return the mean surprise and the most surprising word."""
    stream.reset()
    each = []
    for word in words:
        try:
            stream.update(_symbol(stream.family, word))
        except (ValueError, TypeError) as error:
            typer.echo(f"line {number}: {error}; taken as missing", err=True)
            stream.update(-1)
            continue
        each.append((stream.surprise, word))
    if not each:
        return {}
    found = _now(stream) | {"surprise": sum(value for value, _ in each) / len(each)}
    return found | {"most_surprising": max(each)[1]}


def _now(stream: Stream) -> dict[str, Any]:
    probabilities = stream.probabilities
    state = int(probabilities.argmax())
    return {
        "step": stream.n_steps,
        "surprise": stream.surprise,
        "state": state,
        "probability": float(probabilities[state]),
        "probabilities": probabilities.round(6).tolist(),
    }


def _symbol(family: Any, text: str) -> Any:
    """Return a word as it is, or a symbol as a number."""
    if family.vocabulary is not None:
        return text
    return -1 if text.lower() in _MISSING else int(text)


def _numbers(text: str) -> list[float]:
    """Read the numbers of a line; empty fields are missing.

    Examples
    --------
    >>> _numbers("1.5, NA,2")
    [1.5, nan, 2.0]
    >>> _numbers("3 4")
    [3.0, 4.0]
    """
    mark = next((mark for mark in (",", "\t", ";") if mark in text), None)
    fields = [field.strip() for field in text.split(mark)] or [""]
    return [float("nan") if field.lower() in _MISSING else float(field) for field in fields]


def _nothing(family: Any) -> list[float]:
    columns = getattr(family, "columns", None)
    return [float("nan")] * (family.n_features if columns is None else sum(columns))


def _print(found: dict[str, Any], alarm: float | None, *, as_json: bool) -> None:
    """Write one line at once, so that what reads it does not wait."""
    is_alarm = alarm is not None and found.get("surprise", 0.0) > alarm
    if as_json:
        text = json.dumps(found | ({"alarm": is_alarm} if alarm is not None and found else {}))
    elif not found:
        text = ""
    else:
        fields = [f"{found['surprise']:.4f}", str(found["state"]), f"{found['probability']:.4f}"]
        fields += [found["most_surprising"]] if "most_surprising" in found else []
        text = "\t".join([*fields, *(["!"] if is_alarm else [])])
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
