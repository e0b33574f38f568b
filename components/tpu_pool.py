"""Pools of TPU nodes: whatever capacity there is, and flex-start, which makes demands of its own."""

from typing import NotRequired, TypedDict

import pulumi
import pulumi_gcp as gcp

from catalog.capacity import MODES
from catalog.identities import DEFAULT_ACCOUNT
from catalog.machines import boot_disk_type
from catalog.tpus import VERSIONS
from catalog.zones import node_zones
from components.base import Component, read
from components.cluster import NODE_SCOPES
from components.gpu_pool import AutoscalingArgs, CapacityArgs, capacity, first_size, owned_by_others, upgrades
from settings.model import QueuedFlexStart, TpuPool
from settings.plan import bounds, grows, pool_slice


class TpuPoolArgs(TypedDict):
    """Arguments of a `TpuNodePool` and of a `FlexStartTpuPool`."""

    name: str
    project: str
    """Id of the Google Cloud project."""
    cluster: pulumi.Input[str]
    """Name of the Standard cluster."""
    location: str
    """Region or zone of the cluster."""
    version: str
    """TPU version: `v5e`, `v5p`, `v6e` or `tpu7x`."""
    topology: str
    """Chips of a slice along each side, such as `2x4`."""
    machine_type: NotRequired[str]
    """None: the machine that holds the whole slice, else the one with 4 chips."""
    zones: NotRequired[list[str]]
    """None: the zones of the cluster; a multi-host slice is in one zone."""
    cluster_zones: NotRequired[pulumi.Input[list[str]]]
    """Zones of the cluster, for a pool without `zones`; none: GKE's choice, and zones that are removed later stay."""
    nodes_per_zone: NotRequired[int]
    """Fixed size of a single-host pool; a multi-host one has its slice's."""
    autoscaling: NotRequired[AutoscalingArgs]
    """Bounds; of a multi-host pool nothing or the whole slice. Flex-start without them: nothing, and one slice."""
    capacity: NotRequired[CapacityArgs]
    """None: `onDemand`, and `flexStart` of a `FlexStartTpuPool`."""
    auto_repair: NotRequired[bool]
    """None: off on flex-start."""
    workload_policy: NotRequired[str]
    """Name of a placement policy of type HIGH_THROUGHPUT for this topology; `tpu7x` alone, for multi-host slices."""
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


class TpuNodePool(Component):
    """A node pool of TPUs in a Standard cluster, on demand, on Spot or of a reservation.

    Version and topology say the rest: the machine, and whether its nodes are single-host slices, apart from each other
    and as many as one likes, or together one multi-host slice, whose nodes come and go as one. Fixed or autoscaled.

    Refused: LookupError (`catalog.tpus.NoSuchSlice`) for a slice that GKE doesn't have; ValueError for flex-start,
    which a `FlexStartTpuPool` has; arguments that no capacity mode has; by the API, and earlier by `settings.rules`,
    a size that isn't the slice's, more than one zone of a multi-host slice, a disk that the machine doesn't boot from.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus,
    https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood
    """

    pool_name: pulumi.Output[str]

    def __init__(self, name: str, args: TpuPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(TpuPool, name, args)
        if MODES[spec.capacity.mode].elastic:
            raise ValueError(f"{name}: {spec.capacity.mode} capacity is that of a FlexStartTpuPool")
        self.pool_name = node_pool(self, spec, args, opts).name
        self.register_outputs({"poolName": self.pool_name})


class FlexStartTpuPool(Component):
    """A node pool of TPUs in a Standard cluster that Dynamic Workload Scheduler fills, queued or not.

    It sets what flex-start demands: no reservation, no node at first, autoscaling between nothing and (of a multi-host
    pool exactly) the slice, in each zone; a bound on the life of the nodes; and no auto-repair unless asked for, as a
    repair ends the run of the whole slice and gives the capacity back.

    Refused: LookupError (`catalog.tpus.NoSuchSlice`) for a slice that GKE doesn't have; ValueError for another capacity
    mode, which a `TpuNodePool` has; arguments that no capacity mode has; by the API, and earlier by `settings.rules`,
    a fixed size or a minimum, a maximum that isn't the slice's size, a zone or a version without flex-start.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training-tpu,
    https://cloud.google.com/kubernetes-engine/docs/concepts/dws,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """

    pool_name: pulumi.Output[str]

    def __init__(self, name: str, args: TpuPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(TpuPool, name, {"capacity": {"mode": "flexStart"}, **args})
        if not MODES[spec.capacity.mode].elastic:
            raise ValueError(f"{name}: {spec.capacity.mode} capacity is that of a TpuNodePool")
        self.pool_name = node_pool(self, spec, args, opts).name
        self.register_outputs({"poolName": self.pool_name})


def node_pool(
    parent: Component, spec: TpuPool, args: TpuPoolArgs, opts: pulumi.ResourceOptions | None
) -> gcp.container.NodePool:
    """The pool itself, the same for every capacity mode but for what `capacity` and `grows` say of the mode."""
    tpu_slice = pool_slice(spec)
    elastic = MODES[spec.capacity.mode].elastic
    return gcp.container.NodePool(
        spec.name,
        name=spec.name,
        cluster=args["cluster"],
        project=args["project"],
        location=args["location"],
        node_locations=spec.zones or args.get("cluster_zones"),
        node_count=None if grows(spec) else tpu_slice.hosts if tpu_slice.multi_host else spec.nodes_per_zone,
        initial_node_count=first_size(spec, *bounds(spec), args["location"]) if grows(spec) else None,
        autoscaling=autoscaling(spec, args["location"]) if grows(spec) else None,
        # Stated also in their off forms: the provider keeps what is no longer stated.
        network_config={"enable_private_nodes": args.get("private_nodes", False)},
        node_config={
            "machine_type": tpu_slice.machine_type,
            "disk_size_gb": spec.disk_size_gb,
            "disk_type": spec.disk_type or boot_disk_type(tpu_slice.machine_type),
            "labels": spec.labels,
            "service_account": args.get("node_service_account") or DEFAULT_ACCOUNT,
            "oauth_scopes": NODE_SCOPES,
            # No taint: GKE puts google.com/tpu on every TPU node itself.
            "workload_metadata_config": {"mode": "GKE_METADATA"},
            **capacity(spec),
        },
        placement_policy=placement(spec),
        queued_provisioning={"enabled": True} if isinstance(spec.capacity, QueuedFlexStart) else None,
        upgrade_settings=upgrades(spec),
        management={"auto_repair": not elastic if spec.auto_repair is None else spec.auto_repair, "auto_upgrade": True},
        opts=pulumi.ResourceOptions(
            parent=parent,
            depends_on=opts.depends_on if opts else None,  # as in `GpuNodePool`
            protect=spec.protect,
            delete_before_replace=True,  # its name is taken until it has gone
            ignore_changes=owned_by_others(grows(spec)),
            # The provider plans an update of both, and then sends nothing for the topology, and for the machine what
            # GKE refuses of a slice: only its creation decides them.
            # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools/update
            replace_on_changes=["nodeConfig.machineType", "placementPolicy.tpuTopology"],
        ),
    )


def placement(spec: TpuPool) -> gcp.container.NodePoolPlacementPolicyArgsDict | None:
    """How the nodes of one slice are put together; the API takes no topology for nodes that are slices themselves."""
    if not pool_slice(spec).multi_host:
        return None
    if VERSIONS[spec.version].workload_policy and spec.workload_policy is not None:
        # The SDK wants a type, and the API takes none beside a workload policy: empty, it isn't sent.
        return {"type": "", "policy_name": spec.workload_policy, "tpu_topology": spec.topology}
    return {"type": "COMPACT", "tpu_topology": spec.topology}


def autoscaling(spec: TpuPool, location: str) -> gcp.container.NodePoolAutoscalingArgsDict:
    """Bounds of a pool that grows: in one zone those of the zone, in several those of the whole pool.

    The two exclude each other, and of a multi-host slice, which is in one zone, the API reads those of the zone alone.
    """
    min_nodes, max_nodes = bounds(spec)
    # TPUs are where they are: no even spread over the zones.
    if len(spec.zones or node_zones(location)) == 1:
        return {"min_node_count": min_nodes, "max_node_count": max_nodes, "location_policy": "ANY"}
    return {"total_min_node_count": min_nodes, "total_max_node_count": max_nodes, "location_policy": "ANY"}
