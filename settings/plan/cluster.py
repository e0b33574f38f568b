"""The cluster: its mode, NetworkPolicies, APIs and identities."""

from __future__ import annotations

from catalog import apis as google
from settings.model import Cluster, Settings
from settings.plan.model_cache import downloads


def is_autopilot(cluster: Cluster) -> bool:
    """Whether GKE manages the nodes: a new or an existing Autopilot cluster."""
    return cluster.mode == "autopilot" or (cluster.mode == "existing" and cluster.existing_mode == "autopilot")


def network_policy(settings: Settings) -> str | None:
    """How the stack's cluster enforces NetworkPolicies: `dataplaneV2`, `calico`, `existing`, or not at all.

    Dataplane V2 can only be set when a cluster is created, so a cluster with its own VPC gets it. Other clusters
    may get their first tenant later and must not be replaced for it: they use Calico, which can be turned on. Autopilot
    always has Dataplane V2. An existing cluster with tenants must already enforce NetworkPolicies.
    """
    if is_autopilot(settings.cluster):
        return None
    if settings.cluster.mode == "existing":
        return "existing" if settings.tenants else None
    if settings.cluster.vpc is not None:
        return "dataplaneV2"
    return "calico" if settings.tenants else None


def apis(settings: Settings) -> list[str]:
    """Google Cloud APIs that the stack enables, in the order of `catalog.apis`."""
    needed = {
        google.STORAGE: bool(settings.buckets),
        google.IAM: makes_accounts(settings),
        google.SECRET_MANAGER: settings.hf_token_secret is not None,
        google.NETWORK_SERVICES: settings.gateway is not None,
        google.CERTIFICATE_MANAGER: settings.gateway is not None and settings.gateway.certificate is not None,
    }
    return [api for api in google.REASONS if needed.get(api, True)]


def makes_accounts(settings: Settings) -> bool:
    """Whether the stack creates Google service accounts, or grants them roles on the project."""
    account = settings.cluster.node_service_account
    return bool(settings.autoscaling) or (account is not None and "@" not in account)


def uses_workload_identity(settings: Settings) -> bool:
    """Whether the stack's pods or pools use Workload Identity Federation."""
    granted = any(bucket.grants for bucket in settings.buckets) or bool(downloads(settings))
    stackdriver = any(autoscaler.adapter == "stackdriver" for autoscaler in settings.autoscaling)
    return granted or stackdriver or bool(settings.pools) or settings.hf_token_secret is not None
