"""A model by its parameters, see `HMM.from_parameters`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from sojourn.families import Family
from sojourn.families.given import given_statistics
from sojourn.inference import Posterior
from sojourn.kernels.interface import Floats
from sojourn.models.durations import lasts
from sojourn.models.fixed import Given, ParameterStatistics, fixed_parts_of, hold_emissions
from sojourn.models.parameters import check_parameters
from sojourn.models.start import new_fitted
from sojourn.transitions import Dirichlet, Rows

if TYPE_CHECKING:
    from sojourn.models.hmm import HMM

Model = TypeVar("Model", bound="HMM")

_ROUNDING = 1e-6  # how far the sums of given probabilities may be from one


def from_parameters(
    kind: type[Model],
    startprob: ArrayLike,
    transmat: ArrayLike,
    emission: Family,
    weight: float,
    given: dict[str, Any],
) -> Model:
    """Make a model whose posterior means are given parameters; see `HMM.from_parameters`."""
    chances = Rows(_chances("startprob", startprob, 1), _chances("transmat", transmat, 2))
    n_states = len(chances.start)
    if chances.transitions.shape != (n_states, n_states):
        raise ValueError(
            f"transmat has the shape {chances.transitions.shape} for {n_states} states"
        )
    if not (np.isfinite(weight) and weight > 0):
        raise ValueError(f"weight must be positive, got {weight!r}")
    if not isinstance(emission, Family):
        raise TypeError(f"emission must be an emission family, got {emission!r}")
    names = {name.removesuffix("_"): name for name in emission.parameter_names}
    parameters = {names[name]: value for name, value in given.items() if name in names}
    options = {name: value for name, value in given.items() if name not in names}
    family, emissions = given_statistics(emission, parameters, n_states, weight)
    never = {
        "transition_constraints": _never(chances.transitions),
        "start_constraints": _never(chances.start),
    }
    model = kind(n_states, family, **({"dtype": "float64"} | never | options))
    check_parameters(model)
    if lasts(model):
        raise ValueError("a transition matrix does not say how long states last: no duration here")
    counts = _counts(model, chances, weight)
    model.init = ParameterStatistics(counts.start, counts.transitions, emissions)
    parts = fixed_parts_of(model)
    if parts is not None:
        model._given = Given(chances, emissions, family)
    posterior = Posterior.from_statistics(model.init, model._make_transitions(), model.dtype)
    if parts is not None and model._given is not None:
        hold_emissions(posterior, parts, model._given)
    model._fitted = new_fitted(model, family, posterior, max(1, round(weight)))
    model._fitted.provenance = {"data": "given parameters"}
    return model


def _counts(model: HMM, chances: Rows, weight: float) -> Rows:
    """Return expected counts that give these probabilities together with the prior."""
    prior = model._make_transitions()
    plain = prior if isinstance(prior, Dirichlet) else prior.plain
    found = []
    for own, a in zip(chances, plain.learned, strict=True):
        total = weight + a.sum(axis=-1, keepdims=True)
        found.append(np.where(own > 0.0, np.maximum(own * total - a, 0.0), 0.0))
    return Rows(*found)


def _chances(name: str, value: ArrayLike, ndim: int) -> Floats:
    """Return probabilities as an array, or refuse them."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} is not an array of numbers") from None
    if array.ndim != ndim or array.size == 0:
        raise ValueError(f"{name} must have {ndim} axes, got the shape {array.shape}")
    sums = array.sum(axis=-1)
    if not (array >= 0.0).all() or (abs(sums - 1.0) > _ROUNDING).any():
        raise ValueError(f"{name} must have probabilities that sum to one")
    return array


def _never(chances: Floats) -> Floats | None:
    """Return constraints by which what has the probability zero keeps it; None without any."""
    return np.where(chances > 0.0, np.nan, 0.0) if (chances == 0.0).any() else None
