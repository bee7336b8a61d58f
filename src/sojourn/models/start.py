"""How training starts: initial statistics, moves, and a warm-up if needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from sojourn.backends.compute import Compute
from sojourn.backends.cpu import CpuBackend
from sojourn.data import Data
from sojourn.families import Family
from sojourn.inference import Position, Posterior, Progress, Statistics
from sojourn.inference.local import prepare
from sojourn.inference.posterior import initial_counts
from sojourn.inference.starts import BestStart, best_start, may_train_together
from sojourn.kernels import cpu
from sojourn.kernels.threads import resolve_jobs
from sojourn.models.durations import durations_of, refuse_one_pass
from sojourn.models.fixed import ParameterStatistics, fixed_parts_of, hold_emissions
from sojourn.models.labelled import labelled_start
from sojourn.models.ordered import comes_in_order, put_in_order
from sojourn.models.parameters import (
    begin_states,
    compute_of,
    inference_name,
    may_move,
    record_of,
)
from sojourn.models.persistence import with_persistence
from sojourn.models.plan import ALONE_STEPS, START_PASSES, Plan, Size
from sojourn.moves.budget import MoveState
from sojourn.moves.rounds import Moves
from sojourn.moves.settings import MoveSettings
from sojourn.moves.warmup import warm_up
from sojourn.prediction import FittedModel
from sojourn.progress import LiveProgress
from sojourn.random_state import INITIAL_STREAM
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches
from sojourn.transitions import Rows, Transitions

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM

Callback = Callable[[Progress], None]


class Begun(NamedTuple):
    """Where training begins.

    Attributes
    ----------
    posterior : Posterior
    position : Position
    state : MoveState
    is_sure : bool
        Whether several starts came to the same optimum, as good as any of the others.
    """

    posterior: Posterior
    position: Position
    state: MoveState
    is_sure: bool = False


def start(
    model: BaseHMM,
    plan: Plan,
    family: Family,
    sample: Sequences,
    data: Data,
    seed: int,
    *,
    n_starts: int = 1,
    callback: Callback | None = None,
    remote: bool = False,
) -> Begun:
    """Draw an initial posterior, with a warm-up if there will be few updates per pass.

    A warm-up with smaller minibatches lets states differentiate before the first pass.  It runs
    where training does, or here if that is `remote`.  Of several starts on small data the best
    goes on.
    """
    refuse_one_pass(model, plan.n_passes)
    n_sequences, n_steps = data.n_sequences, data.n_steps
    transitions = model._make_transitions()
    wide = _states_to_begin_with(model, plan, family, transitions, n_steps)
    draw = partial(
        initial_posterior, model, family, sample, n_sequences, n_steps, transitions=transitions
    )
    posterior = draw(seed, wide, tuned=plan.tuned)
    if n_starts > 1:
        starts = [posterior, *(draw(own) for own in restart_seeds(seed, n_starts)[1:])]
        best = _start_together(model, plan, family, sample, starts, callback)
        return Begun(best.posterior, best.position, MoveState(), not best.is_alone)
    posterior.held = data.n_labelled
    if _may_stay(model, plan, data):
        n_threads = resolve_jobs(model.n_jobs)
        posterior = with_persistence(posterior, family, sample, n_threads, model.dtype)
    if plan.size in (Size.SMALL, Size.LONG):
        posterior.transitions = _with_full_steps(posterior.transitions)
    if plan.size is Size.TILED or (plan.size is Size.SMALL and not plan.tuned):
        return Begun(posterior, Position(), MoveState())
    compute = compute_for(model, plan, remote=remote)
    moves = make_moves(model, family, posterior, compute, seed)
    with_moves = moves is not None and plan.size is not Size.SMALL  # those are searched for later
    if moves is None and plan.is_open:
        moves = _moves_of(model, compute, seed)
    is_once = data.source is not None and not data.source.is_repeatable
    if moves is None or not isinstance(model.init, str) or model.init != "auto" or is_once:
        return Begun(posterior, Position(), MoveState())
    prior = model._make_transitions()
    if plan.narrow is not None:
        moves = replace(moves, most_states=plan.narrow.wide)
        prior = prior.regrouped(np.eye(plan.narrow.wide, model.n_states))
    warm = warm_up(
        posterior,
        family,
        moves,
        prior,
        sequences=data.sequences,
        minibatches=lambda size: data.minibatches(family, size, seed),
        n_sequences=n_sequences,
        n_steps=n_steps,
        n_batches=-(-n_sequences // (plan.batch_size or n_sequences)),
        seed=seed,
        monitor=lambda n_passes: _display(model, n_passes, "warm-up"),
        with_moves=with_moves,
    )
    return Begun(posterior, Position(), MoveState()) if warm is None else Begun(*warm)


def _may_stay(model: BaseHMM, plan: Plan, data: Data) -> bool:
    """Whether it is tried how long states last at first: on long sequences, if nothing is given."""
    is_free = isinstance(model.init, str) and model.init == "auto" and model.fixed is None
    is_long = plan.size in (Size.LONG, Size.TILED) and plan.is_open
    return is_free and is_long and not data.n_labelled


def _states_to_begin_with(
    model: BaseHMM, plan: Plan, family: Family, transitions: Transitions, n_steps: float
) -> int | None:
    """Return how many states there are at first, where that is not what the model asks for.

    More than one state per step cannot be in use: where the number of states is learned, those
    beyond it are not begun with.  Moves could not tell them from each other.
    """
    if plan.narrow is not None:
        return plan.narrow.wide
    too_many = plan.size is Size.SMALL and may_move(model) and begin_states(model) > n_steps
    is_free = isinstance(model.init, str) and transitions.constraints is None
    return int(n_steps) if too_many and is_free and is_symmetric(family, transitions) else None


def restart_seeds(seed: int, n_restarts: int) -> list[int]:
    """Return the seeds of restarts: the first restart is what a single fit would be."""
    others = range(1, n_restarts)
    return [seed, *(int(np.random.default_rng([seed, n]).integers(2**32)) for n in others)]


def starts_together(
    model: BaseHMM, plan: Plan, family: Family, data: Sequences, n_starts: int
) -> bool:
    """Whether restarts can be trained at once: small data, and a fixed number of states."""
    return (
        plan.size is Size.SMALL
        and data.labels is None
        and data.weights is None
        and model.fixed is None
        and model.device != "reference"
        and inference_name(model) == "scvi"
        and isinstance(model.init, str)
        and not (may_move(model) or model._track_bound)
        and may_train_together(family, model._make_transitions(), int(model.n_states), n_starts)
    )


def _start_together(
    model: BaseHMM,
    plan: Plan,
    family: Family,
    data: Sequences,
    starts: list[Posterior],
    callback: Callback | None,
) -> BestStart:
    """Train several starts at once for some passes, and return the best of them."""
    assert plan.tol is not None
    (chunk,) = prepare(family, data)
    with reporting(model, plan.n_passes, callback) as report:
        return best_start(
            family,
            starts,
            chunk,
            n_passes=plan.n_passes,
            compare_after=START_PASSES,
            alone=data.n_steps <= ALONE_STEPS,
            tol=plan.tol,
            n_threads=resolve_jobs(model.n_jobs),
            callback=report,
        )


def _with_full_steps(transitions: Transitions) -> Transitions:
    """Return a prior whose own updates replace what it knew, as full batches do."""
    if "forgetting_rate" not in {field.name for field in fields(cast(Any, transitions))}:
        return transitions
    return cast(Transitions, replace(cast(Any, transitions), forgetting_rate=0.0))


def _display(model: BaseHMM, n_passes: int, what: str) -> Any:
    """Return a context manager that gives the progress display, or None without one."""
    title = f"{type(model).__name__} {what}"
    return LiveProgress(n_passes, title) if model.verbose else nullcontext()


def compute_for(model: BaseHMM, plan: Plan, *, remote: bool) -> Compute:
    """Return where this process computes.

    Small data are too small to keep a GPU busy, and of `remote` training only the workers may have
    one.
    """
    compute = compute_of(model)
    if compute.device == "cuda" and (remote or plan.size is Size.SMALL):
        compute = replace(compute, device="cpu")
    return compute if plan.narrow is None else replace(compute, moves_from=plan.narrow.wide)


def make_moves(
    model: BaseHMM,
    family: Family,
    posterior: Posterior,
    compute: Compute,
    seed: int,
    source: Minibatches | None = None,
    state: MoveState | None = None,
) -> Moves | None:
    """Return the moves; None if states may not change, or if their prior counts differ."""
    if not (may_move(model) and family.prior().ndim == 1 and posterior.transitions.is_even):
        return None
    if posterior.held >= model.n_states:
        return None
    return _moves_of(model, compute, seed, source, state)


def _moves_of(
    model: BaseHMM,
    compute: Compute,
    seed: int,
    source: Minibatches | None = None,
    state: MoveState | None = None,
) -> Moves:
    n_states = int(model.n_states)
    grows = begin_states(model) < n_states
    return Moves(
        n_states,
        seed,
        compute.backend(),
        source,
        grows,
        state or MoveState(),
        model.moves if isinstance(model.moves, MoveSettings) else MoveSettings(),
    )


def initial_posterior(
    model: BaseHMM,
    family: Family,
    data: Sequences,
    total_sequences: float,
    total_steps: float,
    seed: int,
    wide: int | None = None,
    *,
    tuned: Collection[str] = (),
    transitions: Transitions | None = None,
) -> Posterior:
    """Return a posterior with the given statistics, or random ones with the mass of the data.

    `wide` is the number of states to begin with, if it is not the model's.
    """
    transitions = model._make_transitions() if transitions is None else transitions
    dtype = family.table_dtype or model.dtype
    if isinstance(model.init, Statistics):
        _check_statistics(model.init, family, model.n_states)
        if transitions.constraints is not None:
            own = Rows(model.init.start, model.init.transitions)
            transitions.constraints.check(int(model.n_states), own)
        init = model.init
        if isinstance(init, ParameterStatistics):
            init = init.scaled_to(total_steps)
        given = Posterior.from_statistics(
            init, transitions, dtype, durations_of(model, int(model.n_states))
        )
        return _completed(model, given, family, tuned)
    rng = np.random.default_rng([seed, INITIAL_STREAM])
    n_states = begin_states(model) if wide is None else wide
    if data.labels is not None:  # beside states with labels one is to be split
        n_states = max(n_states, min(data.labels.n_labelled + 1, model.n_states))
    if n_states != model.n_states:
        if not is_symmetric(family, transitions):
            raise ValueError(
                "init_states needs priors that are the same for all states: concentrations "
                "that are numbers, or for emissions one row for all states"
            )
        transitions = transitions.regrouped(np.eye(n_states, model.n_states))
    counts = initial_counts(n_states, total_sequences, total_steps, rng)
    if transitions.constraints is not None:
        counts = transitions.constraints.conformed(counts)
    by_segments = model.init == "segments" or (model.init == "auto" and may_move(model))
    draw = family.segment_statistics if by_segments else family.initial_statistics
    statistics = Statistics(*counts, draw(data, n_states, total_steps, rng))
    if data.labels is not None:
        statistics = labelled_start(statistics, family, data)
    drawn = Posterior.from_statistics(statistics, transitions, dtype, durations_of(model, n_states))
    if model.init == "auto" and comes_in_order(transitions, data):
        backend = CpuBackend(cpu, compute_of(model).backend().n_threads)
        drawn = put_in_order(drawn, family, data, total_steps, rng, backend)
    return _completed(model, drawn, family, tuned)


def _check_statistics(given: Statistics, family: Family, n_states: int) -> None:
    """Reject initial statistics that do not match the model."""
    expected = (n_states, family.n_statistics)
    if given.emissions.shape != expected:
        raise ValueError(
            f"init has emission statistics of shape {given.emissions.shape}, "
            f"the model needs {expected}"
        )
    parts = (given.start, given.transitions, given.emissions)
    if not all(np.isfinite(part).all() for part in parts):
        raise ValueError("init has values that are not finite")
    counts_only = parts if family.statistics_are_counts else parts[:2]
    if any((part < 0).any() for part in counts_only):
        raise ValueError("init has a negative count")


def _completed(
    model: BaseHMM, posterior: Posterior, family: Family, tuned: Collection[str]
) -> Posterior:
    """Fix emissions that are given, and make the emission prior a learned one, if asked for."""
    parts = fixed_parts_of(model)
    if parts is not None and model._given is not None:
        hold_emissions(posterior, parts, model._given)
    posterior.emissions.prior = family.learned_prior(
        seen="concentration" in tuned, new="base" in tuned
    )
    return posterior


def is_symmetric(family: Family, transitions: Transitions) -> bool:
    """Whether the priors are the same for all states."""
    return family.prior().ndim == 1 and transitions.is_symmetric


def new_fitted(
    model: BaseHMM,
    family: Family,
    posterior: Posterior,
    total_sequences: int,
    move_state: MoveState | None = None,
) -> FittedModel:
    """Return the fitted model of an estimator."""
    return FittedModel(
        family,
        posterior,
        total_sequences,
        move_state=MoveState() if move_state is None else move_state,
        estimator=record_of(model),
        compute=compute_of(model),
    )


@contextmanager
def reporting(
    model: BaseHMM, n_passes: int, callback: Callback | None
) -> Iterator[Callback | None]:
    """Combine the user's callback and the progress display in one; None without either."""
    with _display(model, n_passes, inference_name(model)) as live:
        reporters = [report for report in (callback, live) if report is not None]

        def report(progress: Progress) -> None:
            for reporter in reporters:
                reporter(progress)

        yield report if reporters else None
