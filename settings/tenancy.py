"""What follows from the tenants of a stack: what each may use, and which grants and policies that gives."""

from __future__ import annotations

from settings.model import Bucket, Grant, Settings, Tenant
from settings.plan import workloads


def tenant_of(namespace: str, settings: Settings) -> Tenant | None:
    """The tenant whose namespace it is."""
    return next((one for one in settings.tenants if one.name == namespace), None)


def queues(tenant: Tenant, settings: Settings) -> list[str]:
    """The tenant's local queues: those of its namespace."""
    every = settings.queues.local_queues if settings.queues else []
    return [one.name for one in every if one.namespace == tenant.name]


def priority_classes(tenant: Tenant, settings: Settings) -> list[str]:
    """Priority classes that the tenant's pods may have: those stated, and what a pod gets that names none."""
    every = settings.queues.priority_classes if settings.queues else []
    default = [one.name for one in every if one.global_default]
    return list(dict.fromkeys([*tenant.priority_classes, *default]))


def service_accounts(tenant: Tenant, settings: Settings) -> list[str]:
    """Service accounts that the tenant's pods may run as: not the deployer, with which more pods could be made."""
    inside = [one.service_account for one in workloads(settings) if one.namespace == tenant.name]
    return list(dict.fromkeys([tenant.service_account, "default", *inside]))


def grants(bucket: Bucket, settings: Settings) -> list[Grant]:
    """Roles on the bucket: those stated, and one for the workloads of each tenant that has it."""
    return [*bucket.grants, *(grant(one) for one in settings.tenants if bucket.name in one.buckets)]


def grant(tenant: Tenant) -> Grant:
    """What a tenant is granted on a bucket that it has: to read and write objects, by its workloads' account."""
    return Grant(namespace=tenant.name, service_account=tenant.service_account)


def buckets(tenant: Tenant, settings: Settings) -> list[str]:
    """Buckets that the tenant's pods may mount: those on which a service account of its namespace has a role."""
    return [
        bucket.name
        for bucket in settings.buckets
        if any(grant.namespace == tenant.name for grant in grants(bucket, settings))
    ]


def group_domains(settings: Settings) -> list[str]:
    """Domains of the groups among the tenants' members."""
    members = [member for one in settings.tenants for member in one.members]
    return list(dict.fromkeys(one.rpartition("@")[2] for one in members if one.startswith("group:") and "@" in one))


def security_group(settings: Settings) -> str | None:
    """The Google Group whose members are the groups that count in RBAC; none where no group is a member.

    Its name is GKE's: https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac
    """
    domains = group_domains(settings)
    return f"gke-security-groups@{domains[0]}" if domains else None
