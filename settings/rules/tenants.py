"""Rules of tenants: who they are, what they may use, and what of the stack runs in their namespaces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from catalog.namespaces import is_system
from catalog.quantities import parse_quantity
from settings import tenancy
from settings.model import Multislice, Settings, Tenant, TpuBatch, Workload
from settings.plan import BUILT_IN_PRIORITIES, DEFAULT_NAMESPACE, workloads
from settings.problems import Problem, nearest, unknown
from settings.rules.common import Rule, join_names, needs, repeated

_KINDS = ("user", "group", "serviceAccount")
_ADDRESS = re.compile(r"[^@\s:]+@[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)+")
# https://cloud.google.com/iam/docs/service-account-types
_ROBOT = ".gserviceaccount.com"
_ROBOT_DOMAIN = "PROJECT.iam.gserviceaccount.com"

# What a quota can be of: https://kubernetes.io/docs/concepts/policy/resource-quotas/#types-of-resource-quota
_COMPUTE = (
    *(f"{side}{resource}" for side in ("", "requests.", "limits.") for resource in ("cpu", "memory")),
    *(f"{side}ephemeral-storage" for side in ("", "requests.", "limits.")),
    "requests.storage",
)
_COUNTS = (
    "pods",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "replicationcontrollers",
    "resourcequotas",
)
_OF_A_CLASS = re.compile(r"[-a-z0-9.]+\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)")
_OF_A_KIND = re.compile(r"count/[a-z]+(\.[-a-z0-9.]+)?")
_DEVICES = re.compile(r"requests\.[-a-z0-9.]+/[-A-Za-z0-9_.]+")
_HUGE_PAGES = re.compile(r"(requests\.|limits\.)?hugepages-[0-9]+[KMG]i")


def names_are_namespaces_of_their_own(settings: Settings) -> Iterator[Problem]:
    """Each tenant has a namespace to itself, which the stack makes."""
    consequence = "a namespace has one team"
    yield from repeated(((one, "name", one.name) for one in settings.tenants), "tenant", consequence)
    for one in settings.tenants:
        if one.name == DEFAULT_NAMESPACE:
            cause = "namespace default is in every cluster and bounded by nobody — it can't be a tenant's"
            yield Problem(one.at("name"), cause, "Choose another name")
        elif is_system(one.name):
            cause = f"namespace {one.name} belongs to the cluster — a team there could take it over"
            yield Problem(one.at("name"), cause, "Choose another name")


def members_can_be_known(settings: Settings) -> Iterator[Problem]:
    """A member is a kind and an e-mail address, each once."""
    for one in settings.tenants:
        for index, member in enumerate(one.members):
            path = one.at(f"members[{index}]")
            member_type, colon, address = member.partition(":")
            robot = address.endswith(_ROBOT)
            if not colon:
                cause = f"{member} does not say whether it is a user, a group or a service account"
                yield Problem(
                    path, f"{cause} — nobody would be given anything", "Write for example user:ada@example.com"
                )
            elif member_type not in _KINDS:
                cause = f"{member_type} is no kind of member — nobody would be given anything"
                yield Problem(path, cause, nearest(member_type, _KINDS))
            elif not _ADDRESS.fullmatch(address):
                cause = f'"{address}" is no e-mail address, by which GKE knows members — nobody would be given anything'
                yield Problem(
                    path,
                    cause,
                    f"Write {member_type}:NAME@{_ROBOT_DOMAIN if member_type == _KINDS[2] else 'example.com'}",
                )
            elif (member_type == _KINDS[2]) != robot:
                cause = f"{address} is no {member_type}: addresses of Google service accounts, and no others, "
                cause += f"end in {_ROBOT}"
                yield Problem(
                    path, cause, f"Write {'serviceAccount' if robot else 'user or group'}, or another address"
                )
        yield from _twice(one, "members", one.members, "member")


def groups_are_of_one_domain(settings: Settings) -> Iterator[Problem]:
    """A cluster knows groups through one group, which is of one domain.

    https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac
    """
    first, *others = tenancy.group_domains(settings) or [""]
    for one in settings.tenants:
        for index, member in enumerate(one.members):
            if member.startswith("group:") and member.rpartition("@")[2] in others:
                cause = f"{member} is of another domain than groups of {first}, and a cluster knows groups of one"
                remedy = "Name a group of that domain, or users"
                yield Problem(one.at(f"members[{index}]"), f"{cause} — it would be given nothing", remedy)


def _twice(tenant: Tenant, key: str, values: Iterable[str], what: str) -> Iterator[Problem]:
    for value, count in Counter(values).items():
        if count > 1:
            cause = f"{what} {value} is there {count} times — one is enough, and another may have been meant"
            yield Problem(tenant.at(key), cause, "Leave the others out")


def accounts_are_two(settings: Settings) -> Iterator[Problem]:
    """Workloads don't run as the account that may submit, and neither account is one that Kubernetes makes."""
    for one in settings.tenants:
        if one.service_account == one.deployer:
            yield Problem(
                one.at("deployer"),
                f"{one.deployer} is also the service account of the workloads — "
                "whatever runs in a pod could submit, change and delete work",
                "Give one of them another name",
            )
        for key, account in (("serviceAccount", one.service_account), ("deployer", one.deployer)):
            if account == "default":
                cause = "Kubernetes makes the service account default in every namespace — it could not be created"
                yield Problem(one.at(key), cause, "Choose another name")


@needs("gke-ai:queues.priorityClasses")
def priority_classes_exist(settings: Settings) -> Iterator[Problem]:
    """A tenant's priority classes are of this stack, and none is the system's."""
    known = [one.name for one in settings.queues.priority_classes] if settings.queues else []
    for one in settings.tenants:
        for index, name in enumerate(one.priority_classes):
            path = one.at(f"priorityClasses[{index}]")
            if name in BUILT_IN_PRIORITIES:
                cause = f"with {name} the team could evict the cluster's own controllers"
                yield Problem(path, cause, "Choose a class of gke-ai:queues.priorityClasses")
            else:
                section = "gke-ai:queues.priorityClasses"
                consequence = "the API server would refuse the pods"
                yield from unknown(settings, path, section, "priority class", name, known, consequence)
        yield from _twice(one, "priorityClasses", one.priority_classes, "priority class")


def buckets_exist(settings: Settings) -> Iterator[Problem]:
    """A tenant's buckets are of this stack, and nobody grants a second time what that gives."""
    known = {one.name: one for one in settings.buckets}
    for one in settings.tenants:
        for index, name in enumerate(one.buckets):
            path = one.at(f"buckets[{index}]")
            yield from unknown(settings, path, "gke-ai:buckets", "bucket", name, known, "nothing could be granted")
            grants = known[name].grants if name in known else []
            given = tenancy.grant(one)
            if given in grants:
                yield Problem(
                    path,
                    f"{given.role} on {name} is also granted to {one.name}/{one.service_account} by the bucket — "
                    "the same grant can't be made twice",
                    f"Leave it out of {known[name].at(f'grants[{grants.index(given)}]')}",
                )
        yield from _twice(one, "buckets", one.buckets, "bucket")


def quotas_are_of_resources(settings: Settings) -> Iterator[Problem]:
    """A quota is of what Kubernetes counts in a namespace; of objects and devices in whole numbers."""
    for one in settings.tenants:
        for resource, text in one.quota.items():
            path = f'{one.at("quota")}["{resource}"]'
            if _is_counted(resource):
                whole = resource in _COUNTS or resource.startswith("count/") or _DEVICES.fullmatch(resource)
                if whole and parse_quantity(text).denominator != 1:
                    yield Problem(path, f"{text} of {resource} is not a whole number", "Write a whole number")
                continue
            cause = f"{resource} is nothing that Kubernetes counts in a namespace — the quota would be refused"
            if "/" in resource and not resource.startswith("count/"):
                device = resource.removeprefix("limits.").removeprefix("requests.")
                yield Problem(path, cause, f"Of devices only requests are counted: write requests.{device}")
            elif "gpu" in resource.lower():
                yield Problem(path, cause, "Did you mean requests.nvidia.com/gpu?")
            else:
                yield Problem(path, cause, nearest(resource, (*_COMPUTE, *_COUNTS)))


def _is_counted(resource: str) -> bool:
    patterns = (_OF_A_CLASS, _OF_A_KIND, _DEVICES, _HUGE_PAGES)
    return resource in (*_COMPUTE, *_COUNTS) or any(pattern.fullmatch(resource) for pattern in patterns)


def callers_are_others(settings: Settings) -> Iterator[Problem]:
    """Pods of the tenant's own namespace may call it anyway."""
    for one in settings.tenants:
        if one.name in one.ingress_from:
            cause = f"{one.name} is the tenant's own namespace, whose pods may call each other anyway"
            remedy = "Leave it out, or name the namespace that you meant"
            yield Problem(one.at(f"ingressFrom[{one.ingress_from.index(one.name)}]"), cause, remedy)
        yield from _twice(one, "ingressFrom", one.ingress_from, "namespace")


def _inside(settings: Settings) -> Iterator[tuple[Tenant, Workload]]:
    """Workloads of the stack in tenants' namespaces."""
    for workload in workloads(settings):
        tenant = tenancy.tenant_of(workload.namespace, settings)
        if tenant is not None:
            yield tenant, workload


def workloads_keep_to_the_tenants_bounds(settings: Settings) -> Iterator[Problem]:
    """What the stack runs in a tenant's namespace is held to the same as what the team submits."""
    classes = [one.name for one in settings.queues.priority_classes] if settings.queues else []
    for tenant, one in _inside(settings):
        if one.queue is None:
            mine = tenancy.queues(tenant, settings)
            entry = f"{{name: …, namespace: {tenant.name}, clusterQueue: …}}"
            remedy = (
                f"Set it to {' or '.join(mine)}" if mine else f"Add {entry} to gke-ai:queues.localQueues, and name it"
            )
            cause = f"namespace {tenant.name} is a tenant's, where accelerators are only under a queue"
            yield Problem(one.at("queue"), f"{cause} — the API server would refuse the pods", remedy)
        allowed = tenancy.priority_classes(tenant, settings)
        if one.priority_class in classes and one.priority_class not in allowed:
            cause = f"priority class {one.priority_class} is not for tenant {tenant.name}"
            remedy = f"Add it to {tenant.at('priorityClasses')}, or choose another"
            yield Problem(one.at("priorityClass"), f"{cause} — the API server would refuse the pods", remedy)
        if one.service_account == tenant.deployer:
            cause = f"{tenant.deployer} is the account by which tenant {tenant.name} submits, and no pod may run as it"
            yield Problem(one.at("serviceAccount"), cause, f"Set it to {tenant.service_account}")


def workloads_meet_the_pod_security_level(settings: Settings) -> Iterator[Problem]:
    """Baseline has no privileged containers and no network of nodes; restricted nothing of what this program makes.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    restricted: dict[str, list[str]] = {}
    for tenant, one in _inside(settings):
        if tenant.pod_security == "restricted":
            restricted.setdefault(tenant.name, []).append(one.name)
        elif tenant.pod_security == "baseline":
            wanted = []
            if isinstance(one, Multislice | TpuBatch) and one.privileged:
                wanted.append(("privileged", "privileged containers"))
            if isinstance(one, Multislice) and one.host_network:
                wanted.append(("hostNetwork", "pods on the network of their node"))
            for key, what in wanted:
                cause = f"tenant {tenant.name} has Pod Security level baseline, which has no {what}"
                remedy = f"Leave it out, or set {tenant.at('podSecurity')} to privileged"
                yield Problem(one.at(key), f"{cause} — the pods would be refused", remedy)
    for name, names in restricted.items():
        tenant = next(one for one in settings.tenants if one.name == name)
        cause = f"{join_names(names)} of this stack run in the namespace as their images do, which may be as root"
        consequence = "at the level restricted the pods would be refused"
        yield Problem(tenant.at("podSecurity"), f"{cause} — {consequence}", "Set it to baseline, or run them elsewhere")


RULES: tuple[Rule, ...] = (
    names_are_namespaces_of_their_own,
    members_can_be_known,
    groups_are_of_one_domain,
    accounts_are_two,
    priority_classes_exist,
    buckets_exist,
    quotas_are_of_resources,
    callers_are_others,
    workloads_keep_to_the_tenants_bounds,
    workloads_meet_the_pod_security_level,
)
