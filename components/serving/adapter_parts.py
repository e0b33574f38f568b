"""What both metrics adapters need: permissions and APIServices."""

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.components.base import Component

VIEWER, WORKLOAD_USER = "roles/monitoring.viewer", "roles/iam.workloadIdentityUser"
HPA_CONTROLLER: "k8s.rbac.v1.SubjectArgsDict" = {
    "kind": "ServiceAccount",
    "name": "horizontal-pod-autoscaler",
    "namespace": "kube-system",
}


@dataclass(frozen=True)
class AdapterParts:
    """Creates the resources that both metrics adapters share, as children of the component `parent`."""

    parent: Component
    hooks: pulumi.ResourceHookBinding
    project: pulumi.Input[str]
    cluster: str
    workload_pool: pulumi.Input[str]

    def inside(self, name: str, *after: pulumi.Resource) -> tuple[str, pulumi.ResourceOptions]:
        """The name and the options of a child that waits for `after`."""
        return self.parent.child(name, depends_on=list(after), hooks=self.hooks)

    def main_child(self, name: str, *after: pulumi.Resource) -> tuple[str, pulumi.ResourceOptions]:
        """The name and the options of the adapter's Deployment."""
        return self.parent.main_child(name, depends_on=list(after), hooks=self.hooks)

    def reader_of_external_metrics(self, role: str, binding: str) -> list[pulumi.Resource]:
        """Let the HPA controller read external metrics."""
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [
            {"api_groups": ["external.metrics.k8s.io"], "resources": ["*"], "verbs": ["list", "get", "watch"]}
        ]
        return self._cluster_role(role, rules, binding, HPA_CONTROLLER)

    def adapter_permissions(
        self, account: str, namespace: str, delegator: str, auth_reader: str, resource_reader: str, resources: list[str]
    ) -> list[pulumi.Resource]:
        """Let the adapter authenticate and authorize callers, and read the objects that its metrics describe."""
        subject: k8s.rbac.v1.SubjectArgsDict = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        rules: list[k8s.rbac.v1.PolicyRuleArgsDict] = [
            {"api_groups": [""], "resources": resources, "verbs": ["get", "list", "watch"]}
        ]
        return [
            self._bind("system:auth-delegator", delegator, subject),
            k8s.rbac.v1.RoleBinding(
                *self.inside(auth_reader),
                metadata={"name": auth_reader, "namespace": "kube-system"},
                role_ref={
                    "api_group": "rbac.authorization.k8s.io",
                    "kind": "Role",
                    "name": "extension-apiserver-authentication-reader",
                },
                subjects=[subject],
            ),
            *self._cluster_role(resource_reader, rules, resource_reader, subject),
        ]

    def _cluster_role(
        self,
        name: str,
        rules: "list[k8s.rbac.v1.PolicyRuleArgsDict]",
        binding: str,
        subject: "k8s.rbac.v1.SubjectArgsDict",
    ) -> list[pulumi.Resource]:
        role = k8s.rbac.v1.ClusterRole(*self.inside(name), metadata={"name": name}, rules=rules)
        return [role, self._bind(name, binding, subject, role)]

    def _bind(
        self, role: str, binding: str, subject: "k8s.rbac.v1.SubjectArgsDict", *after: pulumi.Resource
    ) -> pulumi.Resource:
        return k8s.rbac.v1.ClusterRoleBinding(
            *self.inside(binding, *after),
            metadata={"name": binding},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            subjects=[subject],
        )

    def api_service(
        self, group: str, version: str, priority: int, service: tuple[str, str], after: Sequence[pulumi.Resource]
    ) -> "k8s.apiregistration.v1.APIService":
        """An APIService, created after its server and deleted before it."""
        # An API without a server blocks the deletion of namespaces.
        return k8s.apiregistration.v1.APIService(
            *self.inside(f"{version}.{group}", *after),
            metadata={"name": f"{version}.{group}"},
            spec={
                "group": group,
                "version": version,
                "group_priority_minimum": 100,
                "version_priority": priority,
                # The adapter signs its own certificate.
                "insecure_skip_tls_verify": True,
                "service": {"name": service[0], "namespace": service[1], "port": 443},
            },
        )
