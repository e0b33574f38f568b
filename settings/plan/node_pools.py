"""The size of the whole stack."""

from __future__ import annotations

from catalog.zones import node_zones
from settings.model import Settings


def max_stack_nodes(settings: Settings) -> int:
    """Nodes of the stack with every pool at its maximum, without nodes that GKE creates itself."""
    system, cluster = settings.cluster.system_pool, settings.cluster
    zones = len(system.zones or node_zones(cluster.location)) if cluster.mode == "standard" else 0
    return system.nodes_per_zone * zones + sum(pool.max_nodes(cluster) for pool in settings.pools)
