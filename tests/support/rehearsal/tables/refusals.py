"""Rules of Kueue's API that objects of its tests break: those tests have no API server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Object = Mapping[str, Any]


def is_refused_workload(workload: Object) -> bool:
    """Whether several pod sets have a minimum, or one has a slice with its level or its size alone.

    pkg/webhooks/workload_webhook.go in Kueue's module.
    """
    pod_sets = workload["spec"]["podSets"]
    asked = [pod_set.get("topologyRequest") or {} for pod_set in pod_sets]
    half = any(("podSetSliceRequiredTopology" in item) != ("podSetSliceSize" in item) for item in asked)
    return half or sum("minCount" in pod_set for pod_set in pod_sets) > 1


def is_refused_queue(queue: Object) -> bool:
    """Whether the queue breaks a rule of its CRD or its webhook.

    It borrows by preemption but never reclaims, or a resource is in two groups: pkg/webhooks/clusterqueue_webhook.go.
    """
    stated = queue["spec"].get("preemption") or {}
    borrows = (stated.get("borrowWithinCohort") or {}).get("policy", "Never") != "Never"
    groups = queue["spec"].get("resourceGroups") or ()
    resources = [resource for group in groups for resource in group.get("coveredResources") or ()]
    repeated = len(set(resources)) < len(resources)
    return repeated or bool(borrows and stated.get("reclaimWithinCohort", "Never") == "Never")
