"""The clusters of the stand-in cloud: real control planes with simulated nodes.

What the `gcp` plugin and the commands of `local` use; each function is documented where it is written.
"""

from __future__ import annotations

from local.auth_plugin import credential
from local.cluster.folder import NoSuchCluster, names
from local.cluster.jobs import NothingRuns, finish_job
from local.cluster.kwok import ClusterFailed, create, delete, endpoint, exists, start
from local.cluster.pools import remove_pool, set_pool
from local.cluster.processes import MissingTool
from local.cluster.records import ClusterRecord, Endpoint, PoolRecord

__all__ = [
    "ClusterFailed",
    "ClusterRecord",
    "Endpoint",
    "MissingTool",
    "NoSuchCluster",
    "NothingRuns",
    "PoolRecord",
    "create",
    "credential",
    "delete",
    "endpoint",
    "exists",
    "finish_job",
    "names",
    "remove_pool",
    "set_pool",
    "start",
]
