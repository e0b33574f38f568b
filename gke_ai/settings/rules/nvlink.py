"""Rules of pools whose nodes form an NVLink domain."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.fabric.nvlink import NODES, has_domain
from gke_ai.catalog.machines.types import is_bare_metal
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import needs
from gke_ai.settings.rules.fabric import in_several_zones


@needs("gke-ai:cluster")
def pools_are_one_domain(stack: ResolvedStack) -> Iterator[Problem]:
    """A pool of A4X or A4X Max is in one zone, and has at most the nodes of one NVLink domain."""
    for node_pool in stack.node_pools:
        pool = node_pool.section
        if not has_domain(pool.node_machine_type):
            continue
        if len(node_pool.zones) > 1:
            yield in_several_zones(node_pool, f"the nodes of pool {pool.name} form one NVLink domain, which")
        elif node_pool.max_nodes > NODES:
            key = "nodesPerZone" if pool.autoscaling is None else "autoscaling.maxNodes"
            cause = f"the nodes of pool {pool.name} form one NVLink domain of at most {NODES} nodes, and the pool has "
            cause += f"up to {node_pool.max_nodes}. Google could not place the others"
            yield Problem(pool.at(key), cause, f"Set it to {NODES} or less, and add another pool for further nodes")


@needs("gke-ai:cluster")
def clusters_suit_bare_metal(stack: ResolvedStack) -> Iterator[Problem]:
    """A pool of A4X Max is in a Standard cluster without shielded nodes. Autopilot always has them."""
    cluster, path = stack.cluster, stack.cluster.at("shieldedNodes")
    if cluster.is_autopilot and not cluster.shielded_nodes:
        cause = "Autopilot always has shielded nodes. Google's provider would refuse the cluster"
        yield Problem(path, cause, "Remove shieldedNodes, or set mode: standard")
    if not cluster.shielded_nodes or cluster.mode != "standard":
        return
    names = [pool.section.name for pool in stack.node_pools if is_bare_metal(pool.section.node_machine_type)]
    for name in names[:1]:
        cause = f"nodes of pool {name} are bare metal, for which a cluster has no shielded nodes. GKE would "
        yield Problem(path, f"{cause}refuse the pool", "Set shieldedNodes: false, or choose another machine")
