"""Carries out what `planner` decides: makes nodes for pods and ProvisioningRequests that wait, removes idle ones.

Why a pod gets no node becomes an Event of the pod, as the autoscaler writes it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

import httpx

from emulator import capacity
from emulator.cluster import nodes, planner
from emulator.cluster.api import MERGE_PATCH, Refused, View, answer
from emulator.cluster.folder import Folder
from emulator.cluster.records import PoolRecord, read_pools

Object = dict[str, Any]
log = logging.getLogger(__name__)

# GKE waits ten minutes (https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler); nobody pays for
# a node here, but a test waits for it to go.
IDLE_SECONDS = 15.0
# What the scheduler has decided before it heard that a node is closed arrives within this.
BIND_SECONDS = 0.5
_NODES = "/api/v1/nodes"


class Views(NamedTuple):
    """What the provisioner looks at."""

    nodes: View
    pods: View
    classes: View
    requests: View


class Provisioner:
    """Carries out plans as pods and nodes change."""

    def __init__(self, folder: Folder, api: httpx.AsyncClient, views: Views) -> None:
        self._folder = folder
        self._api = api
        self._views = views
        self._nodes, self._pods = views.nodes, views.pods
        self._told: set[tuple[str, str]] = set()
        self._idle_since: dict[str, float] = {}

    async def run(self, changed: asyncio.Event) -> None:
        """Reconcile at every change, and once a second for what only time brings."""
        await asyncio.gather(*(view.synced.wait() for view in self._views))
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
        cluster, pools, out = self._folder.record, read_pools(self._folder.pools), capacity.unavailable()
        for request in self._views.requests.objects.values():
            if _is_open(request):
                await self._serve(request, pools, out)
        pods = list(self._pods.objects.values())
        classes = {name: found for (_, name), found in self._views.classes.objects.items()}
        result = planner.plan(cluster, pools, self._nodes.objects.values(), pods, classes, out)
        by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
        for made in result.make:
            name = await self._make(made.node)
            message = f"pod triggered scale-up: {nodes.pool_of(made.node)} gets node {name}"
            await self._tell(by_uid[made.pod], "TriggeredScaleUp", message)
        for uid, reason in result.refused.items():
            await self._tell(by_uid[uid], "NotTriggerScaleUp", f"pod didn't trigger scale-up: {reason}")
        self._told = {(uid, message) for uid, message in self._told if uid in by_uid}
        await self._remove_idle({pool.name: pool for pool in pools}, result.needed)

    async def _make(self, node: Object) -> str:
        answered = answer(await self._api.post(_NODES, json=node))
        name = str(answered["metadata"]["name"])
        # At once, not when the watch tells: the next round must not make it again.
        self._nodes.objects["", name] = answered
        return name

    async def _serve(self, request: Object, pools: list[PoolRecord], out: frozenset[str]) -> None:
        """Give a ProvisioningRequest all its nodes, or say in its status why it waits."""
        metadata = request["metadata"]
        templates: dict[str, Object] = {}
        details: dict[str, str] = {}
        try:
            for one in request["spec"]["podSets"]:
                name = one["podTemplateRef"]["name"]
                path = f"/api/v1/namespaces/{metadata['namespace']}/podtemplates/{name}"
                templates[name] = answer(await self._api.get(path))
            made = planner.provision(self._folder.record, pools, self._nodes.objects.values(), request, templates, out)
        except (LookupError, Refused) as reason:
            provisioned = _condition("Provisioned", False, "CapacityNotFound", str(reason))
        else:
            for node in made:
                await self._make(node)
            message = f"{len(made)} nodes of {nodes.pool_of(made[0])} are provisioned"
            provisioned = _condition("Provisioned", True, "Provisioned", message)
            # By it Kueue can send the pods to the nodes that came for them, as it is the value of their label.
            details = {"ResizeRequestName": metadata["name"]}
        if _message(request) != provisioned["message"]:
            accepted = _condition("Accepted", True, "Accepted", "the request is accepted")
            path = f"/apis/{planner.REQUEST_API}/namespaces/{metadata['namespace']}/provisioningrequests"
            status = {"status": {"conditions": [accepted, provisioned], "provisioningClassDetails": details}}
            answered = await self._api.patch(f"{path}/{metadata['name']}/status", json=status, headers=MERGE_PATCH)
            self._views.requests.objects[metadata["namespace"], metadata["name"]] = answer(answered)

    async def _remove_idle(self, pools: Mapping[str, PoolRecord], needed: set[str]) -> None:
        """Remove nodes that had no pod for a while."""
        living = list(self._nodes.objects.values())
        busy = needed | {pod["spec"]["nodeName"] for pod in self._pods.objects.values() if _keeps(pod)}
        now = time.monotonic()
        unused = {node["metadata"]["name"] for node in living} - busy
        self._idle_since = {name: self._idle_since.get(name, now) for name in unused}
        long = {name for name, since in self._idle_since.items() if now - since >= IDLE_SECONDS}
        going = list(planner.idle(living, pools, long))
        for names in going:
            await self._close(names, True)
        if going:
            await asyncio.sleep(BIND_SECONDS)
        for names in going:
            await self._remove(names)

    async def _remove(self, names: list[str]) -> None:
        """Remove nodes that are closed to new pods, unless a pod has come to one meanwhile."""
        for name in names:
            on_it = await self._api.get("/api/v1/pods", params={"fieldSelector": f"spec.nodeName={name}"})
            if any(_keeps(pod) for pod in answer(on_it)["items"]):
                await self._close(names, None)
                return
        for name in names:
            answer(await self._api.delete(f"{_NODES}/{name}"))
            self._nodes.objects.pop(("", name), None)

    async def _close(self, names: list[str], closed: bool | None) -> None:
        for name in names:
            change = {"spec": {"unschedulable": closed}}
            answer(await self._api.patch(f"{_NODES}/{name}", json=change, headers=MERGE_PATCH))

    async def _tell(self, pod: Object, reason: str, message: str) -> None:
        metadata = pod["metadata"]
        if (metadata["uid"], message) in self._told:
            return
        self._told.add((metadata["uid"], message))
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
    """Whether a ProvisioningRequest is the provisioner's, and has no nodes yet."""
    conditions = request.get("status", {}).get("conditions", [])
    done = any(c["type"] == "Provisioned" and c["status"] == "True" for c in conditions)
    return not done and request["spec"]["provisioningClassName"] == planner.QUEUED_CLASS


def _message(request: Object) -> str | None:
    conditions = request.get("status", {}).get("conditions", [])
    return next((str(c["message"]) for c in conditions if c["type"] == "Provisioned"), None)


def _condition(kind: str, holds: bool, reason: str, message: str) -> Object:
    return {
        "type": kind,
        "status": str(holds),
        "reason": reason,
        "message": message,
        "lastTransitionTime": _now(),
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _keeps(pod: Object) -> bool:
    """Whether a pod keeps its node from being idle: not one that is done, nor a DaemonSet's."""
    return planner.occupies(pod) and not any(kind == "DaemonSet" for kind in _owner_kinds(pod))


def _owner_kinds(pod: Object) -> Iterator[str]:
    return (owner["kind"] for owner in pod["metadata"].get("ownerReferences", []))
