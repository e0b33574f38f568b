"""A node pool with GPUs, in every capacity mode."""

import hashlib
import json
from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

from gke_ai.catalog.fabric.nvlink import POLICY_TYPE, TOPOLOGY, has_domain
from gke_ai.catalog.fabric.rdma import PROFILE
from gke_ai.catalog.machines.metal import HUGE_PAGES
from gke_ai.catalog.machines.types import is_bare_metal, machine
from gke_ai.catalog.machines.zones import region_of
from gke_ai.catalog.nodes.shape import GPU_TAINT
from gke_ai.components.arguments import Input, takes
from gke_ai.components.cluster.cluster import NODE_SCOPES
from gke_ai.components.cluster.connection import kubeconfig_in
from gke_ai.components.pools.draining import drain_old_pool
from gke_ai.components.pools.gpudirect import GpuDirectNetworks
from gke_ai.components.pools.node_pool import NodePoolArguments, NodePoolComponent, Place, capacity
from gke_ai.settings.model import GpuPool

# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools
DRIVERS = {"default": "DEFAULT", "latest": "LATEST", "disabled": "INSTALLATION_DISABLED"}
EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}


# No hook scales it: docs/decisions/0007-outside-the-graph.md
WITH_NODES = (
    "A deletion of pool {} may not end while it has nodes: https://github.com/llm-d/llm-d/issues/2379. `gke-ai up` and "
    "`gke-ai down` scale it to zero nodes first. Before a plain `pulumi up` or `pulumi destroy`, do so yourself."
)


class GpuNodePoolArguments(NodePoolArguments, GpuPool):
    secondary_boot_disk: Input[str] | None = None  # type: ignore[assignment]
    kubeconfig: Input[str] | None = None
    """With `create_before_delete`: the cluster in which pods are evicted from the old pool. Default: that of `cluster`;
    beside a name of a cluster, GKE drains the pool and ignores disruption budgets."""
    networks: GpuDirectNetworks | Sequence[str] = ()
    """VPC networks of the nodes' further NICs, each with a subnetwork of its name: a `GpuDirectNetworks`, or the names.
    Default: none."""


class GpuNodePool(NodePoolComponent):
    """A node pool with NVIDIA GPUs in a Standard cluster: driver, zones, fixed size or autoscaling, capacity mode.

    Flex-start, queued or not, implies autoscaling from zero, no reservation, and no auto-repair.

    With `create_before_delete`, a change of the nodes (machine, GPUs, driver, boot disk, capacity, placement, network,
    account, and the zone of a pool that must be in one) creates a second pool in Google Cloud, named `NAME-` and a hash
    of six digits. The program then drains the old pool under disruption budgets, for up to an hour, and Pulumi deletes
    it. A server with two replicas and a budget always keeps one. You pay for both pools meanwhile, and quota and
    reservations must have room for both. An evicted run restarts, as after any loss of a node; so does a server with
    one replica. If the name does not change, the old pool is deleted first. Pods select the pool by its label
    `gke-ai/pool=NAME`, which both pools have: if the pool is autoscaled, the autoscaler may add nodes to the old pool
    for evicted pods, and the program drains those too. If the drain fails, both pools stay. Run `up` again, or return
    to the old settings with one difference, such as a boot disk larger by one GB: the old pool still has its name.

    Turning it on for an existing pool is such a change too. Runs that Kueue has admitted still select the pool's
    earlier name, so turn it on while no run uses the pool. When you turn it off, Pulumi deletes the pool first, as in
    every replacement without it. Pulumi refuses to replace a pool with `protect`: apply `protect: false` first, then
    the change, then protect it again.

    The nodes of A4X and A4X Max form one NVLink domain, in which a workload policy of the pool places them.

    Refused: settings that the machine, the zone or the mode doesn't allow.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest,
    https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations,
    https://cloud.google.com/kubernetes-engine/docs/how-to/compact-placement

    Example:
        GpuNodePool(
            "spot",
            cluster=cluster,
            machine_type="g2-standard-24",
            capacity=Spot(mode="spot"),
            autoscaling=Autoscaling(max_nodes=4),
        )
    """

    pool_name: pulumi.Output[str]
    """Name in Google Cloud."""

    @takes(GpuNodePoolArguments)
    def __init__(self, name: str, args: GpuNodePoolArguments) -> None:
        spec, place = args.section(GpuPool), args.place(f"GpuNodePool {name}")
        super().__init__(name, args, spec)
        zones = place.zones_of(spec) if spec.in_one_zone else pulumi.Output.from_input([""])
        domain = self.nvlink_domain(spec, place) if has_domain(spec.machine_type) else None
        known = pulumi.Output.all(zones, place.node_service_account)
        node_pool = self.create_pool(
            spec,
            place,
            name=known.apply(
                lambda known: f"{spec.name}-{digits(spec, place._replace(node_service_account=known[1]), known[0][0])}"
            )
            if spec.create_before_delete
            else None,
            accelerators={
                "guest_accelerators": guest_accelerators(spec),
                # GKE adds it only if a pool without GPUs existed before. Declared, the order does not matter.
                "taints": [{"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": EFFECTS[GPU_TAINT.effect]}],
                **local_ssds(spec),
                **secondary_boot_disk(spec),
                **huge_pages(spec),
            },
            placement=domain or ({"type": "COMPACT"} if spec.compact_placement else None),
            network_profile=PROFILE if spec.fabric.nics else None,
            networks=networks_of(spec, args.networks),
        )
        if spec.fabric.nics and pulumi.runtime.is_dry_run():
            pulumi.log.info(WITH_NODES.format(spec.name), self)
        # If the drain fails, the program fails and Pulumi keeps the old pool.
        if spec.create_before_delete:
            drain_old_pool(spec.name, node_pool, kubeconfig_in(args.kubeconfig, self.cluster))

    def nvlink_domain(self, spec: GpuPool, place: Place) -> "gcp.container.NodePoolPlacementPolicyArgsDict":
        """The placement of nodes in one NVLink domain, with its workload policy.

        A policy belongs to a region, so a hash of the cluster ends its name.
        """
        name = pulumi.Output.from_input(place.cluster).apply(
            lambda cluster: f"{spec.name}-{hashlib.sha256(f'{place.location}/{cluster}'.encode()).hexdigest()[:6]}"
        )
        policy = gcp.compute.ResourcePolicy(
            # The provider would rename the policy in place.
            *self.child(spec.name, replace_on_changes=["name"]),
            name=name,
            project=place.project,
            region=region_of(place.location),
            workload_policy={"type": POLICY_TYPE, "accelerator_topology": TOPOLOGY},
        )
        # As for TPUs, an empty type is not sent.
        return {"type": "", "policy_name": policy.name}


def networks_of(spec: GpuPool, networks: GpuDirectNetworks | Sequence[str]) -> Sequence[str]:
    """The networks of the nodes' further NICs: as many of shared ones as the machine uses."""
    if not isinstance(networks, GpuDirectNetworks):
        return networks
    technology = spec.fabric.technology
    return networks.networks[: technology.networks] if technology else []


def digits(spec: GpuPool, place: Place, zone: str) -> str:
    """Six digits that change whenever the nodes must be replaced. `zone` is that of a pool that must be in one.

    Unset settings do not count, nor do the Local SSDs, which the machine type decides.
    """
    nodes: gcp.container.NodePoolNodeConfigArgsDict = {
        "machine_type": spec.machine_type,
        "disk_size_gb": spec.disk_size_gb,
        "disk_type": spec.disk_type,
        "service_account": place.node_service_account,
        "oauth_scopes": NODE_SCOPES,
        "guest_accelerators": guest_accelerators(spec),
        **secondary_boot_disk(spec),
        **capacity(spec),
    }
    placement = {"placement": "COMPACT"} if spec.compact_placement else {}
    placement |= {"zone": zone} if zone else {}
    network = {"network": f"{PROFILE}, private: {place.private_nodes}"} if spec.fabric.nics else {}
    if technology := spec.fabric.technology:
        network = {"network": technology.name}
    stated = {key: value for key, value in nodes.items() if value is not None} | placement | network
    return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:6]


def guest_accelerators(spec: GpuPool) -> "list[gcp.container.NodePoolNodeConfigGuestAcceleratorArgsDict]":
    """The GPUs of a node, with their driver."""
    accelerator, count = spec.gpus
    driver: gcp.container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgsDict = {
        "gpu_driver_version": DRIVERS[spec.driver]
    }
    return [{"type": accelerator, "count": count, "gpu_driver_installation_config": driver}]


def local_ssds(spec: GpuPool) -> "gcp.container.NodePoolNodeConfigArgsDict":
    """The machine's built-in Local SSDs as ephemeral storage of the nodes.

    This is GKE's default for such machines. Set explicitly, so the pool has what the quota assumes.
    https://cloud.google.com/kubernetes-engine/docs/concepts/local-ssd
    """
    count = machine(spec.machine_type).local_ssds
    return {"ephemeral_storage_local_ssd_config": {"local_ssd_count": count}} if count else {}


def huge_pages(spec: GpuPool) -> "gcp.container.NodePoolNodeConfigArgsDict":
    """The memory that a bare-metal node sets aside for the agent of its NICs."""
    pages: gcp.container.NodePoolNodeConfigArgsDict = {
        "linux_node_config": {"hugepages_config": {"hugepage_size2m": HUGE_PAGES}}
    }
    return pages if is_bare_metal(spec.machine_type) else {}


def secondary_boot_disk(spec: GpuPool) -> "gcp.container.NodePoolNodeConfigArgsDict":
    """The disk with the node's preloaded container images.

    https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading
    """
    if spec.secondary_boot_disk is None:
        return {}
    return {"secondary_boot_disks": [{"disk_image": spec.secondary_boot_disk, "mode": "CONTAINER_IMAGE_CACHE"}]}
