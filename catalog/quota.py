"""Quota for Kueue, computed from the nodes that there can be."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from catalog.nodes import NVIDIA_GPU, NodeShape, allocatable
from catalog.quantities import format_quantity, parse_quantity

# Names a workload's local queue: https://kueue.sigs.k8s.io/docs/tasks/run/
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# What a queue gives quota for, in the order in which it is written. Pods aren't rationed.
COVERED = ("cpu", "memory", NVIDIA_GPU, "ephemeral-storage")


def derive(shapes_with_counts: Iterable[tuple[NodeShape, int]]) -> dict[str, str]:
    """The sum of what pods can get of these nodes, each shape so many times, as Kubernetes quantities.

    Kueue counts quota, not nodes: a sum hides that a pod must fit one node, and GKE's own DaemonSets take their share
    of each node (https://kueue.sigs.k8s.io/docs/tasks/manage/administer_cluster_quotas/).
    """
    total = dict.fromkeys(COVERED, Fraction(0))
    for shape, count in shapes_with_counts:
        free = allocatable(shape)
        for resource in COVERED:
            total[resource] += parse_quantity(free.get(resource, "0")) * count
    return {resource: format_quantity(resource, amount) for resource, amount in total.items()}
