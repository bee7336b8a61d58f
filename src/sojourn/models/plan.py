"""How to go through the data, where that is left to the library: by steps, sequences and states.

Small data are taken whole, in full batches until nothing rises any more, from several starts.  A
few long sequences are taken whole too, after a warm-up on pieces of them.  Many sequences go in
minibatches.  Numbers that the user gives mean what they say, and keep everything else as it is.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from sojourn.inference.schedule import Schedule, StepSizes
from sojourn.models.parameters import (
    inference_name,
    is_sampled,
    may_move,
    method_of,
    step_sizes,
    tunings,
)

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM

BATCH_SIZE, N_PASSES = 1000, 10
"""Minibatches and passes of many sequences."""

FULL_STEPS = 2**15
"""Steps of data that are small: a full batch takes milliseconds.
Source: `python -m experiments.defaults`, the cells up to 10,000 steps and 500 sequences."""

FEW_SEQUENCES = 50
"""Sequences below which minibatches would be too few. Source: as `FULL_STEPS`."""

FULL_PASSES, LONG_PASSES = 500, 50
"""Full batches at most, of small data and of a few long sequences.  No experiment: a limit."""

SEARCH_PASSES, SEARCH_TOL = 50, 1e-5
"""Full batches before states are merged, at most, and how far the models that are compared
converge: states to spare converge slowly, and are to be merged.  Source: as `FULL_STEPS`."""

LEARNED_PRIOR = ("concentration", "base")
"""What ``tuned="auto"`` learns of many symbols.  Source: `python -m experiments.defaults`: the
corpus, and the cells of sentences, where prior counts of 0.1 blur the states."""

MOST_RESTARTS = 10
RESTART_SECONDS = 2.0
_CALL_SECONDS, _WORK_SECONDS = 3e-4, 2e-10  # of a pass, and of a unit of its work (K + 32)² T
_PASSES, _SEARCH_PASSES = 100, 1500  # of one start, without and with a search for merges
"""Restarts take about two seconds by these estimates of a pass, measured once on one machine.
They are counted, not timed, so that a seed gives the same model anywhere."""


class Size(Enum):
    """What kind of data it is."""

    SMALL = "full batches until convergence, from several starts, then a search for merges"
    LONG = "a few long sequences: full batches until convergence, after a warm-up on pieces"
    MANY = "minibatches"


class Plan(NamedTuple):
    """How to go through the data.

    Attributes
    ----------
    size : Size
    batch_size : int or None
        Sequences per minibatch; None for all of them.
    n_passes : int
        Passes at most.
    tol : float or None
        Rise of the log likelihood, in nats per step, below which training ends.
    schedule : callable
        Step sizes.
    is_open : bool
        Whether minibatches and passes were left to the library.
    tuned : tuple of str
        Names of the improvements on the paper's algorithm.
    """

    size: Size
    batch_size: int | None
    n_passes: int
    tol: float | None
    schedule: StepSizes
    is_open: bool = True
    tuned: tuple[str, ...] = ()


def plan_training(model: BaseHMM, n_sequences: int, n_steps: float) -> Plan:
    """Return how to go through data of that size."""
    size = size_of(model, n_sequences, n_steps)
    if size is not Size.MANY:
        n_passes = FULL_PASSES if size is Size.SMALL else LONG_PASSES
        return Plan(size, None, n_passes, float(model.tol), Schedule(0.0, 1.0))
    method = method_of(model)
    batch_size = BATCH_SIZE if isinstance(model.batch_size, str) else model.batch_size
    if isinstance(model.n_passes, str):
        n_passes, tol = (FULL_PASSES, float(model.tol)) if method.whole else (N_PASSES, None)
    else:
        n_passes, tol = int(model.n_passes), None
    batch_size = None if method.whole else batch_size
    schedule = step_sizes(model, n_passes, n_sequences, n_steps, batch_size)
    is_open = _is_open(model)
    tuned = LEARNED_PRIOR if is_open and _has_usual_prior(model) else tunings(model)
    return Plan(size, batch_size, n_passes, tol, schedule, is_open, tuned)


def _has_usual_prior(model: BaseHMM) -> bool:
    """Whether the prior on symbols is left to the library, which learns it."""
    left = isinstance(model.tuned, str) and model.tuned == "auto"
    return left and inference_name(model) == "scvi" and model.emission.has_usual_prior


def size_of(model: BaseHMM, n_sequences: int, n_steps: float) -> Size:
    """Say which kind of data it is, for a model that leaves minibatches and passes open."""
    if is_sampled(model) or not _is_open(model) or not method_of(model).is_stochastic:
        return Size.MANY
    if tunings(model):
        return Size.MANY
    if n_steps <= FULL_STEPS:
        return Size.SMALL
    # A GPU has no logarithms to fall back on where steps of size one leave probabilities of zero.
    is_long = n_sequences < FEW_SEQUENCES and model.device != "cuda"
    return Size.LONG if is_long else Size.MANY


def _is_open(model: BaseHMM) -> bool:
    """Whether minibatches and passes are left to the library."""
    return isinstance(model.batch_size, str) and isinstance(model.n_passes, str)


def n_restarts(model: BaseHMM, n_sequences: int, n_steps: float) -> int:
    """Return the number of restarts: as asked for, or as many as take about two seconds."""
    if not isinstance(model.n_init, str):
        return int(model.n_init)
    if size_of(model, n_sequences, n_steps) is not Size.SMALL:
        return 1
    passes = _SEARCH_PASSES if may_move(model) else _PASSES
    work = n_steps * (model.n_states + 32.0) ** 2
    seconds = passes * (_CALL_SECONDS + _WORK_SECONDS * work)
    return int(min(MOST_RESTARTS, max(1, RESTART_SECONDS / seconds)))
