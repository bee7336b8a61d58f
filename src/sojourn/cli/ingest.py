"""``sojourn ingest``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.common import errors_in_short, print_json
from sojourn.cli.options import (
    Columns,
    DataFile,
    Drop,
    Encoding,
    Force,
    Json,
    MaxBytes,
    Missing,
    Pattern,
    Sequence,
    Time,
)

if TYPE_CHECKING:
    from sojourn.sources.ingest import Ingested


def ingest(
    data: DataFile,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Parquet file to write.")],
    min_count: Annotated[int, typer.Option(min=1, help="Drop words that occur less often.")] = 1,
    max_size: Annotated[
        int | None, typer.Option(min=1, help="Maximum size of the vocabulary.")
    ] = None,
    lower: Annotated[
        bool, typer.Option("--lower", metavar="", help="Convert text to lower case.")
    ] = False,
    pattern: Pattern = None,
    encoding: Encoding = None,
    missing: Missing = None,
    max_bytes: MaxBytes = None,
    column: Columns = None,
    sequence: Sequence = None,
    time: Time = None,
    drop: Drop = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Use the vocabulary of this ingested file.")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert data to the format that is fastest to read: symbols in Parquet, with the vocabulary.

    Example: [bold]sojourn ingest wiki.txt.gz wiki.parquet --lower --min-count 5[/]
    """
    from sojourn.cli.data import from_standard_input
    from sojourn.progress import ShareProgress
    from sojourn.sources.ingest import ingest as run
    from sojourn.sources.ingest import vocabulary_of

    columns = column[0] if column and len(column) == 1 else column or None
    with errors_in_short(), ShareProgress() as report:
        given = {"column": column} if column else {}
        done = run(
            from_standard_input(given) if data == "-" else data,
            out,
            min_count=min_count,
            max_size=max_size,
            vocabulary=None if vocabulary is None else vocabulary_of(vocabulary),
            overwrite=force,
            report=report,
            lower=lower,
            pattern=pattern,
            max_bytes=max_bytes,
            column=columns,
            sequence=sequence,
            time=time,
            drop=drop or None,
            encoding=encoding,
            missing=missing or None,
        )
    _tell(done, as_json=as_json)


def _tell(done: Ingested, *, as_json: bool) -> None:
    """Print what was written."""
    n_words = None if done.vocabulary is None else len(done.vocabulary)
    if as_json:
        print_json(
            {
                "path": str(done.path),
                "sequences": done.n_sequences,
                "steps": done.n_steps,
                "words": n_words,
            }
        )
        return
    words = "" if n_words is None else f", {n_words:,} words"
    typer.echo(f"{done.path}: {done.n_sequences:,} sequences, {done.n_steps:,} steps{words}")
