"""Warnings about common mistakes."""

from __future__ import annotations

import math
import sys
import warnings
from typing import TYPE_CHECKING

from sojourn.data import Data
from sojourn.families import (
    AutoregressiveGaussian,
    DiagonalGaussian,
    Family,
    Gaussian,
    LinearGaussian,
    LogNormal,
    SphericalGaussian,
    ZeroMeanGaussian,
)
from sojourn.inference import Schedule
from sojourn.kernels.cpu.underflow import leads_one_way
from sojourn.models.parameters import may_move, schedule_of
from sojourn.prediction import FittedModel
from sojourn.warnings import FitWarning

if TYPE_CHECKING:
    from types import FrameType

    from sojourn.models.base import BaseHMM

REAL = (
    AutoregressiveGaussian,
    DiagonalGaussian,
    Gaussian,
    LinearGaussian,
    LogNormal,
    SphericalGaussian,
    ZeroMeanGaussian,
)
_SYMBOLS = 1000  # that are looked at
_MOST_LEFT = 0.02  # share of the random start that may remain at the end
_FALL = 0.02  # nats per step that the final held-out score may be below the best


def warn_of_whole_numbers(family: Family, data: Data) -> None:
    """Warn if integers are treated as measurements."""
    values = None if data.sequences is None else data.sequences.values
    if isinstance(family, REAL) and values is not None and values.dtype.kind in "iu":
        _warn(
            f"{type(family).__name__} expects real numbers, but the data are integers: for "
            "counts use Poisson, for symbols Categorical; if they are measurements, "
            "pass X.astype(float)"
        )


def warn_of_blanks(data: Data) -> None:
    """Warn if symbols are whole lines of text."""
    values = None if data.sequences is None else data.sequences.values
    if values is None or values.dtype.kind not in "UTO" or values.ndim > 1:
        return
    some = [str(value) for value in values[:_SYMBOLS]]
    with_blanks = [text for text in some if len(text.split()) > 1]
    if 2 * len(with_blanks) > len(some):
        _warn(
            f"most symbols contain blanks, such as {with_blanks[0][:40]!r}: every string is one "
            "symbol; to make sequences of words, pass [line.split() for line in X]"
        )


def start_left(schedule: Schedule, n_updates: int) -> float:
    """Return the share of the posterior that is still the random start: ∏ (1 − ρ_n).

    Examples
    --------
    >>> start_left(Schedule(forgetting_rate=1.0, delay=1.0), 9)
    0.1
    """
    if schedule.forgetting_rate == 0.0 and n_updates:
        return 0.0
    logs = (math.log1p(-min(schedule(n), 1.0 - 1e-15)) for n in range(1, min(n_updates, 2000) + 1))
    return round(math.exp(math.fsum(logs)), 12)


def warn_of_fit(model: BaseHMM, fitted: FittedModel) -> None:
    """Warn about a random start not forgotten, unused states, or a falling held-out score."""
    if fitted.converged is None:
        _warn_of_start(model, fitted)
    elif not fitted.converged:
        passes = fitted.history[-1]["passes"]
        _warn(
            f"after {passes:g} passes the likelihood still rises by more than tol={model.tol:g} "
            "nats per step: give n_passes for more of them, or a larger tol"
        )
    _warn_of_full_use(model, fitted)
    _warn_of_idle_states(fitted)
    _warn_of_falling_score(fitted)
    _warn_of_lost_states(model, fitted)


def _warn_of_start(model: BaseHMM, fitted: FittedModel) -> None:
    left = start_left(schedule_of(model), fitted.n_updates)
    if left > _MOST_LEFT:
        _warn(
            f"after {fitted.n_updates} updates {left:.0%} of the posterior comes from the "
            f"random start: with forgetting_rate={model.forgetting_rate} it will not converge in "
            f"n_passes={model.n_passes}; use more passes, a smaller batch_size, or a lower "
            "forgetting_rate"
        )


def _warn_of_full_use(model: BaseHMM, fitted: FittedModel) -> None:
    """Warn where all states that are allowed are in use: more might be found."""
    limit = int(model.n_states)
    is_open = may_move(model) and fitted.posterior.transitions.shares_weights and limit > 1
    if is_open and fitted.n_states >= limit:
        _warn(f"all {limit} states are in use: try n_states={2 * limit}")


def _warn_of_idle_states(fitted: FittedModel) -> None:
    if fitted.posterior.transitions.shares_weights:
        return  # unused states are expected under the truncation of the HDP
    counts = fitted.posterior.counts
    idle = int((counts.start + counts.transitions.sum(axis=0) < 1.0).sum())
    if idle:
        _warn(
            f"{idle} of {len(counts.start)} states are unused, with less than one step of the "
            f"data each; n_states={fitted.n_states} would be enough"
        )


def _warn_of_falling_score(fitted: FittedModel) -> None:
    scores = [(entry["score"], entry["passes"]) for entry in fitted.history]
    known = [pair for pair in scores if pair[0] is not None]
    if not known:
        return
    (best, when), (last, end) = max(known), known[-1]
    if best - last > _FALL:
        _warn(
            f"the held-out score fell from {best:.4f} after pass {when:g} to {last:.4f} after pass "
            f"{end:g}: fewer passes, fewer states or a larger concentration may predict better"
        )


def _warn_of_lost_states(model: BaseHMM, fitted: FittedModel) -> None:
    """Warn where a GPU would not notice that a state has vanished which turns out to matter."""
    constraints = fitted.posterior.transitions.constraints
    if model.device != "cuda" or model.dtype != "float32" or constraints is None:
        return
    if leads_one_way(constraints.allowed.transitions):
        _warn(
            "transitions lead one way: a GPU does not notice in single precision if some steps "
            "speak so much against a state that it is lost, although the sequence comes back to "
            "it; use dtype='float64', or device='cpu', which does"
        )


def _warn(message: str) -> None:
    """Warn at the line that called `fit`: the first one outside the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, FitWarning, stacklevel=level)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("sojourn.")
