"""``sojourn filter``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import errors_in_short
from sojourn.cli.options import (
    Columns,
    DataFile,
    Force,
    JsonLines,
    Lower,
    ModelFile,
    Pattern,
    Sequence,
)


def filter(
    model: ModelFile,
    data: DataFile,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="Parquet or .npy file; without it, one line per sequence is printed.",
        ),
    ] = None,
    lag: Annotated[int, typer.Option(min=0, help="Number of later steps that are known too.")] = 0,
    column: Columns = None,
    sequence: Sequence = None,
    lower: Lower = None,
    pattern: Pattern = None,
    force: Force = False,
    as_json: JsonLines = False,
) -> None:
    """Find the probability of every state given the steps so far, without a look at later ones.

    With OUT, a file of any size is written; a name that ends in .npy gets one row of probabilities
    per step, in memory that does not grow with a sequence.

    Example: [bold]sojourn filter walks.sojourn new.csv --lag 2[/]
    """
    from sojourn.cli.data import open_for, reading_options
    from sojourn.models import load

    with errors_in_short():
        fitted = load(model)
        opened = open_for(fitted, data, reading_options(column, sequence, lower, pattern))
        if out is not None:
            fitted.filter(opened.source, lag=lag, out=out, overwrite=force)
            typer.echo(json.dumps({"path": str(out)}) if as_json else f"written: {out}")
            return
        for piece in opened.source:
            for result in fitted.filter(fitted.emission_.as_steps(piece), lag=lag):
                if as_json:
                    typer.echo(json.dumps({"probabilities": result.round(6).tolist()}))
                else:
                    rows = (" ".join(f"{p:.4f}" for p in row) for row in result)
                    typer.echo("\t".join(rows))
