"""Workloads of which Kueue says nothing: those beside the one that it considers, and those that it does not create."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from gke_ai.catalog.kueue import GATE
from gke_ai.catalog.quota import QUEUE_LABEL
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.client import list_objects, request
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import Object, condition, holds, label
from gke_ai.kube.queues import STRICT, shape_of
from gke_ai.kube.values import items, mapping, value
from gke_ai.kube.workloads import PRIORITY_CLASSES, priority_class_of

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

LOCAL_QUEUES = f"/apis/{KUEUE_API}/localqueues"
_DECIDED = ("Finished", "Admitted", "Evicted", "QuotaReserved")


def known_workloads(
    api: ApiClient,
    workloads: Sequence[Object],
    cluster_queues: Iterable[Object],
    owners: Mapping[str, Iterable[Object]],
) -> list[Object]:
    """Returns the Workloads of a cluster with a reason for each that waits, and one for each object that lacks its own.

    Args:
        api: Client of the cluster, which is asked for local queues and priority classes only if a reason is missing.
        workloads: Workloads as Kueue wrote them.
        cluster_queues: ClusterQueues.
        owners: Objects that may have a queue, by kind.
    """
    lacking = [*without_workload(owners, workloads)]
    local_queues = list_objects(api, LOCAL_QUEUES) if any(map(_is_silent, workloads)) else []
    answers = {kind: request(api, "GET", path) for kind, path in PRIORITY_CLASSES.items()} if lacking else {}
    classes = {
        kind: [item["metadata"]["name"] for item in answer.body.get("items", [])]
        for kind, answer in answers.items()
        if answer.code in (200, 404)  # who may not list them does not know whether one is missing
    }
    return [*explained(workloads, local_queues, cluster_queues), *(not_created(*item, classes) for item in lacking)]


def explained(
    workloads: Sequence[Object], local_queues: Iterable[Object], cluster_queues: Iterable[Object]
) -> Iterator[Object]:
    """Yields the workloads. One of which Kueue says nothing gets the reason of the one that Kueue considers.

    That is the first of equal workloads, and the first of all in a queue with StrictFIFO.
    """
    queues = {_place(item, item["metadata"]["name"]): value(item, "spec", "clusterQueue") for item in local_queues}
    strict = {item["metadata"]["name"] for item in cluster_queues if value(item, "spec", "queueingStrategy") == STRICT}

    def group(item: Object) -> tuple[str | None, str]:
        queue = queues.get(_place(item, item["spec"].get("queueName")))
        return queue, "" if queue in strict else shape_of(item)

    stated = [item for item in workloads if _waits(item) and _message(item)] if queues else []
    considered = {group(item): item for item in sorted(stated, key=_turn, reverse=True)}
    for item in workloads:
        queue, shape = group(item) if considered and _is_silent(item) else (None, "")
        first = considered.get((queue, shape)) if queue else None
        if first and shape:
            yield _waiting(item, _message(first))
        elif first and _turn(first) <= _turn(item):
            name = WorkloadName.of_workload(first, {})
            yield _waiting(item, f"{name} is before it in ClusterQueue {queue} ({STRICT})")
        else:
            yield item


def without_workload(
    owners: Mapping[str, Iterable[Object]], workloads: Iterable[Object]
) -> Iterator[tuple[str, Object]]:
    """Yields the objects of queues that are suspended or gated and have no Workload, with their kinds."""
    known = {owner.get("uid") for item in workloads for owner in items(item, "metadata", "ownerReferences")}
    for kind, objects in owners.items():
        for item in objects:
            gated = any(gate.get("name") == GATE for gate in items(item, "spec", "schedulingGates"))
            waits = gated or value(item, "spec", "suspend")
            if waits and label(item, QUEUE_LABEL) and item["metadata"].get("uid") not in known:
                yield kind, item


def not_created(kind: str, item: Object, classes: Mapping[str, Collection[str]]) -> Object:
    """Returns a Workload in place of the one that an object lacks, with the reason.

    Kueue creates none for an object whose priority class does not exist, and writes no event:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/priority/priority.go
    """
    owner = {"kind": kind, "name": item["metadata"]["name"], "controller": True}
    workload = {
        "metadata": {**item["metadata"], "ownerReferences": [owner]},
        "spec": {"queueName": label(item, QUEUE_LABEL)},
    }
    class_kind, name = priority_class_of(kind, item)
    if not name or name in classes.get(class_kind, (name,)):
        return _waiting(workload, "Kueue has created no Workload for it yet")
    return _waiting(
        workload, f"{class_kind} {name} does not exist, so Kueue creates no Workload: create it, or name another class"
    )


def _waits(workload: Object) -> bool:
    return not value(workload, "status", "admission") and not any(holds(workload, kind) for kind in _DECIDED)


def _is_silent(workload: Object) -> bool:
    return _waits(workload) and not _message(workload)


def _message(workload: Object) -> str:
    return str(condition(workload, "QuotaReserved").get("message", ""))


def _waiting(workload: Object, reason: str) -> Object:
    """The workload, with a reason why it waits."""
    others = [entry for entry in items(workload, "status", "conditions") if entry.get("type") != "QuotaReserved"]
    stated = {"type": "QuotaReserved", "status": "False", "message": reason}
    return {**workload, "status": {**mapping(workload, "status"), "conditions": [*others, stated]}}


def _place(item: Object, name: object) -> tuple[str, object]:
    return item["metadata"]["namespace"], name


def _turn(workload: Object) -> tuple[int, str]:
    """The place of a workload in its queue: by priority, then by age."""
    return -int(workload["spec"].get("priority") or 0), str(workload["metadata"].get("creationTimestamp", ""))
