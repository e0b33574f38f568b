"""Carries out the plans of `planner`: creates nodes for waiting pods and ProvisioningRequests, deletes idle nodes.

It also replaces nodes that a pool of fixed size has lost. If a pod gets no node, it writes an Event of the pod with the
reason, as the autoscaler does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

from emulator.cloud import capacity, delay
from emulator.cloud.api import MERGE_PATCH, Refused, View, answer
from emulator.cloud.folder import Folder
from emulator.cloud.records import PoolRecord, read_pools
from emulator.nodes import objects as nodes
from emulator.nodes import planner, requests
from emulator.nodes.devices import Devices
from gke_ai.kube.events import NOT_SCALED_UP
from gke_ai.workspace.emulation import LEAVING, UPGRADED

Object = dict[str, Any]
log = logging.getLogger(__name__)

# The scheduler may still bind pods to a node for this long after the node is cordoned.
BIND_SECONDS = 0.5
_NODES = "/api/v1/nodes"


class Views(NamedTuple):
    """The objects that the provisioner watches."""

    nodes: View
    pods: View
    classes: View
    requests: View


class Provisioner:
    """Plans and carries out the plan whenever pods or nodes change."""

    def __init__(self, folder: Folder, api: httpx.AsyncClient, views: Views) -> None:
        self._folder = folder
        self._api = api
        self._views = views
        self._nodes, self._pods = views.nodes, views.pods
        self._reported: set[tuple[str, str]] = set()
        self._idle_since: dict[str, float] = {}
        self._lost_since: dict[str, float] = {}
        self._began = datetime.now(UTC)
        self._devices = Devices(api)

    async def run(self, changed: asyncio.Event) -> None:
        """Reconciles at every change, and once a second because nodes become idle with time."""
        await asyncio.gather(*(view.synced.wait() for view in self._views))
        while True:
            changed.clear()
            try:
                await self._reconcile()
            except (httpx.HTTPError, Refused) as error:
                log.warning("provisioning: %s, trying again", error)
            except Exception:
                # An unexpected pod must not end the proxy and the controllers in the same process.
                log.exception("provisioning failed, trying again")
            try:
                await asyncio.wait_for(changed.wait(), 1)
                # Changes come in groups, such as the pods of a Deployment.
                await asyncio.sleep(0.05)
            except TimeoutError:
                pass

    async def _reconcile(self) -> None:
        cluster, pools, out = self._folder.record, read_pools(self._folder.pools), capacity.unavailable()
        await self._devices.publish(pools, list(self._nodes.objects.values()))
        for request in list(self._views.requests.objects.values()):
            if requests.is_queued(request):
                await self._serve(request, pools, out)
        pods = list(self._pods.objects.values())
        classes = {name: compute_class for (_, name), compute_class in self._views.classes.objects.items()}
        result = planner.plan(cluster, pools, self._nodes.objects.values(), pods, classes, out)
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        for new in result.new_nodes:
            name = await self._create(new.node)
            message = f"pod triggered scale-up: {nodes.pool_of(new.node)} gets node {name}"
            await self._report(by_uid[new.pod], "TriggeredScaleUp", message)
        for uid, reason in result.refused.items():
            await self._report(by_uid[uid], NOT_SCALED_UP, f"pod didn't trigger scale-up: {reason}")
        self._reported = {(uid, message) for uid, message in self._reported if uid in by_uid}
        await self._repair(pools, out)
        await self._remove_idle({pool.name: pool for pool in pools}, result.needed)

    async def _create(self, node: Object) -> str:
        created = answer(await self._api.post(_NODES, json=delay.hold_back(node)))
        name = str(created["metadata"]["name"])
        # Before the watch reports it: the next round must not create the node again.
        self._nodes.objects["", name] = created
        return name

    async def _repair(self, pools: list[PoolRecord], out: frozenset[str]) -> None:
        """Creates the nodes that pools of fixed size have lost, `delay.repair_seconds()` after the first of a pool."""
        now, left = time.monotonic(), defaultdict[str, list[Object]](list)
        for node in self._nodes.objects.values():
            left[nodes.pool_of(node)].append(node)
        lossy = [pool for pool in pools if not pool.autoscaled and len(left[pool.name]) < pool.floor]
        self._lost_since = {pool.name: self._lost_since.get(pool.name, now) for pool in lossy}
        for pool in lossy:
            if now - self._lost_since[pool.name] >= delay.repair_seconds() and pool.capacity not in out:
                missing = pool.floor - len(left[pool.name])
                for node in nodes.new_nodes(self._folder.record, pool, left[pool.name], missing):
                    await self._create(node)

    async def _serve(self, request: Object, pools: list[PoolRecord], out: frozenset[str]) -> None:
        """Creates all nodes of a ProvisioningRequest, or deletes them at their end, and writes its status."""
        metadata, now = request["metadata"], datetime.now(UTC)
        details = request.get("status", {}).get("provisioningClassDetails", {})
        conditions = requests.due(request, now, delay.booking_seconds(), self._began)
        if any(condition["type"] == "CapacityRevoked" for condition in conditions):
            await self._reclaim(requests.resize_request(request))
        if not conditions and requests.is_open(request):
            try:
                new_nodes = await self._nodes_for(request, pools, out)
            except requests.NoCapacity as reason:
                conditions = requests.accepted(False, "ResourcePoolExhausted", str(reason), now)
                details = {"NodePoolName": reason.pool}
            except requests.NotServed as refusal:
                conditions = requests.not_served(request, refusal, now, delay.request_seconds(), self._began)
            else:
                message = f"{len(new_nodes)} nodes of {nodes.pool_of(new_nodes[0])} are provisioned"
                conditions = requests.accepted(True, "Provisioned", message, now)
                # The value of the nodes' label. Kueue can put it into the node selector of the request's pods.
                details = {"ResizeRequestName": requests.resize_request(request)}
                details["NodePoolName"] = nodes.pool_of(new_nodes[0])
        if (all_conditions := requests.changed(request, conditions)) is not None:
            path = f"/apis/{requests.REQUEST_API}/namespaces/{metadata['namespace']}/provisioningrequests"
            status = {"status": {"conditions": all_conditions, "provisioningClassDetails": details}}
            response = await self._api.patch(f"{path}/{metadata['name']}/status", json=status, headers=MERGE_PATCH)
            self._views.requests.objects[metadata["namespace"], metadata["name"]] = answer(response)

    async def _nodes_for(self, request: Object, pools: list[PoolRecord], out: frozenset[str]) -> list[Object]:
        """Creates the nodes of a request. Raises NotServed or NoCapacity if it gets none."""
        templates: dict[str, Object] = {}
        for pod_set in request["spec"]["podSets"]:
            name = pod_set["podTemplateRef"]["name"]
            path = f"/api/v1/namespaces/{request['metadata']['namespace']}/podtemplates/{name}"
            try:
                templates[name] = answer(await self._api.get(path))
            except Refused as missing:
                raise requests.NotServed("MissingPodTemplates", str(missing)) from missing
        present = list(self._nodes.objects.values())
        created = requests.new_nodes(self._folder.record, pools, present, request, templates, out)
        for node in created:
            await self._create(node)
        return created

    async def _reclaim(self, resize_request: str) -> None:
        """Deletes the nodes of a request, with their pods, as Compute Engine does at the end of their life."""
        reclaimed = [
            name
            for (_, name), node in self._nodes.objects.items()
            if nodes.label(node, requests.PROVISIONING_REQUEST) == resize_request
        ]
        for name in reclaimed:
            answer(await self._api.delete(f"{_NODES}/{name}"))
            self._nodes.objects.pop(("", name), None)
        for (namespace, name), pod in list(self._pods.objects.items()):
            if pod["spec"].get("nodeName") in reclaimed:  # Kubernetes would do it a minute later
                with suppress(Refused):
                    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
                    answer(await self._api.delete(path, params={"gracePeriodSeconds": "0"}))

    async def _remove_idle(self, pools: Mapping[str, PoolRecord], needed: set[str]) -> None:
        """Deletes nodes that had no pod for `delay.idle_seconds()`."""
        present = list(self._nodes.objects.values())
        busy = needed | {pod["spec"]["nodeName"] for pod in self._pods.objects.values() if keeps_node(pod)}
        now, patience = time.monotonic(), delay.idle_seconds()
        booked = {requests.resize_request(r) for r in self._views.requests.objects.values() if requests.is_booked(r)}
        kept = {n["metadata"]["name"] for n in present if nodes.label(n, requests.PROVISIONING_REQUEST) in booked}
        # GKE keeps its autoscaler from changing the nodes of an upgrade.
        kept |= {node["metadata"]["name"] for node in present if UPGRADED in node["metadata"].get("annotations", {})}
        unused = {node["metadata"]["name"] for node in present} - busy - kept
        self._idle_since = {name: self._idle_since.get(name, now) for name in unused}
        await self._mark(present, {name for names in planner.idle(present, pools, unused) for name in names})
        idle = {name for name, since in self._idle_since.items() if now - since >= patience}
        groups = list(planner.idle(present, pools, idle))
        for names in groups:
            await self._close(names, True)
        if groups:
            await asyncio.sleep(BIND_SECONDS)
        for names in groups:
            await self._remove(names)

    async def _mark(self, present: list[Object], leaving: set[str]) -> None:
        """Marks the nodes that are deleted once they have been idle for long enough, and no others."""
        for node in present:
            name = node["metadata"]["name"]
            if (name in leaving) != (LEAVING in node["metadata"].get("annotations", {})):
                change = {"metadata": {"annotations": {LEAVING: "true" if name in leaving else None}}}
                answer(await self._api.patch(f"{_NODES}/{name}", json=change, headers=MERGE_PATCH))

    async def _remove(self, names: list[str]) -> None:
        """Deletes cordoned nodes together, unless a pod was bound to one of them meanwhile."""
        for name in names:
            response = await self._api.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={name}"})
            if any(keeps_node(pod) for pod in answer(response)["items"]):
                await self._close(names, None)
                return
        for name in names:
            answer(await self._api.delete(f"{_NODES}/{name}"))
            self._nodes.objects.pop(("", name), None)

    async def _close(self, names: list[str], closed: bool | None) -> None:
        for name in names:
            change = {"spec": {"unschedulable": closed}}
            answer(await self._api.patch(f"{_NODES}/{name}", json=change, headers=MERGE_PATCH))

    async def _report(self, pod: Object, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        if (metadata["uid"], message) in self._reported:
            return
        self._reported.add((metadata["uid"], message))
        now = _now()
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


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def keeps_node(pod: Object) -> bool:
    """Whether a pod keeps its node from being idle.

    Finished pods and DaemonSet pods don't.
    """
    return planner.occupies(pod) and not any(kind == "DaemonSet" for kind in _owner_kinds(pod))


def _owner_kinds(pod: Object) -> Iterator[str]:
    return (owner["kind"] for owner in pod["metadata"].get("ownerReferences", []))
