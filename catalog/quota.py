"""Quota for Kueue, computed from the nodes that there can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction

from catalog.nodes import NVIDIA_GPU, NodeShape, free
from catalog.quantities import format_quantity, parse_quantity
from catalog.tpus import GOOGLE_TPU

# Names a workload's local queue: https://kueue.sigs.k8s.io/docs/tasks/run/
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
# What a queue gives quota for, in the order in which it is written. Pods aren't rationed.
_COVERED = ("cpu", "memory", NVIDIA_GPU, GOOGLE_TPU, "ephemeral-storage")


def derive(
    shapes_with_counts: Iterable[tuple[NodeShape, int]], room: Callable[[NodeShape], Mapping[str, str]] = free
) -> dict[str, str]:
    """The sum of what workloads can get of these nodes, each shape so many times, as Kubernetes quantities.

    `room` gives that for one node: as computed, unless it was measured.

    What GKE's own DaemonSets request is deducted. Kueue counts quota, not nodes: a sum hides that a pod must fit one
    node (https://kueue.sigs.k8s.io/docs/tasks/manage/administer_cluster_quotas/).
    """
    total: dict[str, Fraction] = {}
    for shape, count in shapes_with_counts:
        for resource, text in room(shape).items():
            total[resource] = total.get(resource, Fraction(0)) + parse_quantity(text) * count
    return {resource: format_quantity(resource, total[resource]) for resource in _COVERED if resource in total}
