"""Buckets, node pools and compute classes."""

from __future__ import annotations

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
from gke_ai.program.cluster import Apis, after
from gke_ai.settings import ResolvedStack, model
from gke_ai.settings.model import pools
from gke_ai.settings.resolved.needs import has_bare_metal, uses_nvlink


def create_buckets(stack: ResolvedStack, project: str, cluster: GkeCluster, apis: Apis) -> dict[str, ModelBucket]:
    """The buckets by name, with the grants of all workloads on them."""
    default_location = region_of(stack.cluster.location)
    return {
        bucket.section.name: ModelBucket.of(
            bucket.section.name,
            after(*apis.enabled(STORAGE)),
            section=bucket.section.model_copy(
                update={"location": bucket.section.location or default_location, "grants": list(bucket.grants)}
            ),
            project=project,
            workload_pool=cluster.workload_pool,
        )
        for bucket in stack.granted_buckets
    }


def create_pools(stack: ResolvedStack, cluster: GkeCluster, apis: Apis) -> dict[str, Component]:
    """The node pools by name."""
    used = {pool.fabric.technology.name for pool in stack.pools if pool.fabric.technology}
    networks = None
    if used:  # by all pools together
        networks = GpuDirectNetworks(f"{stack.cluster.name}-gpudirect", cluster=cluster, technologies=sorted(used))
    return {pool.name: create_pool(pool, cluster, apis, networks) for pool in stack.pools}


def create_nvlink_driver(stack: ResolvedStack, cluster: GkeCluster) -> NvlinkDriver | None:
    """NVIDIA's driver for channels of NVLink, if pods claim any."""
    if not uses_nvlink(stack):
        return None
    return NvlinkDriver("nvlink", cluster=cluster, bare_metal=has_bare_metal(stack))


def create_pool(pool: model.Pool, cluster: GkeCluster, apis: Apis, networks: GpuDirectNetworks | None) -> Component:
    """A node pool."""
    opts = after(*(apis.enabled(CONTAINER_FILE_SYSTEM) if pool.image_streaming else []))
    match pool:
        case pools.GpuPool():
            further = (networks if pool.fabric.technology else None) or ()
            return GpuNodePool.of(pool.name, opts, section=pool, cluster=cluster, networks=further)
        case pools.TpuPool():
            component = FlexStartTpuPool if pool.elastic else TpuNodePool
            return component.of(pool.name, opts, section=pool, cluster=cluster)
    raise TypeError(f"no component of a node pool takes {type(pool).__name__}")


def create_compute_classes(stack: ResolvedStack, cluster: GkeCluster) -> dict[str, ComputeClass]:
    """The compute classes by name."""
    return {
        section.name: ComputeClass.of(section.name, None, section=section, cluster=cluster)
        for section in stack.settings.compute_classes
    }
