"""A node pool with GPUs, in every capacity mode."""

import hashlib
import json
from math import ceil

import pulumi
import pulumi_gcp as gcp

from catalog.capacity import MODES
from catalog.identities import DEFAULT_ACCOUNT
from catalog.machines import boot_disk_type, machine
from catalog.nodes import GPU_TAINT
from catalog.zones import node_zones
from components.base import Component
from components.cluster import NODE_SCOPES
from components.draining import drain_old_pool
from settings.model import FlexStart, GpuPool, Pool, QueuedFlexStart, Reservation, Spot

# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools
DRIVERS = {"default": "DEFAULT", "latest": "LATEST", "disabled": "INSTALLATION_DISABLED"}
EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}


class GpuNodePool(Component):
    """A node pool with NVIDIA GPUs in a Standard cluster: driver, zones, fixed size or autoscaling, capacity mode.

    Flex-start, queued or not, implies autoscaling from zero, no reservation, and no auto-repair.

    With `create_before_delete`, a change of the nodes (machine, GPUs, driver, boot disk, capacity, service account)
    creates a second pool in Google Cloud, named `NAME-` and a hash of six digits. The program then drains the old pool
    under disruption budgets, for up to an hour, and Pulumi deletes it. A server with two replicas and a budget always
    keeps one. You pay for both pools meanwhile, and quota and reservations must have room for both. An evicted run
    restarts, as after any loss of a node; so does a server with one replica. Pods select the pool by its label
    `gke-ai/pool=NAME`, which both pools have: if the pool is autoscaled, the autoscaler may add nodes to the old pool
    for evicted pods, and the program drains those too. If the drain fails, both pools stay. Run `up` again, or return
    to the old settings with one difference, such as a boot disk larger by one GB: the old pool still has its name.

    Turning it on for an existing pool is such a change too. Runs that Kueue has admitted still select the pool's
    earlier name, so turn it on while no run uses the pool. When you turn it off, Pulumi deletes the pool first, as in
    every replacement without it. Pulumi refuses to replace a pool with `protect`: apply `protect: false` first, then
    the change, then protect it again.

    Refused: ValueError for a machine without a GPU if `accelerator` is omitted; by the API, and earlier by
    `settings.rules`, settings that the machine, the zone or the mode doesn't allow.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest,
    https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations
    """

    pool_name: pulumi.Output[str]
    """Name in Google Cloud."""

    def __init__(
        self,
        name: str,
        args: GpuPool,
        opts: pulumi.ResourceOptions | None = None,
        *,
        project: str,
        cluster: pulumi.Input[str],
        location: str,
        cluster_zones: pulumi.Input[list[str]] | None = None,
        node_service_account: str | None = None,
        private_nodes: bool = False,
        kubeconfig: pulumi.Input[str] | None = None,
    ) -> None:
        """Create the pool.

        Args:
            project: Id of the Google Cloud project.
            cluster: Name of the Standard cluster.
            location: Region or zone of the cluster.
            cluster_zones: Zones of the cluster, for a pool without `zones`. Default: GKE's choice, which keeps zones
                that you remove.
            node_service_account: E-mail address of the service account of the nodes. Default: Compute Engine's default
                account.
            private_nodes: Create nodes without external IP addresses.
            kubeconfig: With `create_before_delete`: the cluster in which pods are evicted from the old pool. Default:
                GKE drains it and ignores disruption budgets.
        """
        super().__init__(name, opts)
        spec = args
        accelerator, count = spec.gpus

        nodes: gcp.container.NodePoolNodeConfigArgsDict = {
            "machine_type": spec.machine_type,
            "disk_size_gb": spec.disk_size_gb,
            "disk_type": spec.disk_type,
            "service_account": node_service_account,
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
        queued = spec.capacity.queued_seconds is not None
        node_pool = gcp.container.NodePool(
            spec.name,
            name=f"{spec.name}-{digits(nodes)}" if spec.create_before_delete else spec.name,
            cluster=cluster,
            project=project,
            location=location,
            node_locations=spec.zones or cluster_zones,
            node_count=None if spec.autoscaling else spec.nodes_per_zone,
            initial_node_count=first_size(spec, spec.autoscaling.min_nodes, spec.autoscaling.max_nodes, location)
            if spec.autoscaling
            else None,
            autoscaling=autoscaling(spec),
            # Always set, also when off: the provider keeps the current value of omitted fields.
            network_config={"enable_private_nodes": private_nodes},
            node_config={
                **nodes,
                "disk_type": spec.disk_type or boot_disk_type(spec.machine_type),
                "service_account": node_service_account or DEFAULT_ACCOUNT,
                "labels": spec.node_labels,
                # GKE adds it only if a pool without GPUs existed before. Declared, the order does not matter.
                "taints": [
                    {"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": EFFECTS[GPU_TAINT.effect]},
                ],
                "workload_metadata_config": {"mode": "GKE_METADATA"},
            },
            queued_provisioning={"enabled": True} if queued else None,
            # A repair would delete a paid node that may not come back before its run ends.
            management={"auto_repair": not spec.elastic, "auto_upgrade": True},
            upgrade_settings=upgrades(spec),
            opts=pulumi.ResourceOptions(
                parent=self,
                # On the pool itself, not only on the component: Pulumi then deletes a removed pool before its
                # dependencies, such as an account that the stack no longer has.
                depends_on=opts.depends_on if opts else None,
                protect=spec.protect,
                # Its name is taken until it is deleted.
                delete_before_replace=not spec.create_before_delete,
                ignore_changes=owned_by_others(spec.autoscaling is not None),
            ),
        )

        # If the drain fails, the program fails and Pulumi keeps the old pool.
        if spec.create_before_delete:
            drain_old_pool(spec.name, node_pool, kubeconfig)
        self.pool_name = node_pool.name
        self.register_outputs({"poolName": self.pool_name})


def digits(nodes: gcp.container.NodePoolNodeConfigArgsDict) -> str:
    """Six digits that change whenever the nodes must be replaced. Unset settings do not count."""
    stated = {key: value for key, value in nodes.items() if value is not None}
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:6]


def local_ssds(spec: GpuPool) -> gcp.container.NodePoolNodeConfigArgsDict:
    """The machine's built-in Local SSDs as ephemeral storage of the nodes.

    This is GKE's default for such machines. Set explicitly, so the pool has what the quota assumes.
    https://cloud.google.com/kubernetes-engine/docs/concepts/local-ssd
    """
    count = machine(spec.machine_type).local_ssds
    return {"ephemeral_storage_local_ssd_config": {"local_ssd_count": count}} if count else {}


def autoscaling(spec: Pool) -> gcp.container.NodePoolAutoscalingArgsDict | None:
    """Limits of the whole pool. The API does not accept limits per zone and of the whole pool together."""
    if spec.autoscaling is None:
        return None
    return {
        "total_min_node_count": spec.autoscaling.min_nodes,
        "total_max_node_count": spec.autoscaling.max_nodes,
        "location_policy": "ANY",  # no even spread over zones: take GPUs wherever they are available
    }


def first_size(spec: Pool, min_nodes: int, max_nodes: int, location: str) -> int:
    """Initial nodes per zone of an autoscaled pool: its minimum, rounded up if the maximum allows.

    Flex-start begins with zero nodes.
    """
    if spec.elastic:
        return 0
    zones = len(spec.zones or node_zones(location))
    rounded_up = ceil(min_nodes / zones)
    return rounded_up if rounded_up * zones <= max_nodes else min_nodes // zones


def upgrades(spec: Pool) -> gcp.container.NodePoolUpgradeSettingsArgsDict | None:
    """Upgrade nodes in place, one by one, if the capacity mode has no extra nodes. Otherwise GKE's default.

    GKE upgrades all nodes of a multi-host TPU slice at once, whatever this says.
    """
    return None if spec.is_one_slice or MODES[spec.capacity.mode].surge else {"max_surge": 0, "max_unavailable": 1}


def capacity(spec: Pool) -> gcp.container.NodePoolNodeConfigArgsDict:
    """Node settings of the capacity mode."""
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
    """Fields that GKE changes after this program has written them."""
    # GKE records it for a fixed pool too, and a change would replace the pool (pulumi/pulumi-gcp#412).
    ignored = ["initialNodeCount"]
    if autoscaled:
        ignored.append("nodeCount")  # the autoscaler sets it
    return ignored
