"""The Dask backend: the local step runs on workers that open the data themselves."""

from sojourn.backends.dask.backend import DaskBackend
from sojourn.backends.dask.batches import ClusterSource
from sojourn.backends.dask.client import Cluster, ClusterError
from sojourn.backends.dask.files import RemoteFiles
from sojourn.backends.dask.tiles import ClusterTiles
from sojourn.backends.dask.work import Setup

__all__ = [
    "Cluster",
    "ClusterError",
    "ClusterSource",
    "ClusterTiles",
    "DaskBackend",
    "RemoteFiles",
    "Setup",
]
