"""Carries out the plans of `planner`: creates nodes for waiting pods and ProvisioningRequests, deletes idle nodes.

If a pod gets no node, it writes an Event of the pod with the reason, as the autoscaler does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

from emulator import capacity, delay
from emulator.cluster import nodes, planner
from emulator.cluster.api import MERGE_PATCH, Refused, View, answer
from emulator.cluster.folder import Folder
from emulator.cluster.records import PoolRecord, read_pools

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
        for request in self._views.requests.objects.values():
            if _is_open(request):
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
            await self._report(by_uid[uid], "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reason}")
        self._reported = {(uid, message) for uid, message in self._reported if uid in by_uid}
        await self._remove_idle({pool.name: pool for pool in pools}, result.needed)

    async def _create(self, node: Object) -> str:
        created = answer(await self._api.post(_NODES, json=delay.hold_back(node)))
        name = str(created["metadata"]["name"])
        # Before the watch reports it: the next round must not create the node again.
        self._nodes.objects["", name] = created
        return name

    async def _serve(self, request: Object, pools: list[PoolRecord], out: frozenset[str]) -> None:
        """Creates all nodes of a ProvisioningRequest, or writes into its status why it waits."""
        metadata = request["metadata"]
        templates: dict[str, Object] = {}
        details: dict[str, str] = {}
        try:
            for pod_set in request["spec"]["podSets"]:
                name = pod_set["podTemplateRef"]["name"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/podtemplates/{name}"
                templates[name] = answer(await self._api.get(path))
            new_nodes = planner.provision(
                self._folder.record, pools, self._nodes.objects.values(), request, templates, out
            )
        except (LookupError, Refused) as reason:
            provisioned = _condition("Provisioned", False, "CapacityNotFound", str(reason))
        else:
            for node in new_nodes:
                await self._create(node)
            message = f"{len(new_nodes)} nodes of {nodes.pool_of(new_nodes[0])} are provisioned"
            provisioned = _condition("Provisioned", True, "Provisioned", message)
            # The value of the nodes' label. Kueue can put it into the node selector of the request's pods.
            details = {"ResizeRequestName": metadata["name"]}
        if _message(request) != provisioned["message"]:
            accepted = _condition("Accepted", True, "Accepted", "the request is accepted")
            path = f"/apis/{planner.REQUEST_API}/namespaces/{metadata['namespace']}/provisioningrequests"
            status = {"status": {"conditions": [accepted, provisioned], "provisioningClassDetails": details}}
            response = await self._api.patch(f"{path}/{metadata['name']}/status", json=status, headers=MERGE_PATCH)
            self._views.requests.objects[metadata["namespace"], metadata["name"]] = answer(response)

    async def _remove_idle(self, pools: Mapping[str, PoolRecord], needed: set[str]) -> None:
        """Deletes nodes that had no pod for `delay.idle_seconds()`."""
        present = list(self._nodes.objects.values())
        busy = needed | {pod["spec"]["nodeName"] for pod in self._pods.objects.values() if _keeps(pod)}
        now, patience = time.monotonic(), delay.idle_seconds()
        unused = {node["metadata"]["name"] for node in present} - busy
        self._idle_since = {name: self._idle_since.get(name, now) for name in unused}
        idle = {name for name, since in self._idle_since.items() if now - since >= patience}
        groups = list(planner.idle(present, pools, idle))
        for names in groups:
            await self._close(names, True)
        if groups:
            await asyncio.sleep(BIND_SECONDS)
        for names in groups:
            await self._remove(names)

    async def _remove(self, names: list[str]) -> None:
        """Deletes cordoned nodes together, unless a pod was bound to one of them meanwhile."""
        for name in names:
            response = await self._api.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={name}"})
            if any(_keeps(pod) for pod in answer(response)["items"]):
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


def _is_open(request: Object) -> bool:
    """Whether a ProvisioningRequest has the provisioner's class and has no nodes yet."""
    conditions = request.get("status", {}).get("conditions", [])
    done = any(c["type"] == "Provisioned" and c["status"] == "True" for c in conditions)
    return not done and request["spec"]["provisioningClassName"] == planner.QUEUED_CLASS


def _message(request: Object) -> str | None:
    conditions = request.get("status", {}).get("conditions", [])
    return next((str(c["message"]) for c in conditions if c["type"] == "Provisioned"), None)


def _condition(condition_type: str, is_true: bool, reason: str, message: str) -> Object:
    return {
        "type": condition_type,
        "status": str(is_true),
        "reason": reason,
        "message": message,
        "lastTransitionTime": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _keeps(pod: Object) -> bool:
    """Whether a pod keeps its node from being idle.

    Finished pods and DaemonSet pods don't.
    """
    return planner.occupies(pod) and not any(kind == "DaemonSet" for kind in _owner_kinds(pod))


def _owner_kinds(pod: Object) -> Iterator[str]:
    return (owner["kind"] for owner in pod["metadata"].get("ownerReferences", []))
