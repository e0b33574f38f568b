"""Flavors, cluster queues and cohorts with their nodes, their quotas as numbers, and what they lend each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from gke_ai.catalog.fabric.fabrics import fabric_of_gpu
from gke_ai.catalog.fabric.rdma import RESOURCE
from gke_ai.catalog.fabric.topology import is_supported
from gke_ai.catalog.kueue.cohort_tree import Amounts, Member, cycle
from gke_ai.catalog.nodes import quota as quotas
from gke_ai.catalog.nodes.shape import GKE_ACCELERATOR
from gke_ai.catalog.quantities import format_quantities, parse_quantities, parse_quantity
from gke_ai.settings.calibration import Calibration
from gke_ai.settings.model import (
    ClusterQueue,
    Cohort,
    CohortQuota,
    Flavor,
    FlavorQuota,
    PriorityClass,
    Queues,
    Weight,
    Workload,
)
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


@dataclass(frozen=True)
class Queue:
    """A cluster queue with its quotas, and its place in the tree of its cohort."""

    section: ClusterQueue
    quotas: tuple[Quota, ...]
    member: Member

    @property
    def claims(self) -> set[str]:
        """The templates by which its workloads claim NICs of an RDMA network and channels, if it may use any."""
        flavors = [quota.flavor for quota, limits in self.limits() if quota.flavor and limits.get(RESOURCE)]
        return {name for flavor in flavors for name in fabric_of_gpu(flavor.labels.get(GKE_ACCELERATOR)).claims}

    @property
    def places_all_by_topology(self) -> bool:
        """Whether each of its flavors has a topology, so that Kueue places workloads by it that state none."""
        return all(quota.flavor is not None and quota.flavor.has_topology for quota in self.quotas)

    def limits(self) -> Iterator[tuple[Quota, dict[str, Fraction]]]:
        """Maximum use of each flavor: its quota, plus what the queue may borrow from its cohort."""
        for quota in self.quotas:
            flavor = quota.section.flavor
            yield quota, {resource: self.member.most((flavor, resource)) for resource in quota.amounts}


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


def trees_of(
    queues: Queues, flavors: list[ResourceFlavor], measured: Calibration
) -> tuple[list[Queue], dict[str, Member]]:
    """The cluster queues with their quotas, and the cohorts that they are in, by name."""
    by_name = {flavor.section.name: flavor for flavor in flavors}
    cohorts = _cohorts(queues)
    found = []
    for queue in queues.cluster_queues:
        used = [by_name.get(quota.flavor) for quota in queue.flavors]
        devices = tuple(
            {name: None for flavor in used if flavor for pool in flavor.pools for name in pool.section.fabric.devices}
        )
        pairs = zip(queue.flavors, used, strict=True)
        quotas = tuple(Quota(quota, flavor, measured, devices) for quota, flavor in pairs)
        nominal = {(quota.section.flavor, name): amount for quota in quotas for name, amount in quota.amounts.items()}
        member = Member(queue.name, True, nominal, *_limits(queue.flavors), weight=weight_of(queue.fair_sharing))
        if queue.cohort:
            member.join(cohorts[queue.cohort])
        found.append(Queue(queue, quotas, member))
    return found, cohorts


def _cohorts(queues: Queues) -> dict[str, Member]:
    """The cohorts of a section by name, also those that only a queue or another cohort names. None is in a cycle."""
    sections = {cohort.name: cohort for cohort in reversed(queues.cohorts)}  # the first of two with one name counts
    names = [
        *sections,
        *(cohort.parent for cohort in queues.cohorts),
        *(queue.cohort for queue in queues.cluster_queues),
    ]
    members = {name: _cohort(name, sections.get(name)) for name in names if name}
    parents = {name: cohort.parent for name, cohort in sections.items() if cohort.parent}
    for name, parent in parents.items():
        if not cycle(name, parents):
            members[name].join(members[parent])
    return members


def _cohort(name: str, section: Cohort | None) -> Member:
    flavors = section.flavors if section else []
    nominal = {
        (quota.flavor, resource): amount
        for quota in flavors
        for resource, amount in parse_quantities(quota.quota).items()
    }
    return Member(name, False, nominal, *_limits(flavors), weight=weight_of(section.fair_sharing if section else None))


def weight_of(section: Weight | None) -> Fraction:
    """The weight of a queue or a cohort; 1 by default, as in Kueue."""
    return parse_quantity(section.weight) if section else Fraction(1)


def _limits(flavors: Sequence[FlavorQuota | CohortQuota]) -> tuple[Amounts, Amounts]:
    """What a queue or a cohort lends and borrows at most, where it says so."""

    def amounts(limits: Iterable[tuple[str, Mapping[str, str]]]) -> Amounts:
        return {(flavor, name): amount for flavor, texts in limits for name, amount in parse_quantities(texts).items()}

    lending = amounts((quota.flavor, quota.lending_limit) for quota in flavors)
    return lending, amounts((quota.flavor, quota.borrowing_limit) for quota in flavors)


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
