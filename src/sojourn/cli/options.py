"""Arguments and options of the commands: each declared once, with its help text."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

# Panels of the help.
MODEL, LEARNING, DATA = "The model", "Learning", "Reading the data"

# ---- shared by several commands -----------------------------------------------------------------

ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file.")]
DataFile = Annotated[
    str,
    typer.Argument(metavar="DATA", help='File, folder or glob pattern; "-" for standard input.'),
]
Force = Annotated[bool, typer.Option("--force", metavar="", help="Overwrite existing files.")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Json = Annotated[
    bool, typer.Option("--json", metavar="", help="Print one JSON object and nothing else.")
]
JsonLines = Annotated[
    bool, typer.Option("--json", metavar="", help="Print one JSON object per sequence.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        help="Tables: column with the observations; give several for vectors.",
        rich_help_panel=DATA,
    ),
]
Sequence = Annotated[
    str | None,
    typer.Option(
        help="Tables with one row per step: column with the sequence's id.", rich_help_panel=DATA
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        help="Tables with one row per step: column with the time, by which rows must be sorted.",
        rich_help_panel=DATA,
    ),
]
Drop = Annotated[
    list[str] | None,
    typer.Option("--drop", help="Tables: column to leave out; give several.", rich_help_panel=DATA),
]
Encoding = Annotated[
    str | None,
    typer.Option(
        help="Text and CSV: encoding, such as latin-1; by default UTF-8.", rich_help_panel=DATA
    ),
]
Missing = Annotated[
    list[str] | None,
    typer.Option(
        "--missing",
        help="CSV: cell that stands for a missing value, besides empty ones and NA; give several.",
        rich_help_panel=DATA,
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        help="Tables: column with labels of steps, numbers or names of states; empty if unknown.",
        rich_help_panel=DATA,
    ),
]
Weight = Annotated[
    str | None,
    typer.Option(
        "--weight", help="Tables: column with weights of sequences.", rich_help_panel=DATA
    ),
]
Lower = Annotated[
    bool | None,
    typer.Option(
        "--lower/--no-lower", metavar="", help="Text: convert to lower case.", rich_help_panel=DATA
    ),
]
Pattern = Annotated[
    str | None,
    typer.Option(
        help="Text: regular expression that matches a word; by default words are separated by "
        "whitespace.",
        rich_help_panel=DATA,
    ),
]
MaxBytes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Longest line of a text, and most bytes that a compressed table may unpack to.",
        rich_help_panel=DATA,
    ),
]
Address = Annotated[
    str | None,
    typer.Option("--cluster", help="Compute on the Dask cluster with this scheduler address."),
]
Workers = Annotated[
    int | None,
    typer.Option(min=1, help="Compute on this many worker processes, started for this command."),
]

# ---- fit: the model -----------------------------------------------------------------------------


class Kind(StrEnum):
    """Which model."""

    hdp = "hdp"
    hmm = "hmm"


States = Annotated[
    int,
    typer.Option(
        "--states",
        "-k",
        min=1,
        help="Number of states; the maximum for the HDP-HMM.",
        rich_help_panel=MODEL,
    ),
]
ModelOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="Model file; by default DATA.sojourn.")
]
ModelKind = Annotated[
    Kind,
    typer.Option(
        "--model", help="HDP-HMM, or HMM with a fixed number of states.", rich_help_panel=MODEL
    ),
]
FamilyName = Annotated[
    str,
    typer.Option(
        help="Emission family, such as poisson; auto chooses one from the data.",
        rich_help_panel=MODEL,
    ),
]
Moves = Annotated[
    bool | None,
    typer.Option(
        "--moves/--no-moves",
        metavar="",
        help="Merge, delete and split states during training; by default for the HDP-HMM only.",
        rich_help_panel=MODEL,
    ),
]
InitStates = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of states to start with, to be split later; needs moves.",
        rich_help_panel=MODEL,
    ),
]
Stickiness = Annotated[
    str,
    typer.Option(
        help='Extra prior count of staying in a state, or "learned".', rich_help_panel=MODEL
    ),
]
Duration = Annotated[
    str,
    typer.Option(
        help="How long states last: geometric, negative-binomial or categorical.",
        rich_help_panel=MODEL,
    ),
]
MaxShape = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Largest shape of negative binomial durations; by default 8.",
        rich_help_panel=MODEL,
    ),
]
MaxLength = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Largest number of steps of categorical durations.",
        rich_help_panel=MODEL,
    ),
]

# ---- fit: learning ------------------------------------------------------------------------------

Passes = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of passes over the data; by default chosen by its size.",
        rich_help_panel=LEARNING,
    ),
]
BatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Sequences per update; by default chosen by the size of the data.",
        rich_help_panel=LEARNING,
    ),
]
ForgettingRate = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        max=1.0,
        help="How fast the step sizes decrease; 0 keeps them at 1.",
        rich_help_panel=LEARNING,
    ),
]
Inference = Annotated[
    str,
    typer.Option(help="Inference method: scvi, svi or another.", rich_help_panel=LEARNING),
]
Restarts = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Number of restarts; the best is kept. By default chosen by the size of the data.",
        rich_help_panel=LEARNING,
    ),
]
HeldOut = Annotated[
    str,
    typer.Option(
        help="Fraction of the sequences to hold out, or a file of held-out data; 0 for none.",
        rich_help_panel=LEARNING,
    ),
]
Device = Annotated[
    str,
    typer.Option(help="Where to compute: cpu, cuda or reference.", rich_help_panel=LEARNING),
]
Jobs = Annotated[
    int | None,
    typer.Option(help="Number of threads; by default all cores.", rich_help_panel=LEARNING),
]
CheckpointFolder = Annotated[
    Path | None,
    typer.Option(help="Folder for checkpoints; Ctrl-C writes one too.", rich_help_panel=LEARNING),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        metavar="",
        help="Continue from the newest checkpoint.",
        rich_help_panel=LEARNING,
    ),
]

# ---- fit: the vocabulary ------------------------------------------------------------------------

MinCount = Annotated[
    int,
    typer.Option(min=1, help="Words: drop those that occur less often.", rich_help_panel=DATA),
]
MaxSize = Annotated[
    int | None,
    typer.Option(min=1, help="Words: maximum size of the vocabulary.", rich_help_panel=DATA),
]
