"""A bucket with all roles on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gke_ai.settings.model import Bucket, Grant, Server, Tenant
from gke_ai.settings.resolved.model_cache import cache_grants


@dataclass(frozen=True)
class BucketGrants:
    """A bucket with the roles of its section, of tenants that use it, and of models that it holds."""

    section: Bucket
    grants: tuple[Grant, ...]


def granted(bucket: Bucket, tenants: Sequence[Tenant], servers: Sequence[Server]) -> BucketGrants:
    """The bucket with its grants. A service account that has a role already gets no other one for its models."""
    stated = [*bucket.grants, *(grant_of(tenant) for tenant in tenants if bucket.name in tenant.buckets)]
    accounts = {(grantee.namespace, grantee.service_account) for grantee in stated}
    of_models = {
        (grantee.namespace, grantee.service_account, grantee.role): grantee
        for grantee in cache_grants(bucket.name, servers)
        if (grantee.namespace, grantee.service_account) not in accounts
    }
    return BucketGrants(bucket, (*stated, *of_models.values()))


def grant_of(tenant: Tenant) -> Grant:
    """The tenant's grant on each of its buckets: its workloads may read and write objects."""
    return Grant(namespace=tenant.name, service_account=tenant.service_account)
