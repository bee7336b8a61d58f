"""Parameters of the estimators: their constraints, and values derived from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from sojourn import memory
from sojourn.backends.compute import DEVICES, Compute
from sojourn.families import Categorical, Family, Product
from sojourn.families.registry import SINGLE_FAMILIES
from sojourn.inference import METHODS, Method, Schedule, Statistics, StepSizes
from sojourn.inference.schedule import LinearDecay
from sojourn.models.deprecated import STICKINESS_PRIOR, flatten
from sojourn.models.durations import lasts, refuse_with_durations, stored_duration
from sojourn.models.fixed import fixed_parts_of, with_fixed_rows
from sojourn.moves.settings import MoveSettings
from sojourn.prediction import EstimatorRecord
from sojourn.sampling.settings import Sampling
from sojourn.transitions import GammaDistribution, RowConstraints
from sojourn.transitions.options import HDPOptions

if TYPE_CHECKING:
    from sojourn.models.base import BaseHMM

TUNINGS = ("steps", "concentration", "base")
_CONSTRAINTS = ("transition_constraints", "start_constraints")


# ---- constraints --------------------------------------------------------------------------------


class Constraint(Protocol):
    """A condition on the value of a parameter."""

    def check(self, name: str, value: Any) -> None:
        """Refuse a bad value with a message that names the parameter."""


@dataclass(frozen=True)
class Whole:
    """An integer of at least `least`, or None if `or_none`."""

    least: int
    or_none: bool = False

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        if self.or_none and value is None:
            return
        is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
        if not is_whole or value < self.least:
            raise ValueError(
                f"{name} must be a whole number of at least {self.least}, got {value!r}"
            )


@dataclass(frozen=True)
class Number:
    """A finite number between bounds."""

    least: float
    most: float

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        if not (is_number and np.isfinite(value) and self.least <= value <= self.most):
            raise ValueError(
                f"{name}={value!r} is not a finite number between {self.least} and {self.most}"
            )


@dataclass(frozen=True)
class OneOf:
    """One of some names, or an instance of some types; `problem` completes the error message."""

    names: tuple[str, ...]
    problem: str
    types: tuple[type, ...] = ()

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        if not ((isinstance(value, str) and value in self.names) or isinstance(value, self.types)):
            raise ValueError(f"{name}={value!r} is {self.problem}")


@dataclass(frozen=True)
class GammaPrior:
    """Shape and rate of a Gamma distribution."""

    def check(self, name: str, value: Any) -> None:
        """Refuse anything but a pair of positive numbers."""
        as_gamma(name, value)


@dataclass(frozen=True)
class Emission:
    """An emission family."""

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        if isinstance(value, Family):
            return
        if isinstance(value, type) and issubclass(value, Family):
            is_product = value is Product
            how = "Product(...) of others" if is_product else f"{value.__name__}()"
            raise TypeError(f"{name} must be an emission family, not its class: sojourn.{how}")
        if isinstance(value, str):
            plain = value.lower().replace("_", "").replace("-", "").replace(" ", "")
            like = [f for f in SINGLE_FAMILIES if f.lower() == plain] or sorted(SINGLE_FAMILIES)
            named = " or ".join(f"sojourn.{family}()" for family in like[:1])
            known = "" if len(like) == 1 else f"; there are {', '.join(like)}"
            raise TypeError(
                f"{name} must be an emission family such as {named}, got {value!r}{known}"
            )
        raise TypeError(f"{name} must be an emission family, got {value!r}")


@dataclass(frozen=True)
class AutoOr:
    """The word "auto", or what another constraint allows."""

    other: Constraint

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        if not (isinstance(value, str) and value == "auto"):
            self.other.check(name, value)


@dataclass(frozen=True)
class Names:
    """Different names for some of the states, or None."""

    def check(self, name: str, value: Any) -> None:
        """Refuse anything else."""
        if value is None:
            return
        given = None if isinstance(value, str) else list(value)
        if given is None or not all(isinstance(item, str) and item for item in given):
            raise ValueError(f"{name} must be names, strings that are not empty, got {value!r}")
        if len(set(given)) < len(given):
            raise ValueError(f"{name} has a name twice: {value!r}")


_NONE = type(None)

COMMON: dict[str, Constraint] = {
    "n_states": Whole(1),
    "n_passes": AutoOr(Whole(1)),
    "n_init": AutoOr(Whole(1)),
    "batch_size": AutoOr(Whole(1, or_none=True)),
    "tile_length": AutoOr(Whole(1, or_none=True)),
    "buffer": AutoOr(Whole(0, or_none=True)),
    "tol": Number(0.0, np.inf),
    "emission": Emission(),
    "forgetting_rate": Number(0.0, 1.0),
    "delay": Number(0.0, np.inf),
    "dtype": OneOf(("float32", "float64"), "neither 'float32' nor 'float64'"),
    "init": OneOf(
        ("auto", "exponential", "segments"),
        "neither 'auto', 'exponential', 'segments' nor Statistics",
        (Statistics,),
    ),
    "moves": OneOf(("auto",), "neither 'auto', None nor MoveSettings", (MoveSettings, _NONE)),
    "device": OneOf(DEVICES, f"not one of {list(DEVICES)}"),
    "n_jobs": Whole(-(2**31), or_none=True),
    "state_names": Names(),
}
"""Constraints on the parameters that all estimators have."""

FIELDS: dict[type, dict[str, Constraint]] = {
    Sampling: {"n_samples": Whole(1), "burn_in": Whole(0), "thin": Whole(1), "n_chains": Whole(1)},
    MoveSettings: {"init_states": Whole(1, or_none=True)},
    HDPOptions: {
        "alpha_prior": GammaPrior(),
        "gamma_prior": GammaPrior(),
        "occupancy": OneOf(("auto", "exact", "fast"), "not 'auto', 'exact' or 'fast'"),
    },
}
"""Constraints on the fields of parameters that are objects with fields."""


def check_parameters(model: BaseHMM) -> None:
    """Reject invalid parameters before anything else happens."""
    _check_all(model, model._constraints)
    if not memory.fits(model.n_states**2):
        size = memory.gigabytes(model.n_states**2)
        raise ValueError(f"n_states={model.n_states} needs a transition matrix of {size}")
    if model.state_names is not None and len(model.state_names) > model.n_states:
        raise ValueError(f"{len(model.state_names)} state_names for n_states={model.n_states}")
    _check_inference(model)
    for value in model.get_params(deep=False).values():
        _check_all(value, FIELDS.get(type(value), {}))
    parts = fixed_parts_of(model)
    fixes_rows = parts is not None and parts.has_rows
    refuse_with_durations(model, sampled=is_sampled(model), fixes_rows=fixes_rows)
    _check_moves(model)
    _check_constraints(model)


def _check_all(owner: Any, constraints: Mapping[str, Constraint]) -> None:
    for name, constraint in constraints.items():
        constraint.check(name, getattr(owner, name))


def _check_inference(model: BaseHMM) -> None:
    """Check the other parameters against the inference method."""
    name = inference_name(model)
    offered = model._methods | model._samplers
    if name not in offered or (isinstance(model.inference, Sampling) and not is_sampled(model)):
        raise ValueError(
            f"inference={model.inference!r} is not one of {sorted(offered)} "
            f"for {type(model).__name__}"
        )
    if model.device == "cuda" and (is_sampled(model) or method_of(model).remembers):
        raise ValueError(
            f"inference={name!r} processes one sequence at a time, and runs on the CPU only: "
            "device='cpu'"
        )
    has_point = isinstance(model.emission, Categorical) or getattr(
        model.emission, "has_point", False
    )
    if name == "em" and not has_point:
        raise ValueError(
            "inference='em' estimates parameters of Categorical, Gaussian and Poisson emissions "
            f"and the like: use 'vb' or 'scvi' for {type(model.emission).__name__}"
        )
    cuts = not (model.tile_length is None or isinstance(model.tile_length, str))
    if cuts and (is_sampled(model) or method_of(model).remembers):
        raise ValueError(
            f"inference={name!r} keeps something for every sequence, and cannot cut them: "
            "tile_length=None"
        )
    tuned = tunings(model)
    if set(tuned) - set(TUNINGS):
        raise ValueError(f"tuned={model.tuned!r} has names other than {', '.join(TUNINGS)}")
    if tuned and (is_sampled(model) or not method_of(model).is_stochastic):
        raise ValueError(
            f"tuned is for the stochastic inference methods, 'scvi' and 'svi', not {name!r}"
        )


def _check_moves(model: BaseHMM) -> None:
    begins = move_settings(model).init_states
    if begins is None:
        return
    if begins > model.n_states:
        raise ValueError(f"init_states={begins} is more than n_states={model.n_states}")
    if not may_move(model):
        raise ValueError(
            "init_states needs moves='auto' and inference='scvi', which let the model grow"
        )
    if lasts(model) and begins == 1:
        raise ValueError("init_states must be at least 2 with a duration: one state is never left")


def constraints_of(model: BaseHMM) -> RowConstraints | None:
    """Return what the parameters say of start and transitions; None if nothing."""
    n_states = int(model.n_states)
    made = RowConstraints.make(n_states, model.transition_constraints, model.start_constraints)
    parts = fixed_parts_of(model)
    if parts is None or not parts.has_rows or model._given is None:
        return made
    return with_fixed_rows(made, parts, model._given, n_states)


def row_constraints(model: BaseHMM) -> RowConstraints | None:
    """Return the same; where states last, rows lead from each to the others."""
    known = constraints_of(model)
    return RowConstraints.between(int(model.n_states), known) if lasts(model) else known


def holds_emissions(model: BaseHMM) -> bool:
    """Whether emissions of any state are given and not learned."""
    parts = fixed_parts_of(model)
    return parts is not None and bool(parts.emissions.any())


def is_constrained(model: BaseHMM) -> bool:
    """Whether anything is known of start and transitions."""
    parts = fixed_parts_of(model)
    return constraints_of(model) is not None or (parts is not None and parts.has_rows)


def _check_constraints(model: BaseHMM) -> None:
    """Refuse constraints and fixed parts that are none, and where they cannot be held."""
    name = inference_name(model)
    if holds_emissions(model):
        if is_sampled(model):
            raise ValueError(f"inference={name!r} draws the emissions, and cannot hold fixed ones")
        if {"concentration", "base"} & set(tunings(model)):
            raise ValueError("fixed emissions need a prior that is not learned: tuned=False")
    if not is_constrained(model):
        return
    if name in ("gibbs", "beam"):
        others = sorted(model._methods | model._samplers & {"blocked-gibbs"})
        why = "draws states one by one" if model._samplers & {"blocked-gibbs"} else "makes states"
        raise ValueError(
            f"inference={name!r} {why}, and cannot hold constraints; {', '.join(others)} can"
        )
    if move_settings(model).init_states is not None:
        raise ValueError("init_states needs states that are free to move: no constraints")


def as_gamma(name: str, value: Any) -> GammaDistribution:
    """Return a Gamma distribution with positive shape and rate, or reject the value."""
    pair = np.asarray(value, dtype=np.float64)
    if pair.shape != (2,) or not (np.isfinite(pair).all() and (pair > 0).all()):
        raise ValueError(f"{name} must be a positive shape and rate, got {value!r}")
    return GammaDistribution(*pair.tolist())


def fixed_stickiness(stickiness: Any, inference: str, *, takes_prior: bool = False) -> float | None:
    """Check a stickiness, and return it if it is fixed, None if it is to be learned.

    `takes_prior` allows the shape and rate of its prior instead of "learned".
    """
    is_pair = takes_prior and isinstance(stickiness, tuple | list | np.ndarray)
    if not is_pair and not (isinstance(stickiness, str) and stickiness == "learned"):
        is_number = isinstance(stickiness, int | float | np.number)
        is_number = is_number and not isinstance(stickiness, bool)
        if not (is_number and np.isfinite(stickiness) and stickiness >= 0.0):
            pair = ", or a pair (shape, rate) of its prior" if takes_prior else ""
            raise ValueError(
                f'stickiness={stickiness!r} is neither a finite number from 0 nor "learned"{pair}'
            )
        return float(stickiness)
    if inference != "scvi":
        raise ValueError(f"stickiness={stickiness!r} needs inference='scvi', not {inference!r}")
    return None


def stickiness_prior(stickiness: Any) -> GammaDistribution:
    """Return the Gamma prior of a stickiness that is learned."""
    return as_gamma("stickiness", STICKINESS_PRIOR if isinstance(stickiness, str) else stickiness)


# ---- values derived from parameters -------------------------------------------------------------


def inference_name(model: BaseHMM) -> str:
    """Return the name of the inference method."""
    value = model.inference
    return value.method if isinstance(value, Sampling) else value


def is_sampled(model: BaseHMM) -> bool:
    """Whether the inference method is a sampler."""
    return inference_name(model) in model._samplers


def method_of(model: BaseHMM) -> Method:
    """Return the variational method."""
    return METHODS[inference_name(model)]


def sampling_of(model: BaseHMM) -> Sampling:
    """Return the settings of the sampler."""
    value = model.inference
    return value if isinstance(value, Sampling) else Sampling(value)


_USUAL_MOVES = MoveSettings()


def move_settings(model: BaseHMM) -> MoveSettings:
    """Return the settings of moves, the defaults if none are given."""
    return model.moves if isinstance(model.moves, MoveSettings) else _USUAL_MOVES


def may_move(model: BaseHMM) -> bool:
    """Whether states may change; proposals are judged by the collapsed bound, so only with SCVI.

    Those with given emissions stay as they are.  A learned prior on symbols is held fixed while
    they are judged.
    """
    named = inference_name(model) == "scvi"
    return model.moves is not None and named and not holds_emissions(model)


def begin_states(model: BaseHMM) -> int:
    """Return the number of states that training begins with."""
    begins = move_settings(model).init_states
    return int(model.n_states if begins is None else begins)


def compute_of(model: BaseHMM) -> Compute:
    """Return device, threads and precision of the computation."""
    begins = begin_states(model) if may_move(model) else None
    return Compute(model.device, model.n_jobs, model.dtype, begins)


def tunings(model: BaseHMM) -> tuple[str, ...]:
    """Return the names of the improvements on the paper's algorithm that were asked for."""
    if isinstance(model.tuned, bool | np.bool_):
        return TUNINGS if model.tuned else ()
    if isinstance(model.tuned, str) and model.tuned == "auto":
        return ()
    return (model.tuned,) if isinstance(model.tuned, str) else tuple(model.tuned)


def schedule_of(model: BaseHMM) -> Schedule:
    """Return the step sizes of the paper."""
    return method_of(model).schedule(float(model.forgetting_rate), float(model.delay))


def step_sizes(
    model: BaseHMM, n_passes: int, n_sequences: int, n_steps: float, batch_size: int | None
) -> StepSizes:
    """Return the step sizes for `n_passes` passes over data of the given size."""
    if "steps" not in tunings(model):
        return schedule_of(model)
    return LinearDecay.plan(
        model.n_states, n_passes, batch_size or n_sequences, n_sequences, n_steps
    )


def record_of(model: BaseHMM) -> EstimatorRecord:
    """Return class and parameters as model files store them.

    A `Statistics` given as ``init`` and a random generator are not stored.
    """
    stored: dict[str, Any] = {}
    for name, value in flatten(model.get_params(deep=False), model._values).items():
        if name == "emission" or (name in ("state_names", "duration") and value is None):
            continue
        if isinstance(value, Statistics):
            stored[name] = "exponential"
        elif name == "state_names":
            stored[name] = tuple(value)
        elif name == "duration":
            stored[name] = stored_duration(value)
        elif name == "fixed":
            stored[name] = _stored_fixed(value)
        elif name == "tuned" and not isinstance(value, bool | str):
            stored[name] = tunings(model)
        elif isinstance(value, np.random.Generator | np.random.RandomState):
            stored[name] = None
        elif isinstance(value, np.generic):
            stored[name] = value.item()
        elif isinstance(value, list):
            stored[name] = np.asarray(value)
        elif name in _CONSTRAINTS and not (value is None or isinstance(value, str)):
            stored[name] = np.asarray(value, dtype=np.float64)
        else:
            stored[name] = value
    return EstimatorRecord(type(model).__name__, stored)


def _stored_fixed(fixed: Any) -> Any:
    """Return what is fixed as JSON has it."""
    if fixed is None or isinstance(fixed, str):
        return fixed
    if isinstance(fixed, Mapping):
        return {name: v if v is True else np.asarray(v).tolist() for name, v in fixed.items()}
    return tuple(sorted(fixed))
