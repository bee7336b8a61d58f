"""A live view of training in the terminal."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sojourn.inference import Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import TaskID


class LiveProgress:
    """Show passes, time left, speed, held-out scores and states in use; a callback for `fit`.

    Without a terminal there is no live view, but a plain line with the score after every tenth of
    the passes.

    Parameters
    ----------
    n_passes : int
        Number of passes of the training.
    title : str
        What is being trained.
    console : rich.console.Console, optional
        Where to print; standard error by default, so that piped output stays clean.
    n_used : callable, optional
        Returns the number of states in use, or None; called after each pass.
    timed : bool
        Without a terminal, print lines by the clock instead: after a second, and then less and
        less often.
    """

    def __init__(
        self,
        n_passes: int,
        title: str,
        console: Console | None = None,
        *,
        n_used: Callable[[], int | None] | None = None,
        timed: bool = False,
    ) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bars

        self._console = console if console is not None else Console(stderr=True)
        self._bars = Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=14),
            TextColumn("{task.completed:.1f}/{task.total:.0f}"),
            TimeRemainingColumn(compact=True),
            TextColumn("{task.fields[about]}"),
            console=self._console,
        )
        self._task = self._bars.add_task(title, total=n_passes, about="")
        self._n_passes = n_passes
        self._n_used = n_used
        self._used = ""
        self._scores: list[float] = []
        self.is_live = bool(self._console.is_terminal)
        self._now = f"{title}: it begins"
        self._clock = Heartbeat(lambda: self._now, self._console)
        self._is_timed = timed and not self.is_live

    def __enter__(self) -> Self:
        if self.is_live:
            self._bars.start()
        elif self._is_timed:
            self._clock.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_live:
            self._bars.stop()
        elif self._is_timed:
            self._clock.__exit__(kind, error, trace)

    def __call__(self, progress: Progress) -> None:
        """Show the state of training."""
        speed = f"{_short(progress.steps / max(progress.seconds, 1e-9))} steps/s"
        if progress.score is not None:
            self._scores.append(progress.score)
            if self._n_used is not None:
                n_used = self._n_used()
                self._used = "" if n_used is None else f"{n_used} states"
        curve = [sparkline(self._scores, 8), f"{self._scores[-1]:.3f}"] if self._scores else []
        about = " ".join(part for part in (speed, *curve, self._used) if part)
        self._bars.update(self._task, completed=progress.passes, about=about)
        self._now = f"pass {progress.passes:.2f} of {self._n_passes}: {about}"
        a_tenth = max(1, self._n_passes // 10)
        if (
            not (self.is_live or self._is_timed)
            and progress.score is not None
            and round(progress.passes) % a_tenth == 0
        ):
            digits = 0 if progress.passes == round(progress.passes) else 2
            used = f", {self._used}" if self._used else ""
            self._console.print(
                f"pass {progress.passes:.{digits}f}: {speed}, held-out {progress.score:.4f}{used}",
                highlight=False,
            )


class Heartbeat:
    """Print a line by the clock: after a second, then after two, four and so on up to a minute.

    A line that has not changed says how many seconds have passed.

    Parameters
    ----------
    say : callable
        Returns the line.
    console : rich.console.Console
    """

    FIRST, LONGEST = 1.0, 60.0  # seconds

    def __init__(self, say: Callable[[], str], console: Console) -> None:
        self._say, self._console = say, console
        self._over = Event()
        self._thread: Thread | None = None

    def __enter__(self) -> Self:
        self._thread = Thread(target=self._work, name="progress", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        pause, passed, last = self.FIRST, 0.0, ""
        while not self._over.wait(pause):
            passed += pause
            line = self._say()
            text = f"{line} ({passed:.0f} s)" if line == last else line
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)
            pause, last = min(2.0 * pause, self.LONGEST), line


class Activity:
    """Say what is being done, from the first second on, and how much of it is done.

    Parameters
    ----------
    what : str
        What is being done.
    quiet : bool
        Say nothing.
    console : rich.console.Console, optional
        Where to print; standard error by default.
    """

    def __init__(self, what: str, *, quiet: bool = False, console: Console | None = None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = console if console is not None else Console(stderr=True)
        self._now = what
        self._quiet = quiet
        self._clock = Heartbeat(lambda: self._now, self._console)
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bars.add_task(what, total=None)

    def __enter__(self) -> Self:
        if not self._quiet:
            (self._bars if self._console.is_terminal else self._clock).__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._quiet:
            active = self._bars if self._console.is_terminal else self._clock
            active.__exit__(kind, error, trace)

    def __call__(self, what: str, share: float | None = None) -> None:
        """Say what is being done now, and the share of it that is done."""
        self._now = what if share is None else f"{what}: {share:.0%}"
        total = None if share is None else 1.0
        self._bars.update(self._task, description=what, completed=share or 0.0, total=total)


def _short(number: float) -> str:
    """Write a speed in about four characters.

    Examples
    --------
    >>> _short(8_230_000.0), _short(52_100.0), _short(7.0)
    ('8.2M', '52k', '7')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.{0 if number >= 10 * size else 1}f}{letter}"
    return f"{number:.0f}"


_BLOCKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], width: int = 16) -> str:
    """Draw a curve in one line of text: `width` of the values, spread over all of them.

    Examples
    --------
    >>> sparkline([0.0, 1.0, 2.0, 4.0])
    '▁▃▅█'
    """
    if len(values) > width:
        last = len(values) - 1
        values = [values[round(i * last / (width - 1))] for i in range(width)]
    if not values:
        return ""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    return "".join(_BLOCKS[round((value - low) / span * (len(_BLOCKS) - 1))] for value in values)


class ShareProgress:
    """Show progress on files and the time left; the `report` of `ingest`.

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
        """Show the share of a task that is done."""
        if what not in self._tasks:
            self._tasks[what] = self._bars.add_task(what, total=1.0, count="")
        count = f"{n_done:,} {self._unit}"
        self._bars.update(self._tasks[what], completed=share, count=count)
