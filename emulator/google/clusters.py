"""The Kubernetes clusters behind GKE clusters, which `emulator.cluster` runs on this machine."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import httpx

from emulator import cluster
from emulator.cloud.api import Refused as RefusedByApiServer
from emulator.cloud.diagnosis import lack_for_etcd
from emulator.cluster import ClusterRecord, Endpoint, PoolRecord
from emulator.machine import paths
from emulator.nodes import upgrade
from emulator.pulumi.plugin import Refused
from gke_ai.catalog.nodes.upgrades import BadUpgradeSettings


class Clusters(Protocol):
    """Creates and deletes Kubernetes clusters and their pools."""

    def create(self, name: str, record: ClusterRecord) -> Endpoint:
        """Creates a cluster, or continues an interrupted creation."""

    def delete(self, name: str) -> None:
        """Deletes a cluster and ends all its processes."""

    def set_pool(self, name: str, pool: PoolRecord) -> None:
        """Creates a pool or changes it to match the record."""

    def remove_pool(self, name: str, pool: str) -> None:
        """Drains and deletes a pool."""


class LocalClusters:
    """`Clusters` on this machine."""

    def create(self, name: str, record: ClusterRecord) -> Endpoint:
        with _as_refusals():
            return cluster.create(name, record)

    def delete(self, name: str) -> None:
        with _as_refusals():
            cluster.delete(name)

    def set_pool(self, name: str, pool: PoolRecord) -> None:
        with _as_refusals():
            upgrade.migrate(name, pool)
            cluster.set_pool(name, pool)

    def remove_pool(self, name: str, pool: str) -> None:
        with _as_refusals():
            cluster.remove_pool(name, pool)


@contextmanager
def _as_refusals() -> Iterator[None]:
    """Turns errors of the cluster into refusals of the cloud.

    Any other exception is a defect.
    """
    try:
        yield
    except (cluster.NoCapacity, BadUpgradeSettings) as error:
        raise Refused(str(error)) from error
    except (cluster.ClusterFailed, cluster.MissingTool, cluster.NoSuchCluster, RefusedByApiServer) as error:
        raise Refused(f"the emulator's cluster: {error}") from error
    except (TimeoutError, httpx.HTTPError) as error:
        raise Refused(f"the emulator's cluster doesn't answer correctly: {error}") from error
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise Refused(f"the emulator's cluster: {lack_for_etcd(paths.CLUSTERS) or error}") from error
