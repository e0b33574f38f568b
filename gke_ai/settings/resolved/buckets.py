"""Buckets with all roles on them, and the Jobs that fill them with models."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gke_ai.catalog.engines.model_cache import ACCOUNT, CANNOT_WRITE, WRITER, compiled_folder
from gke_ai.catalog.kueue.namespaces import MODEL_CACHE
from gke_ai.settings.model import Bucket, FolderGrant, Grant, Server, Tenant, TokenSecret

# The rest of a Job's name is for the suffix of its pods.
_MAX_NAME = 50


@dataclass(frozen=True)
class Download:
    """A model or adapter that a Job downloads into a bucket once, for all servers that read it there."""

    bucket: str
    model: str
    revision: str
    token: TokenSecret | None
    timeout_seconds: int

    @property
    def name(self) -> str:
        """Name of the Job: that of the model, and a hash of what the Job downloads, and where."""
        content = "\n".join((self.bucket, self.model, self.revision))
        readable = re.sub(r"[^a-z0-9]+", "-", self.model.rpartition("/")[2].lower()).strip("-")
        return f"{readable[:_MAX_NAME].strip('-')}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"

    def serves(self, server: Server) -> bool:
        """Whether the server reads this model from this bucket."""
        return (self.bucket, self.model, self.revision) in _keys(server)


def downloads_of(servers: Sequence[Server]) -> list[Download]:
    """The models and adapters that servers read from buckets, each once, in the order of the servers."""
    found: dict[tuple[str, str, str], list[Server]] = {}
    for server in servers:
        for key in _keys(server):
            found.setdefault(key, []).append(server)
    return [
        Download(
            *key,
            next((server.hub_token for server in users if server.hub_token), None),
            max(server.model_cache.timeout_seconds for server in users if server.model_cache),
        )
        for key, users in found.items()
    ]


def _keys(server: Server) -> list[tuple[str, str, str]]:
    """Bucket, id and revision of what the server reads from a bucket and a Job downloads into it."""
    cache = server.model_cache
    if cache is None:
        return []
    adapters = [(adapter.source, adapter.revision) for adapter in server.adapters if not adapter.of_bucket]
    sources = [(server.hub_ids.get("model", ""), cache.revision), *adapters]
    return [(cache.bucket, source, revision) for source, revision in dict.fromkeys(sources)]


def cache_grants(bucket: str, servers: Sequence[Server]) -> list[Grant]:
    """The roles on a bucket of the Jobs that fill it and of the servers that read it."""
    writers = [Grant(namespace=MODEL_CACHE, service_account=ACCOUNT, role=WRITER)]
    readers = [
        Grant(namespace=server.namespace, service_account=server.service_account, role=role)
        for server in servers
        if server.model_cache and server.model_cache.bucket == bucket
        for role in server.model_cache.how.roles
    ]
    compilers = [
        FolderGrant(
            namespace=server.namespace,
            service_account=server.service_account,
            role=WRITER,
            folder=compiled_folder(server.namespace, server.name),
        )
        for server in servers
        if server.keeps_compiled and server.model_cache and server.model_cache.bucket == bucket
    ]
    return [*writers, *readers, *compilers] if readers else []


@dataclass(frozen=True)
class BucketGrants:
    """A bucket with the roles of its section, of tenants that use it, and of models that it holds."""

    section: Bucket
    grants: tuple[Grant, ...]


def granted(bucket: Bucket, tenants: Sequence[Tenant], servers: Sequence[Server]) -> BucketGrants:
    """The bucket with its grants. A service account that has a role already gets no other one for its models, but may
    write its compiled code."""
    stated = [*bucket.grants, *(grant_of(tenant) for tenant in tenants if bucket.name in tenant.buckets)]
    accounts = {(grantee.namespace, grantee.service_account) for grantee in stated}
    writers = {(item.namespace, item.service_account) for item in stated if item.role not in CANNOT_WRITE}
    of_models = {
        (grantee.namespace, grantee.service_account, grantee.role): grantee
        for grantee in cache_grants(bucket.name, servers)
        if (grantee.namespace, grantee.service_account)
        not in (writers if isinstance(grantee, FolderGrant) else accounts)
    }
    return BucketGrants(bucket, (*stated, *of_models.values()))


def grant_of(tenant: Tenant) -> Grant:
    """The tenant's grant on each of its buckets: its workloads may read and write objects."""
    return Grant(namespace=tenant.name, service_account=tenant.service_account)
