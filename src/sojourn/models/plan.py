"""How to go through the data, where that is left to the library: by steps, sequences and states.

Small data are taken whole, in full batches until nothing rises any more, from several starts.  A
few long sequences are cut into tiles, anew in each pass, and go in minibatches of these.  Many
sequences go in minibatches.  Numbers that the user gives mean what they say, and keep everything
else as it is.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from sojourn.families import Family
from sojourn.inference.schedule import LinearDecay, Schedule, StepSizes
from sojourn.models.parameters import (
    begin_states,
    holds_emissions,
    inference_name,
    is_constrained,
    is_sampled,
    may_move,
    method_of,
    step_sizes,
    tunings,
)
from sojourn.moves.narrow import SAMPLE_STEPS, Narrow
from sojourn.transitions import Dirichlet

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM

BATCH_SIZE, N_PASSES = 1000, 10
"""Minibatches and passes of many sequences."""

FULL_STEPS = 2**15
"""Steps of data that are small: a full batch takes milliseconds.
Source: `python -m experiments.defaults`, the cells up to 10,000 steps and 500 sequences."""

FEW_SEQUENCES = 50
"""Sequences below which minibatches would be too few. Source: as `FULL_STEPS`."""

LONG_MEAN = 2**8
"""Mean length from which sequences are long: a minibatch has a number of steps then, rather than of
sequences, and what is longer than a tile is cut.  No experiment: half a tile."""

TILED_STEPS = 2**18
"""Steps up to which a model of many states (`WIDE_MOST`) takes sequences whole: there full batches
are quick, and find more of the merges.  Source: `python -m experiments.defaults`, the cells of
100,000 steps: 40 states of 80 by full batches, 41 to 45 by tiles."""

TILE_LENGTH = 512
"""Steps of a tile: long beside buffers, and short enough for many of them in a minibatch.
Source: `python -m experiments.long_sequences`."""

TILE_BATCH_LEAST, TILE_BATCH_MOST, TILE_UPDATES_PER_PASS = 2**12, 2**14, 40
"""Steps of a minibatch of tiles: for that many updates per pass, between two bounds.
Source: as `TILE_LENGTH`."""

TILE_PASSES, TILE_UPDATES = 10, 800
"""Passes over tiles at least, and updates.  Source: as `TILE_LENGTH`."""

FULL_TILES = 3
"""Passes at the end in which all tiles are one minibatch, with step size one: the noise of
minibatches goes.  There are more of them while the likelihood rises, but no more than there were
passes of minibatches.  Source: as `TILE_LENGTH`."""

EDGE_TOLERANCE = 1e-2
"""Change of the states at the edges of tiles, in total variation, from doubling the buffers, below
which these are large enough.  Source: as `TILE_LENGTH`."""

WIDE_MOVES_SHARE = 0.8
"""Minibatches of many sequences: share of the passes after which a model whose number of states is
learned may have no more of them than asked for.  Moves have merged them by then, or time would be
short for what is left.  Source: `python -m experiments.number_of_states`, 20,000 sequences: 8
states of 30, and 9, 15 and 22 in three of ten where states were merged to 30 first."""

WIDE_FACTOR, WIDE_MOST, WIDE_SHARE, WIDE_STAGES = 3, 32, 0.4, 3
"""Minibatches: states to begin with per state asked for, and at most; share of the passes with all
of them, and passes after which they are merged.  Source: as `TILE_LENGTH`; that it serves short
sequences too, `python -m experiments.optima --many`."""

STAYING = (0.0, 0.5, 0.9, 0.99)
STAYING_PIECES, STAYING_PIECE, STAYING_STEPS = 32, 2**10, 10
"""Long sequences: shares of the transitions that stay at first, of which the best is taken, on how
many pieces of how many steps, by how many full batches.  Source: as `TILE_LENGTH`, whose row with
no share but zero is 0.024 nats per step worse at 30 states.  The sizes: some tenths of a second."""

FULL_PASSES, LONG_PASSES = 500, 50
"""Full batches at most, of small data and of a few long sequences.  No experiment: a limit."""

SEARCH_PASSES, SEARCH_TOL = 50, 1e-5
"""Full batches before states are merged, at most, and how far the models that are compared
converge: states to spare converge slowly, and are to be merged.  Source: as `FULL_STEPS`."""

START_PASSES = 20
"""Passes after which the starts of small data are compared, and the best of them goes on.
Source: `python -m experiments.starts`."""

ALONE_STEPS = 2**12
"""Steps up to which the best start goes on as it began, with a lane to itself: where the sweeps of
the training loop save less than a pass of it costs.  On an AMD EPYC, with 3 states: 107 steps take
0.1 ms in a lane and 0.3 ms in the loop, 15,000 steps 0.9 and 0.6 ms."""

LEARNED_PRIOR = ("concentration", "base")
"""What ``tuned="auto"`` learns of symbols.  Source: `python -m experiments.defaults`, the corpus
and sentences, where prior counts of 0.1 blur the states; and `python -m experiments.few_words`."""

MOST_RESTARTS = 10
RESTART_SECONDS = 2.0
_CALL_SECONDS, _WORK_SECONDS = 3e-4, 2e-10  # of a pass, and of a unit of its work (K + 32)² T
_PASSES = 100  # of one start
_SEARCH_SECONDS = 1.2e-3  # of a local step of the search, in place of `_CALL_SECONDS`
_SEARCH_STEPS, _SEARCH_STEPS_PER_STATE = 300, 40  # its local steps: each state may be merged
"""Restarts take about two seconds by these estimates of a pass, measured once on one machine:
with 4 states allowed for 100 steps of two Gaussians a search takes 360 local steps, with 50 2,300.
They are counted, not timed, so that a seed gives the same model anywhere."""


EXCHANGE_SECONDS = 10.0
_EXCHANGE_STEPS, _EXCHANGE_STEPS_PER_STATE = 132, 2  # local steps of a round, by the settings
"""Exchanges of states of small data take at most so long by the same estimates.  Source: `python -m
experiments.optima`, whose largest cell needs half of it."""


class Size(Enum):
    """What kind of data it is."""

    SMALL = "full batches until convergence, from several starts, then a search for merges"
    LONG = "a few long sequences: full batches until convergence, after a warm-up on pieces"
    TILED = "minibatches of tiles"
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
    tile_length : int or None
        About how many steps a tile has; None where sequences are not cut.
    narrow : Narrow or None
        How training begins with more states than asked for.
    whole_from : int or None
        Pass, counted from 0, from which on all tiles are one minibatch.
    n_more : int
        Passes after `n_passes`, at most, of all tiles as one minibatch, until nothing rises.
    """

    size: Size
    batch_size: int | None
    n_passes: int
    tol: float | None
    schedule: StepSizes
    is_open: bool = True
    tuned: tuple[str, ...] = ()
    tile_length: int | None = None
    narrow: Narrow | None = None
    whole_from: int | None = None
    n_more: int = 0


def plan_training(
    model: BaseHMM, n_sequences: int, n_steps: float, family: Family | None = None
) -> Plan:
    """Return how to go through data of that size, of a family that is known by now."""
    size = size_of(model, n_sequences, n_steps, family)
    if size is Size.TILED:
        return _plan_tiles(model, n_sequences, n_steps, family)
    if size is not Size.MANY:
        n_passes = FULL_PASSES if size is Size.SMALL else LONG_PASSES
        # Restarts of a fixed number of states are trained at once, with one prior for all of them.
        learns = size is Size.LONG or may_move(model)
        tuned = _learned_prior(model) if learns else ()
        return Plan(size, None, n_passes, float(model.tol), Schedule(0.0, 1.0), tuned=tuned)
    method = method_of(model)
    batch_size = BATCH_SIZE if isinstance(model.batch_size, str) else model.batch_size
    if isinstance(model.n_passes, str):
        n_passes, tol = (FULL_PASSES, float(model.tol)) if method.whole else (N_PASSES, None)
    else:
        n_passes, tol = int(model.n_passes), None
    batch_size = None if method.whole else batch_size
    schedule = step_sizes(model, n_passes, n_sequences, n_steps, batch_size)
    is_open = _is_open(model)
    tuned = _learned_prior(model) if is_open else tunings(model)
    # Without moves the infinite model keeps the states that it begins with, as in the paper.
    is_finite = isinstance(model._make_transitions(), Dirichlet)
    wide = _wide(model, n_passes, n_steps, family) if may_move(model) or is_finite else None
    if wide is not None and may_move(model):
        first = max(1, round(WIDE_MOVES_SHARE * n_passes))
        wide = wide._replace(first=first, n_stages=1, moves_first=True)
    return Plan(size, batch_size, n_passes, tol, schedule, is_open, tuned, narrow=wide)


def _learned_prior(model: BaseHMM) -> tuple[str, ...]:
    """Return what is learned of the prior on symbols, where the rest is left to the library."""
    return LEARNED_PRIOR if _has_usual_prior(model) else tunings(model)


def _has_usual_prior(model: BaseHMM) -> bool:
    """Whether the prior on symbols is left to the library, which learns it."""
    left = isinstance(model.tuned, str) and model.tuned == "auto"
    if holds_emissions(model):
        return False
    return left and inference_name(model) == "scvi" and model.emission.has_usual_prior


def _plan_tiles(model: BaseHMM, n_sequences: int, n_steps: float, family: Family | None) -> Plan:
    """Return how to go through tiles of long sequences."""
    length = TILE_LENGTH if isinstance(model.tile_length, str) else model.tile_length
    assert length is not None
    method, is_open = method_of(model), _is_open(model)
    n_tiles = max(n_sequences, round(n_steps / length))
    steps = min(TILE_BATCH_MOST, max(TILE_BATCH_LEAST, n_steps / TILE_UPDATES_PER_PASS))
    batch_size: int | None = max(1, round(steps / length))
    if method.whole:
        batch_size = None
    elif not isinstance(model.batch_size, str):
        batch_size = model.batch_size
    if isinstance(model.n_passes, str):
        per_pass = n_tiles / (batch_size or n_tiles)
        n_passes = int(min(LONG_PASSES, max(TILE_PASSES, TILE_UPDATES / per_pass)))
    else:
        n_passes = int(model.n_passes)
    tol = float(model.tol) if method.whole and isinstance(model.n_passes, str) else None
    tuned = _learned_prior(model) if is_open else tunings(model)
    if method.whole or not (is_open or "steps" in tunings(model)):
        schedule: StepSizes = step_sizes(model, n_passes, n_tiles, n_steps, batch_size)
        return Plan(Size.TILED, batch_size, n_passes, tol, schedule, is_open, tuned, length)
    wide = _wide(model, n_passes, n_steps, family)
    n_full = FULL_TILES if is_open else 0
    schedule = LinearDecay.plan(
        model.n_states if wide is None else wide.wide,
        n_passes - n_full,
        batch_size or n_tiles,
        n_tiles,
        n_steps,
    )
    plan = Plan(Size.TILED, batch_size, n_passes, tol, schedule, is_open, tuned, length, wide)
    if not is_open:
        return plan
    n_minibatches = n_passes - FULL_TILES
    return plan._replace(whole_from=n_minibatches, tol=float(model.tol), n_more=n_minibatches)


def _wide(model: BaseHMM, n_passes: int, n_steps: float, family: Family | None) -> Narrow | None:
    """Return how a model begins with more states than asked for, if that is left open.

    Not where the sample that tells which of them to merge has fewer steps than they have
    statistics, as of words.
    """
    n_states = int(model.n_states)
    wide = max(n_states, min(WIDE_FACTOR * n_states, WIDE_MOST))
    is_auto = isinstance(model.init, str) and model.init == "auto"
    if wide == n_states or not (_is_open(model) and is_auto and inference_name(model) == "scvi"):
        return None
    if begin_states(model) < n_states or is_constrained(model) or holds_emissions(model):
        return None
    if family is not None and wide * family.n_statistics > min(n_steps, SAMPLE_STEPS):
        return None
    return Narrow(wide, n_states, round(WIDE_SHARE * n_passes), WIDE_STAGES)


def size_of(model: BaseHMM, n_sequences: int, n_steps: float, family: Family | None = None) -> Size:
    """Say which kind of data it is, for a model that leaves minibatches and passes open."""
    if _cuts(model, n_sequences, n_steps):
        return Size.TILED
    if is_sampled(model) or not _is_open(model) or not method_of(model).is_stochastic:
        return Size.MANY
    if tunings(model):
        return Size.MANY
    if n_steps <= FULL_STEPS:
        return Size.MANY if _is_sparse(model, n_steps, family) else Size.SMALL
    # A GPU has no logarithms to fall back on where steps of size one leave probabilities of zero.
    is_long = n_sequences < FEW_SEQUENCES and model.device != "cuda"
    return Size.LONG if is_long else Size.MANY


def _is_sparse(model: BaseHMM, n_steps: float, family: Family | None) -> bool:
    """Whether there are fewer steps than probabilities of symbols, and nothing merges states.

    In full batches rare symbols then keep to the state that they began with: what a step is taken
    for depends on its own count.  Source: `python -m experiments.few_words`.
    """
    if family is None or may_move(model) or not _has_usual_prior(model):
        return False
    return model.n_states * family.n_statistics > n_steps


def _cuts(model: BaseHMM, n_sequences: int, n_steps: float) -> bool:
    """Whether sequences are cut into tiles: where the user says so, or where they are long."""
    if model.tile_length is None or is_sampled(model) or method_of(model).remembers:
        return False
    if not isinstance(model.tile_length, str):
        return True
    is_long = n_steps > FULL_STEPS and n_steps >= LONG_MEAN * n_sequences
    if n_steps <= TILED_STEPS and model.n_states >= WIDE_MOST:
        return False
    return is_long and _is_open(model) and method_of(model).is_stochastic


def _is_open(model: BaseHMM) -> bool:
    """Whether minibatches and passes are left to the library."""
    return isinstance(model.batch_size, str) and isinstance(model.n_passes, str)


def n_restarts(model: BaseHMM, n_sequences: int, n_steps: float) -> int:
    """Return the number of restarts: as asked for, or as many as take about two seconds."""
    if not isinstance(model.n_init, str):
        return int(model.n_init)
    if size_of(model, n_sequences, n_steps) is not Size.SMALL:
        return 1
    passes, call = float(_PASSES), _CALL_SECONDS
    if may_move(model):
        most = min(float(model.n_states), n_steps)  # more states than steps are not begun with
        passes, call = _SEARCH_STEPS + _SEARCH_STEPS_PER_STATE * most, _SEARCH_SECONDS
    seconds = passes * _pass_seconds(model, n_steps, call)
    return int(min(MOST_RESTARTS, max(1, RESTART_SECONDS / seconds)))


def _pass_seconds(model: BaseHMM, n_steps: float, call: float) -> float:
    """Return about how long a full batch takes; `call` is what does not depend on its size."""
    call += model.emission.call_seconds
    return call + _WORK_SECONDS * n_steps * (model.n_states + 32.0) ** 2


def n_exchanges(model: BaseHMM, n_steps: float) -> int:
    """Return how often states of small data are exchanged at most: where nothing else is chosen.

    Where the number of states may change, merges and splits do the same.  Two states have no third
    one to be merged with, and restarts are enough for them.
    """
    is_open = isinstance(model.n_init, str) and isinstance(model.init, str) and model.init == "auto"
    if inference_name(model) != "scvi" or not is_open or may_move(model):
        return 0
    is_held = holds_emissions(model) or is_constrained(model) or model.duration is not None
    if is_held or not isinstance(model._make_transitions(), Dirichlet) or int(model.n_states) < 3:
        return 0
    passes = _EXCHANGE_STEPS + _EXCHANGE_STEPS_PER_STATE * float(model.n_states)
    return int(EXCHANGE_SECONDS / (passes * _pass_seconds(model, n_steps, _SEARCH_SECONDS)))
