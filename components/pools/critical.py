"""A namespace for pods that GKE's nodes need, such as installers and drivers."""

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.base import Component

PRIORITY = "system-node-critical"


def critical_namespace(name: str, component: Component) -> tuple[k8s.core.v1.Namespace, k8s.core.v1.ResourceQuota]:
    """Creates a namespace for pods of this priority, and the quota without which GKE allows none in it."""
    space = k8s.core.v1.Namespace(name, metadata={"name": name}, opts=pulumi.ResourceOptions(parent=component))
    quota = k8s.core.v1.ResourceQuota(
        f"{name}/critical-pods",
        metadata={"name": "critical-pods", "namespace": name},
        spec={
            "hard": {"pods": "1G"},
            "scope_selector": {
                "match_expressions": [{"scope_name": "PriorityClass", "operator": "In", "values": [PRIORITY]}]
            },
        },
        opts=pulumi.ResourceOptions(parent=component, depends_on=[space]),
    )
    return space, quota
