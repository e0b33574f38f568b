"""Pools: what components read of a section, and the size of the whole stack."""

from __future__ import annotations

from catalog.tpus import Slice
from catalog.zones import node_zones
from settings.model import GpuPool, Pool, Settings, TpuPool, TpuSlice


def max_stack_nodes(settings: Settings) -> int:
    """Nodes of the stack with every pool at its maximum, without nodes that GKE creates itself."""
    system, cluster = settings.cluster.system_pool, settings.cluster
    zones = len(system.zones or node_zones(cluster.location)) if cluster.mode == "standard" else 0
    return system.nodes_per_zone * zones + sum(pool.max_nodes(cluster) for pool in settings.pools)


def gpus(pool: GpuPool) -> tuple[str, int]:
    """GPU type and number of GPUs per node."""
    return pool.gpus


def pool_slice(pool: TpuPool | TpuSlice) -> Slice:
    """The slice of a TPU pool."""
    return pool.slice


def labels_of(pool: Pool) -> dict[str, str]:
    """Node labels that the pool sets, without GKE's own."""
    return pool.node_labels


def grows(pool: Pool) -> bool:
    """Whether the cluster autoscaler sizes the pool."""
    return pool.grows


def bounds(pool: TpuPool) -> tuple[int, int]:
    """Minimum and maximum nodes of an autoscaled TPU pool."""
    return pool.bounds
