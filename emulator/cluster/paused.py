"""Pauses a cluster: everything ends but etcd and the API server, and its objects can be replaced as a whole.

A paused cluster is a cluster whose controllers have no memory: they list all objects when they start again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import Any

from emulator.cloud import etcd
from emulator.cloud.api import Object, client
from emulator.cloud.control_plane import KEPT, id_of
from emulator.cloud.folder import Folder, NoSuchCluster, locked
from emulator.cloud.records import PoolRecord, pool_file, read_pools, write_pool
from emulator.cluster import kwok
from emulator.machine import paths, processes
from emulator.nodes import objects as nodes
from gke_ai.catalog.nodes.shape import COMPUTE_CLASS, INSTANCE_TYPE, ZONE
from gke_ai.workspace.emulation import CAPACITY

# Addresses for benchmarks (RFC 2544), which neither KWOK nor GKE gives to pods.
_ADDRESSES = ipaddress.ip_network("198.18.0.0/15")


class CannotLoad(Exception):
    """Objects can't be loaded. The message says why."""


def pause(name: str) -> None:
    """Ends every process of a cluster except etcd and the API server. Idempotent.

    Raises:
        NoSuchCluster: The cluster doesn't exist.
    """
    folder = _folder(name)
    with locked(paths.CLUSTERS):
        kept = {id_of(folder, component) for component in KEPT}
        processes.end(folder.path, keep=kept)


def load(name: str, puts: Iterable[Object], deletes: Iterable[Object]) -> None:
    """Replaces objects of a paused cluster exactly as they are, with uid, status and times.

    Nodes become simulated ones, and pods that run get an address.

    Raises:
        NoSuchCluster: The cluster doesn't exist.
        CannotLoad: The cluster runs, or it doesn't have the kind of an object.
    """
    folder = _folder(name)
    if len(processes.of(folder.path)) > len(KEPT):
        raise CannotLoad(
            f"Cluster {name} runs, and its controllers would change the objects. Run: emulator/run cluster pause {name}"
        )
    pools = {pool.name: pool for pool in read_pools(folder.pools)}
    complete = [_complete(item, number, folder, pools) for number, item in enumerate(puts)]
    with client(folder) as api:
        keys = etcd.Keys(api)
        try:
            etcd.write(folder, [(keys.of(item), item) for item in complete], [keys.of(item) for item in deletes])
        except KeyError as missing:
            raise CannotLoad(f"Cluster {name} doesn't have the kind {missing.args[0]}. Nothing was written.") from None


def set_pools(name: str, pools: Iterable[PoolRecord]) -> None:
    """Replaces the records of a cluster's node pools. Nodes that `load` writes belong to these pools.

    Raises:
        NoSuchCluster: The cluster doesn't exist.
    """
    folder = _folder(name)
    for pool in read_pools(folder.pools):
        pool_file(folder.pools, pool.name).unlink()
    for pool in pools:
        write_pool(folder.pools, pool)


def resume(name: str) -> None:
    """Starts the processes of a paused cluster. They find the objects as after a restart of the machine.

    Raises:
        NoSuchCluster: The cluster doesn't exist.
        kwok.ClusterFailed: A process doesn't start.
    """
    _delete_leases(_folder(name))
    kwok.start(name)


def stop(name: str) -> None:
    """Ends every process of a cluster. Its folder can be copied then, and `kwok.start` starts it again. Idempotent.

    Raises:
        NoSuchCluster: The cluster doesn't exist.
    """
    folder = _folder(name)
    pause(name)
    _delete_leases(folder)
    with locked(paths.CLUSTERS):
        processes.end(folder.path)


def _delete_leases(folder: Folder) -> None:
    """Deletes all leases, if etcd runs: a new process would wait until the lease of the ended one expires."""
    if id_of(folder, "etcd") in processes.of(folder.path):
        etcd.delete_all(folder, f"{etcd.ROOT}/leases/")


def _folder(name: str) -> Folder:
    folder = Folder(name)
    if not folder.ready:
        raise NoSuchCluster(name)
    return folder


def _complete(item: Object, number: int, folder: Folder, pools: dict[str, PoolRecord]) -> Object:
    if item["kind"] == "Node":
        return _simulated(item, folder, pools)
    if item["kind"] == "Pod" and item["spec"].get("nodeName") and item["status"].get("phase", "Pending") != "Pending":
        address = item["status"].get("podIP") or str(_ADDRESSES[number + 1])
        return {**item, "status": {**item["status"], "podIP": address, "podIPs": [{"ip": address}]}}
    return item


def _simulated(node: Object, folder: Folder, pools: dict[str, PoolRecord]) -> Object:
    """Returns a node that KWOK simulates.

    A machine of its pool's current settings counts as current. The provisioner does not delete nodes of
    pools that the emulated cloud doesn't have.
    """
    metadata, spec = node["metadata"], node.get("spec", {})
    pool = pools.get(nodes.pool_of(node))
    current = pool is not None and nodes.label(node, INSTANCE_TYPE) == pool.machine_type
    own: dict[str, Any] = {**nodes.FAKE, **({nodes.MACHINE: nodes.fingerprint(pool)} if pool and current else {})}
    own |= {CAPACITY: pool.capacity} if pool else {}
    if pool is None and folder.record.mode == "standard" and not nodes.label(node, COMPUTE_CLASS):
        own[nodes.FOREIGN] = "true"
    provider = f"gce://{folder.record.project}/{nodes.label(node, ZONE)}/{metadata['name']}"
    return {
        **node,
        "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **own}},
        "spec": {"providerID": provider, **spec},
        "status": {
            "addresses": [{"type": "InternalIP", "address": nodes.address(metadata["name"])}],
            **node.get("status", {}),
        },
    }
