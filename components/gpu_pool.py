"""A pool of GPU nodes, in any of the ways to get capacity."""

import hashlib
import json
from math import ceil
from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp

from catalog.capacity import MODES
from catalog.identities import DEFAULT_ACCOUNT
from catalog.machines import boot_disk_type, machine
from catalog.nodes import GPU_TAINT
from catalog.zones import node_zones
from components.base import Component, read
from components.cluster import NODE_SCOPES
from components.draining import drain_old_pool
from settings.model import FlexStart, GpuPool, QueuedFlexStart, Reservation, Spot, TpuPool
from settings.plan import gpus, labels_of, pool_slice

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
    cluster_zones: NotRequired[pulumi.Input[list[str]]]
    """Zones of the cluster, for a pool without `zones`; none: GKE's choice, and zones that are removed later stay."""
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
    create_before_delete: NotRequired[bool]
    """Create the replacement pool before deleting the old one."""
    kubeconfig: NotRequired[pulumi.Input[str]]
    """With `create_before_delete`: the cluster in which pods are evicted from the old pool. Default: GKE drains it and
    ignores disruption budgets."""
    protect: NotRequired[bool]


class GpuNodePool(Component):
    """A node pool with NVIDIA GPUs in a Standard cluster: driver, zones, fixed size or autoscaling, capacity mode.

    Flex-start, queued or not, sets what it demands: autoscaling from zero, no reservation, no auto-repair.

    With `create_before_delete` a change of its nodes (machine, GPUs, driver, boot disk, capacity, service account)
    makes a second pool of another name in Google Cloud, `NAME-` and six digits; then pods are moved to it under their
    disruption budgets, for up to an hour; then the first goes. A server with two replicas and a budget is never without
    one. For that time both are paid for, and quota and reservations must have room for both. A run is restarted where
    its pods go, as by any loss of a node; so is a server with one replica. Pods find the pool by its label
    `gke-ai/pool=NAME`, which both carry: of pools that grow, the autoscaler may bring further nodes of the first for
    pods that are moved, and those are emptied too. Where pods can't be moved both pools stay. The way on is to run it
    again; the way back is a third kind of nodes, such as a boot disk larger by one GB: the name of the first is taken.

    Switched on for a pool that is there, it is such a change itself, made in the same way; but runs that Kueue has let
    in still ask for the pool's former name, so switch while none runs on it. Switched off, the pool goes first, as any
    pool does that is replaced without it. Pulumi refuses to replace a pool with `protect`: apply `protect: false`
    first, then the change, then protect it again.

    Refused: ValueError for a machine without a GPU where none is named; arguments that no capacity mode has; by the
    API, and earlier by `settings.rules`, what the machine, the zone or the mode doesn't allow.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest,
    https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations
    """

    pool_name: pulumi.Output[str]
    """Name in Google Cloud."""

    def __init__(self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(GpuPool, name, args)
        accelerator, count = gpus(spec)
        elastic = MODES[spec.capacity.mode].elastic

        nodes: gcp.container.NodePoolNodeConfigArgsDict = {
            "machine_type": spec.machine_type,
            "disk_size_gb": spec.disk_size_gb,
            "disk_type": spec.disk_type,
            "service_account": args.get("node_service_account"),
            "oauth_scopes": NODE_SCOPES,
            "guest_accelerators": [
                {
                    "type": accelerator,
                    "count": count,
                    "gpu_driver_installation_config": {"gpu_driver_version": DRIVERS[spec.driver]},
                }
            ],
            **local_ssds(spec),
            **capacity(spec),
        }
        queued = isinstance(spec.capacity, QueuedFlexStart)
        node_pool = gcp.container.NodePool(
            spec.name,
            name=f"{spec.name}-{digits(nodes)}" if spec.create_before_delete else spec.name,
            cluster=args["cluster"],
            project=args["project"],
            location=args["location"],
            node_locations=spec.zones or args.get("cluster_zones"),
            node_count=None if spec.autoscaling else spec.nodes_per_zone,
            initial_node_count=first_size(
                spec, spec.autoscaling.min_nodes, spec.autoscaling.max_nodes, args["location"]
            )
            if spec.autoscaling
            else None,
            autoscaling=autoscaling(spec),
            # Stated also in their off forms: the provider keeps what is no longer stated.
            network_config={"enable_private_nodes": args.get("private_nodes", False)},
            node_config={
                **nodes,
                "disk_type": spec.disk_type or boot_disk_type(spec.machine_type),
                "service_account": args.get("node_service_account") or DEFAULT_ACCOUNT,
                "labels": labels_of(spec),
                # GKE adds it by itself only where another pool without GPUs came first; declared, the order is free.
                "taints": [
                    {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": EFFECTS[GPU_TAINT.effect]},
                ],
                "workload_metadata_config": {"mode": "GKE_METADATA"},
            },
            queued_provisioning={"enabled": True} if queued else None,
            # A repair would delete a node that is paid for and can't be had again before its run ends.
            management={"auto_repair": not elastic, "auto_upgrade": True},
            upgrade_settings=upgrades(spec),
            opts=pulumi.ResourceOptions(
                parent=self,
                # The pool's own, not only its component's: Pulumi deletes a former pool before what that pool itself
                # depends on, such as an account that the stack no longer has.
                depends_on=opts.depends_on if opts else None,
                protect=spec.protect,
                # Its name is taken until it has gone.
                delete_before_replace=not spec.create_before_delete,
                ignore_changes=owned_by_others(spec.autoscaling is not None),
            ),
        )

        # If the drain fails, the program fails and Pulumi keeps the old pool.
        if spec.create_before_delete:
            drain_old_pool(spec.name, node_pool, args.get("kubeconfig"))
        self.pool_name = node_pool.name
        self.register_outputs({"poolName": self.pool_name})


def digits(nodes: gcp.container.NodePoolNodeConfigArgsDict) -> str:
    """Six digits that differ when the nodes must be made anew; a setting that isn't set has no part in them."""
    stated = {key: value for key, value in nodes.items() if value is not None}
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:6]


def local_ssds(spec: GpuPool) -> gcp.container.NodePoolNodeConfigArgsDict:
    """The Local SSDs that always come with the machine, as the nodes' ephemeral storage.

    GKE's default for such machines; stated, so that what the quota counts on is what the pool has.
    https://cloud.google.com/kubernetes-engine/docs/concepts/local-ssd
    """
    count = machine(spec.machine_type).local_ssds
    return {"ephemeral_storage_local_ssd_config": {"local_ssd_count": count}} if count else {}


def autoscaling(spec: GpuPool) -> gcp.container.NodePoolAutoscalingArgsDict | None:
    """Bounds of the pool, all zones together (bounds per zone and of the whole exclude each other)."""
    if spec.autoscaling is None:
        return None
    return {
        "total_min_node_count": spec.autoscaling.min_nodes,
        "total_max_node_count": spec.autoscaling.max_nodes,
        "location_policy": "ANY",  # GPUs are where they are: no even spread over the zones
    }


def first_size(spec: GpuPool | TpuPool, min_nodes: int, max_nodes: int, location: str) -> int:
    """Nodes in each zone at first, for a pool that is autoscaled: its minimum, rounded up where its maximum allows.

    Flex-start begins with none.
    """
    if MODES[spec.capacity.mode].elastic:
        return 0
    zones = len(spec.zones or node_zones(location))
    rounded_up = ceil(min_nodes / zones)
    return rounded_up if rounded_up * zones <= max_nodes else min_nodes // zones


def upgrades(spec: GpuPool | TpuPool) -> gcp.container.NodePoolUpgradeSettingsArgsDict | None:
    """How nodes are upgraded: one by one in their own place where no further node can be had, else GKE's default.

    The nodes of a multi-host TPU slice are upgraded all at once, whatever is set.
    """
    whole = isinstance(spec, TpuPool) and pool_slice(spec).multi_host
    return None if whole or MODES[spec.capacity.mode].surge else {"max_surge": 0, "max_unavailable": 1}


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
