"""Resource requests of a workload's pods, and how many must run at the same time."""

from __future__ import annotations

from fractions import Fraction

from catalog.quantities import parse_quantity
from settings.model import Settings, Workload

# Default requests of the sidecar, set by the webhook of the FUSE driver:
# https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-sidecar
_SIDECAR_DEFAULTS = {"cpu": "250m", "memory": "256Mi", "ephemeral-storage": "5Gi"}


def accelerators(workload: Workload, settings: Settings) -> tuple[str, int]:
    """Accelerator resource of one pod of the workload, and its number."""
    return workload.accelerator_resource, workload.accelerators_per_pod(settings.pools)


def pod_request(workload: Workload, settings: Settings) -> dict[str, Fraction]:
    """Requests of one pod's containers by resource."""
    stated = {
        "cpu": workload.resources.cpu,
        "memory": workload.resources.memory,
        "ephemeral-storage": workload.resources.ephemeral_storage,
    }
    request = {resource: parse_quantity(text) for resource, text in stated.items() if text is not None}
    for resource in request.keys() & workload.further_request.keys():
        request[resource] += parse_quantity(workload.further_request[resource])
    resource, count = accelerators(workload, settings)
    request[resource] = Fraction(count)
    return request


def node_request(workload: Workload, settings: Settings) -> dict[str, Fraction]:
    """Requests of one pod on its node: those of its containers, and of the FUSE sidecar if it mounts a bucket."""
    request = pod_request(workload, settings)
    if (stated := workload.sidecar) is not None:
        sidecar = dict(_SIDECAR_DEFAULTS)
        sidecar["cpu"] = stated.cpu or sidecar["cpu"]
        sidecar["memory"] = stated.memory or sidecar["memory"]
        sidecar["ephemeral-storage"] = stated.ephemeral_storage or sidecar["ephemeral-storage"]
        for resource, text in sidecar.items():
            request[resource] = request.get(resource, Fraction(0)) + parse_quantity(text)
    return request


def queued_request(workload: Workload, settings: Settings) -> dict[str, Fraction]:
    """Requests of one pod that Kueue counts.

    Kueue sees the pods of a server after the driver's webhook has added the sidecar, and of a Job only the template:
    https://kueue.sigs.k8s.io/docs/tasks/run/plain_pods/
    """
    return (node_request if workload.queue_counts_sidecar else pod_request)(workload, settings)


def pods_at_once(workload: Workload, settings: Settings) -> int:
    """Pods that must run at the same time: all pods of a Job, one pod of a server."""
    return workload.pods_at_once(settings.pools)


def max_pods(workload: Workload, settings: Settings) -> int:
    """Maximum number of pods of the workload: its own, or that of its autoscaler."""
    limits = (a.max_replicas for a in settings.autoscaling if not workload.ends and a.server == workload.name)
    return workload.max_pods(settings.pools, next(limits, None))
