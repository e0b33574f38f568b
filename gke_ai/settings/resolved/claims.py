"""Templates by which pods claim the NICs of an RDMA network, and channels of an NVLink domain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from gke_ai.catalog.fabric.nvlink import DOMAIN
from gke_ai.settings.model import LocalQueue, Workload
from gke_ai.settings.resolved.queues import Queue
from gke_ai.settings.resolved.workloads import Placed


def claims_of(
    namespaces: Iterable[str],
    placed: Iterable[Placed[Workload]],
    cluster_queues: Iterable[Queue],
    local_queues: Iterable[LocalQueue],
) -> dict[str, tuple[str, ...]]:
    """The templates by namespace: those that its runs use, and those of the nodes that its queues may use."""
    names: dict[str, set[str]] = {namespace: set() for namespace in namespaces}
    for workload in placed:
        names[workload.section.namespace].update(workload.fabric.claims)
    by_queue = {queue.section.name: queue.claims for queue in cluster_queues}
    for queue in local_queues:
        names[queue.namespace] |= by_queue.get(queue.cluster_queue, set())
    return {namespace: tuple(sorted(claims)) for namespace, claims in names.items()}


def use_nvlink(claims: Mapping[str, Sequence[str]]) -> bool:
    """Whether pods of a namespace claim channels, so that the cluster needs NVIDIA's driver for them."""
    return any(DOMAIN in names for names in claims.values())
