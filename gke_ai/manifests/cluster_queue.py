"""Specs of resource flavors, cohorts, cluster queues and local queues."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.fabric.topology import TOPOLOGY
from gke_ai.catalog.nodes.shape import GPU_TAINT
from gke_ai.manifests.workload import arm_tolerations
from gke_ai.settings.model import ClusterQueue, Cohort, CohortQuota, FlavorQuota, Section, Weight

AnyQuota = FlavorQuota | CohortQuota


@dataclass(frozen=True)
class NodeFlavor:
    """A ResourceFlavor: nodes that quota applies to."""

    name: str
    """Name of the flavor."""
    node_labels: Mapping[str, str] | None = None
    """Labels of the nodes. Default: any node."""
    queued_resource: str | None = None
    """Accelerator resource of nodes that queued provisioning creates. Default: no queued provisioning."""
    topology: bool = False
    """Let Kueue place pods by the topology of the nodes, which need labels of `node_labels`."""


def flavor_spec(flavor: NodeFlavor) -> dict[str, Any]:
    """Spec of a ResourceFlavor; empty for one that is any node."""
    spec: dict[str, Any] = {"nodeLabels": flavor.node_labels} if flavor.node_labels else {}
    if flavor.queued_resource:
        # Kubernetes adds this toleration to pods, but not to the pod template of Kueue's provisioning request.
        spec["tolerations"] = [{"key": flavor.queued_resource, "operator": "Exists", "effect": "NoSchedule"}]
    if flavor.topology:
        # For the same reason: Kueue compares the template of a Job with the taints of the nodes.
        gpus = {"key": GPU_TAINT.key, "operator": "Exists", "effect": GPU_TAINT.effect}
        spec |= {"topologyName": TOPOLOGY, "tolerations": [gpus]}
    if arm := arm_tolerations(flavor.node_labels or {}):
        # Kueue gives it to the pods, also to those of manifests without it.
        spec["tolerations"] = [*spec.get("tolerations", []), *arm]
    return spec


def cluster_queue(
    queue: ClusterQueue, quotas: Sequence[Mapping[str, str]], queued: Collection[str] = ()
) -> dict[str, Any]:
    """Spec of a ClusterQueue. Flavors with the same resources form a group, which Kueue tries in list order.

    `quotas` are the nominal quotas of its flavors, by resource. Kueue admits to a flavor of `queued` only after its
    admission check, which has the same name, has passed.
    """
    checks = [{"name": quota.flavor, "onFlavors": [quota.flavor]} for quota in queue.flavors if quota.flavor in queued]
    return {
        "namespaceSelector": {},
        **({"cohortName": queue.cohort} if queue.cohort else {}),
        **({"queueingStrategy": queue.queueing_strategy} if queue.queueing_strategy else {}),
        **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
        "preemption": preemption(queue),
        **({"flavorFungibility": stated(queue.flavor_fungibility)} if queue.flavor_fungibility else {}),
        **fair_sharing(queue.fair_sharing),
        **({"admissionScope": {"admissionMode": queue.admission_mode}} if queue.admission_mode else {}),
        "resourceGroups": resource_groups(zip(queue.flavors, quotas, strict=True)),
    }


def preemption(queue: ClusterQueue) -> dict[str, Any]:
    """Which workloads Kueue may evict for one of the queue."""
    policy = queue.preemption
    return {
        "withinClusterQueue": policy.within_cluster_queue,
        "reclaimWithinCohort": policy.reclaim_within_cohort,
        **({"borrowWithinCohort": stated(policy.borrow_within_cohort)} if policy.borrow_within_cohort else {}),
    }


def cohort_spec(cohort: Cohort) -> dict[str, Any]:
    """Spec of a Cohort."""
    groups = resource_groups((quota, quota.quota) for quota in cohort.flavors)
    return {
        **({"parentName": cohort.parent} if cohort.parent else {}),
        **({"resourceGroups": groups} if groups else {}),
        **fair_sharing(cohort.fair_sharing),
    }


def local_queue(cluster_queue: str, weight: Weight | None = None) -> dict[str, Any]:
    """Spec of a LocalQueue."""
    return {"clusterQueue": cluster_queue, **fair_sharing(weight)}


def fair_sharing(weight: Weight | None) -> dict[str, Any]:
    """The weight of a queue or a cohort, if it has one."""
    return {"fairSharing": {"weight": weight.weight}} if weight else {}


def stated(section: Section) -> dict[str, Any]:
    """The keys of a section in Kueue's form, without those that leave the choice to Kueue."""
    return section.model_dump(by_alias=True, exclude_none=True)


def resource_groups(quotas: Iterable[tuple[AnyQuota, Mapping[str, str]]]) -> list[dict[str, Any]]:
    """Flavors with their nominal quotas, those with the same resources together."""
    groups: dict[frozenset[str], list[tuple[AnyQuota, Mapping[str, str]]]] = {}
    for flavor, nominal in quotas:
        groups.setdefault(frozenset(nominal), []).append((flavor, nominal))
    return [resource_group(flavors) for flavors in groups.values()]


def resource_group(flavors: Sequence[tuple[AnyQuota, Mapping[str, str]]]) -> dict[str, Any]:
    """Flavors with quota for the same resources. Kueue requires one order of resources in all of them."""
    covered = list(flavors[0][1])
    return {
        "coveredResources": covered,
        "flavors": [
            {
                "name": flavor.flavor,
                "resources": [resource_quota(flavor, resource, nominal[resource]) for resource in covered],
            }
            for flavor, nominal in flavors
        ],
    }


def resource_quota(flavor: AnyQuota, resource: str, nominal: str) -> dict[str, str]:
    """Quota of one resource of a flavor. Kueue sets no limit if one is omitted."""
    limits = {
        "borrowingLimit": flavor.borrowing_limit.get(resource),
        "lendingLimit": flavor.lending_limit.get(resource),
    }
    return {
        "name": resource,
        "nominalQuota": nominal,
        **{name: limit for name, limit in limits.items() if limit is not None},
    }
