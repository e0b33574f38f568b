"""Rules of placement: compact pools, flavors with topology, and runs that ask for one."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.fabric import topology as fabric
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.settings.model import GpuPool, Pool, Queues, Workload
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed, ResolvedStack, ResourceFlavor
from gke_ai.settings.resolved.queues import labels_all
from gke_ai.settings.rules.common import each, join_names, needs
from gke_ai.settings.rules.queues import usable_flavors

_OFF_QUEUE = "Kueue would never admit it"


@needs("gke-ai:cluster")
def compact_placement_is_possible(stack: ResolvedStack) -> Iterator[Problem]:
    """A compact pool is in one zone, and GKE places its machine compactly in its capacity mode."""
    for node_pool in stack.node_pools:
        pool = node_pool.section
        if not isinstance(pool, GpuPool) or not pool.compact_placement:
            continue
        path, mode = pool.at("compactPlacement"), pool.capacity.mode
        if mode == "reservation":
            cause = "the machines of a reservation are where the reservation has them. GKE would refuse the pool"
            yield Problem(path, cause, "Remove compactPlacement. The nodes have labels of their block without it")
        elif not fabric.can_be_compact(pool.machine_type, mode):
            cause = f"GKE places no {pool.machine_type} compactly with capacity mode {mode}. It would refuse the pool"
            flex_start = f"with flexStart only {join_names(fabric.COMPACT_FLEX_START)}; otherwise "
            possible = f"machines of {join_names(fabric.COMPACT_FAMILIES)}, and not with queuedFlexStart"
            yield Problem(path, cause, f"Remove it. Possible are {flex_start}{possible}")
        elif len(node_pool.zones) > 1:
            cause = f"a compact pool is in one zone, and this one is in {join_names(node_pool.zones)}. "
            cause += "GKE would refuse it"
            yield Problem(path, cause, f"Set zones to one of them, for example [{node_pool.zones[0]}]")


@needs("gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:cluster.mode")
def flavors_with_topology_have_the_labels(stack: ResolvedStack) -> Iterator[Problem]:
    """A flavor that says `topology: true` has only nodes with the labels, and a Kueue that places by them."""
    for resolved in stack.flavors:
        flavor = resolved.section
        if not flavor.topology:
            continue
        path = flavor.at("topology")
        if flavor.mode == "existing":
            cause = f"flavor {flavor.name} exists, and its owner decides whether it has a topology. "
            cause += "The key has no effect"
            yield Problem(path, cause, "Remove topology")
        elif not _places(stack.queues):
            yield Problem(path, f"{_too_old(stack.queues)}. Pods could be lost or counted twice", _UPGRADE)
        elif not labels_all(resolved.pools):
            cause = f"flavor {flavor.name} has nodes without labels of their block: {_without_labels(resolved)}. Kueue "
            cause += "would admit nothing to them"
            yield Problem(path, cause, "Remove topology, or change the pools")


@each(lambda stack: stack.placed)
def topologies_state_one_level(placed: Placed[Workload]) -> Iterator[Problem]:
    """A topology is required or preferred, or only of groups."""
    topology = placed.section.placement
    stated = [] if topology is None else [level for level in (topology.required, topology.preferred) if level]
    if topology is None or len(stated) == 1 or (topology.groups is not None and not stated):
        return
    how = "both required and preferred" if stated else "neither required nor preferred"
    cause = f"the topology states {how}. Kueue would ignore it, or refuse the run"
    yield Problem(placed.section.at("topology"), cause, "Set one of them, for example required: block")


@needs("gke-ai:queues", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:cluster.mode")
def workloads_find_a_flavor_for_their_topology(stack: ResolvedStack) -> Iterator[Problem]:
    """A run with a topology has a flavor with one, and every other workload a flavor without, in a mixed queue.

    https://github.com/kubernetes-sigs/kueue/issues/7491
    """
    for placed in stack.placed:
        workload, queue = placed.section, placed.queue
        if queue is None:
            if workload.placement is not None and workload.queue is None:
                cause = f"{workload.short_noun} {workload.name} states a topology and no queue. Only Kueue reads it"
                yield Problem(workload.at("topology"), cause, "Set queue, or remove topology")
            continue
        usable = {flavor.name for flavor in usable_flavors(queue, placed)}
        own = [quota.flavor for quota in queue.quotas if quota.flavor and quota.flavor.section.name in usable]
        if not own or any(flavor.section.mode == "existing" for flavor in own):
            continue  # another rule reports the first, and only the cluster knows the second
        name, all_flavors = queue.section.name, [quota.flavor for quota in queue.quotas if quota.flavor]
        if workload.placement is not None and not any(flavor.has_topology for flavor in own):
            cause = f"no flavor of cluster queue {name} for these nodes has a topology: "
            cause += f"{_reason(own[0], stack.queues)}. {_OFF_QUEUE}"
            remedy = "Use a pool of a reservation or a compact one, of fixed size, with machines such as a4-highgpu-8g"
            yield Problem(workload.at("topology"), cause, remedy)
        elif (
            workload.placement is None
            and all(flavor.has_topology for flavor in own)
            and not all(flavor.has_topology for flavor in all_flavors)
        ):
            plain = join_names(flavor.section.name for flavor in all_flavors if not flavor.has_topology)
            cause = f"cluster queue {name} has flavors with topology and others ({plain}). Kueue then uses "
            cause += f"{own[0].section.name} only for runs that state a topology. {_OFF_QUEUE}"
            remedy = "State topology, such as preferred: block, or give the other flavors a cluster queue of their own"
            yield Problem(workload.at("queue"), cause, remedy)


@each(lambda stack: stack.gpu_workloads)
def groups_are_parts_of_a_run(placed: Placed[Workload]) -> Iterator[Problem]:
    """Groups have equal sizes, and their level is narrower than that of the run."""
    run, topology = placed.section, placed.section.placement
    groups = topology.groups if topology else None
    if topology is None or groups is None:
        return
    if placed.pods_at_once % groups.pods:
        cause = f"{placed.pods_at_once} pods are no groups of {groups.pods}. Kueue would refuse the run"
        yield Problem(run.at("topology.groups.pods"), cause, f"Write a divisor of {placed.pods_at_once}")
    wider, narrower = topology.required or topology.preferred, groups.level
    levels = list(fabric.LEVELS)
    if wider is not None and levels.index(narrower) <= levels.index(wider):
        cause = f"groups of one {narrower} are no parts of one {wider}. They would change nothing, "
        cause += "or Kueue never admits it"
        possible = levels[levels.index(wider) + 1 :]
        remedy = f"Write {' or '.join(possible)}" if possible else "Remove groups"
        yield Problem(run.at("topology.groups.level"), cause, remedy)


@each(lambda stack: stack.gpu_workloads)
def required_hosts_hold_their_pods(placed: Placed[Workload]) -> Iterator[Problem]:
    """All pods of a run, or of a group, fit one machine if they must be on one host."""
    run, topology = placed.section, placed.section.placement
    machines = [MACHINES[pool.section.node_machine_type] for pool in placed.pools]
    if topology is None or not machines:
        return
    most, groups = max(machine.gpus for machine in machines), topology.groups
    together = {"topology.required": placed.pods_at_once} if topology.required == "host" else {}
    together |= {"topology.groups.level": groups.pods} if groups and groups.level == "host" else {}
    for key, pods in together.items():
        if (wanted := pods * placed.accelerators) > most:
            cause = f"{pods} pods have {wanted} GPUs together, and a host has {most}. The run would wait forever"
            yield Problem(run.at(key), cause, "Write block or subblock")


_UPGRADE = f"Remove topology, or let the stack install Kueue {'.'.join(map(str, fabric.SINCE))} or later"


def _places(queues: Queues) -> bool:
    """Whether the Kueue of the stack places by topology without the faults of earlier releases."""
    return queues.installed_kueue is None or fabric.is_supported(queues.installed_kueue)


def _too_old(queues: Queues) -> str:
    return f"Kueue {queues.kueue_version} has faults in its placement by topology, fixed in 0.19"


def _reason(flavor: ResourceFlavor, queues: Queues) -> str:
    """Why a flavor has no topology."""
    if flavor.section.topology is False:
        return f"{flavor.section.at('topology')} is false"
    if not _places(queues):
        return _too_old(queues)
    if not flavor.pools:
        return f"flavor {flavor.section.name} names no pools"
    if labels_all(flavor.pools):
        others = "Kueue is not the stack's" if queues.kueue == "existing" else "other flavors of its queues have none"
        return f"{others}, and {flavor.section.at('topology')} is not set"
    return _without_labels(flavor)


def _without_labels(flavor: ResourceFlavor) -> str:
    """The first pool of a flavor whose nodes Kueue can't place by topology, with the reason."""
    pool: Pool | None = next((pool.section for pool in flavor.pools if not pool.section.has_topology), None)
    if pool is None:
        return "it names no pools"
    machine = MACHINES[pool.node_machine_type]
    if not machine.has_topology:
        return f"{machine.name} of pool {pool.name} has no such labels"
    if pool.grows:
        return f"pool {pool.name} is autoscaled, and Kueue places only on nodes that exist"
    return f"pool {pool.name} has {pool.capacity.mode} capacity without compact placement"
