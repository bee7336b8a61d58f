"""Checks of data and parameters, and moments of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.kernels.arrays import maybe_any, namespace
from sojourn.kernels.interface import Floats
from sojourn.sequences import Sequences, position

Booleans = NDArray[np.bool_]

LARGEST = 1e120
"""Largest magnitude of real data: squares, and their sums over 1e60 steps, remain finite."""

SMALLEST = 1e-120
"""Smallest magnitude of positive data: its reciprocal remains finite in the same way."""

LARGEST_COUNT = 2**53
"""Largest count: beyond it, double precision does not hold all whole numbers."""

_SMALLEST_PARAMETER = 1e-300  # smaller ones lose precision, and their reciprocals overflow


class Moments(NamedTuple):
    """Mean and variance of each column.

    Attributes
    ----------
    mean : (D,) array
    variance : (D,) array
        One for a constant column.
    """

    mean: Floats
    variance: Floats


def column_moments(values: NDArray[Any]) -> Moments:
    """Compute mean and variance of each column in two passes; NaN is missing.

    Examples
    --------
    >>> column_moments(np.array([[1.0, 5.0], [3.0, np.nan]]))
    Moments(mean=array([2., 5.]), variance=array([1., 1.]))
    """
    if len(values) <= 2**16:
        whole = np.asarray(values, dtype=np.float64)
        mean = whole.sum(axis=0) / max(len(whole), 1)
        if np.isfinite(mean).all():  # the usual case: nothing is missing
            variance = ((whole - mean) ** 2).sum(axis=0) / max(len(whole), 1)
            return _moments(mean, variance)
    blocks = range(0, len(values), 2**16)

    def total(function: Callable[[Floats], Floats]) -> Floats:
        parts = (np.asarray(values[begin : begin + 2**16], dtype=np.float64) for begin in blocks)
        return np.sum([function(part) for part in parts], axis=0)

    counts = np.maximum(total(lambda part: (~np.isnan(part)).sum(axis=0)), 1)
    mean = total(lambda part: np.nansum(part, axis=0)) / counts
    variance = total(lambda part: np.nansum((part - mean) ** 2, axis=0)) / counts
    return _moments(mean, variance)


def _moments(mean: Floats, variance: Floats) -> Moments:
    """Return moments with the variance one for a constant column."""
    # Rounding makes it vary in its last bits.
    varies = variance > (1e-14 * np.abs(mean)) ** 2
    return Moments(mean, np.where(varies, variance, 1.0))


def check_columns(data: Sequences, n_features: int | None, name: str) -> int:
    """Return the number of columns; raise an error if it is not `n_features`."""
    columns = int(data.values.shape[1])
    if columns == 0:
        raise ValueError(
            f"the data have no columns: 0 feature(s) (shape={data.values.shape}) while a minimum "
            "of 1 is required."
        )
    if n_features is not None and n_features != columns:
        raise ValueError(f"{name} has n_features={n_features}, but the data have {columns} columns")
    return columns


def column_vector(name: str, value: Any, n_features: int, *, positive: bool = True) -> Floats:
    """Return a parameter as one number per column."""
    given = np.asarray(value, dtype=np.float64)
    if given.shape not in ((), (1,), (n_features,)):
        raise ValueError(f"{name} has the shape {given.shape}, the data have {n_features} columns")
    vector = np.array(np.broadcast_to(given, (n_features,)))
    least, most = (_SMALLEST_PARAMETER, LARGEST**2) if positive else (-LARGEST, LARGEST)
    if ((vector >= least) & (vector <= most)).all():
        return vector
    if not np.isfinite(vector).all() or (positive and (vector <= 0).any()):
        raise ValueError(f"{name} must be {'positive and ' if positive else ''}finite, got {value}")
    raise ValueError(f"{name}={value} is too large or too small to compute with")


def check_real(
    data: Sequences, n_features: int, *, whole_rows: bool = False, largest: float = LARGEST
) -> Sequences:
    """Check real numbers: not too large, or NaN if missing (with `whole_rows` only whole rows)."""
    values = _numbers(data, n_features)
    if values.dtype.kind != "f":
        return data.with_values(values)
    limit = values.dtype.type(min(largest, float(np.finfo(values.dtype).max)))
    with np.errstate(invalid="ignore"):
        bad = np.abs(values) > limit
    _refuse(bad, data, lambda at: f"{values[at]} is not a finite number of at most {largest:g}")
    if whole_rows:
        refuse_partly_missing(np.isnan(values), data)
    return data.with_values(values)


def check_positive(data: Sequences, n_features: int, *, zero: bool = False) -> Sequences:
    """Check positive numbers, or non-negative ones with `zero`."""
    data = check_real(data, n_features)
    values, kind = data.values, "non-negative" if zero else "positive"
    with np.errstate(invalid="ignore"):
        bad = values < 0 if zero else values <= 0
        tiny = (values < SMALLEST) & (values > 0)
    _refuse(bad, data, lambda at: f"{values[at]} is not a {kind} number")
    _refuse(tiny, data, lambda at: f"{values[at]} is too small: {SMALLEST:g} is the smallest")
    return data


def check_unit(data: Sequences, n_features: int) -> Sequences:
    """Check numbers between zero and one, both excluded."""
    data = check_positive(data, n_features, zero=True)
    values = data.values
    with np.errstate(invalid="ignore"):
        bad = (values <= 0) | (values >= 1)
    _refuse(bad, data, lambda at: f"{values[at]} is not between 0 and 1, both excluded")
    return data


def check_counts(
    data: Sequences, n_features: int, *, least: int = 0, most: int | None = None
) -> Sequences:
    """Check whole numbers of at least `least` and at most `most`."""
    data = check_real(data, n_features)
    values = data.values
    limit = LARGEST_COUNT if most is None else most
    what = f"a whole number from {least} to 2**53" if most is None else f"{least} or {most}"
    with np.errstate(invalid="ignore"):
        bad = (values < least) | (values > limit)
        if values.dtype.kind == "f":
            bad |= (values != np.floor(values)) & ~np.isnan(values)
    _refuse(bad, data, lambda at: f"{values[at]} is not {what}")
    return data


def refuse_partly_missing(missing: NDArray[np.bool_], data: Sequences) -> None:
    """Raise an error if a row is partly missing, for families that allow whole rows only."""
    partly = missing.any(axis=1) & ~missing.all(axis=1)
    if partly.any():
        step = int(np.flatnonzero(partly)[0])
        column = int(np.flatnonzero(missing[step])[0])
        raise ValueError(
            f"{position(step, data.offsets)}: column {column} is missing and others are not; "
            "in this family only whole steps may be missing"
        )


def _numbers(data: Sequences, n_features: int) -> NDArray[Any]:
    values = data.values
    if values.dtype.kind not in "fiub":
        got = "words" if values.dtype.kind in "UTO" else str(values.dtype)
        raise TypeError(f"the data must be numbers, got {got}; for words use Categorical")
    if values.shape[1] != n_features:
        raise ValueError(
            f"the model has {n_features} columns (n_features), the data have {values.shape[1]}"
        )
    return values.astype(np.float64) if values.dtype == np.float16 else values


def _refuse(
    bad: NDArray[np.bool_], data: Sequences, problem: Callable[[tuple[int, int]], str]
) -> None:
    if bad.any():
        step, column = (int(part[0]) for part in np.nonzero(bad))
        raise ValueError(
            f"{position(step, data.offsets)}, column {column}: {problem((step, column))}"
        )


def plain_values(data: Sequences) -> NDArray[Any]:
    """Return the values in double precision."""
    return np.asarray(data.values, dtype=np.float64)


def present_rows(x: Floats) -> tuple[Floats, Booleans]:
    """Return x with zeros in place of missing rows, and which rows are present."""
    xp = namespace(x)
    present = ~xp.isnan(x[:, 0])
    return (xp.where(present[:, None], x, 0.0) if maybe_any(~present) else x), present


def as_given(value: ArrayLike | None, default: Any) -> Any:
    """Return a parameter, or its default if it was not given."""
    return default if value is None else value
