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
from gke_ai.components.cluster.cluster import NODE_SCOPES
from gke_ai.components.pools.draining import drain_old_pool
from gke_ai.components.pools.node_pool import NodePoolComponent, Place, capacity
from gke_ai.settings.model import GpuPool

# https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools
DRIVERS = {"default": "DEFAULT", "latest": "LATEST", "disabled": "INSTALLATION_DISABLED"}
EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}


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

    Refused: ValueError for a machine without a GPU if `accelerator` is omitted; by the API, and earlier by
    `gke_ai.settings.rules`, settings that the machine, the zone or the mode doesn't allow.

    Sources: https://cloud.google.com/kubernetes-engine/docs/how-to/gpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/dws-flex-start-training,
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest,
    https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations,
    https://cloud.google.com/kubernetes-engine/docs/how-to/compact-placement
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
        networks: Sequence[str] = (),
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
            networks: VPC networks of the nodes' further NICs, each with a subnetwork of its name: those of a
                `GpuDirectNetworks`. Default: none.
        """
        super().__init__(name, opts)
        place = Place(project, cluster, location, cluster_zones, node_service_account, private_nodes)
        zones = place.zones_of(args) if args.in_one_zone else pulumi.Output.from_input([""])
        domain = self.nvlink_domain(args, project, location, cluster) if has_domain(args.machine_type) else None
        node_pool = self.create_pool(
            args,
            opts,
            place,
            name=zones.apply(lambda names: f"{args.name}-{digits(args, place, names[0])}")
            if args.create_before_delete
            else None,
            accelerators={
                "guest_accelerators": guest_accelerators(args),
                # GKE adds it only if a pool without GPUs existed before. Declared, the order does not matter.
                "taints": [{"key": GPU_TAINT.key, "value": GPU_TAINT.value, "effect": EFFECTS[GPU_TAINT.effect]}],
                **local_ssds(args),
                **secondary_boot_disk(args),
                **huge_pages(args),
            },
            placement=domain or ({"type": "COMPACT"} if args.compact_placement else None),
            network_profile=PROFILE if args.fabric.nics else None,
            networks=networks,
        )
        # If the drain fails, the program fails and Pulumi keeps the old pool.
        if args.create_before_delete:
            drain_old_pool(args.name, node_pool, kubeconfig)

    def nvlink_domain(
        self, spec: GpuPool, project: str, location: str, cluster: pulumi.Input[str]
    ) -> gcp.container.NodePoolPlacementPolicyArgsDict:
        """The placement of nodes in one NVLink domain, with its workload policy.

        A policy belongs to a region, so a hash of the cluster ends its name.
        """
        name = pulumi.Output.from_input(cluster).apply(
            lambda cluster: f"{spec.name}-{hashlib.sha256(f'{location}/{cluster}'.encode()).hexdigest()[:6]}"
        )
        policy = gcp.compute.ResourcePolicy(
            # The provider would rename the policy in place.
            *self.child(spec.name, replace_on_changes=["name"]),
            name=name,
            project=project,
            region=region_of(location),
            workload_policy={"type": POLICY_TYPE, "accelerator_topology": TOPOLOGY},
        )
        # As for TPUs, an empty type is not sent.
        return {"type": "", "policy_name": policy.name}


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


def guest_accelerators(spec: GpuPool) -> list[gcp.container.NodePoolNodeConfigGuestAcceleratorArgsDict]:
    """The GPUs of a node, with their driver."""
    accelerator, count = spec.gpus
    driver: gcp.container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgsDict = {
        "gpu_driver_version": DRIVERS[spec.driver]
    }
    return [{"type": accelerator, "count": count, "gpu_driver_installation_config": driver}]


def local_ssds(spec: GpuPool) -> gcp.container.NodePoolNodeConfigArgsDict:
    """The machine's built-in Local SSDs as ephemeral storage of the nodes.

    This is GKE's default for such machines. Set explicitly, so the pool has what the quota assumes.
    https://cloud.google.com/kubernetes-engine/docs/concepts/local-ssd
    """
    count = machine(spec.machine_type).local_ssds
    return {"ephemeral_storage_local_ssd_config": {"local_ssd_count": count}} if count else {}


def huge_pages(spec: GpuPool) -> gcp.container.NodePoolNodeConfigArgsDict:
    """The memory that a bare-metal node sets aside for the agent of its NICs."""
    pages: gcp.container.NodePoolNodeConfigArgsDict = {
        "linux_node_config": {"hugepages_config": {"hugepage_size2m": HUGE_PAGES}}
    }
    return pages if is_bare_metal(spec.machine_type) else {}


def secondary_boot_disk(spec: GpuPool) -> gcp.container.NodePoolNodeConfigArgsDict:
    """The disk with the node's preloaded container images.

    https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading
    """
    if spec.secondary_boot_disk is None:
        return {}
    return {"secondary_boot_disks": [{"disk_image": spec.secondary_boot_disk, "mode": "CONTAINER_IMAGE_CACHE"}]}
