"""Pods that GKE's nodes need, such as installers and drivers, and a namespace for them."""

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.base import SKIP_AWAIT, Component, named

PRIORITY = "system-node-critical"


def critical_namespace(name: str, component: Component) -> "tuple[k8s.core.v1.Namespace, k8s.core.v1.ResourceQuota]":
    """Creates a namespace for pods of this priority, and the quota without which GKE allows none in it."""
    space = k8s.core.v1.Namespace(*component.child(name), metadata={"name": name})
    quota = k8s.core.v1.ResourceQuota(
        *component.child(f"{name}/critical-pods", depends_on=[space]),
        metadata={"name": "critical-pods", "namespace": name},
        spec={
            "hard": {"pods": "1G"},
            "scope_selector": {
                "match_expressions": [{"scope_name": "PriorityClass", "operator": "In", "values": [PRIORITY]}]
            },
        },
    )
    return space, quota


def on_nodes(*expressions: dict[str, Any]) -> dict[str, Any]:
    """The affinity for nodes whose labels match all expressions."""
    terms = {"nodeSelectorTerms": [{"matchExpressions": [*expressions]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def critical_daemon_set(
    namespace: str, name: str, affinity: Mapping[str, Any], pod: Mapping[str, Any], opts: pulumi.ResourceOptions
) -> None:
    """A DaemonSet in the network and among the processes of its nodes. `pod` has its containers and volumes."""
    labels = {"app": name}
    spec: Any = {
        "priorityClassName": PRIORITY,
        "affinity": affinity,
        "tolerations": [{"operator": "Exists"}],
        "hostNetwork": True,
        "hostPID": True,
        **pod,
    }
    k8s.apps.v1.DaemonSet(
        *named(f"{namespace}/{name}", opts),
        # Nodes may come much later.
        metadata={"name": name, "namespace": namespace, "annotations": SKIP_AWAIT},
        spec={"selector": {"match_labels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    )
