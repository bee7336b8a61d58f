"""How sure a model is, and how well it fits: intervals, segments and residuals of a report."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sojourn.analysis import markov
from sojourn.analysis.forecast import RowDraws
from sojourn.analysis.residuals import Residuals
from sojourn.kernels.interface import Floats
from sojourn.prediction import FittedModel
from sojourn.sequences import Sequences

LEVEL = 0.9
"""Probability of the intervals in a report."""

_DRAWS = 200
_FEWEST = 40  # draws with which intervals make sense
_WORK = 2e9  # products and sums of a report's draws: some seconds
_NUMBERS = 2**23  # of drawn transitions
_RESIDUAL_STEPS = 20_000


class Intervals(NamedTuple):
    """Intervals of dwell times and transitions.

    Attributes
    ----------
    dwell : pair of (K,) arrays
        Lower and upper ends.
    transitions : pair of (K, K) arrays
    text : str
        What they take into account.
    """

    dwell: tuple[Floats, Floats]
    transitions: tuple[Floats, Floats]
    text: str


def intervals(fitted: FittedModel, data: Sequences | None) -> Intervals | None:
    """Return intervals: from draws given all training data, or else at the expected counts.

    None if there are too many states for either, or if states last.
    """
    k = fitted.posterior.n_states
    if fitted.posterior.durations is not None:
        return None
    if data is not None and _is_training_data(fitted, data):
        # A step has its transitions, and the potentials of its numbers.
        each = k * (k + (fitted.family.n_statistics if fitted.family.step_ndim else 1))
        n = int(min(_DRAWS, _WORK // (data.n_steps * each)))
        if n >= _FEWEST:
            samples = fitted.posterior_samples(data, n, warmup=n // 4, thin=1, random_state=0)
            return _of_draws(samples.transmat_, "the data and the states")
    n = int(min(2 * _DRAWS, _NUMBERS // (k * k)))
    if n < _FEWEST:
        return None
    rows = RowDraws.make(fitted.evidence(), n, np.random.default_rng(0))
    return _of_draws(
        rows.transitions, "the number of transitions, but not about which state a step is in"
    )


def _is_training_data(fitted: FittedModel, data: Sequences) -> bool:
    """Return whether data have as many sequences and steps as the model has seen."""
    counts = fitted.posterior.counts
    steps = float(counts.start.sum() + counts.transitions.sum())
    return len(data) == fitted.total_sequences and abs(data.n_steps - steps) <= 0.01 * steps


def _of_draws(transitions: Floats, what: str) -> Intervals:
    tails = [0.5 * (1.0 - LEVEL), 0.5 * (1.0 + LEVEL)]
    low, high = np.quantile(transitions, tails, axis=0)
    short, long = np.quantile(markov.dwell_times(transitions), tails, axis=0)
    text = f"Intervals have {LEVEL:.0%} of the probability, given the uncertainty about {what}."
    return Intervals((short, long), (low, high), text)


def residuals(fitted: FittedModel, data: Sequences) -> Residuals:
    """Return residuals of the beginning of some data."""
    return fitted.residuals(next(data.chunks(_RESIDUAL_STEPS)), random_state=0)
