"""Minibatches of references: rows of blocks, without their content.

The order is that of `ShuffledSource`, because it depends on sizes only.  A sequence is identified
by its position in the order in which the pass reads: the workers hold the content of the shuffle
buffer, and gather the rows of a minibatch from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sojourn.backends.dask import work
from sojourn.backends.dask.client import Cluster
from sojourn.backends.dask.files import RemoteFiles
from sojourn.backends.dask.work import Setup, Sizes
from sojourn.sequences import Sequences
from sojourn.sources import Minibatches
from sojourn.sources.shuffle import pass_rng, shuffled

PART_STEPS = 2**16
"""Approximate number of steps of a minibatch per task."""

GROUP_BYTES = 2**19
"""Approximate number of bytes of the shuffle buffer that one task loads."""

Rows = list[tuple[int, NDArray[np.int32]]]
"""Rows of some groups: the number of the group, and indices of its sequences."""


class Groups(NamedTuple):
    """The blocks of a pass in reading order, in groups that are read together.

    Attributes
    ----------
    order : (B,) array
        Numbers of the blocks.
    block_begins : (G + 1,) array
        Where each group starts in that order.
    begins : (G + 1,) array
        Position of the first sequence of each group.
    """

    order: NDArray[np.int64]
    block_begins: NDArray[np.int64]
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, order: NDArray[np.int64], sequences: Any, n_bytes: Any) -> Groups:
        """Cut an order of blocks, given the size of each, into groups of about `GROUP_BYTES`.

        Examples
        --------
        >>> Groups.of(np.array([2, 0, 1]), np.array([5, 5, 7]), np.full(3, 300_000)).begins
        array([ 0, 12, 17])
        """
        before = np.cumsum(n_bytes[order]) - n_bytes[order]
        cuts = np.flatnonzero(np.diff(before // GROUP_BYTES)) + 1
        block_begins = np.concatenate([[0], cuts, [len(order)]])
        positions = np.concatenate([[0], np.cumsum(sequences[order])])
        return cls(order, block_begins, positions[block_begins])

    def parts(self, positions: NDArray[np.int64], size: int) -> Iterator[Rows]:
        """Cut a minibatch into parts of about `size` sequences.

        If a group is large enough, a part has rows of this group only, which are in one place.  The
        cut depends on the minibatch only, not on the number of workers.
        """
        positions = np.sort(positions)
        group = np.searchsorted(self.begins, positions, side="right") - 1
        waiting: Rows = []
        n_waiting = 0
        for run in np.split(np.arange(len(positions)), np.flatnonzero(np.diff(group)) + 1):
            if waiting and n_waiting + len(run) > size:
                yield waiting
                waiting, n_waiting = [], 0
            number = int(group[run[0]])
            rows = (positions[run] - self.begins[number]).astype(np.int32)
            *whole, last = np.array_split(rows, -(-len(rows) // size))
            yield from ([(number, piece)] for piece in whole)
            waiting.append((number, last))
            n_waiting += len(last)
        yield waiting


class PartsOfPass(Protocol):
    """What the parts of minibatches are gathered from: a `RemotePass`, or tiles."""

    cluster: Cluster

    @property
    def setup(self) -> Setup:
        """What all tasks need."""

    def submit(self, parts: list[Any], *, again: bool) -> list[Any]:
        """Let the workers gather the parts of a minibatch; return the futures.

        `again` says that they have been gathered before, and were lost.
        """


class RemotePass:
    """The groups of a pass that the workers hold: those in the shuffle buffer."""

    def __init__(self, files: RemoteFiles, groups: Groups) -> None:
        self.files = files
        self.cluster = files.cluster
        self.groups = groups
        self._left = np.diff(groups.begins)
        self._loaded: dict[int, Any] = {}
        self._generation = files.cluster.generation

    @property
    def setup(self) -> Setup:
        """What all tasks need."""
        return self.files.setup

    def submit(self, parts: list[Rows], *, again: bool) -> list[Any]:
        """Let the workers gather the parts of a minibatch; return the futures."""
        if self._generation != self.cluster.generation:
            self._loaded, self._generation = {}, self.cluster.generation
        setup = self.cluster.keep(self.setup)
        futures = []
        for part in parts:
            loaded = [self._load(group, setup) for group, _ in part]
            futures.append(self.cluster.call(work.take, setup, loaded, [rows for _, rows in part]))
        self.give_out(parts, again=again)
        return futures

    def give_out(self, parts: list[Rows], *, again: bool = False) -> None:
        """Record rows that have been used, and release groups with none left.

        Rows of a minibatch that is submitted again have been recorded already.
        """
        for group, rows in (run for part in parts for run in part):
            self._left[group] -= 0 if again else len(rows)
            if self._left[group] == 0:
                self._loaded.pop(group, None)

    def _load(self, group: int, setup: Any) -> Any:
        if group not in self._loaded:
            begin, end = self.groups.block_begins[group : group + 2]
            blocks = self.files.blocks(self.groups.order[begin:end])
            self._loaded[group] = self.cluster.call(work.load, setup, blocks)
        return self._loaded[group]


@dataclass
class RemoteBatch:
    """A minibatch on the workers, submitted when it is created.

    Attributes
    ----------
    remote_pass : PartsOfPass
    rows : list
        Its parts: `Rows`, or numbers of tiles.
    look_ahead : callable
        Starts on the next minibatch.
    parts : list of futures
        The parts, gathered and encoded.
    needed : list of futures
        A tree whose root is the indices of the emission statistics that the minibatch needs.
    """

    remote_pass: PartsOfPass
    rows: list[Any]
    look_ahead: Callable[[], None]
    parts: list[Any] = field(init=False)
    needed: list[Any] = field(init=False)
    _generation: int = field(init=False)

    def __post_init__(self) -> None:
        self.remote_pass.cluster.persistently(lambda: self._submit(again=False))

    def renew(self) -> None:
        """Submit everything again if work has been lost."""
        if self._generation != self.remote_pass.cluster.generation:
            self._submit(again=True)

    def _submit(self, *, again: bool) -> None:
        cluster = self.remote_pass.cluster
        self._generation = cluster.generation
        self.parts = self.remote_pass.submit(self.rows, again=again)
        setup = cluster.keep(self.remote_pass.setup)
        numbers = [cluster.call(work.rows_needed, setup, part) for part in self.parts]
        self.needed = cluster.reduce(work.union, numbers)


def ahead(remote_pass: PartsOfPass, plan: Iterator[list[Any]]) -> Iterator[RemoteBatch]:
    """Yield minibatches, given the parts of each; the workers gather the next one meanwhile."""
    waiting: deque[RemoteBatch] = deque()

    def look_ahead() -> None:
        parts = None if waiting else next(plan, None)
        if parts is not None:
            waiting.append(RemoteBatch(remote_pass, parts, look_ahead))

    look_ahead()
    while waiting:
        yield waiting.popleft()
        look_ahead()


class ClusterSource(Minibatches):
    """The minibatches of a source, gathered by the workers of a cluster.

    Parameters
    ----------
    files : RemoteFiles
    batch_size : int or None
        Sequences per minibatch; None for all in one, which the workers read block by block.
    seed : int
    """

    def __init__(self, files: RemoteFiles, batch_size: int | None, seed: int) -> None:
        self.files = files
        self.batch_size = batch_size
        self.seed = seed
        mean_length = files.source.n_steps / files.source.n_sequences
        self._part_sequences = max(1, round(PART_STEPS / mean_length))
        self._sizes: Sizes | None = None

    @property
    def n_sequences(self) -> int:
        """Number of sequences per pass."""
        return self.files.source.n_sequences

    def batches(self, n_pass: int, start: int = 0) -> Iterator[Any]:
        """Yield the minibatches of pass `n_pass`, without the first `start`."""
        self.files.source.check_unchanged()
        if self.batch_size is None or self.batch_size >= self.n_sequences:
            if start == 0:
                yield self.files
            return
        if self._sizes is None:
            self._sizes = self.files.measure()
        yield from self._shuffled(self._sizes, n_pass, start, self.batch_size)

    def _shuffled(
        self, sizes: Sizes, n_pass: int, start: int, batch_size: int
    ) -> Iterator[RemoteBatch]:
        rng = pass_rng(self.seed, n_pass)
        order = rng.permutation(self.files.n_blocks)
        ends = np.cumsum(sizes.n_pieces)
        begins = ends - sizes.n_pieces

        def totals(of_pieces: NDArray[np.int64]) -> NDArray[np.int64]:
            sums = np.concatenate([[0], np.cumsum(of_pieces)])
            return sums[ends] - sums[begins]

        def pieces() -> Iterator[tuple[Sequences, int]]:
            position = 0
            for piece in (p for block in order for p in range(begins[block], ends[block])):
                n = int(sizes.sequences[piece])
                yield (
                    Sequences(np.arange(position, position + n), np.arange(n + 1)),
                    int(sizes.n_bytes[piece]),
                )
                position += n

        groups = Groups.of(order, totals(sizes.sequences), totals(sizes.n_bytes))
        remote_pass = RemotePass(self.files, groups)
        plan = (
            list(groups.parts(positions.values, self._part_sequences))
            for positions in shuffled(pieces(), batch_size, rng)
        )
        for parts in islice(plan, start):
            remote_pass.give_out(parts)
        yield from ahead(remote_pass, plan)
