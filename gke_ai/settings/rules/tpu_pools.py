"""Rules of TPU pools, and of flavors and workloads that name a TPU slice.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (slices),
https://cloud.google.com/kubernetes-engine/docs/how-to/tpus (pools),
https://cloud.google.com/kubernetes-engine/docs/concepts/dws#requirements (flex-start)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.tpus import VERSIONS, NoSuchSlice, slice_of
from gke_ai.catalog.machines.zones import region_of
from gke_ai.settings.model import Flavor, Multislice, Section, TpuBatch, TpuPool, TpuSlice, TpuWorkload
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed, ResolvedStack
from gke_ai.settings.rules.common import TPU_POOLS, each, each_tpu_pool, join_names, needs, of_another_engine

# TPU versions of GKE that this program does not support, by name and by node label.
_OLD_VERSION = re.compile(r"(tpu-)?v[234](-\w+)?")
_MAX_CHOICES = 12


def slice_exists(section: Section, wanted: TpuPool | TpuSlice, key: str = "") -> Iterator[Problem]:
    """GKE offers a slice of that version, topology and machine type; `key` is its path in the section."""
    try:
        slice_of(wanted.version, wanted.topology, wanted.machine_type)
    except NoSuchSlice as error:
        path = section.at(f"{key}{to_camel(error.argument)}")
        named = str(getattr(wanted, error.argument))
        yield Problem(path, f"{error}. No node would ever start", _suggestion(named, wanted.version, error))


def slice_of_pool_exists(pool: TpuPool) -> Iterator[Problem]:
    """GKE offers the slice of the pool."""
    return slice_exists(pool, pool)


def _suggestion(named: str, version: str, error: NoSuchSlice) -> str:
    if error.argument == "version":
        by_label = {version.accelerator: version.name for version in VERSIONS.values()}
        if named in by_label:
            return f"Did you mean {by_label[named]}?"
        old = ". This program supports v5e and newer, as flex-start has no v3 and no v4"
        return f"Write one of {join_names(error.choices)}{old if _OLD_VERSION.fullmatch(named) else ''}"
    if error.argument == "topology":
        ascending = "x".join(sorted(named.split("x"), key=lambda side: (len(side), side)))
        if ascending in error.choices:
            return f"Did you mean {ascending}? Write the sides in ascending order"
        if len(error.choices) > _MAX_CHOICES:
            some = join_names(error.choices[:_MAX_CHOICES])
            most = VERSIONS[version].max_chips
            return f"Write {some}, or larger: multiples of 4 in ascending order, at most {most} chips"
    return f"Write one of {join_names(error.choices)}"


def workloads_have_a_slice(stack: ResolvedStack) -> Iterator[Problem]:
    """Each TPU workload names an existing slice, by a pool of this stack or by `tpu`."""
    for flavor in stack.queues.flavors:
        if flavor.tpu is not None:
            yield from slice_exists(flavor, flavor.tpu, "tpu.")
    known = [pool.name for pool in stack.settings.tpu_pools]
    autopilot = stack.cluster.is_autopilot and not stack.unresolved.overlaps("gke-ai:cluster.mode")
    for placed in stack.tpu_workloads:
        workload = placed.section
        if workload.tpu is not None:
            yield from slice_exists(workload, workload.tpu, "tpu.")
        named = workload.named_pools
        if not named and workload.tpu is None:
            key = workload.pools_key
            cause = f"{workload.name} requests TPUs and names no slice. Kubernetes could not schedule its pods"
            remedy = (
                f"Set {key} (of {join_names(known)})" if known else "Set tpu, for example {version: v6e, topology: 2x2}"
            )
            yield Problem(workload.at(key if known else "tpu"), cause, remedy)
        for path, name in named.items():
            if problem := of_another_engine(workload, stack.pools, path, name):
                yield problem
            elif autopilot and name not in known:
                cause = f"the cluster is Autopilot and has no pools, so {name} does not exist. "
                cause += "The pods would stay pending"
                yield Problem(path, cause, "Set a slice instead, for example tpu: {version: v6e, topology: 2x2}")
            else:
                yield from TPU_POOLS.unknown(stack, path, name, "the pods would stay pending")


@each(lambda stack: stack.tpu_runs)
def runs_have_one_slice(placed: Placed[Multislice | TpuBatch]) -> Iterator[Problem]:
    """A Job or a JobSet names TPU pools of this stack or a slice, not both."""
    workload = placed.section
    if workload.tpu is not None and workload.named_pools:
        cause = f"{workload.name} names a pool and a slice. The slice could contradict that of the pool"
        yield Problem(workload.at("tpu"), cause, "Remove one of them")


@needs("gke-ai:cluster.mode", "gke-ai:tpuPools")
def slices_are_in_a_pool(stack: ResolvedStack) -> Iterator[Problem]:
    """A new Standard cluster has only the slices of its pools."""
    for placed in stack.tpu_workloads:
        workload = placed.section
        if stack.cluster.mode != "standard" or workload.tpu is None or workload.named_pools or placed.pools:
            continue
        slice_names = dict.fromkeys(f"{pool.version} {pool.topology}" for pool in stack.settings.tpu_pools)
        have = f"its pools have {join_names(slice_names)}" if slice_names else "it has no TPU pools"
        wanted = f"{workload.tpu.version} {workload.tpu.topology}"
        cause = f"no pool of the cluster has {wanted} slices: {have}. The pods would stay pending"
        yield Problem(workload.at("tpu"), cause, f"Add a pool with {wanted} to gke-ai:tpuPools, or name another pool")


@needs("gke-ai:cluster.location")
def flex_start_slices_are_in_the_region(stack: ResolvedStack) -> Iterator[Problem]:
    """The cluster's region offers flex-start for the TPU version, if GKE creates the nodes."""
    location = stack.cluster.location
    region = region_of(location)
    items: list[TpuWorkload | Flavor] = [*(placed.section for placed in stack.tpu_workloads), *stack.queues.flavors]
    for item in items:
        if item.tpu is None or not MODES[item.tpu.capacity].elastic:
            continue
        offered = VERSIONS[item.tpu.version].flex_start_zones
        if offered and region not in map(region_of, offered):
            cause = f"flex-start has no {item.tpu.version} in {region}. The nodes would never start"
            where = f"move the cluster to a zone with it: {join_names(offered)}"
            yield Problem(item.at("tpu.capacity"), cause, f"Choose another capacity, or {where}")


@needs("gke-ai:cluster.location", "gke-ai:cluster.systemPool")
def slices_are_in_one_zone(stack: ResolvedStack) -> Iterator[Problem]:
    """A multi-host pool has one zone, as the hosts of a slice are connected to each other."""
    for pool in stack.settings.tpu_pools:
        zones = pool.zones_in(stack.cluster)
        if pool.slice.multi_host and len(zones) > 1:
            subject = "the pool has" if pool.zones else "the pool uses the zones of the cluster,"
            cause = f"{subject} {join_names(zones)}, and the {pool.slice.hosts} nodes of a {pool.topology} slice "
            cause += "must be in one zone. GKE would refuse the pool"
            yield Problem(pool.at("zones"), cause, f"Write one of them: zones: [{zones[0]}]")


@each_tpu_pool
def slices_are_whole(pool: TpuPool) -> Iterator[Problem]:
    """A multi-host pool has all nodes of its slice or none."""
    tpu_slice, bounds = pool.slice, pool.autoscaling
    if not tpu_slice.multi_host:
        return
    slice_ = f"a {pool.topology} slice of {tpu_slice.machine_type} has {tpu_slice.hosts} nodes"
    if bounds is None and not pool.elastic and pool.nodes_per_zone not in (None, tpu_slice.hosts):
        cause = f"{slice_}, not {pool.nodes_per_zone}. GKE would refuse it: gang mode of size {tpu_slice.hosts}"
        yield Problem(pool.at("nodesPerZone"), cause, f"Remove nodesPerZone, or set it to {tpu_slice.hosts}")
    if bounds is not None and bounds.max_nodes != tpu_slice.hosts:
        cause = f"{slice_}, not {bounds.max_nodes}. GKE would refuse it: gang mode of size {tpu_slice.hosts}"
        remedy = f"Set it to {tpu_slice.hosts}, and add a pool for each further slice"
        yield Problem(pool.at("autoscaling.maxNodes"), cause, remedy)
    elif bounds is not None and not pool.elastic and 0 < bounds.min_nodes < tpu_slice.hosts:
        cause = f"{slice_}, which start and stop together, and minNodes is {bounds.min_nodes}. GKE would refuse the "
        cause += "pool"
        yield Problem(pool.at("autoscaling.minNodes"), cause, f"Set it to 0, or to {tpu_slice.hosts} to keep the slice")


@each_tpu_pool
def flex_start_has_no_min_nodes(pool: TpuPool) -> Iterator[Problem]:
    """Flex-start pools have no minimum, as they have nodes only while pods need them."""
    if pool.elastic and pool.autoscaling is not None and pool.autoscaling.min_nodes > 0:
        cause = f"a {pool.capacity.mode} pool has nodes only while pods need them, and cannot keep "
        cause += f"{pool.autoscaling.min_nodes} nodes. GKE would refuse the pool"
        yield Problem(pool.at("autoscaling.minNodes"), cause, "Remove it, or set it to 0")


@each_tpu_pool
def flex_start_nodes_are_not_repaired(pool: TpuPool) -> Iterator[Problem]:
    """Auto-repair is off with flex-start.

    It is a precondition of the gke-node-pool module of https://github.com/GoogleCloudPlatform/cluster-toolkit.
    """
    if pool.elastic and pool.auto_repair:
        cause = "a repair deletes a flex-start node and ends its run, and Google's Cluster Toolkit refuses such pools"
        yield Problem(pool.at("autoRepair"), cause, "Remove autoRepair. With flex-start, it is off by default")


@needs("gke-ai:cluster.location", "gke-ai:cluster.systemPool")
def flex_start_is_offered_in_the_zones(stack: ResolvedStack) -> Iterator[Problem]:
    """The pool's zones offer flex-start for its TPU version. For tpu7x Google lists no zones."""
    for pool in stack.settings.tpu_pools:
        offered = VERSIONS[pool.version].flex_start_zones
        if not pool.elastic or not offered:
            continue
        zones = pool.zones_in(stack.cluster)
        near = [zone for zone in offered if region_of(zone) == region_of(zones[0])]
        remedy = (
            f"Choose from {join_names(near)}" if near else f"Move the cluster to a zone with it: {join_names(offered)}"
        )
        elsewhere = [zone for zone in zones if zone not in offered]
        if elsewhere and not pool.zones:
            cause = f"the pool uses the zones of the cluster, and flex-start has no {pool.version} in "
            yield Problem(pool.at("zones"), f"{cause}{join_names(elsewhere)}. The nodes would never start", remedy)
            continue
        for zone in elsewhere:
            cause = f"flex-start has no {pool.version} in {zone}. The nodes would never start"
            yield Problem(pool.at(f"zones[{zones.index(zone)}]"), cause, remedy)


@each_tpu_pool
def workload_policies_place_slices(pool: TpuPool) -> Iterator[Problem]:
    """A multi-host slice of tpu7x has a workload policy, one of v6e can have one, and no other pool has one."""
    version, multi_host = VERSIONS[pool.version], pool.slice.multi_host
    if multi_host and version.workload_policy and pool.workload_policy is None:
        cause = f"a multi-host slice of {pool.version} needs a workload policy, and the pool names none. "
        cause += "GKE would refuse the pool"
        remedy = "Create one with gcloud compute resource-policies create workload-policy NAME --type=HIGH_THROUGHPUT "
        remedy += f"--accelerator-topology={pool.topology}, and write its name"
        yield Problem(pool.at("workloadPolicy"), cause, remedy)
    elif pool.workload_policy is not None and not (multi_host and version.takes_workload_policy):
        placed = [version.name for version in VERSIONS.values() if version.takes_workload_policy]
        cause = f"a workload policy places no {pool.topology} slice of {pool.version}. GKE would refuse it"
        remedy = f"Remove it. It is for multi-host slices of {join_names(placed)}"
        yield Problem(pool.at("workloadPolicy"), cause, remedy)
