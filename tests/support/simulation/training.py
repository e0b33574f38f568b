"""A cluster queue of 8 GPUs with its runs, from which replays of a run that waits begin."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.snapshot.format import Snapshot, build
from tests.support.snapshots import TAKEN

Object = dict[str, Any]
_FLAVORS = [{"name": "l4", "resources": [{"name": NVIDIA_GPU, "nominalQuota": "8"}]}]
_GROUPS = [{"coveredResources": [NVIDIA_GPU], "flavors": _FLAVORS}]
QUEUE = {"metadata": {"name": "training"}, "spec": {"resourceGroups": _GROUPS}}


def workload(
    name: str, created: float, started: float | None = None, ended: float | None = None, pods: int = 8
) -> Object:
    def at(seconds: float) -> str:
        return (TAKEN - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

    times = {"QuotaReserved": started, "Admitted": started, "Finished": ended}
    stated = {kind: at(seconds) for kind, seconds in times.items() if seconds is not None}
    metadata = {"name": name, "namespace": "team", "creationTimestamp": at(created)}
    spec = {"queueName": "gpus", "priority": 0, "podSets": [pod_set(pods)]}
    parts = {"metadata": metadata, "spec": spec, "status": status(stated, "training", pods)}
    return {"apiVersion": KUEUE_API, "kind": "Workload", **parts}


def pod_set(pods: int) -> Object:
    container = {"name": "main", "resources": {"requests": {NVIDIA_GPU: "1"}}}
    return {"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}}


def status(times: Mapping[str, str], queue: str, pods: int) -> Object:
    """The status of a Workload by the times of its conditions."""
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "lastTransitionTime": time} for kind, time in times.items()
    ]
    if "Admitted" not in times:
        return {"conditions": conditions}
    used = {"name": "main", "flavors": {NVIDIA_GPU: "l4"}, "resourceUsage": {NVIDIA_GPU: str(pods)}, "count": pods}
    return {"conditions": conditions, "admission": {"clusterQueue": queue, "podSetAssignments": [used]}}


def state(*workloads: Object, stop: str = "None", owners: Mapping[str, list[Object]] | None = None) -> Snapshot:
    """The queue and its runs, with their owners by kind."""
    spec = {"clusterQueue": "training", "stopPolicy": stop}
    local = {"metadata": {"name": "gpus", "namespace": "team"}, "spec": spec}
    flavor: Object = {"metadata": {"name": "l4"}, "spec": {}}
    queues: dict[str, list[Object]] = {"ResourceFlavor": [flavor], "ClusterQueue": [QUEUE], "LocalQueue": [local]}
    return build("prod", {**queues, **(owners or {}), "Workload": [*workloads]}, TAKEN)


def past(seconds: float, count: int = 200) -> list[Object]:
    """Runs that ended long ago, before the week from which arrivals are drawn."""
    long_ago = 30 * 86_400.0
    return [workload(f"old-{number}", long_ago, long_ago, long_ago - seconds) for number in range(count)]
