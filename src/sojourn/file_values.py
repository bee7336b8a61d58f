"""Checks of single values that come from a file: type, sign, size and shape."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LARGEST_WHOLE = 2**62
_LARGEST = 1e300
_ROUNDING = 1e-6  # relative to the largest: how far below zero rounding may bring a sum


def whole(name: str, value: Any, least: int = 0, most: int = _LARGEST_WHOLE) -> int:
    """Return a whole number between bounds.

    Examples
    --------
    >>> whole("n", 3)
    3
    """
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{name}={_shown(value)} is not a whole number from {least} to {most}")
    return value


def number(name: str, value: Any, least: float = -_LARGEST, most: float = _LARGEST) -> float:
    """Return a finite number between bounds."""
    if type(value) not in (int, float) or not least <= value <= most:
        raise ValueError(f"{name}={_shown(value)} is not a number from {least:g} to {most:g}")
    return float(value)


def positive(name: str, value: Any) -> float:
    """Return a positive number that is neither huge nor tiny."""
    return number(name, value, 1.0 / _LARGEST)


def flag(name: str, value: Any) -> bool:
    """Return True or False."""
    if type(value) is not bool:
        raise ValueError(f"{name}={_shown(value)} is neither true nor false")
    return value


def text(name: str, value: Any) -> str:
    """Return a string."""
    if type(value) is not str:
        raise ValueError(f"{name}={_shown(value)} is not a string")
    return value


def mapping(name: str, value: Any) -> Mapping[str, Any]:
    """Return a JSON object."""
    if type(value) is not dict:
        raise ValueError(f"{name}={_shown(value)} is not an object")
    return value


def array(
    name: str, value: Any, shape: tuple[int, ...], *, kinds: str = "f", least: float | None = None
) -> NDArray[Any]:
    """Return an array of finite numbers of a shape; `least` up to rounding.

    Examples
    --------
    >>> array("counts", np.array([1.0, -1e-12]), (2,), least=0.0).shape
    (2,)
    """
    if not isinstance(value, np.ndarray) or value.dtype.kind not in kinds:
        kind = getattr(value, "dtype", type(value).__name__)
        raise ValueError(f"{name} has the type {kind}")
    if value.shape != shape:
        raise ValueError(f"{name} has the shape {value.shape}, not {shape}")
    if value.size == 0:
        return value
    low, high = float(value.min()), float(value.max())
    if not (math.isfinite(low) and math.isfinite(high) and max(high, -low) <= _LARGEST):
        raise ValueError(f"{name} has values that are not finite, or too large")
    if least is not None and low < least - _ROUNDING * max(1.0, high):
        raise ValueError(f"{name} has the value {low}, below {least}")
    return value


def _shown(value: Any) -> str:
    shown = repr(value) if type(value) in (int, float, bool, str, type(None)) else type(value)
    return str(shown)[:40]
