"""What `partial_fit` does: one update with a minibatch, or with a piece of a longer sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn.data import Data, is_source
from sojourn.families import Family
from sojourn.inference import Posterior, Problem, Progress, step
from sojourn.inference.problem import Tiled
from sojourn.models.parameters import (
    Whole,
    check_parameters,
    inference_name,
    is_sampled,
    method_of,
    step_sizes,
    tunings,
)
from sojourn.models.plan import N_PASSES
from sojourn.models.start import initial_posterior, make_moves, new_fitted
from sojourn.prediction import FittedModel
from sojourn.random_state import as_seed
from sojourn.sequences import Sequences
from sojourn.sources.arrow_arrays import NO_ROLES, Roles
from sojourn.sources.frames import TableUse

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM

CARRIED_STEPS = 2**8
"""Steps of a sequence that are kept for a piece that continues it, beside the family's past."""


def partial_fit(
    model: BaseHMM,
    X: Any,
    lengths: ArrayLike | None,
    total_sequences: int | None,
    total_steps: int | None = None,
    roles: Roles = NO_ROLES,
    *,
    continues: bool = False,
) -> None:
    """Update with one minibatch, whatever its size; see `BaseHMM.partial_fit`."""
    check_parameters(model)
    before: FittedModel | None = model.fitted_ if model.__sklearn_is_fitted__() else None
    total_sequences = _checked_total(model, before, total_sequences)
    family = model.emission if before is None else before.family
    if is_source(X):
        raise TypeError("partial_fit takes one minibatch in memory; fit takes files and sources")
    given = _given(before, X, lengths, family, roles)
    data = given.sequences
    assert data is not None
    total_steps = _checked_steps(before, data, total_steps, continues=continues)
    _check_starts(len(data) - continues, total_sequences)
    if before is None:
        family = given.resolve(family, model.n_states)[0]
    data = family.validate(data)
    carried = data[len(data) - 1 :]
    if continues:
        assert before is not None
        steps, begins = before.carried
        data = _continued(steps, begins, data)
        carried = data[len(data) - 1 :]
    share = _share(data, total_sequences, total_steps)
    if before is None:
        seed = as_seed(model.random_state)
        steps = data.n_counted / share
        posterior = initial_posterior(
            model, family, data, total_sequences, steps, seed, tuned=tunings(model)
        )
        fitted = new_fitted(model, family, posterior, total_sequences)
        fitted.provenance = given.record()
    else:
        posterior, fitted = before.posterior, before
    n_passes = N_PASSES if isinstance(model.n_passes, str) else int(model.n_passes)
    n_units = max(len(data), round(len(data) / share))
    schedule = step_sizes(model, n_passes, n_units, data.n_counted / share, len(data))
    tiled = None if total_steps is None else Tiled(total_sequences, total_steps)
    problem = Problem(family, method_of(model).objective, schedule, n_units, tiled)
    backend = fitted.compute.backend()
    with backend.running():
        placed = backend.place(posterior)
        info = step(problem, placed, backend.chunks(family, data, placed.n_states), backend)
        backend.finish_pass()
        fitted.posterior, fitted.total_sequences = placed.fetched(), total_sequences
        fitted.total_steps = total_steps
        kept = min(carried.n_steps, CARRIED_STEPS + family.past)
        begins = kept == carried.n_steps and not (
            carried.counted is not None and carried.counted[0, 2]
        )
        fitted.carried = carried.values[carried.n_steps - kept :].copy(), begins
        model._fitted = fitted
        _move_once(model, fitted, placed, data, n_units, info.step_size)


def _check_starts(n_starts: int, total_sequences: int) -> None:
    """Refuse a minibatch with more sequences than there are."""
    if total_sequences < n_starts:
        raise ValueError(
            f"the minibatch has {n_starts} sequences, total_sequences={total_sequences}"
        )


def _given(
    before: FittedModel | None, X: Any, lengths: ArrayLike | None, family: Family, roles: Roles
) -> Data:
    """Return a minibatch; tables are used as those of earlier calls."""
    if before is None:
        return Data(X, lengths, family, TableUse(roles))
    return before.prepare(X, lengths)


def _share(data: Sequences, total_sequences: int, total_steps: int | None) -> float:
    """Return which share of the complete data set a minibatch is: by steps, if these are known."""
    if total_steps is None:
        return len(data) / total_sequences
    return data.n_counted / total_steps


def _continued(carried: Any, begins: bool, data: Sequences) -> Sequences:
    """Put the last steps of the previous call before the first sequence, which goes on there.

    `begins` says whether they begin their sequence.
    """
    n = len(carried)
    values = np.concatenate([carried.astype(data.values.dtype, copy=False), data.values])
    offsets = data.offsets + n
    offsets[0] = 0
    counted = np.zeros((len(data), 4), dtype=np.int64)
    counted[:, 1] = data.lengths
    counted[0] = [n, n + data.lengths[0], not begins, 0]
    return Sequences(values, offsets, counted)


def _checked_steps(
    before: FittedModel | None, data: Sequences, total: int | None, *, continues: bool
) -> int | None:
    """Return the number of steps of the data set, which pieces of sequences need."""
    if total is None and before is not None:
        total = before.total_steps
    if total is not None:
        Whole(1).check("total_steps", total)
        if data.n_steps > total:
            raise ValueError(f"the minibatch has {data.n_steps} steps, total_steps={total}")
    if not continues:
        return total
    if before is None or before.carried is None:
        raise ValueError("continues=True needs a call of partial_fit before it, to go on from")
    if total is None:
        raise ValueError(
            "continues=True needs total_steps, the number of steps in the data set: a piece of a "
            "sequence is weighted by its share of them"
        )
    return total


def _checked_total(model: BaseHMM, before: FittedModel | None, total: int | None) -> int:
    """Return the size of the data set, which must be given with the first minibatch."""
    if is_sampled(model) or not method_of(model).is_stochastic:
        raise ValueError(
            "partial_fit needs a stochastic inference method, 'scvi' or 'svi': "
            f"inference={inference_name(model)!r} needs all the data at every update"
        )
    if total is None:
        if before is None:
            raise ValueError(
                "partial_fit needs total_sequences, the number of sequences in the data set, at "
                "the first call: each minibatch is weighted by its share of it"
            )
        total = before.total_sequences
    Whole(1).check("total_sequences", total)
    return total


def _move_once(
    model: BaseHMM,
    fitted: FittedModel,
    posterior: Posterior,
    data: Sequences,
    total: int,
    step_size: float,
) -> None:
    """Make moves on the minibatch of `partial_fit`, if it is large enough."""
    state = fitted.move_state
    moves = make_moves(model, fitted.family, posterior, state.n_rounds, state=state)
    if moves is None:
        return
    moves.observe(data.n_counted, len(data), posterior.n_states, step_size)
    if moves.can_judge_on(data.n_counted, posterior):
        made = moves.run_round(posterior, fitted.family, [data], total)
        fitted.posterior = posterior.fetched()
        _record(fitted, made)


def _record(fitted: FittedModel, made: list[dict[str, Any]]) -> None:
    """Record the proposals of `partial_fit`; passes and times are those of the last `fit`."""
    if made:
        before = Progress(0.0, 0, 0, 0, 0.0, None)._asdict()
        before |= fitted.history[-1] if fitted.history else {}
        after = fitted.posterior
        now = {"updates": after.n_updates, "states": after.n_states, "moves": made}
        unknown = {"score": None, "bound": None, "move_seconds": 0.0}
        fitted.history.append(before | now | unknown)
