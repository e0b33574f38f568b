"""Nodes for pods that wait for one, as GKE's autoscaler and Autopilot make them; `plan` decides, `Provisioner` acts.

An autoscaled pool grows within its bounds, Autopilot makes whatever node a pod needs; nodes without pods go again. No
node is made for a pod that could not run on it: the reason becomes an Event of the pod, as the autoscaler writes it.
Not simulated: how long Google takes, that it may have no capacity, and what Autopilot changes in a pod's requests.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, NamedTuple

import httpx

from catalog.capacity import MODES
from catalog.nodes import GKE_ACCELERATOR, GKE_GPU_DRIVER_VERSION, NVIDIA_GPU, ZONE, autopilot_machine
from local.cluster import fit, nodes
from local.cluster.api import MERGE_PATCH, Refused, View, answer
from local.cluster.folder import Folder
from local.cluster.records import ClusterRecord, PoolRecord, read_pools

Object = dict[str, Any]
log = logging.getLogger(__name__)

# GKE waits ten minutes (https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler); nobody pays for
# a node here, but a test waits for it to go.
IDLE_SECONDS = 15.0
_AUTOPILOT_POOL = "nap-"
_EVERYWHERE = "/api/v1/nodes"


class NewNode(NamedTuple):
    """A node to make, and the uid of the pod that it was first made for."""

    node: Object
    pod: str


@dataclass
class Plan:
    """What is to be done for the pods that wait: nodes to make, why the others get none (by the pod's uid), and the
    names of living nodes that will be needed."""

    make: list[NewNode] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    needed: set[str] = field(default_factory=set)


def is_waiting(pod: Object) -> bool:
    """Whether the scheduler found no node for a pod. Not so for one with scheduling gates, such as Kueue's."""
    if pod["metadata"].get("deletionTimestamp") or pod["spec"].get("nodeName"):
        return False
    conditions = pod.get("status", {}).get("conditions", [])
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions)


def occupies(pod: Object) -> bool:
    """Whether a pod takes a place on its node."""
    return bool(pod["spec"].get("nodeName")) and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def plan(
    cluster: ClusterRecord, pools: Iterable[PoolRecord], present: Iterable[Object], pods: Iterable[Object]
) -> Plan:
    """Find each waiting pod a place, oldest first: on a living node, on one already planned, else on a new one."""
    result = Plan()
    pools, living, pods = list(pools), [node for node in present if not _closed(node)], list(pods)
    rooms = {node["metadata"]["name"]: (node, fit.allocatable(node)) for node in living}
    for pod in filter(occupies, pods):
        if (name := pod["spec"]["nodeName"]) in rooms:
            node, free = rooms[name]
            rooms[name] = node, fit.less(free, fit.requests(pod))
    for pod in sorted(filter(is_waiting, pods), key=lambda pod: str(pod["metadata"].get("creationTimestamp"))):
        uid = pod["metadata"]["uid"]
        home = next((name for name, (node, free) in rooms.items() if fit.refusal(pod, node, free) is None), None)
        if home is None:
            made, reason = _new_node(cluster, pools, [node for node, _ in rooms.values()], pod)
            if made is None:
                result.refused[uid] = reason
                continue
            home = made["metadata"]["name"]
            rooms[home] = made, fit.allocatable(made)
            result.make.append(NewNode(made, uid))
        node, free = rooms[home]
        rooms[home] = node, fit.less(free, fit.requests(pod))
        result.needed.add(home)
    return result


def _closed(node: Object) -> bool:
    return bool(node["spec"].get("unschedulable") or node["metadata"].get("deletionTimestamp"))


def _new_node(
    cluster: ClusterRecord, pools: list[PoolRecord], present: list[Object], pod: Object
) -> tuple[Object | None, str]:
    """A node that would take the pod, or None and the reason."""
    reasons = []
    try:
        candidates = [_autopilot_pool(cluster, pod)] if cluster.mode == "autopilot" else pools
    except LookupError as none:
        return None, str(none)
    for pool in candidates:
        of_pool = [node for node in present if nodes.pool_of(node) == pool.name]
        zones = [zone for zone in pool.zones if zone == pod["spec"].get("nodeSelector", {}).get(ZONE, zone)]
        if not zones:
            reasons.append(f"{pool.name}: it has no nodes in the pod's zone")
            continue
        node = nodes.new_nodes(cluster, _in_zones(pool, zones), of_pool, 1)[0]
        refusal = fit.refusal(pod, node, fit.allocatable(node))
        if refusal is None and not pool.autoscaled:
            refusal = "it is of fixed size and full"
        elif refusal is None and len(of_pool) >= pool.max_nodes:
            refusal = f"max node group size reached ({pool.max_nodes})"
        if refusal is None:
            return node, ""
        reasons.append(f"{pool.name}: {refusal}")
    return None, "; ".join(reasons) or "the cluster has no node pool"


def _in_zones(pool: PoolRecord, zones: list[str]) -> PoolRecord:
    return PoolRecord(**{**vars(pool), "zones": zones})


def _autopilot_pool(cluster: ClusterRecord, pod: Object) -> PoolRecord:
    """The pool that Autopilot would make for a pod. Raises LookupError with the reason if there is none."""
    selector = pod["spec"].get("nodeSelector", {})
    asked = fit.requests(pod)
    gpus = int(asked.get(NVIDIA_GPU, 0))
    gpu = selector.get(GKE_ACCELERATOR)
    if gpus and gpu is None:
        raise LookupError(
            f"the pod asks for {NVIDIA_GPU} but has no node selector {GKE_ACCELERATOR} to say of which type"
        )
    machine = autopilot_machine(gpu, gpus, asked.get("cpu", Fraction(0)), asked.get("memory", Fraction(0)))
    # A mode is asked for by the labels that its nodes carry, such as gke-spot=true.
    chosen = (name for name, mode in MODES.items() if mode.labels and mode.labels.items() <= selector.items())
    capacity = next(chosen, "onDemand")
    return PoolRecord(
        name=f"{_AUTOPILOT_POOL}{machine.name}-{MODES[capacity].provisioning}",
        machine_type=machine.name,
        gpu=machine.gpu,
        gpus=machine.gpus,
        driver=selector.get(GKE_GPU_DRIVER_VERSION, "default"),
        capacity=capacity,
        zones=cluster.zones,
        max_nodes=1000,
    )


class Provisioner:
    """Carries out plans as pods and nodes change."""

    def __init__(self, folder: Folder, api: httpx.AsyncClient, present: View, pods: View) -> None:
        self._folder = folder
        self._api = api
        self._nodes = present
        self._pods = pods
        self._told: set[tuple[str, str]] = set()
        self._idle_since: dict[str, float] = {}

    async def run(self, changed: asyncio.Event) -> None:
        """Reconcile at every change, and once a second for what only time brings."""
        await asyncio.gather(self._nodes.synced.wait(), self._pods.synced.wait())
        while True:
            changed.clear()
            try:
                await self._reconcile()
            except (httpx.HTTPError, Refused) as error:
                log.warning("provisioning: %s, trying again", error)
            except Exception:
                # One pod that nobody thought of must not end the proxy and the controllers beside this.
                log.exception("provisioning failed, trying again")
            try:
                await asyncio.wait_for(changed.wait(), 1)
                # Many changes come at once: a Deployment's pods, a pool's nodes.
                await asyncio.sleep(0.05)
            except TimeoutError:
                pass

    async def _reconcile(self) -> None:
        cluster, pools = self._folder.record, read_pools(self._folder.pools)
        pods = list(self._pods.objects.values())
        result = plan(cluster, pools, self._nodes.objects.values(), pods)
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        for made in result.make:
            answered = answer(await self._api.post(_EVERYWHERE, json=made.node))
            # At once, not when the watch tells: the next round must not make it again.
            self._nodes.objects["", answered["metadata"]["name"]] = answered
            message = f"pod triggered scale-up: {nodes.pool_of(answered)} gets node {answered['metadata']['name']}"
            await self._tell(by_uid[made.pod], "TriggeredScaleUp", message)
        for uid, reason in result.refused.items():
            await self._tell(by_uid[uid], "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reason}")
        self._told = {(uid, message) for uid, message in self._told if uid in by_uid}
        await self._remove_idle({pool.name: pool for pool in pools}, result.needed)

    async def _remove_idle(self, pools: Mapping[str, PoolRecord], needed: set[str]) -> None:
        """Remove nodes that had no pod for a while: Autopilot's, and an autoscaled pool's above its minimum."""
        living = list(self._nodes.objects.values())
        sizes = Counter(nodes.pool_of(node) for node in living)
        busy = needed | {pod["spec"]["nodeName"] for pod in self._pods.objects.values() if _keeps(pod)}
        now = time.monotonic()
        idle = {node["metadata"]["name"] for node in living} - busy
        self._idle_since = {name: self._idle_since.get(name, now) for name in idle}
        for node in living:
            name, pool = node["metadata"]["name"], nodes.pool_of(node)
            # A pool of a Standard cluster that isn't known was removed while a node of it was being made.
            known = pools.get(pool)
            surplus = known is None or (known.autoscaled and sizes[pool] > known.floor)
            if surplus and now - self._idle_since.get(name, now) >= IDLE_SECONDS:
                sizes[pool] -= await self._remove(name)

    async def _remove(self, name: str) -> bool:
        """Close a node to new pods, then remove it, unless a pod has come to it meanwhile."""
        path = f"{_EVERYWHERE}/{name}"
        answer(await self._api.patch(path, json={"spec": {"unschedulable": True}}, headers=MERGE_PATCH))
        on_it = await self._api.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={name}"})
        empty = not any(_keeps(pod) for pod in answer(on_it)["items"])
        if empty:
            answer(await self._api.delete(path))
            self._nodes.objects.pop(("", name), None)
        else:
            answer(await self._api.patch(path, json={"spec": {"unschedulable": None}}, headers=MERGE_PATCH))
        return empty

    async def _tell(self, pod: Object, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        if (metadata["uid"], message) in self._told:
            return
        self._told.add((metadata["uid"], message))
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata["uid"],
            },
            "type": "Normal",
            "reason": reason,
            "message": message,
            "source": {"component": "cluster-autoscaler"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        answer(await self._api.post(f"/api/v1/namespaces/{metadata['namespace']}/events", json=event))


def _keeps(pod: Object) -> bool:
    """Whether a pod keeps its node from being idle: not one that is done, nor a DaemonSet's."""
    return occupies(pod) and not any(kind == "DaemonSet" for kind in _owner_kinds(pod))


def _owner_kinds(pod: Object) -> Iterator[str]:
    return (owner["kind"] for owner in pod["metadata"].get("ownerReferences", []))
