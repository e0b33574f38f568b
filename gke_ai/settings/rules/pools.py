"""Rules of GPU pools, and rules that GPU and TPU pools share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gke_ai.catalog.machines.capacity import MODES, UNTIL
from gke_ai.catalog.machines.disks import BOOT_TYPES, boot_disks
from gke_ai.catalog.machines.types import ATTACHABLE, GPUS, MACHINES, ONLY_IN_POOLS, Machine, machines_with
from gke_ai.catalog.machines.zones import ZONES, is_ai_zone, region_of
from gke_ai.catalog.nodes.shape import POOL
from gke_ai.settings.model import Cluster, GpuPool, Pool, PoolReservation, Unresolved
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import (
    each_gpu_pool,
    each_pool,
    empty_labels,
    join_names,
    kubernetes_labels,
    needs,
    repeated,
)

DISK_IMAGE = re.compile(r"(projects/[a-z][-a-z0-9:.]{4,}/)?global/images/[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
# With a block or sub-block of it, of machines with an RDMA network, a pool names its zone:
# https://github.com/GoogleCloudPlatform/cluster-toolkit/blob/develop/modules/compute/gke-node-pool/main.tf
_BLOCK = rf"/reservationBlocks/{_NAME}(/reservationSubBlocks/{_NAME})?"
_RESERVATION = re.compile(rf"(projects/[^/\s]+/reservations/)?{_NAME}(?P<block>{_BLOCK})?")


def machine_has_the_gpus(pool: GpuPool) -> Iterator[Problem]:
    """The machine type exists, and has the GPUs that the pool requests."""
    machine_type = MACHINES.get(pool.machine_type)
    if machine_type is None:
        candidates = [name for name, machine_type in MACHINES.items() if machine_type.gpu or name in ATTACHABLE]
        yield unknown_machine(pool.at("machineType"), pool.machine_type, candidates)
        return
    if pool.accelerator is not None and pool.accelerator not in GPUS:
        cause = f"{pool.accelerator} is not a GPU type of the catalog. GKE would refuse the pool"
        yield Problem(pool.at("accelerator"), cause, nearest(pool.accelerator, GPUS))
        return
    if machine_type.gpu is not None:
        yield from _built_in(pool)
    elif machine_type.name in ATTACHABLE:
        yield from _attached(pool)
    else:
        gpu = pool.accelerator or "nvidia-l4"
        names = join_names(sorted({other.name for other in machines_with(gpu)}))
        cause = f"{machine_type.name} has no GPUs and supports none. GKE would refuse the pool"
        yield Problem(pool.at("machineType"), cause, f"Choose a machine with GPUs; with {gpu}: {names}")


def machine_is_known(pool: Pool) -> Iterator[Problem]:
    """The machine type of a pool without accelerators exists."""
    if pool.node_machine_type not in MACHINES:
        known = [name for name, machine_type in MACHINES.items() if not machine_type.gpu and not machine_type.tpu]
        yield unknown_machine(pool.at("machineType"), pool.node_machine_type, known)


def unknown_machine(
    path: str, name: str, candidates: Iterable[str], consequence: str = "GKE would refuse the pool"
) -> Problem:
    """A problem for a machine type that the catalog does not have."""
    return Problem(path, f"{name} is not a machine type of the catalog. {consequence}", nearest(name, candidates))


def gpu_type_is_supported(path: str, name: str, consequence: str) -> Iterator[Problem]:
    """The GPU type exists, and GKE can create its machines without a pool of this program."""
    if name not in GPUS:
        yield Problem(path, f"{name} is not a GPU type of the catalog. {consequence}", nearest(name, GPUS))
    others = (machine_type for machine_type in machines_with(name) if machine_type.name in ONLY_IN_POOLS)
    yield from (only_in_pools(path, machine_type) for machine_type in others)


def only_in_pools(path: str, machine_type: Machine) -> Problem:
    """A problem for a machine type that needs a node pool of this program."""
    cause = f"{machine_type.name} needs a workload policy, which this program creates only for its own node pools. GKE "
    cause += "would create no such node"
    remedy = "Name a pool of gke-ai:gpuPools with this machine instead, or choose another machine, such as "
    remedy += "a3-highgpu-8g"
    return Problem(path, cause, remedy)


def offered(path: str, machine_type: Machine, mode: str) -> Iterator[Problem]:
    """A problem if Google does not offer the machine in that capacity mode."""
    if mode in machine_type.modes:
        return
    possible = [name for name in MODES if name in machine_type.modes]
    alike = [other.name for other in machines_with(machine_type.gpu or "") if mode in other.modes]
    larger = f", or choose {alike[0]}" if alike else ""
    cause = f"Google does not offer {machine_type.name} with capacity mode {mode}. No node would ever start"
    yield Problem(path, cause, f"Set the mode to {' or '.join(possible)}{larger}")


@each_gpu_pool
def capacity_is_offered(pool: GpuPool) -> Iterator[Problem]:
    """Google offers the machine of a GPU pool in the pool's capacity mode."""
    yield from offered(pool.at("capacity.mode"), MACHINES[pool.machine_type], pool.capacity.mode)


def _built_in(pool: GpuPool) -> Iterator[Problem]:
    machine_type = MACHINES[pool.machine_type]
    if pool.accelerator not in (None, machine_type.gpu):
        others = join_names(sorted({machine_type.name for machine_type in machines_with(pool.accelerator or "")}))
        cause = f"{machine_type.name} has {machine_type.gpu}, not {pool.accelerator}. GKE would refuse the pool"
        remedy = f"Write {machine_type.gpu}, or choose a machine with {pool.accelerator}: {others}"
        yield Problem(pool.at("accelerator"), cause, remedy)
    elif pool.gpus_per_node not in (None, machine_type.gpus):
        alike = [other for other in machines_with(machine_type.gpu or "") if other.gpus == pool.gpus_per_node]
        larger = next(
            (other for other in machines_with(machine_type.gpu or "") if other.gpus > (pool.gpus_per_node or 0)), None
        )
        choice = alike[0] if alike else larger
        cause = f"{machine_type.name} has {machine_type.gpus} GPUs, not {pool.gpus_per_node}. GKE would refuse the pool"
        remedy = f"Set it to {machine_type.gpus}" + (f", or choose {choice.name} ({choice.gpus})" if choice else "")
        yield Problem(pool.at("gpusPerNode"), cause, remedy)


def _attached(pool: GpuPool) -> Iterator[Problem]:
    possible = ATTACHABLE[pool.machine_type]
    if pool.accelerator is None or pool.gpus_per_node is None:
        cause = f"{pool.machine_type} has no built-in GPUs, and the pool does not set which GPUs to attach, and how "
        cause += "many"
        remedy = f"Set accelerator ({join_names(possible)}) and gpusPerNode"
        yield Problem(pool.at("accelerator" if pool.accelerator is None else "gpusPerNode"), cause, remedy)
    elif pool.accelerator not in possible:
        own = join_names(sorted({machine_type.name for machine_type in machines_with(pool.accelerator)}))
        cause = f"{pool.accelerator} cannot be attached to {pool.machine_type}. GKE would refuse the pool"
        remedy = f"Write {join_names(possible)}, or choose a machine with {pool.accelerator}: {own}"
        yield Problem(pool.at("accelerator"), cause, remedy)
    elif pool.gpus_per_node not in possible[pool.accelerator]:
        cause = f"{pool.gpus_per_node} {pool.accelerator} cannot be attached to {pool.machine_type}. "
        cause += "GKE would refuse the pool"
        yield Problem(pool.at("gpusPerNode"), cause, f"Write one of: {join_names(possible[pool.accelerator])}")


def zones_are_of_the_region(pool: Pool, cluster: Cluster, unresolved: Unresolved) -> Iterator[Problem]:
    """The pool's zones are zones of the cluster's region, each once."""
    if unresolved.overlaps("gke-ai:cluster.location"):
        return
    location = cluster.location
    region = region_of(location)
    for index, zone in enumerate(pool.zones):
        path = pool.at(f"zones[{index}]")
        if zone in ZONES:
            cause = f"{zone} is a region, not a zone. GKE would refuse the pool"
            yield Problem(path, cause, f"Choose from {join_names(ZONES[region])}")
        elif region_of(zone) != region:
            cause = f"{zone} is not in {region}, the cluster's region. GKE would refuse the pool"
            yield Problem(path, cause, f"Choose from {join_names(ZONES[region])}, or move the cluster")
        elif zone not in ZONES[region] and not is_ai_zone(zone):
            cause = f"{zone} is not a zone of {region}. GKE would refuse the pool"
            yield Problem(path, cause, f"Choose from {join_names(ZONES[region])}")
        elif zone in pool.zones[:index]:
            yield Problem(path, f"{zone} is listed twice. GKE would refuse the pool", "Write it once")


@needs("gke-ai:cluster.mode")
def names_are_unique(stack: ResolvedStack) -> Iterator[Problem]:
    """Pool names are unique, including that of the system pool."""
    yield from repeated(((pool, "name", pool.name) for pool in stack.pools), "pool", "GKE would refuse the second")
    for pool in stack.pools:
        if stack.cluster.mode == "standard" and pool.name == stack.cluster.system_pool.name:
            cause = f"{pool.name} is also the name of the system pool. GKE would refuse the second"
            yield Problem(pool.at("name"), cause, "Rename the pool, or set gke-ai:cluster systemPool.name")


@each_pool
def pools_have_one_size(pool: Pool) -> Iterator[Problem]:
    """A pool has a fixed size or autoscaling, and minNodes is at most maxNodes."""
    bounds = pool.autoscaling
    if bounds is not None and pool.nodes_per_zone is not None:
        cause = "the pool has a fixed size and autoscaling. They would undo each other's changes"
        yield Problem(pool.at("nodesPerZone"), cause, "Remove nodesPerZone or autoscaling")
    elif not (pool.elastic or pool.has_size):
        cause = "the pool has no size. Its number of nodes would be unknown"
        yield Problem(pool.at("nodesPerZone"), cause, "Set nodesPerZone, or autoscaling with minNodes and maxNodes")
    if bounds is not None and bounds.min_nodes > bounds.max_nodes:
        cause = f"minNodes is {bounds.min_nodes}, and maxNodes is only {bounds.max_nodes}. GKE would refuse the pool"
        yield Problem(pool.at("autoscaling.minNodes"), cause, f"Set it to {bounds.max_nodes} or less")


@each_pool
def elastic_capacity_is_autoscaled(pool: Pool) -> Iterator[Problem]:
    """Flex-start pools start with no nodes, and only the autoscaler sizes them.

    https://cloud.google.com/kubernetes-engine/docs/concepts/dws
    """
    mode = pool.capacity.mode
    if not MODES[mode].elastic:
        return
    if pool.nodes_per_zone is not None and pool.autoscaling is None:
        cause = f"a {mode} pool cannot have a fixed size, as its nodes start only when capacity is free"
        remedy = "Write autoscaling: {maxNodes: N} instead of nodesPerZone"
        if pool.is_one_slice:
            remedy = "Remove nodesPerZone. The slice sets the number of nodes"
        yield Problem(pool.at("nodesPerZone"), f"{cause}. GKE would refuse the pool", remedy)
    elif not pool.has_size:
        cause = f"a {mode} pool needs autoscaling. GKE would refuse the pool"
        yield Problem(pool.at("autoscaling"), cause, "Write autoscaling: {maxNodes: N}")


@each_pool
def reservation_is_named(pool: Pool) -> Iterator[Problem]:
    """A reservation is a valid name, or its full path in another project. A block of it is in the zone of the pool."""
    name = pool.capacity.reservation_name
    yield from is_a_reservation(pool.at("capacity.reservation"), name, "refuse the pool")
    if (found := _RESERVATION.fullmatch(name or "")) and found["block"] and len(pool.zones) != 1:
        cause = "a block of a reservation is in one zone, and the pool does not name it. GKE would refuse the pool"
        yield Problem(pool.at("zones"), cause, "Write the zone of the reservation, for example [us-central1-a]")


@each_pool
def reservation_ends_on_a_day(pool: Pool) -> Iterator[Problem]:
    """The end of a reservation is in the calendar."""
    until = pool.capacity.until if isinstance(pool.capacity, PoolReservation) else None
    if until and not pool.capacity.labels:
        cause = f"{until} is no time of the calendar. The end of the capacity would be unknown"
        yield Problem(pool.at("capacity.until"), cause, "Write a day that exists, such as 2027-03-14T00:00:00Z")


def is_a_reservation(path: str, name: str | None, consequence: str) -> Iterator[Problem]:
    """A problem if the name is not a reservation's, nor its full path. GKE would do what the consequence says."""
    if name is not None and not _RESERVATION.fullmatch(name):
        cause = f'"{name}" is not a valid reservation name. GKE would {consequence}'
        yield Problem(path, cause, "Write its name, or projects/PROJECT/reservations/NAME for a shared one")


# GKE's maximum, minus the suffix that createBeforeDelete adds.
_MAX_NAME_LENGTH = 40 - len("-0a1b2c")


@each_gpu_pool
def create_before_delete_is_possible(pool: GpuPool) -> Iterator[Problem]:
    """createBeforeDelete: the name has room for the suffix, and the new nodes can be created at once."""
    if not pool.create_before_delete:
        return
    if len(pool.name) > _MAX_NAME_LENGTH:
        cause = f"createBeforeDelete adds seven characters to {pool.name}, and the name would have "
        cause += f"{len(pool.name) + 40 - _MAX_NAME_LENGTH} characters. GKE would refuse the pool"
        remedy = f"Use at most {_MAX_NAME_LENGTH} characters, or remove createBeforeDelete"
        yield Problem(pool.at("name"), cause, remedy)
    if pool.elastic:
        cause = f"a {pool.capacity.mode} pool gets new nodes only when Google has capacity, and its runs cannot move. "
        cause += "The old nodes would be drained without a replacement"
        remedy = "Remove createBeforeDelete. Let the runs finish, then change the pool"
        yield Problem(pool.at("createBeforeDelete"), cause, remedy)


@each_pool
def disks_suit_the_machine(pool: Pool) -> Iterator[Problem]:
    """The type of the boot disk exists and suits the machine family."""
    machine_type = pool.shape("").machine_type
    possible = boot_disks(machine_type)
    if pool.disk_type is None or pool.disk_type in possible:
        return
    if pool.disk_type not in BOOT_TYPES:
        cause = f"{pool.disk_type} is not a boot disk type. GKE would refuse the pool"
        yield Problem(pool.at("diskType"), cause, nearest(pool.disk_type, BOOT_TYPES))
    else:
        cause = f"{machine_type} does not boot from {pool.disk_type}. GKE would refuse the pool"
        yield Problem(pool.at("diskType"), cause, f"Remove diskType, or write {' or '.join(possible)}")


@each_gpu_pool
def secondary_boot_disk_is_possible(pool: GpuPool) -> Iterator[Problem]:
    """A secondary boot disk names a Compute Engine image, and the pool streams images, which GKE requires for it.

    https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading#requirements
    """
    if pool.secondary_boot_disk is None:
        return
    path = pool.at("secondaryBootDisk")
    if not DISK_IMAGE.fullmatch(pool.secondary_boot_disk):
        cause = f'"{pool.secondary_boot_disk}" is not the name of a Compute Engine image. GKE would refuse the pool'
        yield Problem(path, cause, "Write projects/PROJECT/global/images/NAME")
    if not pool.image_streaming:
        cause = "a secondary boot disk needs Image streaming. GKE would refuse the pool, or not use the disk"
        yield Problem(path, cause, "Set imageStreaming: true, or remove secondaryBootDisk")


@each_pool
def labels_are_not_reserved(pool: Pool) -> Iterator[Problem]:
    """Node labels are valid, and their prefixes are not reserved by Kubernetes or GKE."""
    yield from kubernetes_labels(pool, "labels", pool.labels)
    yield from empty_labels(pool, pool.labels)
    for key in pool.labels:
        if key in (POOL, UNTIL):
            cause = f"{key} is a label of this program, which it sets on the nodes of a pool itself"
            yield Problem(pool.at("labels"), cause, "Use a prefix of your own, or none")
        prefix = key.rpartition("/")[0]
        if any(prefix == kept or prefix.endswith(f".{kept}") for kept in ("kubernetes.io", "k8s.io", "google.com")):
            cause = f"the prefix of {key} is reserved for Kubernetes and GKE. GKE would refuse the pool"
            yield Problem(pool.at("labels"), cause, "Use a prefix of your own, or none")
