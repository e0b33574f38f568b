"""Workloads: replicas, and choices of compute classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gke_ai.catalog.machines.capacity import mode_of_priority
from gke_ai.kube.values import Hidden, mapping, number, value


def replica_bounds(server: Mapping[str, Any], autoscalers: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Returns the minimum and maximum replicas of a server, by its autoscaler or its own number."""
    kind, name = value(server, "kind") or "Deployment", value(server, "metadata", "name")
    for autoscaler in autoscalers:
        target = mapping(autoscaler, "spec", "scaleTargetRef")
        same_namespace = value(autoscaler, "metadata", "namespace") == value(server, "metadata", "namespace")
        if same_namespace and (target.get("kind", kind), target.get("name")) == (kind, name):
            spec = mapping(autoscaler, "spec")
            least = number(spec.get("minReplicas"))
            return 1 if least is None else least, number(spec.get("maxReplicas")) or 1
    stated = value(server, "spec", "replicas")
    count = 1 if stated is None or isinstance(stated, Hidden) else number(stated) or 0
    return count, count


def class_choice(priority: Mapping[str, Any]) -> tuple[str | None, str]:
    """Returns machine type and capacity mode of one priority of a ComputeClass."""
    return priority.get("machineType"), mode_of_priority(priority)
