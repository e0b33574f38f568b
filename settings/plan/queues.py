"""Kueue: flavors, quotas, borrowing, priorities and timeouts."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from catalog import quota as quotas
from catalog.nodes import GKE_ACCELERATOR
from catalog.quantities import parse_quantity
from settings.model import ClusterQueue, Flavor, FlavorQuota, Pool, Settings, Workload
from settings.plan.placement import pools_of
from settings.plan.workload_lists import workloads


def flavor_pools(flavor: Flavor, settings: Settings) -> list[Pool]:
    """Pools of the flavor, in its order."""
    by_name = {pool.name: pool for pool in settings.pools}
    return [by_name[name] for name in flavor.pools if name in by_name]


def flavor_labels(flavor: Flavor, settings: Settings) -> dict[str, str]:
    """Node labels of the flavor: its accelerator, and its pool if it has only one; empty for any node.

    Kueue compares a workload's node selector only with labels that the flavor has. A flavor with only the pool's label
    would match workloads for any accelerator.
    """
    if flavor.accelerator is not None:
        return {GKE_ACCELERATOR: flavor.accelerator}
    if flavor.tpu is not None:
        return flavor.tpu.labels
    own = flavor_pools(flavor, settings)
    pool = own[0].selector if len(own) == 1 else {}
    return {**own[0].accelerator_labels, **pool} if own else {}


def queued_resource(flavor: Flavor, settings: Settings) -> str | None:
    """The accelerator resource of a flavor with queued provisioning; None for other flavors."""
    own = flavor_pools(flavor, settings)
    if not own or any(pool.capacity.queued_seconds is None for pool in own):
        return None
    return own[0].accelerator_resource


def quota(flavor_quota: FlavorQuota, settings: Settings) -> dict[str, str]:
    """Nominal quota by resource: as configured, or derived from the flavor's pools at their maximum size."""
    if not isinstance(flavor_quota.quota, str):
        return dict(flavor_quota.quota)
    flavors = settings.queues.flavors if settings.queues else []
    pools = [p for flavor in flavors if flavor.name == flavor_quota.flavor for p in flavor_pools(flavor, settings)]
    # Nodes of different zones differ only in a label, so one shape represents the whole pool.
    return quotas.derive(
        ((pool.shape(pool.zones_in(settings.cluster)[0]), pool.max_nodes(settings.cluster)) for pool in pools),
        settings.measured.room,
    )


def cluster_queue_of(workload: Workload, settings: Settings) -> ClusterQueue | None:
    """The cluster queue of the workload's local queue; None if Kueue does not manage the workload."""
    if workload.queue is None or settings.queues is None:
        return None
    for local in settings.queues.local_queues:
        if (local.name, local.namespace) == (workload.queue, workload.namespace):
            for cluster_queue in settings.queues.cluster_queues:
                if cluster_queue.name == local.cluster_queue:
                    return cluster_queue
    return None


# Classes that every cluster has: https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
BUILT_IN_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


def priority(workload: Workload, settings: Settings) -> int:
    """Priority of the workload's pods: that of its class, else of the global default, else 0 as in Kubernetes."""
    if workload.priority_class in BUILT_IN_PRIORITIES:
        return BUILT_IN_PRIORITIES[workload.priority_class]
    for priority_class in settings.queues.priority_classes if settings.queues else []:
        if priority_class.name == workload.priority_class or (
            workload.priority_class is None and priority_class.global_default
        ):
            return priority_class.value
    return 0


def limits(cluster_queue: ClusterQueue, settings: Settings) -> Iterator[tuple[str, dict[str, Fraction]]]:
    """Maximum use of each flavor of the queue: its quota, plus what it may borrow from its cohort."""
    for own in cluster_queue.flavors:
        total = {}
        for resource, text in quota(own, settings).items():
            lent = sum(
                (lendable(lender, resource, settings) for lender in lenders(cluster_queue, own, settings)), Fraction(0)
            )
            if resource in own.borrowing_limit:
                lent = min(lent, parse_quantity(own.borrowing_limit[resource]))
            total[resource] = parse_quantity(text) + lent
        yield own.flavor, total


# Minimum time for pods to be ready, by default: a node needs minutes, a large model longer.
_PODS_READY_SECONDS = 3600


def pods_ready_timeout(settings: Settings) -> int:
    """Seconds in which the pods of any admitted workload must be ready; 0 for no limit."""
    stated = settings.queues.pods_ready_timeout_seconds if settings.queues else 0
    if stated is not None:
        return stated
    if any(waits_for_flex_start(settings)):
        return 0
    return max([_PODS_READY_SECONDS, *(server.ready_timeout_seconds for server in settings.serving if server.queue)])


def waits_for_flex_start(settings: Settings) -> Iterator[str]:
    """Flavors, pools and compute classes whose flex-start nodes may start days after Kueue admits their pods.

    With queued provisioning the nodes exist before Kueue admits the workload.
    """
    for flavor in settings.queues.flavors if settings.queues else []:
        if flavor.tpu is not None and flavor.tpu.capacity == "flexStart":
            yield f"flavor {flavor.name}"
        yield from (f"pool {pool.name}" for pool in flavor_pools(flavor, settings) if pool.capacity.mode == "flexStart")
    for workload in workloads(settings):
        if workload.queue is None:
            continue
        yield from (f"pool {pool.name}" for pool in pools_of(workload, settings) if pool.capacity.mode == "flexStart")
        for compute_class in settings.compute_classes:
            modes = [priority.capacity.mode for priority in compute_class.priorities]
            if compute_class.name == workload.named_class and "flexStart" in modes:
                yield f"compute class {compute_class.name}"


def lenders(borrower: ClusterQueue, own: FlavorQuota, settings: Settings) -> list[FlavorQuota]:
    """Quotas of the same flavor in the other cluster queues of the borrower's cohort."""
    queues = settings.queues.cluster_queues if settings.queues and borrower.cohort else []
    others = [
        cluster_queue
        for cluster_queue in queues
        if cluster_queue is not borrower and cluster_queue.cohort == borrower.cohort
    ]
    return [flavor_quota for queue in others for flavor_quota in queue.flavors if flavor_quota.flavor == own.flavor]


def lendable(lender: FlavorQuota, resource: str, settings: Settings) -> Fraction:
    """Maximum amount of a resource that a quota lends to its cohort: the lending limit, else the whole quota."""
    nominal = parse_quantity(quota(lender, settings).get(resource, "0"))
    limit = lender.lending_limit.get(resource)
    return nominal if limit is None else min(nominal, parse_quantity(limit))
