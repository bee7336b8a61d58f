"""A Dask cluster for a command: a running one, or one that the command starts and stops."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer


@contextmanager
def connected(address: str | None, n_workers: int | None) -> Iterator[Any]:
    """Yield a client of the cluster that was asked for, or None.

    A failure of the cluster is raised as a `ConnectionError`, which commands report on one line.
    """
    if address is not None and n_workers is not None:
        raise typer.BadParameter(
            "--cluster names a cluster that has its workers",
            param_hint="--workers",
        )
    if address is None and n_workers is None:
        yield None
        return
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise ImportError("clusters need Dask: pip install 'sojourn[cluster]'") from error
    from sojourn.backends.dask import ClusterError

    try:
        if n_workers is None:
            with Client(address) as client:
                yield client
        else:
            # Errors only: that a worker took its time to end is nobody's concern.
            started = LocalCluster(
                n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=logging.ERROR
            )
            with started as cluster, Client(cluster) as client:
                yield client
    except ClusterError as error:
        raise ConnectionError(str(error)) from error
