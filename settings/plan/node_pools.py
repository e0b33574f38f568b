"""Pools: accelerators, zones, node shapes and sizes."""

from __future__ import annotations

from catalog.capacity import MODES
from catalog.machines import machine
from catalog.nodes import GKE_NODEPOOL, POOL, NodeShape
from catalog.tpus import Slice, slice_of
from catalog.zones import node_zones
from settings.model import Cluster, GpuPool, Settings, TpuPool, TpuSlice


def max_stack_nodes(settings: Settings) -> int:
    """Nodes of the stack with every pool at its maximum, without nodes that GKE creates itself."""
    system, cluster = settings.cluster.system_pool, settings.cluster
    zones = len(system.zones or node_zones(cluster.location)) if cluster.mode == "standard" else 0
    return system.nodes_per_zone * zones + sum(max_nodes(pool, cluster) for pool in pools(settings))


def gpus(pool: GpuPool) -> tuple[str, int]:
    """GPU type and number of GPUs per node: those of the pool's section, else those of its machine type.

    Raises ValueError if neither has GPUs; `settings.rules` refuses such a pool.
    """
    machine_type = machine(pool.machine_type)
    accelerator, count = pool.accelerator or machine_type.gpu, pool.gpus_per_node or machine_type.gpus
    if accelerator is None or not count:
        raise ValueError(f"pool {pool.name} has no GPU")
    return accelerator, count


def pool_zones(pool: GpuPool | TpuPool, cluster: Cluster) -> tuple[str, ...]:
    """Zones of the pool: its own, else those of the cluster's nodes."""
    return tuple(pool.zones or cluster.system_pool.zones or node_zones(cluster.location))


def pool_slice(pool: TpuPool | TpuSlice) -> Slice:
    """The slice of a TPU pool. Raises NoSuchSlice; `settings.rules` refuses such a pool."""
    return slice_of(pool.version, pool.topology, pool.machine_type)


def shape(pool: GpuPool | TpuPool, zone: str) -> NodeShape:
    """Shape of the pool's nodes in that zone."""
    accelerator, count = gpus(pool) if isinstance(pool, GpuPool) else (None, 0)
    return NodeShape(
        pool=pool.name,
        machine_type=pool.machine_type if isinstance(pool, GpuPool) else pool_slice(pool).machine_type,
        gpu=accelerator,
        gpus=count,
        driver=pool.driver if isinstance(pool, GpuPool) else "default",
        capacity=pool.capacity.mode,
        zone=zone,
        disk_gb=pool.disk_size_gb,
        labels=labels_of(pool),
        workload_identity=True,
        topology=pool.topology if isinstance(pool, TpuPool) else None,
    )


def labels_of(pool: GpuPool | TpuPool) -> dict[str, str]:
    """Node labels that the pool sets, without GKE's own."""
    return {**pool.labels, POOL: pool.name} if isinstance(pool, GpuPool) and pool.create_before_delete else pool.labels


def of_pool(pool: GpuPool | TpuPool) -> dict[str, str]:
    """The label that selects the pool's nodes, including those of its replacement."""
    return {POOL if POOL in labels_of(pool) else GKE_NODEPOOL: pool.name}


def grows(pool: TpuPool) -> bool:
    """Whether the cluster autoscaler sizes the pool."""
    return pool.autoscaling is not None or MODES[pool.capacity.mode].elastic


def bounds(pool: TpuPool) -> tuple[int, int]:
    """Minimum and maximum nodes of an autoscaled TPU pool. Default: zero to one slice."""
    if pool.autoscaling is not None:
        return pool.autoscaling.min_nodes, pool.autoscaling.max_nodes
    return 0, pool_slice(pool).hosts


def max_nodes(pool: GpuPool | TpuPool, cluster: Cluster) -> int:
    """Maximum number of nodes of the pool, in all zones together."""
    if isinstance(pool, TpuPool):
        if pool_slice(pool).multi_host:
            return pool_slice(pool).hosts
        if grows(pool):
            return bounds(pool)[1]
    if pool.autoscaling is not None:
        return pool.autoscaling.max_nodes
    return (pool.nodes_per_zone or 0) * len(pool_zones(pool, cluster))


def pools(settings: Settings) -> list[GpuPool | TpuPool]:
    """All GPU pools, then all TPU pools of the stack."""
    return [*settings.gpu_pools, *settings.tpu_pools]
