"""Specs of resource flavors and cluster queues."""

from typing import Any, NotRequired, TypedDict


class FlavorArgs(TypedDict):
    """A ResourceFlavor: nodes that quota applies to."""

    name: str
    node_labels: NotRequired[dict[str, str]]
    """Labels of the nodes. Default: any node."""
    queued_resource: NotRequired[str]
    """Accelerator resource of nodes that come through queued provisioning. Default: no queued provisioning."""


class FlavorQuotaArgs(TypedDict):
    """Quota of a cluster queue for one flavor."""

    flavor: str
    quota: dict[str, str]
    """Nominal quota by resource, as a Kubernetes quantity."""
    borrowing_limit: NotRequired[dict[str, str]]
    """Maximum that the queue may borrow from its cohort, by resource. Default: all that others lend."""
    lending_limit: NotRequired[dict[str, str]]
    """Maximum that the queue lends to its cohort, by resource. Default: its whole quota."""


class PreemptionArgs(TypedDict, total=False):
    """Workloads that a workload of the queue may preempt."""

    within_cluster_queue: str
    """`Never`, `LowerPriority` or `LowerOrNewerEqualPriority`."""
    reclaim_within_cohort: str
    """`Never`, `LowerPriority` or `Any`."""


class ClusterQueueArgs(TypedDict):
    """A ClusterQueue: quota by flavor and resource."""

    name: str
    flavors: list[FlavorQuotaArgs]
    cohort: NotRequired[str]
    preemption: NotRequired[PreemptionArgs]
    queueing_strategy: NotRequired[str]
    """`BestEffortFIFO` or `StrictFIFO`. Default: Kueue's default, `BestEffortFIFO`."""


def flavor_spec(flavor: FlavorArgs) -> dict[str, Any]:
    """Spec of a ResourceFlavor; empty for one that is any node."""
    spec: dict[str, Any] = {"nodeLabels": flavor["node_labels"]} if flavor.get("node_labels") else {}
    if resource := flavor.get("queued_resource"):
        # Kubernetes adds this toleration to pods, but not to the pod template of Kueue's provisioning request.
        spec["tolerations"] = [{"key": resource, "operator": "Exists", "effect": "NoSchedule"}]
    return spec


def cluster_queue(queue: ClusterQueueArgs, queued: set[str]) -> dict[str, Any]:
    """Spec of a ClusterQueue. Flavors with the same resources form a group, which Kueue tries in list order.

    Kueue admits to a flavor of `queued` only after its admission check, which has the same name, has passed.
    """
    groups: dict[frozenset[str], list[FlavorQuotaArgs]] = {}
    for flavor in queue["flavors"]:
        groups.setdefault(frozenset(flavor["quota"]), []).append(flavor)
    preemption = queue.get("preemption", {})
    checks = [
        {"name": quota["flavor"], "onFlavors": [quota["flavor"]]}
        for quota in queue["flavors"]
        if quota["flavor"] in queued
    ]
    return {
        "namespaceSelector": {},
        **({"cohortName": queue["cohort"]} if queue.get("cohort") else {}),
        **({"queueingStrategy": queue["queueing_strategy"]} if queue.get("queueing_strategy") else {}),
        **({"admissionChecksStrategy": {"admissionChecks": checks}} if checks else {}),
        "preemption": {
            "withinClusterQueue": preemption.get("within_cluster_queue", "LowerPriority"),
            "reclaimWithinCohort": preemption.get("reclaim_within_cohort", "LowerPriority"),
        },
        "resourceGroups": [
            {
                "coveredResources": list(flavors[0]["quota"]),
                "flavors": [
                    {
                        "name": flavor["flavor"],
                        # Kueue requires the group's order of resources in every flavor.
                        "resources": [resource_quota(flavor, resource) for resource in flavors[0]["quota"]],
                    }
                    for flavor in flavors
                ],
            }
            for flavors in groups.values()
        ],
    }


def resource_quota(flavor: FlavorQuotaArgs, resource: str) -> dict[str, str]:
    """Quota of one resource of a flavor. Kueue sets no limit if one is omitted."""
    limits = {
        "borrowingLimit": flavor.get("borrowing_limit", {}).get(resource),
        "lendingLimit": flavor.get("lending_limit", {}).get(resource),
    }
    stated = {name: limit for name, limit in limits.items() if limit is not None}
    return {"name": resource, "nominalQuota": flavor["quota"][resource], **stated}
