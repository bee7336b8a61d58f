"""``sojourn fit``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sojourn.cli import choosing, holdout, summary, training
from sojourn.cli import options as opt
from sojourn.cli.cluster import connected
from sojourn.cli.common import console, errors_in_short, print_json


def fit(
    data: opt.DataFile,
    states: opt.States = 20,
    out: opt.ModelOut = None,
    kind: opt.ModelKind = opt.Kind.hdp,
    family: opt.FamilyName = "auto",
    moves: opt.Moves = None,
    init_states: opt.InitStates = None,
    stickiness: opt.Stickiness = "0",
    passes: opt.Passes = None,
    batch_size: opt.BatchSize = None,
    forgetting_rate: opt.ForgettingRate = None,
    inference: opt.Inference = "scvi",
    restarts: opt.Restarts = None,
    held_out: opt.HeldOut = "0.1",
    min_count: opt.MinCount = 2,
    max_size: opt.MaxSize = None,
    column: opt.Columns = None,
    sequence: opt.Sequence = None,
    lower: opt.Lower = None,
    pattern: opt.Pattern = None,
    max_bytes: opt.MaxBytes = None,
    label: opt.Label = None,
    weight: opt.Weight = None,
    device: opt.Device = "cpu",
    jobs: opt.Jobs = None,
    cluster: opt.Address = None,
    workers: opt.Workers = None,
    checkpoint: opt.CheckpointFolder = None,
    resume: opt.Resume = False,
    seed: opt.Seed = 0,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Learn a model from a text, CSV, Parquet, Arrow or NumPy file of any size.

    Text has one sequence per line. A table has one row per step and a column with the sequence's
    id, or a column of lists.

    The emission family is chosen from the data, and some of the sequences are held out.

    Example: [bold]sojourn fit corpus.txt --states 50 --out model.sojourn[/]
    """
    target, screen = out or _default_target(data), console(quiet=as_json)
    with errors_in_short(), connected(cluster, workers) as client:
        from sojourn.cli.data import open_data, reading_options
        from sojourn.whole_files import check_target

        check_target(target, force)
        how = reading_options(column, sequence, lower, pattern, max_bytes, label, weight)
        opened = open_data(data, how)
        summary.show_notes(screen, opened.notes)
        parts = holdout.hold_out(opened, held_out, seed, remote=client is not None)
        check_target(target, force, [*opened.source.paths, *getattr(parts.held_out, "paths", ())])
        choice = choosing.choose(opened, parts.train, family, min_count, max_size)
        screen.print(summary.about_data(parts, choice), soft_wrap=True)
        model = training.make_model(
            kind, states, choice, moves, init_states, n_passes=passes,
            batch_size=training.usual_batch_size(batch_size, parts.n_sequences, client is not None),
            forgetting_rate=forgetting_rate, inference=inference, n_init=restarts, device=device,
            stickiness=training.read_stickiness(stickiness), n_jobs=jobs, random_state=seed,
        )  # fmt: skip
        screen.print(summary.about_training(model, parts), soft_wrap=True)
        how = {"checkpoint": checkpoint, "resume": resume, "client": client}
        notes = training.fit_noting_warnings(model, parts, **how)
        model.provenance_ = summary.provenance(data, opened, parts, choice)
        model.save(target, overwrite=force)
    _tell(screen, model, target, data, parts, notes, as_json=as_json)


def _tell(
    screen: Any, model: Any, target: Path, data: str, parts: Any, notes: list[str], *, as_json: bool
) -> None:
    """Print what was learned, for people or as JSON."""
    if as_json:
        print_json(summary.result(model, target, parts) | {"warnings": notes})
    else:
        summary.show(screen, model, target, data, notes)


def _default_target(data: str) -> Path:
    """Name a model after its data.

    Examples
    --------
    >>> [str(_default_target(name)) for name in ("a/wiki.txt.gz", "logs/", "*.txt")]
    ['wiki.sojourn', 'logs.sojourn', 'model.sojourn']
    """
    stem = Path(data).name.partition(".")[0]
    return Path(f"{stem if stem and not set('*?[') & set(stem) else 'model'}.sojourn")
