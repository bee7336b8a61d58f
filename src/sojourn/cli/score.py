"""``sojourn score``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.cluster import connected
from sojourn.cli.common import STANDARD, console, errors_in_short, print_json
from sojourn.cli.options import (
    Address,
    Columns,
    DataFile,
    Drop,
    Encoding,
    Force,
    Json,
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
    from sojourn.models.base import BaseHMM


def score(
    model: ModelFile,
    data: DataFile,
    out: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OUT]",
            help="CSV or Parquet file for the score of every sequence, or - for standard output.",
        ),
    ] = None,
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
    as_json: Json = False,
) -> None:
    """Compute the log likelihood of data under a model, in nats: in total and per step.

    With OUT, a table is written as well, with one row per sequence.

    Example: [bold]sojourn score words.sojourn new.txt[/]
    """
    from sojourn.cli.data import open_for, reading_options
    from sojourn.cli.rows import check_out, write_sequences
    from sojourn.models import load

    with errors_in_short(), connected(cluster, workers) as client:
        fitted = load(model)
        opened = open_for(fitted, data, reading_options(locals()))
        if out is not None:
            if client is not None:
                raise ValueError("a table of scores is not written on a cluster: leave OUT out")
            check_out(out, force, [model, *opened.source.paths])
        if client is None:
            each = fitted.log_likelihood(opened.source)
            if out is not None:
                write_sequences(opened, out, each)
            n_sequences, total = len(each), math.fsum(each)
        else:
            n_sequences = opened.source.n_sequences
            total = fitted.score(opened.source, client=client)
        n_steps = opened.source.n_steps
    if out != STANDARD:
        _tell(fitted, model, data, n_sequences, n_steps, total, as_json=as_json)


def _tell(
    fitted: BaseHMM,
    model: Path,
    data: str,
    n_sequences: int,
    n_steps: int,
    total: float,
    *,
    as_json: bool,
) -> None:
    """Print the score of all sequences together."""
    from sojourn.families import Categorical

    result = {
        "model": str(model),
        "data": data,
        "sequences": n_sequences,
        "steps": n_steps,
        "log_likelihood": total,
        "per_step": total / n_steps,
    }
    if isinstance(fitted.emission_, Categorical):
        result["perplexity"] = math.exp(-total / n_steps)
    if as_json:
        print_json(result)
        return
    screen = console()
    many = "s" if n_sequences != 1 else ""
    screen.print(f"{n_sequences:,} sequence{many}, {n_steps:,} steps")
    screen.print(f"log likelihood  {total:,.2f} nats")
    screen.print(f"per step        [bold]{total / n_steps:.4f}[/]")
    if "perplexity" in result:
        screen.print(f"perplexity      {result['perplexity']:.1f}")
