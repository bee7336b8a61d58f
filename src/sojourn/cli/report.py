"""``sojourn report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import errors_in_short, print_json
from sojourn.cli.options import (
    Columns,
    Drop,
    Encoding,
    Force,
    Json,
    Lower,
    MaxBytes,
    Missing,
    ModelFile,
    Pattern,
    Sequence,
    Time,
)


def report(
    model: ModelFile,
    data: Annotated[
        str | None,
        typer.Option(help="Data for examples and observed dwell times; any file that fit takes."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="HTML file; by default MODEL.html.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
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
    as_json: Json = False,
) -> None:
    """Write a report on a model as one HTML file, which needs no network to view.

    Example: [bold]sojourn report model.sojourn --data corpus.txt -o report.html[/]
    """
    target = model.with_suffix(".html") if out is None else out
    with errors_in_short():
        from sojourn.cli.data import open_for, reading_options
        from sojourn.models import load
        from sojourn.report.page import write_report
        from sojourn.whole_files import check_target

        check_target(target, force, [model])
        fitted = load(model)
        given = reading_options(locals())
        source = None if data is None else open_for(fitted, data, given).source
        check_target(target, force, () if source is None else source.paths)
        write_report(fitted, target, source, title=title)
    if as_json:
        print_json({"path": str(target), "states_used": fitted.n_states_})
        return
    typer.echo(f"written: {target}")
