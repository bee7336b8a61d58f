"""What ``sojourn fit`` says: before training, after it, in JSON and in the model file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sojourn.cli.holdout import Parts, count

if TYPE_CHECKING:
    from rich.console import Console

    from sojourn.cli.data import Opened
    from sojourn.families.choose import Choice
    from sojourn.models.base import BaseHMM
    from sojourn.models.plan import Plan


def plain(text: str) -> str:
    """Escape text that comes from the data or the command line for Rich."""
    from rich.markup import escape

    from sojourn.cli.common import printable

    return escape(printable(text))


def show_notes(screen: Console, notes: list[str]) -> None:
    """Show what was decided about the data."""
    for note in notes:
        screen.print(f"[dim]{plain(note)}[/]", soft_wrap=True)


def about_data(parts: Parts, choice: Choice) -> str:
    """Describe the data and the family."""
    size = f"{count(parts.n_sequences)}, {parts.n_steps:,} steps to learn from"
    name = type(choice.family).__name__
    return f"{size}; {plain(parts.how)}\nfamily [bold]{name}[/]: {plain(choice.reason)}"


def plan_of(model: BaseHMM, parts: Parts) -> Plan:
    """Return how training will go through the data; of small data that depends on the family."""
    from sojourn.data import Data
    from sojourn.models.plan import FULL_STEPS, plan_training

    family = None
    if parts.n_steps <= FULL_STEPS:
        data = Data(parts.train, None, model.emission)
        family, _ = data.resolve(model.emission, model.n_states)
    return plan_training(model, parts.n_sequences, parts.n_steps, family)


def about_training(model: BaseHMM, parts: Parts) -> str:
    """Describe the model and its training."""
    from sojourn.models.parameters import is_sampled

    if is_sampled(model):
        return f"{type(model).__name__} with {model.n_states} states by {model.inference}\n"
    plan = plan_of(model, parts)
    passes = f"{plan.n_passes} passes"
    if plan.batch_size is not None:
        size = min(plan.batch_size, parts.n_sequences)
        passes += f", {size:,} sequence{'s' if size > 1 else ''} per update"
    elif plan.tol is not None:
        passes = f"full batches, at most {passes}"
    else:
        passes += ", full batches"
    most = "at most " if type(model).__name__ == "HDPHMM" else ""
    return (
        f"{type(model).__name__} with {most}{model.n_states} states by {model.inference}: "
        f"{passes}\n"
    )


def provenance(data: str, opened: Opened, parts: Parts, choice: Choice) -> dict[str, Any]:
    """Return what the model file records of where the model comes from."""
    from datetime import UTC, datetime

    from sojourn import __version__

    return {
        "data": Path(data).name,
        "sequences": parts.n_sequences,
        "steps": parts.n_steps,
        "held_out": parts.how,
        "reason": choice.reason,
        "columns": opened.columns,
        "reading": {name: how for name, how in opened.reading.items() if name != "max_bytes"},
        "date": datetime.now(UTC).date().isoformat(),
        "version": f"sojourn {__version__}",
    }


def result(model: BaseHMM, target: Path, parts: Parts) -> dict[str, Any]:
    """Return the result for programs."""
    last = model.history_[-1]
    return {
        "path": str(target),
        "model": type(model).__name__,
        "family": type(model.emission_).__name__,
        "sequences": parts.n_sequences,
        "steps": parts.n_steps,
        "states": model.n_states,
        "states_used": model.n_states_,
        "updates": model.n_updates_,
        "seconds": last["seconds"],
        "held_out_score": last["score"],
        "history": model.history_,
    }


def show(screen: Console, model: BaseHMM, target: Path, data: str, notes: list[str]) -> None:
    """Show what was learned, what to do next, and the notes of the fit."""
    from shlex import quote

    from sojourn.cli.tables import state_table
    from sojourn.progress import sparkline

    scores = [entry["score"] for entry in model.history_ if entry["score"] is not None]
    if scores:
        screen.print(
            f"held-out log likelihood per step: {scores[0]:.4f} {sparkline(scores)} "
            f"[bold]{scores[-1]:.4f}[/]\n"
        )
    screen.print(state_table(model, 10, screen.width))
    name, file = plain(quote(str(target))), plain(quote(data))
    screen.print(f"\nsaved: [bold]{name}[/]\nnext:", soft_wrap=True)
    for command in (f"report {name} --data {file}", f"decode {name} {file}", f"inspect {name}"):
        screen.print(f"  sojourn {command}", soft_wrap=True)
    for note in notes:
        screen.print(f"[yellow]note:[/] {plain(note)}", soft_wrap=True)
