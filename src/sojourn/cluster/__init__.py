"""The same fit on a Dask cluster: the local step runs on workers that open their own data."""

from sojourn.cluster.batches import ClusterSource
from sojourn.cluster.client import Cluster, ClusterError
from sojourn.cluster.engine import ClusterEngine
from sojourn.cluster.files import RemoteFiles
from sojourn.cluster.work import Setup

__all__ = ["Cluster", "ClusterEngine", "ClusterError", "ClusterSource", "RemoteFiles", "Setup"]
