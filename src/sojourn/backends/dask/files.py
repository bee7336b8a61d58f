"""The blocks of a source, as the workers of a cluster read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from sojourn.backends.dask import work
from sojourn.backends.dask.client import Cluster
from sojourn.backends.dask.work import Blocks, RemoteFile, Setup, Sizes
from sojourn.sources import Source

BLOCKS_A_TASK = 16
MANY_TASKS = 1024
"""A pass over blocks in their order is cut into tasks of so many blocks, if there are enough."""


class RemoteFiles:
    """The blocks of a source, as the client knows them, without their content.

    Parameters
    ----------
    cluster : Cluster
    source : Source
        Files that every worker can open under the same path.
    setup : Setup
    """

    statistics = staticmethod(work.block_statistics)
    window = None

    def __init__(self, cluster: Cluster, source: Source, setup: Setup) -> None:
        if not source.paths:
            raise ValueError(
                f"{source.name} cannot be opened by the workers of a cluster: client= takes files"
            )
        self.cluster = cluster
        self.source = source
        self.setup = setup
        files = source.files()
        self._files = [RemoteFile.of(file) for file in files]
        self._begins = np.cumsum([0, *(file.n_blocks for file in files)])

    @property
    def n_blocks(self) -> int:
        """Number of blocks of all files."""
        return int(self._begins[-1])

    def blocks(self, numbers: Any) -> Blocks:
        """Return a description of how to read some blocks."""
        which = np.searchsorted(self._begins, numbers, side="right") - 1
        own = np.asarray(numbers) - self._begins[which]
        return [(self._files[file], int(block)) for file, block in zip(which, own, strict=True)]

    def runs(self) -> Iterator[Blocks]:
        """Yield all blocks in order, cut into tasks.  The cut depends on the data only."""
        size = min(BLOCKS_A_TASK, max(1, self.n_blocks // MANY_TASKS))
        for begin in range(0, self.n_blocks, size):
            yield self.blocks(range(begin, min(begin + size, self.n_blocks)))

    def measure(self) -> Sizes:
        """Let the workers read and check all blocks once, and return their sizes."""

        def attempt() -> list[Sizes]:
            setup = self.cluster.keep(self.setup)
            return self.cluster.results(
                [self.cluster.call(work.measure, setup, run) for run in self.runs()]
            )

        self.source.check_unchanged()
        parts = self.cluster.persistently(attempt)
        return Sizes(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def score(self, log_likelihoods: Callable[..., Any]) -> tuple[float, int]:
        """Return the log likelihood of all sequences, and the number of steps."""

        def attempt() -> list[tuple[float, int]]:
            common = [self.cluster.keep(self.setup), self.cluster.share(log_likelihoods)]
            return self.cluster.results(
                [self.cluster.call(work.block_scores, run, *common) for run in self.runs()]
            )

        parts = self.cluster.persistently(attempt)
        return float(sum(total for total, _ in parts)), sum(n_steps for _, n_steps in parts)

    def write(self, compute: Callable[..., Any], column: str, folder: Path) -> float:
        """Let the workers write one result per step to files in a folder; return the score."""

        def attempt() -> list[float]:
            common = [self.cluster.keep(self.setup), self.cluster.share(compute), column]
            return self.cluster.results(
                [
                    self.cluster.call(
                        work.write_results, run, folder / f"part-{n:06d}.parquet", *common
                    )
                    for n, run in enumerate(self.runs())
                ]
            )

        return float(sum(self.cluster.persistently(attempt)))
