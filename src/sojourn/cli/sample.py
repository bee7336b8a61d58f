"""``sojourn sample``."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from sojourn.cli.common import errors_in_short, printable
from sojourn.cli.options import JsonLines, ModelFile, Seed


def sample(
    model: ModelFile,
    sequences: Annotated[
        int, typer.Option("--sequences", "-n", min=1, help="Number of sequences.")
    ] = 5,
    length: Annotated[int, typer.Option(min=1, help="Number of steps in each.")] = 12,
    states: Annotated[
        bool, typer.Option("--states", metavar="", help="Print the states as well.")
    ] = False,
    seed: Seed = 0,
    as_json: JsonLines = False,
) -> None:
    """Draw sequences from a model.

    Words are printed one sequence per line; numbers one step per line, with commas between columns.

    Example: [bold]sojourn sample words.sojourn -n 3 --length 8[/]
    """
    from sojourn.families import Categorical
    from sojourn.models import load

    with errors_in_short():
        fitted = load(model)
        drawn, paths = fitted.sample(sequences, length, random_state=seed)
        family = fitted.emission_
        vocabulary = family.vocabulary if isinstance(family, Categorical) else None
        for values, path in zip(drawn, paths, strict=True):
            steps: list[Any] = vocabulary.decode(values) if vocabulary else values.tolist()
            if as_json:
                typer.echo(json.dumps({"values": steps, "states": path.tolist()}))
            elif isinstance(family, Categorical):
                pairs = zip(steps, path, strict=True)
                shown = (f"{word}/{k}" if states else str(word) for word, k in pairs)
                typer.echo(printable(" ".join(shown)))
            else:
                for row, k in zip(steps, path, strict=True):
                    end = [str(k)] if states else []
                    typer.echo(",".join([*(f"{number:.6g}" for number in row), *end]))
                typer.echo("")
