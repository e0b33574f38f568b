"""What Kueue's objects say about quota: what queues have, lend, borrow and use, and what Workloads hold and request.

Amounts are exact, in the base unit of their resource (cores, bytes, pieces).
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from gke_ai.catalog.kueue.cohort_tree import Cell
from gke_ai.kube.objects import Object, holds
from gke_ai.kube.pods import amounts
from gke_ai.kube.values import items, mapping, number, quantity, value

# What Kueue compares to find equal workloads, besides containers:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/util/pod/pod.go, SpecShape
_SHAPE = ("nodeSelector", "affinity", "tolerations", "runtimeClassName", "priority", "topologySpreadConstraints")


def flavors_of(queue: Object) -> list[list[str]]:
    """Returns the flavors of a ClusterQueue or a Cohort by resource group, in the order in which Kueue tries them."""
    return [
        [str(flavor.get("name")) for flavor in items(group, "flavors")]
        for group in items(queue, "spec", "resourceGroups")
    ]


def quotas_of(queue: Object, key: str = "nominalQuota") -> dict[Cell, Fraction]:
    """Returns the amounts of a ClusterQueue or a Cohort that state `key`, also `borrowingLimit` or `lendingLimit`."""
    groups = items(queue, "spec", "resourceGroups")
    return _cells((flavor for group in groups for flavor in items(group, "flavors")), key)


def reserved(queue: Object, key: str = "total") -> dict[Cell, Fraction]:
    """Returns what the Workloads of a ClusterQueue have reserved. `borrowed` of `key` is the part beyond its quota."""
    return _cells(items(queue, "status", "flavorsReservation") or items(queue, "status", "flavorsUsage"), key)


def held(workload: Object) -> dict[Cell, Fraction]:
    """Returns the quota that a Workload holds. Kueue has freed that of pods that succeeded, unless it is set not to."""
    total: dict[Cell, Fraction] = defaultdict(Fraction)
    freed = {pods.get("name"): number(pods.get("count")) or 0 for pods in items(workload, "status", "reclaimablePods")}
    for pod_set in items(workload, "status", "admission", "podSetAssignments"):
        usage = amounts(mapping(pod_set, "resourceUsage"))
        count = number(pod_set.get("count")) or 1
        left = Fraction(max(count - freed.get(pod_set.get("name"), 0), 0), count)
        for resource, flavor in mapping(pod_set, "flavors").items():
            total[flavor, resource] += usage.get(resource, 0) * left
    return total


def held_by_queue(workloads: Iterable[Object]) -> Mapping[str, dict[Cell, Fraction]]:
    """Returns the quota that Workloads hold, by cluster queue."""
    total: dict[str, dict[Cell, Fraction]] = defaultdict(lambda: defaultdict(Fraction))
    for workload in workloads:
        for cell, amount in ({} if holds(workload, "Finished") else held(workload)).items():
            total[str(value(workload, "status", "admission", "clusterQueue"))][cell] += amount
    return total


def requested(workload: Object) -> dict[str, Fraction]:
    """Returns what a Workload without quota requests, as Kueue counts it."""
    total: dict[str, Fraction] = defaultdict(Fraction)
    for pod_set in items(workload, "status", "resourceRequests"):
        for resource, amount in amounts(mapping(pod_set, "resources")).items():
            total[resource] += amount
    return total


def shape_of(workload: Object) -> str:
    """What makes workloads equal for Kueue's scheduler: pkg/workload/workload.go, computeSchedulingHash."""
    pod_sets = []
    for pod_set in items(workload, "spec", "podSets"):
        spec = mapping(pod_set, "template", "spec")
        containers = [
            [(mapping(container, "resources", "requests"), container.get("ports")) for container in items(spec, key)]
            for key in ("initContainers", "containers")
        ]
        counts = [pod_set.get(key) for key in ("name", "count", "minCount", "topologyRequest")]
        pod_sets.append([counts, containers, {key: spec.get(key) for key in _SHAPE}])
    return json.dumps([workload["spec"].get("priority") or 0, pod_sets], sort_keys=True)


def _cells(stated: Iterable[Mapping[str, Any]], key: str) -> dict[Cell, Fraction]:
    return {
        (str(flavor.get("name")), str(resource.get("name"))): quantity(resource[key]) or Fraction(0)
        for flavor in stated
        for resource in items(flavor, "resources")
        if resource.get(key) is not None
    }
