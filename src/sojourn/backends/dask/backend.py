"""The local step on a cluster: potentials are sent, sums of statistics come back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from sojourn.backends.base import HostBackend
from sojourn.backends.dask import work
from sojourn.backends.dask.batches import RemoteBatch
from sojourn.backends.dask.client import Cluster
from sojourn.backends.dask.tiles import ClusterTiles
from sojourn.backends.dask.work import Setup
from sojourn.families import Family
from sojourn.inference import Objective, Posterior, Problem
from sojourn.inference.statistics import BatchSums
from sojourn.sources import Minibatches


class WholeBatch(Protocol):
    """All data as one minibatch: `RemoteFiles`, or their tiles.

    Attributes
    ----------
    setup : Setup
    window : int or None
        Tasks at a time; None for all.
    """

    setup: Setup
    window: int | None

    @property
    def statistics(self) -> Callable[..., BatchSums | None]:
        """Return what runs the local step on a worker, for one of `runs`."""

    def runs(self) -> Iterable[Any]:
        """Yield what each task gets."""


@dataclass(frozen=True)
class DaskBackend(HostBackend):
    """The backend that runs the local step on the workers of a cluster.

    A minibatch is split into parts in a way that depends on the minibatch only, and the sums of the
    parts are added in a tree of fixed shape.  The result therefore does not depend on the number of
    workers, on how work is distributed, or on what had to be computed again.

    Attributes
    ----------
    cluster : Cluster
    n_threads : int
        Number of threads of this process, for the update.
    """

    cluster: Cluster
    n_threads: int

    def batches(
        self,
        problem: Problem,
        source: Minibatches,
        n_states: int,
        n_pass: int,
        start: int,
        n_more: int,
    ) -> Iterator[Any]:
        """Yield the minibatches of a pass unchanged; the workers prepare them already."""
        if isinstance(source, ClusterTiles):
            return source.remote_batches(n_pass, start)
        return source.batches(n_pass, start)

    def statistics(
        self,
        posterior: Posterior,
        family: Family,
        objective: Objective,
        batch: RemoteBatch | WholeBatch,
        *,
        squares: bool = False,
        entropy: bool = False,
        shared: int = 0,
    ) -> BatchSums:
        """Compute E[C_0], E[C] and E[t] of a minibatch, eqs (1) and (2), on the workers."""
        wanted = {
            "objective": objective,
            "squares": squares,
            "entropy": entropy,
            "shared": shared,
        }

        def attempt() -> BatchSums:
            if isinstance(batch, RemoteBatch):
                return self._of_parts(batch, posterior, wanted)
            return self._of_all(batch, posterior, wanted)

        return self.cluster.persistently(attempt)

    def _of_parts(
        self, batch: RemoteBatch, posterior: Posterior, wanted: dict[str, Any]
    ) -> BatchSums:
        batch.renew()
        numbers = self.cluster.result(batch.needed[-1], [*batch.parts, *batch.needed])
        wanted = wanted | {"posterior": self.cluster.share(posterior.extract(numbers))}
        setup = self.cluster.keep(batch.remote_pass.setup)
        return self._sum(batch.parts, work.part_statistics, setup, wanted, batch.look_ahead)

    def _of_all(self, batch: WholeBatch, posterior: Posterior, wanted: dict[str, Any]) -> BatchSums:
        wanted = wanted | {"posterior": self.cluster.share(posterior)}
        setup, runs = self.cluster.keep(batch.setup), iter(batch.runs())
        sums = []
        while window := list(islice(runs, batch.window)):
            sums.append(self._sum(window, batch.statistics, setup, wanted))
        total = work.add(sums)
        assert total is not None, "a batch has at least one sequence"
        return total

    def _sum(
        self, parts: list[Any], statistics: Any, setup: Any, wanted: Any, meanwhile: Any = None
    ) -> BatchSums:
        sums = [self.cluster.call(statistics, part, setup, priority=1, **wanted) for part in parts]
        # Sums have priority over further parts, so that few are in memory at the same time.
        tree = self.cluster.reduce(work.add, sums, priority=2)
        if meanwhile is not None:
            meanwhile()
        total: BatchSums = self.cluster.result(tree[-1], [*sums, *tree])
        return total
