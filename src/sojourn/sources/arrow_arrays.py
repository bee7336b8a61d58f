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
