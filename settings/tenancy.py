"""What each tenant may use, and its grants."""

from __future__ import annotations

from settings.model import Bucket, Grant, Settings, Tenant
from settings.plan import cache_grants, gateway_servers, picker_name, workloads


def tenant_of(namespace: str, settings: Settings) -> Tenant | None:
    """The tenant that owns the namespace, or None."""
    return next((tenant for tenant in settings.tenants if tenant.name == namespace), None)


def queues(tenant: Tenant, settings: Settings) -> list[str]:
    """The tenant's local queues: those of its namespace."""
    local_queues = settings.queues.local_queues if settings.queues else []
    return [queue.name for queue in local_queues if queue.namespace == tenant.name]


def priority_classes(tenant: Tenant, settings: Settings) -> list[str]:
    """Priority classes that the tenant's pods may have: those in its section, and the global default."""
    classes = settings.queues.priority_classes if settings.queues else []
    default = [priority_class.name for priority_class in classes if priority_class.global_default]
    return list(dict.fromkeys([*tenant.priority_classes, *default]))


def service_accounts(tenant: Tenant, settings: Settings) -> list[str]:
    """Service accounts that the tenant's pods may run as. The deployer is not among them, as it can create pods."""
    inside = [workload.service_account for workload in workloads(settings) if workload.namespace == tenant.name]
    pickers = [picker_name(server.name) for server in gateway_servers(settings) if server.namespace == tenant.name]
    return list(dict.fromkeys([tenant.service_account, "default", *inside, *pickers]))


def grants(bucket: Bucket, settings: Settings) -> list[Grant]:
    """Roles on the bucket: those in its section, and of tenants that use it, models that it holds and their servers.

    A service account that has a role already gets no other one for its models.
    """
    stated = [*bucket.grants, *(grant(tenant) for tenant in settings.tenants if bucket.name in tenant.buckets)]
    accounts = {(grantee.namespace, grantee.service_account) for grantee in stated}
    of_models = {
        (grantee.namespace, grantee.service_account, grantee.role): grantee
        for grantee in cache_grants(bucket.name, settings)
        if (grantee.namespace, grantee.service_account) not in accounts
    }
    return [*stated, *of_models.values()]


def grant(tenant: Tenant) -> Grant:
    """The tenant's grant on each of its buckets: its workloads may read and write objects."""
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
    members = [member for tenant in settings.tenants for member in tenant.members]
    return list(
        dict.fromkeys(member.rpartition("@")[2] for member in members if member.startswith("group:") and "@" in member)
    )


def security_group(settings: Settings) -> str | None:
    """The parent group of all Google Groups in RBAC, or None if no member is a group.

    Its name is GKE's: https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac
    """
    domains = group_domains(settings)
    return f"gke-security-groups@{domains[0]}" if domains else None
