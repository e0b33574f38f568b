"""The clusters of the emulated cloud: real control planes with simulated nodes.

This is the interface for the `gcp` plugin and the emulator's commands.
"""

from __future__ import annotations

from emulator.cloud.auth_plugin import credential
from emulator.cloud.folder import NoSuchCluster, names
from emulator.cloud.records import ClusterRecord, Endpoint, PoolRecord
from emulator.cluster.jobs import NothingRuns, finish_job
from emulator.cluster.kwok import ClusterFailed, create, delete, endpoint, exists, start
from emulator.machine.processes import MissingTool
from emulator.nodes.pools import NoCapacity, remove_pool, set_pool
