"""Quota for Kueue, derived from the maximum number of nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import NVIDIA_GPU, NodeShape, free
from gke_ai.catalog.quantities import added

# Name of the ResourceQuota of a tenant's namespace.
TENANT_QUOTA = "tenant"
# The label that names a workload's local queue: https://kueue.sigs.k8s.io/docs/tasks/run/
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# The annotation of a Job that may start with fewer pods: https://kueue.sigs.k8s.io/docs/tasks/run/jobs/#partial-admission
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
# Resources with quota, in the order of the objects. Pods have no quota.
_COVERED = ("cpu", "memory", NVIDIA_GPU, GOOGLE_TPU, "ephemeral-storage")


def derive(
    shapes_with_counts: Iterable[tuple[NodeShape, int]], room: Callable[[NodeShape], Mapping[str, Fraction]] = free
) -> dict[str, Fraction]:
    """Returns the resources of these nodes for pods of workloads.

    `room` returns them for one node, computed or measured, without the requests of GKE's DaemonSets. Kueue counts
    quota, not nodes: a sum hides that a pod must fit on one node (https://kueue.sigs.k8s.io/docs/tasks/manage/administer_cluster_quotas/).
    """
    total = added(
        *({resource: amount * count for resource, amount in room(shape).items()} for shape, count in shapes_with_counts)
    )
    return {resource: total[resource] for resource in _COVERED if resource in total}
