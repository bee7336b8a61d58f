"""A Dask client that repeats lost work, and gives clear errors if that does not help."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from sojourn import __version__
from sojourn.backends.dask import work

T = TypeVar("T")

FAN_IN = 4
"""Number of values that one task combines, which determines the order of sums.

A larger number means fewer levels, but more data through the link of the root.
"""

PATIENCE = "300s"
"""How long a step may make no progress before it is repeated, unless Dask's configuration sets
``sojourn.timeout``."""

_ATTEMPTS = 4


class ClusterError(RuntimeError):
    """A cluster that cannot be used: no workers, a different version, a lost scheduler."""


class Cluster:
    """The operations on a Dask cluster that sojourn needs.

    Parameters
    ----------
    client : distributed.Client

    Attributes
    ----------
    generation : int
        How often work was lost.  Futures of an earlier generation cannot be trusted: a value that
        was sent to a worker, and not computed there, is lost with the worker.
    """

    def __init__(self, client: Any) -> None:
        import dask
        from distributed import Client

        if not isinstance(client, Client) or client.asynchronous:
            raise TypeError(f"client must be a synchronous dask.distributed.Client, got {client!r}")
        self.client: Any = client
        self.generation = 0
        self._kept: dict[int, tuple[int, Any, Any]] = {}
        patience = dask.config.get("sojourn.timeout", PATIENCE)
        self.patience: float = dask.utils.parse_timedelta(patience)
        # Clients without a route to the workers have Client(..., direct_to_workers=False).
        self._direct = client.direct_to_workers is not False
        self._check_workers()

    def _check_workers(self) -> None:
        """Reject a cluster whose workers have a different version of the package, or none."""
        answers = self.persistently(
            lambda: self._in_time(self.client.run, work.version, on_error="return")
        )
        # Workers that cannot be reached are ignored; the scheduler will notice.
        found = {worker: said for worker, said in answers.items() if not isinstance(said, OSError)}
        if not found:
            raise ClusterError(f"the cluster at {self._address} has no workers")
        bad = {worker: said for worker, said in found.items() if said != __version__}
        if bad:
            worker, said = next(iter(bad.items()))
            has = f"sojourn {said}" if isinstance(said, str) else f"no sojourn ({said})"
            raise ClusterError(
                f"{len(bad)} of {len(found)} workers cannot be used: {worker} has {has}, the "
                f"client sojourn {__version__}; install the same version everywhere"
            )

    @property
    def _address(self) -> str:
        scheduler = self.client.scheduler
        return str(scheduler.address) if scheduler is not None else "an unknown address"

    # ---- work -----------------------------------------------------------------------------

    def share(self, value: Any) -> Any:
        """Send a value to a worker, from which the others fetch it; return its future."""
        return self._in_time(self.client.scatter, [value], direct=self._direct, hash=False)[0]

    def keep(self, value: Any) -> Any:
        """Share a value that many steps need; it is sent once, and again if it was lost."""
        generation, future, _ = self._kept.get(id(value), (-1, None, None))
        if generation != self.generation:
            future = self.share(value)
            self._kept[id(value)] = (self.generation, future, value)
        return future

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function once, on a worker; return the future."""
        return self.client.submit(function, *arguments, pure=False, **options)

    def reduce(
        self, function: Callable[[Sequence[Any]], Any], futures: Sequence[Any], **options: Any
    ) -> list[Any]:
        """Combine values in a tree, in order; return its futures, the root last.

        The tree depends on the number of values only.
        """
        level, every = list(futures), []
        while len(level) > 1:
            level = [
                self.call(function, level[begin : begin + FAN_IN], **options)
                for begin in range(0, len(level), FAN_IN)
            ]
            every += level
        return every or level

    def result(self, futures: Any, watched: Sequence[Any]) -> Any:
        """Wait for a value or a list of values, as long as there is progress, and fetch it.

        Parameters
        ----------
        watched : sequence of futures
            Futures that the value depends on; waiting continues as long as more of them are done.
        """
        n_done = 0
        while True:
            try:
                return self._in_time(self.client.gather, futures, direct=self._direct)
            except TimeoutError:
                before, n_done = n_done, sum(future.done() for future in watched)
                if n_done == before:
                    raise

    def results(self, futures: Sequence[Any]) -> list[Any]:
        """Wait for small values, and fetch them in order."""
        values: list[Any] = self.result(list(futures), futures)
        return values

    def _in_time(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a method of the client; give up after `patience`, as a worker may not answer."""
        return self.client.sync(
            lambda: method(*arguments, **options, asynchronous=True),
            callback_timeout=self.patience,
        )

    def persistently(self, attempt: Callable[[], T]) -> T:
        """Call a function that uses the cluster, and repeat it if work was lost.

        Errors of the work itself are raised unchanged.
        """
        from distributed import KilledWorker, client
        from distributed.comm.core import CommClosedError

        # Older versions have no error of its own for a client that is closed.
        closed = getattr(client, "ClosedClientError", CancelledError)
        for _ in range(_ATTEMPTS):
            try:
                return attempt()
            except (CancelledError, TimeoutError, CommClosedError, closed) as error:
                lost = error
            except KilledWorker as error:
                raise ClusterError(f"the scheduler gave up: {error}") from error
            if self.client.status != "running":
                raise ClusterError(
                    "the connection to the scheduler is lost; the last checkpoint, if one was "
                    "asked for, is intact, and resume=True continues from it on any cluster"
                ) from lost
            self.generation += 1
        n_workers = len(self.client.nthreads())
        raise ClusterError(
            f"a step was started {_ATTEMPTS} times and never finished: the cluster at "
            f"{self._address} has {n_workers} workers now, and made no progress for "
            f"{self.patience:g} s (sojourn.timeout in Dask's configuration)"
        ) from lost
