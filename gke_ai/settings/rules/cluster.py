"""Rules of the cluster and its system pool."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.machines.zones import ZONES, is_zone, region_of
from gke_ai.settings.model import Cluster, Unresolved
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import empty_labels, join_names, needs, of_the_cluster
from gke_ai.settings.rules.pools import unknown_machine

# https://cloud.google.com/kubernetes-engine/docs/how-to/creating-managing-labels#requirements
_LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")


def location_exists(cluster: Cluster, unresolved: Unresolved) -> Iterator[Problem]:
    """The location is a region, or a zone of a region."""
    if unresolved.overlaps("gke-ai:cluster.location"):
        return
    location = cluster.location
    if location in ZONES:
        return
    region = region_of(location)
    if is_zone(location) and region in ZONES:
        if location not in ZONES[region]:
            cause = f"{location} is not a zone of {region}. GKE would refuse the cluster"
            yield Problem(cluster.at("location"), cause, f"Write {region}, or one of {join_names(ZONES[region])}")
        return
    cause = f"{location} is not a region of Google Cloud. GKE would refuse the cluster"
    yield Problem(cluster.at("location"), cause, nearest(location, ZONES))


@needs("gke-ai:cluster")
@of_the_cluster
def autopilot_is_regional(cluster: Cluster) -> Iterator[Problem]:
    """Autopilot clusters are regional."""
    if cluster.mode == "autopilot" and is_zone(cluster.location):
        cause = f"{cluster.location} is a zone, and Autopilot clusters are regional. GKE would refuse the cluster"
        yield Problem(cluster.at("location"), cause, f"Write {region_of(cluster.location)}, or set mode: standard")


@needs("gke-ai:cluster.mode")
@of_the_cluster
def autopilot_has_no_system_pool(cluster: Cluster) -> Iterator[Problem]:
    """An Autopilot cluster has no system pool."""
    if cluster.mode == "autopilot" and "system_pool" in cluster.model_fields_set:
        cause = "an Autopilot cluster has no system pool. GKE creates its nodes"
        yield Problem(cluster.at("systemPool"), cause, "Remove systemPool, or set mode: standard")


@needs("gke-ai:cluster.mode")
@of_the_cluster
def existing_cluster_is_left_as_it_is(cluster: Cluster) -> Iterator[Problem]:
    """Keys that change the cluster are refused for an existing cluster, which the stack only looks up."""
    if cluster.mode != "existing":
        if "existing_mode" in cluster.model_fields_set:
            cause = f"existingMode has an effect only with mode: existing, and the mode is {cluster.mode}"
            yield Problem(cluster.at("existingMode"), cause, "Remove existingMode, or set mode: existing")
        return
    for field in (
        *("release_channel", "system_pool", "labels", "protect"),
        *("network", "subnetwork", "pods_range", "services_range", "vpc", "multi_networking", "shielded_nodes"),
        *("private_nodes", "public_endpoint", "authorized_networks", "maintenance", "cost_allocation"),
    ):
        if field in cluster.model_fields_set:
            key = type(cluster).model_fields[field].alias or field
            cause = f"{key} cannot be set on an existing cluster. The stack does not change such a cluster"
            remedy = f"Remove {key}, or let the stack create the cluster with mode: standard or autopilot"
            yield Problem(cluster.at(key), cause, remedy)


@needs("gke-ai:cluster.mode")
@of_the_cluster
def system_pool_runs_controllers(cluster: Cluster) -> Iterator[Problem]:
    """The system pool's machine exists, is x86, and has neither GPUs nor TPUs."""
    pool = cluster.system_pool
    if cluster.mode != "standard":
        return
    machine_type = MACHINES.get(pool.machine_type)
    if machine_type is None:
        yield unknown_machine(cluster.at("systemPool.machineType"), pool.machine_type, _CONTROLLER_MACHINES)
    elif machine_type.gpu is not None or machine_type.tpu is not None:
        has = f"{machine_type.gpus} {machine_type.gpu}" if machine_type.gpu else f"a {machine_type.tpu}"
        noun, section = ("GPUs", "gpuPools") if machine_type.gpu else ("TPUs", "tpuPools")
        cause = f"{machine_type.name} has {has}, and the system pool runs only controllers. Its {noun} would be idle"
        remedy = f"Use e2-standard-4, and define pools with {noun} in gke-ai:{section}"
        yield Problem(cluster.at("systemPool.machineType"), cause, remedy)
    elif machine_type.arch != "amd64":
        cause = f"{machine_type.name} has Arm processors. GKE taints its nodes, and the controllers of this program do "
        cause += "not tolerate that. They would stay pending"
        yield Problem(cluster.at("systemPool.machineType"), cause, "Use e2-standard-4 or another x86 machine")


@needs("gke-ai:cluster")
@of_the_cluster
def system_pool_is_in_the_region(cluster: Cluster) -> Iterator[Problem]:
    """The system pool's zones are zones of the cluster's region."""
    if cluster.mode != "standard":
        return
    region = region_of(cluster.location)
    for index, zone in enumerate(cluster.system_pool.zones):
        if zone not in ZONES[region]:
            cause = f"{zone} is not a zone of {region}, the cluster's region. GKE would refuse the pool"
            yield Problem(cluster.at(f"systemPool.zones[{index}]"), cause, f"Choose from {join_names(ZONES[region])}")


@needs("gke-ai:cluster.mode")
@of_the_cluster
def labels_are_google_cloud_labels(cluster: Cluster) -> Iterator[Problem]:
    """Resource labels follow Google Cloud's syntax, which is stricter than that of Kubernetes."""
    yield from empty_labels(cluster, cluster.labels)
    for key, value in cluster.labels.items():
        if not _LABEL_KEY.fullmatch(key) or key.startswith("goog"):
            cause = f"{key} is not a valid Google Cloud label key. GKE would refuse the cluster"
            remedy = "Use up to 63 lowercase letters, digits, '-' and '_'. Begin with a letter, but not with goog"
            yield Problem(cluster.at("labels"), cause, remedy)
        if not _LABEL_VALUE.fullmatch(value):
            cause = f"the value of {key} is not a valid Google Cloud label value. GKE would refuse the cluster"
            yield Problem(cluster.at("labels"), cause, "Use up to 63 lowercase letters, digits, '-' and '_'")


@needs("gke-ai:cluster.mode")
def autopilot_has_no_pools(stack: ResolvedStack) -> Iterator[Problem]:
    """An Autopilot cluster has no node pools."""
    if not stack.cluster.is_autopilot:
        return
    for kind in dict.fromkeys(type(pool) for pool in stack.pools):
        instead = f" and set {kind.workload_key} in each workload" if kind.workload_key else ""
        cause = "the cluster is Autopilot, and GKE creates its nodes. GKE would refuse the pools"
        remedy = f"Set gke-ai:cluster mode: standard, or remove {kind.stack_key}{instead}"
        yield Problem(f"gke-ai:{kind.stack_key}", cause, remedy)


_CONTROLLER_MACHINES = [
    name
    for name, machine_type in MACHINES.items()
    if machine_type.gpu is None and machine_type.tpu is None and machine_type.arch == "amd64"
]
