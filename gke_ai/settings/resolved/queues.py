"""Flavors and cluster queues with their nodes, their quotas as numbers, and what a cohort lends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from gke_ai.catalog.fabric.fabrics import fabric_of_gpu
from gke_ai.catalog.fabric.rdma import RESOURCE
from gke_ai.catalog.fabric.topology import is_supported
from gke_ai.catalog.nodes import quota as quotas
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR
from gke_ai.catalog.quantities import format_quantities, parse_quantities, parse_quantity
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import ClusterQueue, Flavor, FlavorQuota, PriorityClass, Queues, Workload
from gke_ai.settings.resolved.pools import NodePool

# Classes that every cluster has: https://kubernetes.io/docs/tasks/administer-cluster/guaranteed-scheduling-critical-addon-pods/
BUILT_IN_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


@dataclass(frozen=True)
class ResourceFlavor:
    """A flavor with its pools, in its order."""

    section: Flavor
    pools: tuple[NodePool, ...]
    has_topology: bool = False
    """Whether Kueue places pods on it by topology, and accepts no others."""

    @property
    def labels(self) -> dict[str, str]:
        """Node labels of the flavor: its accelerator, and its pool if it has only one; empty for any node.

        Kueue compares a workload's node selector only with labels that the flavor has. A flavor with only the pool's
        label would match workloads for any accelerator.
        """
        if self.section.accelerator is not None:
            return {GKE_ACCELERATOR: self.section.accelerator}
        if self.section.tpu is not None:
            return self.section.tpu.labels
        own = [pool.section for pool in self.pools]
        pool = own[0].selector if len(own) == 1 else {}
        return {**own[0].accelerator_labels, **pool} if own else {}

    @property
    def queued_resource(self) -> str | None:
        """The accelerator resource of a flavor with queued provisioning; None for other flavors."""
        own = [pool.section for pool in self.pools]
        if not own or any(pool.capacity.queued_seconds is None for pool in own):
            return None
        return own[0].accelerator_resource


@dataclass(frozen=True)
class Quota:
    """Quota of a cluster queue for one flavor. Empty if it cannot be derived."""

    section: FlavorQuota
    flavor: ResourceFlavor | None
    """None if the flavor does not exist."""
    measured: Calibration
    devices: tuple[str, ...] = ()
    """Resources of devices that a flavor of the cluster queue has, so that Kueue needs quota for them in each."""

    @cached_property
    def amounts(self) -> Mapping[str, Fraction]:
        """Nominal quota by resource: as configured, or derived from the flavor's pools at their maximum size."""
        if not isinstance(self.section.quota, str):
            return parse_quantities(self.section.quota)
        pools = self.flavor.pools if self.flavor else ()
        derived = quotas.derive(((pool.shape, pool.max_nodes) for pool in pools), self.measured.room)
        for name in self.devices if derived else ():
            derived[name] = Fraction(sum(pool.section.fabric.devices.get(name, 0) * pool.max_nodes for pool in pools))
        return derived

    @property
    def texts(self) -> dict[str, str]:
        """The amounts as objects and messages state them: as configured, or in the shortest form."""
        stated = self.section.quota
        return format_quantities(self.amounts) if isinstance(stated, str) else dict(stated)

    def lendable(self, resource: str) -> Fraction:
        """Maximum amount of a resource that the quota lends to its cohort: the lending limit, else the whole quota."""
        nominal = self.amounts.get(resource, Fraction(0))
        limit = self.section.lending_limit.get(resource)
        return nominal if limit is None else min(nominal, parse_quantity(limit))


@dataclass(frozen=True)
class Queue:
    """A cluster queue with its quotas, and those of the other queues of its cohort."""

    section: ClusterQueue
    quotas: tuple[Quota, ...]
    of_cohort: tuple[Quota, ...]

    @property
    def claims(self) -> set[str]:
        """The templates by which its workloads claim NICs of an RDMA network and channels, if it may use any."""
        flavors = [quota.flavor for quota, limits in self.limits() if quota.flavor and limits.get(RESOURCE)]
        return {name for flavor in flavors for name in fabric_of_gpu(flavor.labels.get(GKE_ACCELERATOR)).claims}

    @property
    def places_all_by_topology(self) -> bool:
        """Whether each of its flavors has a topology, so that Kueue places workloads by it that state none."""
        return all(quota.flavor is not None and quota.flavor.has_topology for quota in self.quotas)

    def lenders(self, quota: Quota) -> list[Quota]:
        """Quotas for the same flavor in the other queues of the cohort."""
        return [lender for lender in self.of_cohort if lender.section.flavor == quota.section.flavor]

    def limits(self) -> Iterator[tuple[Quota, dict[str, Fraction]]]:
        """Maximum use of each flavor: its quota, plus what the queue may borrow from its cohort."""
        for quota in self.quotas:
            total = {}
            for resource, amount in quota.amounts.items():
                lent = sum((lender.lendable(resource) for lender in self.lenders(quota)), Fraction(0))
                if resource in quota.section.borrowing_limit:
                    lent = min(lent, parse_quantity(quota.section.borrowing_limit[resource]))
                total[resource] = amount + lent
            yield quota, total


def flavors_of(queues: Queues, by_name: Mapping[str, NodePool]) -> list[ResourceFlavor]:
    """The flavors with their pools. Other rules report unknown pools."""
    pools = {flavor.name: tuple(by_name[name] for name in flavor.pools if name in by_name) for flavor in queues.flavors}
    placed = _with_topology(queues, pools)
    return [ResourceFlavor(flavor, pools[flavor.name], flavor.name in placed) for flavor in queues.flavors]


def _with_topology(queues: Queues, pools: Mapping[str, tuple[NodePool, ...]]) -> set[str]:
    """The flavors with topology: those that say so, and by default those whose cluster queues have no other flavor.

    In a mixed queue, a workload that states no topology never uses such a flavor:
    https://github.com/kubernetes-sigs/kueue/issues/7491
    """
    stated = {flavor.name for flavor in queues.flavors if flavor.topology}
    supported = queues.installed_kueue is not None and is_supported(queues.installed_kueue)
    possible = {
        flavor.name
        for flavor in queues.flavors
        if supported and flavor.topology is None and flavor.mode == "create" and labels_all(pools[flavor.name])
    }
    while True:
        mixed = {
            name
            for queue in queues.cluster_queues
            if not (names := {quota.flavor for quota in queue.flavors}) <= possible | stated
            for name in names & possible
        }
        if not mixed:
            return possible | stated
        possible -= mixed


def labels_all(pools: tuple[NodePool, ...]) -> bool:
    """Whether all nodes of a flavor's pools exist and have the labels of the topology."""
    return bool(pools) and all(pool.section.has_topology for pool in pools)


def queues_of(queues: Queues, flavors: list[ResourceFlavor], measured: Calibration) -> list[Queue]:
    """The cluster queues with their quotas."""
    by_name = {flavor.section.name: flavor for flavor in flavors}
    own = []
    for queue in queues.cluster_queues:
        used = [by_name.get(quota.flavor) for quota in queue.flavors]
        devices = tuple(
            {name: None for flavor in used if flavor for pool in flavor.pools for name in pool.section.fabric.devices}
        )
        pairs = zip(queue.flavors, used, strict=True)
        own.append((queue, tuple(Quota(quota, flavor, measured, devices) for quota, flavor in pairs)))
    return [
        Queue(
            queue,
            quotas_of_queue,
            tuple(
                quota
                for other, others in own
                if other is not queue and queue.cohort and other.cohort == queue.cohort
                for quota in others
            ),
        )
        for queue, quotas_of_queue in own
    ]


def priority_of(workload: Workload, classes: list[PriorityClass]) -> int:
    """Priority of the workload's pods: that of its class, else of the global default, else 0 as in Kubernetes."""
    if workload.priority_class in BUILT_IN_PRIORITIES:
        return BUILT_IN_PRIORITIES[workload.priority_class]
    for priority_class in classes:
        if priority_class.name == workload.priority_class or (
            workload.priority_class is None and priority_class.global_default
        ):
            return priority_class.value
    return 0
