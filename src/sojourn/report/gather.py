"""The contents of a report, gathered from a model and from data that it has decoded."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.analysis.residuals import Residuals
from sojourn.analysis.segments import Segment
from sojourn.families import Categorical
from sojourn.forms import as_sequences
from sojourn.inference.occupancy import USED_SHARE
from sojourn.kernels.interface import Integers
from sojourn.prediction import FittedModel, as_fitted
from sojourn.report import checks
from sojourn.report.colors import ranks
from sojourn.report.layout import run_lengths
from sojourn.report.states import StateSummary, column_names, summarize, symbol_names, top_symbols
from sojourn.sequences import Sequences
from sojourn.sources import Source
from sojourn.sources.base import joined, reading

_STEPS = 200_000  # of the data that are decoded
_CONTEXT = 4  # words on either side
_EXAMPLES = 4  # contexts per state
_SHOWN_STEPS = 400  # of a sequence of numbers


class Context(NamedTuple):
    """A word of a state among its neighbours."""

    before: str
    word: str
    after: str


class Example(NamedTuple):
    """A sequence of numbers and its states."""

    values: NDArray[Any]
    path: Integers
    columns: list[str]


class Decoded(NamedTuple):
    """Data decoded by a model.

    Attributes
    ----------
    n_sequences, n_steps : int
        Size of the data decoded.
    score : float
        Log likelihood per step.
    runs : list of integer arrays
        Lengths of the visits to each state.
    contexts : list of lists of Context
        For every state; empty for numbers.
    example : Example or None
        For numbers.
    segments : list of Segment
        Of the example.
    residuals : Residuals
    """

    n_sequences: int
    n_steps: int
    score: float
    runs: list[Integers]
    contexts: list[list[Context]]
    example: Example | None
    segments: list[Segment]
    residuals: Residuals


class Contents(NamedTuple):
    """Everything that a report shows.

    Attributes
    ----------
    model : FittedModel
    states : list of StateSummary
        In use, the largest first.
    symbols : list of lists of (str, float)
        Most probable symbols of each state, by its number.
    ranks : list of int
        Rank by size of each state, by its number; determines the colour.
    curve : list of (float, float)
        Passes and held-out scores, or bounds.
    curve_name : str
    decoded : Decoded or None
    intervals : Intervals or None
    """

    model: FittedModel
    states: list[StateSummary]
    symbols: list[list[tuple[str, float]]]
    ranks: list[int]
    curve: list[tuple[float, float]]
    curve_name: str
    decoded: Decoded | None
    intervals: checks.Intervals | None = None

    def name(self, state: int) -> str:
        """Return a state's number with its most probable symbol."""
        symbols = self.symbols[state]
        return f"{state} {symbols[0][0]}" if symbols else str(state)


def gather(model: Any, data: Any = None, lengths: Any = None) -> Contents:
    """Gather the contents; data, if given, is decoded for examples and dwell times."""
    fitted = as_fitted(model)
    used = [entry for entry in summarize(fitted, None, 8) if entry.share > USED_SHARE]
    shown = used or summarize(fitted, 1, 8)
    curve, name = _curve(fitted)
    sequences = None if data is None else _valid(fitted, data, lengths)
    return Contents(
        fitted,
        shown,
        top_symbols(fitted, 8),
        ranks(fitted.state_shares),
        curve,
        name,
        None if sequences is None else decode(fitted, *sequences),
        checks.intervals(fitted, None if sequences is None else sequences[1]),
    )


def _curve(fitted: FittedModel) -> tuple[list[tuple[float, float]], str]:
    for key, name in (("score", "held-out log likelihood per step"), ("bound", "bound")):
        points = [(e["passes"], e[key]) for e in fitted.history if e[key] is not None]
        if points:
            return points, name
    return [], ""


def _valid(fitted: FittedModel, data: Any, lengths: Any) -> tuple[Sequences, Sequences]:
    """Return the beginning of some data, as it is and as the family takes it."""
    sequences = _first(fitted, data, lengths)
    with reading(data.name) if isinstance(data, Source) else nullcontext():
        return sequences, fitted.family.validate(sequences)


def decode(fitted: FittedModel, sequences: Sequences, valid: Sequences) -> Decoded:
    """Decode data, and pick examples.

    Parameters
    ----------
    fitted : FittedModel
    sequences, valid : Sequences
        The data as they are, and as the family takes them.
    """
    paths = list(fitted.predict(valid))
    score = float(fitted.score(valid, per_step=True))
    n_states = len(fitted.state_shares)
    is_symbols = isinstance(fitted.family, Categorical)
    example = None if is_symbols else _example(fitted, sequences, paths)
    return Decoded(
        len(sequences),
        sequences.n_steps,
        score,
        run_lengths(paths, n_states),
        _contexts(fitted, sequences, paths) if is_symbols else [[] for _ in range(n_states)],
        example,
        [] if example is None else checks.segments(fitted, example.values),
        checks.residuals(fitted, valid),
    )


def _first(fitted: FittedModel, data: Any, lengths: Any) -> Sequences:
    """Take sequences up to the number of steps to decode; at least one."""
    if isinstance(data, Source):
        pieces: list[Sequences] = []
        for piece in data:
            pieces.append(piece)
            if sum(one.n_steps for one in pieces) >= _STEPS:
                break
        if not pieces:
            raise ValueError(f"{data.name}: there is no data, not a single sequence")
        with reading(data.name):
            sequences = fitted.family.as_steps(joined(pieces))
    else:
        sequences = as_sequences(data, lengths, step_ndim=fitted.family.step_ndim)[0]
    return next(sequences.chunks(_STEPS))


def _contexts(
    fitted: FittedModel, sequences: Sequences, paths: list[Integers]
) -> list[list[Context]]:
    """Pick a few places of each state, from different sequences and for different words."""
    assert isinstance(fitted.family, Categorical)
    names = symbol_names(fitted.family)
    found: list[list[Context]] = [[] for _ in range(len(fitted.state_shares))]
    seen: list[set[str]] = [set() for _ in found]
    for values, path in zip(sequences, paths, strict=True):
        is_words = values.dtype.kind in "UTO"
        words = [
            str(value) if is_words else (names[value] if value >= 0 else "·") for value in values
        ]
        taken = set()
        for t, k in enumerate(path.tolist()):
            if k in taken or len(found[k]) == _EXAMPLES or words[t] in seen[k]:
                continue
            before = " ".join(words[max(0, t - _CONTEXT) : t])
            found[k].append(Context(before, words[t], " ".join(words[t + 1 : t + 1 + _CONTEXT])))
            taken.add(k)
            seen[k].add(words[t])
        if all(len(contexts) == _EXAMPLES for contexts in found):
            break
    return found


def _example(fitted: FittedModel, sequences: Sequences, paths: list[Integers]) -> Example:
    """Take the sequence with the most states, cut where it is long."""
    variety = [len(set(path[:_SHOWN_STEPS].tolist())) for path in paths[:200]]
    best = int(np.argmax(variety))
    columns = column_names(fitted) or ["value"]
    return Example(
        np.asarray(sequences[best][:_SHOWN_STEPS], dtype=np.float64),
        paths[best][:_SHOWN_STEPS],
        columns,
    )
