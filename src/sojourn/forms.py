"""The forms in which users pass sequences, and their conversion to the one container."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sojourn.sequences import Sequences, as_array, odd_object, position, refuse_dtype

Layout = Literal["flat", "list", "rows", "sequences"]
"""Form of the input data, in which results are returned; see `restore_layout`."""


def as_sequences(
    data: Any, lengths: ArrayLike | None = None, *, step_ndim: int = 0
) -> tuple[Sequences, Layout]:
    """Convert data of any accepted form, and return the form too.

    Parameters
    ----------
    data : Sequences, array, list, PyArrow list array
        With `lengths`: flat steps.  Without: `Sequences`; a PyArrow list array; an array whose
        rows are sequences of equal length; a list of sequences; or one sequence.  Masked entries
        become NaN, or -1 for integers with one value per step.
    lengths : (N,) integer array, optional
        Lengths of the sequences in flat `data`, as in hmmlearn.
    step_ndim : {0, 1}
        Dimensions of one step: 0 for symbols and numbers, 1 for vectors.  If vectors are
        expected, single numbers are vectors of length one: a flat array is one sequence of them,
        and a list of flat arrays is a list of sequences.

    Returns
    -------
    sequences : Sequences
        At least one, none of them empty.
    layout : {"flat", "list", "rows", "sequences"}
        For `restore_layout`.

    Examples
    --------
    >>> as_sequences([[0, 1], [1]])
    (Sequences(2 sequences, 3 steps, int64 of shape (3,)), 'list')
    """
    sequences, layout = _coerce(data, lengths, step_ndim)
    if step_ndim == 1 and sequences.values.ndim == 1:
        sequences = sequences.with_values(sequences.values[:, None])
    if sequences.values.ndim - 1 != step_ndim:
        raise ValueError(
            f"a step must have {step_ndim} dimensions here, "
            f"but the data's steps have the shape {sequences.values.shape[1:]}"
        )
    odd = odd_object(sequences.values)
    if odd is not None:
        raise ValueError(f"{position(odd[0], sequences.offsets)}: {odd[1]}")
    return sequences.check(), layout


def _coerce(data: Any, lengths: ArrayLike | None, step_ndim: int) -> tuple[Sequences, Layout]:
    """Convert data according to its type; see `as_sequences`."""
    if hasattr(data, "nnz"):
        raise TypeError("sparse data is not supported: pass X.toarray()")
    data = _fill_masked(data, step_ndim)
    if lengths is not None:
        if isinstance(data, Sequences):
            raise ValueError("lengths are not accepted with Sequences, which contain them")
        return Sequences.from_lengths(_drop_column(as_array(data), step_ndim), lengths), "flat"
    if isinstance(data, Sequences):
        return data, "sequences"
    if isinstance(data, str | bytes):
        raise TypeError(f"expected sequences, got the string {data[:40]!r}")
    if isinstance(data, Mapping | Set):
        raise TypeError(f"expected sequences, got a {type(data).__name__}")
    if type(data).__module__.partition(".")[0] == "pyarrow":
        return Sequences.from_arrow(data), "list"
    if isinstance(data, Iterable) and not hasattr(data, "__array__"):
        data = [_fill_masked(item, step_ndim) for item in data]
        if not data or not (_ndim(data[0]) == 0 or isinstance(data[0], str)):
            return Sequences.from_list(data), "list"
    array = _drop_column(as_array(data), step_ndim)
    if array.dtype == object and array.ndim == 2 and step_ndim == 1:
        array = array.astype(np.float64)  # numbers as objects, as from a table of mixed types
    if array.dtype == object and array.ndim == 1 and array.size and np.ndim(array[0]) > 0:
        return Sequences.from_list(array), "list"
    if array.ndim == step_ndim + 2:
        n, length = array.shape[:2]
        flat = array.reshape(n * length, *array.shape[2:])
        return Sequences(flat, np.arange(n + 1, dtype=np.int64) * length), "rows"
    return Sequences.from_lengths(array), "flat"


def _drop_column(array: NDArray[Any], step_ndim: int) -> NDArray[Any]:
    """Read hmmlearn's (T, 1) column as the steps of one sequence when a step is a single value."""
    return array[:, 0] if step_ndim == 0 and array.ndim == 2 and array.shape[1] == 1 else array


def _fill_masked(data: Any, step_ndim: int) -> Any:
    """Fill masked entries with missing values; return other data unchanged."""
    if not isinstance(data, np.ma.MaskedArray):
        return data
    refuse_dtype(data.dtype)
    if step_ndim == 0 and data.dtype.kind in "iu":
        return np.ma.filled(data.astype(np.int64), -1)
    return np.ma.filled(data.astype(np.float64), np.nan) if np.ma.is_masked(data) else data.data


def _ndim(item: Any) -> int:
    """Return the number of dimensions; at least two for ragged data."""
    try:
        return np.ndim(item)
    except ValueError:
        return 2
