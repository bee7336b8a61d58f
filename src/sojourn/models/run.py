"""What `fit` and `partial_fit` do: start or resume, train or sample, and keep the best restart."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn.backends.cpu import CpuBackend
from sojourn.backends.dask import Cluster, ClusterTiles, DaskBackend
from sojourn.data import Data
from sojourn.estimator import clone
from sojourn.families import Family
from sojourn.inference import Backend, Position, Posterior, Problem, train
from sojourn.inference.buffers import GrowingBuffers
from sojourn.inference.problem import Tiled
from sojourn.inference.schedule import StepSizes, ThenWhole
from sojourn.inference.shapes import LearnedShapes
from sojourn.inference.trainer import StateMoves
from sojourn.kernels.threads import resolve_jobs
from sojourn.models import sampled
from sojourn.models.advice import warn_of_fit
from sojourn.models.checkpoints import (
    Checkpoints,
    checked_position,
    identity_of,
    seed_of,
)
from sojourn.models.durations import shapes_of
from sojourn.models.effort import Effort
from sojourn.models.fixed import emission_of, rescaling_of
from sojourn.models.observers import Observers
from sojourn.models.parameters import (
    is_sampled,
    may_move,
    method_of,
    move_settings,
)
from sojourn.models.plan import (
    EDGE_TOLERANCE,
    SEARCH_PASSES,
    SEARCH_TOL,
    Plan,
    Size,
)
from sojourn.models.prepare import (
    checked_options,
    connect,
    in_memory,
    labelled_data,
    minibatches_of,
    plan_of,
)
from sojourn.models.start import (
    Begun,
    compute_for,
    make_moves,
    new_fitted,
    reporting,
    restart_seeds,
    start,
)
from sojourn.moves.exchange import exchange_on
from sojourn.moves.judge import Move
from sojourn.moves.narrow import Narrowing
from sojourn.moves.rounds import Moves, by_size
from sojourn.moves.search import StateSearch
from sojourn.moves.workbench import Workbench
from sojourn.prediction import FittedModel
from sojourn.random_state import as_seed
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches, TiledSource
from sojourn.sources.arrow_arrays import NO_ROLES, Roles
from sojourn.sources.base import joined, pieces_of
from sojourn.warnings import FitWarning

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM


def fit(
    model: BaseHMM,
    X: Any,
    lengths: ArrayLike | None,
    observers: Observers,
    roles: Roles = NO_ROLES,
    *,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    resume: bool = False,
    client: Any = None,
    y: Any = None,
    sample_weight: ArrayLike | None = None,
) -> None:
    """Fit a model to data, discarding an earlier fit; see `BaseHMM.fit`."""
    checkpoints = checked_options(
        model, observers.validation_every, checkpoint, checkpoint_every, client, resume=resume
    )
    n_init = None if isinstance(model.n_init, str) else model.n_init
    X = list(X) if n_init not in (None, 1) and isinstance(X, Iterator) else X  # it is read again
    data = labelled_data(model, X, lengths, y, sample_weight, roles)
    is_plain = data.sequences is not None and checkpoints is None and client is None
    effort = Effort.of(model, data, observers, is_plain=is_plain)
    if effort.restarts > 1 and not effort.at_once and not effort.exchanges:
        known = y, sample_weight, roles
        _fit_best(model, X, lengths, observers, client, effort.restarts, *known)
        return
    cluster = connect(model, client, data)
    family, sample = data.resolve(emission_of(model), model.n_states)
    held_out = observers.held_out(family, data, model.n_states)
    found = checkpoints.newest() if checkpoints is not None and resume else None
    seed = as_seed(model.random_state) if found is None else seed_of(found[1], model.random_state)
    if is_sampled(model):
        sequences = in_memory(model, data)
        sampled.fit(model, family, sequences, held_out, seed, observers.callback, data.names)
        model._fitted.provenance = data.record()
        return
    plan = plan_of(model, data, family)
    effort = effort.planned(model, plan, data, family, sample)
    if effort.restarts > 1 and not effort.at_once:
        _fit_one_by_one(model, data, family, observers, effort.restarts)
        return
    identity = {} if checkpoints is None else identity_of(model, family, data, seed, plan.tuned)
    if found is None:
        runs: Any = {"n_starts": effort.restarts, "callback": observers.callback}
        begun = start(model, plan, family, sample, data, seed, remote=cluster is not None, **runs)
    else:
        begun, family = _resumed(*found, identity, family)
    fitted = new_fitted(model, family, begun.posterior, data.n_sequences, begun.state)
    fitted.state_names, fitted.provenance, model._fitted = data.names, data.record(), fitted
    if checkpoints is not None:
        checkpoints.begin(fitted, identity)
    minibatches = minibatches_of(model, plan, data, family, seed, cluster)
    moves = _moves_of_fit(model, plan, fitted, data, minibatches, seed, remote=cluster is not None)
    source = _read_here(plan, fitted, data, minibatches, seed)
    shapes = shapes_of(model, fitted, source, data, seed, plan.narrow)
    exchanges = 0 if begun.is_sure else effort.exchanges
    rest = held_out, shapes, exchanges, seed
    training = Training(plan, minibatches, begun.position, moves, checkpoints, cluster, *rest)
    _train(model, fitted, training, observers)
    warn_of_fit(model, fitted)


def _resumed(
    found: FittedModel, training: dict[str, Any], identity: dict[str, Any], family: Family
) -> tuple[Begun, Family]:
    """Return where a checkpoint goes on, and the family: its prior may have been learned."""
    position = checked_position(found, training, identity)
    family = found.family if found.move_state.n_rounds else family
    return Begun(found.posterior, position, found.move_state), family


# ---- one run of the training loop ---------------------------------------------------------------


@dataclass(frozen=True)
class Training:
    """What one run of the training loop needs besides the model."""

    plan: Plan
    minibatches: Minibatches
    position: Position
    moves: StateMoves | None
    checkpoints: Checkpoints | None
    cluster: Cluster | None
    held_out: Data | None
    shapes: LearnedShapes | None = None
    n_exchanges: int = 0
    seed: int = 0

    def score(self, fitted: FittedModel) -> Callable[..., float] | None:
        """Return what scores a posterior on held-out data, per step; None if there are none.

        It may be given a family too, with another prior.
        """
        held_out = self.held_out
        if held_out is None:
            return None
        remote = None if held_out.source is None else self.cluster

        def score(posterior: Posterior, family: Family | None = None) -> float:
            model = replace(fitted, posterior=posterior, family=family or fitted.family)
            return model.score_data(held_out, per_step=True, cluster=remote)

        return score


def _train(model: BaseHMM, fitted: FittedModel, training: Training, observers: Observers) -> None:
    """Run the training loop; however it ends, fetch the posterior into this machine's memory."""
    backend: Backend
    if training.cluster is not None:
        backend = DaskBackend(training.cluster, resolve_jobs(model.n_jobs))
    else:
        backend = compute_for(model, training.plan, remote=False).backend()
    with backend.running():
        try:
            fitted.posterior = backend.place(fitted.posterior)
            training = _search_first(model, fitted, training, observers, backend)
            training = _exchange_first(model, fitted, training, observers, backend)
            ended = _run_loop(model, fitted, training, observers, backend)
        finally:
            fitted.posterior = fitted.posterior.fetched()
    if training.plan.tol is not None:
        fitted.converged = ended.converged or (None if training.plan.n_more else False)
    fitted.history = [entry._asdict() | {"moves": list(entry.moves)} for entry in ended.history]
    if may_move(model) and training.moves is not None:
        # After the last checkpoint: a resumed run continues with the states in their old order.
        fitted.posterior.become(by_size(fitted.posterior))


def _run_loop(
    model: BaseHMM,
    fitted: FittedModel,
    training: Training,
    observers: Observers,
    backend: Backend,
) -> Position:
    """Call `train` from a position, with all observers."""
    checkpoints, score = training.checkpoints, training.score(fitted)
    method, n_sequences = method_of(model), training.minibatches.n_sequences
    plan, tracked = training.plan, observers.track_bound
    moves = _validated(training.moves, score)
    tracked = model._track_bound if tracked is None else tracked
    if tracked is None:
        tracked = not method.is_stochastic
    with (
        reporting(model, plan.n_passes + plan.n_more, observers.callback) as report,
        checkpoints if checkpoints is not None else nullcontext(),
    ):
        source, schedule = training.minibatches, _schedule(plan, training.minibatches)
        return train(
            Problem(fitted.family, method.objective, schedule, n_sequences, _tiled(source)),
            fitted.posterior,
            training.minibatches,
            backend,
            n_passes=plan.n_passes,
            moves=None if plan.size is Size.SMALL else moves,
            buffers=_buffers(model, plan, fitted, source, backend),
            shapes=training.shapes,
            bound=method.bound if tracked else None,
            evaluate=None if score is None else lambda: score(fitted.posterior),
            evaluate_every=observers.validation_every,
            callback=report,
            position=training.position,
            checkpoint=checkpoints,
            tol=plan.tol,
            n_more=plan.n_more,
        )


def _validated(
    moves: StateMoves | None, score: Callable[[Posterior], float] | None
) -> StateMoves | None:
    """Return moves that must not lower a score."""
    if isinstance(moves, Narrowing):
        return replace(moves, moves=_validated(moves.moves, score), validate=score)
    return replace(moves, validate=score) if isinstance(moves, Moves) else moves


def _schedule(plan: Plan, source: Minibatches) -> StepSizes:
    """Return the step sizes; those of passes in which all tiles are one minibatch are one."""
    if not isinstance(source, TiledSource) or source.whole_from is None:
        return plan.schedule
    per_pass = -(-source.n_sequences // (source.batch_size or source.n_sequences))
    return ThenWhole(plan.schedule, source.whole_from * per_pass)


def _tiled(source: Minibatches) -> Tiled | None:
    """Return the sizes of the data, if they are dealt in tiles."""
    if not isinstance(source, TiledSource):
        return None
    return Tiled(len(source.data.offsets) - 1, source.n_steps)


def _buffers(
    model: BaseHMM, plan: Plan, fitted: FittedModel, source: Minibatches, backend: Backend
) -> GrowingBuffers | None:
    """Return what sets the size of the buffers around tiles."""
    if not isinstance(source, TiledSource):
        return None
    local = backend
    if not isinstance(local, CpuBackend):
        local = compute_for(model, plan, remote=isinstance(source, ClusterTiles)).backend()
    fixed = None if isinstance(model.buffer, str) else int(model.buffer or 0)
    family, objective = fitted.family, method_of(model).objective
    return GrowingBuffers(source, family, objective, local, 1 + family.past, EDGE_TOLERANCE, fixed)


def _search_first(
    model: BaseHMM,
    fitted: FittedModel,
    training: Training,
    observers: Observers,
    backend: Backend,
) -> Training:
    """Find the number of states of small data, before training converges with it.

    After some passes states are merged, the best two at a time, as long as the bound rises.
    """
    plan, moves = training.plan, training.moves
    if plan.size is not Size.SMALL or not isinstance(moves, Moves) or moves.state.n_rounds:
        return training
    assert plan.tol is not None
    assert moves.source is not None
    few = plan._replace(n_passes=SEARCH_PASSES, tol=max(plan.tol, SEARCH_TOL))
    at = _run_loop(model, fitted, replace(training, plan=few), observers, backend)
    before = time.perf_counter()
    bench = Workbench(fitted.family, moves.backend)
    n_states = fitted.posterior.n_states
    data, score = _all_of(moves.source), training.score(fitted)
    rescaled = rescaling_of(model, fitted.family)
    rules = SEARCH_TOL, moves.settings, moves.seed, score, rescaled
    found, tried = StateSearch.on(data, bench, n_states, *rules).run(
        moves.backend.place(fitted.posterior)
    )
    fitted.posterior.become(backend.place(found.posterior.fetched()))
    fitted.family = found.family
    moves.state.n_rounds += 1
    at = at._replace(log_likelihood=None, converged=False)
    changes = {"states": found.posterior.n_states, "bound": found.bound}
    position = _with_moves(at, tried, time.perf_counter() - before, **changes)
    shapes = training.shapes and replace(training.shapes, family=found.family)
    return replace(training, position=position, shapes=shapes)


def _exchange_first(
    model: BaseHMM,
    fitted: FittedModel,
    training: Training,
    observers: Observers,
    backend: Backend,
) -> Training:
    """Look for a better optimum of small data, before training converges in it."""
    plan, at = training.plan, training.position
    if not training.n_exchanges or not isinstance(backend, CpuBackend):
        return training
    if at.n_pass < SEARCH_PASSES:
        few = plan._replace(n_passes=SEARCH_PASSES)
        at = _run_loop(model, fitted, replace(training, plan=few), observers, backend)
    before = time.perf_counter()
    data = _all_of(training.minibatches)
    rules = training.n_exchanges, SEARCH_TOL, move_settings(model), training.seed
    found, tried = exchange_on(data, fitted.posterior, fitted.family, backend, *rules)
    score = training.score(fitted)
    if found is not None and (score is None or score(found) >= score(fitted.posterior)):
        fitted.posterior.become(replace(found, n_updates=fitted.posterior.n_updates))
        at = at._replace(log_likelihood=None, converged=False)
    return replace(training, position=_with_moves(at, tried, time.perf_counter() - before))


def _all_of(minibatches: Minibatches) -> Sequences:
    """Return small data as a whole."""
    return joined([part for batch in minibatches.batches(0) for part in pieces_of(batch)])


def _with_moves(at: Position, tried: list[Move], seconds: float, **changes: Any) -> Position:
    """Return a position whose last entry has moves, the time that they took, and what changed."""
    entry = at.history[-1]._replace(
        seconds=at.seconds + seconds,
        moves=[move._asdict() for move in tried],
        move_seconds=seconds,
        **changes,
    )
    return at._replace(seconds=entry.seconds, history=(*at.history[:-1], entry))


def _moves_of_fit(
    model: BaseHMM,
    plan: Plan,
    fitted: FittedModel,
    data: Data,
    minibatches: Minibatches,
    seed: int,
    *,
    remote: bool,
) -> StateMoves | None:
    """Return the moves at the ends of passes, with the source of their samples."""
    compute = compute_for(model, plan, remote=remote)
    source = _read_here(plan, fitted, data, minibatches, seed)
    moves = make_moves(
        model, fitted.family, fitted.posterior, compute, seed, source, fitted.move_state
    )
    if plan.narrow is None:
        return moves
    settings = move_settings(model)
    return Narrowing(plan.narrow, compute.backend(), source, moves, settings, SEARCH_TOL)


def _read_here(
    plan: Plan, fitted: FittedModel, data: Data, minibatches: Minibatches, seed: int
) -> Minibatches:
    """Return a source of samples, which are read here, not on the cluster."""
    if data.sequences is None and not isinstance(minibatches, TiledSource):
        return data.minibatches(fitted.family, plan.batch_size, seed)
    return minibatches


# ---- restarts -----------------------------------------------------------------------------------


def _fit_one_by_one(
    model: BaseHMM, data: Data, family: Family, observers: Observers, restarts: int
) -> None:
    """Fit copies to data that are prepared already, one after another, and keep the best."""
    named = _copied(model, state_names=data.names, emission=family)
    _fit_best(named, data.sequences, None, observers, None, restarts)
    model._fitted = named.fitted_
    model._fitted.provenance = data.record()


def _fit_best(
    model: BaseHMM,
    X: Any,
    lengths: ArrayLike | None,
    observers: Observers,
    client: Any,
    n_init: int,
    y: Any = None,
    sample_weight: ArrayLike | None = None,
    roles: Roles = NO_ROLES,
) -> None:
    """Fit copies from different seeds, and keep the best of them.

    That is the one with the best held-out score, where there are validation data; otherwise with
    the highest bound where the number of states may differ, or else with the best training score.
    """
    if isinstance(observers.validation, Iterator):
        observers = replace(observers, validation=list(observers.validation))
    seed = as_seed(model.random_state)
    best: FittedModel | None = None
    best_score = -np.inf
    for own in restart_seeds(seed, n_init):
        candidate = _copied(model, n_init=1, random_state=own)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # once, of the best, is enough
            known = {"y": y, "sample_weight": sample_weight, "client": client}
            fit(candidate, X, lengths, observers, roles, **known)
        fitted: FittedModel = candidate.fitted_
        score = fitted.history[-1]["score"]
        if score is None and may_move(model):
            bounds = [entry["bound"] for entry in fitted.history if entry["bound"] is not None]
            score = bounds[-1] if bounds else None
        if score is None:
            score = fitted.score(X, lengths, y=y, per_step=True, client=client)
        if best is None or score > best_score:
            best, best_score = fitted, score
    assert best is not None
    model._fitted = best
    if best.samples is None:
        warn_of_fit(model, best)


def _copied(model: BaseHMM, **changes: Any) -> BaseHMM:
    """Return a model that is not fitted, with some parameters changed."""
    own = clone(model).set_params(**changes)
    own._given, own._unresolved = model._given, model._unresolved or model.emission
    return own
