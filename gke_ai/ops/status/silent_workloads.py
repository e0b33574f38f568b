"""Workloads of which Kueue says nothing: those that are equal to another one, and those that it does not create."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import ApiClient, list_objects, request
from gke_ai.kube.objects import Object, condition, holds, label
from gke_ai.kube.queues import shape_of
from gke_ai.kube.values import items, mapping, value
from gke_ai.kube.workloads import PRIORITY_CLASSES, priority_class_of

Objects = Mapping[str, Iterable[Object]]


def explained(workloads: Sequence[Object], local_queues: Iterable[Object]) -> list[Object]:
    """Returns the workloads. One of which Kueue says nothing gets the reason of an equal one in its cluster queue.

    Kueue considers only the first of equal workloads.
    """
    places = ((item["metadata"], value(item, "spec", "clusterQueue")) for item in local_queues)
    queues = {(metadata["namespace"], metadata["name"]): queue for metadata, queue in places}

    def group(item: Object) -> tuple[object, str]:
        place = item["metadata"]["namespace"], item["spec"].get("queueName")
        return queues.get(place, place), shape_of(item)

    stated = {group(item): said for item in workloads if queues and (said := _said(item))}
    return [
        _waiting(item, why) if stated and _said(item) == "" and (why := stated.get(group(item))) else item
        for item in workloads
    ]


def known_workloads(api: ApiClient, workloads: Sequence[Object], owners: Objects) -> list[Object]:
    """Returns Workloads with a reason for each that waits, and one in place of each that Kueue has not created.

    Args:
        api: Client of the cluster, which is asked only if a reason is missing.
        workloads: Workloads as Kueue wrote them.
        owners: Objects that may have a queue, by kind.
    """
    with_workload = {owner.get("uid") for item in workloads for owner in items(item, "metadata", "ownerReferences")}
    lacking = [
        (kind, item)
        for kind, objects in owners.items()
        for item in objects
        if label(item, QUEUE_LABEL) and item["metadata"].get("uid") not in with_workload
        if value(item, "spec", "suspend") or items(item, "spec", "schedulingGates")
        if not label(item, "kueue.x-k8s.io/pod-group-name")  # the pods of a group have one Workload
    ]
    local_queues = list_objects(api, f"/apis/{KUEUE_API}/localqueues") if "" in map(_said, workloads) else []
    answers = {kind: request(api, "GET", path) for kind, path in PRIORITY_CLASSES.items() if lacking}
    # Who may not list classes does not know whether one is missing.
    listed = {kind: answer.body.get("items", []) for kind, answer in answers.items() if answer.code in (200, 404)}
    return [*explained(workloads, local_queues), *(not_created(kind, item, listed) for kind, item in lacking)]


def not_created(kind: str, item: Object, classes: Objects) -> Object:
    """Returns a Workload in place of the one that an object lacks, with the reason. `classes` are by kind.

    Kueue creates none for an object whose priority class does not exist, and writes no event:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/priority/priority.go
    """
    owner = {"kind": kind, "name": item["metadata"]["name"], "controller": True}
    metadata, spec = {**item["metadata"], "ownerReferences": [owner]}, {"queueName": label(item, QUEUE_LABEL)}
    class_kind, name = priority_class_of(kind, item)
    reason = "Kueue has created no Workload for it yet"
    if name and class_kind in classes and name not in [known["metadata"]["name"] for known in classes[class_kind]]:
        reason = f"{class_kind} {name} does not exist, so Kueue creates no Workload: create it, or name another class"
    return _waiting({"metadata": metadata, "spec": spec}, reason)


def _said(workload: Object) -> str | None:
    """What Kueue says of a workload that waits for quota; None for another one."""
    decided = any(holds(workload, kind) for kind in ("Finished", "Admitted", "Evicted", "QuotaReserved"))
    stated = str(condition(workload, "QuotaReserved").get("message", ""))
    return None if decided or value(workload, "status", "admission") else stated


def _waiting(workload: Object, reason: str) -> Object:
    """The workload, with a reason why it waits."""
    stated = [{"type": "QuotaReserved", "status": "False", "message": reason}]
    return {**workload, "status": {**mapping(workload, "status"), "conditions": stated}}
