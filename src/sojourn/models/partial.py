"""What `partial_fit` does: one update with a minibatch, or with a piece of a longer sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from sojourn.data import Data, is_source
from sojourn.families import Family
from sojourn.families.words import words_of
from sojourn.inference import Posterior, Problem, Progress, step
from sojourn.inference.known import refuse_contradictions
from sojourn.inference.problem import Tiled
from sojourn.inference.shapes import learn_after_update
from sojourn.labels import Labels
from sojourn.models.fixed import fix_now, take_given
from sojourn.models.parameters import (
    Whole,
    check_parameters,
    compute_of,
    inference_name,
    is_sampled,
    method_of,
    row_constraints,
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
    y: Any = None,
    sample_weight: ArrayLike | None = None,
) -> None:
    """Update with one minibatch, whatever its size; see `BaseHMM.partial_fit`."""
    check_parameters(model)
    before: FittedModel | None = model.fitted_ if model.__sklearn_is_fitted__() else None
    total_sequences = _checked_total(model, before, total_sequences)
    family = model.emission if before is None else before.family
    known = _known(model, before, X, lengths, y, sample_weight, roles)
    data = known.sequences
    assert data is not None
    total_steps = _checked_steps(before, data, total_steps, continues=continues)
    _check_starts(len(data) - continues, total_sequences)
    if before is None:
        family = known.resolve(take_given(model), model.n_states)[0]
    data = _joined(model, before, family.validate(data), continues=continues)
    carried = data[len(data) - 1 :]
    share = _share(data, total_sequences, total_steps)
    if before is None:
        seed = as_seed(model.random_state)
        steps = data.n_counted / share
        posterior = initial_posterior(
            model, family, data, total_sequences, steps, seed, tuned=tunings(model)
        )
        fitted = new_fitted(model, family, posterior, total_sequences)
        fitted.provenance = known.record()
    else:
        posterior, fitted = fix_now(model, before.posterior), before
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
        placed.held = max(placed.held, known.n_labelled)
        learn_after_update(placed, family, data, backend.n_threads)
        fitted.posterior, fitted.total_sequences = placed.fetched(), total_sequences
        fitted.total_steps, fitted.state_names = total_steps, known.names
        fitted.carried = _carried(carried, family)
        model._fitted = fitted
        _move_once(model, fitted, placed, data, n_units, info.step_size)


def _check_starts(n_starts: int, total_sequences: int) -> None:
    """Refuse a minibatch with more sequences than there are."""
    if total_sequences < n_starts:
        raise ValueError(
            f"the minibatch has {n_starts} sequences, total_sequences={total_sequences}"
        )


def _known(
    model: BaseHMM,
    before: FittedModel | None,
    X: Any,
    lengths: ArrayLike | None,
    y: Any,
    sample_weight: ArrayLike | None,
    roles: Roles,
) -> Data:
    """Return a minibatch with its labels; names are those of the first one that has any."""
    if is_source(X):
        raise TypeError("partial_fit takes one minibatch in memory; fit takes files and sources")
    family = model.emission if before is None else before.family
    use = TableUse(roles)
    if before is not None:
        use = TableUse.of(before.provenance, words_of(before.family))
    data = Data(X, lengths, family, y, sample_weight, use)
    names, n_states = model.state_names, model.n_states
    if before is not None:
        names = before.state_names if names is None else names
        n_states = before.posterior.n_states
    return data.label(names, n_states)


def _carried(last: Sequences, family: Family) -> tuple[Any, bool]:
    """Return the last steps of a sequence that may go on, and whether they begin it."""
    kept = min(last.n_steps, CARRIED_STEPS + family.past)
    begins = kept == last.n_steps and not (last.counted is not None and last.counted[0, 2])
    return last.values[last.n_steps - kept :].copy(), begins


def _share(data: Sequences, total_sequences: int, total_steps: int | None) -> float:
    """Return which share of the complete data set a minibatch is: by steps, if these are known."""
    if total_steps is None:
        return len(data) / total_sequences
    return data.n_counted / total_steps


def _joined(
    model: BaseHMM, before: FittedModel | None, data: Sequences, *, continues: bool
) -> Sequences:
    """Put what was kept of the previous call before a minibatch; check its labels."""
    if continues:
        assert before is not None
        steps, begins = before.carried
        data = _continued(steps, begins, data)
    known = row_constraints(model) if before is None else before.posterior.transitions.constraints
    refuse_contradictions(data, known)
    return data


def _continued(carried: Any, begins: bool, data: Sequences) -> Sequences:
    """Put the last steps of the previous call before the first sequence, which goes on there.

    `begins` says whether they begin their sequence.
    """
    n = len(carried)
    values = np.concatenate([carried.astype(data.values.dtype, copy=False), data.values])
    labels = data.labels
    if labels is not None:  # of the steps before nothing is kept
        labels = Labels(np.append(np.zeros(n, np.int32), labels.codes), labels.table)
    offsets = data.offsets + n
    offsets[0] = 0
    counted = np.zeros((len(data), 4), dtype=np.int64)
    counted[:, 1] = data.lengths
    counted[0] = [n, n + data.lengths[0], not begins, 0]
    return Sequences(values, offsets, counted, labels, data.weights)


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
    moves = make_moves(
        model, fitted.family, posterior, compute_of(model), state.n_rounds, state=state
    )
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
