"""``sojourn fit``."""

from __future__ import annotations

import math
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from sojourn.cli.cluster import Address, Workers, connected
from sojourn.cli.common import (
    DATA,
    Columns,
    DataFile,
    Force,
    Json,
    Lower,
    Pattern,
    Seed,
    Sequence,
    console,
    errors_in_short,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from sojourn.cli.data import Opened
    from sojourn.families.choose import Choice
    from sojourn.models.base import BaseHMM
    from sojourn.sequences import Sequences
    from sojourn.sources import Source

_IN_MEMORY = 2**25  # bytes of a file up to which it is read once, and not in every pass
_MOST_HELD_OUT = 10_000  # sequences of a large file that are held out
_MOST, _MOST_ON_CLUSTER = 1000, 2**16  # sequences an update: enough parts for many workers
_UPDATES = 300  # about as many updates as a model needs to settle


MODEL, LEARNING = "The model", "Learning"  # panels of the help


class Kind(StrEnum):
    """Which model."""

    hdp = "hdp"
    hmm = "hmm"


def fit(
    data: DataFile,
    states: Annotated[
        int,
        typer.Option(
            "--states",
            "-k",
            min=1,
            help="States; for the HDP at most so many.",
            rich_help_panel=MODEL,
        ),
    ] = 20,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Model file; by default DATA.sojourn.")
    ] = None,
    kind: Annotated[
        Kind,
        typer.Option(
            "--model", help="HDP-HMM, or HMM with a fixed number of states.", rich_help_panel=MODEL
        ),
    ] = Kind.hdp,
    family: Annotated[
        str,
        typer.Option(
            help="Emission family, such as poisson; auto chooses by the data.",
            rich_help_panel=MODEL,
        ),
    ] = "auto",
    moves: Annotated[
        bool | None,
        typer.Option(
            "--moves/--no-moves",
            help="Merge, delete and split states; by default for the HDP.",
            rich_help_panel=MODEL,
        ),
    ] = None,
    init_states: Annotated[
        int | None,
        typer.Option(
            min=1, help="States to begin with, and to split; needs moves.", rich_help_panel=MODEL
        ),
    ] = None,
    stickiness: Annotated[
        str,
        typer.Option(
            help="Extra prior counts of staying in a state; or: learned.", rich_help_panel=MODEL
        ),
    ] = "0",
    passes: Annotated[
        int | None,
        typer.Option(
            min=1, help="Passes over the data; by default by its size.", rich_help_panel=LEARNING
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Sequences an update; by default by the data's size.",
            rich_help_panel=LEARNING,
        ),
    ] = None,
    forgetting_rate: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="How fast step sizes fall.", rich_help_panel=LEARNING),
    ] = None,
    inference: Annotated[
        str, typer.Option(help="scvi, svi, or another way to learn.", rich_help_panel=LEARNING)
    ] = "scvi",
    restarts: Annotated[
        int,
        typer.Option(min=1, help="Starts, of which the best is kept.", rich_help_panel=LEARNING),
    ] = 1,
    held_out: Annotated[
        str,
        typer.Option(
            help="Share of the sequences to hold out, or a file of others; 0: none.",
            rich_help_panel=LEARNING,
        ),
    ] = "0.1",
    min_count: Annotated[
        int, typer.Option(min=1, help="Words: leave out rarer ones.", rich_help_panel=DATA)
    ] = 2,
    max_size: Annotated[
        int | None, typer.Option(min=1, help="Words: keep at most so many.", rich_help_panel=DATA)
    ] = None,
    column: Columns = None,
    sequence: Sequence = None,
    lower: Lower = None,
    pattern: Pattern = None,
    device: Annotated[
        str, typer.Option(help="Where to compute.", rich_help_panel=LEARNING)
    ] = "cpu",
    jobs: Annotated[
        int | None, typer.Option(help="Threads; by default all cores.", rich_help_panel=LEARNING)
    ] = None,
    cluster: Address = None,
    workers: Workers = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Folder for checkpoints; Ctrl-C writes one.", rich_help_panel=LEARNING),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume", help="Go on from the newest checkpoint.", rich_help_panel=LEARNING
        ),
    ] = False,
    seed: Seed = 0,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Learn a model from a text, CSV, Parquet, Arrow or NumPy file of any size.

    Text has a sequence a line; a table a row a step and a column with its sequence, or lists.

    The family is chosen by the data, and some of the sequences are held out.

    Example: [bold]sojourn fit corpus.txt --states 50 --out model.sojourn[/]
    """
    target = _default_target(data) if out is None else out
    screen = console()

    def say(text: str) -> None:
        if not as_json:
            screen.print(text, soft_wrap=True)

    with errors_in_short(), connected(cluster, workers) as client:
        from sojourn.cli.data import open_data, reading_options
        from sojourn.progress import LiveProgress
        from sojourn.sources.write import check_target

        check_target(target, force)
        opened = open_data(data, reading_options(column, sequence, lower, pattern))
        for note in opened.notes:
            say(f"[dim]{_plain(note)}[/]")
        parts = _hold_out(opened, held_out, seed, remote=client is not None)
        choice = _choose(opened, parts.train, family, min_count, max_size)
        say(_about_data(parts, choice))
        most = _MOST if client is None else _MOST_ON_CLUSTER
        plan = _plan(parts.n_sequences, batch_size, passes, forgetting_rate, most)
        model = _make(kind, states, choice, plan)
        model.set_params(
            inference=inference,
            moves=_moves(model.moves, moves, init_states),
            stickiness=_stickiness(stickiness),
            n_init=restarts,
            device=device,
            n_jobs=jobs,
            random_state=seed,
        )
        say(_about_training(model))
        with LiveProgress(plan.n_passes, "learning", n_used=lambda: model.n_states_) as live:
            notes = _fit_noting_warnings(
                model,
                parts.train,
                validation=parts.held_out,
                callback=live if live.is_live else None,  # quiet when piped
                checkpoint=checkpoint,
                resume=resume,
                client=client,
            )
        model.provenance_ = _provenance(data, opened, parts, choice)
        model.save(target)
    if as_json:
        print_json(_result(model, target, parts) | {"warnings": notes})
    else:
        _show(screen, model, target, data)
        for note in notes:
            screen.print(f"[yellow]note:[/] {_plain(note)}", soft_wrap=True)


def _default_target(data: str) -> Path:
    """Name a model after its data.

    Examples
    --------
    >>> [str(_default_target(name)) for name in ("a/wiki.txt.gz", "logs/", "*.txt")]
    ['wiki.sojourn', 'logs.sojourn', 'model.sojourn']
    """
    stem = Path(data).name.partition(".")[0]
    return Path(f"{stem if stem and not set('*?[') & set(stem) else 'model'}.sojourn")


def _count(n_sequences: int) -> str:
    return "1 sequence" if n_sequences == 1 else f"{n_sequences:,} sequences"


# ---- the data -----------------------------------------------------------------------------------


class Parts(NamedTuple):
    """Data to learn from, data to be held out, and how that came about."""

    train: Sequences | Source
    held_out: Sequences | Source | None
    n_sequences: int
    n_steps: int
    how: str


def _hold_out(opened: Opened, held_out: str, seed: int, *, remote: bool) -> Parts:
    """Take the held-out data from a file, or split it off; remote data stays in its file."""
    from sojourn.cli.data import open_data

    source = opened.source
    small = not remote and sum(path.stat().st_size for path in source.paths) <= _IN_MEMORY
    try:
        share = float(held_out)
    except ValueError:
        other = open_data(held_out, opened.reading).source
        whole = source.read_all() if small else source
        n_sequences, n_steps = _size(whole)
        return Parts(whole, other, n_sequences, n_steps, f"held out: {held_out}")
    if not 0.0 <= share < 1.0:
        raise ValueError(f"--held-out is a share from 0 to 1, or a file, not {held_out}")
    return _split_memory(source.read_all(), share, seed) if small else _split(source, share, seed)


def _size(data: Sequences | Source) -> tuple[int, int]:
    from sojourn.sources import Source

    return (data.n_sequences if isinstance(data, Source) else len(data)), data.n_steps


def _split_memory(data: Sequences, share: float, seed: int) -> Parts:
    """Hold out some sequences; of a single one, its end."""
    import numpy as np

    from sojourn.sequences import Sequences

    if len(data) == 1 and share:
        cut = round(data.n_steps * (1.0 - share))
        if not 0 < cut < data.n_steps:
            return Parts(data, None, 1, data.n_steps, "too short to hold anything out")
        first, last = data.values[:cut], data.values[cut:]
        rest = Sequences.from_lengths(last)
        how = f"its last {len(last):,} steps held out"
        return Parts(Sequences.from_lengths(first), rest, 1, cut, how)
    n_out = min(_MOST_HELD_OUT, len(data) - 1, max(1, round(share * len(data)))) if share else 0
    if n_out == 0:
        return Parts(data, None, len(data), data.n_steps, "none held out")
    order = np.random.default_rng([seed, 10]).permutation(len(data))
    rest = data.take(np.sort(order[:n_out]))
    train = data.take(np.sort(order[n_out:]))
    return Parts(train, rest, len(train), train.n_steps, f"{_count(n_out)} held out")


def _split(source: Source, share: float, seed: int) -> Parts:
    """Hold out some sequences of a file that is read in every pass."""
    from sojourn.sources.split import split

    if not share:
        return Parts(source, None, source.n_sequences, source.n_steps, "none held out")
    share = min(share, _MOST_HELD_OUT / source.n_sequences)
    train, rest = split(source, share, seed)
    held_out = rest.read_all()
    how = f"{_count(len(held_out))} held out"
    return Parts(train, held_out, train.n_sequences, train.n_steps, how)


# ---- the model ----------------------------------------------------------------------------------


def _choose(
    opened: Opened, train: Sequences | Source, wanted: str, min_count: int, max_size: int | None
) -> Choice:
    """Choose the family, and for words the vocabulary."""
    from sojourn.families import FAMILIES, Categorical
    from sojourn.families.choose import Choice, choose_family, family_name
    from sojourn.sources import Source

    values = train.sample()[0].sequences.values if isinstance(train, Source) else train.values
    is_words = values.dtype.kind in "UTO"
    named = {
        family_name(name): of
        for name, of in FAMILIES.items()
        if name not in ("Product", "LinearGaussian")
    }
    if wanted == "auto":
        choice = choose_family(values, is_symbols=opened.is_symbols and values.dtype.kind in "iu")
    elif wanted in named:
        choice = Choice(named[wanted](), "asked for")
    else:
        raise ValueError(f"--family {wanted} is not one of auto, {', '.join(sorted(named))}")
    if is_words and not isinstance(choice.family, Categorical):
        raise ValueError(f"{opened.source.name} holds words, which need --family categorical")
    if is_words:
        vocabulary = _vocabulary(train, min_count, max_size)
        return Choice(Categorical(vocabulary=vocabulary), f"words, {len(vocabulary):,} in all")
    if isinstance(choice.family, Categorical) and values.ndim == 2:
        raise ValueError("--family categorical takes one column: name it with --column")
    return choice


def _vocabulary(train: Sequences | Source, min_count: int, max_size: int | None) -> Any:
    from sojourn.sources import Source
    from sojourn.sources.base import scan
    from sojourn.vocabulary import Vocabulary

    if isinstance(train, Source):
        vocabulary = scan(train, min_count=min_count, max_size=max_size).vocabulary
    else:
        counts = Counter(train.values.tolist())
        vocabulary = Vocabulary.from_counts(counts, min_count=min_count, max_size=max_size)
    assert vocabulary is not None
    if len(vocabulary) < 2:
        raise ValueError(
            f"no word occurs {min_count} times or more: --min-count 1 keeps those that occur once"
        )
    return vocabulary


class Plan(NamedTuple):
    """How to go through the data."""

    batch_size: int | None
    n_passes: int
    forgetting_rate: float


def _plan(
    n_sequences: int,
    batch_size: int | None,
    n_passes: int | None,
    rate: float | None,
    most: int = _MOST,
) -> Plan:
    """Fill in what was not given: about 300 updates, or more for large data.

    Minibatches are a fiftieth of the data, and at most `most` sequences.  Few sequences are taken
    all at once, with full steps.

    Examples
    --------
    >>> _plan(20_000, None, None, None)
    Plan(batch_size=400, n_passes=10, forgetting_rate=0.5)
    >>> _plan(1, None, None, None)
    Plan(batch_size=None, n_passes=50, forgetting_rate=0.0)
    """
    if batch_size is None and n_sequences < 50:
        return Plan(None, n_passes or 50, 0.0 if rate is None else rate)
    size = batch_size or min(most, max(5, n_sequences // 50))
    a_pass = math.ceil(n_sequences / size)
    wanted = n_passes or min(50, max(10, math.ceil(_UPDATES / a_pass)))
    return Plan(size, wanted, 0.5 if rate is None else rate)


def _make(kind: Kind, n_states: int, choice: Choice, plan: Plan) -> BaseHMM:
    from sojourn.models import HDPHMM, HMM

    model = HDPHMM if kind is Kind.hdp else HMM
    return model(
        n_states,
        choice.family,
        batch_size=plan.batch_size,
        n_passes=plan.n_passes,
        forgetting_rate=plan.forgetting_rate,
    )


def _moves(usual: Any, asked: bool | None, init_states: int | None) -> Any:
    """Return whether and how states may change: as the model has it, unless told otherwise."""
    from sojourn.moves.settings import MoveSettings

    moves = usual if asked is None else ("auto" if asked else None)
    if init_states is None:
        return moves
    if moves is None:
        raise ValueError("init_states needs moves='auto', by which the model grows: --moves")
    return MoveSettings(init_states=init_states)


def _stickiness(text: str) -> float | str:
    """Read a number, or the word for one that is to be learned."""
    if text == "learned":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--stickiness is a number, or learned, not {text}") from None


def _fit_noting_warnings(model: BaseHMM, train: Any, **options: Any) -> list[str]:
    """Fit, and return the warnings of it; others go their own way."""
    import warnings

    from sojourn.warnings import FitWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", FitWarning)
        model.fit(train, **options)
    ours = [str(entry.message) for entry in caught if entry.category is FitWarning]
    for entry in caught:
        if entry.category is not FitWarning:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
    return ours


# ---- what people and machines read --------------------------------------------------------------


def _plain(text: str) -> str:
    from rich.markup import escape

    from sojourn.cli.tables import printable

    return escape(printable(text))


def _about_data(parts: Parts, choice: Choice) -> str:
    size = f"{_count(parts.n_sequences)}, {parts.n_steps:,} steps to learn from"
    name = type(choice.family).__name__
    return f"{size}; {_plain(parts.how)}\nfamily [bold]{name}[/]: {_plain(choice.reason)}"


def _about_training(model: BaseHMM) -> str:
    batch = "all sequences" if model.batch_size is None else f"{model.batch_size:,} sequences"
    most = "at most " if type(model).__name__ == "HDPHMM" else ""
    return (
        f"{type(model).__name__} with {most}{model.n_states} states by {model.inference}: "
        f"{model.n_passes} passes, {batch} an update\n"
    )


def _provenance(data: str, opened: Opened, parts: Parts, choice: Choice) -> dict[str, Any]:
    from datetime import UTC, datetime

    from sojourn import __version__

    return {
        "data": Path(data).name,
        "sequences": parts.n_sequences,
        "steps": parts.n_steps,
        "held_out": parts.how,
        "reason": choice.reason,
        "columns": opened.columns,
        "reading": opened.reading,
        "date": datetime.now(UTC).date().isoformat(),
        "version": f"sojourn {__version__}",
    }


def _result(model: BaseHMM, target: Path, parts: Parts) -> dict[str, Any]:
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


def _show(screen: Console, model: BaseHMM, target: Path, data: str) -> None:
    """Show what was learned, and say what to do next."""
    from shlex import quote

    from sojourn.cli.tables import state_table
    from sojourn.progress import sparkline

    scores = [entry["score"] for entry in model.history_ if entry["score"] is not None]
    if scores:
        screen.print(
            f"held-out log likelihood a step: {scores[0]:.4f} {sparkline(scores)} "
            f"[bold]{scores[-1]:.4f}[/]\n"
        )
    screen.print(state_table(model, 10, screen.width))
    name, file = _plain(quote(str(target))), _plain(quote(data))
    screen.print(f"\nsaved: [bold]{name}[/]\nnext:", soft_wrap=True)
    for command in (f"report {name} --data {file}", f"decode {name} {file}", f"inspect {name}"):
        screen.print(f"  sojourn {command}", soft_wrap=True)
