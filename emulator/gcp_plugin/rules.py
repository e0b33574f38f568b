"""What Google's API refuses beyond types: names, places, and what doesn't go together.

Each check reads a REST body and gives (Pulumi property, text), the text as the API or the provider words it where that
is known. A rule may be stricter than Google's, never more lenient. A body with a value that isn't known yet isn't
checked: the engine asks again before it creates.

Sources: https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters and, for single
rules, the page named beside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Network
from typing import Any

from catalog import zones
from catalog.addresses import MAX_AUTHORIZED_NETWORKS
from catalog.capacity import MAX_RUN_SECONDS, MIN_RUN_SECONDS
from catalog.machines import ATTACHABLE, MACHINES, UnknownMachine, boot_disk_type, machine
from catalog.tpus import VERSIONS, NoSuchSlice, Slice, slice_on
from catalog.workload_identity import pool_name

Problem = tuple[str, str]
Values = Mapping[str, Any]

GKE_VERSION = "1.36.1-gke.1027000"
"""The one version of the emulator, on every release channel: that of its Kubernetes binaries."""
DEFAULT_MACHINE = "e2-medium"  # https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools
DISK_TYPES = (
    "pd-standard",
    "pd-balanced",
    "pd-ssd",
    "pd-extreme",
    "hyperdisk-balanced",
    "hyperdisk-extreme",
    "hyperdisk-throughput",
)
# https://cloud.google.com/storage/docs/access-control/iam-roles
BUCKET_ROLES = frozenset(
    f"roles/storage.{role}"
    for role in (
        "admin",
        "bucketViewer",
        "expressModeServiceInput",
        "expressModeServiceOutput",
        "folderAdmin",
        "insightsCollectorService",
        "legacyBucketOwner",
        "legacyBucketReader",
        "legacyBucketWriter",
        "legacyObjectOwner",
        "legacyObjectReader",
        "objectAdmin",
        "objectCreator",
        "objectUser",
        "objectViewer",
    )
)
_STORAGE_CLASSES = (
    "STANDARD",
    "NEARLINE",
    "COLDLINE",
    "ARCHIVE",
    "MULTI_REGIONAL",
    "REGIONAL",
    "DURABLE_REDUCED_AVAILABILITY",
)
_LIFECYCLE_ACTIONS = ("Delete", "SetStorageClass", "AbortIncompleteMultipartUpload")


def bad_request(text: str) -> str:
    """A refusal in the provider's form."""
    return f"googleapi: Error 400: {text}, badRequest"


# ----------------------------------------------------------------------------------------------------------- clusters
def cluster(inputs: Values, body: Values, project: str, location: str) -> Iterator[Problem]:
    """A cluster, in its project and place."""
    yield from _gke_name(body.get("name", ""), "cluster")
    placed = list(_location(location))
    yield from placed
    yield from _resource_labels(body.get("resourceLabels", {}), "resourceLabels")
    autopilot = _at(body, "autopilot.enabled") is True
    if autopilot:
        if zones.is_zone(location):
            yield "location", bad_request("Autopilot clusters must be regional clusters")
        if "nodeConfig" in inputs:
            yield (
                "nodeConfig",
                bad_request("Autopilot clusters do not support setting node_config: Google sizes the nodes"),
            )
    elif body.get("initialNodeCount", 0) < 1:
        yield "initialNodeCount", bad_request("Cluster.initial_node_count must be greater than zero.")
    if inputs.get("nodePools"):
        yield "nodePools", "pools inside a Cluster are not simulated: declare each as a NodePool"
    yield from _control_plane(body)
    # https://cloud.google.com/kubernetes-engine/docs/how-to/dataplane-v2#create-cluster
    if _at(body, "networkPolicy.enabled") and _at(body, "networkConfig.datapathProvider") == "ADVANCED_DATAPATH":
        text = "Enabling NetworkPolicy for clusters with DatapathProvider=ADVANCED_DATAPATH is not allowed."
        yield "networkPolicy", bad_request(text)
    wanted = body.get("initialClusterVersion", "latest")
    if wanted not in ("latest", "-") and not GKE_VERSION.startswith(wanted):
        yield "minMasterVersion", bad_request(f'Master version "{wanted}" is unsupported')
    pool = _at(body, "workloadIdentityConfig.workloadPool")
    if pool is not None and pool != pool_name(project):
        yield (
            "workloadIdentityConfig.workloadPool",
            bad_request(f'Workload Identity Pool "{pool}" is not that of the project, {pool_name(project)}'),
        )
    if not placed:
        yield from _node_locations(body.get("locations", []), location)
        if not autopilot and not inputs.get("removeDefaultNodePool"):
            yield from _node_config(body.get("nodeConfig", {}), "nodeConfig")


def _control_plane(body: Values) -> Iterator[Problem]:
    """Ways to the control plane: https://cloud.google.com/kubernetes-engine/docs/concepts/network-isolation"""
    ways = body.get("controlPlaneEndpointsConfig", {})
    by_name, by_address = _at(ways, "dnsEndpointConfig.allowExternalTraffic"), _at(ways, "ipEndpointsConfig.enabled")
    if by_address is False and not by_name:
        text = "The IP endpoints can only be disabled where the DNS endpoint allows external traffic."
        yield "controlPlaneEndpointsConfig", bad_request(text)
    networks = _at(ways, "ipEndpointsConfig.authorizedNetworksConfig.cidrBlocks") or []
    for index, one in enumerate(networks):
        try:
            IPv4Network(one.get("cidrBlock", ""))
        except ValueError:
            path = f"masterAuthorizedNetworksConfig.cidrBlocks[{index}].cidrBlock"
            yield path, bad_request(f'Invalid authorized network "{one.get("cidrBlock")}"')
    if len(networks) > MAX_AUTHORIZED_NETWORKS:
        text = f"At most {MAX_AUTHORIZED_NETWORKS} authorized networks"
        yield "masterAuthorizedNetworksConfig.cidrBlocks", bad_request(text)


def node_pool(inputs: Values, body: Values, location: str) -> Iterator[Problem]:
    """A node pool of a cluster at `location`."""
    yield from _gke_name(body.get("name", ""), "node_pool")
    placed = list(_location(location))
    yield from placed or _node_locations(body.get("locations", []), location)
    config: Values = body.get("config", {})
    yield from _node_config(config, "nodeConfig")
    if "initialNodeCount" in inputs and "nodeCount" in inputs:
        yield "nodeCount", f"Cannot set both initial_node_count and node_count on node pool {body.get('name')}"
    yield from _autoscaling(inputs, body)
    if config.get("machineType", DEFAULT_MACHINE) in MACHINES and not placed:
        yield from _tpus(body, body.get("locations") or list(zones.node_zones(location)))
    if config.get("flexStart"):
        yield from _flex_start(body)
    elif _at(body, "queuedProvisioning.enabled"):
        yield from _elastic(body, "Queued provisioning")
    if (duration := config.get("maxRunDuration")) is not None:
        seconds = float(str(duration).rstrip("s"))
        if not MIN_RUN_SECONDS <= seconds <= MAX_RUN_SECONDS:
            yield (
                "nodeConfig.maxRunDuration",
                bad_request(f"max_run_duration must be from {MIN_RUN_SECONDS}s to {MAX_RUN_SECONDS}s, not {duration}"),
            )


def _autoscaling(inputs: Values, body: Values) -> Iterator[Problem]:
    if (scaling := body.get("autoscaling")) is None:
        return
    each = scaling["minNodeCount"], scaling["maxNodeCount"]
    total = scaling["totalMinNodeCount"], scaling["totalMaxNodeCount"]
    if any(each) and any(total):
        yield (
            "autoscaling",
            bad_request(
                "Per-zone limits (min_node_count, max_node_count) and total limits (total_min_node_count, "
                "total_max_node_count) can't be used together"
            ),
        )
        return
    low, high = total if any(total) else each
    if high < 1:
        yield "autoscaling", bad_request("The maximum node count of an autoscaled node pool must be greater than zero")
    elif low > high:
        yield "autoscaling", bad_request(f"The minimum node count {low} is greater than the maximum node count {high}")
    if "nodeCount" in inputs:
        # https://www.pulumi.com/registry/packages/gcp/api-docs/container/nodepool/#nodecount_python
        yield "nodeCount", "nodeCount must not be used alongside autoscaling: the autoscaler owns the count"


def _tpus(body: Values, there: list[str]) -> Iterator[Problem]:
    """TPU slices, in the zones `there`: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""
    config, placement = body.get("config", {}), body.get("placementPolicy", {})
    kind, topology = machine(config.get("machineType", DEFAULT_MACHINE)), placement.get("tpuTopology")
    if kind.tpu is None:
        if topology is not None:
            yield "placementPolicy.tpuTopology", bad_request(f"Machine type {kind.name} has no TPU, and no topology")
        return
    wanted = boot_disk_type(kind.name)
    if wanted == "hyperdisk-balanced" and (disk := config.get("diskType", wanted)) != wanted:
        yield "nodeConfig.diskType", bad_request(f"[{disk}] features are not compatible for creating instance.")
    try:
        one = slice_on(kind.name, topology)
    except NoSuchSlice as error:
        choices = ", ".join(error.choices[:20])
        yield (
            "placementPolicy.tpuTopology",
            bad_request(f'TPU topology "{topology}" is invalid: it is one of {choices}'),
        )
        return
    if config.get("flexStart") and not set(there) <= set(VERSIONS[one.version].flex_start_zones):
        text = f"Flex start is not available for {kind.name} in {', '.join(there)}"
        yield "nodeConfig.flexStart", bad_request(text)
    if one.multi_host:
        yield from _multi_host(body, one, there)
    elif topology is not None:
        text = (
            "TPU topology can't be specified with single-host TPU slice pool; please remove the tpu_topology from the "
        )
        yield "placementPolicy.tpuTopology", bad_request(f"{text}node pool creation request")


def _multi_host(body: Values, one: Slice, there: list[str]) -> Iterator[Problem]:
    """A group of machines that come and go together."""
    placement, scaling = body["placementPolicy"], body.get("autoscaling")
    if len(there) > 1:
        yield "nodeLocations", bad_request(f"A multi-host TPU slice is in one zone, not in {', '.join(there)}")
    if scaling is not None and scaling["maxNodeCount"] != one.hosts:
        text = f"Maximum node count {scaling['maxNodeCount']} is not a valid size of TPU pod slice with topology "
        yield "autoscaling", bad_request(f'{text}"{one.topology}"')
    elif scaling is not None and scaling["minNodeCount"] not in (0, one.hosts):
        text = f"Minimum node count {scaling['minNodeCount']} is not a valid size of TPU pod slice with topology "
        yield "autoscaling", bad_request(f'{text}"{one.topology}"')
    first = body.get("initialNodeCount", 0)
    if first != one.hosts and (first or scaling is None):
        text = f"Requested invalid target size '{first}' for a Managed Instance Group in the gang mode of size "
        yield "nodeCount" if scaling is None else "initialNodeCount", bad_request(f"{text}'{one.hosts}'.")
    if VERSIONS[one.version].workload_policy and ("policyName" not in placement or "type" in placement):
        text = (
            f"Creation of a managed instance group with {one.machine_type} machine type with placement policy is not "
        )
        yield "placementPolicy", bad_request(f"{text}supported. Use workload policy instead.")


def _elastic(body: Values, what: str) -> Iterator[Problem]:
    """What pools of Dynamic Workload Scheduler demand: https://cloud.google.com/kubernetes-engine/docs/concepts/dws"""
    if not _at(body, "autoscaling.enabled"):
        yield "autoscaling", bad_request(f"{what} node pools require autoscaling enabled.")
    if body.get("initialNodeCount", 0):
        yield "initialNodeCount", bad_request(f"{what} node pools require initial node count to be set to 0.")
    if _at(body, "config.reservationAffinity.consumeReservationType") != "NO_RESERVATION":
        yield "nodeConfig.reservationAffinity", bad_request(f"{what.lower()} node pools don't support reservations")


def _flex_start(body: Values) -> Iterator[Problem]:
    yield from _elastic(body, "Flex start")
    for other in ("spot", "preemptible"):
        if _at(body, f"config.{other}"):
            yield f"nodeConfig.{other}", bad_request(f"Flex start node pools can't be {other}.")


def _node_config(config: Values, path: str) -> Iterator[Problem]:
    name = config.get("machineType", DEFAULT_MACHINE)
    accelerators = config.get("accelerators", [])
    try:
        kind = machine(name)
    except UnknownMachine as unknown:
        near = f" Did you mean {' or '.join(unknown.nearest)}?" if unknown.nearest else ""
        text = f'Machine type "{name}" does not exist.{near}'
        if "machineType" not in config:
            text = f"no machine type is set, and the emulator has none of {name}, which GKE would take"
        yield f"{path}.machineType", bad_request(text)
    else:
        there = f"{path}.guestAccelerators"
        if kind.gpu is not None and not accelerators:
            yield (
                there,
                bad_request(f"Machine type {name} has {kind.gpus} {kind.gpu}: an accelerator must be specified"),
            )
        for index, accelerator in enumerate(accelerators):
            asked = accelerator.get("acceleratorType"), int(accelerator.get("acceleratorCount", "0"))
            if kind.gpu is not None and asked != (kind.gpu, kind.gpus):
                text = f"Machine type {name} has {kind.gpus} {kind.gpu}, not {asked[1]} {asked[0]}"
                yield f"{there}[{index}]", bad_request(text)
            elif kind.gpu is None and asked[1] not in ATTACHABLE.get(name, {}).get(asked[0], ()):
                text = f"{asked[1]} accelerators of type {asked[0]} can't be attached to machine type {name}"
                yield f"{there}[{index}]", bad_request(text)
    if config.get("diskSizeGb", 10) < 10:
        yield f"{path}.diskSizeGb", bad_request("The boot disk must have at least 10 GB")
    if config.get("diskType", "pd-balanced") not in DISK_TYPES:
        yield f"{path}.diskType", bad_request(f'Disk type "{config["diskType"]}" does not exist')
    for key, value in config.get("labels", {}).items():
        # https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
        prefix, _, label = key.rpartition("/")
        if not re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", label) or len(prefix) > 253:
            yield f'{path}.labels["{key}"]', bad_request(f'Invalid label key "{key}"')
        if not re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value):
            yield f'{path}.labels["{key}"]', bad_request(f'Invalid label value "{value}"')
        if re.fullmatch(r"(.*\.)?(kubernetes|k8s)\.io", prefix):
            yield f'{path}.labels["{key}"]', bad_request(f'Label "{key}" is reserved for Kubernetes')


def _gke_name(name: str, what: str) -> Iterator[Problem]:
    if not re.fullmatch(r"[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?", name):
        text = (
            f'Invalid value for field "{what}.name": "{name}". '
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
        if zone not in zones.ZONES[region]:
            text = f'Zone "{zone}" is not in the cluster\'s region {region}, which has {", ".join(zones.ZONES[region])}'
            yield f"nodeLocations[{index}]", bad_request(text)


def _resource_labels(labels: Values, path: str) -> Iterator[Problem]:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels#requirements"""
    for key, value in labels.items():
        if not re.fullmatch(r"[a-z][-_a-z0-9]{0,62}", key):
            text = f'Invalid label key "{key}": 1 to 63 lower-case letters, digits, - and _, beginning with a letter'
            yield f'{path}["{key}"]', bad_request(text)
        elif not re.fullmatch(r"[-_a-z0-9]{0,63}", value):
            text = f'Invalid label value "{value}": at most 63 lower-case letters, digits, - and _'
            yield f'{path}["{key}"]', bad_request(text)
    if len(labels) > 64:
        yield path, bad_request("At most 64 labels")


# ------------------------------------------------------------------------------------------------------------ buckets
def bucket(inputs: Values, body: Values) -> Iterator[Problem]:
    """A bucket: https://cloud.google.com/storage/docs/buckets#naming, …/docs/soft-delete, …/docs/lifecycle"""
    name = body.get("name", "")
    parts = name.split(".")
    fits = re.fullmatch(r"[a-z0-9][-_.a-z0-9]*[a-z0-9]", name) and 3 <= len(name) <= (222 if parts[1:] else 63)
    if not fits or any(not 1 <= len(part) <= 63 for part in parts) or re.fullmatch(r"\d+(\.\d+){3}", name):
        yield "name", f"googleapi: Error 400: Invalid bucket name: '{name}', invalid"
    elif name.startswith("goog") or "google" in name:
        yield "name", f"googleapi: Error 400: Invalid bucket name: '{name}' (no goog prefix, no google in it), invalid"
    location = str(body.get("location", ""))
    if location.lower() not in zones.ZONES and location.upper() not in zones.BUCKET_MULTI_REGIONS:
        yield "location", f"googleapi: Error 400: The specified location constraint is not valid: {location}, invalid"
    yield from _one_of(body.get("storageClass"), _STORAGE_CLASSES, "storageClass")
    prevention = _at(body, "iamConfiguration.publicAccessPrevention")
    yield from _one_of(prevention, ("inherited", "enforced"), "publicAccessPrevention")
    seconds = int(_at(body, "softDeletePolicy.retentionDurationSeconds") or 0)
    if seconds != 0 and not 7 * 86400 <= seconds <= 90 * 86400:
        text = f"The soft delete retention duration must be 0 or from 7 to 90 days, not {seconds} s"
        yield "softDeletePolicy.retentionDurationSeconds", f"googleapi: Error 400: {text}, invalid"
    for index, rule in enumerate(_at(body, "lifecycle.rule") or []):
        path = f"lifecycleRules[{index}]"
        yield from _one_of(_at(rule, "action.type") or "", _LIFECYCLE_ACTIONS, f"{path}.action.type")
        if not rule.get("condition"):
            yield f"{path}.condition", "googleapi: Error 400: A lifecycle rule needs at least one condition, invalid"
    for index, rule in enumerate(inputs.get("lifecycleRules") or []):
        state = _at(rule, "condition.withState")
        yield from _one_of(state, ("LIVE", "ARCHIVED", "ANY"), f"lifecycleRules[{index}].condition.withState")
    yield from _resource_labels(body.get("labels", {}), "labels")


def member(inputs: Values) -> Iterator[Problem]:
    """A role on a bucket."""
    role = inputs["role"]
    custom = re.fullmatch(r"(projects|organizations)/[^/]+/roles/[\w.]+", role)
    if role not in BUCKET_ROLES and not custom:
        yield "role", f"googleapi: Error 400: Role {role} is not supported for this resource., invalid"
    yield from known_member(inputs["member"])


def known_member(who: str) -> Iterator[Problem]:
    """Someone who can be granted a role: https://cloud.google.com/iam/docs/principal-identifiers"""
    forms = (
        r"principal(Set)?://iam\.googleapis\.com/.+",
        r"(user|serviceAccount|group|domain|projectOwner|projectEditor|projectViewer|deleted:\w+):.+",
        r"allUsers|allAuthenticatedUsers",
    )
    if not any(re.fullmatch(form, who) for form in forms):
        yield "member", f"googleapi: Error 400: Invalid argument: the member {who} is of an unknown type., invalid"
    elif "/workloadIdentityPools/" in who and workload_principal(who) is None:
        yield (
            "member",
            f"googleapi: Error 400: The principal {who} is malformed: principal://iam.googleapis.com/projects/NUMBER/"
            "locations/global/workloadIdentityPools/PROJECT.svc.id.goog/subject/ns/NAMESPACE/sa/ACCOUNT, with the "
            "project's number first and its id in the pool, invalid",
        )


def workload_principal(who: str) -> tuple[str, str] | None:
    """(project number, pool) of a member that is a Kubernetes service account, else None."""
    found = re.fullmatch(
        r"principal://iam\.googleapis\.com/projects/(\d+)/locations/global/workloadIdentityPools/"
        r"([^/]+\.svc\.id\.goog)/subject/ns/[-a-z0-9]+/sa/[-.a-z0-9]+",
        who,
    )
    return (found[1], found[2]) if found else None


# ------------------------------------------------------------------------------------------------------------- shared
def _one_of(value: str | None, allowed: tuple[str, ...], path: str) -> Iterator[Problem]:
    if value is not None and value not in allowed:
        yield path, f"googleapi: Error 400: Invalid argument: {value!r} is none of {', '.join(allowed)}, invalid"


def _at(value: Values, path: str) -> Any:
    for name in path.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)  # type: ignore[assignment]
    return value
