"""Features that a stack needs of a cluster that exists: how the cluster has each, and what to change if it lacks one.

Fields: https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gke_ai.catalog.engines.gateways import GATEWAY_API_CHANNEL
from gke_ai.catalog.fabric.rdma import DATAPATH
from gke_ai.catalog.project.cluster_updates import update
from gke_ai.catalog.project.identities import pool_name


@dataclass(frozen=True)
class ClusterFeatures:
    """Features that a stack needs of its cluster: keyword arguments of a `GkeCluster`, and of its section."""

    network_policy: str | None = None
    managed_prometheus: bool = False
    security_group: str | None = None
    secret_sync: bool = False
    workload_identity: bool = False
    bucket_volumes: bool = False
    gateway_api: bool = False
    ray_operator: bool = False
    rdma: bool = False
    gpudirect: bool = False
    bare_metal: bool = False
    dns_endpoint: bool = False
    scale_to_zero: bool = False


@dataclass(frozen=True)
class ClusterState:
    """What a cluster says of these features."""

    autopilot: bool
    workload_pool: bool
    """Whether it has a workload identity pool."""
    bucket_driver: bool
    """Whether it has the Cloud Storage FUSE driver."""
    gateway_channel: str | None
    ray_operator: bool
    datapath: str | None
    multi_networking: bool
    shielded_nodes: bool
    managed_prometheus: bool
    security_group: str | None
    calico: bool
    secret_sync: bool
    dns_access: bool
    """Whether it answers clients at its DNS name."""

    @property
    def dataplane_v2(self) -> bool:
        return self.datapath == DATAPATH

    @property
    def gateway_api(self) -> bool:
        """Whether it has the Gateway API. Autopilot has it unless someone turned it off."""
        return self.gateway_channel == GATEWAY_API_CHANNEL or (self.autopilot and not self.gateway_channel)

    @classmethod
    def of_rest(cls, cluster: Mapping[str, Any]) -> ClusterState:
        """Returns the state of a cluster, as the REST API returns it."""
        addons, network = cluster.get("addonsConfig", {}), cluster.get("networkConfig", {})
        monitoring = cluster.get("monitoringConfig", {})
        endpoints = cluster.get("controlPlaneEndpointsConfig", {})
        return cls(
            autopilot=_is_enabled(cluster, "autopilot"),
            workload_pool=bool(cluster.get("workloadIdentityConfig", {}).get("workloadPool")),
            bucket_driver=_is_enabled(addons, "gcsFuseCsiDriverConfig"),
            gateway_channel=network.get("gatewayApiConfig", {}).get("channel"),
            ray_operator=_is_enabled(addons, "rayOperatorConfig"),
            datapath=network.get("datapathProvider"),
            multi_networking=bool(network.get("enableMultiNetworking")),
            shielded_nodes=_is_enabled(cluster, "shieldedNodes"),
            managed_prometheus=_is_enabled(monitoring, "managedPrometheusConfig"),
            security_group=cluster.get("authenticatorGroupsConfig", {}).get("securityGroup"),
            calico=_is_enabled(cluster, "networkPolicy"),
            secret_sync=_is_enabled(cluster, "secretSyncConfig"),
            dns_access=bool(endpoints.get("dnsEndpointConfig", {}).get("allowExternalTraffic")),
        )


def _is_enabled(section: Mapping[str, Any], key: str) -> bool:
    return bool(section.get(key, {}).get("enabled"))


@dataclass(frozen=True)
class Feature:
    """A feature that a cluster may lack. As text, the message of an `up`.

    In texts, `{cluster}`, `{project}`, `{group}` and `{update}` stand for names, and for the beginning of a command.
    """

    name: str
    is_missing: Callable[[ClusterFeatures, ClusterState], bool]
    """Whether a stack needs the feature, and the cluster does not have it."""
    cause: str
    remedy: str
    command: str = ""
    """What turns it on; empty if only another cluster can have it."""
    note: str = ""
    """What else the command does or needs, where it stands without `remedy`."""

    def __str__(self) -> str:
        return f"{self.cause}. {self.remedy} {self.command}".rstrip()


FEATURES = (
    Feature(
        "Workload Identity",
        lambda wanted, has: wanted.workload_identity and not (has.autopilot or has.workload_pool),
        "Cluster {cluster} has no Workload Identity. GKE would refuse its pools, and grants on buckets would fail if "
        "the project has no workload identity pool yet",
        "Turn it on for the cluster and its node pools:",
        # https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity#enable-existing-cluster
        f"{{update}} --workload-pool={pool_name('{project}')}",
        "its node pools also need --workload-metadata=GKE_METADATA",
    ),
    Feature(
        "Cloud Storage FUSE",
        lambda wanted, has: wanted.bucket_volumes and not (has.autopilot or has.bucket_driver),
        "Cluster {cluster} has no Cloud Storage FUSE driver. Pods of runs with a volume would wait for it forever",
        "Run:",
        # https://cloud.google.com/kubernetes-engine/docs/how-to/cloud-storage-fuse-csi-driver-setup#enable
        "{update} --update-addons=GcsFuseCsiDriver=ENABLED",
    ),
    Feature(
        "Gateway API",
        lambda wanted, has: wanted.gateway_api and not has.gateway_api,
        "Cluster {cluster} does not have the Gateway API. Its API server would refuse the gateway",
        "Remove gke-ai:gateway, or run:",
        # https://cloud.google.com/kubernetes-engine/docs/how-to/deploying-gateways#enable-gateway
        "{update} --gateway-api=standard",
    ),
    Feature(
        "Ray operator",
        lambda wanted, has: wanted.ray_operator and not has.ray_operator,
        "Cluster {cluster} does not have GKE's Ray operator. RayJobs would never start",
        "Set ray: install in gke-ai:queues, or run:",
        # https://cloud.google.com/kubernetes-engine/docs/add-on/ray-on-gke/how-to/enable-ray-on-gke
        "{update} --update-addons=RayOperator=ENABLED",
    ),
    Feature(
        "Dataplane V2",
        lambda wanted, has: wanted.rdma and not has.dataplane_v2,
        "Cluster {cluster} does not have Dataplane V2, which RDMA networks between nodes need, and only a new cluster "
        "can get it. Nodes would have no NICs for it",
        "Use another cluster, or set acceptSlowNetwork: true for the runs over several nodes",
    ),
    Feature(
        "multi-networking",
        lambda wanted, has: wanted.gpudirect and not (has.multi_networking and has.dataplane_v2),
        "Cluster {cluster} does not have multi-networking with Dataplane V2, which the networks of GPUDirect of "
        "gke-ai:gpuPools need. GKE would refuse the pool",
        "Turn multi-networking on, use another cluster (only a new one can get Dataplane V2), or set "
        "acceptSlowNetwork: true for the runs over several nodes",
    ),
    Feature(
        "unshielded nodes",
        lambda wanted, has: wanted.bare_metal and has.shielded_nodes,
        "Cluster {cluster} has shielded nodes. GKE would refuse the bare-metal nodes of gke-ai:gpuPools",
        "Use another cluster, or another machine",
    ),
    Feature(
        "managed Prometheus",
        lambda wanted, has: wanted.managed_prometheus and not (has.autopilot or has.managed_prometheus),
        "Cluster {cluster} does not collect metrics with Managed Service for Prometheus. Dashboards and alerts would "
        "have no data",
        "Remove gke-ai:monitoring, or run:",
        # https://cloud.google.com/stackdriver/docs/managed-prometheus/setup-managed
        "{update} --enable-managed-prometheus",
    ),
    Feature(
        "Google Groups",
        lambda wanted, has: bool(wanted.security_group) and has.security_group != wanted.security_group,
        "Cluster {cluster} does not use {group} for Google Groups in RBAC. A group among the members of gke-ai:tenants "
        "would get no rights",
        "List users instead, or run:",
        # https://cloud.google.com/kubernetes-engine/docs/how-to/google-groups-rbac#existing-cluster
        "{update} --security-group={group}",
    ),
    Feature(
        "NetworkPolicies",
        lambda wanted, has: wanted.network_policy == "existing" and not (has.calico or has.dataplane_v2),
        "Cluster {cluster} does not enforce NetworkPolicies. Pods of one tenant of gke-ai:tenants would reach pods of "
        "another",
        "Remove gke-ai:tenants, or run this, which recreates every node:",
        # https://cloud.google.com/kubernetes-engine/docs/how-to/network-policy
        "{update} --update-addons=NetworkPolicy=ENABLED && {update} --enable-network-policy",
        "recreates every node",
    ),
    Feature(
        "secret sync",
        lambda wanted, has: wanted.secret_sync and not has.secret_sync,
        "Cluster {cluster} does not sync secrets of Secret Manager. The secret of gke-ai:hfTokenSecret would never "
        "arrive",
        "Use gke-ai:hfToken, or run:",
        # https://cloud.google.com/secret-manager/docs/sync-k8-secrets
        "{update} --enable-secret-sync --enable-secret-sync-rotation",
    ),
    Feature(
        "DNS endpoint",
        lambda wanted, has: wanted.dns_endpoint and not has.dns_access,
        "Cluster {cluster} refuses clients at its DNS name",
        "Remove dnsEndpoint from gke-ai:cluster, or run:",
        # https://cloud.google.com/kubernetes-engine/docs/how-to/latest/network-isolation#dns-based-endpoint
        "{update} --enable-dns-access",
    ),
)


def missing(wanted: ClusterFeatures, has: ClusterState, cluster: str, location: str, project: str) -> Iterator[Feature]:
    """Yields every feature that a stack needs of a cluster, and the cluster lacks, with names in its texts."""
    names = {"cluster": cluster, "project": project, "group": wanted.security_group}
    names["update"] = update(cluster, location, project)
    for feature in FEATURES:
        if feature.is_missing(wanted, has):
            cause, command = feature.cause.format(**names), feature.command.format(**names)
            yield replace(feature, cause=cause, command=command)
