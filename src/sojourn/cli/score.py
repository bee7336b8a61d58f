"""``sojourn score``."""

from __future__ import annotations

import math

from sojourn.cli.cluster import connected
from sojourn.cli.common import console, errors_in_short, print_json
from sojourn.cli.options import (
    Address,
    Columns,
    DataFile,
    Json,
    Label,
    Lower,
    MaxBytes,
    ModelFile,
    Pattern,
    Sequence,
    Workers,
)


def score(
    model: ModelFile,
    data: DataFile,
    column: Columns = None,
    sequence: Sequence = None,
    lower: Lower = None,
    pattern: Pattern = None,
    max_bytes: MaxBytes = None,
    label: Label = None,
    cluster: Address = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Compute the log likelihood of data under a model, in nats: in total and per step.

    Example: [bold]sojourn score words.sojourn new.txt[/]
    """
    from sojourn.cli.data import open_for, reading_options
    from sojourn.families import Categorical
    from sojourn.models import load

    with errors_in_short(), connected(cluster, workers) as client:
        fitted = load(model)
        opened = open_for(
            fitted, data, reading_options(column, sequence, lower, pattern, max_bytes, label)
        )
        if client is None:
            each = fitted.log_likelihood(opened.source)
            n_sequences, total = len(each), math.fsum(each)
        else:
            n_sequences = opened.source.n_sequences
            total = fitted.score(opened.source, client=client)
        n_steps = opened.source.n_steps
    result = {
        "model": str(model),
        "data": data,
        "sequences": n_sequences,
        "steps": n_steps,
        "log_likelihood": total,
        "per_step": total / n_steps,
    }
    if isinstance(fitted.emission_, Categorical):
        result["perplexity"] = math.exp(-total / n_steps)
    if as_json:
        print_json(result)
        return
    screen = console()
    screen.print(f"{n_sequences:,} sequences, {n_steps:,} steps")
    screen.print(f"log likelihood  {total:,.2f} nats")
    screen.print(f"per step        [bold]{total / n_steps:.4f}[/]")
    if "perplexity" in result:
        screen.print(f"perplexity      {result['perplexity']:.1f}")
