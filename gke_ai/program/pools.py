"""Buckets, node pools and compute classes."""

from __future__ import annotations

from typing import TypedDict

from pulumi import Input, ResourceOptions

from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.project.apis import CONTAINER_FILE_SYSTEM, STORAGE
from gke_ai.components import (
    ComputeClass,
    FlexStartTpuPool,
    GkeCluster,
    GpuDirectNetworks,
    GpuNodePool,
    ModelBucket,
    NvlinkDriver,
    TpuNodePool,
)
from gke_ai.components.base import Component
from gke_ai.program.cluster import Apis, in_cluster
from gke_ai.settings import ResolvedStack, model
from gke_ai.settings.model import pools
from gke_ai.settings.resolved.needs import has_bare_metal, uses_nvlink


class OfEveryPool(TypedDict):
    """The arguments that the components of all node pools take."""

    project: str
    cluster: Input[str]
    location: str
    cluster_zones: Input[list[str]] | None
    node_service_account: str | None
    private_nodes: bool


def create_buckets(stack: ResolvedStack, project: str, cluster: GkeCluster, apis: Apis) -> dict[str, ModelBucket]:
    """The buckets by name, with the grants of all workloads on them."""
    default_location = region_of(stack.cluster.location)
    return {
        bucket.section.name: ModelBucket(
            bucket.section.name,
            bucket.section.model_copy(
                update={"location": bucket.section.location or default_location, "grants": list(bucket.grants)}
            ),
            ResourceOptions(depends_on=apis.enabled(STORAGE)),
            project=project,
            workload_pool=cluster.workload_pool,
        )
        for bucket in stack.granted_buckets
    }


def create_pools(stack: ResolvedStack, project: str, cluster: GkeCluster, apis: Apis) -> dict[str, Component]:
    """The node pools by name."""
    networks = create_networks(stack, project, cluster)
    return {pool.name: create_pool(pool, stack.cluster, project, cluster, apis, networks) for pool in stack.pools}


def create_networks(stack: ResolvedStack, project: str, cluster: GkeCluster) -> GpuDirectNetworks | None:
    """The networks of GPUDirect, if a pool has any. All pools share them."""
    used = {pool.fabric.technology.name for pool in stack.pools if pool.fabric.technology}
    if not used:
        return None
    name, region = f"{stack.cluster.name}-gpudirect", region_of(stack.cluster.location)
    return GpuDirectNetworks(name, in_cluster(cluster), project=project, region=region, technologies=sorted(used))


def create_nvlink_driver(stack: ResolvedStack, cluster: GkeCluster) -> NvlinkDriver | None:
    """NVIDIA's driver for channels of NVLink, if pods claim any."""
    # Its controller runs on the system pool, which is part of the cluster.
    if not uses_nvlink(stack):
        return None
    return NvlinkDriver("nvlink", in_cluster(cluster, cluster), bare_metal=has_bare_metal(stack))


def create_pool(
    pool: model.Pool,
    section: model.Cluster,
    project: str,
    cluster: GkeCluster,
    apis: Apis,
    networks: GpuDirectNetworks | None,
) -> Component:
    """A node pool with the cluster's settings for all nodes. Its zones default to those of the system pool."""
    streaming = apis.enabled(CONTAINER_FILE_SYSTEM) if pool.image_streaming else []
    # In an existing cluster, nothing else makes a pool wait for the roles of its account.
    grants = [grant for grant in (cluster.node_account, cluster.network_grant if pool.fabric.nics else None) if grant]
    technology = pool.fabric.technology
    further = [networks] if networks and technology else []
    opts = ResourceOptions(depends_on=[*grants, *streaming, *further])
    shared: OfEveryPool = {
        "project": project,
        "cluster": cluster.cluster_name,
        "location": section.location,
        "cluster_zones": section.system_pool.zones or cluster.node_zones,
        "node_service_account": cluster.node_service_account,
        "private_nodes": section.private_nodes,
    }
    match pool:
        case pools.GpuPool():
            drained_in = cluster.kubeconfig if pool.drains_old_nodes else None
            interfaces = networks.networks[: technology.networks] if networks and technology else []
            return GpuNodePool(pool.name, pool, opts, **shared, kubeconfig=drained_in, networks=interfaces)
        case pools.TpuPool():
            return (FlexStartTpuPool if pool.elastic else TpuNodePool)(pool.name, pool, opts, **shared)
    raise TypeError(f"no component of a node pool takes {type(pool).__name__}")


def create_compute_classes(stack: ResolvedStack, cluster: GkeCluster) -> dict[str, ComputeClass]:
    """The compute classes by name. Their nodes have the cluster's account, unless Autopilot sets it."""
    account = None if stack.cluster.is_autopilot else cluster.node_service_account
    return {
        section.name: ComputeClass(section.name, section, in_cluster(cluster), node_service_account=account)
        for section in stack.settings.compute_classes
    }
