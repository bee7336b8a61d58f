"""The ``sojourn`` command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from sojourn import __version__

app = typer.Typer(
    help="Bayesian hidden Markov models from more sequences than fit in memory.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"sojourn {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Take the options that belong to no command."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where to save the model.")] = Path("demo.sojourn"),
    states: Annotated[int, typer.Option(min=1, help="Truncation level of the HDP-HMM.")] = 30,
    passes: Annotated[int, typer.Option(min=1, help="Passes over the data.")] = 30,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
) -> None:
    """Learn word classes from Python's own documentation, in a few seconds.

    Example: sojourn demo --states 20 --out words.sojourn
    """
    if not out.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {out.parent}", param_hint="--out")
    from sojourn.demo import run_demo  # the estimators load late: --help answers at once

    run_demo(Console(), out, n_states=states, n_passes=passes, seed=seed)


_Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


@app.command()
def ingest(
    data: Annotated[str, typer.Argument(metavar="IN", help="File, folder or pattern.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Parquet file to write.")],
    min_count: Annotated[int, typer.Option(min=1, help="Leave out rarer words.")] = 1,
    max_size: Annotated[int | None, typer.Option(min=1, help="At most so many words.")] = None,
    lower: Annotated[bool, typer.Option("--lower", help="Turn words into lower case.")] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Regular expression of a word; else whitespace separates.")
    ] = None,
    column: Annotated[
        list[str] | None, typer.Option(help="Column with the steps; several make vectors.")
    ] = None,
    sequence: Annotated[
        str | None, typer.Option(help="Long format: the column with the sequence's id.")
    ] = None,
    vocabulary: Annotated[
        Path | None, typer.Option(help="Take the vocabulary of this ingested file.")
    ] = None,
    force: _Force = False,
) -> None:
    """Write data in the form that is read quickest: symbols in Parquet, with their vocabulary.

    Example: sojourn ingest wiki.txt.gz wiki.parquet --lower --min-count 5
    """
    from sojourn.progress import ShareProgress
    from sojourn.sources.ingest import ingest as run
    from sojourn.sources.ingest import vocabulary_of

    columns = column[0] if column and len(column) == 1 else column or None
    with _errors_in_short(), ShareProgress() as report:
        done = run(
            data,
            out,
            min_count=min_count,
            max_size=max_size,
            vocabulary=None if vocabulary is None else vocabulary_of(vocabulary),
            overwrite=force,
            report=report,
            lower=lower,
            pattern=pattern,
            column=columns,
            sequence=sequence,
        )
    words = "" if done.vocabulary is None else f", {len(done.vocabulary):,} words"
    typer.echo(f"{done.path}: {done.n_sequences:,} sequences, {done.n_steps:,} steps{words}")


@app.command()
def generate(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Parquet file to write.")],
    sequences: Annotated[int, typer.Option(min=1, help="Sentences to draw.")] = 5_000_000,
    states: Annotated[int, typer.Option(min=1, help="States of the model.")] = 45,
    symbols: Annotated[int, typer.Option(min=1, help="Words that there are.")] = 200_000,
    held_out: Annotated[int, typer.Option(min=0, help="Sentences for a second file.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 0,
    force: _Force = False,
) -> None:
    """Draw a corpus with the look of English from a known HMM, whose parameters come beside it.

    Example: sojourn generate corpus.parquet --sequences 100000 --symbols 20000
    """
    from sojourn.progress import ShareProgress
    from sojourn.sources.generate import generate as run
    from sojourn.sources.generate import truth_path

    with _errors_in_short(), ShareProgress("sentences") as report:
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
    typer.echo(f"{out}: {sequences:,} sentences; the true parameters are in {truth_path(out)}")


@app.command()
def decode(
    model: Annotated[Path, typer.Argument(help="Model file.")],
    data: Annotated[str, typer.Argument(metavar="IN", help="File, folder or pattern.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Parquet file to write.")],
    proba: Annotated[
        bool, typer.Option("--proba", help="State probabilities in place of the best path.")
    ] = False,
    force: _Force = False,
) -> None:
    """Write the most probable states of every sequence to a Parquet file, in order.

    Example: sojourn decode words.sojourn wiki.parquet states.parquet
    """
    from sojourn.persist import load

    with _errors_in_short():
        fitted = load(model)
        predict = fitted.predict_proba if proba else fitted.predict
        predict(data, out=out, overwrite=force)
    typer.echo(f"written: {out}")


@contextmanager
def _errors_in_short() -> Iterator[None]:
    """Turn what a user can mend into one line, and everything else into a traceback."""
    try:
        yield
    except FileExistsError as error:
        typer.echo(f"Error: {error}; --force replaces it", err=True)
        raise typer.Exit(1) from None
    except (OSError, ValueError) as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(1) from None


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
