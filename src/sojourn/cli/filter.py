"""``sojourn filter``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import STANDARD, errors_in_short
from sojourn.cli.options import (
    Columns,
    DataFile,
    Drop,
    Encoding,
    Force,
    JsonLines,
    Lower,
    MaxBytes,
    Missing,
    ModelFile,
    Pattern,
    Sequence,
    Time,
)


def filter(
    model: ModelFile,
    data: DataFile,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="CSV, Parquet or .npy file, or - for standard output; without it, one line per "
            "sequence is printed.",
        ),
    ] = None,
    lag: Annotated[int, typer.Option(min=0, help="Number of later steps that are known too.")] = 0,
    column: Columns = None,
    sequence: Sequence = None,
    time: Time = None,
    drop: Drop = None,
    lower: Lower = None,
    pattern: Pattern = None,
    encoding: Encoding = None,
    missing: Missing = None,
    max_bytes: MaxBytes = None,
    force: Force = False,
    as_json: JsonLines = False,
) -> None:
    """Find the probability of every state given the steps so far, without a look at later ones.

    With OUT, a file of any size is written: of a table its rows, with the most probable state and
    the probabilities of all appended; of other data a list per sequence, or as CSV one row per
    step. A name that ends in .npy gets one row of probabilities per step, in memory that does not
    grow with a sequence.

    Example: [bold]sojourn filter walks.sojourn new.csv --lag 2[/]
    """
    from sojourn.cli.data import open_for, reading_options
    from sojourn.cli.rows import check_out, is_table, write_steps
    from sojourn.models import load

    with errors_in_short():
        fitted = load(model)
        opened = open_for(fitted, data, reading_options(locals()))
        if out is not None:
            check_out(out, force, [model, *opened.source.paths])
            if is_table(out) or (opened.table is not None and out.suffix != ".npy"):
                each = partial(fitted.filter, opened.source, lag=lag)
                write_steps(opened, out, {"probability": lambda path: each(out=path)})
                if out == STANDARD:
                    return
            else:
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
