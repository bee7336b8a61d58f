"""``sojourn fit``."""

from __future__ import annotations

from types import SimpleNamespace

from sojourn.cli import options as opt
from sojourn.cli.learn import learn


def fit(
    data: opt.DataFile,
    states: opt.States = 20,
    out: opt.ModelOut = None,
    kind: opt.ModelKind = opt.Kind.hdp,
    family: opt.FamilyName = "auto",
    moves: opt.Moves = None,
    init_states: opt.InitStates = None,
    stickiness: opt.Stickiness = "0",
    duration: opt.Duration = "geometric",
    max_shape: opt.MaxShape = None,
    max_length: opt.MaxLength = None,
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
    time: opt.Time = None,
    drop: opt.Drop = None,
    lower: opt.Lower = None,
    pattern: opt.Pattern = None,
    encoding: opt.Encoding = None,
    missing: opt.Missing = None,
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
    learn(SimpleNamespace(**locals()))
