"""The cloud's clusters: those that `emulator.cluster` makes on this machine, with its errors in the plugin's form."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import httpx

from emulator import cluster
from emulator.cluster import ClusterRecord, Endpoint, PoolRecord
from emulator.cluster.api import Refused as RefusedByApiServer
from emulator.plugin import Refused


class Clusters(Protocol):
    """What the cloud needs to make clusters real."""

    def create(self, name: str, record: ClusterRecord) -> Endpoint:
        """Makes a cluster, or goes on with one that was begun."""

    def delete(self, name: str) -> None:
        """Ends a cluster with all its processes."""

    def set_pool(self, name: str, pool: PoolRecord) -> None:
        """Makes a pool what the record says."""

    def remove_pool(self, name: str, pool: str) -> None:
        """Drains and removes a pool."""


class LocalClusters:
    """`Clusters` on this machine."""

    def create(self, name: str, record: ClusterRecord) -> Endpoint:
        with _told():
            return cluster.create(name, record)

    def delete(self, name: str) -> None:
        with _told():
            cluster.delete(name)

    def set_pool(self, name: str, pool: PoolRecord) -> None:
        with _told():
            cluster.set_pool(name, pool)

    def remove_pool(self, name: str, pool: str) -> None:
        with _told():
            cluster.remove_pool(name, pool)


@contextmanager
def _told() -> Iterator[None]:
    """Says what went wrong in the cluster as a refusal of the cloud; anything else is a defect."""
    try:
        yield
    except (cluster.ClusterFailed, cluster.MissingTool, cluster.NoSuchCluster, RefusedByApiServer) as error:
        raise Refused(f"the emulator's cluster: {error}") from error
    except (TimeoutError, httpx.HTTPError) as error:
        raise Refused(f"the emulator's cluster does not answer as it should: {error}") from error
