"""Access in the cluster: rights of users, public endpoints, isolation of tenants."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.kube.values import items, list_at, mapping, value
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.review.policy.base import of_resources, of_stacks

POD_SECURITY = "pod-security.kubernetes.io/enforce"
SAFE_LEVELS = ("baseline", "restricted")
# Groups that contain everyone, authenticated or not.
ALL_USERS = {"system:anonymous", "system:unauthenticated", "system:authenticated"}
# https://cloud.google.com/kubernetes-engine/docs/how-to/internal-load-balancing
INTERNAL = {"networking.gke.io/load-balancer-type": "Internal", "cloud.google.com/load-balancer-type": "Internal"}
# https://cloud.google.com/kubernetes-engine/docs/concepts/ingress, .../gateway-api
INTERNAL_INGRESS, INGRESS_CLASS = "gce-internal", "kubernetes.io/ingress.class"


@of_resources("Bind a role that has only the required rights, in the namespace that requires them")
def no_cluster_admins(resource: Resource) -> Iterator[str]:
    """No role or binding grants all rights in the cluster."""
    if not resource.is_kubernetes:
        return
    if resource.kind in ("ClusterRoleBinding", "RoleBinding"):
        if value(resource.props, "roleRef", "name") == "cluster-admin":
            yield "it makes its subjects administrators. They can read every Secret and bypass every queue"
        names = (subject.get("name") for subject in items(resource.props, "subjects"))
        if everyone := [name for name in names if name in ALL_USERS]:
            yield f"its subject is {everyone[0]}. On GKE this includes anyone with a Google account"
    if resource.kind in ("ClusterRole", "Role"):
        for rule in items(resource.props, "rules"):
            if "*" in list_at(rule, "verbs") and "*" in list_at(rule, "resources"):
                yield "it grants all verbs on all resources. This equals cluster-admin"


@of_resources(
    "Use type: ClusterIP or an internal load balancer (networking.gke.io/load-balancer-type: Internal), or add a "
    "waiver that says who may call it and what authenticates callers"
)
def nothing_is_public(resource: Resource) -> Iterator[str]:
    """No workload in the cluster is exposed to the Internet."""
    if not resource.is_kubernetes:
        return
    if resource.kind == "Service":
        internal = any(resource.annotations.get(key) == wanted for key, wanted in INTERNAL.items())
        if value(resource.props, "spec", "type") == "LoadBalancer" and not internal:
            yield "its load balancer has a public address. Model servers do not authenticate callers"
    elif resource.kind == "Ingress":
        classes = (resource.annotations.get(INGRESS_CLASS), value(resource.props, "spec", "ingressClassName"))
        if INTERNAL_INGRESS not in classes:
            yield "it is exposed to the Internet. Model servers do not authenticate callers"
    elif resource.kind == "Gateway":
        name = value(resource.props, "spec", "gatewayClassName")
        if isinstance(name, str) and "external" in name:
            yield f"gateways of class {name} are exposed to the Internet. Whoever has the API key can use the servers"


@of_resources("Use listeners of protocol HTTPS with a certificate (gke-ai: gateway.certificate)")
def gateways_encrypt(resource: Resource) -> Iterator[str]:
    """Gateways accept encrypted connections alone.

    https://cloud.google.com/kubernetes-engine/docs/concepts/gateway-security
    """
    if resource.is_kubernetes and resource.kind == "Gateway":
        for listener in items(resource.props, "spec", "listeners"):
            if listener.get("protocol") == "HTTP":
                yield "it serves HTTP. Prompts, answers and API keys cross the network unencrypted"


def tenant_namespaces(stack: RegisteredStack) -> dict[str, str]:
    """Returns the namespaces that belong to tenants, each with the evidence for it."""
    quotas = (quota for quota in stack.of_kind("ResourceQuota") if not is_system(quota.namespace))
    tenants = {quota.namespace: "it has a ResourceQuota" for quota in quotas}
    for binding in stack.of_kind("RoleBinding"):
        people = [subject for subject in items(binding.props, "subjects") if subject.get("kind") in ("User", "Group")]
        if any(not str(subject.get("name")).startswith("system:") for subject in people):
            tenants.setdefault(binding.namespace, f"{binding.path} gives people access to it")
    return tenants


@of_stacks(f"Set the label {POD_SECURITY} to baseline or restricted (gke-ai: tenants[].podSecurity)")
def tenants_have_pod_security(stack: RegisteredStack) -> Iterator[tuple[Resource, str]]:
    """Namespaces of tenants enforce a Pod Security level.

    https://kubernetes.io/docs/concepts/security/pod-security-admission/
    """
    tenants = tenant_namespaces(stack)
    for namespace in stack.of_kind("Namespace"):
        level = namespace.labels.get(POD_SECURITY)
        is_weak = level is None or (isinstance(level, str) and level not in SAFE_LEVELS)
        if is_weak and namespace.object_name in tenants:
            stated = f"the level {level}" if level else "no Pod Security level"
            cause = f"{tenants[namespace.object_name]}, and it enforces {stated}"
            yield namespace, f"{cause}. A privileged pod there controls its node and the pods of other tenants on it"


@of_stacks("Add a NetworkPolicy for all pods of the namespace (podSelector: {}) with policyTypes: [Ingress]")
def tenants_are_isolated(stack: RegisteredStack) -> Iterator[tuple[Resource, str]]:
    """Pods of a tenant accept traffic only from the sources that the tenant allows."""
    guarded = {
        policy.namespace
        for policy in stack.of_kind("NetworkPolicy")
        if not mapping(policy.props, "spec", "podSelector")
        and "Ingress" in (list_at(policy.props, "spec", "policyTypes") or ["Ingress"])
    }
    tenants = tenant_namespaces(stack)
    for namespace in stack.of_kind("Namespace"):
        name = namespace.object_name
        if name in tenants and name not in guarded:
            text = f"{tenants[name]}, and every pod of the cluster can call its pods. Other tenants can use its servers"
            yield namespace, text
