"""A tenant: rights, quotas, network policies and admission policy of a team's namespace."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from gke_ai.catalog.fabric.nvlink import CHANNELS, NODE_NICS
from gke_ai.catalog.fabric.nvlink import OF_CLASS as CHANNELS_OF_CLASS
from gke_ai.catalog.fabric.rdma import CLAIMS, NICS_PER_POD, OF_CLASS, RESOURCE
from gke_ai.catalog.kueue.namespaces import NAMESPACE_NAME
from gke_ai.catalog.nodes.quota import TENANT_QUOTA
from gke_ai.catalog.nodes.shape import ACCELERATORS
from gke_ai.catalog.published import ANNOTATION, CONFIG_MAP
from gke_ai.catalog.versions import JOBSET_API, JOBSET_CRD, KUEUE_API, POD_MONITORING_API
from gke_ai.components.arguments import Refused, takes
from gke_ai.components.base import Component
from gke_ai.components.cluster.connection import InCluster
from gke_ai.components.queues.namespace import WorkloadNamespace
from gke_ai.components.queues.tenant_network import network_policies
from gke_ai.components.queues.tenant_policy import (
    FURTHER_KINDS,
    GRACE_SECONDS,
    KINDS,
    conditions,
    validations,
    variables,
)
from gke_ai.components.support.retry import policy_hook
from gke_ai.settings import model
from gke_ai.settings.model.base import DnsLabel
from gke_ai.settings.problems import Problem


def group_of(api_version: str) -> str:
    """The API group of `group/version`."""
    return api_version.partition("/")[0]


COUNTED_JOBSETS = f"count/{JOBSET_CRD}"
# Default limits of what a team can create: above any legitimate need, and low enough that one team can't fill the
# cluster's database. Only the platform creates Services with an address outside the cluster.
# https://kubernetes.io/docs/concepts/policy/resource-quotas/#object-count-quota
OBJECTS = {
    "pods": "1k",
    "count/jobs.batch": "1k",
    COUNTED_JOBSETS: "200",
    "count/deployments.apps": "100",
    "count/replicasets.apps": "1k",
    "count/horizontalpodautoscalers.autoscaling": "100",
    "count/poddisruptionbudgets.policy": "100",
    f"count/podmonitorings.{group_of(POD_MONITORING_API)}": "100",
    "services": "100",
    "services.loadbalancers": "0",
    "services.nodeports": "0",
    "secrets": "100",
    "configmaps": "200",
    "persistentvolumeclaims": "100",
    "requests.storage": "10Ti",
}
# The API server refuses JobSets ("status unknown for quota") until the quota's controller counts them, which begins up
# to 30 seconds after JobSet's CRD exists, for a quota from before with the next full count, within five minutes.
# https://github.com/kubernetes/kubernetes/blob/v1.36.1/cmd/kube-controller-manager/app/core.go
# https://github.com/kubernetes/kubernetes/blob/v1.36.1/pkg/controller/resourcequota/config/v1alpha1/defaults.go
COUNTS_JOBSETS = {"pulumi.com/waitFor": f"jsonpath={{.status.used['{COUNTED_JOBSETS}']}}"}
# Accelerators of all pods of the namespace, in multiples of what its queues may use: as many again for pods that wait
# in a queue and for pods that end, which Kueue no longer counts.
TIMES = 2
READ = ["get", "list", "watch"]
WRITE = [*READ, "create", "update", "patch", "delete"]


class TenantArguments(InCluster, model.Tenant):
    namespace: WorkloadNamespace | DnsLabel | None = None
    """Its namespace: a `WorkloadNamespace` with a Pod Security level, or the name of another one that has the labels of
    such a level. Required."""
    name: DnsLabel = ""
    """Name of the tenant: that of its namespace."""
    local_queues: Sequence[str] | None = None
    """Local queues of the namespace. Default: those of `namespace`, else no queue, so no accelerators."""
    service_accounts: Sequence[str] | None = None
    """Service accounts that its pods may run as. Default: `service_account` and `default`."""
    accelerators: Mapping[str, int] | None = None
    """Accelerators that its queues may use, by resource. Its pods request up to twice as many."""
    claims: Sequence[str] = ()
    """Names of the templates by which its pods may claim devices: those of its `WorkloadNamespace`."""
    pickers: Sequence[str] = ()
    """Service accounts of the endpoint pickers in the namespace. Only the platform's pods run as them."""
    guarded: Sequence[str] = ()
    """Labels `app` of servers that pods of `ingress_from` don't reach, because they require an API key."""
    grace_seconds: int = GRACE_SECONDS
    """Longest time that its pods may take to end, in seconds."""
    runs_jobsets: bool = False
    """Whether JobSets of the same `pulumi up` wait for the tenant. It is then ready when the API server counts them."""
    further_kinds: Sequence[str] = ()
    """Kinds that it may create beside those of Kubernetes and JobSet: TrainJob, RayJob, RayCluster."""
    published: str = ""
    """What `gke-ai submit` reads in the namespace, as `gke_ai.settings.published` writes it. Default: nothing."""


class Tenant(Component):
    """A team's rights in its namespace: service accounts, role, quotas, network policies, admission policy.

    A `WorkloadNamespace` creates the namespace beforehand, with its Pod Security level and its local queues, and
    without `service_account` and `deployer`, which this component creates.

    Members, and the service account `deployer` of a pipeline, may submit. They may write the objects of a workload
    (Jobs, JobSets, Deployments, pods, Services, ConfigMaps, Secrets, claims, autoscalers, disruption budgets), read
    logs and execute commands in pods, and read queues, Kueue's Workloads, quotas and events. They may not change their
    rights, and have none outside the namespace. GKE knows users and Google service accounts by their e-mail address.
    It knows groups if Google Groups for RBAC is on (`security_group` of a `GkeCluster`) and the group is a member of
    the group gke-security-groups of its domain.
    IAM adds to these rights: a member with roles/container.developer has that role's rights in every namespace.

    Their workloads run as `service_account`, which has no rights in Kubernetes and mounts no token.

    The admission policy applies to everyone. It refuses accelerators without a queue of the namespace, on any object;
    priority classes, buckets and service accounts of others; claims of devices, except by `claims`, which its queues
    count; and ways to bypass these rules. See
    `gke_ai.components.queues.tenant_policy`. The API server evaluates it, so it applies even while Kueue is down. Kueue
    stops counting a pod when it begins to end; the policy bounds the time that it takes, and the quota the accelerators
    that all pods of the namespace have.

    Network: pods of the same namespace, pods of `ingress_from`, the metrics collectors and the API server may call the
    tenant's pods.
    The tenant's pods reach pods of the cluster whose policies allow it, DNS, the metadata server and the Internet,
    where models and Cloud Storage are. They do not reach the VPC network or networks connected to it. GKE enforces
    network policies on Autopilot, with Dataplane V2, or with network policy turned on, but never for pods with the
    node's network.

    A ConfigMap has what `gke-ai submit` checks a run by. Members may read it, and only the platform may write it.

    There is no LimitRange, because a workload that needs much would silently get a small default. With a quota of
    `requests.cpu`, the API server refuses a pod without that request and says why.

    Refused: a namespace without a Pod Security level, in which pods could bypass all of this; by the API server,
    invalid resource names.

    Sources: https://kubernetes.io/docs/concepts/security/multi-tenancy/,
    https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/,
    https://kueue.sigs.k8s.io/docs/tasks/manage/rbac/,
    https://cloud.google.com/kubernetes-engine/docs/how-to/role-based-access-control,
    https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac,
    https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy

    Example:
        queues = {"team": "gpus"}
        team = WorkloadNamespace("vision", cluster=cluster, kueue=kueue, queues=queues, pod_security="baseline")
        Tenant("rights", namespace=team, members=["group:vision@example.com"], accelerators={"nvidia.com/gpu": 4})
    """

    service_account: pulumi.Output[str]
    """Service account that its workloads run as."""
    deployer: pulumi.Output[str]

    @takes(TenantArguments)
    def __init__(self, name: str, args: TenantArguments) -> None:
        super().__init__(name, args)
        tenant = args.section(model.Tenant)
        space = args.namespace if isinstance(args.namespace, WorkloadNamespace) else None
        if not args.is_checked:
            if tenant.budget:
                cause = "is stated, and only a Ledger keeps budgets. It would have no effect"
                raise Refused(f"Tenant {name}", Problem("budget", cause, "Pass it to Ledger(budgets=…)"))
            if problem := namespace_problem(args, name):
                raise Refused(f"Tenant {name}", problem)
            tenant = tenant.model_copy(update={"name": space.called if space else args.namespace})
        if cluster := args.place():
            otherwise = "Nothing would enforce the tenant's NetworkPolicies"
            cluster.need(f"Tenant {name}", "network_policy", otherwise, '"dataplaneV2"')
            if any(member.startswith("group:") for member in tenant.members):
                otherwise, value = "GKE would know no groups among the members", '"gke-security-groups@DOMAIN"'
                cluster.need(f"Tenant {name}", "security_group", otherwise, value)
        if space is not None:
            buckets = tenant.buckets or space.bucket_names
            tenant = tenant.model_copy(update={"pod_security": space.pod_security, "buckets": buckets})
        accounts_of_pods = args.service_accounts
        if accounts_of_pods is None:
            accounts_of_pods = [tenant.service_account, "default"]
        local_queues = [*(space.queues if space else ())] if args.local_queues is None else args.local_queues
        claims, further_kinds, namespace = args.claims, args.further_kinds, tenant.name

        name_of_policy = policy_name(namespace)
        policy = k8s.admissionregistration.v1.ValidatingAdmissionPolicy(
            *self.child(name_of_policy, hooks=policy_hook(f"policy of {name}")),
            metadata={"name": name_of_policy},
            spec=policy_spec(
                tenant, local_queues, accounts_of_pods, args.pickers, args.grace_seconds, further_kinds, claims
            ),
        )
        # The API server refuses an object for the first rule that it breaks, and warns of every one.
        binding, _ = (
            k8s.admissionregistration.v1.ValidatingAdmissionPolicyBinding(
                *self.child(f"{name_of_policy}-{suffix}", depends_on=[policy]),
                metadata={"name": name},
                spec={"policy_name": name_of_policy, "validation_actions": [action]},
            )
            for suffix, name, action in (
                ("binding", name_of_policy, "Deny"),
                ("warnings", f"{name_of_policy}-warnings", "Warn"),
            )
        )
        limits = {
            **OBJECTS,
            **quota_of(further_kinds),
            **quota_of_accelerators(args.accelerators or {}),
            **tenant.quota,
        }
        counted: k8s.meta.v1.ObjectMetaArgsDict = {"annotations": COUNTS_JOBSETS} if args.runs_jobsets else {}
        quota = k8s.core.v1.ResourceQuota(
            *self.child(f"{namespace}/{TENANT_QUOTA}"),
            metadata={"name": TENANT_QUOTA, "namespace": namespace, **counted},
            spec={"hard": limits},
        )
        if args.published:
            k8s.core.v1.ConfigMap(
                *self.child(f"{namespace}/{CONFIG_MAP}", depends_on=[binding]),
                metadata={"name": CONFIG_MAP, "namespace": namespace, "annotations": {ANNOTATION: args.published}},
                # nobody else may write it
            )
        networks = [
            k8s.networking.v1.NetworkPolicy(
                *self.child(f"{namespace}/{direction}"), metadata={"name": direction, "namespace": namespace}, spec=spec
            )
            for direction, spec in network_policies(tenant.ingress_from, args.guarded, further_kinds).items()
        ]
        accounts = {
            account: k8s.core.v1.ServiceAccount(
                *self.child(f"{namespace}/{account}"),
                metadata={"name": account, "namespace": namespace},
                automount_service_account_token=False,
            )
            for account in (tenant.service_account, tenant.deployer)
        }
        role = k8s.rbac.v1.Role(
            *self.child(f"{namespace}/submit"),
            metadata={"name": "submit", "namespace": namespace},
            rules=rules(further_kinds),
        )
        k8s.rbac.v1.RoleBinding(
            # Rights are created last and deleted first, so nobody submits without limits.
            *self.child(
                f"{namespace}/submit-binding", depends_on=[binding, quota, *networks, role, accounts[tenant.deployer]]
            ),
            metadata={"name": "submit", "namespace": namespace},
            role_ref={"api_group": "rbac.authorization.k8s.io", "kind": "Role", "name": "submit"},
            subjects=[
                {"kind": "ServiceAccount", "name": tenant.deployer, "namespace": namespace},
                *(subject(member) for member in tenant.members),
            ],
        )

        self.service_account = accounts[tenant.service_account].id.apply(lambda _: tenant.service_account)
        self.deployer = accounts[tenant.deployer].id.apply(lambda _: tenant.deployer)
        self.register_outputs({"serviceAccount": self.service_account, "deployer": self.deployer})


def namespace_problem(args: TenantArguments, name: str) -> Problem | None:
    """What is wrong with the namespace of a tenant, and with its Pod Security level."""
    if (space := args.namespace) is None:
        cause = "is missing. Only in a namespace with a Pod Security level does a tenant have limits"
        return Problem("namespace", cause, "Pass the WorkloadNamespace, or the name of a namespace with such labels")
    called = space.called if isinstance(space, WorkloadNamespace) else space
    if args.name not in (name, called):
        return Problem("name", f"is {args.name}, and the namespace is {called}, which counts", "Omit it")
    if not isinstance(space, WorkloadNamespace):
        return None
    if space.pod_security is None:
        cause = f"{called} has no Pod Security level, so privileged pods could bypass the tenant's rules"
        return Problem("namespace", cause, f'Pass pod_security="{args.pod_security}" to the WorkloadNamespace')
    if "pod_security" in args.model_fields_set and args.pod_security != space.pod_security:
        cause = f"is {args.pod_security}, and namespace {called} has {space.pod_security}, which counts"
        return Problem("podSecurity", cause, "Omit it, or change the namespace")
    return None


def policy_name(namespace: str) -> str:
    """Name of the tenant's admission policy and its binding, which are cluster-scoped."""
    return f"tenant-{namespace}"


def quota_of(further_kinds: Sequence[str]) -> dict[str, str]:
    """The quota of the namespace on objects of further kinds."""
    return {
        f"count/{resource}.{group}": "200" for group, _, resource, _ in map(FURTHER_KINDS.__getitem__, further_kinds)
    }


def quota_of_accelerators(accelerators: Mapping[str, int]) -> dict[str, str]:
    """The quota of the namespace on accelerators, a wall behind the policy: Kubernetes counts without Kueue.

    It counts a pod from its creation until it is gone. A tenant without a queue has none.
    """
    total = dict.fromkeys(ACCELERATORS, 0) | {resource: TIMES * amount for resource, amount in accelerators.items()}
    nics, channels = total.pop(RESOURCE, 0), total.pop(CHANNELS, 0)
    # NICs and channels are no resources of a container: Kubernetes counts them by the claims.
    count = nics // (NODE_NICS if channels else NICS_PER_POD) + channels
    claims = {OF_CLASS: nics, CHANNELS_OF_CLASS: channels, CLAIMS: count}
    counted = {f"requests.{resource}": amount for resource, amount in total.items()} | claims
    return {name: str(amount) for name, amount in counted.items() if amount or name not in claims}


def policy_spec(
    tenant: model.Tenant,
    local_queues: Sequence[str],
    service_accounts: Sequence[str],
    pickers: Sequence[str],
    grace_seconds: int,
    further_kinds: Sequence[str],
    claims: Sequence[str],
) -> "k8s.admissionregistration.v1.ValidatingAdmissionPolicySpecArgsDict":
    """Spec of the admission policy: the objects that it applies to, and its rules."""
    kinds: list[k8s.admissionregistration.v1.NamedRuleWithOperationsArgsDict] = [
        {"api_groups": [group], "api_versions": [version], "operations": operations, "resources": [resource]}
        for group, version, resource, operations in [*KINDS, *map(FURTHER_KINDS.__getitem__, further_kinds)]
    ]
    match_conditions: Any = conditions(further_kinds)
    names: Any = variables(pickers, further_kinds)
    rules_of_tenant = validations(tenant, local_queues, service_accounts, pickers, grace_seconds, further_kinds, claims)
    checks: Any = [{**rule, "reason": "Forbidden"} for rule in rules_of_tenant]
    return {
        "failure_policy": "Fail",
        "match_constraints": {
            "namespace_selector": {"match_labels": {NAMESPACE_NAME: tenant.name}},
            "resource_rules": kinds,
        },
        "match_conditions": match_conditions,
        "variables": names,
        "validations": checks,
    }


def rules(further_kinds: Sequence[str] = ()) -> "list[k8s.rbac.v1.PolicyRuleArgsDict]":
    """Rights to submit workloads, and to read their state.

    Nobody may update pods: the only mutable fields of a pod include the gate with which Kueue holds it.
    """
    permissions: list[tuple[str, list[str], list[str]]] = [
        ("batch", ["jobs"], WRITE),
        (group_of(JOBSET_API), ["jobsets"], WRITE),
        *((group, [resource], WRITE) for group, _, resource, _ in map(FURTHER_KINDS.__getitem__, further_kinds)),
        ("apps", ["deployments", "deployments/scale"], WRITE),
        ("", ["services", "configmaps", "secrets", "persistentvolumeclaims"], WRITE),
        ("autoscaling", ["horizontalpodautoscalers"], WRITE),
        ("policy", ["poddisruptionbudgets"], WRITE),
        (group_of(POD_MONITORING_API), ["podmonitorings"], WRITE),
        ("", ["pods"], [*READ, "create", "delete"]),
        ("", ["pods/log"], ["get"]),
        # A client opens a WebSocket with GET, and the older SPDY with POST.
        ("", ["pods/exec", "pods/attach", "pods/portforward"], ["get", "create"]),
        ("apps", ["replicasets"], READ),
        ("", ["events", "serviceaccounts", "resourcequotas"], READ),
        ("events.k8s.io", ["events"], READ),
        ("networking.k8s.io", ["networkpolicies"], READ),
        (group_of(KUEUE_API), ["localqueues", "workloads"], READ),
        # The place in the queue: https://kueue.sigs.k8s.io/docs/tasks/manage/monitor_pending_workloads/
        ("visibility.kueue.x-k8s.io", ["localqueues/pendingworkloads"], ["get"]),
    ]
    return [{"api_groups": [group], "resources": kinds, "verbs": verbs} for group, kinds, verbs in permissions]


def subject(member: str) -> "k8s.rbac.v1.SubjectArgsDict":
    """The RBAC subject of a member: a Group or a User, named by e-mail address."""
    member_type, _, address = member.partition(":")
    return {
        "kind": "Group" if member_type == "group" else "User",
        "name": address,
        "api_group": "rbac.authorization.k8s.io",
    }
