"""``sojourn decode``."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.cluster import connected
from sojourn.cli.common import STANDARD, errors_in_short, printable
from sojourn.cli.options import (
    Address,
    Columns,
    DataFile,
    Drop,
    Encoding,
    Force,
    JsonLines,
    Label,
    Lower,
    MaxBytes,
    Missing,
    ModelFile,
    Pattern,
    Sequence,
    Time,
    Workers,
)

if TYPE_CHECKING:
    from sojourn.cli.data import Opened
    from sojourn.models.base import BaseHMM
    from sojourn.sources import Source


def decode(
    model: ModelFile,
    data: DataFile,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="CSV or Parquet file, or - for standard output; without it, one line per "
            "sequence is printed.",
        ),
    ] = None,
    proba: Annotated[
        bool,
        typer.Option(
            "--proba",
            metavar="",
            help="State probabilities instead of the most probable path; in a table, beside it.",
        ),
    ] = False,
    words: Annotated[
        bool, typer.Option("--words", metavar="", help="Print each word with its state: cat/3.")
    ] = False,
    column: Columns = None,
    sequence: Sequence = None,
    time: Time = None,
    drop: Drop = None,
    lower: Lower = None,
    pattern: Pattern = None,
    encoding: Encoding = None,
    missing: Missing = None,
    max_bytes: MaxBytes = None,
    label: Label = None,
    cluster: Address = None,
    workers: Workers = None,
    force: Force = False,
    as_json: JsonLines = False,
) -> None:
    """Find the most probable state path of every sequence.

    Without OUT, one line per sequence is printed. With OUT, a file of any size is written: of a
    table its rows, with the state appended; of other data a list per sequence, or as CSV one row
    per step. On a cluster OUT is a folder of lists.

    Example: [bold]sojourn decode words.sojourn new.txt --words[/]
    """
    if words and (out is not None or proba):
        raise typer.BadParameter("works only for paths that are printed", param_hint="--words")
    if out is None and (cluster is not None or workers is not None):
        raise typer.BadParameter("OUT is needed: workers write to a folder", param_hint="OUT")
    from sojourn.cli.data import open_for, reading_options
    from sojourn.cli.rows import check_out, is_table
    from sojourn.models import load

    with errors_in_short(), connected(cluster, workers) as client:
        fitted = load(model)
        opened = open_for(fitted, data, reading_options(locals()))
        if out is None:
            _print_states(fitted, opened.source, proba=proba, words=words, as_json=as_json)
            return
        check_out(out, force, [model, *opened.source.paths])
        if client is None and (is_table(out) or opened.table is not None):
            _write_rows(fitted, opened, out, proba=proba)
        else:
            predict = fitted.predict_proba if proba else fitted.predict
            predict(opened.source, out=out, overwrite=force, client=client)
    if out != STANDARD:
        typer.echo(json.dumps({"path": str(out)}) if as_json else f"written: {out}")


def check_words(model: BaseHMM, source: Source) -> None:
    """Refuse to print numbers as if they were words."""
    from sojourn.families import Categorical

    if not isinstance(model.emission_, Categorical):
        raise ValueError(
            f"--words is for models of words, and {source.name} has numbers: with OUT.csv, the "
            "states are a column beside them"
        )


def _write_rows(model: BaseHMM, opened: Opened, out: Path, *, proba: bool) -> None:
    """Write the rows of the data with their states, and with the probabilities of all states."""
    from sojourn.cli.rows import write_steps

    source = opened.source
    results = {"state": lambda path: model.predict(source, out=path)}
    if proba:
        results["probability"] = lambda path: model.predict_proba(source, out=path)
    write_steps(opened, out, results)


def _print_states(
    model: BaseHMM, source: Source, *, proba: bool, words: bool, as_json: bool
) -> None:
    """Print one line per sequence while the data is read."""
    if words:
        check_words(model, source)
    predict = model.predict_proba if proba else model.predict
    if not proba and model.fitted_.state_names is not None:
        predict = partial(model.predict, names=True)
    key = "probabilities" if proba else "states"
    for piece in source:
        symbols = piece
        if words and piece.values.dtype.kind in "iu" and source.vocabulary is not None:
            symbols = piece.with_values(source.vocabulary.decode(piece.values))
        for n, result in enumerate(predict(piece)):
            if as_json:
                typer.echo(
                    json.dumps({key: result.round(6).tolist() if proba else result.tolist()})
                )
            elif proba:
                rows = (" ".join(f"{p:.4f}" for p in row) for row in result)
                typer.echo("\t".join(rows))
            elif words:
                pairs = zip(symbols[n].tolist(), result.tolist(), strict=True)
                typer.echo(printable(" ".join(f"{word}/{state}" for word, state in pairs)))
            else:
                typer.echo(" ".join(map(str, result.tolist())))
