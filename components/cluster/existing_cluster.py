"""An existing cluster: looks it up, and refuses one that lacks a feature that the stack needs."""

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.engines.gateways import GATEWAY_API_CHANNEL
from gke_ai.catalog.fabric.rdma import DATAPATH, since, suffices
from gke_ai.catalog.project.cluster_updates import (
    enable_bucket_volumes,
    enable_gateway_api,
    enable_google_groups,
    enable_ray,
    enable_workload_identity,
    update,
)
from gke_ai.components.base import look_up
from gke_ai.settings.model import Cluster


@dataclass(frozen=True)
class ClusterFeatures:
    """Features that other sections of the stack need from the cluster: keyword arguments of a `GkeCluster`."""

    network_policy: str | None
    managed_prometheus: bool
    security_group: str | None
    secret_sync: bool
    workload_identity: bool
    bucket_volumes: bool
    gateway_api: bool
    ray_operator: bool
    rdma: bool = False
    gpudirect: bool = False
    bare_metal: bool = False


def look_up_cluster(
    cluster: Cluster, project: str, features: ClusterFeatures, parent: pulumi.Resource
) -> "gcp.container.GetClusterResult":
    """The existing cluster. Raises RunError if it doesn't exist, or lacks one of `features`."""
    existing = look_up(
        lambda: gcp.container.get_cluster(
            name=cluster.name, location=cluster.location, project=project, opts=pulumi.InvokeOptions(parent=parent)
        ),
        f"There must be a cluster {cluster.name} in {cluster.location} of project {project}, and you must be "
        "allowed to see it. Check `name` and `location` in gke-ai:cluster, and gcp:project. To create the "
        "cluster, remove `mode: existing`.",
    )
    where = (cluster.name, cluster.location, project)
    if features.workload_identity and not identifies(existing):
        raise pulumi.RunError(
            f"Cluster {cluster.name} has no Workload Identity. GKE would refuse its pools, and grants on "
            "buckets would fail if the project has no workload identity pool yet. Turn it on for the cluster "
            f"and its node pools: {enable_workload_identity(*where)}"
        )
    if features.bucket_volumes and not mounts_buckets(existing):
        raise pulumi.RunError(
            f"Cluster {cluster.name} has no Cloud Storage FUSE driver. Pods of runs with a volume would wait "
            f"for it forever. Run: {enable_bucket_volumes(*where)}"
        )
    if features.gateway_api and not serves_gateways(existing):
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not have the Gateway API. Its API server would refuse the gateway. Remove "
            f"gke-ai:gateway, or run: {enable_gateway_api(*where)}"
        )
    if features.ray_operator and not runs_ray(existing):
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not have GKE's Ray operator. RayJobs would never start. Set ray: install in "
            f"gke-ai:queues, or run: {enable_ray(*where)}"
        )
    if features.rdma and existing.datapath_provider != DATAPATH:
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not have Dataplane V2, which RDMA networks between nodes need, and only a "
            "new cluster can get it. Nodes would have no NICs for it. Use another cluster, or set "
            "acceptSlowNetwork: true for the runs over several nodes"
        )
    if features.gpudirect and not (existing.enable_multi_networking and existing.datapath_provider == DATAPATH):
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not have multi-networking with Dataplane V2, which the networks of GPUDirect "
            "of gke-ai:gpuPools need. GKE would refuse the pool. Turn multi-networking on, use another cluster (only a "
            "new one can get Dataplane V2), or set acceptSlowNetwork: true for the runs over several nodes"
        )
    if features.bare_metal and existing.enable_shielded_nodes:
        raise pulumi.RunError(
            f"Cluster {cluster.name} has shielded nodes. GKE would refuse the bare-metal nodes of gke-ai:gpuPools. Use "
            "another cluster, or another machine"
        )
    if features.rdma and not suffices(existing.master_version, existing.enable_autopilot):
        raise pulumi.RunError(
            f"Cluster {cluster.name} has GKE {existing.master_version}, and RDMA networks between nodes need "
            f"{since(existing.enable_autopilot)}. GKE would create no such nodes. Run: gcloud container clusters "
            f"upgrade {cluster.name} --master --location {cluster.location} --project {project}"
        )
    if features.managed_prometheus and not collects(existing):
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not collect metrics with Managed Service for Prometheus. Dashboards "
            "and alerts would have no data. Remove gke-ai:monitoring, or run: gcloud container clusters "
            f"update {cluster.name} --location {cluster.location} --project {project} "
            "--enable-managed-prometheus"
        )
    group = features.security_group
    if group and not any(config.security_group == group for config in existing.authenticator_groups_configs or []):
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not use {group} for Google Groups in RBAC. A group among the members "
            f"of gke-ai:tenants would get no rights. List users instead, or run: {enable_google_groups(*where, group)}"
        )
    if features.network_policy == "existing" and not enforces(existing):
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not enforce NetworkPolicies. Pods of one tenant of gke-ai:tenants "
            "would reach pods of another. Remove gke-ai:tenants, or run this, which recreates every node: "
            f"{update(*where)} --update-addons=NetworkPolicy=ENABLED && "
            f"{update(*where)} --enable-network-policy"
        )
    if features.secret_sync and not any(config.enabled for config in existing.secret_sync_configs or []):
        raise pulumi.RunError(
            f"Cluster {cluster.name} does not sync secrets of Secret Manager. The secret of "
            "gke-ai:hfTokenSecret would never arrive. Use gke-ai:hfToken, or run: gcloud container clusters "
            f"update {cluster.name} --location {cluster.location} --project {project} "
            "--enable-secret-sync --enable-secret-sync-rotation"
        )
    if cluster.dns_endpoint and not any(name.allow_external_traffic for name in dns_names(existing)):
        raise pulumi.RunError(
            f"Cluster {cluster.name} refuses clients at its DNS name. Remove dnsEndpoint from gke-ai:cluster, "
            f"or run: gcloud container clusters update {cluster.name} --location {cluster.location} --project "
            f"{project} --enable-dns-access"
        )
    return existing


def dns_names(
    existing: "gcp.container.GetClusterResult",
) -> "list[gcp.container.outputs.GetClusterControlPlaneEndpointsConfigDnsEndpointConfigResult]":
    """DNS endpoints of the control plane."""
    return [name for config in existing.control_plane_endpoints_configs for name in config.dns_endpoint_configs]


def enforces(existing: "gcp.container.GetClusterResult") -> bool:
    """Whether a cluster enforces NetworkPolicies."""
    calico = any(policy.enabled for policy in existing.network_policies or [])
    return calico or existing.datapath_provider == "ADVANCED_DATAPATH"


def identifies(existing: "gcp.container.GetClusterResult") -> bool:
    """Whether a cluster has Workload Identity, as Autopilot always does."""
    return existing.enable_autopilot or any(config.workload_pool for config in existing.workload_identity_configs or [])


def mounts_buckets(existing: "gcp.container.GetClusterResult") -> bool:
    """Whether a cluster has the Cloud Storage FUSE driver, as Autopilot always does."""
    drivers = [
        driver for addons in existing.addons_configs or [] for driver in addons.gcs_fuse_csi_driver_configs or []
    ]
    return existing.enable_autopilot or any(driver.enabled for driver in drivers)


def collects(existing: "gcp.container.GetClusterResult") -> bool:
    """Whether Managed Service for Prometheus collects metrics in a cluster, as in Autopilot always."""
    return existing.enable_autopilot or any(
        prometheus.enabled for config in existing.monitoring_configs for prometheus in config.managed_prometheuses
    )


def runs_ray(existing: "gcp.container.GetClusterResult") -> bool:
    """Whether a cluster has GKE's Ray operator."""
    return any(ray.enabled for addons in existing.addons_configs or [] for ray in addons.ray_operator_configs or [])


def serves_gateways(existing: "gcp.container.GetClusterResult") -> bool:
    """Whether a cluster has the Gateway API. Autopilot has it unless someone turned it off."""
    channels = [config.channel for config in existing.gateway_api_configs or []]
    return GATEWAY_API_CHANNEL in channels or (existing.enable_autopilot and not any(channels))
