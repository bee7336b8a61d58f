"""``sojourn reproduce``: the entry to the experiments, which the installed package leaves out."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from sojourn.cli.common import errors_in_short

_ONLY_LARGE = "works only with --large"


class Experiment(StrEnum):
    """What can be reproduced."""

    figure2 = "figure2"


Which = Annotated[Experiment, typer.Argument(help="Which experiment of the paper.")]
Folder = Annotated[Path, typer.Option("--out", "-o", help="Folder for results and figures.")]
CorpusPath = Annotated[
    Path | None,
    typer.Option(
        help="Text with one sentence per line, or a folder with train.txt and test.txt; with "
        "--large a Parquet file. By default Python's own documentation."
    ),
]
Title = Annotated[str | None, typer.Option(help="Name of the corpus in the figure's title.")]
Large = Annotated[
    bool,
    typer.Option("--large", metavar="", help="Passes over a large file; score against time."),
]
HeldOutPath = Annotated[
    Path | None,
    typer.Option(help="With --large: held-out data; by default CORPUS.held-out.parquet."),
]
ManyStates = Annotated[
    list[int] | None,
    typer.Option(
        "--states", "-k", min=1, help="Number of states; with --large one panel for each given."
    ),
]
Passes = Annotated[
    int | None,
    typer.Option(min=1, help="Number of passes over the data; by default 10, with --large 1."),
]
Device = Annotated[
    str, typer.Option(help="With --large: cpu, or cuda to learn on a GPU, from memory.")
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Number of fits per setting; by default 3, with --large 1."),
]
Jobs = Annotated[int | None, typer.Option(help="Number of threads; by default all cores.")]


def reproduce(
    experiment: Which,
    out: Folder,
    corpus: CorpusPath = None,
    name: Title = None,
    large: Large = False,
    held_out: HeldOutPath = None,
    states: ManyStates = None,
    passes: Passes = None,
    seeds: Seeds = None,
    device: Device = "cpu",
    jobs: Jobs = None,
) -> None:
    """Repeat the paper's comparison of SVI, SCVI and SCVI-HDP, and draw its figure.

    This needs a copy of the source repository. An interrupted run continues where it stopped: every
    fit has a file of its own in OUT/cells.

    Example: [bold]sojourn reproduce figure2 --corpus wsj.txt --out figure2[/]
    """
    with errors_in_short():
        _check(large, corpus, held_out, states, device)
        _make_importable()
        from experiments.reproduce.run import figure2, figure2_large

        if large:
            assert corpus is not None
            beside = corpus.with_suffix(".held-out.parquet")
            written = figure2_large(
                out,
                corpus,
                held_out or beside,
                name,
                states or [45, 100],
                passes or 1,
                seeds or 1,
                device,
                jobs,
            )
        else:
            first = (states or [45])[0]
            written = figure2(out, corpus, name, first, passes or 10, seeds or 3, jobs)
    typer.echo("written: " + ", ".join(map(str, written)))


def _check(
    large: bool, corpus: Path | None, held_out: Path | None, states: list[int] | None, device: str
) -> None:
    """Refuse options that do not go together."""
    if large and corpus is None:
        raise typer.BadParameter("--large needs a Parquet file", param_hint="--corpus")
    if not large and device != "cpu":
        raise typer.BadParameter(_ONLY_LARGE, param_hint="--device")
    if not large and held_out is not None:
        raise typer.BadParameter(_ONLY_LARGE, param_hint="--held-out")
    if not large and states is not None and len(states) > 1:
        raise typer.BadParameter(f"more than one {_ONLY_LARGE}", param_hint="--states")


def _make_importable() -> None:
    """Put the checkout that holds the experiments on the path.

    That is the checkout of this package, or the current folder.
    """
    for root in (Path(__file__).parents[3], Path.cwd()):
        if (root / "experiments" / "reproduce" / "run.py").is_file():
            if str(root) not in sys.path:
                sys.path.insert(0, str(root))
            return
    raise FileNotFoundError(
        "the paper's experiments are not part of the installed package: get a copy of sojourn's "
        "source repository and run this command in its folder, where experiments/ is"
    )
