"""Specs of resource flavors and cluster queues."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.fabric.topology import TOPOLOGY
from gke_ai.catalog.nodes.shape import GPU_TAINT
from gke_ai.manifests.workload import arm_tolerations
from gke_ai.settings.model import ClusterQueue, FlavorQuota


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
    groups: dict[frozenset[str], list[tuple[FlavorQuota, Mapping[str, str]]]] = {}
    for flavor, nominal in zip(queue.flavors, quotas, strict=True):
        groups.setdefault(frozenset(nominal), []).append((flavor, nominal))
    checks = [{"name": quota.flavor, "onFlavors": [quota.flavor]} for quota in queue.flavors if quota.flavor in queued]
    return {
        "namespaceSelector": {},
        **({"cohortName": queue.cohort} if queue.cohort else {}),
        **({"queueingStrategy": queue.queueing_strategy} if queue.queueing_strategy else {}),
        **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
        "preemption": {
            "withinClusterQueue": queue.preemption.within_cluster_queue,
            "reclaimWithinCohort": queue.preemption.reclaim_within_cohort,
        },
        "resourceGroups": [resource_group(flavors) for flavors in groups.values()],
    }


def resource_group(flavors: Sequence[tuple[FlavorQuota, Mapping[str, str]]]) -> dict[str, Any]:
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


def resource_quota(flavor: FlavorQuota, resource: str, nominal: str) -> dict[str, str]:
    """Quota of one resource of a flavor. Kueue sets no limit if one is omitted."""
    limits = {
        "borrowingLimit": flavor.borrowing_limit.get(resource),
        "lendingLimit": flavor.lending_limit.get(resource),
    }
    stated = {name: limit for name, limit in limits.items() if limit is not None}
    return {"name": resource, "nominalQuota": nominal, **stated}
