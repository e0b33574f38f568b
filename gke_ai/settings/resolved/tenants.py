"""A tenant with all that it may use."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil

from gke_ai.settings.model import Queues as QueuesSection
from gke_ai.settings.model import Server, Tenant, Workload
from gke_ai.settings.resolved.buckets import BucketGrants
from gke_ai.settings.resolved.gateway import picker_name
from gke_ai.settings.resolved.queues import Queue, ResourceFlavor


@dataclass(frozen=True)
class Space:
    """A tenant's namespace: what its pods may use, and the workloads of this stack in it."""

    section: Tenant
    queues: tuple[str, ...]
    """The tenant's local queues: those of its namespace."""
    priority_classes: tuple[str, ...]
    """Priority classes that the pods may have: those in the section, and the global default."""
    service_accounts: tuple[str, ...]
    """Service accounts that the pods may run as. The deployer is not among them, as it can create pods."""
    pickers: tuple[str, ...]
    """Service accounts of the endpoint pickers in the namespace. Only the platform's pods run as them."""
    guarded: tuple[str, ...]
    """Labels `app` of the servers that require an API key. `ingress_from` doesn't reach them past the gateway."""
    accelerators: dict[str, int]
    """Accelerators that the tenant's queues may use at most, by resource."""
    grace_seconds: int
    """Longest time to end among the stack's workloads in the namespace, in seconds."""
    buckets: tuple[str, ...]
    """Buckets that the pods may mount: those on which a service account of the namespace has a role."""
    workloads: tuple[Workload, ...]
    """Workloads of this stack in the namespace."""


def space_of(
    tenant: Tenant,
    queues: QueuesSection,
    cluster_queues: Sequence[Queue],
    buckets: Sequence[BucketGrants],
    workloads: Sequence[Workload],
    gateway_servers: Sequence[Server],
    keyed_servers: Sequence[Server],
) -> Space:
    """The tenant with all that it may use."""
    local_queues = [queue for queue in queues.local_queues if queue.namespace == tenant.name]
    used = {queue.cluster_queue for queue in local_queues}
    inside = tuple(workload for workload in workloads if workload.namespace == tenant.name)
    default = [priority.name for priority in queues.priority_classes if priority.global_default]
    pickers = [picker_name(server.name) for server in gateway_servers if server.namespace == tenant.name]
    accounts = [tenant.service_account, "default", *(workload.service_account for workload in inside)]
    granted = [bucket for bucket in buckets if any(grant.namespace == tenant.name for grant in bucket.grants)]
    return Space(
        tenant,
        tuple(queue.name for queue in local_queues),
        tuple(dict.fromkeys([*tenant.priority_classes, *default])),
        tuple(dict.fromkeys(accounts)),
        tuple(pickers),
        tuple(server.app or server.name for server in keyed_servers if server.namespace == tenant.name),
        accelerators_of(queue for queue in cluster_queues if queue.section.name in used),
        max((getattr(workload, "termination_grace_period_seconds", None) or 0 for workload in inside), default=0),
        tuple(bucket.section.name for bucket in granted),
        inside,
    )


def accelerators_of(queues: Iterable[Queue]) -> dict[str, int]:
    """Accelerators that cluster queues may use at most, by resource."""
    total: dict[str, int] = {}
    for queue in queues:
        for _, limits in queue.limits():
            for resource, amount in limits.items():
                if "/" in resource:
                    total[resource] = total.get(resource, 0) + ceil(amount)
    return total


def budgeted_flavors(
    tenants: Iterable[Tenant], queues: QueuesSection, cluster_queues: Iterable[Queue]
) -> list[ResourceFlavor]:
    """Flavors with accelerators that tenants whose budget has an amount may use."""
    spaces = {tenant.name for tenant in tenants if tenant.budget and tenant.budget.amount}
    used = {queue.cluster_queue for queue in queues.local_queues if queue.namespace in spaces}
    quotas = [quota for queue in cluster_queues if queue.section.name in used for quota in queue.quotas]
    priced = [quota.flavor for quota in quotas if quota.flavor and any("/" in resource for resource in quota.amounts)]
    return list({flavor.section.name: flavor for flavor in priced}.values())


def group_domains(tenants: list[Tenant]) -> list[str]:
    """Domains of the groups among the tenants' members."""
    members = [member for tenant in tenants for member in tenant.members]
    return list(
        dict.fromkeys(member.rpartition("@")[2] for member in members if member.startswith("group:") and "@" in member)
    )


def security_group(tenants: list[Tenant]) -> str | None:
    """The parent group of all Google Groups in RBAC, or None if no member is a group.

    Its name is GKE's: https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac
    """
    domains = group_domains(tenants)
    return f"gke-security-groups@{domains[0]}" if domains else None
