"""Parts of the programs that a load balancer asks about requests: the endpoint picker and the router by models."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.base import Component


def permissions(
    namespace: str, name: str, rules: "Sequence[k8s.rbac.v1.PolicyRuleArgsDict]", component: Component
) -> list[pulumi.Resource]:
    """A program's service account, and what it may do in its namespace."""
    metadata: k8s.meta.v1.ObjectMetaArgsDict = {"name": name, "namespace": namespace}
    account = k8s.core.v1.ServiceAccount(*component.child(f"{namespace}/{name}"), metadata=metadata)
    role = k8s.rbac.v1.Role(*component.child(f"{namespace}/{name}"), metadata=metadata, rules=rules)
    binding = k8s.rbac.v1.RoleBinding(
        *component.child(f"{namespace}/{name}-binding"),
        metadata=metadata,
        role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    )
    return [account, role, binding]


def pod_spec(name: str, container: "k8s.core.v1.ContainerArgsDict") -> "k8s.core.v1.PodSpecArgsDict":
    """Spec of a program's pods, apart on nodes where possible. They meet the Pod Security level `restricted`."""
    complete: k8s.core.v1.ContainerArgsDict = {
        **container,
        "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
        "security_context": {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "service_account_name": name,
        "security_context": {"run_as_non_root": True, "seccomp_profile": {"type": "RuntimeDefault"}},
        "containers": [complete],
        "topology_spread_constraints": [
            {
                "max_skew": 1,
                "topology_key": "kubernetes.io/hostname",
                "when_unsatisfiable": "ScheduleAnyway",
                "label_selector": {"match_labels": {"app": name}},
            }
        ],
    }
