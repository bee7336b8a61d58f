"""What ``sojourn reproduce`` runs: the fits, with progress, and then the drawing."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from experiments.reproduce.corpus import read_corpus
from experiments.reproduce.draw import draw_large, draw_small
from experiments.reproduce.figure2 import large_grid, run_large, run_small, small_grid
from sojourn.progress import ShareProgress


def figure2(
    out: Path,
    corpus: Path | None,
    name: str | None,
    n_states: int,
    n_passes: int,
    n_seeds: int,
    n_jobs: int | None,
) -> list[Path]:
    """Reproduce the upper rows on a text; return the files written."""
    _check_plots()
    out.mkdir(parents=True, exist_ok=True)
    text = read_corpus(corpus)
    text = text._replace(name=name or text.name)
    cells = small_grid(n_states=n_states, n_passes=n_passes, n_seeds=n_seeds)
    with _Progress() as report:
        result = run_small(text, cells, out, n_jobs=n_jobs, report=report)
    return [out / "figure2.json", *draw_small(result, out)]


def figure2_large(
    out: Path,
    corpus: Path,
    held_out: Path,
    name: str | None,
    states: list[int],
    n_passes: int,
    n_seeds: int,
    device: str,
    n_jobs: int | None,
) -> list[Path]:
    """Reproduce the last row on a file that may be larger than memory; return the files written."""
    _check_plots()
    out.mkdir(parents=True, exist_ok=True)
    cells = large_grid(tuple(states), n_seeds, n_passes)
    with _Progress() as report:
        result = run_large(
            corpus,
            held_out,
            cells,
            out,
            name=name or corpus.stem,
            device=device,
            n_jobs=n_jobs,
            report=report,
        )
    return [out / "figure2-large.json", *draw_large(result, out)]


def _check_plots() -> None:
    """Say before hours of work that the figure cannot be drawn."""
    try:
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise ImportError("the figure needs Matplotlib: pip install sojourn[plot]") from error


class _Progress:
    """A bar with the time left on a terminal, and one line per fit elsewhere."""

    def __init__(self) -> None:
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
