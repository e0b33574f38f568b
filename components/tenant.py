"""A tenant: what a team may do in its namespace, and what it may use there."""

from typing import Any, NotRequired, TypedDict

import pulumi
import pulumi_kubernetes as k8s

from catalog.namespaces import METRICS_COLLECTORS
from catalog.versions import JOBSET_API, KUEUE_API, POD_MONITORING_API
from components.base import Component, read
from components.tenant_policy import CONDITIONS, KINDS, validations, variables
from settings import model

NAMESPACE_NAME = "kubernetes.io/metadata.name"
# Objects that a namespace may hold unless its quota says otherwise: so many that nobody needs more by intention, and so
# few that one team doesn't fill the cluster's database. What has an address outside the cluster is for the platform to
# give. https://kubernetes.io/docs/concepts/policy/resource-quotas/#object-count-quota
OBJECTS = {
    "pods": "1k",
    "count/jobs.batch": "1k",
    "count/deployments.apps": "100",
    "services": "100",
    "services.loadbalancers": "0",
    "services.nodeports": "0",
    "secrets": "200",
    "configmaps": "500",
    "persistentvolumeclaims": "100",
}
READ = ["get", "list", "watch"]
WRITE = [*READ, "create", "update", "patch", "delete"]
# Addresses that are nobody's on the Internet: of the VPC network and what is connected to it, and of the node itself.
# https://www.iana.org/assignments/iana-ipv4-special-registry/
NOT_INTERNET = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "169.254.0.0/16", "240.0.0.0/4"]
# Where pods get their Google identity, address and port; the latter on Dataplane V2:
# https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy#network-policy-and-workload-identity
METADATA_SERVERS = [("169.254.169.252/32", 988), ("169.254.169.254/32", 80)]


class TenantArgs(TypedDict):
    """Arguments of a `Tenant`."""

    name: str
    """The namespace, which is there."""
    members: NotRequired[list[str]]
    """`user:`, `group:` or `serviceAccount:` and an e-mail address."""
    service_account: NotRequired[str]
    """That its workloads run as."""
    deployer: NotRequired[str]
    """Service account that may submit as members may."""
    priority_classes: NotRequired[list[str]]
    """That its pods may have."""
    quota: NotRequired[dict[str, str]]
    """Resource: the most of it in the namespace, a Kubernetes quantity."""
    buckets: NotRequired[list[str]]
    """That its pods may mount; the roles on them are granted by their `ModelBucket`."""
    pod_security: NotRequired[str]
    """What the configuration says of it; the labels of the namespace are what counts."""
    ingress_from: NotRequired[list[str]]
    """Namespaces whose pods may call its pods, beside its own."""
    local_queues: NotRequired[list[str]]
    """Local queues of the namespace; none: it has no accelerators."""
    service_accounts: NotRequired[list[str]]
    """All that its pods may run as; none: `service_account` and `default`."""


class Tenant(Component):
    """What a team may do in a namespace: two service accounts, a role, quotas, network policies, an admission policy.

    The namespace with its Pod Security labels and its local queues is a `WorkloadNamespace`, made before.

    Who may submit: the members, and the service account `deployer` for a pipeline. They may write what a workload is
    made of (Jobs, JobSets, Deployments, pods, Services, ConfigMaps, Secrets, claims, autoscalers, disruption budgets),
    read logs and execute in pods, and read queues, Kueue's Workloads, quotas and events; nothing that says what they
    may, and nothing outside the namespace. On GKE a user and a Google service account is known by its e-mail address.
    A group counts where Google Groups for RBAC is on (`security_group` of a `GkeCluster`), and once it is a member of
    the group gke-security-groups of its domain.
    IAM adds to these rights: a member with roles/container.developer may do so in every namespace.

    What they submit runs as `service_account`, which has no rights in Kubernetes and mounts no token.

    The admission policy refuses, of anybody: accelerators without one of the namespace's queues, in whatever shape;
    a priority class, a bucket or a service account that is not the tenant's; and ways around those. See
    `components.tenant_policy`. Kubernetes evaluates it in the API server, so it holds while Kueue is down.

    Network: its pods are called by pods of its own namespace and of `ingress_from`, and by the collectors of metrics.
    They reach pods of the cluster that let them, DNS, the metadata server and the Internet, where models and Cloud
    Storage are; not the VPC network or what is connected to it. Kubernetes stores network policies; GKE enforces them
    on Autopilot, with Dataplane V2 or with network policy turned on, and nowhere on pods with the node's network.

    There is no LimitRange: a small default would go unnoticed into a workload that needs much. With a quota of
    `requests.cpu` a pod without that request is refused, and says so.

    Refused: arguments that `settings.model.Tenant` refuses; by the API server, resource names that are none.

    Sources: https://kubernetes.io/docs/concepts/security/multi-tenancy/,
    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/,
    https://kueue.sigs.k8s.io/docs/tasks/manage/rbac/,
    https://cloud.google.com/kubernetes-engine/docs/how-to/role-based-access-control,
    https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac,
    https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy
    """

    service_account: pulumi.Output[str]
    """That its workloads run as."""
    deployer: pulumi.Output[str]

    def __init__(self, name: str, args: TenantArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        tenant = read(model.Tenant, name, args)
        namespace = tenant.name
        inside = pulumi.ResourceOptions(parent=self)

        policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
            policy_name(namespace),
            metadata={"name": policy_name(namespace)},
            spec=policy_spec(tenant, args),
            opts=inside,
        )
        binding = k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
            f"{policy_name(namespace)}-binding",
            metadata={"name": policy_name(namespace)},
            spec={"policy_name": policy_name(namespace), "validation_actions": ["Deny"]},
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        quota = k8s.core.v1.ResourceQuota(
            f"{namespace}/tenant",
            metadata={"name": "tenant", "namespace": namespace},
            spec={"hard": {**OBJECTS, **tenant.quota}},
            opts=inside,
        )
        networks = [
            k8s.networking.v1.NetworkPolicy(
                f"{namespace}/{direction}",
                metadata={"name": direction, "namespace": namespace},
                spec=spec,
                opts=inside,
            )
            for direction, spec in (("ingress", ingress(tenant.ingress_from)), ("egress", egress()))
        ]
        accounts = {
            account: k8s.core.v1.ServiceAccount(
                f"{namespace}/{account}",
                metadata={"name": account, "namespace": namespace},
                automount_service_account_token=False,
                opts=inside,
            )
            for account in (tenant.service_account, tenant.deployer)
        }
        role = k8s.rbac.v1.Role(
            f"{namespace}/submit",
            metadata={"name": "submit", "namespace": namespace},
            rules=rules(),
            opts=inside,
        )
        k8s.rbac.v1.RoleBinding(
            f"{namespace}/submit-binding",
            metadata={"name": "submit", "namespace": namespace},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": "submit"},
            subjects=[
                {"kind": "ServiceAccount", "name": tenant.deployer, "namespace": namespace},
                *(subject(one) for one in tenant.members),
            ],
            # Rights come last, and go first: nobody submits what isn't bounded.
            opts=pulumi.ResourceOptions(
                parent=self, depends_on=[binding, quota, *networks, role, accounts[tenant.deployer]]
            ),
        )

        self.service_account = accounts[tenant.service_account].id.apply(lambda _: tenant.service_account)
        self.deployer = accounts[tenant.deployer].id.apply(lambda _: tenant.deployer)
        self.register_outputs({"serviceAccount": self.service_account, "deployer": self.deployer})


def policy_name(namespace: str) -> str:
    """Name of the tenant's admission policy and of its binding, which the whole cluster has."""
    return f"tenant-{namespace}"


def policy_spec(
    tenant: model.Tenant, args: TenantArgs
) -> "k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgsDict":
    """Which objects the admission policy is about, and what they must be."""
    kinds: list[k8s.admissionregistration.v1.NamedRuleWithOperationsArgsDict] = [
        {"api_groups": [group], "api_versions": [version], "operations": ["CREATE", "UPDATE"], "resources": [resource]}
        for group, version, resource in KINDS
    ]
    found = validations(
        tenant.name,
        args.get("local_queues", []),
        tenant.priority_classes,
        tenant.buckets,
        args.get("service_accounts", [tenant.service_account, "default"]),
    )
    conditions: Any = CONDITIONS
    names: Any = variables()
    checks: Any = [{**one, "reason": "Forbidden"} for one in found]
    return {
        "failure_policy": "Fail",
        "match_constraints": {
            "namespace_selector": {"match_labels": {NAMESPACE_NAME: tenant.name}},
            "resource_rules": kinds,
        },
        "match_conditions": conditions,
        "variables": names,
        "validations": checks,
    }


def rules() -> "list[k8s.rbac.v1.PolicyRuleArgsDict]":
    """What submitting needs, and reading what became of it.

    Pods can't be changed: what may be changed of a pod is the gate by which Kueue holds it.
    """
    given: list[tuple[str, list[str], list[str]]] = [
        ("batch", ["jobs"], WRITE),
        (group_of(JOBSET_API), ["jobsets"], WRITE),
        ("apps", ["deployments", "deployments/scale"], WRITE),
        ("", ["services", "configmaps", "secrets", "persistentvolumeclaims"], WRITE),
        ("autoscaling", ["horizontalpodautoscalers"], WRITE),
        ("policy", ["poddisruptionbudgets"], WRITE),
        (group_of(POD_MONITORING_API), ["podmonitorings"], WRITE),
        ("", ["pods"], [*READ, "create", "delete"]),
        ("", ["pods/log"], ["get"]),
        # A WebSocket is opened by a GET, what came before it by a POST.
        ("", ["pods/exec", "pods/attach", "pods/portforward"], ["get", "create"]),
        ("apps", ["replicasets"], READ),
        ("", ["events", "serviceaccounts", "resourcequotas"], READ),
        ("events.k8s.io", ["events"], READ),
        ("networking.k8s.io", ["networkpolicies"], READ),
        (group_of(KUEUE_API), ["localqueues", "workloads"], READ),
        # The place in the queue: https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/
        ("visibility.kueue.x-k8s.io", ["localqueues/pendingworkloads"], ["get"]),
    ]
    return [{"api_groups": [group], "resources": kinds, "verbs": verbs} for group, kinds, verbs in given]


def group_of(api_version: str) -> str:
    """The API group of `group/version`."""
    return api_version.partition("/")[0]


def subject(member: str) -> "k8s.rbac.v1.SubjectArgsDict":
    """The subject by which GKE knows a member: groups as Group, all else as User, by e-mail address."""
    member_type, _, address = member.partition(":")
    return {
        "kind": "Group" if member_type == "group" else "User",
        "name": address,
        "api_group": "rbac.authorization.k8s.io",
    }


def ingress(namespaces: list[str]) -> "k8s.networking.v1.NetworkPolicySpecArgsDict":
    """Own pods, those of the namespaces, and collectors of metrics; probes come from the node, and always pass."""
    named = {"key": NAMESPACE_NAME, "operator": "In", "values": [*namespaces, *METRICS_COLLECTORS]}
    others: k8s.meta.v1.LabelSelectorArgsDict = {"match_expressions": [named]}  # type: ignore[list-item]
    return {
        "pod_selector": {},
        "policy_types": ["Ingress"],
        "ingress": [{"from_": [{"pod_selector": {}}, {"namespace_selector": others}]}],
    }


def egress() -> "k8s.networking.v1.NetworkPolicySpecArgsDict":
    """Pods of the cluster, whose own policies decide who calls them; names, identity, and the Internet."""
    metadata: list[k8s.networking.v1.NetworkPolicyEgressRuleArgsDict] = [
        {"to": [{"ip_block": {"cidr": address}}], "ports": [{"protocol": "TCP", "port": port}]}
        for address, port in METADATA_SERVERS
    ]
    # Whoever answers: kube-dns in the cluster, NodeLocal DNSCache or Cloud DNS at an address of the node.
    dns: k8s.networking.v1.NetworkPolicyEgressRuleArgsDict = {
        "ports": [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
    }
    return {
        "pod_selector": {},
        "policy_types": ["Egress"],
        "egress": [
            {"to": [{"namespace_selector": {}}]},
            dns,
            *metadata,
            {"to": [{"ip_block": {"cidr": "0.0.0.0/0", "except_": NOT_INTERNET}}]},
        ],
    }
