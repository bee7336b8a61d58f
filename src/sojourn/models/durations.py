"""How long states last: from the parameter `duration` to what training keeps of it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from sojourn.durations import (
    CategoricalDuration,
    GeometricDuration,
    NegativeBinomialDuration,
    check_duration,
)
from sojourn.inference.shapes import LearnedShapes, learns_shapes
from sojourn.kernels.threads import resolve_jobs
from sojourn.sources import Minibatches, RememberingSource
from sojourn.transitions.durations import (
    CategoricalDurations,
    NegativeBinomialDurations,
    StateDurations,
)

if TYPE_CHECKING:
    from sojourn.data import Data
    from sojourn.models.base import BaseHMM
    from sojourn.prediction import FittedModel

KINDS: dict[str, Any] = {
    "geometric": GeometricDuration,
    "negative-binomial": NegativeBinomialDuration,
    "categorical": CategoricalDuration,
}
"""Distributions of durations by name, for model files and the command line."""


def lasts(model: BaseHMM) -> bool:
    """Whether states last in a way of their own; one alone is never left."""
    known = (NegativeBinomialDuration, CategoricalDuration)
    return isinstance(model.duration, known) and model.n_states > 1


def durations_of(model: BaseHMM, n_states: int) -> StateDurations | None:
    """Return the durations that training begins with; None where they are geometric."""
    value = model.duration
    if not lasts(model):
        return None
    if isinstance(value, CategoricalDuration):
        entries = np.zeros((n_states, int(value.max_length)))
        return CategoricalDurations(entries, float(value.concentration))
    assert isinstance(value, NegativeBinomialDuration)
    prior = None if value.stay_prior is None else tuple(map(float, value.stay_prior))
    return NegativeBinomialDurations(
        np.full(n_states, 1 if value.shape is None else int(value.shape), dtype=np.int64),
        np.zeros(n_states),
        np.zeros(n_states),
        int(value.max_shape),
        value.shape is None and value.max_shape > 1,
        prior,  # type: ignore[arg-type]
    )


def refuse_with_durations(model: BaseHMM, *, sampled: bool, fixes_rows: bool) -> None:
    """Check `duration`, and refuse what is not known of states that last.

    Parameters
    ----------
    sampled : bool
        Whether the inference method is a sampler.
    fixes_rows : bool
        Whether parts of start and transitions are fixed.
    """
    check_duration(model.duration)
    if not lasts(model):
        return
    shown = type(model.duration).__name__
    if sampled:
        raise ValueError(f"duration={shown}(...) is for variational methods, not for samplers")
    stickiness = getattr(model, "stickiness", 0.0)
    if not isinstance(stickiness, int | float | np.number):
        raise ValueError(
            f"duration={shown}(...) learns how long states last: stickiness is a number then, "
            "a prior count of staying"
        )
    if model.transition_constraints is not None or fixes_rows:
        raise ValueError(
            f"duration={shown}(...) needs transitions from any state to any other: no "
            "transition_constraints, and neither start nor transitions fixed"
        )


def refuse_one_pass(model: BaseHMM, n_passes: int) -> None:
    """Refuse to learn shapes, which are learned between passes, where there is only one."""
    value = model.duration
    if n_passes > 1 or not lasts(model) or not isinstance(value, NegativeBinomialDuration):
        return
    if value.shape is None and value.max_shape > 1:
        raise ValueError(
            "NegativeBinomialDuration learns shapes between passes: n_passes of at least 2, or a "
            "shape that is given"
        )


def shapes_of(
    model: BaseHMM,
    fitted: FittedModel,
    source: Minibatches,
    data: Data,
    seed: int,
    first: int,
) -> LearnedShapes | None:
    """Return what learns the shapes of durations between passes, if they are to be learned.

    Parameters
    ----------
    first : int
        Passes with more states than asked for.
    """
    if not learns_shapes(fitted.posterior):
        return None
    if isinstance(source, RememberingSource):  # of which a minibatch is a sequence
        source = data.minibatches(fitted.family, None, seed)
    return LearnedShapes(source, fitted.family, seed, resolve_jobs(model.n_jobs), first)


def stored_duration(value: Any) -> Any:
    """Return a duration as JSON has it."""
    return {"kind": {kind: name for name, kind in KINDS.items()}[type(value)]} | asdict(value)


def restored_duration(value: Any) -> Any:
    """Undo `stored_duration`."""
    if not isinstance(value, dict):
        return value
    options = dict(value)
    kind = KINDS[options.pop("kind")]
    if options.get("stay_prior") is not None:
        options["stay_prior"] = tuple(options["stay_prior"])
    return kind(**options)
