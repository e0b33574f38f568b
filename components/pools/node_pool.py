"""What every node pool is: size, zones, nodes, capacity mode and upgrades."""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import NamedTuple

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.disks import boot_disk_type
from gke_ai.catalog.machines.zones import node_zones
from gke_ai.catalog.project.identities import DEFAULT_ACCOUNT
from gke_ai.components.arguments import Arguments, Input, Refused, project_of
from gke_ai.components.base import Component
from gke_ai.components.cluster.cluster import NODE_SCOPES, GkeCluster
from gke_ai.components.support.alone import check_alone
from gke_ai.settings.model import FlexStart, Pool, QueuedFlexStart, Reservation, Spot
from gke_ai.settings.model.base import GkeName
from gke_ai.settings.problems import Problem


class Place(NamedTuple):
    """Where a pool belongs: what the cluster decides for it."""

    project: pulumi.Input[str]
    cluster: pulumi.Input[str]
    location: str
    cluster_zones: pulumi.Input[list[str]] | None
    node_service_account: pulumi.Input[str] | None
    private_nodes: bool | None
    """None if unknown: the pool does then as its cluster."""

    def zones_of(self, spec: Pool) -> pulumi.Output[list[str]]:
        """Zones of the pool: its own, else those of the cluster."""
        return pulumi.Output.from_input(spec.zones or self.cluster_zones or list(node_zones(self.location)))


class NodePoolArguments(Arguments):
    """The arguments of every node pool."""

    name: GkeName = ""
    """Name of the pool. Default: the component's name."""
    labels: Mapping[str, Input[str]] = {}
    cluster: GkeCluster | Input[str]
    """Standard cluster of the pool, or its name. A `GkeCluster` decides the arguments below that are omitted."""
    project: Input[str] | None = None
    """Id of the Google Cloud project. Default: that of the cluster."""
    location: str | None = None
    """Region or zone of the cluster. Required beside its name."""
    cluster_zones: Input[list[str]] | None = None
    """Zones of the cluster, for a pool without `zones`. Beside its name, the default is GKE's choice, which keeps zones
    that you remove."""
    node_service_account: Input[str] | None = None
    """E-mail address of the service account of the nodes. Default: that of the cluster's nodes, else Compute Engine's
    default account."""
    private_nodes: bool | None = None
    """Create nodes without external IP addresses. Default: as the cluster does."""

    def components(self) -> list[pulumi.Resource]:
        # What the pool needs of a cluster, and not its system pool, which takes minutes.
        cluster, others = self.cluster, [other for other in super().components() if other is not self.cluster]
        grants = [cluster.node_account, cluster.network_grant] if isinstance(cluster, GkeCluster) else []
        return [*others, *(grant for grant in grants if grant)]

    def place(self, component: str) -> Place:
        """Where the pool belongs. Raises Refused if the arguments do not say it."""
        account, zones, private = self.node_service_account, self.cluster_zones, self.private_nodes
        if isinstance(cluster := self.cluster, GkeCluster):
            section = cluster.section
            return Place(
                self.project or cluster.project,
                cluster.cluster_name,
                self.location or section.location,
                zones or section.system_pool.zones or cluster.node_zones,
                account or cluster.node_service_account,
                section.private_nodes if private is None else private,
            )
        if self.location is None:
            cause = "is missing, and the name of a cluster does not say where it is"
            raise Refused(component, Problem("location", cause, "Pass it, or pass a GkeCluster as the cluster"))
        return Place(project_of(self.project, component), cluster, self.location, zones, account, private)


class NodePoolComponent(Component):
    """What the components of node pools share: size, zones, nodes, capacity mode and upgrades."""

    pool_name: pulumi.Output[str]

    def __init__(self, name: str, args: NodePoolArguments, section: Pool) -> None:
        super().__init__(name, args)
        # No annotations of the class, which would make them outputs.
        self.section: Pool = section
        self.cluster: GkeCluster | None = args.cluster if isinstance(args.cluster, GkeCluster) else None
        # On the pool itself, not only on the component: Pulumi then deletes a removed pool before its dependencies,
        # such as an account that the stack no longer has.
        self._after = args.options(name).depends_on
        title, known = f"{type(self).__name__} {name}", self.cluster.section if self.cluster else None
        if known is not None and known.is_autopilot:
            cause = (
                f"{known.name} is an Autopilot cluster, in which Google creates the nodes. GKE would refuse the pool"
            )
            remedy = "Pass a standard cluster, or let workloads name their accelerator"
            raise Refused(title, Problem("cluster", cause, remedy))
        if not args.is_checked:
            check_alone(title, section, known)

    @property
    def called(self) -> str:
        return self.section.name

    def create_pool(
        self,
        spec: Pool,
        place: Place,
        *,
        name: pulumi.Input[str] | None = None,
        accelerators: "gcp.container.NodePoolNodeConfigArgsDict | None" = None,
        autoscaling: "pulumi.Input[gcp.container.NodePoolAutoscalingArgsDict] | None" = None,
        placement: "gcp.container.NodePoolPlacementPolicyArgsDict | None" = None,
        network_profile: str | None = None,
        networks: Sequence[str] = (),
        replace_on_changes: Sequence[str] = (),
    ) -> "gcp.container.NodePool":
        """The pool as a child of this component.

        Args:
            name: Name in Google Cloud. Default: that of the pool.
            accelerators: Node settings of the accelerators. Default: none.
            autoscaling: Limits of the autoscaler, if the pool grows. Default: those of the whole pool.
            placement: Placement policy of the nodes. Default: none.
            network_profile: Accelerator network profile of the nodes. Default: none.
            networks: VPC networks of the nodes' further NICs, each with a subnetwork of its name. Default: none.
            replace_on_changes: Inputs whose change replaces the pool although the provider plans an update.
        """
        # The provider would move the nodes of a slice or of a network in place, and send GKE's networks with a profile.
        moved = ["nodeLocations"] if spec.in_one_zone else []
        private = ["networkConfig.enablePrivateNodes"] if network_profile else []
        further: list[gcp.container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgsDict] = [
            {"network": network, "subnetwork": network} for network in networks
        ]
        network: gcp.container.NodePoolNetworkConfigArgsDict = {
            **({} if place.private_nodes is None else {"enable_private_nodes": place.private_nodes}),
            **({"accelerator_network_profile": network_profile} if network_profile else {}),
            **({"additional_node_network_configs": further} if further else {}),
        }
        node_pool = gcp.container.NodePool(
            *self.main_child(
                spec.name,
                depends_on=self._after,
                protect=spec.protect or None,
                # The name is taken until the pool is deleted. Undecided, the provider creates first only under another.
                delete_before_replace=None if spec.drains_old_nodes else True,
                ignore_changes=owned_by_others(spec.grows),
                replace_on_changes=[*replace_on_changes, *moved, *private],
            ),
            name=name or spec.name,
            cluster=place.cluster,
            project=place.project,
            location=place.location,
            node_locations=spec.zones or place.cluster_zones,
            node_count=None if spec.grows else spec.fixed_nodes_per_zone,
            initial_node_count=first_size(spec, place.zones_of(spec)) if spec.grows else None,
            autoscaling=(autoscaling or whole_pool(spec)) if spec.grows else None,
            # Set also when off: the provider keeps the current value of omitted fields.
            network_config=network or None,
            node_config={
                "machine_type": spec.node_machine_type,
                "disk_size_gb": spec.disk_size_gb,
                "disk_type": spec.disk_type or boot_disk_type(spec.node_machine_type),
                "labels": spec.node_labels,
                "service_account": place.node_service_account or DEFAULT_ACCOUNT,
                "oauth_scopes": NODE_SCOPES,
                "workload_metadata_config": {"mode": "GKE_METADATA"},
                **(accelerators or {}),
                **capacity(spec),
                **image_streaming(spec),
            },
            placement_policy=placement,
            queued_provisioning={"enabled": True} if spec.capacity.queued_seconds is not None else None,
            management={"auto_repair": spec.repaired, "auto_upgrade": True},
            upgrade_settings=upgrades(spec),
        )
        self.pool_name = node_pool.name
        self.register_outputs({"poolName": self.pool_name})
        return node_pool


def whole_pool(spec: Pool) -> "gcp.container.NodePoolAutoscalingArgsDict":
    """Limits of the whole pool. The API does not accept limits per zone and of the whole pool together.

    No even spread over zones: take accelerators wherever they are available.
    """
    min_nodes, max_nodes = spec.bounds
    return {"total_min_node_count": min_nodes, "total_max_node_count": max_nodes, "location_policy": "ANY"}


def first_size(spec: Pool, zones: pulumi.Output[list[str]]) -> pulumi.Input[int]:
    """Initial nodes per zone of an autoscaled pool: its minimum, rounded up if the maximum allows.

    Flex-start begins with zero nodes.
    """
    min_nodes, max_nodes = spec.bounds
    if spec.elastic or not min_nodes:
        return 0

    def per_zone(names: list[str]) -> int:
        rounded_up = ceil(min_nodes / len(names))
        return rounded_up if rounded_up * len(names) <= max_nodes else min_nodes // len(names)

    return zones.apply(per_zone)


def upgrades(spec: Pool) -> "gcp.container.NodePoolUpgradeSettingsArgsDict | None":
    """Upgrade nodes in place, one by one, if the capacity mode has no extra nodes. Otherwise GKE's default.

    GKE upgrades all nodes of a multi-host TPU slice at once, whatever this says. Flex-start pools get the strategy
    SHORT_LIVED, which the provider can't state: with settings, every update would change them.
    https://github.com/GoogleCloudPlatform/cluster-autoscaler/blob/7d250507339b/pkg/autoprovisioning/injection.go#L1651
    """
    ours = not (spec.elastic or spec.is_one_slice or MODES[spec.capacity.mode].surge)
    return {"max_surge": 0, "max_unavailable": 1} if ours else None


def capacity(spec: Pool) -> "gcp.container.NodePoolNodeConfigArgsDict":
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


def image_streaming(spec: Pool) -> "gcp.container.NodePoolNodeConfigArgsDict":
    """Whether nodes stream images, if the section says so. The provider keeps the current value of an omitted field."""
    return {} if spec.image_streaming is None else {"gcfs_config": {"enabled": spec.image_streaming}}


def owned_by_others(autoscaled: bool) -> list[str]:
    """Fields that GKE changes after this program has written them."""
    # GKE records it for a fixed pool too, and a change would replace the pool (pulumi/pulumi-gcp#412).
    ignored = ["initialNodeCount"]
    if autoscaled:
        ignored.append("nodeCount")  # the autoscaler sets it
    return ignored
