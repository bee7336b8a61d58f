"""Single sequences, each with a value that is kept from pass to pass."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

import numpy as np

from sojourn.sequences import Sequences
from sojourn.sources.memory import MemorySource

T = TypeVar("T")


class RememberingSource(MemorySource, Generic[T]):
    """Single sequences in a new order each pass, with one stored value for each.

    `recall` returns the value of the current sequence, and `remember` replaces it.

    Parameters
    ----------
    data : Sequences
    seed : int

    Examples
    --------
    >>> source = RememberingSource(Sequences.from_list([[3], [5]]), seed=0)
    >>> for batch in source.batches(0):
    ...     source.remember(10 * int(batch[0][0]))
    >>> [source.recall() for batch in source.batches(1) if batch[0][0] == 5]
    [50]
    """

    may_read_ahead = False  # the stored value belongs to the current sequence

    def __init__(self, data: Sequences, seed: int) -> None:
        super().__init__(data, 1, seed)
        self._values: list[T | None] = [None] * len(data)
        self._current = 0

    def batches(self, n_pass: int, start: int = 0) -> Iterator[Sequences]:
        """Yield the sequences of pass `n_pass`, counted from 0, without the first `start`."""
        order = np.random.default_rng([self.seed, n_pass]).permutation(len(self.data))
        for n in order[start:]:
            self._current = int(n)
            yield self.data[int(n) : int(n) + 1]

    def recall(self) -> T | None:
        """Return the value of the current sequence."""
        return self._values[self._current]

    def remember(self, value: T) -> None:
        """Store a value for the current sequence."""
        self._values[self._current] = value

    @property
    def remembered(self) -> list[T]:
        """All stored values."""
        return [value for value in self._values if value is not None]
