"""Checks of everything that a model file describes, before there is a model.

A file may come from anyone, with a right checksum.  What it says is used as array sizes, as
indices of compiled kernels and as parameters of distributions, none of which check again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from sojourn import file_values
from sojourn.backends.compute import DEVICES
from sojourn.families import Family
from sojourn.families.sound import check_family, check_table
from sojourn.inference import Position, Posterior, Progress
from sojourn.moves.budget import MoveState
from sojourn.prediction import FittedModel
from sojourn.sampling import Samples

_MOST_THREADS = 1024
_FREE_NUMBERS = 2**24  # of a table of counts that a draw may ask for, whatever the file's size
_GROWTH = 16  # times the model's own numbers that such a table may have
_READING = ("column", "sequence", "time", "drop", "lower", "pattern", "encoding", "missing")


def check_model(fitted: FittedModel) -> None:
    """Raise an error unless a model is sound: types, sizes, signs and values of all its parts."""
    posterior, family = fitted.posterior, fitted.family
    check_posterior(posterior, family)
    file_values.whole("total_sequences", fitted.total_sequences, 1)
    if fitted.converged is not None:
        file_values.flag("converged", fitted.converged)
    _check_history(fitted.history)
    _check_provenance(fitted.provenance)
    _check_typed("moves", fitted.move_state)
    _check_compute(fitted.estimator.parameters)
    if fitted.samples is not None:
        check_samples(fitted.samples, posterior, family)


def check_posterior(posterior: Posterior, family: Family) -> None:
    """Raise an error unless counts, statistics and priors are those of K states and the family."""
    counts, table = posterior.counts, posterior.emissions
    n_states = len(counts.start) if counts.start.ndim == 1 else 0
    if n_states < 1:
        raise ValueError("the model has no states")
    file_values.array("posterior.start", counts.start, (n_states,), least=0.0)
    square = (n_states, n_states)
    file_values.array("posterior.transitions", counts.transitions, square, least=0.0)
    if table.n_states != n_states:
        raise ValueError(f"there are statistics of {table.n_states} states, counts of {n_states}")
    file_values.whole("n_updates", posterior.n_updates)
    check_family(family, n_states, len(table.rows))
    if table.prior is not None:
        table.prior.check(family.n_statistics)
        prior = posterior.learned(family).prior()
    else:
        prior = family.prior()
    check_table(family, table, prior)
    posterior.transitions.check(n_states)
    if posterior.transitions.constraints is not None:
        posterior.transitions.constraints.check(n_states, counts)
    constraints = posterior.transitions.constraints
    if (posterior.durations is None) != (constraints is None or not constraints.lasting):
        raise ValueError("durations and transitions do not belong together")
    if posterior.durations is not None:
        posterior.durations.check(n_states)
    for means in (posterior.transitions.means(counts), posterior.transitions.prior_counts().rows):
        for part in means:
            if not np.isfinite(part).all() or part.min() < 0.0:
                raise ValueError("counts and prior do not give probabilities")


def checked_states(states: Any, n_states: int) -> Any:
    """Return numbers of states, in increasing order, or raise an error."""
    file_values.array("posterior.held", states, (len(states),), kinds="i", least=0.0)
    if len(states) == 0 or states[-1] >= n_states or (np.diff(states) <= 0).any():
        raise ValueError("states that are held are not states of the model")
    return states


def check_samples(samples: Samples, posterior: Posterior, family: Family) -> None:
    """Raise an error unless draws are paths of the data they belong to, in memory that there is."""
    data, n_states = samples.data, posterior.n_states
    file_values.whole("n_symbols", data.n_symbols, family.n_statistics, family.n_statistics)
    n_steps = len(data.values)
    file_values.array("samples.values", data.values, (n_steps,), kinds="i", least=0.0)
    if data.values.dtype != np.int32 or n_steps == 0 or not _within(data.values, data.n_symbols):
        raise ValueError("the data of the draws are not symbols of the alphabet")
    if len(samples) == 0 or not all(len(chain) for chain in samples.chains):
        raise ValueError("there are no draws")
    most = max(_FREE_NUMBERS, _GROWTH * n_states * (n_states + data.n_symbols))
    for draw in samples:
        k = file_values.whole("n_states", draw.n_states, 1)
        if k * (k + 1 + data.n_symbols) > most:
            raise ValueError(f"a draw has {k} states, far more than the model")
        file_values.array("samples.states", draw.states, (n_steps,), kinds="i")
        if draw.states.dtype != np.int32 or not _within(draw.states, k):
            raise ValueError("a draw has states that it does not have")
        file_values.number("log_joint", draw.log_joint)
        if draw.shares is None:
            if k != n_states:
                raise ValueError(f"a draw has {k} states, the model {n_states}")
            continue
        file_values.positive("alpha", draw.alpha)
        file_values.positive("gamma", draw.gamma)
        shares = file_values.array("samples.shares", draw.shares, (k + 1,))
        if shares.min() <= 0.0 or abs(shares.sum() - 1.0) > 1e-6:
            raise ValueError("the shares of a draw are not probabilities")


def check_training(training: Any) -> None:
    """Raise an error unless a checkpoint's position in the training is one."""
    file_values.mapping("training", training)
    identity = file_values.mapping("identity", training["identity"])
    file_values.whole("seed", identity["seed"])
    file_values.mapping("parameters", identity["parameters"])
    for name in ("emission", "data"):
        file_values.text(name, identity[name])
    place = file_values.mapping("position", training["position"])
    position = Position(**{**place, "history": ()})
    for name in ("n_pass", "n_batches", "sequences", "steps", "updates", "pass_steps"):
        file_values.whole(name, getattr(position, name))
    file_values.number("seconds", position.seconds, 0.0)
    file_values.number("pass_log_likelihood", position.pass_log_likelihood)
    if position.log_likelihood is not None:
        file_values.number("log_likelihood", position.log_likelihood)
    file_values.flag("converged", position.converged)


def _within(values: Any, most: int) -> bool:
    return bool(values.min() >= 0 and values.max() < most)


def _check_history(history: Any) -> None:
    if type(history) is not list:
        raise ValueError("the history is not a list")
    for entry in history:
        known = Progress(**file_values.mapping("history", entry))
        for name in ("sequences", "steps", "updates", "states"):
            file_values.whole(name, getattr(known, name))
        for name in ("passes", "seconds", "move_seconds"):
            file_values.number(name, getattr(known, name), 0.0)
        for name in ("score", "bound"):
            value = getattr(known, name)
            if value is not None:
                file_values.number(name, value)
        for move in known.moves:
            file_values.mapping("moves", move)


def _check_provenance(provenance: Any) -> None:
    """Check what the command line reads: words for people, and options for reading data."""
    for name, value in file_values.mapping("provenance", provenance).items():
        if name in ("sequences", "steps"):
            file_values.whole(name, value)
        elif name == "columns":
            _check_texts(name, value)
        elif name != "reading":
            file_values.text(name, value)
    reading = file_values.mapping("reading", provenance.get("reading", {}))
    for name, value in reading.items():
        if name not in _READING:
            raise ValueError(f"data are not read by an option {name[:40]}")
        if name in ("column", "drop", "missing") and type(value) is list:
            _check_texts(name, value)
        elif type(value) is bool:
            continue
        elif value is not None:
            file_values.text(name, value)


def _check_texts(name: str, value: Any) -> None:
    if type(value) is not list:
        raise ValueError(f"{name} is not a list")
    for item in value:
        file_values.text(name, item)


def _check_typed(name: str, state: MoveState) -> None:
    """Check the fields of a data class of numbers by the types that it declares."""
    for field in fields(state):
        value = getattr(state, field.name)
        if field.type == "bool":
            file_values.flag(f"{name}.{field.name}", value)
        elif field.type == "int":
            file_values.whole(f"{name}.{field.name}", value)
        else:
            file_values.number(f"{name}.{field.name}", value)


def _check_compute(parameters: Mapping[str, Any]) -> None:
    n_jobs = parameters.get("n_jobs")
    if n_jobs is not None and not file_values.whole(
        "n_jobs", n_jobs, -_MOST_THREADS, _MOST_THREADS
    ):
        raise ValueError("n_jobs=0 has no meaning")
    for name, known in (("device", DEVICES), ("dtype", ("float32", "float64"))):
        if parameters.get(name, known[0]) not in known:
            raise ValueError(f"there is no {name} of this name")
    seed = parameters.get("random_state")
    if seed is not None:
        file_values.whole("random_state", seed)
