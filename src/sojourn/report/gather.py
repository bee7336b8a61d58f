"""The contents of a report, gathered from a model and from data that it has decoded."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

from sojourn.analysis.residuals import Residuals
from sojourn.data import Data
from sojourn.families import Categorical
from sojourn.inference.occupancy import USED_SHARE
from sojourn.kernels.interface import Integers
from sojourn.prediction import FittedModel, as_fitted, read_data
from sojourn.report import checks
from sojourn.report.colors import ranks
from sojourn.report.examples import Context, Example, contexts, examples
from sojourn.report.layout import run_lengths
from sojourn.report.profile import Profile, profile
from sojourn.report.states import StateSummary, Symbol, summarize, top_symbols
from sojourn.sequences import Sequences
from sojourn.sources.base import joined, reading

STEPS = 200_000
"""Steps of the data that a report decodes."""


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
    examples : list of Example
        Of numbers: stretches of several sequences.
    residuals : Residuals
    left_out : str
        What of the data was not decoded, for people; empty if nothing.
    """

    n_sequences: int
    n_steps: int
    score: float
    runs: list[Integers]
    contexts: list[list[Context]]
    examples: list[Example]
    residuals: Residuals
    left_out: str = ""


class Contents(NamedTuple):
    """Everything that a report shows.

    Attributes
    ----------
    model : FittedModel
    states : list of StateSummary
        In use, the largest first.
    symbols : list of lists of Symbol
        What tells each state apart, by its number.
    ranks : list of int
        Rank by size of each state, by its number; determines the colour.
    curve : list of (float, float)
        Passes and held-out scores, or bounds.
    curve_name : str
    decoded : Decoded or None
    intervals : Intervals or None
    profile : Profile or None
        Of columns of numbers.
    """

    model: FittedModel
    states: list[StateSummary]
    symbols: list[list[Symbol]]
    ranks: list[int]
    curve: list[tuple[float, float]]
    curve_name: str
    decoded: Decoded | None
    intervals: checks.Intervals | None = None
    profile: Profile | None = None

    def given_name(self, state: int) -> str:
        """Return the name that was given to a state, or nothing."""
        names = self.model.state_names or ()
        return names[state] if state < len(names) else ""

    def label(self, state: int) -> str:
        """Return the name given to a state, or else the symbol that tells it apart."""
        symbols = self.symbols[state]
        return self.given_name(state) or (symbols[0].word if symbols else "")

    def name(self, state: int) -> str:
        """Return a state's number with its label."""
        return f"{state} {self.label(state)}".rstrip(" ")


def gather(model: Any, data: Any = None, lengths: Any = None) -> Contents:
    """Gather the contents; data, if given, is decoded for examples and dwell times."""
    fitted = as_fitted(model)
    used = [entry for entry in summarize(fitted, None, 8) if entry.share > USED_SHARE]
    shown = used or summarize(fitted, 1, 8)
    curve, name = _curve(fitted)
    decoded = compared = seen = None
    if data is None:
        compared = profile(fitted)
    else:
        given = read_data(fitted, data, lengths)
        sequences, left_out = _first(fitted, given)
        with nullcontext() if given.source is None else reading(given.source.name):
            seen = fitted.family.validate(sequences)
        paths = list(fitted.predict(seen))
        decoded = decode(fitted, sequences, seen, paths)._replace(left_out=left_out)
        compared = profile(fitted, seen, paths)
    return Contents(
        fitted,
        shown,
        top_symbols(fitted, 8),
        ranks(fitted.state_shares),
        curve,
        name,
        decoded,
        checks.intervals(fitted, seen),
        compared,
    )


def _curve(fitted: FittedModel) -> tuple[list[tuple[float, float]], str]:
    for key, name in (("score", "held-out log likelihood per step"), ("bound", "bound")):
        points = [(e["passes"], e[key]) for e in fitted.history if e[key] is not None]
        if points:
            return points, name
    return [], ""


def decode(
    fitted: FittedModel, sequences: Sequences, valid: Sequences, paths: list[Integers]
) -> Decoded:
    """Pick examples of decoded data, and check the model on them.

    Parameters
    ----------
    fitted : FittedModel
    sequences, valid : Sequences
        The data as they are, and as the family takes them.
    paths : list of integer arrays
        Their states.
    """
    n_states = len(fitted.state_shares)
    is_symbols = isinstance(fitted.family, Categorical)
    return Decoded(
        len(sequences),
        sequences.n_steps,
        float(fitted.score(valid, per_step=True)),
        run_lengths(paths, n_states),
        contexts(fitted, sequences, paths) if is_symbols else [[] for _ in range(n_states)],
        [] if is_symbols else examples(fitted, valid, paths),
        checks.residuals(fitted, valid),
    )


def _first(fitted: FittedModel, data: Data) -> tuple[Sequences, str]:
    """Take sequences up to the number of steps to decode, at least one; say what is left out."""
    whole, n_steps = True, None
    if data.sequences is None:
        assert data.source is not None
        pieces: list[Sequences] = []
        taken = 0
        for piece in data.source:
            whole = taken < STEPS
            if not whole:
                break
            pieces.append(piece)
            taken += piece.n_steps
        if not pieces:
            raise ValueError(f"{data.source.name}: there is no data, not a single sequence")
        with reading(data.source.name):
            sequences = fitted.family.as_steps(joined(pieces))
    else:
        sequences = data.sequences
        n_steps = sequences.n_steps
    first = next(sequences.chunks(STEPS))
    if first.n_steps > STEPS:  # one sequence
        first = Sequences.from_lengths(first[0][:STEPS])
    if whole and first.n_steps == sequences.n_steps:
        return first, ""
    of = "" if n_steps is None else f" of {n_steps:,}"
    return first, f"the first {first.n_steps:,}{of} steps only; the rest is left out"
