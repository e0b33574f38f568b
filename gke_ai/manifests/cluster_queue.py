"""Specs of resource flavors and cluster queues."""

from collections.abc import Mapping
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


def cluster_queue(queue: ClusterQueue, queued: set[str]) -> dict[str, Any]:
    """Spec of a ClusterQueue. Flavors with the same resources form a group, which Kueue tries in list order.

    Kueue admits to a flavor of `queued` only after its admission check, which has the same name, has passed.
    """
    groups: dict[frozenset[str], list[FlavorQuota]] = {}
    for flavor in queue.flavors:
        groups.setdefault(frozenset(amounts(flavor)), []).append(flavor)
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
        "resourceGroups": [
            {
                "coveredResources": list(amounts(flavors[0])),
                "flavors": [
                    {
                        "name": flavor.flavor,
                        # Kueue requires the group's order of resources in every flavor.
                        "resources": [resource_quota(flavor, resource) for resource in amounts(flavors[0])],
                    }
                    for flavor in flavors
                ],
            }
            for flavors in groups.values()
        ],
    }


def amounts(flavor: FlavorQuota) -> dict[str, str]:
    """Nominal quota by resource. Raises ValueError for a quota that is still to be derived."""
    if isinstance(flavor.quota, str):
        raise ValueError(f"flavor {flavor.flavor}: a KueueStack needs the amounts of a quota, not {flavor.quota!r}")
    return flavor.quota


def resource_quota(flavor: FlavorQuota, resource: str) -> dict[str, str]:
    """Quota of one resource of a flavor. Kueue sets no limit if one is omitted."""
    limits = {
        "borrowingLimit": flavor.borrowing_limit.get(resource),
        "lendingLimit": flavor.lending_limit.get(resource),
    }
    stated = {name: limit for name, limit in limits.items() if limit is not None}
    return {"name": resource, "nominalQuota": amounts(flavor)[resource], **stated}
