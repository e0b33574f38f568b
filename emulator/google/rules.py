"""Rules of GKE's API beyond types: names, locations, and combinations of fields.

Each rule reads a REST body and yields (Pulumi property, text), with the text of the API or the provider if it is known.
A rule may be stricter than Google's, but never more lenient. A body with an unknown value isn't checked: the engine
checks again before it creates the resource.

Sources: https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters, and the URL
beside a rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Network

from emulator.google.refusals import UNWRITTEN, Problem, Values, bad_request, one_of, resource_labels, value_at
from gke_ai.catalog.fabric.nvlink import has_domain
from gke_ai.catalog.fabric.rdma import DATAPATH, NICS, PROFILE, PROFILE_FAMILIES
from gke_ai.catalog.fabric.topology import can_be_compact
from gke_ai.catalog.machines import zones
from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS, mode_of
from gke_ai.catalog.machines.disks import BOOT_TYPES, boot_disks
from gke_ai.catalog.machines.tpus import VERSIONS, NoSuchSlice, Slice, slice_on
from gke_ai.catalog.machines.types import ATTACHABLE, MACHINES, UnknownMachine, machine
from gke_ai.catalog.project.addresses import MAX_AUTHORIZED_NETWORKS
from gke_ai.catalog.project.identities import pool_name

GKE_VERSION = "1.37.1-gke.2097000"
"""The emulator's only version, on every release channel: GKE has no later patch of its Kubernetes' minor version."""
DEFAULT_MACHINE = "e2-medium"  # https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools
# Shortest and longest life of a node without flex-start:
# https://cloud.google.com/compute/docs/instances/limit-vm-runtime#restrictions
RUN_SECONDS = (30, 120 * 86400)
DISK_TYPES = (
    *("pd-standard", "pd-balanced", "pd-ssd", "pd-extreme"),
    *("hyperdisk-balanced", "hyperdisk-extreme", "hyperdisk-throughput"),
)


# ----------------------------------------------------------------------------------------------------------- clusters
def cluster(inputs: Values, body: Values, project: str, location: str) -> Iterator[Problem]:
    """Checks a cluster in its project and location."""
    yield from _gke_name(body.get("name", ""), "cluster")
    location_problems = list(_location(location))
    yield from location_problems
    yield from resource_labels(body.get("resourceLabels", {}), "resourceLabels")
    autopilot = value_at(body, "autopilot.enabled") is True
    if autopilot and zones.is_zone(location):
        yield "location", bad_request("Autopilot clusters must be regional clusters")
    if inputs.get("nodePools"):
        yield "nodePools", "the emulator doesn't simulate pools inside a Cluster: declare each as a NodePool"
    yield from _control_plane(body)
    # https://cloud.google.com/kubernetes-engine/docs/how-to/dataplane-v2#create-cluster
    datapath = value_at(body, "networkConfig.datapathProvider")
    if value_at(body, "networkConfig.enableMultiNetworking") and datapath != "ADVANCED_DATAPATH":
        yield "enableMultiNetworking", bad_request("Multi-networking requires Dataplane V2.")
    if value_at(body, "networkPolicy.enabled") and datapath == "ADVANCED_DATAPATH":
        text = "Enabling NetworkPolicy for clusters with DatapathProvider=ADVANCED_DATAPATH is not allowed."
        yield "networkPolicy", bad_request(text)
    version = body.get("initialClusterVersion", "latest")
    if version not in ("latest", "-") and not GKE_VERSION.startswith(version):
        yield "minMasterVersion", bad_request(f'Master version "{version}" is unsupported')
    pool = value_at(body, "workloadIdentityConfig.workloadPool")
    if pool is not None and pool != pool_name(project):
        yield (
            "workloadIdentityConfig.workloadPool",
            bad_request(f'Workload Identity Pool "{pool}" is not that of the project, {pool_name(project)}'),
        )
    if not location_problems:
        yield from _node_locations(body.get("locations", []), location)


def new_cluster(inputs: Values, body: Values) -> Iterator[Problem]:
    """Checks the first nodes of a cluster, which an update doesn't send."""
    if value_at(body, "autopilot.enabled") is True:
        if "nodeConfig" in inputs:
            text = "Autopilot clusters do not support setting node_config: Google sizes the nodes"
            yield "nodeConfig", bad_request(text)
        return
    if body.get("initialNodeCount", 0) < 1:
        yield "initialNodeCount", bad_request("Cluster.initial_node_count must be greater than zero.")
    if not inputs.get("removeDefaultNodePool"):
        yield from _node_config(body.get("nodeConfig", {}), "nodeConfig")


def _control_plane(body: Values) -> Iterator[Problem]:
    """Access to the control plane: https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation"""
    endpoints = body.get("controlPlaneEndpointsConfig", {})
    dns_external = value_at(endpoints, "dnsEndpointConfig.allowExternalTraffic")
    if value_at(endpoints, "ipEndpointsConfig.enabled") is False and not dns_external:
        text = "The IP endpoints can only be disabled where the DNS endpoint allows external traffic."
        yield "controlPlaneEndpointsConfig", bad_request(text)
    networks = value_at(endpoints, "ipEndpointsConfig.authorizedNetworksConfig.cidrBlocks") or []
    for index, network in enumerate(networks):
        try:
            IPv4Network(network.get("cidrBlock", ""))
        except ValueError:
            path = f"masterAuthorizedNetworksConfig.cidrBlocks[{index}].cidrBlock"
            yield path, bad_request(f'Invalid authorized network "{network.get("cidrBlock")}"')
    if len(networks) > MAX_AUTHORIZED_NETWORKS:
        text = f"At most {MAX_AUTHORIZED_NETWORKS} authorized networks"
        yield "masterAuthorizedNetworksConfig.cidrBlocks", bad_request(text)


def node_pool(inputs: Values, body: Values, location: str) -> Iterator[Problem]:
    """Checks a node pool of a cluster at `location`."""
    yield from _gke_name(body.get("name", ""), "node_pool")
    location_problems = list(_location(location))
    yield from location_problems or _node_locations(body.get("locations", []), location)
    config: Values = body.get("config", {})
    yield from _node_config(config, "nodeConfig")
    yield from _autoscaling(body)
    # The provider refuses GKE's own strategy of flex-start pools, SHORT_LIVED.
    yield from one_of(value_at(inputs, "upgradeSettings.strategy"), ("SURGE", "BLUE_GREEN"), "upgradeSettings.strategy")
    if config.get("machineType", DEFAULT_MACHINE) in MACHINES and not location_problems:
        pool_zones = body.get("locations") or list(zones.node_zones(location))
        yield from _tpus(inputs, body, pool_zones)
        yield from _compact(body, pool_zones)
        yield from _nvlink(body, pool_zones)
        yield from _network_profile(body, pool_zones)
    if config.get("flexStart"):
        yield from _flex_start(body)
    elif value_at(body, "queuedProvisioning.enabled"):
        yield from _elastic(body, "Queued provisioning")
    if (duration := config.get("maxRunDuration")) is not None:
        seconds = float(str(duration).rstrip("s"))
        low, high = (MIN_RUN_SECONDS, MAX_RUN_SECONDS) if config.get("flexStart") else RUN_SECONDS
        if not low <= seconds <= high:
            yield "nodeConfig.maxRunDuration", bad_request(f"max_run_duration must be from {low}s to {high}s")


def new_node_pool(inputs: Values, body: Values) -> Iterator[Problem]:
    """Checks the first size of a node pool.

    An update doesn't send it, and its inputs may have the size of earlier settings: the program ignores changes of it.
    """
    name, config, initial = body.get("name"), body.get("config", {}), body.get("initialNodeCount", 0)
    if "initialNodeCount" in inputs and "nodeCount" in inputs:
        yield "nodeCount", f"Cannot set both initial_node_count and node_count on node pool {name}"
    if "autoscaling" in body and "nodeCount" in inputs:
        # https://www.pulumi.com/registry/packages/gcp/api-docs/container/nodepool/#nodecount_python
        yield "nodeCount", "nodeCount must not be used alongside autoscaling: the autoscaler owns the count"
    elastic = "Flex start" if config.get("flexStart") else "Queued provisioning"
    if initial and (config.get("flexStart") or value_at(body, "queuedProvisioning.enabled")):
        yield "initialNodeCount", bad_request(f"{elastic} node pools require initial node count to be set to 0.")
    topology = value_at(body, "placementPolicy.tpuTopology")
    if initial and "autoscaling" in body and topology is not None:
        with suppress(NoSuchSlice, UnknownMachine):
            yield from _gang(
                initial, slice_on(config.get("machineType", DEFAULT_MACHINE), topology), "initialNodeCount"
            )


def changed_node_pool(old: Values, new: Values) -> Iterator[Problem]:
    """Checks an update of a node pool. `new` has the values that the provider keeps."""
    labels = "nodeConfig.labels"
    if value_at(old, labels) and not value_at(new, labels):
        # https://github.com/hashicorp/terraform-provider-google/issues/15848: the request names the pool alone.
        yield labels, bad_request("At least one of ['node_version', 'locations', 'labels', …] must be specified.")
    yield from _boot_disk(value_at(new, "nodeConfig") or {}, "nodeConfig")
    # Not documented, so refused: a move of nodes that are placed together, and the networks of a profile beside it.
    profile = value_at(new, "networkConfig.acceleratorNetworkProfile")
    in_block = "/reservationBlocks/" in str(value_at(new, "nodeConfig.reservationAffinity"))
    moved = old.get("nodeLocations") != new.get("nodeLocations")
    if moved and (profile or in_block or value_at(new, "placementPolicy")):
        yield "nodeLocations", bad_request("Nodes that are placed together can't move to another zone")
    private = "networkConfig.enablePrivateNodes"
    if profile and value_at(old, private) != value_at(new, private):
        yield private, bad_request("Accelerator network profile and additional node networks can't be used together")


def _boot_disk(config: Values, path: str) -> Iterator[Problem]:
    """https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support"""
    disk = config.get("diskType")
    if disk in BOOT_TYPES and disk not in boot_disks(config.get("machineType", DEFAULT_MACHINE)):
        yield f"{path}.diskType", bad_request(f"[{disk}] features are not compatible for creating instance.")


def _autoscaling(body: Values) -> Iterator[Problem]:
    if (scaling := body.get("autoscaling")) is None:
        return
    per_zone = scaling["minNodeCount"], scaling["maxNodeCount"]
    total = scaling["totalMinNodeCount"], scaling["totalMaxNodeCount"]
    if any(per_zone) and any(total):
        yield (
            "autoscaling",
            bad_request(
                "Per-zone limits (min_node_count, max_node_count) and total limits (total_min_node_count, "
                "total_max_node_count) can't be used together"
            ),
        )
        return
    low, high = total if any(total) else per_zone
    if high < 1:
        yield "autoscaling", bad_request("The maximum node count of an autoscaled node pool must be greater than zero")
    elif low > high:
        yield "autoscaling", bad_request(f"The minimum node count {low} is greater than the maximum node count {high}")


def _compact(body: Values, pool_zones: list[str]) -> Iterator[Problem]:
    """Compact placement of nodes without TPUs. The texts are not Google's, which are unknown.

    https://cloud.google.com/kubernetes-engine/docs/how-to/compact-placement
    """
    config, placement = body.get("config", {}), body.get("placementPolicy", {})
    name = config.get("machineType", DEFAULT_MACHINE)
    if placement.get("type") != "COMPACT" or machine(name).tpu is not None:
        return
    if len(pool_zones) > 1:
        text = f"Compact placement needs one zone, not {', '.join(pool_zones)}"
        yield "placementPolicy.type", bad_request(text)
    elif not can_be_compact(name, capacity_of(body)):
        text = f"Compact placement is not supported for {name} with this capacity"
        yield "placementPolicy.type", bad_request(text)


def _nvlink(body: Values, pool_zones: list[str]) -> Iterator[Problem]:
    """A workload policy for nodes of one NVLink domain. The texts are not Google's, which are unknown."""
    name, placement = body.get("config", {}).get("machineType", DEFAULT_MACHINE), body.get("placementPolicy", {})
    if not has_domain(name):
        return
    if "policyName" not in placement or "type" in placement:
        yield "placementPolicy", bad_request(f"Machine type {name} needs a workload policy")
    if len(pool_zones) > 1:
        yield "nodeLocations", bad_request(f"Nodes of {name} are in one zone, not in {', '.join(pool_zones)}")


def _network_profile(body: Values, pool_zones: list[str]) -> Iterator[Problem]:
    """An accelerator network profile. The texts are not Google's, which are unknown.

    https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/develop/modules/compute/gke-node-pool/main.tf
    """
    network, path = body.get("networkConfig", {}), "networkConfig.acceleratorNetworkProfile"
    profile, name = network.get("acceleratorNetworkProfile"), body.get("config", {}).get("machineType", DEFAULT_MACHINE)
    if not profile:
        return
    if profile != PROFILE:
        yield path, bad_request(f'Accelerator network profile "{profile}" does not exist')
    elif name not in NICS and machine(name).family not in PROFILE_FAMILIES:
        yield path, bad_request(f"Accelerator network profile is not supported for {name}")
    elif len(pool_zones) > 1:
        yield path, bad_request(f"An accelerator network profile needs one zone, not {', '.join(pool_zones)}")
    elif network.get("additionalNodeNetworkConfigs"):
        yield path, bad_request("Accelerator network profile and additional node networks can't be used together")


def has_networks(cluster: Values) -> bool:
    """Whether a cluster with these inputs supports accelerator network profiles."""
    return bool(cluster.get("enableAutopilot")) or cluster.get("datapathProvider") == DATAPATH


def capacity_of(body: Values) -> str:
    """The capacity mode of a node pool."""
    return mode_of(
        queued=value_at(body, "queuedProvisioning.enabled"),
        flex_start=value_at(body, "config.flexStart"),
        spot=bool(value_at(body, "config.spot") or value_at(body, "config.preemptible")),
        reservation=value_at(body, "config.reservationAffinity.consumeReservationType") == "SPECIFIC_RESERVATION",
    )


def _tpus(inputs: Values, body: Values, pool_zones: list[str]) -> Iterator[Problem]:
    """TPU slices of a pool: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""
    config, placement = body.get("config", {}), body.get("placementPolicy", {})
    machine_type, topology = machine(config.get("machineType", DEFAULT_MACHINE)), placement.get("tpuTopology")
    name = machine_type.name
    if machine_type.tpu is None:
        if topology is not None:
            yield "placementPolicy.tpuTopology", bad_request(f"Machine type {name} has no TPU, and no topology")
        return
    try:
        tpu = slice_on(name, topology)
    except NoSuchSlice as error:
        choices = ", ".join(error.choices[:20])
        yield (
            "placementPolicy.tpuTopology",
            bad_request(f'TPU topology "{topology}" is invalid: it is one of {choices}'),
        )
        return
    offered = VERSIONS[tpu.version].flex_start_zones  # none are listed for tpu7x
    if config.get("flexStart") and offered and not set(pool_zones) <= set(offered):
        text = f"Flex start is not available for {name} in {', '.join(pool_zones)}"
        yield "nodeConfig.flexStart", bad_request(text)
    if tpu.multi_host:
        yield from _multi_host(inputs, body, tpu, pool_zones)
    elif topology is not None:
        text = (
            "TPU topology can't be specified with single-host TPU slice pool; please remove the tpu_topology from the "
        )
        yield "placementPolicy.tpuTopology", bad_request(f"{text}node pool creation request")


def _multi_host(inputs: Values, body: Values, tpu: Slice, pool_zones: list[str]) -> Iterator[Problem]:
    """A multi-host slice: a group of machines that are created and deleted together."""
    placement, scaling = body["placementPolicy"], body.get("autoscaling")
    if len(pool_zones) > 1:
        yield "nodeLocations", bad_request(f"A multi-host TPU slice is in one zone, not in {', '.join(pool_zones)}")
    if scaling is not None and scaling["maxNodeCount"] != tpu.hosts:
        text = f"Maximum node count {scaling['maxNodeCount']} is not a valid size of TPU pod slice with topology "
        yield "autoscaling", bad_request(f'{text}"{tpu.topology}"')
    elif scaling is not None and scaling["minNodeCount"] not in (0, tpu.hosts):
        text = f"Minimum node count {scaling['minNodeCount']} is not a valid size of TPU pod slice with topology "
        yield "autoscaling", bad_request(f'{text}"{tpu.topology}"')
    if scaling is None:
        yield from _gang(inputs.get("nodeCount", body.get("initialNodeCount", 0)), tpu, "nodeCount")
    if VERSIONS[tpu.version].workload_policy and ("policyName" not in placement or "type" in placement):
        text = (
            f"Creation of a managed instance group with {tpu.machine_type} machine type with placement policy is not "
        )
        yield "placementPolicy", bad_request(f"{text}supported. Use workload policy instead.")


def _gang(size: int, tpu: Slice, path: str) -> Iterator[Problem]:
    if size != tpu.hosts:
        text = f"Requested invalid target size '{size}' for a Managed Instance Group in the gang mode of size "
        yield path, bad_request(f"{text}'{tpu.hosts}'.")


def _elastic(body: Values, mode: str) -> Iterator[Problem]:
    """Pools of Dynamic Workload Scheduler: https://cloud.google.com/kubernetes-engine/docs/concepts/dws"""
    if not value_at(body, "autoscaling.enabled"):
        yield "autoscaling", bad_request(f"{mode} node pools require autoscaling enabled.")
    if value_at(body, "config.reservationAffinity.consumeReservationType") != "NO_RESERVATION":
        yield "nodeConfig.reservationAffinity", bad_request(f"{mode.lower()} node pools don't support reservations")


def _flex_start(body: Values) -> Iterator[Problem]:
    yield from _elastic(body, "Flex start")
    for other in ("spot", "preemptible"):
        if value_at(body, f"config.{other}"):
            yield f"nodeConfig.{other}", bad_request(f"Flex start node pools can't be {other}.")


def _node_config(config: Values, path: str) -> Iterator[Problem]:
    name = config.get("machineType", DEFAULT_MACHINE)
    accelerators = config.get("accelerators", [])
    try:
        machine_type = machine(name)
    except UnknownMachine as unknown:
        near = f" Did you mean {' or '.join(unknown.nearest)}?" if unknown.nearest else ""
        text = f'Machine type "{name}" does not exist.{near}'
        if "machineType" not in config:
            text = f"no machine type is set, and the emulator doesn't have {name}, GKE's default"
        yield f"{path}.machineType", bad_request(text)
    else:
        accelerators_path, built_in = f"{path}.guestAccelerators", (machine_type.gpu, machine_type.gpus)
        has_gpus = f"Machine type {name} has {machine_type.gpus} {machine_type.gpu}"
        if machine_type.gpu is not None and not accelerators:
            yield accelerators_path, bad_request(f"{has_gpus}: an accelerator must be specified")
        for index, accelerator in enumerate(accelerators):
            gpu, gpus = accelerator.get("acceleratorType"), int(accelerator.get("acceleratorCount", "0"))
            if machine_type.gpu is not None and (gpu, gpus) != built_in:
                yield f"{accelerators_path}[{index}]", bad_request(f"{has_gpus}, not {gpus} {gpu}")
            elif machine_type.gpu is None and gpus not in ATTACHABLE.get(name, {}).get(gpu, ()):
                text = f"{gpus} accelerators of type {gpu} can't be attached to machine type {name}"
                yield f"{accelerators_path}[{index}]", bad_request(text)
    if config.get("diskSizeGb", 10) < 10:
        yield f"{path}.diskSizeGb", bad_request("The boot disk must have at least 10 GB")
    if config.get("diskType", "pd-balanced") not in DISK_TYPES:
        yield f"{path}.diskType", bad_request(f'Disk type "{config["diskType"]}" does not exist')
    yield from _boot_disk(config, path)
    for key, value in config.get("labels", {}).items():
        # https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
        prefix, _, label = key.rpartition("/")
        if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label) or len(prefix) > 253:
            yield f'{path}.labels["{key}"]', bad_request(f'Invalid label key "{key}"')
        if not value:
            yield f'{path}.labels["{key}"]', UNWRITTEN
        elif not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", value):
            yield f'{path}.labels["{key}"]', bad_request(f'Invalid label value "{value}"')
        if re.fullmatch(r"(.*\.)?(kubernetes|k8s)\.io", prefix):
            yield f'{path}.labels["{key}"]', bad_request(f'Label "{key}" is reserved for Kubernetes')


def _gke_name(name: str, resource: str) -> Iterator[Problem]:
    if not re.fullmatch(r"[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?", name):
        text = (
            f'Invalid value for field "{resource}.name": "{name}". '
            "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?)'"
        )
        yield "name", bad_request(text)


def _location(location: str) -> Iterator[Problem]:
    region = location.rpartition("-")[0] if zones.is_zone(location) else location
    if region not in zones.ZONES or (zones.is_zone(location) and location not in zones.ZONES[region]):
        yield "location", bad_request(f'Location "{location}" does not exist')


def _node_locations(wanted: list[str], location: str) -> Iterator[Problem]:
    region = location.rpartition("-")[0] if zones.is_zone(location) else location
    for index, zone in enumerate(wanted):
        if zone not in zones.ZONES[region] and not (zones.is_ai_zone(zone) and zones.region_of(zone) == region):
            text = f'Zone "{zone}" is not in the cluster\'s region {region}, which has {", ".join(zones.ZONES[region])}'
            yield f"nodeLocations[{index}]", bad_request(text)
