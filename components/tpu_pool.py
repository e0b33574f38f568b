"""Node pools with TPUs: `TpuNodePool`, and `FlexStartTpuPool` for flex-start."""

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
    """Chips of a slice in each dimension, such as `2x4`."""
    machine_type: NotRequired[str]
    """Machine type. Default: the machine that holds the whole slice, or else the one with 4 chips."""
    zones: NotRequired[list[str]]
    """Zones of the nodes, exactly one for a multi-host slice. Default: the zones of the cluster."""
    cluster_zones: NotRequired[pulumi.Input[list[str]]]
    """Zones of the cluster, for a pool without `zones`. Default: GKE's choice, which keeps zones that you remove."""
    nodes_per_zone: NotRequired[int]
    """Number of nodes in each zone of a single-host pool. A multi-host pool has the size of its slice."""
    autoscaling: NotRequired[AutoscalingArgs]
    """Minimum and maximum size. A multi-host pool has no node or the whole slice. Default with flex-start: zero, and
    one slice."""
    capacity: NotRequired[CapacityArgs]
    """Capacity mode. Default: `onDemand`, or `flexStart` for a `FlexStartTpuPool`."""
    auto_repair: NotRequired[bool]
    """Let GKE repair nodes. Default: true, except with flex-start."""
    workload_policy: NotRequired[str]
    """Name of a HIGH_THROUGHPUT placement policy for this topology. Only for multi-host slices of `tpu7x`."""
    disk_size_gb: NotRequired[int]
    """Size of the boot disk in GB."""
    disk_type: NotRequired[str]
    labels: NotRequired[dict[str, str]]
    """Kubernetes labels of the nodes."""
    node_service_account: NotRequired[str]
    """E-mail address of the service account of the nodes. Default: Compute Engine's default account."""
    private_nodes: NotRequired[bool]
    """Create nodes without external IP addresses."""
    protect: NotRequired[bool]


class TpuNodePool(Component):
    """A node pool of TPUs in a Standard cluster: on demand, on Spot, or from a reservation.

    Version and topology determine the machine. Nodes are either independent single-host slices, in any number, or
    together one multi-host slice, whose nodes are created and deleted as a unit. The size is fixed or autoscaled.

    Refused: LookupError (`catalog.tpus.NoSuchSlice`) for a slice that GKE doesn't have; ValueError for flex-start,
    which needs a `FlexStartTpuPool`; arguments that no capacity mode has; by the API, and earlier by `settings.rules`,
    a size that differs from the slice's, several zones for a multi-host slice, a disk that the machine can't boot from.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus,
    https://cloud.google.com/kubernetes-engine/docs/concepts/tpu-ironwood
    """

    pool_name: pulumi.Output[str]

    def __init__(self, name: str, args: TpuPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(TpuPool, name, args)
        if MODES[spec.capacity.mode].elastic:
            raise ValueError(f"{name}: a TpuNodePool has no {spec.capacity.mode} capacity. Use a FlexStartTpuPool")
        self.pool_name = node_pool(self, spec, args, opts).name
        self.register_outputs({"poolName": self.pool_name})


class FlexStartTpuPool(Component):
    """A node pool of TPUs in a Standard cluster with flex-start capacity, queued or not.

    It sets what flex-start needs: no reservation, no initial nodes, autoscaling in each zone between zero and a maximum
    (for a multi-host pool exactly the slice), and a limit on the lifetime of nodes. Auto-repair is off by default,
    because a repair ends the run of the whole slice and returns the capacity.

    Refused: LookupError (`catalog.tpus.NoSuchSlice`) for a slice that GKE doesn't have; ValueError for another capacity
    mode, which needs a `TpuNodePool`; arguments that no capacity mode has; by the API, and earlier by `settings.rules`,
    a fixed size or a minimum, a maximum other than the slice's size, a zone or a version without flex-start.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training-tpu,
    https://cloud.google.com/kubernetes-engine/docs/concepts/dws,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """

    pool_name: pulumi.Output[str]

    def __init__(self, name: str, args: TpuPoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        spec = read(TpuPool, name, {"capacity": {"mode": "flexStart"}, **args})
        if not MODES[spec.capacity.mode].elastic:
            raise ValueError(f"{name}: a FlexStartTpuPool has no {spec.capacity.mode} capacity. Use a TpuNodePool")
        self.pool_name = node_pool(self, spec, args, opts).name
        self.register_outputs({"poolName": self.pool_name})


def node_pool(
    parent: Component, spec: TpuPool, args: TpuPoolArgs, opts: pulumi.ResourceOptions | None
) -> gcp.container.NodePool:
    """The node pool. Only `capacity` and `grows` depend on the capacity mode."""
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
        # Always set, also when off: the provider keeps the current value of omitted fields.
        network_config={"enable_private_nodes": args.get("private_nodes", False)},
        node_config={
            "machine_type": tpu_slice.machine_type,
            "disk_size_gb": spec.disk_size_gb,
            "disk_type": spec.disk_type or boot_disk_type(tpu_slice.machine_type),
            "labels": spec.labels,
            "service_account": args.get("node_service_account") or DEFAULT_ACCOUNT,
            "oauth_scopes": NODE_SCOPES,
            # No taint: GKE adds google.com/tpu to every TPU node.
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
            delete_before_replace=True,  # its name is taken until it is deleted
            ignore_changes=owned_by_others(grows(spec)),
            # The provider plans an update of both. It then sends nothing for the topology, and GKE refuses the machine
            # type: both are fixed at creation.
            # https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools/update
            replace_on_changes=["nodeConfig.machineType", "placementPolicy.tpuTopology"],
        ),
    )


def placement(spec: TpuPool) -> gcp.container.NodePoolPlacementPolicyArgsDict | None:
    """Placement policy of a multi-host slice. The API accepts no topology for single-host slices."""
    if not pool_slice(spec).multi_host:
        return None
    if VERSIONS[spec.version].workload_policy and spec.workload_policy is not None:
        # The SDK requires a type, and the API refuses one beside a workload policy. An empty type is not sent.
        return {"type": "", "policy_name": spec.workload_policy, "tpu_topology": spec.topology}
    return {"type": "COMPACT", "tpu_topology": spec.topology}


def autoscaling(spec: TpuPool, location: str) -> gcp.container.NodePoolAutoscalingArgsDict:
    """Limits of an autoscaled pool: per zone if it has one zone, else for the whole pool.

    The API does not accept both. For a multi-host slice, which has one zone, it reads only the limits per zone.
    """
    min_nodes, max_nodes = bounds(spec)
    # No even spread over zones: take TPUs wherever they are available.
    if len(spec.zones or node_zones(location)) == 1:
        return {"min_node_count": min_nodes, "max_node_count": max_nodes, "location_policy": "ANY"}
    return {"total_min_node_count": min_nodes, "total_max_node_count": max_nodes, "location_policy": "ANY"}
