"""Node pools of a cluster: made, changed and removed as the `gcp` plugin asks."""

from __future__ import annotations

import time

import httpx

from catalog.nodes import GKE_NODEPOOL, ZONE
from emulator.cluster import nodes
from emulator.cluster.api import MERGE_PATCH, Object, Refused, answer, client
from emulator.cluster.folder import Folder
from emulator.cluster.records import PoolRecord, write_pool

READY_SECONDS = 60
_NODES = "/api/v1/nodes"


def set_pool(name: str, pool: PoolRecord) -> None:
    """Make the pool of cluster `name` what the record says, and return when its nodes are Ready.

    Nodes that the pool would no longer make (another machine, another zone) are replaced, labels and taints changed in
    place. A pool of fixed size has its nodes at once; an autoscaled one its minimum, the rest as pods need them.

    Raises:
        NoSuchCluster: there is no such cluster.
        TimeoutError: its nodes don't become Ready.
    """
    folder = Folder(name)
    record = folder.record
    # First the record: should this process be killed here, the daemon knows the pool and the next call goes on.
    write_pool(folder.pools, pool)
    with client(folder) as api:
        present = _of_pool(api, pool.name)
        keep = [node for node in present if nodes.is_current(node, pool)][: pool.ceiling]
        for node in present:
            if node in keep:
                zone = nodes.label(node, ZONE)
                _relabel(api, node, nodes.node_object(record, pool.shape(zone), node["metadata"]["name"], pool.taints))
            else:
                drain(api, node)
        for node in nodes.new_nodes(record, pool, keep, pool.floor - len(keep)):
            answer(api.post(_NODES, json=node))
        _await_ready(api, pool)


def remove_pool(name: str, pool: str) -> None:
    """Remove a pool with its nodes; their pods go, and whoever owns them makes them anew elsewhere. Idempotent.

    As on GKE without regard to disruption budgets, but without the time that pods have to end there:
    https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools#drain
    """
    folder = Folder(name)
    if not folder.ready:
        return
    (folder.pools / f"{pool}.json").unlink(missing_ok=True)
    with client(folder) as api:
        for node in _of_pool(api, pool):
            drain(api, node)


def drain(api: httpx.Client, node: Object) -> None:
    """Close a node to new pods, delete those that it has and then the node itself."""
    path = f"{_NODES}/{node['metadata']['name']}"
    try:
        answer(api.patch(path, json={"spec": {"unschedulable": True}}, headers=MERGE_PATCH))
        on_it = {"fieldSelector": f"spec.nodeName={node['metadata']['name']}"}
        for pod in answer(api.get("/api/v1/pods", params=on_it))["items"]:
            metadata = pod["metadata"]
            # No grace: once the node is gone no kubelet ends the pod.
            api.delete(f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}?gracePeriodSeconds=0")
        answer(api.delete(path))
    except Refused as refused:
        if refused.status != 404:
            raise


def _of_pool(api: httpx.Client, pool: str) -> list[Object]:
    selector = {"labelSelector": f"{GKE_NODEPOOL}={pool}"}
    found: list[Object] = answer(api.get(_NODES, params=selector))["items"]
    return found


def _relabel(api: httpx.Client, node: Object, wanted: Object) -> None:
    labels = wanted["metadata"]["labels"]
    removed = {key: None for key in node["metadata"].get("labels", {}) if key not in labels}
    has = node["spec"].get("taints", [])
    kubernetes_own = [taint for taint in has if taint["key"].startswith("node.kubernetes.io/")]
    change = {"metadata": {"labels": labels | removed}, "spec": {"taints": wanted["spec"]["taints"] + kubernetes_own}}
    if removed or labels != node["metadata"].get("labels") or change["spec"]["taints"] != has:
        answer(api.patch(f"{_NODES}/{node['metadata']['name']}", json=change, headers=MERGE_PATCH))


def _await_ready(api: httpx.Client, pool: PoolRecord) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while True:
        present = _of_pool(api, pool.name)
        if len(present) >= pool.floor and all(nodes.is_ready(node) for node in present):
            return
        if time.monotonic() > deadline:
            unready = ", ".join(node["metadata"]["name"] for node in present if not nodes.is_ready(node))
            raise TimeoutError(f"Pool {pool.name}: {unready or 'nodes'} not Ready after {READY_SECONDS} s")
        time.sleep(0.05)
