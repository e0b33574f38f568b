"""A pool of GPU nodes, in any of the ways to get capacity."""

from math import ceil
from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp

from catalog.capacity import MODES
from catalog.nodes import GPU_TAINT
from catalog.zones import node_zones
from components.base import Component, read
from components.cluster import NODE_SCOPES, PRIVATE_NODES
from settings.model import FlexStart, GpuPool, QueuedFlexStart, Reservation, Spot, TpuPool
from settings.plan import gpus

# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools
DRIVERS = {"default": "DEFAULT", "latest": "LATEST", "disabled": "INSTALLATION_DISABLED"}
EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}


class AutoscalingArgs(TypedDict):
    """Bounds of a pool that grows and shrinks: nodes in the whole pool."""

    min_nodes: NotRequired[int]
    max_nodes: int


class CapacityArgs(TypedDict):
    """How the pool gets its capacity; the other keys belong to one mode each."""

    mode: str
    """`onDemand`, `spot`, `reservation`, `flexStart` or `queuedFlexStart`."""
    reservation: NotRequired[str]
    """Name of the reservation; mode `reservation` only."""
    max_run_duration_seconds: NotRequired[int]
    """Life of a node, 600 to 604800 seconds; modes `flexStart` and `queuedFlexStart` only."""


class GpuNodePoolArgs(TypedDict):
    """Arguments of a `GpuNodePool`."""

    name: str
    project: str
    """Id of the Google Cloud project."""
    cluster: pulumi.Input[str]
    """Name of the Standard cluster."""
    location: str
    """Region or zone of the cluster."""
    machine_type: str
    accelerator: NotRequired[str]
    """GPU type; none: the one that the machine type has."""
    gpus_per_node: NotRequired[int]
    """None: as many as the machine type has."""
    driver: NotRequired[str]
    """NVIDIA driver that GKE installs: `default`, `latest` or `disabled`."""
    zones: NotRequired[list[str]]
    """None: the zones of the cluster."""
    nodes_per_zone: NotRequired[int]
    """Fixed size; not with `autoscaling`."""
    autoscaling: NotRequired[AutoscalingArgs]
    capacity: NotRequired[CapacityArgs]
    disk_size_gb: NotRequired[int]
    """Boot disk in GB."""
    disk_type: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    """Kubernetes labels of the nodes."""
    node_service_account: NotRequired[str]
    """Address of the service account that nodes run as; none: Compute Engine's default account."""
    private_nodes: NotRequired[bool]
    """Nodes without external addresses."""
    protect: NotRequired[bool]


class GpuNodePool(Component):
    """A node pool with NVIDIA GPUs in a Standard cluster: driver, zones, fixed size or autoscaling, capacity mode.

    Flex-start, queued or not, sets what it demands: autoscaling from zero, no reservation, no auto-repair.

    Refused: ValueError for a machine without a GPU where none is named; arguments that no capacity mode has; by the
    API, and earlier by `settings.rules`, what the machine, the zone or the mode doesn't allow.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest,
    https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations
    """

    pool_name: pulumi.Output[str]

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(GpuPool, name, args)
        accelerator, count = gpus(spec)
        elastic = MODES[spec.capacity.mode].elastic

        made = gcp.container.NodePool(
            spec.name,
            name=spec.name,
            cluster=args["cluster"],
            project=args["project"],
            location=args["location"],
            node_locations=spec.zones or None,
            node_count=None if spec.autoscaling else spec.nodes_per_zone,
            initial_node_count=first_size(spec, spec.autoscaling.min_nodes, args["location"])
            if spec.autoscaling
            else None,
            autoscaling=autoscaling(spec),
            network_config=PRIVATE_NODES if args.get("private_nodes") else None,
            node_config={
                "machine_type": spec.machine_type,
                "disk_size_gb": spec.disk_size_gb,
                "disk_type": spec.disk_type,
                "labels": spec.labels,
                "service_account": args.get("node_service_account"),
                "oauth_scopes": NODE_SCOPES,
                "guest_accelerators": [
                    {
                        "type": accelerator,
                        "count": count,
                        "gpu_driver_installation_config": {"gpu_driver_version": DRIVERS[spec.driver]},
                    }
                ],
                # GKE adds it by itself only where another pool without GPUs came first; declared, the order is free.
                "taints": [
                    {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": EFFECTS[GPU_TAINT.effect]},
                ],
                "workload_metadata_config": {"mode": "GKE_METADATA"},
                **capacity(spec),
            },
            queued_provisioning={"enabled": True} if isinstance(spec.capacity, QueuedFlexStart) else None,
            # A repair would delete a node that is paid for and can't be had again before its run ends.
            management={"auto_repair": not elastic, "auto_upgrade": True},
            opts=pulumi.ResourceOptions(
                parent=self,
                protect=spec.protect,
                delete_before_replace=True,  # its name is taken until it has gone
                ignore_changes=owned_by_others(spec.autoscaling is not None),
            ),
        )

        self.pool_name = made.name
        self.register_outputs({"poolName": self.pool_name})


def autoscaling(spec: GpuPool) -> gcp.container.NodePoolAutoscalingArgsDict | None:
    """Bounds of the pool, all zones together (bounds per zone and of the whole exclude each other)."""
    if spec.autoscaling is None:
        return None
    return {
        "total_min_node_count": spec.autoscaling.min_nodes,
        "total_max_node_count": spec.autoscaling.max_nodes,
        "location_policy": "ANY",  # GPUs are where they are: no even spread over the zones
    }


def first_size(spec: GpuPool | TpuPool, least: int, location: str) -> int:
    """Nodes in each zone at first, for a pool that is autoscaled: its minimum; flex-start begins with none."""
    return 0 if MODES[spec.capacity.mode].elastic else ceil(least / len(spec.zones or node_zones(location)))


def capacity(spec: GpuPool | TpuPool) -> gcp.container.NodePoolNodeConfigArgsDict:
    """What the capacity mode adds to the nodes."""
    match spec.capacity:
        case Spot():
            return {"spot": True}
        case Reservation(reservation=reservation):
            return {
                "reservation_affinity": {
                    "consume_reservation_type": "SPECIFIC_RESERVATION",
                    "key": "compute.googleapis.com/reservation-name",
                    "values": [reservation],
                }
            }
        case FlexStart(max_run_duration_seconds=seconds) | QueuedFlexStart(max_run_duration_seconds=seconds):
            return {
                "flex_start": True,
                "max_run_duration": f"{seconds}s",
                "reservation_affinity": {"consume_reservation_type": "NO_RESERVATION"},
            }
    return {}


def owned_by_others(autoscaled: bool) -> list[str]:
    """Fields that something else changes after this program has written them."""
    # The first size: GKE records one for a fixed pool too, and a change would replace it (pulumi/pulumi-gcp#412).
    ignored = ["initialNodeCount"]
    if autoscaled:
        ignored.append("nodeCount")  # the autoscaler's
    return ignored
