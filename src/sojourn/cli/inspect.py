"""``sojourn inspect``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli.common import console, errors_in_short, print_json
from sojourn.cli.options import Json, ModelFile

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM


def inspect(
    model: ModelFile,
    states: Annotated[
        int, typer.Option(min=0, help="Number of states to show, largest first.")
    ] = 10,
    as_json: Json = False,
) -> None:
    """Show the contents of a model file: model, data, training and the largest states.

    Example: [bold]sojourn inspect words.sojourn --states 5[/]
    """
    from sojourn.cli.tables import state_table
    from sojourn.models import load
    from sojourn.report.states import summarize

    with errors_in_short():
        fitted = load(model)
    if as_json:
        listed = [entry._asdict() for entry in summarize(fitted, states)]
        print_json(_facts(fitted) | {"top_states": listed, "history": fitted.history_})
        return
    screen = console()
    facts = _facts(fitted)
    width = max(map(len, facts))
    for name, value in facts.items():
        screen.print(f"{name:<{width}}  {_shown(value)}", markup=False, soft_wrap=True)
    if states:
        screen.print()
        screen.print(state_table(fitted, states, screen.width))


def _facts(model: BaseHMM) -> dict[str, Any]:
    """Gather what to show, in order."""
    origin = model.provenance_
    facts: dict[str, Any] = {
        "model": type(model).__name__,
        "emission": type(model.emission_).__name__,
        "inference": model.fitted_.estimator.parameters["inference"],
        "states": len(model.state_shares_),
        "states in use": model.n_states_,
        "sequences": model.total_sequences_,
        "updates": model.n_updates_,
    }
    vocabulary = getattr(model.emission_, "vocabulary", None)
    if vocabulary is not None:
        facts["words"] = len(vocabulary)
    facts |= {name: origin[name] for name in ("data", "date", "version") if name in origin}
    scores = [entry["score"] for entry in model.history_ if entry["score"] is not None]
    if scores:
        facts["held-out score"] = scores[-1]
    if model.history_:
        facts["passes"] = model.history_[-1]["passes"]
        facts["seconds"] = model.history_[-1]["seconds"]
    return facts


def _shown(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
