"""``sojourn generate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import errors_in_short, print_json
from sojourn.cli.options import Force, Json, Seed


def generate(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Parquet file to write.")],
    sequences: Annotated[int, typer.Option(min=1, help="Number of sequences to draw.")] = 5_000_000,
    states: Annotated[int, typer.Option(min=1, help="Number of states of the HMM.")] = 45,
    symbols: Annotated[int, typer.Option(min=1, help="Size of the vocabulary.")] = 200_000,
    held_out: Annotated[
        int, typer.Option(min=0, help="Number of sequences in a second, held-out file.")
    ] = 0,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Draw a corpus that resembles English text from an HMM, and save the HMM's parameters with it.

    Example: [bold]sojourn generate corpus.parquet --sequences 100000 --symbols 20000[/]
    """
    from sojourn.progress import ShareProgress
    from sojourn.sources.generate import generate as run
    from sojourn.sources.generate import truth_path

    with errors_in_short(), ShareProgress("sentences") as report:
        run(
            out,
            n_sequences=sequences,
            n_states=states,
            n_symbols=symbols,
            seed=seed,
            n_held_out=held_out,
            overwrite=force,
            report=report,
        )
    if as_json:
        print_json({"path": str(out), "sequences": sequences, "truth": str(truth_path(out))})
        return
    typer.echo(f"{out}: {sequences:,} sentences; the true parameters are in {truth_path(out)}")
