"""What ``sojourn fit`` does: read, hold out, choose a family, train, save and tell."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.cli import choosing, holdout, summary, training
from sojourn.cli.cluster import connected
from sojourn.cli.common import STANDARD, console, errors_in_short, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from sojourn.cli.data import Opened
    from sojourn.families.choose import Choice
    from sojourn.models.base import BaseHMM


def learn(asked: Any) -> None:
    """Learn a model from the data and with the options that were asked for, by their names."""
    target = asked.out or _default_target(asked.data)
    screen = console(quiet=asked.as_json, errors=target == STANDARD)
    with errors_in_short(), connected(asked.cluster, asked.workers) as client:
        opened, parts, choice = _read(asked, target, screen, remote=client is not None)
        screen.print(summary.about_data(parts, choice), soft_wrap=True)
        model = _make(asked, parts, choice, remote=client is not None)
        screen.print(summary.about_training(model, parts), soft_wrap=True)
        notes = training.fit_noting_warnings(
            model, parts, quiet=asked.as_json,
            checkpoint=asked.checkpoint, resume=asked.resume, client=client,
        )  # fmt: skip
        model.provenance_ = summary.provenance(asked.data, opened, parts, choice)
        _save(model, target, overwrite=asked.force)
    if target == STANDARD:
        return
    if asked.as_json:
        print_json(summary.result(model, target, parts) | {"warnings": notes})
    else:
        summary.show(screen, model, target, asked.data, notes)


def _read(
    asked: Any, target: Path, screen: Console, *, remote: bool
) -> tuple[Opened, holdout.Parts, Choice]:
    """Open the data, split it and choose the family."""
    from sojourn.cli.data import open_data, reading_options
    from sojourn.progress import Activity
    from sojourn.whole_files import check_target

    is_file = target != STANDARD
    if is_file:
        check_target(target, asked.force)
    with Activity(f"reading {asked.data}", quiet=asked.as_json) as report:
        numbers = asked.family not in ("auto", "categorical")
        given = reading_options(vars(asked))
        opened = open_data(asked.data, given, report, numbers=numbers)
        report(f"reading {asked.data}")
        parts = holdout.hold_out(opened, asked.held_out, asked.seed, remote=remote)
        if is_file:
            held_out = getattr(parts.held_out, "paths", ())
            check_target(target, asked.force, [*opened.source.paths, *held_out])
        summary.show_notes(screen, opened.notes)
        wanted = (asked.family, asked.min_count, asked.max_size)
        return opened, parts, choosing.choose(opened, parts.train, *wanted)


def _make(asked: Any, parts: holdout.Parts, choice: Choice, *, remote: bool) -> BaseHMM:
    """Make the estimator."""
    return training.make_model(
        asked.kind, asked.states, choice, asked.moves, asked.init_states, n_passes=asked.passes,
        batch_size=training.usual_batch_size(asked.batch_size, parts.n_sequences, remote),
        forgetting_rate=asked.forgetting_rate, inference=asked.inference, n_init=asked.restarts,
        device=asked.device, stickiness=training.read_stickiness(asked.stickiness),
        n_jobs=asked.jobs, random_state=asked.seed,
        duration=training.read_duration(asked.duration, asked.max_shape, asked.max_length),
    )  # fmt: skip


def _save(model: BaseHMM, target: Path, *, overwrite: bool) -> None:
    """Save the model to a file, or write the file to standard output."""
    if target != STANDARD:
        model.save(target, overwrite=overwrite)
        return
    with tempfile.TemporaryDirectory(prefix="sojourn-") as folder:
        path = Path(folder) / "model.sojourn"
        model.save(path)
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)


def _default_target(data: str) -> Path:
    """Name a model after its data.

    Examples
    --------
    >>> [str(_default_target(name)) for name in ("a/wiki.txt.gz", "logs/", "*.txt", "-")]
    ['wiki.sojourn', 'logs.sojourn', 'model.sojourn', 'model.sojourn']
    """
    stem = Path(data).name.partition(".")[0]
    is_name = stem not in ("", "-") and not set("*?[") & set(stem)
    return Path(f"{stem if is_name else 'model'}.sojourn")
