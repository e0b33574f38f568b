"""Rules of TPU pools, and of whatever else names a TPU slice.

Sources: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (slices),
https://cloud.google.com/kubernetes-engine/docs/how-to/tpus (pools),
https://cloud.google.com/kubernetes-engine/docs/concepts/dws#requirements (flex-start)
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from pydantic.alias_generators import to_camel

from catalog.capacity import MODES
from catalog.tpus import MAX_CHIPS_3D, VERSIONS, NoSuchSlice
from catalog.zones import region_of
from settings.model import JetStream, Multislice, Section, Settings, TpuBatch, TpuPool, TpuSlice
from settings.plan import is_autopilot, pool_slice, pool_zones, pools_of, workload_slice, workloads
from settings.problems import Problem, unknown
from settings.rules.common import Rule, join_names, needs

SliceWorkload = JetStream | TpuBatch | Multislice

# Generations that GKE has and this product doesn't, by their own names and by those of their node labels.
_OLD_VERSION = re.compile(r"(tpu-)?v[234](-\w+)?")
_MAX_CHOICES = 12


def slice_exists(section: Section, wanted: TpuPool | TpuSlice, key: str = "") -> Iterator[Problem]:
    """GKE has the slice of that version and topology, on the machine that is named; `key` is where in the section."""
    try:
        pool_slice(wanted)
    except NoSuchSlice as error:
        path = section.at(f"{key}{to_camel(error.argument)}")
        named = str(getattr(wanted, error.argument))
        yield Problem(path, f"{error} — no node would ever have it", _instead(named, error))


def _instead(named: str, error: NoSuchSlice) -> str:
    if error.argument == "version":
        by_label = {version.accelerator: version.name for version in VERSIONS.values()}
        if named in by_label:
            return f"Did you mean {by_label[named]}?"
        old = ": flex-start has no v3 and no v4, and nothing older than v5e is supported here"
        return f"Write one of {join_names(error.choices)}{old if _OLD_VERSION.fullmatch(named) else ''}"
    if error.argument == "topology":
        ascending = "x".join(sorted(named.split("x"), key=lambda side: (len(side), side)))
        if ascending in error.choices:
            return f"Did you mean {ascending}? The sides are in ascending order"
        if len(error.choices) > _MAX_CHOICES:
            some = join_names(error.choices[:_MAX_CHOICES])
            return f"Write {some}, or larger: multiples of 4 in ascending order, {MAX_CHIPS_3D} chips at most"
    return f"Write one of {join_names(error.choices)}"


def slices_are_told(settings: Settings) -> Iterator[Problem]:
    """Each workload on TPUs says which slice it wants, by a pool of this stack or by itself, and there is one."""
    for flavor in settings.queues.flavors if settings.queues else []:
        if flavor.tpu is not None:
            yield from slice_exists(flavor, flavor.tpu, "tpu.")
    known = [pool.name for pool in settings.tpu_pools]
    autopilot = is_autopilot(settings.cluster) and not settings.unparsed.overlaps("gke-ai:cluster.mode")
    for one in slice_workloads(settings):
        if one.tpu is not None:
            yield from slice_exists(one, one.tpu, "tpu.")
        named = _pools_named(one)
        if not named and one.tpu is None:
            key = "pools" if isinstance(one, Multislice) else "pool"
            cause = f"{one.name} asks for TPUs and does not say of which slice — its pods could be put nowhere"
            remedy = (
                f"Set {key} (of {join_names(known)})" if known else "Set tpu, for example {version: v6e, topology: 2x2}"
            )
            yield Problem(one.at(key if known else "tpu"), cause, remedy)
        for path, name in named.items():
            if autopilot and name not in known:
                cause = f"the cluster is Autopilot and has no pools, so no {name} — the pods would stay pending"
                yield Problem(path, cause, "Write tpu: {version: v6e, topology: 2x2}, or another slice, instead")
            else:
                consequence = "the pods would stay pending"
                yield from unknown(settings, path, "gke-ai:tpuPools", "TPU pool", name, known, consequence)


def slice_workloads(settings: Settings) -> list[SliceWorkload]:
    """The workloads that run on TPUs."""
    return [one for one in workloads(settings) if isinstance(one, JetStream | TpuBatch | Multislice)]


def has_a_slice(one: SliceWorkload, settings: Settings) -> bool:
    """Whether it can be told which slice the workload runs on."""
    try:
        workload_slice(one, settings)
    except LookupError:
        return False
    return True


def _pools_named(one: SliceWorkload) -> dict[str, str]:
    """The pools that a workload names, by the path where it does."""
    if isinstance(one, Multislice):
        return {one.at(f"pools[{index}]"): name for index, name in enumerate(one.pools)}
    return {} if one.pool is None else {one.at("pool"): one.pool}


def slices_are_said_once(settings: Settings) -> Iterator[Problem]:
    """A Job or a JobSet names TPU pools of this stack, or a slice."""
    for one in slice_workloads(settings):
        if one.tpu is not None and _pools_named(one) and not isinstance(one, JetStream):
            cause = f"{one.name} names a pool and a slice — the pool has its own, and the two could disagree"
            yield Problem(one.at("tpu"), cause, "Leave one of them out")


@needs("gke-ai:cluster.mode", "gke-ai:tpuPools")
def slices_are_in_a_pool(settings: Settings) -> Iterator[Problem]:
    """A new Standard cluster has the slices of its pools and no others."""
    for one in slice_workloads(settings):
        if settings.cluster.mode != "standard" or one.tpu is None or _pools_named(one) or pools_of(one, settings):
            continue
        slice_names = dict.fromkeys(f"{pool.version} {pool.topology}" for pool in settings.tpu_pools)
        have = f"its pools have {join_names(slice_names)}" if slice_names else "it has no TPU pools"
        wanted = f"{one.tpu.version} {one.tpu.topology}"
        yield Problem(
            one.at("tpu"),
            f"no pool of the cluster has {wanted} slices: {have} — the pods would stay pending",
            f"Add a pool with {wanted} to gke-ai:tpuPools, or name one that is there",
        )


@needs("gke-ai:cluster.location")
def flex_start_slices_are_in_the_region(settings: Settings) -> Iterator[Problem]:
    """Nodes that Google makes come to the region of the cluster, by flex-start where it is had there."""
    flavors = settings.queues.flavors if settings.queues else []
    location = settings.cluster.location
    region = region_of(location)
    for one in [*slice_workloads(settings), *flavors]:
        if one.tpu is None or not MODES[one.tpu.capacity].elastic:
            continue
        there = VERSIONS[one.tpu.version].flex_start_zones
        if there and region not in map(region_of, there):
            cause = f"flex-start has no {one.tpu.version} in {region} — the nodes would never come"
            where = f"move the cluster to where it is had: {join_names(there)}"
            yield Problem(one.at("tpu.capacity"), cause, f"Choose another capacity, or {where}")


@needs("gke-ai:cluster.location", "gke-ai:cluster.systemPool")
def slices_are_in_one_zone(settings: Settings) -> Iterator[Problem]:
    """The hosts of one slice are wired together, so a multi-host pool has one zone."""
    for pool in settings.tpu_pools:
        zones = pool_zones(pool, settings.cluster)
        if pool_slice(pool).multi_host and len(zones) > 1:
            whose = "the pool has" if pool.zones else "the pool names no zone and has those of the cluster,"
            yield Problem(
                pool.at("zones"),
                f"{whose} {join_names(zones)}, and the {pool_slice(pool).hosts} nodes of a {pool.topology} slice are "
                "in one zone — the pool would be refused by GKE",
                f"Write one of them: zones: [{zones[0]}]",
            )


def slices_are_whole(settings: Settings) -> Iterator[Problem]:
    """A multi-host pool has all nodes of its slice or none: the group of its machines has that size and no other."""
    for pool in settings.tpu_pools:
        tpu_slice, bounds = pool_slice(pool), pool.autoscaling
        elastic = MODES[pool.capacity.mode].elastic
        if not tpu_slice.multi_host:
            continue
        slice_ = f"a {pool.topology} slice of {tpu_slice.machine_type} is {tpu_slice.hosts} nodes"
        if bounds is None and not elastic and pool.nodes_per_zone not in (None, tpu_slice.hosts):
            yield Problem(
                pool.at("nodesPerZone"),
                f"{slice_}, not {pool.nodes_per_zone} — it would be refused: gang mode of size {tpu_slice.hosts}",
                f"Leave nodesPerZone out, or set it to {tpu_slice.hosts}",
            )
        if bounds is not None and bounds.max_nodes != tpu_slice.hosts:
            yield Problem(
                pool.at("autoscaling.maxNodes"),
                f"{slice_}, not {bounds.max_nodes} — it would be refused: gang mode of size {tpu_slice.hosts}",
                f"Set it to {tpu_slice.hosts}, and make a pool for each further slice",
            )
        elif bounds is not None and not elastic and 0 < bounds.min_nodes < tpu_slice.hosts:
            yield Problem(
                pool.at("autoscaling.minNodes"),
                f"{slice_}, which come and go together, and {bounds.min_nodes} is a part of them — "
                "the pool would be refused by GKE",
                f"Set it to 0, or to {tpu_slice.hosts} to keep the slice",
            )


def flex_start_begins_with_nothing(settings: Settings) -> Iterator[Problem]:
    """Flex-start has nodes only while there is work for them."""
    for pool in settings.tpu_pools:
        if MODES[pool.capacity.mode].elastic and pool.autoscaling is not None and pool.autoscaling.min_nodes > 0:
            cause = f"a {pool.capacity.mode} pool starts empty and empties again, so it can't keep "
            cause += f"{pool.autoscaling.min_nodes} nodes — the pool would be refused by GKE"
            yield Problem(pool.at("autoscaling.minNodes"), cause, "Leave it out, or set it to 0")


@needs("gke-ai:cluster.location", "gke-ai:cluster.systemPool")
def flex_start_is_where_it_is_had(settings: Settings) -> Iterator[Problem]:
    """Dynamic Workload Scheduler has TPUs of most versions in a few zones each; of tpu7x Google names none."""
    for pool in settings.tpu_pools:
        there = VERSIONS[pool.version].flex_start_zones
        if not MODES[pool.capacity.mode].elastic or not there:
            continue
        zones = pool_zones(pool, settings.cluster)
        near = [zone for zone in there if region_of(zone) == region_of(zones[0])]
        remedy = (
            f"Choose from {join_names(near)}" if near else f"Move the cluster to where it is had: {join_names(there)}"
        )
        elsewhere = [zone for zone in zones if zone not in there]
        if elsewhere and not pool.zones:
            cause = f"the pool names no zone and has those of the cluster, and flex-start has no {pool.version} in "
            yield Problem(pool.at("zones"), f"{cause}{join_names(elsewhere)} — the nodes would never come", remedy)
            continue
        for zone in elsewhere:
            cause = f"flex-start has no {pool.version} in {zone} — the nodes would never come"
            yield Problem(pool.at(f"zones[{zones.index(zone)}]"), cause, remedy)


def workload_policies_place_slices(settings: Settings) -> Iterator[Problem]:
    """A multi-host slice of tpu7x is placed by a policy of its own topology, and nothing else is."""
    needing = [version.name for version in VERSIONS.values() if version.workload_policy]
    for pool in settings.tpu_pools:
        wanted = pool_slice(pool).multi_host and VERSIONS[pool.version].workload_policy
        if wanted and pool.workload_policy is None:
            yield Problem(
                pool.at("workloadPolicy"),
                f"a multi-host slice of {pool.version} is placed by a workload policy, and the pool names none — "
                "it would be refused by GKE",
                "Make one with gcloud compute resource-policies create workload-policy NAME --type=HIGH_THROUGHPUT "
                f"--accelerator-topology={pool.topology}, and write its name",
            )
        elif not wanted and pool.workload_policy is not None:
            cause = f"GKE itself places a {pool.topology} slice of {pool.version} — it would refuse the policy"
            yield Problem(
                pool.at("workloadPolicy"), cause, f"Leave it out: it is for multi-host slices of {join_names(needing)}"
            )


RULES: tuple[Rule, ...] = (
    slices_are_said_once,
    slices_are_in_a_pool,
    flex_start_slices_are_in_the_region,
    slices_are_in_one_zone,
    slices_are_whole,
    flex_start_begins_with_nothing,
    flex_start_is_where_it_is_had,
    workload_policies_place_slices,
)
