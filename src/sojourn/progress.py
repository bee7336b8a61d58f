"""A live view of training in the terminal."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Self

from sojourn.inference import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class LiveProgress:
    """Show passes, speed, held-out score and time left; a callback for `fit`.

    Parameters
    ----------
    n_passes : int
        Passes that training will make.
    title : str
        What is being trained.
    console : rich.console.Console, optional
        Where to print; standard error by default, so that piped output stays clean.
    """

    def __init__(self, n_passes: int, title: str, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._console = console if console is not None else Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=16),
            TextColumn("pass {task.completed:.1f}/{task.total:.0f}"),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[held_out]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
        )
        self._task = self._bars.add_task(title, total=n_passes, speed="", held_out="")
        self._n_passes = n_passes
        self._quiet = not self._console.is_terminal

    def __enter__(self) -> Self:
        if not self._quiet:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._quiet:
            self._bars.stop()

    def __call__(self, progress: Progress) -> None:
        """Take in the state of training."""
        seconds = max(progress.seconds, 1e-9)
        speed = f"{progress.sequences / seconds:,.0f} seq/s {progress.steps / seconds:,.0f} steps/s"
        self._bars.update(self._task, completed=progress.passes, speed=speed)
        if progress.score is not None:
            self._bars.update(self._task, held_out=f"held-out {progress.score:.4f}")
            a_tenth = max(1, self._n_passes // 10)
            if self._quiet and round(progress.passes) % a_tenth == 0:
                # Without a terminal there is no live view: a plain line now and then.
                digits = 0 if progress.passes == round(progress.passes) else 2
                self._console.print(
                    f"pass {progress.passes:.{digits}f}: {speed}, held-out {progress.score:.4f}",
                    highlight=False,
                )


class ShareProgress:
    """Show how much of some work on files is done, and the time left; a report for `ingest`.

    Parameters
    ----------
    unit : str
        What is counted.
    console : rich.console.Console, optional
        Where to print; standard error by default.
    """

    def __init__(self, unit: str = "sequences", console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._unit = unit
        self._console = console if console is not None else Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.percentage:3.0f}%"),
            TextColumn("{task.fields[count]}"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            disable=not self._console.is_terminal,
        )
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def __call__(self, what: str, share: float, n_done: int) -> None:
        """Take in how much of something is done."""
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=1.0, count="")
        count = f"{n_done:,} {self._unit}"
        self._bars.update(self._tasks[what], completed=share, count=count)
