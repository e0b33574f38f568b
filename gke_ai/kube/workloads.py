"""The controllers of pods, servers or not, and Workloads that lose their quota."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gke_ai.catalog.kueue.configuration import PRIORITY_LABEL
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.kube.objects import label
from gke_ai.kube.pods import accelerators, limited_only, templates
from gke_ai.kube.values import items, mapping, number, value

SERVERS = ("Deployment", "StatefulSet")
# Kueue's label on a run with its longest time, which it copies into the Workload.
MAX_EXEC_TIME = "kueue.x-k8s.io/max-exec-time-seconds"
# API paths of the classes from which Kueue takes a priority.
PRIORITY_CLASSES: Mapping[str, str] = {
    "WorkloadPriorityClass": f"/apis/{KUEUE_API}/workloadpriorityclasses",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
}


def is_server(controller: Mapping[str, Any]) -> bool:
    """Whether a Deployment or a StatefulSet has a queue or accelerators. Adapters and frontends have neither."""
    template = mapping(controller, "spec", "template")
    queued = any(value(mapping(item, "metadata", "labels"), QUEUE_LABEL) for item in (controller, template))
    return queued or bool(accelerators(mapping(template, "spec")))


def priority_class_of(kind: str, item: Mapping[str, Any]) -> tuple[str, str]:
    """Returns kind and name of the class from which Kueue takes the priority of an object; an empty name without one.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go, ExtractPriority
    """
    if name := label(item, PRIORITY_LABEL):
        return "WorkloadPriorityClass", name
    names = (mapping(template, "spec").get("priorityClassName") for template in templates(kind, item))
    return "PriorityClass", str(next(filter(None, names), ""))


def time_limit(item: Mapping[str, Any]) -> int | None:
    """Returns the seconds after which Kueue or Kubernetes ends a Workload, a Job or a JobSet; None without a limit.

    Of a Workload, without those of earlier admissions, which Kueue adds up (reconcileMaxExecutionTime):
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/core/workload_controller.go
    """
    jobs = (mapping(job, "template") for job in items(item, "spec", "replicatedJobs"))
    limits = [number(value(job, "spec", "activeDeadlineSeconds")) for job in (item, *jobs)]
    stated = label(item, MAX_EXEC_TIME)
    limits += [number(value(item, "spec", "maximumExecutionTimeSeconds")), int(stated) if stated.isdecimal() else None]
    limit = min((limit for limit in limits if limit is not None), default=None)
    past = number(value(item, "status", "accumulatedPastExecutionTimeSeconds")) or 0
    return None if limit is None else max(limit - past, 0)


def uncounted_by_topology(workloads: Iterable[Mapping[str, Any]]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Yields each Workload that Kueue placed by topology and can't count after a restart, with the container.

    Kueue then counts a container with limits and no requests as nothing, and admits others onto its node. Before 0.19
    it does not start again.
    """
    for workload in workloads:
        sets = items(workload, "status", "admission", "podSetAssignments")
        if any(mapping(pod_set, "topologyAssignment") for pod_set in sets):
            specs = (mapping(template, "spec") for template in templates("Workload", dict(workload)))
            found = (container for spec in specs for container, _ in limited_only(spec))
            yield from ((workload, container) for container in list(found)[:1])


def released_conditions(workload: Mapping[str, Any], reason: str, message: str, now: str) -> list[Mapping[str, Any]]:
    """The conditions of an evicted Workload without its quota, as Kueue's own job controllers write them.

    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go
    """
    requeued = "True" if reason in ("Preempted", "NodeFailures") else "False"
    new = {
        "QuotaReserved": ("False", "Pending"),
        "Admitted": ("False", "NoReservation"),
        "Requeued": (requeued, reason),
    }
    return [
        *(entry for entry in items(workload, "status", "conditions") if entry["type"] not in new),
        *(
            {"type": kind, "status": status, "reason": why, "message": message, "lastTransitionTime": now}
            for kind, (status, why) in new.items()
        ),
    ]
