"""Rules of tenants: their members, what they may use, and the stack's workloads in their namespaces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.settings.model import Tenant, Workload
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import BUILT_IN_PRIORITIES, DEFAULT_NAMESPACE, ResolvedStack, Space
from gke_ai.settings.resolved.buckets import grant_of
from gke_ai.settings.resolved.tenants import group_domains
from gke_ai.settings.rules.common import BUCKETS, PRIORITIES, each, join_names, needs, repeated, rule

_MEMBER_TYPES = ("user", "group", "serviceAccount")
_ADDRESS = re.compile(r"[^@\s:]+@[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)+")
# https://cloud.google.com/iam/docs/service-account-types
_ACCOUNT_SUFFIX = ".gserviceaccount.com"
_ACCOUNT_DOMAIN = "PROJECT.iam.gserviceaccount.com"

# Resources that a ResourceQuota can limit: https://kubernetes.io/docs/concepts/policy/resource-quotas/#types-of-resource-quota
_COMPUTE = (
    *(f"{side}{resource}" for side in ("", "requests.", "limits.") for resource in ("cpu", "memory")),
    *(f"{side}ephemeral-storage" for side in ("", "requests.", "limits.")),
    "requests.storage",
)
_COUNTS = (
    *("pods", "services", "services.loadbalancers", "services.nodeports", "secrets", "configmaps"),
    *("persistentvolumeclaims", "replicationcontrollers", "resourcequotas"),
)
_OF_A_CLASS = re.compile(r"[-a-z0-9.]+\.storageclass\.storage\.k8s\.io/(requests\.storage|persistentvolumeclaims)")
_OF_A_KIND = re.compile(r"count/[a-z]+(\.[-a-z0-9.]+)?")
_DEVICES = re.compile(r"requests\.[-a-z0-9.]+/[-A-Za-z0-9_.]+")
_HUGE_PAGES = re.compile(r"(requests\.|limits\.)?hugepages-[0-9]+[KMG]i")


@rule
def names_are_namespaces_of_their_own(stack: ResolvedStack) -> Iterator[Problem]:
    """Each tenant has its own namespace, which the stack creates."""
    consequence = "a namespace can have only one tenant"
    yield from repeated(((tenant, "name", tenant.name) for tenant in stack.settings.tenants), "tenant", consequence)
    for tenant in stack.settings.tenants:
        if tenant.name == DEFAULT_NAMESPACE:
            cause = "the stack does not manage the namespace default. It cannot belong to a tenant"
            yield Problem(tenant.at("name"), cause, "Choose another name")
        elif is_system(tenant.name):
            cause = f"namespace {tenant.name} belongs to the cluster. A team in it could take over the cluster"
            yield Problem(tenant.at("name"), cause, "Choose another name")
        elif tenant.name not in stack.own_namespaces:
            cause = f"namespace {tenant.name} exists, and the stack sets labels and quotas of a tenant's namespace"
            yield Problem(tenant.at("name"), cause, "Let the stack create the namespace, or choose another name")


@each(lambda stack: stack.settings.tenants)
def members_can_be_known(tenant: Tenant) -> Iterator[Problem]:
    """A member is a type and an e-mail address, and occurs once."""
    for index, member in enumerate(tenant.members):
        path = tenant.at(f"members[{index}]")
        member_type, colon, address = member.partition(":")
        is_account = address.endswith(_ACCOUNT_SUFFIX)
        if not colon:
            cause = f"{member} has no type: user, group or serviceAccount. It would get no access"
            yield Problem(path, cause, "Write for example user:ada@example.com")
        elif member_type not in _MEMBER_TYPES:
            cause = f"{member_type} is not a type of member. It would get no access"
            yield Problem(path, cause, nearest(member_type, _MEMBER_TYPES))
        elif not _ADDRESS.fullmatch(address):
            cause = f'"{address}" is not an e-mail address, by which GKE identifies members. It would get no access'
            remedy = f"Write {member_type}:NAME@{_ACCOUNT_DOMAIN if member_type == _MEMBER_TYPES[2] else 'example.com'}"
            yield Problem(path, cause, remedy)
        elif (member_type == _MEMBER_TYPES[2]) != is_account:
            cause = f"{address} is not a {member_type}. Only addresses of Google service accounts end in "
            cause += _ACCOUNT_SUFFIX
            remedy = f"Write {'serviceAccount' if is_account else 'user or group'}, or another address"
            yield Problem(path, cause, remedy)
    yield from _twice(tenant, "members", tenant.members, "member")


@rule
def groups_are_of_one_domain(stack: ResolvedStack) -> Iterator[Problem]:
    """All groups are of one domain, as a cluster finds them through one parent group.

    https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac
    """
    first, *others = group_domains(stack.settings.tenants) or [""]
    for tenant in stack.settings.tenants:
        for index, member in enumerate(tenant.members):
            if member.startswith("group:") and member.rpartition("@")[2] in others:
                cause = f"{member} is not a group of {first}, and a cluster supports groups of one domain"
                remedy = "Use a group of that domain, or users"
                yield Problem(tenant.at(f"members[{index}]"), f"{cause}. It would get no access", remedy)


def _twice(tenant: Tenant, key: str, values: Iterable[str], noun: str) -> Iterator[Problem]:
    for value, count in Counter(values).items():
        if count > 1:
            cause = f"{noun} {value} is listed {count} times. Another {noun} may be missing"
            yield Problem(tenant.at(key), cause, "List it once")


@each(lambda stack: stack.settings.tenants)
def service_accounts_differ(tenant: Tenant) -> Iterator[Problem]:
    """Workloads do not run as the deployer, and neither account is Kubernetes' default account."""
    if tenant.service_account == tenant.deployer:
        cause = f"{tenant.deployer} is also the service account of the workloads. "
        cause += "Any pod could submit, change and delete workloads"
        yield Problem(tenant.at("deployer"), cause, "Rename one of them")
    for key, account in (("serviceAccount", tenant.service_account), ("deployer", tenant.deployer)):
        if account == "default":
            cause = "Kubernetes creates a service account default in every namespace. A second could not be created"
            yield Problem(tenant.at(key), cause, "Choose another name")


@needs("gke-ai:queues.priorityClasses")
def priority_classes_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """A tenant's priority classes are in this stack, and none is a system class."""
    for tenant in stack.settings.tenants:
        for index, name in enumerate(tenant.priority_classes):
            path = tenant.at(f"priorityClasses[{index}]")
            if name in BUILT_IN_PRIORITIES:
                cause = f"with {name} the team could evict the cluster's own controllers"
                yield Problem(path, cause, "Choose a class of gke-ai:queues.priorityClasses")
            else:
                yield from PRIORITIES.unknown(stack, path, name, "the API server would refuse the pods")
        yield from _twice(tenant, "priorityClasses", tenant.priority_classes, "priority class")


@rule
def buckets_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """A tenant's buckets are in this stack, and no bucket repeats the tenant's grant."""
    known = {bucket.name: bucket for bucket in stack.settings.buckets}
    for tenant in stack.settings.tenants:
        for index, name in enumerate(tenant.buckets):
            path = tenant.at(f"buckets[{index}]")
            yield from BUCKETS.unknown(stack, path, name, "no role could be granted")
            grants = known[name].grants if name in known else []
            grant = grant_of(tenant)
            if grant in grants:
                cause = f"the bucket {name} also grants {grant.role} to {tenant.name}/{tenant.service_account}. "
                cause += "The same grant cannot be created twice"
                yield Problem(path, cause, f"Remove {known[name].at(f'grants[{grants.index(grant)}]')}")
        yield from _twice(tenant, "buckets", tenant.buckets, "bucket")


@each(lambda stack: stack.settings.tenants)
def quotas_are_of_resources(tenant: Tenant) -> Iterator[Problem]:
    """A quota limits resources that Kubernetes counts; objects and devices are whole numbers."""
    for resource, text in tenant.quota.items():
        path = f'{tenant.at("quota")}["{resource}"]'
        if _is_counted(resource):
            whole = resource in _COUNTS or resource.startswith("count/") or _DEVICES.fullmatch(resource)
            if whole and parse_quantity(text).denominator != 1:
                yield Problem(path, f"{text} of {resource} is not a whole number", "Write a whole number")
            continue
        cause = f"{resource} is not a resource that a quota can limit. Kubernetes would refuse the quota"
        if "/" in resource and not resource.startswith("count/"):
            device = resource.removeprefix("limits.").removeprefix("requests.")
            yield Problem(path, cause, f"Kubernetes counts only requests of devices. Write requests.{device}")
        elif "gpu" in resource.lower():
            yield Problem(path, cause, "Did you mean requests.nvidia.com/gpu?")
        else:
            yield Problem(path, cause, nearest(resource, (*_COMPUTE, *_COUNTS)))


def _is_counted(resource: str) -> bool:
    patterns = (_OF_A_CLASS, _OF_A_KIND, _DEVICES, _HUGE_PAGES)
    return resource in (*_COMPUTE, *_COUNTS) or any(pattern.fullmatch(resource) for pattern in patterns)


@each(lambda stack: stack.settings.tenants)
def ingress_is_from_other_namespaces(tenant: Tenant) -> Iterator[Problem]:
    """ingressFrom does not list the tenant's own namespace, which is always allowed."""
    if tenant.name in tenant.ingress_from:
        cause = f"{tenant.name} is the tenant's own namespace, whose pods may always connect to each other"
        remedy = "Remove it, or name another namespace"
        yield Problem(tenant.at(f"ingressFrom[{tenant.ingress_from.index(tenant.name)}]"), cause, remedy)
    yield from _twice(tenant, "ingressFrom", tenant.ingress_from, "namespace")


def _inside(workloads: list[Workload], spaces: list[Space]) -> Iterator[tuple[Space, Workload]]:
    """Workloads of the stack in tenants' namespaces."""
    by_name = {space.section.name: space for space in reversed(spaces)}
    for workload in workloads:
        if workload.namespace in by_name:
            yield by_name[workload.namespace], workload


@rule
def workloads_keep_to_the_tenants_bounds(stack: ResolvedStack) -> Iterator[Problem]:
    """The stack's workloads in a tenant's namespace meet the same policies as the team's own."""
    classes = [priority_class.name for priority_class in stack.queues.priority_classes]
    for space, workload in _inside(stack.workloads, stack.spaces):
        tenant = space.section
        if workload.queue is None:
            entry = f"{{name: …, namespace: {tenant.name}, clusterQueue: …}}"
            remedy = (
                f"Set it to {' or '.join(space.queues)}"
                if space.queues
                else f"Add {entry} to gke-ai:queues.localQueues, and name it"
            )
            cause = f"namespace {tenant.name} belongs to a tenant, where pods with accelerators need a queue"
            yield Problem(workload.at("queue"), f"{cause}. The API server would refuse the pods", remedy)
        allowed = space.priority_classes
        if workload.priority_class in classes and workload.priority_class not in allowed:
            cause = f"priority class {workload.priority_class} is not allowed for tenant {tenant.name}"
            remedy = f"Add it to {tenant.at('priorityClasses')}, or choose another class"
            yield Problem(workload.at("priorityClass"), f"{cause}. The API server would refuse the pods", remedy)
        if workload.service_account == tenant.deployer:
            cause = f"{tenant.deployer} is the deployer of tenant {tenant.name}, and no pod may run as it"
            yield Problem(workload.at("serviceAccount"), cause, f"Set it to {tenant.service_account}")


@rule
def workloads_meet_the_pod_security_level(stack: ResolvedStack) -> Iterator[Problem]:
    """Baseline allows no privileged containers and no host network; restricted allows none of this program's pods.

    https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    restricted: dict[str, list[str]] = {}
    for space, workload in _inside(stack.workloads, stack.spaces):
        tenant = space.section
        if tenant.pod_security == "restricted":
            restricted.setdefault(tenant.name, []).append(workload.name)
        elif tenant.pod_security == "baseline":
            wanted = []
            if workload.is_privileged:
                wanted.append(("privileged", "privileged containers"))
            if workload.uses_host_network:
                wanted.append(("hostNetwork", "pods on the host network"))
            for key, noun in wanted:
                cause = f"tenant {tenant.name} has Pod Security level baseline, which allows no {noun}"
                remedy = f"Remove it, or set {tenant.at('podSecurity')} to privileged"
                yield Problem(workload.at(key), f"{cause}. Kubernetes would refuse the pods", remedy)
    for name, names in restricted.items():
        tenant = next(tenant for tenant in stack.settings.tenants if tenant.name == name)
        cause = f"{join_names(names)} of this stack may run as root in the namespace. Kubernetes would refuse such "
        cause += "pods at the level restricted"
        remedy = "Set it to baseline, or run them in another namespace"
        yield Problem(tenant.at("podSecurity"), cause, remedy)
