"""What `fit` does before it trains: checks, data with what is known of them, plan, minibatches."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn import results
from sojourn.backends.dask import Cluster, ClusterSource, ClusterTiles
from sojourn.data import Data
from sojourn.estimator import clone
from sojourn.families import Family
from sojourn.inference.known import refuse_contradictions
from sojourn.kernels.cpu import aside
from sojourn.models.advice import warn_of_blanks, warn_of_whole_numbers
from sojourn.models.checkpoints import Checkpoints, make_checkpoints
from sojourn.models.fixed import emission_of, take_given
from sojourn.models.parameters import (
    Whole,
    check_parameters,
    compute_of,
    inference_name,
    is_sampled,
    method_of,
    row_constraints,
)
from sojourn.models.plan import FEW_SEQUENCES, FULL_STEPS, Plan, plan_training
from sojourn.models.start import compute_for, is_symmetric
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches, RememberingSource
from sojourn.sources.arrow_arrays import Roles
from sojourn.sources.frames import TableUse
from sojourn.sources.npy import NpySource
from sojourn.transitions import HDP
from sojourn.transitions.constraints import RowConstraints

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM


def checked_options(
    model: BaseHMM,
    validation_every: int | None,
    checkpoint: str | PathLike[str] | None,
    checkpoint_every: int | None,
    client: Any,
    *,
    resume: bool,
) -> Checkpoints | None:
    """Check everything but the data; return what writes checkpoints."""
    check_parameters(model)
    take_given(model)
    if client is None:
        compute_of(model).backend()  # report a missing device before anything else happens
    if validation_every is not None:
        Whole(1).check("validation_every", validation_every)
    checkpoints = make_checkpoints(checkpoint, checkpoint_every, resume=resume)
    if checkpoints is None:
        return None
    if is_sampled(model) or method_of(model).remembers:
        raise ValueError(
            f"inference={inference_name(model)!r} keeps state that checkpoints do not contain, "
            "and cannot be resumed"
        )
    if not isinstance(model.n_init, str) and model.n_init > 1:
        raise ValueError("checkpoints need a single run: n_init=1")
    return checkpoints


def labelled_data(
    model: BaseHMM,
    X: Any,
    lengths: ArrayLike | None,
    y: Any,
    sample_weight: ArrayLike | None,
    roles: Roles,
) -> Data:
    """Check the data with their labels and weights, before anything changes."""
    data = Data(X, lengths, emission_of(model), y, sample_weight, TableUse(roles))
    data.label(model.state_names, model.n_states)
    _check_paths(data, row_constraints(model))
    data.weigh(np.inf if is_sampled(model) else FULL_STEPS)
    warn_of_whole_numbers(model.emission, data)
    warn_of_blanks(data)
    return data


def _check_paths(data: Data, constraints: RowConstraints | None) -> None:
    """Raise an error if labels and constraints contradict; files are read through for it."""
    refuse_contradictions(data.sequences, constraints)
    source = data.source
    if constraints is None or source is None or not (source.has_labels and source.is_repeatable):
        return
    first = 0
    for piece in source:
        refuse_contradictions(piece, constraints, first=first)
        first += len(piece)


def plan_of(model: BaseHMM, data: Data, family: Family) -> Plan:
    """Return how to go through the data: uncut where runs of steps cannot be read."""
    plan = plan_training(model, data.n_sequences, data.n_steps, family)
    # On a GPU other functions are needed, and few of these.
    device = compute_for(model, plan, remote=False).device
    kind = f"{type(model).__name__} {type(family).__name__} {plan.size.name.lower()}"
    aside.expect(kind if device == "cpu" else f"{kind} {device}")
    if device == "cuda" and isinstance(model._make_transitions(), HDP):
        aside.begin("sojourn.kernels.cpu.tables.geometric_prior")
    is_symmetrical = is_symmetric(family, model._make_transitions())
    is_auto, source = isinstance(model.tile_length, str), data.source
    is_read_once = source is not None and not source.is_repeatable
    if plan.narrow is not None and (data.n_labelled or not is_symmetrical or is_read_once):
        plan = plan._replace(narrow=None)  # states with labels are not to be merged
    if plan.tile_length is None or source is None:
        return plan
    if not is_auto and is_read_once:
        raise ValueError(
            f"tile_length={model.tile_length!r} cannot cut an iterable that can be read once: "
            "tile_length=None"
        )
    # To convert a file takes disk space: only where there would be no minibatches without.
    converts = not isinstance(source, NpySource) and data.n_sequences >= FEW_SEQUENCES
    if not (is_read_once or (is_auto and converts)):
        return plan
    uncut = clone(model).set_params(tile_length=None)
    uncut._given = model._given
    return plan_training(uncut, data.n_sequences, data.n_steps, family)


def minibatches_of(
    model: BaseHMM, plan: Plan, data: Data, family: Family, seed: int, cluster: Cluster | None
) -> Minibatches:
    """Return the minibatches for the training loop."""
    files = None
    if cluster is not None:
        files = results.remote_files(cluster, data, family, compute_of(model))
    if plan.tile_length is not None:
        tiles = data.tiles(family, plan.tile_length, plan.batch_size, seed, plan.whole_from)
        return tiles if files is None else ClusterTiles(files, tiles)
    if files is not None:
        return ClusterSource(files, plan.batch_size, seed)
    if not method_of(model).remembers:
        return data.minibatches(family, plan.batch_size, seed)
    if data.n_sequences < 2:
        raise ValueError(
            f"inference={inference_name(model)!r} subtracts a sequence from the statistics before "
            "updating it, and needs at least two"
        )
    return RememberingSource(in_memory(model, data), seed)


def in_memory(model: BaseHMM, data: Data) -> Sequences:
    """Return data that are in memory, or say why they must be."""
    if data.sequences is None:
        raise ValueError(
            f"inference={inference_name(model)!r} keeps statistics of every sequence, and takes "
            "data in memory only: sj.open(path).read_all()"
        )
    return data.sequences


def connect(model: BaseHMM, client: Any, data: Data) -> Cluster | None:
    """Check the client, that its workers can open the data, and that the method supports it."""
    is_remote = client is not None and data.source is not None
    if is_remote and not is_sampled(model) and method_of(model).remembers:
        in_memory(model, data)
    return results.connect(client, data)
