"""Rules of the cluster and its system pool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime, timedelta

from catalog.machines import MACHINES
from catalog.zones import ZONES, is_zone, region_of
from settings.model import MaintenanceExclusion, MaintenanceWindow, Settings
from settings.plan import is_autopilot
from settings.problems import Problem, nearest
from settings.rules.common import Rule, join_names, needs, repeated

# https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels#requirements
_LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")


def location_exists(settings: Settings) -> Iterator[Problem]:
    """The location is a region, or a zone of a region."""
    if settings.unparsed.overlaps("gke-ai:cluster.location"):
        return
    cluster, location = settings.cluster, settings.cluster.location
    if location in ZONES:
        return
    region = region_of(location)
    if is_zone(location) and region in ZONES:
        if location not in ZONES[region]:
            cause = f"{location} is no zone of {region} — GKE would refuse the cluster"
            yield Problem(cluster.at("location"), cause, f"Write {region}, or one of {join_names(ZONES[region])}")
        return
    cause = f"{location} is no region of Google Cloud — GKE would refuse the cluster"
    yield Problem(cluster.at("location"), cause, nearest(location, ZONES))


@needs("gke-ai:cluster")
def autopilot_is_regional(settings: Settings) -> Iterator[Problem]:
    """Autopilot clusters are regional."""
    cluster = settings.cluster
    if cluster.mode == "autopilot" and is_zone(cluster.location):
        yield Problem(
            cluster.at("location"),
            f"{cluster.location} is a zone, and Autopilot clusters are regional — GKE would refuse the cluster",
            f"Write {region_of(cluster.location)}, or set mode: standard",
        )


@needs("gke-ai:cluster.mode")
def autopilot_has_no_system_pool(settings: Settings) -> Iterator[Problem]:
    """Autopilot makes its own nodes."""
    cluster = settings.cluster
    if cluster.mode == "autopilot" and "system_pool" in cluster.model_fields_set:
        yield Problem(
            cluster.at("systemPool"),
            "an Autopilot cluster has no system pool — Google makes its nodes",
            "Leave systemPool out, or set mode: standard",
        )


@needs("gke-ai:cluster.mode")
def existing_cluster_is_left_as_it_is(settings: Settings) -> Iterator[Problem]:
    """An existing cluster is looked up, so what only a new one can be given is refused."""
    cluster = settings.cluster
    if cluster.mode != "existing":
        if "existing_mode" in cluster.model_fields_set:
            yield Problem(
                cluster.at("existingMode"),
                f"existingMode is only read with mode: existing, and the mode is {cluster.mode}",
                "Leave existingMode out, or set mode: existing",
            )
        return
    for field in (
        *("release_channel", "system_pool", "labels", "protect"),
        *("network", "subnetwork", "pods_range", "services_range", "vpc"),
        *("private_nodes", "public_endpoint", "authorized_networks", "maintenance"),
    ):
        if field in cluster.model_fields_set:
            key = type(cluster).model_fields[field].alias or field
            yield Problem(
                cluster.at(key),
                f"{key} can't be set on an existing cluster — it is looked up, and not changed",
                f"Leave {key} out, or let the stack make the cluster with mode: standard or autopilot",
            )


# https://cloud.google.com/kubernetes-engine/docs/concepts/maintenance-windows-and-exclusions#limitations
_SHORTEST_WINDOW, _LONGEST_EXCLUSION = timedelta(hours=4), timedelta(days=30)
_MAX_EXCLUSIONS = 20


@needs("gke-ai:cluster")
def maintenance_leaves_time_for_upgrades(settings: Settings) -> Iterator[Problem]:
    """Windows are long enough, exclusions are short enough, and each ends after it starts."""
    maintenance = settings.cluster.maintenance
    if maintenance is None:
        return
    at = settings.cluster.at
    refused = "GKE would refuse the cluster"
    if maintenance.window is not None:
        length = _length(maintenance.window)
        if length is None or length < _SHORTEST_WINDOW:
            cause = f"the window ends less than 4 hours after it starts — {refused}"
            yield Problem(at("maintenance.window.endTime"), cause, "Write a moment 4 hours or more after startTime")
        if not maintenance.window.recurrence.startswith("FREQ="):
            cause = f'"{maintenance.window.recurrence}" is no recurrence rule of RFC 5545 — {refused}'
            yield Problem(at("maintenance.window.recurrence"), cause, "Write for example FREQ=WEEKLY;BYDAY=SA,SU")
    if len(maintenance.exclusions) > _MAX_EXCLUSIONS:
        cause = f"there are {len(maintenance.exclusions)} exclusions, and a cluster has {_MAX_EXCLUSIONS} at most"
        yield Problem(at("maintenance.exclusions"), f"{cause} — {refused}", "Leave out those that are over")
    named = ((settings.cluster, "maintenance.exclusions", one.name) for one in maintenance.exclusions)
    yield from repeated(named, "exclusion", refused)
    for index, one in enumerate(maintenance.exclusions):
        path = at(f"maintenance.exclusions[{index}].endTime")
        length = _length(one)
        if length is None or length <= timedelta():
            yield Problem(path, f"the exclusion ends before it starts — {refused}", "Write a later moment")
        elif one.scope == "NO_UPGRADES" and length > _LONGEST_EXCLUSION:
            cause = f"all upgrades are excluded for {length.days} days, and 30 are the most — {refused}"
            yield Problem(path, cause, "Shorten it, or set scope: NO_MINOR_OR_NODE_UPGRADES")


def _length(times: MaintenanceWindow | MaintenanceExclusion) -> timedelta | None:
    """How long it lasts; none where one of the moments isn't in the calendar."""
    try:
        start, end = datetime.fromisoformat(times.start_time), datetime.fromisoformat(times.end_time)
    except ValueError:
        return None
    return end - start


@needs("gke-ai:cluster.mode")
def system_pool_runs_controllers(settings: Settings) -> Iterator[Problem]:
    """The system pool's machine exists and has neither GPUs nor TPUs."""
    cluster, pool = settings.cluster, settings.cluster.system_pool
    if cluster.mode != "standard":
        return
    machine_type = MACHINES.get(pool.machine_type)
    if machine_type is None:
        cause = f"{pool.machine_type} is no machine type of the catalogue — GKE would refuse the pool"
        yield Problem(cluster.at("systemPool.machineType"), cause, nearest(pool.machine_type, _CONTROLLER_MACHINES))
    elif machine_type.gpu is not None or machine_type.tpu is not None:
        has = f"{machine_type.gpus} {machine_type.gpu}" if machine_type.gpu else f"a {machine_type.tpu}"
        noun, section = ("GPUs", "gpuPools") if machine_type.gpu else ("TPUs", "tpuPools")
        cause = f"{machine_type.name} has {has}, and the system pool runs controllers — its {noun} would lie idle"
        remedy = f"Use e2-standard-4, and put {noun} in gke-ai:{section}"
        yield Problem(cluster.at("systemPool.machineType"), cause, remedy)


@needs("gke-ai:cluster")
def system_pool_is_in_the_region(settings: Settings) -> Iterator[Problem]:
    """The system pool's zones are zones of the cluster's region."""
    cluster = settings.cluster
    if cluster.mode != "standard":
        return
    region = region_of(cluster.location)
    for index, zone in enumerate(cluster.system_pool.zones):
        if zone not in ZONES[region]:
            cause = f"{zone} is no zone of {region}, where the cluster is — GKE would refuse the pool"
            yield Problem(cluster.at(f"systemPool.zones[{index}]"), cause, f"Choose from {join_names(ZONES[region])}")


@needs("gke-ai:cluster.mode")
def labels_are_google_cloud_labels(settings: Settings) -> Iterator[Problem]:
    """Resource labels have Google Cloud's syntax, which is narrower than Kubernetes'."""
    cluster = settings.cluster
    for key, value in cluster.labels.items():
        if not _LABEL_KEY.fullmatch(key) or key.startswith("goog"):
            yield Problem(
                cluster.at("labels"),
                f"{key} is no Google Cloud label key — GKE would refuse the cluster",
                "Use small letters, digits, '-' and '_', up to 63, beginning with a letter but not with goog",
            )
        if not _LABEL_VALUE.fullmatch(value):
            yield Problem(
                cluster.at("labels"),
                f"the value of {key} is no Google Cloud label value — GKE would refuse the cluster",
                "Use small letters, digits, '-' and '_', up to 63",
            )


@needs("gke-ai:cluster.mode")
def pools_have_a_cluster_of_their_kind(settings: Settings) -> Iterator[Problem]:
    """Autopilot takes no node pools."""
    instead = {"gpuPools": "an accelerator", "tpuPools": "a slice, with tpu,"}
    for key, pools in (("gpuPools", settings.gpu_pools), ("tpuPools", settings.tpu_pools)):
        if is_autopilot(settings.cluster) and pools:
            yield Problem(
                f"gke-ai:{key}",
                "the cluster is Autopilot, and Google makes its nodes — GKE would refuse the pools",
                f"Set gke-ai:cluster mode: standard, or leave {key} out and name {instead[key]} in each workload",
            )


_CONTROLLER_MACHINES = [
    name for name, machine_type in MACHINES.items() if machine_type.gpu is None and machine_type.tpu is None
]

RULES: tuple[Rule, ...] = (
    autopilot_is_regional,
    autopilot_has_no_system_pool,
    existing_cluster_is_left_as_it_is,
    maintenance_leaves_time_for_upgrades,
    system_pool_runs_controllers,
    system_pool_is_in_the_region,
    labels_are_google_cloud_labels,
    pools_have_a_cluster_of_their_kind,
)
