"""``sojourn reproduce``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sojourn.cli.common import errors_in_short

if TYPE_CHECKING:
    from sojourn.reproduce.figure2 import Cell

_ONLY_LARGE = "only with --large"


class Experiment(StrEnum):
    """What can be run again."""

    figure2 = "figure2"


def reproduce(
    experiment: Annotated[Experiment, typer.Argument(help="Which experiment of the paper.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for points and figures.")],
    corpus: Annotated[
        Path | None,
        typer.Option(
            help="Text, one sentence a line, or a folder with train.txt and test.txt; "
            "with --large a Parquet file.  By default Python's own documentation."
        ),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What to call the corpus in the title.")] = None,
    large: Annotated[
        bool, typer.Option("--large", help="One pass over a large file, against time.")
    ] = False,
    held_out: Annotated[
        Path | None,
        typer.Option(help="With --large: what to score; by default CORPUS.held-out.parquet."),
    ] = None,
    states: Annotated[
        list[int] | None,
        typer.Option("--states", "-k", min=1, help="States; with --large, several are panels."),
    ] = None,
    passes: Annotated[int, typer.Option(min=1, help="Passes over a text.")] = 10,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Fits of each setting; 3, with --large 1.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Threads; by default all cores.")] = None,
) -> None:
    """Run the paper's comparison of SVI, SCVI and SCVI-HDP again, and draw it.

    A run that was stopped goes on where it was: every fit has a file of its own in OUT/cells.

    Example: [bold]sojourn reproduce figure2 --corpus wsj.txt --out figure2[/]
    """
    with errors_in_short():
        _check(large, corpus, held_out, states, passes)
        _check_plots()
        from sojourn.reproduce.figure2 import large_grid, small_grid

        out.mkdir(parents=True, exist_ok=True)
        if large:
            assert corpus is not None
            beside = corpus.with_suffix(".held-out.parquet")
            cells = large_grid(tuple(states or (45, 100)), seeds or 1)
            _large(out, corpus, held_out or beside, name, cells, jobs)
        else:
            cells = small_grid(n_states=(states or [45])[0], n_passes=passes, n_seeds=seeds or 3)
            _small(out, corpus, name, cells, jobs)


def _check(
    large: bool, corpus: Path | None, held_out: Path | None, states: list[int] | None, passes: int
) -> None:
    """Refuse options that do not go together."""
    if large and corpus is None:
        raise typer.BadParameter("--large needs a Parquet file", param_hint="--corpus")
    if large and passes != 10:
        raise typer.BadParameter("--large makes one pass", param_hint="--passes")
    if not large and held_out is not None:
        raise typer.BadParameter(_ONLY_LARGE, param_hint="--held-out")
    if not large and states is not None and len(states) > 1:
        raise typer.BadParameter(f"several {_ONLY_LARGE}", param_hint="--states")


def _check_plots() -> None:
    """Say before hours of work that the figure cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("the figure needs Matplotlib: pip install sojourn[plot]") from error


def _small(
    out: Path, corpus: Path | None, name: str | None, cells: list[Cell], jobs: int | None
) -> None:
    from sojourn.reproduce.corpus import read_corpus
    from sojourn.reproduce.draw import draw_small
    from sojourn.reproduce.figure2 import run_small

    text = read_corpus(corpus)
    text = text._replace(name=name or text.name)
    with _Progress() as report:
        result = run_small(text, cells, out, n_jobs=jobs, report=report)
    _finish(out / "figure2.json", draw_small(result, out))


def _large(
    out: Path,
    corpus: Path,
    held_out: Path,
    name: str | None,
    cells: list[Cell],
    jobs: int | None,
) -> None:
    from sojourn.reproduce.draw import draw_large
    from sojourn.reproduce.figure2 import run_large

    with _Progress() as report:
        result = run_large(
            corpus, held_out, cells, out, name=name or corpus.stem, n_jobs=jobs, report=report
        )
    _finish(out / "figure2-large.json", draw_large(result, out))


class _Progress:
    """A bar with the time left on a terminal, and a line for every fit elsewhere."""

    def __init__(self) -> None:
        from rich.console import Console

        from sojourn.progress import ShareProgress

        self._console = Console(stderr=True)
        self._bar = ShareProgress("fits", self._console)

    def __enter__(self) -> _Progress:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(None, None, None)

    def __call__(self, share: float, n_done: int, line: str) -> None:
        self._bar("figure 2", share, n_done)
        if line and not self._console.is_terminal:
            self._console.print(f"{share:4.0%} {line}", highlight=False, soft_wrap=True)


def _finish(points: Path, figures: list[Path]) -> None:
    typer.echo("written: " + ", ".join(map(str, [points, *figures])))
