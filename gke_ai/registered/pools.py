"""Node pools: zones, bounds, capacity mode, accelerators, and the shape of their nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gke_ai.catalog.machines.capacity import capacity_until, mode_of
from gke_ai.catalog.machines.tpus import slice_on
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.machines.zones import ZONES, is_zone, node_zones
from gke_ai.catalog.nodes.shape import NodeShape, node_labels
from gke_ai.kube.values import is_unset, items, list_at, mapping, number, value
from gke_ai.registered.registration import RegisteredStack, Resource
from gke_ai.registered.types import CLUSTER, NODE_POOL

# Zones of a regional pool whose zones are not known yet.
# https://cloud.google.com/kubernetes-engine/docs/concepts/types-of-clusters#regional_clusters
DEFAULT_ZONES = 3


@dataclass(frozen=True)
class NodeBounds:
    """Minimum and maximum number of nodes of a pool in all its zones; `autoscaled` if they may differ."""

    minimum: int
    maximum: int
    autoscaled: bool


@dataclass(frozen=True)
class Accelerators:
    """The accelerator of a pool's nodes, by its GKE name, and how many each node has."""

    name: str
    per_node: int


def zones(pool: Mapping[str, Any]) -> list[str]:
    """Returns the zones of a pool; those of its location if it names none, and nothing if they are unknown."""
    stated = [zone for zone in list_at(pool, "nodeLocations") if isinstance(zone, str)]
    location = value(pool, "location")
    if stated or not isinstance(location, str):
        return stated
    return list(node_zones(location)) if is_zone(location) or location in ZONES else []


def node_bounds(pool: Mapping[str, Any]) -> NodeBounds:
    """Returns the minimum and maximum number of nodes. Without autoscaling both are the fixed size."""
    zone_count = len(zones(pool)) or DEFAULT_ZONES
    autoscaling = mapping(pool, "autoscaling")
    if total := number(autoscaling.get("totalMaxNodeCount")):
        return NodeBounds(number(autoscaling.get("totalMinNodeCount")) or 0, total, True)
    if per_zone := number(autoscaling.get("maxNodeCount")):
        return NodeBounds((number(autoscaling.get("minNodeCount")) or 0) * zone_count, per_zone * zone_count, True)
    fixed = number(value(pool, "nodeCount")) or number(value(pool, "initialNodeCount")) or 0
    return NodeBounds(fixed * zone_count, fixed * zone_count, False)


def capacity_mode(pool: Mapping[str, Any]) -> str:
    """Returns the capacity mode of a pool, such as `spot`."""
    affinity = value(pool, "nodeConfig", "reservationAffinity", "consumeReservationType")
    return mode_of(
        queued=value(pool, "queuedProvisioning", "enabled"),
        flex_start=value(pool, "nodeConfig", "flexStart"),
        spot=value(pool, "nodeConfig", "spot"),
        reservation=affinity == "SPECIFIC_RESERVATION",
    )


def until(pool: Mapping[str, Any]) -> datetime | None:
    """Returns when the capacity of a pool ends, if its labels state it."""
    return capacity_until(mapping(pool, "nodeConfig", "labels"))


def lost_network(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Returns the key that keeps a pool's network between nodes, if a change removes that network. Else nothing."""
    if value(after, "nodeConfig", "machineType") != value(before, "nodeConfig", "machineType"):
        return ""
    for key, field in (("rdma", "acceleratorNetworkProfile"), ("gpuDirect", "additionalNodeNetworkConfigs")):
        if value(before, "networkConfig", field) and is_unset(value(after, "networkConfig", field)):
            return key
    return ""


def without_network(key: str) -> str:
    """Says why a pool loses its network, and how to keep it."""
    return (
        f"no run of the stack over several nodes uses its network between nodes, and it has no `{key}: true`. "
        "Set that to keep the pool."
    )


def accelerators(pool: Mapping[str, Any]) -> Accelerators | None:
    """Returns the accelerators of a pool's nodes: those attached to its machine type, else those built in."""
    machine = MACHINES.get(str(value(pool, "nodeConfig", "machineType")))
    attached = next(iter(items(pool, "nodeConfig", "guestAccelerators")), {})
    built_in = (machine.gpu or machine.tpu) if machine else None
    name = attached.get("type") or built_in
    per_node = number(attached.get("count")) or (machine and (machine.gpus or machine.chips)) or 1
    return Accelerators(name, per_node) if isinstance(name, str) else None


def node_shape(pool: Resource) -> NodeShape | None:
    """Returns the shape of a pool's nodes; None if its machine type or zones are unknown."""
    config, pool_zones = mapping(pool.props, "nodeConfig"), zones(pool.props)
    machine = MACHINES.get(str(value(config, "machineType")))
    if machine is None or not pool_zones or not isinstance(value(pool.props, "location"), str):
        return None
    gpus = next(iter(items(config, "guestAccelerators")), {})
    return NodeShape(
        pool=pool.object_name,
        machine_type=machine.name,
        gpu=gpus.get("type") or machine.gpu,
        gpus=number(gpus.get("count")) or machine.gpus,
        capacity=capacity_mode(pool.props),
        zone=pool_zones[0],
        disk_gb=number(config.get("diskSizeGb")) or 100,
        labels={key: text for key, text in mapping(config, "labels").items() if isinstance(text, str)},
        workload_identity=value(config, "workloadMetadataConfig", "mode") == "GKE_METADATA",
        topology=value(pool.props, "placementPolicy", "tpuTopology")
        or (slice_on(machine.name).topology if machine.tpu else None),
    )


def flavor_pools(flavor: Resource, stack: RegisteredStack) -> list[tuple[NodeShape, int]] | None:
    """Returns the pools of a ResourceFlavor with their maximum sizes; None if the stack does not show all of them."""
    labels = mapping(flavor.props, "spec", "nodeLabels")
    if not labels:
        # The flavor covers any node: all pools of a cluster in which GKE creates no nodes by itself.
        clusters = list(stack.of_type(CLUSTER))
        creates_nodes = any(
            value(cluster.props, "enableAutopilot") is True
            or value(cluster.props, "clusterAutoscaling", "enabled") is True
            for cluster in clusters
        )
        if not clusters or creates_nodes or any(stack.of_kind("ComputeClass")):
            return None
    pools = []
    for pool in stack.of_type(NODE_POOL):
        shape = node_shape(pool)
        if shape is None:
            return None
        if labels.items() <= node_labels(shape).items():
            pools.append((shape, node_bounds(pool.props).maximum))
    return pools or None
