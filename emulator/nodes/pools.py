"""Creates, changes and deletes node pools of a cluster for the `gcp` plugin."""

from __future__ import annotations

import httpx

from emulator.cloud import capacity, delay
from emulator.cloud.api import MERGE_PATCH, Object, Refused, answer, client
from emulator.cloud.folder import Folder
from emulator.cloud.records import PoolRecord, pool_file, read_pools, write_pool
from emulator.machine.polling import poll_until
from emulator.nodes import objects as nodes
from gke_ai.catalog.nodes.shape import GKE_NODEPOOL, ZONE

# A busy machine with several clusters has needed more than a minute.
READY_SECONDS = 180
_NODES = "/api/v1/nodes"


class NoCapacity(Exception):
    """Google has no nodes for a pool. The text is Google's: https://github.com/tranquilitybase-io/tb-gcp/issues/589"""

    def __init__(self, pool: PoolRecord, missing: int) -> None:
        self.zone = pool.zones[0]
        super().__init__(
            f"Error waiting for creating GKE NodePool: Google Compute Engine: Not all instances running in IGM. "
            f"Expected {missing}, running 0. Current errors: [GCE_STOCKOUT]: Instance creation failed: The zone "
            f"'{self.zone}' does not have enough resources available to fulfill the request. Try a different zone, or "
            "try again later"
        )


def set_pool(name: str, pool: PoolRecord) -> None:
    """Creates or changes a pool of cluster `name`, and returns once its nodes are Ready.

    Nodes with another machine or zone are replaced; labels and taints change in place. A pool of fixed size gets its
    nodes immediately. A new autoscaled pool gets its minimum, and more nodes when pods need them. Changed limits of it
    neither add nor delete a node: the autoscaler waits until a pod needs one, or one is unused.
    https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler#minimum_and_maximum_node_pool_size

    Raises:
        NoSuchCluster: The cluster doesn't exist.
        NoCapacity: The pool needs more nodes, and its capacity mode is unavailable.
        TimeoutError: The nodes don't become Ready.
    """
    folder = Folder(name)
    record = folder.record
    earlier = next((known for known in read_pools(folder.pools) if known.name == pool.name), pool)
    # The record comes first. If this process is killed here, the daemon knows the pool and the next call continues.
    write_pool(folder.pools, pool)
    with client(folder) as api:
        present = _of_pool(api, pool.name)
        keep = [node for node in present if nodes.is_current(node, pool)][: None if pool.autoscaled else pool.ceiling]
        size = pool.floor if earlier == pool or not pool.autoscaled else min(pool.floor, len(present))
        for node in present:
            if node in keep:
                zone = nodes.label(node, ZONE)
                desired = nodes.node_object(record, pool.shape(zone), node["metadata"]["name"], pool.taints)
                desired["metadata"]["labels"] |= nodes.place_of(node)
                _relabel(api, node, desired)
            else:
                remove(api, node)
        missing = size - len(keep)
        if missing > 0 and pool.capacity in capacity.unavailable():
            raise NoCapacity(pool, missing)
        for node in nodes.new_nodes(record, pool, keep, missing):
            answer(api.post(_NODES, json=delay.hold_back(node)))
        _wait_until_ready(api, pool, size)


def remove_pool(name: str, pool: str) -> None:
    """Deletes a pool with its nodes and their pods, which their controllers recreate on other nodes. Idempotent.

    As on GKE, disruption budgets don't count. Unlike on GKE, pods get no time to end:
    https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools#drain
    """
    folder = Folder(name)
    if not folder.ready:
        return
    pool_file(folder.pools, pool).unlink(missing_ok=True)
    with client(folder) as api:
        for node in _of_pool(api, pool):
            remove(api, node)


def remove(api: httpx.Client, node: Object) -> None:
    """Cordons a node, deletes its pods and then the node itself."""
    path = f"{_NODES}/{node['metadata']['name']}"
    try:
        answer(api.patch(path, json={"spec": {"unschedulable": True}}, headers=MERGE_PATCH))
        on_node = {"fieldSelector": f"spec.nodeName={node['metadata']['name']}"}
        for pod in answer(api.get("/api/v1/pods", params=on_node))["items"]:
            metadata = pod["metadata"]
            # No grace period: without the node, no kubelet ends the pod.
            api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}?gracePeriodSeconds=0")
        answer(api.delete(path))
    except Refused as refused:
        if refused.status != 404:
            raise


def _of_pool(api: httpx.Client, pool: str) -> list[Object]:
    selector = {"labelSelector": f"{GKE_NODEPOOL}={pool}"}
    items: list[Object] = answer(api.get(_NODES, params=selector))["items"]
    return items


def _relabel(api: httpx.Client, node: Object, desired: Object) -> None:
    labels = desired["metadata"]["labels"]
    removed = {key: None for key in node["metadata"].get("labels", {}) if key not in labels}
    current = node["spec"].get("taints", [])
    kubernetes_own = [taint for taint in current if taint["key"].startswith("node.kubernetes.io/")]
    change = {"metadata": {"labels": labels | removed}, "spec": {"taints": desired["spec"]["taints"] + kubernetes_own}}
    if removed or labels != node["metadata"].get("labels") or change["spec"]["taints"] != current:
        answer(api.patch(f"{_NODES}/{node['metadata']['name']}", json=change, headers=MERGE_PATCH))


def _wait_until_ready(api: httpx.Client, pool: PoolRecord, size: int) -> None:
    def is_ready() -> bool:
        present = _of_pool(api, pool.name)
        return len(present) >= size and all(nodes.is_ready(node) for node in present)

    if not poll_until(is_ready, READY_SECONDS):
        unready = [node["metadata"]["name"] for node in _of_pool(api, pool.name) if not nodes.is_ready(node)]
        raise TimeoutError(f"Pool {pool.name}: {', '.join(unready) or 'nodes'} not Ready after {READY_SECONDS} s")
