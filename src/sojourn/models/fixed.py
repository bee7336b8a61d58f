"""Parts of a model that are given and not learned: start, transitions, emissions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sojourn.families import Family
from sojourn.families.prior_scale import rescaled
from sojourn.inference import Posterior, Statistics
from sojourn.kernels.interface import Floats
from sojourn.transitions import RowConstraints, Rows

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM

PARTS = ("start", "transitions", "emissions")
"""What can be fixed."""


class ParameterStatistics(Statistics):
    """Statistics that stand for given parameters; training gives them the mass of its data."""

    def scaled_to(self, n_steps: float) -> Statistics:
        """Return them as if from that many steps, or from as many as they have."""
        mass = float(self.start.sum() + self.transitions.sum())
        return self * min(1.0, n_steps / mass)


class FixedParts(NamedTuple):
    """Which parts are fixed.

    Attributes
    ----------
    start : bool
    transitions, emissions : (K,) boolean arrays
        Of which states.
    """

    start: bool
    transitions: NDArray[np.bool_]
    emissions: NDArray[np.bool_]

    @classmethod
    def of(cls, fixed: Any, n_states: int) -> FixedParts:
        """Check what a user gives.

        Examples
        --------
        >>> FixedParts.of({"emissions": [0, 2]}, 3).emissions
        array([ True, False,  True])
        """
        chosen = _as_mapping(fixed)
        found = {name: np.zeros(n_states, dtype=np.bool_) for name in PARTS}
        for name, states in chosen.items():
            if name not in PARTS:
                raise ValueError(f"fixed={fixed!r} has a part other than {', '.join(PARTS)}")
            if states is True:
                found[name][:] = True
                continue
            numbers = np.asarray(states)
            if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or name == "start":
                raise ValueError(
                    f"fixed: {name} must be True"
                    + ("" if name == "start" else " or a list of states")
                    + f", got {states!r}"
                )
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < n_states):
                raise ValueError(f"fixed: {name} has states that are not 0 to {n_states - 1}")
            found[name][numbers] = True
        return cls(bool(found["start"].all()), found["transitions"], found["emissions"])

    @property
    def has_rows(self) -> bool:
        """Whether any of start and transitions is fixed."""
        return self.start or bool(self.transitions.any())


def _as_mapping(fixed: Any) -> Mapping[str, Any]:
    if isinstance(fixed, str):
        return {fixed: True}
    if isinstance(fixed, Mapping):
        return fixed
    if isinstance(fixed, Collection) and all(isinstance(name, str) for name in fixed):
        return dict.fromkeys(fixed, True)
    raise ValueError(f"fixed={fixed!r} is not one or several of {', '.join(PARTS)}, nor a mapping")


class Given(NamedTuple):
    """What fixed parts are fixed to.

    Attributes
    ----------
    chances : Rows
        Probabilities of start and transitions.
    emissions : (K, S) array
        Emission statistics.
    family : Family
    """

    chances: Rows
    emissions: Floats
    family: Family


def given_by(model: BaseHMM, *, going_on: bool = False) -> Given | None:
    """Return what fixed parts are fixed to: by ``init``, or else by the model as it is.

    None where nothing is fixed.  `going_on` is for an update of the model as it is.
    """
    if model.fixed is None:
        return None
    fitted, init = vars(model).get("_fitted"), model.init
    begins_anew = isinstance(init, Statistics) and not isinstance(init, ParameterStatistics)
    if fitted is not None and (going_on or not begins_anew):
        chances = fitted.posterior.transitions.means(fitted.posterior.counts)
        return Given(chances, fitted.posterior.emissions.dense(), fitted.family)
    if fitted is None and model._given is not None:  # a restart has it from the model itself
        return model._given
    if not isinstance(init, Statistics):
        raise ValueError(
            f"fixed={model.fixed!r} needs parameters to fix: HMM.from_parameters(...), a model "
            "that was fitted or loaded, or init=Statistics(...)"
        )
    model._given = None
    own = model._make_transitions().means(Rows(init.start, init.transitions))
    return Given(own, init.emissions, model.emission)


def fixed_parts_of(model: BaseHMM) -> FixedParts | None:
    """Return which parts are given and not learned; None if all are learned."""
    return None if model.fixed is None else FixedParts.of(model.fixed, int(model.n_states))


def emission_of(model: BaseHMM) -> Family:
    """Return the emission family: that of fixed emissions, whose statistics belong to it."""
    parts = fixed_parts_of(model)
    if parts is None or model._given is None or not parts.emissions.any():
        return model.emission
    return model._given.family


def rescaling_of(model: BaseHMM, family: Family) -> Callable[[Floats], Family] | None:
    """Return what fits a resolved prior to statistics, eq (69); None where emissions are fixed."""
    parts = fixed_parts_of(model)
    if parts is not None and parts.emissions.any():
        return None
    return partial(rescaled, family, model._unresolved or model.emission)


def take_given(model: BaseHMM) -> Family:
    """Remember what fixed parts are fixed to; return the emission family."""
    model._given = given_by(model)
    return emission_of(model)


def fix_now(model: BaseHMM, posterior: Posterior) -> Posterior:
    """Fix parts of a posterior as they are, if the model says so and they are not fixed yet."""
    parts, given = fixed_parts_of(model), given_by(model, going_on=True)
    if parts is None or given is None:
        return posterior
    if posterior.emissions.held is None:
        hold_emissions(posterior, parts, given)
    if parts.has_rows:
        before = posterior.transitions.constraints
        made = with_fixed_rows(before, parts, given, posterior.n_states)
        posterior.transitions = posterior.transitions.constrained(made)
    return posterior


def with_fixed_rows(
    constraints: RowConstraints | None, parts: FixedParts, given: Given, n_states: int
) -> RowConstraints:
    """Return constraints in which the fixed rows are given completely."""
    if constraints is None:
        values = Rows(np.full(n_states, np.nan), np.full((n_states, n_states), np.nan))
    else:
        values = constraints.values
    start, rows = (part.copy() for part in values)
    if parts.start:
        start = np.array(given.chances.start, dtype=np.float64)
    rows[parts.transitions] = given.chances.transitions[parts.transitions]
    return RowConstraints.of(Rows(start, rows))


def hold_emissions(posterior: Posterior, parts: FixedParts, given: Given) -> None:
    """Give the fixed states their emissions, and let no update change them."""
    states = np.flatnonzero(parts.emissions)
    if not len(states):
        return
    dense = posterior.emissions.dense()
    if given.emissions.shape != dense.shape:
        raise ValueError(
            f"the fixed emissions have the shape {given.emissions.shape}, the model {dense.shape}"
        )
    dense[states] = given.emissions[states]
    posterior.emissions = posterior.emissions.refilled(dense)
    posterior.emissions.hold(states)
