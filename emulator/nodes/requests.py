"""ProvisioningRequests: the nodes that each one gets, and its conditions, as in GKE's autoscaler.

All pods of a request get new nodes of one zone of one pool, or none. A request that no pool can serve fails after two
minutes. One that a pool can serve waits for capacity, until `ValidUntilSeconds` if it has the parameter. Its nodes are
booked for a while, and GKE reclaims them at the end of `maxRunDurationSeconds`. Kueue then retries or rejects the run.

Conditions, reasons and times: https://github.com/GoogleCloudPlatform/cluster-autoscaler, at 7d250507339b in
pkg/provisioningrequests (provreqstate, scaleup, reconciler). Not simulated: pools that GKE creates for a request.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from emulator.cloud.records import ClusterRecord, PoolRecord
from emulator.nodes import fit
from emulator.nodes import objects as nodes
from emulator.nodes.placement import Placement
from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MODES
from gke_ai.kube import objects

Object = dict[str, Any]

# https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
QUEUED = "queuedFlexStart"
QUEUED_CLASS = "queued-provisioning.gke.io"
REQUEST_API = "autoscaling.x-k8s.io/v1"
PROVISIONING_REQUEST = "autoscaling.gke.io/provisioning-request"
# Kueue writes the first. Pods with the second, older annotation count too.
CONSUMES = (
    "autoscaling.x-k8s.io/consume-provisioning-request",
    "cluster-autoscaler.kubernetes.io/consume-provisioning-request",
)


class NotServed(LookupError):
    """No pool can serve a request. `reason` is the autoscaler's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class NoCapacity(LookupError):
    """A pool can serve a request, but the capacity is unavailable."""

    def __init__(self, pool: str) -> None:
        super().__init__(f"{pool}: no {QUEUED} capacity (GCE_STOCKOUT)")
        self.pool = pool


# --------------------------------------------------------------------------------------------------------------- nodes
def new_nodes(
    cluster: ClusterRecord,
    pools: Iterable[PoolRecord],
    present: Collection[Object],
    request: Object,
    templates: Mapping[str, Object],
    out: Collection[str] = (),
) -> list[Object]:
    """Returns all nodes for a request, from one zone of one pool. Raises NotServed or NoCapacity.

    Args:
        templates: The PodTemplates of the request's namespace, by name.
        out: The capacity modes that are unavailable.
    """
    pods = [
        _pod_of(templates[pod_set["podTemplateRef"]["name"]])
        for pod_set in request["spec"]["podSets"]
        for _ in range(pod_set["count"])
    ]
    refused = NotServed("NoQueuedNodepoolAvailable", "the cluster has no node pool with queued provisioning")
    for pool in (pool for pool in pools if pool.capacity == QUEUED):
        size = sum(nodes.pool_of(node) == pool.name for node in present)
        for zone in pool.zones:
            try:
                created = _nodes_in_zone(cluster, replace(pool, zones=[zone]), size, pods)
            except NotServed as refusal:
                refused = NotServed(refusal.reason, f"{pool.name}: {refusal}")
                continue
            if QUEUED in out:
                raise NoCapacity(pool.name)
            for node in created:
                node["metadata"]["labels"][PROVISIONING_REQUEST] = resize_request(request)
            return created
    raise refused


def _pod_of(template: Object) -> Object:
    """A pod of a request. GKE adds the toleration for the taint of queued nodes."""
    spec = template["template"]["spec"]
    added = [{"key": taint.key, "operator": "Exists"} for taint in MODES[QUEUED].taints]
    return {"metadata": {}, "spec": spec | {"tolerations": [*spec.get("tolerations", []), *added]}}


def _nodes_in_zone(cluster: ClusterRecord, pool: PoolRecord, size: int, pods: list[Object]) -> list[Object]:
    """New nodes for all the pods, of a pool with `size` nodes that is in one zone."""
    placement = Placement()
    for pod in pods:
        node_name = placement.find(pod)
        if node_name is None:
            (node,) = nodes.new_nodes(cluster, pool, [], 1)
            if refusal := fit.refusal(pod, node, fit.room(node)):
                raise NotServed("ProvisioningRequestNotSchedulableInNodepool", refusal)
            placement.add(node)
            node_name = node["metadata"]["name"]
        placement.place(pod, node_name)
    created = list(placement.nodes.values())
    # A slice is created as a whole, also for a request that fills it only in part.
    missing = nodes.slice_size(created[0]) - len(created)
    created += nodes.new_nodes(cluster, pool, created, max(missing, 0))
    if size + len(created) > pool.max_nodes:
        text = f"it has {size} of at most {pool.max_nodes} nodes, and the request needs {len(created)} more"
        raise NotServed("NodepoolSizeReached", text)
    return created


def resize_request(request: Object) -> str:
    """The name of a request's resize request, which labels its nodes."""
    details = request.get("status", {}).get("provisioningClassDetails") or {}
    if name := details.get("ResizeRequestName"):
        return str(name)
    namespace, name = request["metadata"]["namespace"], request["metadata"]["name"]
    digits = hashlib.sha256(f"{namespace}/{name}".encode()).hexdigest()[:16]
    return f"gke-{namespace[:20]}-{name[:20]}-{digits}"


def consumed_by(pod: Object) -> str | None:
    """The request that a pod consumes, or None. Its nodes are created for the request, not for the pod."""
    annotations = pod["metadata"].get("annotations") or {}
    return next((annotations[key] for key in CONSUMES if key in annotations), None)


# ---------------------------------------------------------------------------------------------------------- conditions
def is_queued(request: Object) -> bool:
    """Whether GKE's autoscaler handles a request."""
    return bool(request["spec"]["provisioningClassName"] == QUEUED_CLASS)


def is_open(request: Object) -> bool:
    """Whether a request still waits for its nodes."""
    return not (_since(request, "Provisioned") or _since(request, "Failed"))


def is_booked(request: Object) -> bool:
    """Whether the nodes of a request stay, whether pods use them or not."""
    ended = any(_since(request, condition) for condition in ("BookingExpired", "CapacityRevoked"))
    return _since(request, "Provisioned") is not None and not ended


def due(request: Object, now: datetime, booking: float, began: datetime) -> list[Object]:
    """The conditions that become true with time.

    Args:
        booking: Seconds for which unused nodes stay.
        began: When the cluster started. No time begins before it: a copy of a cluster has objects of days ago.
    """
    parameters = request["spec"].get("parameters") or {}
    provisioned, result = _since(request, "Provisioned"), []
    if provisioned is None:
        valid = _seconds(parameters.get("ValidUntilSeconds"))
        if is_open(request) and valid and now > max(_created(request), began) + valid:
            text = "Provisioning Request could not provision queued instances in the allocated time."
            result.append(condition("Failed", True, "WaitTimeExceeded", text, now))
        return result
    life = _seconds(parameters.get("maxRunDurationSeconds")) or timedelta(seconds=MAX_RUN_SECONDS)
    provisioned = max(provisioned, began)
    ends = now >= provisioned + life
    if not _since(request, "BookingExpired") and (ends or now >= provisioned + timedelta(seconds=booking)):
        text = "Capacity booking for the Provisioning Request has expired; unused nodes can be deleted."
        result.append(condition("BookingExpired", True, "BookingExpired", text, now))
    if not _since(request, "CapacityRevoked") and ends:
        text = "The capacity of the Provisioning Request was reclaimed: its nodes reached their maximum run duration."
        result.append(condition("CapacityRevoked", True, "CapacityRevoked", text, now))
    return result


def not_served(request: Object, refusal: NotServed, now: datetime, patience: float, began: datetime) -> list[Object]:
    """The condition of a request that no pool can serve: not accepted, and after `patience` seconds failed."""
    if now >= max(_created(request), began) + timedelta(seconds=patience):
        return [condition("Failed", True, refusal.reason, str(refusal), now)]
    if _since(request, "Accepted"):
        return []  # its place in the queue stays
    return [condition("Accepted", False, refusal.reason, str(refusal), now)]


def accepted(provisioned: bool, reason: str, message: str, now: datetime) -> list[Object]:
    """The conditions of a request that a pool can serve."""
    queued = "Provisioning Request was successfully queued."
    return [
        condition("Accepted", True, "SuccessfullyQueued", queued, now),
        condition("Provisioned", provisioned, reason, message, now),
    ]


def condition(type_: str, is_true: bool, reason: str, message: str, now: datetime) -> Object:
    """A condition that changes now."""
    time = now.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"type": type_, "status": str(is_true), "reason": reason, "message": message, "lastTransitionTime": time}


def changed(request: Object, conditions: Iterable[Object]) -> list[Object] | None:
    """All conditions of a request with new ones, or None if nothing changes."""
    present = {each["type"]: each for each in request.get("status", {}).get("conditions", [])}
    fields = ("status", "reason", "message")
    new = {
        each["type"]: each
        for each in conditions
        if [present.get(each["type"], {}).get(field) for field in fields] != [each[field] for field in fields]
    }
    return list((present | new).values()) if new else None


def _since(request: Object, type_: str) -> datetime | None:
    """When a condition became true; None if it is not."""
    found = objects.condition(request, type_)
    return _time(found["lastTransitionTime"]) if found.get("status") == "True" else None


def _created(request: Object) -> datetime:
    return _time(request["metadata"]["creationTimestamp"])


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def _seconds(text: object) -> timedelta | None:
    """A parameter in seconds; None if it is missing or no positive number."""
    return timedelta(seconds=int(str(text))) if str(text).isdigit() and len(str(text)) < 10 and int(str(text)) else None
