"""Buckets, node pools and compute classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulumi import ResourceOptions

from catalog.apis import STORAGE
from catalog.capacity import MODES
from catalog.zones import region_of
from components import (
    ComputeClass,
    ComputeClassArgs,
    FlexStartTpuPool,
    GkeCluster,
    GpuNodePool,
    ModelBucket,
    ModelBucketArgs,
    TpuNodePool,
)
from components.base import arguments
from composition.cluster import Apis, in_cluster
from settings import Settings, model, plan, tenancy

NodePool = GpuNodePool | TpuNodePool | FlexStartTpuPool

# The component of a pool, by its section and by whether its capacity mode is elastic.
POOLS: dict[tuple[type[model.Section], bool], Callable[..., NodePool]] = {
    (model.GpuPool, False): GpuNodePool,
    (model.GpuPool, True): GpuNodePool,
    (model.TpuPool, False): TpuNodePool,
    (model.TpuPool, True): FlexStartTpuPool,
}


def create_buckets(stack: Settings, project: str, cluster: GkeCluster, apis: Apis) -> dict[str, ModelBucket]:
    """The buckets by name, with their grants."""
    return {
        bucket.name: ModelBucket(
            bucket.name,
            bucket_arguments(bucket, stack, project, cluster),
            ResourceOptions(depends_on=apis.enabled(STORAGE)),
        )
        for bucket in stack.buckets
    }


def bucket_arguments(bucket: model.Bucket, stack: Settings, project: str, cluster: GkeCluster) -> ModelBucketArgs:
    """Arguments of a `ModelBucket`: its section, and the grants of all workloads on it."""
    args: ModelBucketArgs = arguments(
        bucket,
        project=project,
        location=bucket.location or region_of(stack.cluster.location),
        workload_pool=cluster.workload_pool,
        grants=[grant.model_dump() for grant in tenancy.grants(bucket, stack)],
    )
    return args


def create_pools(stack: Settings, project: str, cluster: GkeCluster) -> dict[str, NodePool]:
    """The node pools by name."""
    # In an existing cluster, nothing else makes a pool wait for the roles of its account.
    account = [cluster.node_account] if cluster.node_account else []
    return {
        pool.name: POOLS[type(pool), MODES[pool.capacity.mode].elastic](
            pool.name, pool_arguments(pool, stack, project, cluster), ResourceOptions(depends_on=[*account])
        )
        for pool in stack.pools
    }


def pool_arguments(
    pool: model.GpuPool | model.TpuPool, stack: Settings, project: str, cluster: GkeCluster
) -> dict[str, Any]:
    """Arguments of a pool's component: its section, and the cluster's settings for all nodes."""
    args: dict[str, Any] = arguments(
        pool, project=project, cluster=cluster.cluster_name, location=stack.cluster.location
    )
    if cluster.node_service_account is not None:
        args["node_service_account"] = cluster.node_service_account
    if stack.cluster.private_nodes:
        args["private_nodes"] = True
    if isinstance(pool, model.GpuPool) and pool.create_before_delete:
        args["kubeconfig"] = cluster.kubeconfig
    args["zones"] = pool.zones or stack.cluster.system_pool.zones
    if not args["zones"]:
        args["cluster_zones"] = cluster.node_zones
    return args


def create_compute_classes(stack: Settings, cluster: GkeCluster) -> dict[str, ComputeClass]:
    """The compute classes by name."""
    return {
        section.name: ComputeClass(section.name, class_arguments(section, stack, cluster), in_cluster(cluster))
        for section in stack.compute_classes
    }


def class_arguments(section: model.ComputeClass, stack: Settings, cluster: GkeCluster) -> ComputeClassArgs:
    """Arguments of a `ComputeClass`: its section, and the nodes' account unless the cluster sets it."""
    args: ComputeClassArgs = arguments(section)
    if cluster.node_service_account is not None and not plan.is_autopilot(stack.cluster):
        args["node_service_account"] = cluster.node_service_account
    return args
