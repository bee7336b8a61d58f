"""Minibatches of data in memory."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from sojourn.sequences import Sequences
from sojourn.sources.base import Minibatches

_HEAD = 2**16  # sequences of an order that are kept: moves take a sample from its beginning
_HEADS = 4  # orders of which they are kept: a device has some of passes to come drawn ahead
_NOTHING = np.empty(0, dtype=np.int64)


class MemorySource(Minibatches):
    """Minibatches without replacement, in a new order each pass.

    The order of a pass depends only on the seed and the number of the pass, so that a run can
    resume anywhere without a stored random state.

    Parameters
    ----------
    data : Sequences
    batch_size : int or None
        Sequences per minibatch; None for all in one, in the order of the data.  The last
        minibatch of a pass may have fewer.
    seed : int

    Examples
    --------
    >>> source = MemorySource(Sequences.from_list([[0], [1], [2]]), batch_size=2, seed=0)
    >>> [len(batch) for batch in source.batches(0)]
    [2, 1]
    """

    def __init__(self, data: Sequences, batch_size: int | None, seed: int) -> None:
        self.data = data
        self.batch_size = batch_size
        self.seed = seed
        self._last: tuple[int, NDArray[np.int64]] | None = None
        self._heads: dict[int, NDArray[np.int64]] = {}  # where the orders of some passes begin
        self._lock = Lock()

    @property
    def n_sequences(self) -> int:
        """Number of sequences per pass."""
        return len(self.data)

    @property
    def n_steps(self) -> int:
        """Number of steps per pass."""
        return self.data.n_steps

    @property
    def is_whole(self) -> bool:
        """Whether all data are in one minibatch."""
        return self.batch_size is None or self.batch_size >= len(self.data)

    def order(self, n_pass: int) -> NDArray[np.int64]:
        """Return the indices of the sequences in the order of pass `n_pass`."""
        with self._lock:  # other threads wait for the same order, and do not draw it again
            if self._last is None or self._last[0] != n_pass:
                self._last = (n_pass, self.draw_order(n_pass))
            return self._last[1]

    def draw_order(self, n_pass: int) -> NDArray[np.int64]:
        """Do the same without caching it."""
        if self.is_whole:
            return np.arange(len(self.data))
        order = np.random.default_rng([self.seed, n_pass]).permutation(len(self.data))
        for old in [own for own in tuple(self._heads) if own <= n_pass - _HEADS]:
            self._heads.pop(old, None)
        self._heads[n_pass] = order[:_HEAD].copy()
        return order

    def batches(self, n_pass: int, start: int = 0) -> Iterator[Sequences]:
        """Yield the minibatches of pass `n_pass`, counted from 0, without the first `start`."""
        if self.is_whole:
            yield from [self.data][start:]
            return
        assert self.batch_size is not None
        order = self._heads.get(n_pass, _NOTHING)
        for begin in range(start * self.batch_size, len(self.data), self.batch_size):
            end = min(begin + self.batch_size, len(self.data))
            order = order if end <= len(order) else self.order(n_pass)
            yield self.data.take(order[begin:end])
