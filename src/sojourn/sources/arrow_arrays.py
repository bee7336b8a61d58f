"""Steps and sequences in Arrow arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences, check_arrow


def is_numeric(kind: Any) -> bool:
    """Whether an Arrow type is one of numbers."""
    import pyarrow as pa

    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def check_together(runs: NDArray[Any]) -> None:
    """Reject ids that occur again later, for example if rows are sorted by time."""
    found, counts = np.unique(runs, return_counts=True)
    if (counts > 1).any():
        again = found[counts.argmax()]
        raise ValueError(f"the rows of sequence {again!r} are not adjacent: sort by sequence")


def list_sequences(array: Any) -> Sequences:
    """Make sequences from a list array; lists of lists of equal size become vectors."""
    import pyarrow as pa

    if not pa.types.is_fixed_size_list(array.type.value_type):
        return Sequences.from_arrow(array)
    if array.null_count:
        raise ValueError("a sequence is null")
    check_arrow(array)
    offsets = array.offsets.to_numpy().astype(np.int64)
    vectors = array.values.slice(offsets[0], offsets[-1] - offsets[0])
    flat = vectors.flatten()
    if vectors.null_count or flat.null_count:
        raise ValueError("a step is null")
    steps = flat.to_numpy(zero_copy_only=False).reshape(len(vectors), -1)
    return Sequences(steps, offsets - offsets[0])


def label_values(array: Any) -> NDArray[Any]:
    """Return labels of steps: whole numbers with −1 for a missing one, or names with "".

    Examples
    --------
    >>> import pyarrow as pa
    >>> label_values(pa.array(["a", None])), label_values(pa.array([3, None]))
    (array(['a', ''], dtype='<U1'), array([ 3, -1]))
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(array.type):
        array = array.cast(array.type.value_type)
    if pa.types.is_null(array.type):
        return np.full(len(array), -1)
    if is_numeric(array.type):
        return np.asarray(pc.fill_null(array, -1).to_numpy(zero_copy_only=False))
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        raise TypeError(f"a label must be a whole number or a name, not {array.type}")
    filled = pc.fill_null(array, "").to_numpy(zero_copy_only=False)
    return np.asarray(filled, dtype=np.str_)


def list_labels(array: Any, offsets: NDArray[np.int64], name: str) -> NDArray[Any]:
    """Return the labels of a column of lists, which must be as long as those of the steps."""
    import pyarrow as pa

    if not isinstance(array, pa.ListArray | pa.LargeListArray):
        raise TypeError(f"column {name!r}: labels must be lists, as the steps are")
    check_arrow(array)
    if array.null_count:
        array = array.fill_null(pa.scalar([], array.type))
    own = array.offsets.to_numpy().astype(np.int64)
    if not np.array_equal(own - own[0], offsets):
        lengths, steps = np.diff(own), np.diff(offsets)
        n = int(np.flatnonzero(lengths != steps)[0])
        raise ValueError(f"sequence {n} has {steps[n]} steps, and {lengths[n]} in {name!r}")
    return label_values(array.values.slice(own[0], own[-1] - own[0]))


def weight_values(array: Any, name: str) -> NDArray[np.float64]:
    """Return a column of weights: finite numbers, none below zero."""
    if not is_numeric(array.type):
        raise TypeError(f"column {name!r}: weights must be numbers, not {array.type}")
    if array.null_count:
        raise ValueError(f"column {name!r} has missing values")
    weights = array.to_numpy(zero_copy_only=False).astype(np.float64)
    bad = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0.0)))
    if len(bad):
        raise ValueError(f"column {name!r}, row {bad[0]}: {weights[bad[0]]} is not a weight")
    return np.asarray(weights)
