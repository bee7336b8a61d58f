"""``sojourn forecast``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sojourn.cli.common import errors_in_short
from sojourn.cli.options import (
    Columns,
    DataFile,
    Drop,
    Encoding,
    JsonLines,
    Lower,
    MaxBytes,
    Missing,
    ModelFile,
    Pattern,
    Seed,
    Sequence,
    Time,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sojourn.analysis.forecast import Forecast
    from sojourn.models.base import BaseHMM

_WORDS = 5  # most probable symbols that are printed for a step


def forecast(
    model: ModelFile,
    data: DataFile,
    steps: Annotated[int, typer.Option(min=1, help="Number of steps ahead.")] = 5,
    quantile: Annotated[
        list[float] | None,
        typer.Option(help="Level of a quantile; give several. By default 0.05, 0.5 and 0.95."),
    ] = None,
    draws: Annotated[
        int,
        typer.Option(min=0, help="Draws of the parameters; 0 uses their posterior means alone."),
    ] = 100,
    column: Columns = None,
    sequence: Sequence = None,
    time: Time = None,
    drop: Drop = None,
    lower: Lower = None,
    pattern: Pattern = None,
    encoding: Encoding = None,
    missing: Missing = None,
    max_bytes: MaxBytes = None,
    seed: Seed = 0,
    as_json: JsonLines = False,
) -> None:
    """Forecast what comes after every sequence.

    For every step ahead a line has the most probable state, and for numbers the mean and quantiles
    of every column, for symbols the most probable ones.

    Example: [bold]sojourn forecast walks.sojourn new.csv --steps 3[/]
    """
    from sojourn.cli.data import open_for, reading_options
    from sojourn.models import load

    levels = tuple(quantile or (0.05, 0.5, 0.95))
    with errors_in_short():
        fitted = load(model)
        opened = open_for(fitted, data, reading_options(locals()))
        first = 0
        for piece in opened.source:
            found = fitted.forecast(
                fitted.emission_.as_steps(piece),
                steps=steps,
                quantiles=levels,
                n_draws=draws,
                random_state=seed,
            )
            for n in range(len(piece)):
                for line in _lines(fitted, found, n, first + n, as_json=as_json):
                    typer.echo(line)
            first += len(piece)


def _lines(model: BaseHMM, found: Forecast, n: int, number: int, *, as_json: bool) -> Iterator[str]:
    """Describe the forecast of one sequence: JSON on one line, or one line per step."""
    ahead = [_step(model, found, n, h) for h in range(found.state_probabilities.shape[1])]
    if as_json:
        yield json.dumps({"sequence": number, "steps": ahead}, ensure_ascii=False)
        return
    yield f"sequence {number}"
    for h, step in enumerate(ahead):
        state = max(range(len(step["states"])), key=step["states"].__getitem__)
        text = f"  +{h + 1}  {model.fitted_.name_of(state)} ({step['states'][state]:.2f})"
        if "symbols" in step:
            text += "".join(f"  {word} {p:.3f}" for word, p in step["symbols"])
        else:
            for mean, *quantiles in zip(step["mean"], *step["quantiles"], strict=True):
                inside = " ".join(f"{value:.4g}" for value in quantiles)
                text += f"  {mean:.4g} [{inside}]"
        yield text


def _step(model: BaseHMM, found: Forecast, n: int, h: int) -> dict[str, Any]:
    """Return what is forecast for one step, as plain numbers."""
    step: dict[str, Any] = {"states": found.state_probabilities[n, h].round(6).tolist()}
    if found.means is None or found.quantiles is None:
        from sojourn.report.states import symbol_names

        names = symbol_names(model.emission_)
        row = found.probabilities[n, h]
        best = (-row).argsort(kind="stable")[:_WORDS]
        step["symbols"] = [(names[w], round(float(row[w]), 6)) for w in best]
        return step
    step["mean"] = [float(f"{value:.8g}") for value in found.means[n, h]]
    step["quantiles"] = [[float(f"{v:.8g}") for v in row] for row in found.quantiles[:, n, h]]
    return step
