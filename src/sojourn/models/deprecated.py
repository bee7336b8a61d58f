"""Options that used to be separate parameters, and are now fields of a value.

One table lists the new place of each.  The constructors still accept the old names, with a warning,
and model files store the values under them, so that files of all versions can be read.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache, wraps
from types import MappingProxyType
from typing import Any, TypeVar, cast

import numpy as np

from sojourn.moves.settings import MoveSettings
from sojourn.sampling.settings import Sampling
from sojourn.transitions.options import HDPOptions

OLD_NAMES: dict[str, tuple[str, str]] = {
    "alpha_prior": ("hdp", "alpha_prior"),
    "gamma_prior": ("hdp", "gamma_prior"),
    "second_order_tables": ("hdp", "second_order_tables"),
    "sort_states": ("hdp", "sort_states"),
    "normalize_rows": ("hdp", "normalize_rows"),
    "occupancy": ("hdp", "occupancy"),
    "exchangeable_tables": ("hdp", "exchangeable_tables"),
    "n_samples": ("inference", "n_samples"),
    "burn_in": ("inference", "burn_in"),
    "thin": ("inference", "thin"),
    "n_chains": ("inference", "n_chains"),
    "init_states": ("moves", "init_states"),
    "stickiness_prior": ("stickiness", "prior"),
}
"""Old name: the parameter that contains it now, and the field of its value."""

_NEW_SPELLINGS = {
    "hdp": "hdp=sj.HDPOptions({field}=...)",
    "inference": 'inference=sj.Sampling("gibbs", {field}=...)',
    "moves": "moves=sj.MoveSettings({field}=...)",
    "stickiness": "stickiness=(shape, rate)",
}
_OLD_NAME_OF = {where: name for name, where in OLD_NAMES.items()}

STICKINESS_PRIOR = (1.0, 0.1)
"""Shape and rate of the Gamma prior of ``stickiness="learned"``."""

SAMPLERS = frozenset({"gibbs", "blocked-gibbs", "beam"})
"""Inference methods that have the fields of `Sampling`."""

Init = TypeVar("Init", bound=Callable[..., None])


def accepts_old_names(*parameters: str) -> Callable[[Init], Init]:
    """Let a constructor accept the old names of fields of some of its parameters.

    They give a `FutureWarning` that shows the new spelling.

    Examples
    --------
    >>> class Model:
    ...     @accepts_old_names("moves")
    ...     def __init__(self, moves=None):
    ...         self.moves = moves
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     model = Model(moves="auto", init_states=2)
    >>> model.moves.init_states
    2
    """
    known = {name: where for name, where in OLD_NAMES.items() if where[0] in parameters}

    def decorate(init: Init) -> Init:
        defaults = inspect.signature(init).parameters

        @wraps(init)
        def wrapper(self: Any, *args: Any, **kwargs: Any) -> None:
            given = {name: kwargs.pop(name) for name in known if name in kwargs}
            for name in given:
                parameter, field = known[name]
                spelling = _NEW_SPELLINGS[parameter].format(field=field)
                warnings.warn(
                    f"{name} is deprecated as a parameter: use {spelling}",
                    FutureWarning,
                    stacklevel=2,
                )
            for parameter in {known[name][0] for name in given}:
                now = kwargs.get(parameter, defaults[parameter].default)
                base, held = _split(parameter, now)
                held |= {known[n][1]: v for n, v in given.items() if known[n][0] == parameter}
                kwargs[parameter] = _joined(parameter, base, held)
            if "track_bound" in kwargs:
                warnings.warn(
                    "track_bound is deprecated as a parameter: use fit(..., track_bound=...)",
                    FutureWarning,
                    stacklevel=2,
                )
                self._track_bound = kwargs.pop("track_bound")
            init(self, *args, **kwargs)

        return cast(Init, wrapper)

    return decorate


def flatten(parameters: Mapping[str, Any], values: tuple[str, ...]) -> dict[str, Any]:
    """Return parameters as model files store them: fields of values under their old names.

    Parameters
    ----------
    parameters : mapping
        As `get_params` returns them.
    values : tuple of str
        Parameters that hold such values.

    Examples
    --------
    >>> flatten({"moves": MoveSettings(init_states=2)}, ("moves",))
    {'init_states': 2, 'moves': 'auto'}
    """
    flat = dict(parameters)
    for parameter in values:
        base, held = _split(parameter, flat.pop(parameter))
        if parameter != "hdp":
            flat[parameter] = base
        usual = _usual(parameter, base)
        for field, value in held.items():
            name = _OLD_NAME_OF.get((parameter, field))
            if name is not None:
                flat[name] = value
            elif not _is_same(value, usual[field]):
                flat[f"{parameter}.{field}"] = value
    return {name: flat[name] for name in sorted(flat)}


def restore(flat: Mapping[str, Any], values: tuple[str, ...]) -> dict[str, Any]:
    """Undo `flatten`; missing fields keep their defaults.

    Examples
    --------
    >>> restore({"moves": "auto", "init_states": 2}, ("moves",))["moves"].init_states
    2
    """
    parameters = dict(flat)
    parameters.pop("track_bound", None)  # an argument of `fit` now
    for parameter in values:
        if parameter != "hdp" and parameter not in parameters:
            continue
        base, held = _split(parameter, parameters.pop(parameter, None))
        for field in held:
            for name in (_OLD_NAME_OF.get((parameter, field)), f"{parameter}.{field}"):
                if name in parameters:
                    held[field] = parameters.pop(name)
        parameters[parameter] = _joined(parameter, base, held)
    return parameters


def _split(parameter: str, value: Any) -> tuple[Any, dict[str, Any]]:
    """Return a parameter's value in the old form, and the fields that were separate parameters."""
    if value is None or isinstance(value, str):
        base, held = _split_plain(parameter, value)
        return base, dict(held)
    return _split_any(parameter, value)


@cache
def _split_plain(parameter: str, value: str | None) -> tuple[Any, Mapping[str, Any]]:
    base, held = _split_any(parameter, value)
    return base, MappingProxyType(held)


def _split_any(parameter: str, value: Any) -> tuple[Any, dict[str, Any]]:
    if parameter == "stickiness":
        if isinstance(value, tuple | list | np.ndarray):
            return "learned", {"prior": value}
        return value, {"prior": STICKINESS_PRIOR}
    if parameter == "hdp":
        return None, _fields(HDPOptions() if value is None else value)
    if parameter == "moves":
        is_settings = isinstance(value, MoveSettings)
        return "auto" if is_settings else value, _fields(value if is_settings else MoveSettings())
    held = _fields(value if isinstance(value, Sampling) else Sampling(value))
    return held.pop("method"), held


def _usual(parameter: str, base: Any) -> Mapping[str, Any]:
    """Return the defaults of the fields."""
    return _split(parameter, base)[1]


def _joined(parameter: str, base: Any, held: dict[str, Any]) -> Any:
    """Undo `_split`; a plain value if all fields have their defaults."""
    usual = _usual(parameter, base)
    if all(_is_same(value, usual[field]) for field, value in held.items()):
        return base
    if parameter == "stickiness":
        return held["prior"] if isinstance(base, str) and base == "learned" else base
    if parameter == "hdp":
        return HDPOptions(**held)
    if parameter == "moves":
        if base is None:
            raise ValueError("init_states needs moves='auto', which lets the model grow")
        return MoveSettings(**held)
    return Sampling(base, **held) if base in SAMPLERS else base


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _is_same(value: Any, other: Any) -> bool:
    if value is other:
        return True
    return type(value) is type(other) and bool(np.all(value == other))
