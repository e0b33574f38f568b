"""Rules of Kueue: flavors, cluster queues, local queues and priority classes."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.machines import GPUS, NOT_BUILT, machines_with
from catalog.nodes import NVIDIA_GPU
from catalog.quantities import parse_quantity
from catalog.tpus import GOOGLE_TPU, Slice
from settings.model import (
    ClusterQueue,
    Flavor,
    FlavorQuota,
    GpuPool,
    GpuWorkload,
    JetStream,
    Multislice,
    Queues,
    Server,
    Settings,
    TpuBatch,
    TpuPool,
    Workload,
)
from settings.plan import (
    BUILT_IN_PRIORITIES,
    cluster_queue_of,
    flavor_pools,
    gpus,
    is_autopilot,
    lendable,
    lenders,
    pool_slice,
    pools,
    pools_of,
    priority,
    quota,
    waits_for_flex_start,
    workload_slice,
)
from settings.problems import Problem, nearest, unknown
from settings.rules.common import Rule, join_names, needs, repeated
from settings.rules.pools import not_built

# What quota can be given for, beside the extended resources of other vendors.
_KNOWN = ("cpu", "memory", NVIDIA_GPU, GOOGLE_TPU, "ephemeral-storage")


def _queues(settings: Settings) -> Queues:
    return settings.queues or Queues()


def names_are_unique(settings: Settings) -> Iterator[Problem]:
    """No two Kueue objects of one kind and name; local queues may repeat across namespaces."""
    queues = _queues(settings)
    consequence = "the second could not be created"
    yield from repeated(((one, "name", one.name) for one in queues.flavors), "flavor", consequence)
    yield from repeated(((one, "name", one.name) for one in queues.cluster_queues), "cluster queue", consequence)
    locals_ = ((one, "name", f"{one.namespace}/{one.name}") for one in queues.local_queues)
    yield from repeated(locals_, "local queue", consequence)
    yield from repeated(((one, "name", one.name) for one in queues.priority_classes), "priority class", consequence)


def _accelerator_name(pool: GpuPool | TpuPool) -> str:
    if isinstance(pool, GpuPool):
        return gpus(pool)[0]
    return _slice_name(pool_slice(pool))


def _slice_name(tpu_slice: Slice) -> str:
    return f"{tpu_slice.accelerator} {tpu_slice.topology}"


def flavors_are_of_pools(settings: Settings) -> Iterator[Problem]:
    """A flavor names pools of this stack, all of one accelerator: its labels can't say two."""
    known = [pool.name for pool in pools(settings)]
    without = is_autopilot(settings.cluster) and not known and not settings.unparsed.overlaps("gke-ai:cluster.mode")
    for flavor in _queues(settings).flavors:
        if flavor.pools and without:
            cause = "the cluster is Autopilot and has no pools — no node would be of this flavor"
            yield Problem(flavor.at("pools"), cause, "Leave pools out, and write accelerator (of GPUs) or tpu instead")
            continue
        for index, name in enumerate(flavor.pools):
            consequence = "no node would be of this flavor"
            path = flavor.at(f"pools[{index}]")
            if not settings.unparsed.may_contain("gke-ai:tpuPools", name):
                section = "gke-ai:gpuPools" if settings.gpu_pools or not settings.tpu_pools else "gke-ai:tpuPools"
                yield from unknown(settings, path, section, "pool", name, known, consequence)
        accelerators = dict.fromkeys(_accelerator_name(pool) for pool in flavor_pools(flavor, settings))
        if len(accelerators) > 1:
            yield Problem(
                flavor.at("pools"),
                f"the pools of flavor {flavor.name} have different accelerators ({join_names(accelerators)}) — "
                "no label is common to their nodes alone, so Kueue could not tell them",
                "Make a flavor for each of them",
            )


def gpu_flavors_are_of_a_type(settings: Settings) -> Iterator[Problem]:
    """A flavor that names a GPU type names one that there is, and no pools or slice beside it."""
    for flavor in _queues(settings).flavors:
        if flavor.accelerator is None:
            continue
        if flavor.pools or flavor.tpu is not None:
            other = "pools" if flavor.pools else "tpu"
            cause = f"flavor {flavor.name} has {other} and an accelerator — both say what it is, and could disagree"
            yield Problem(flavor.at("accelerator"), cause, f"Leave out accelerator, or {other}")
        elif flavor.accelerator not in GPUS:
            cause = f"{flavor.accelerator} is no GPU type of the catalogue — no node would be of this flavor"
            yield Problem(flavor.at("accelerator"), cause, nearest(flavor.accelerator, GPUS))
        else:
            for unbuilt in (one for one in machines_with(flavor.accelerator) if one.name in NOT_BUILT):
                yield not_built(flavor.at("accelerator"), unbuilt)


@needs("gke-ai:queues")
def flavors_are_used(settings: Settings) -> Iterator[Problem]:
    """A flavor without quota in any cluster queue is a leftover or a misspelling."""
    queues = _queues(settings)
    used = {one.flavor for queue in queues.cluster_queues for one in queue.flavors}
    for flavor in queues.flavors:
        if flavor.name not in used:
            cause = f"flavor {flavor.name} is in no cluster queue — nothing could run on it"
            yield Problem(flavor.at("name"), cause, "Give quota of it in a cluster queue, or leave it out")


def cluster_queues_have_flavors(settings: Settings) -> Iterator[Problem]:
    """A cluster queue names flavors of this stack, each once, all with quota for the same resources."""
    queues = _queues(settings)
    known = [flavor.name for flavor in queues.flavors]
    for queue in queues.cluster_queues:
        for index, one in enumerate(queue.flavors):
            path = queue.at(f"flavors[{index}].flavor")
            consequence = f"cluster queue {queue.name} would admit nothing"
            yield from unknown(settings, path, "gke-ai:queues.flavors", "flavor", one.flavor, known, consequence)
            if one.flavor in [other.flavor for other in queue.flavors[:index]]:
                cause = f"flavor {one.flavor} is in cluster queue {queue.name} twice — Kueue would refuse it"
                yield Problem(path, cause, "Leave one out")
        # What can't be derived is told by another rule.
        covered = [set(amounts) for one in queue.flavors if (amounts := quota(one, settings))]
        if any(resources != covered[0] for resources in covered):
            yield Problem(
                queue.at("flavors"),
                f"the flavors of cluster queue {queue.name} give quota for different resources — Kueue would refuse it",
                f"Give each of them quota for {join_names(sorted(set().union(*covered)))}",
            )


def quotas_are_of_resources(settings: Settings) -> Iterator[Problem]:
    """Quota is for resources that pods ask for, GPUs in whole numbers."""
    for queue in _queues(settings).cluster_queues:
        for index, one in enumerate(queue.flavors):
            path = queue.at(f"flavors[{index}].quota")
            if isinstance(one.quota, str):
                continue
            if not one.quota:
                cause = f"the quota of flavor {one.flavor} is empty — nothing would ever be admitted"
                yield Problem(path, cause, f"Write quota: derive, or amounts of {join_names(_KNOWN)}")
            for resource, text in one.quota.items():
                if "/" not in resource and resource not in (*_KNOWN, "pods"):
                    cause = f"{resource} is no resource of Kubernetes — no pod asks for it"
                    meant = NVIDIA_GPU if "gpu" in resource.lower() else None
                    remedy = f"Did you mean {meant}?" if meant else nearest(resource, _KNOWN)
                    yield Problem(f'{path}["{resource}"]', cause, remedy)
                elif "/" in resource and parse_quantity(text).denominator != 1:
                    cause = f"{text} of {resource} is not a whole number — GPUs are given whole"
                    yield Problem(f'{path}["{resource}"]', cause, "Write a whole number")


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools")
def quota_can_be_derived(settings: Settings) -> Iterator[Problem]:
    """`derive` needs the pools whose nodes it adds up."""
    flavors = {flavor.name: flavor for flavor in _queues(settings).flavors}
    for queue in _queues(settings).cluster_queues:
        for index, one in enumerate(queue.flavors):
            flavor = flavors.get(one.flavor)
            if one.quota != "derive" or flavor is None:
                continue
            path = queue.at(f"flavors[{index}].quota")
            if is_autopilot(settings.cluster):
                cause = "quota can't be derived: the cluster is Autopilot, which has no pools to add up"
                amounts = "google.com/tpu: '8'" if flavor.tpu else "cpu: '24', memory: 96Gi, nvidia.com/gpu: '2'"
                yield Problem(path, cause, f"Write the amounts, for example {{{amounts}}}")
            elif not flavor.pools:
                cause = f"quota can't be derived: flavor {flavor.name} names no pools"
                yield Problem(path, cause, f"Name them in {flavor.at('pools')}, or write the amounts")


def local_queues_lead_somewhere(settings: Settings) -> Iterator[Problem]:
    """A local queue leads to a cluster queue of this stack."""
    known = [queue.name for queue in _queues(settings).cluster_queues]
    for local in _queues(settings).local_queues:
        yield from unknown(
            settings,
            local.at("clusterQueue"),
            "gke-ai:queues.clusterQueues",
            "cluster queue",
            local.cluster_queue,
            known,
            f"what is submitted to {local.name} would wait for ever",
        )


def priority_classes_are_kubernetes_classes(settings: Settings) -> Iterator[Problem]:
    """At most one global default, and no name that Kubernetes keeps to itself."""
    defaults = [one for one in _queues(settings).priority_classes if one.global_default]
    for one in defaults[1:]:
        cause = f"{one.name} is a second global default beside {defaults[0].name} — Kubernetes would refuse it"
        yield Problem(one.at("globalDefault"), cause, "Leave one of them")
    for one in _queues(settings).priority_classes:
        if one.name.startswith("system-"):
            cause = f"{one.name} begins with system-, which Kubernetes keeps to itself — it would be refused"
            yield Problem(one.at("name"), cause, "Choose another name")


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:queues.clusterQueues")
def limits_are_of_a_cohort(settings: Settings) -> Iterator[Problem]:
    """Borrowing and lending are limited between the queues of a cohort, for resources that the queue has quota for.

    https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#cohort
    """
    for queue in _queues(settings).cluster_queues:
        for index, one in enumerate(queue.flavors):
            for key, limit, verb in (
                ("borrowingLimit", one.borrowing_limit, "borrow from"),
                ("lendingLimit", one.lending_limit, "lend to"),
            ):
                if limit:
                    yield from _limits(queue, one, limit, (queue.at(f"flavors[{index}].{key}"), verb), settings)


def _limits(
    queue: ClusterQueue, one: FlavorQuota, limit: dict[str, str], shown: tuple[str, str], settings: Settings
) -> Iterator[Problem]:
    path, verb = shown
    key = path.rpartition(".")[2]
    if queue.cohort is None:
        cause = f"cluster queue {queue.name} is in no cohort — there is nobody to {verb}, and Kueue would refuse it"
        yield Problem(path, cause, f"Give it and another queue the same {queue.at('cohort')}, or leave {key} out")
        return
    if not lenders(queue, one, settings):
        cause = f"no other queue of cohort {queue.cohort} has quota of flavor {one.flavor} — there is nobody to {verb}"
        yield Problem(path, cause, f"Name the same cohort and flavor in another cluster queue, or leave {key} out")
        return
    nominal = quota(one, settings)
    for resource, text in limit.items():
        place = f'{path}["{resource}"]'
        if resource not in nominal and nominal:
            cause = f"cluster queue {queue.name} has no quota for {resource} of flavor {one.flavor} — nothing to limit"
            yield Problem(place, cause, nearest(resource, nominal))
        elif "/" in resource and parse_quantity(text).denominator != 1:
            cause = f"{text} of {resource} is not a whole number — accelerators are given whole"
            yield Problem(place, cause, "Write a whole number")
        elif key == "lendingLimit" and nominal and parse_quantity(text) > parse_quantity(nominal[resource]):
            cause = f"{text} of {resource} is more than the quota, {nominal[resource]} — Kueue would refuse it"
            yield Problem(place, cause, f"Write at most {nominal[resource]}, or leave it out to lend the whole quota")


@needs("gke-ai:queues", "gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools")
def what_serving_lends_comes_back(settings: Settings) -> Iterator[Problem]:
    """Training that borrows quota of a server's queue has a lower priority, or the queue takes quota back from any."""
    lending = [
        (one, queue)
        for one in settings.serving
        if (queue := cluster_queue_of(one, settings)) and queue.preemption.reclaim_within_cohort == "LowerPriority"
    ]
    for job in settings.training:
        queue = cluster_queue_of(job, settings)
        if queue is None:
            continue
        for server, lender in lending:
            if (levels := _outranked(server, job, settings)) and _may_borrow(queue, lender, settings):
                yield Problem(
                    job.at("priorityClass"),
                    f"{levels}, and {lender.name} lends its quota to {queue.name} — serving would not get back what "
                    "training borrows",
                    f"Give the server a priorityClass of a higher value, or set {lender.at('preemption')}: "
                    "{reclaimWithinCohort: Any}",
                )
                break


def _outranked(server: Server, job: Workload, settings: Settings) -> str:
    """That a server doesn't go before a run, for people to read; empty where it does, or a class is unknown."""
    known = {None, *BUILT_IN_PRIORITIES, *(one.name for one in _queues(settings).priority_classes)}
    mine, theirs = priority(job, settings), priority(server, settings)
    if mine < theirs or not {job.priority_class, server.priority_class} <= known:
        return ""
    return f"training {job.name} has priority {mine}, server {server.name} has {theirs}"


def _may_borrow(borrower: ClusterQueue, lender: ClusterQueue, settings: Settings) -> bool:
    """Whether what one queue uses of accelerators may be the quota of the other."""
    for own in borrower.flavors:
        for lent in lenders(borrower, own, settings):
            for resource in (NVIDIA_GPU, GOOGLE_TPU) if lent in lender.flavors else ():
                limit = own.borrowing_limit.get(resource)
                if lendable(lent, resource, settings) and (limit is None or parse_quantity(limit)):
                    return True
    return False


@needs("gke-ai:queues")
def serving_goes_before_training(settings: Settings) -> Iterator[Problem]:
    """Where a server and a run share a cluster queue that preempts by priority, the server's is the higher."""
    servers: dict[str, list[Server]] = {}  # by cluster queue, found once: a large stack has many pairs
    for one in settings.serving:
        if shared := cluster_queue_of(one, settings):
            servers.setdefault(shared.name, []).append(one)
    for job in settings.training:
        queue = cluster_queue_of(job, settings)
        if queue is None or queue.preemption.within_cluster_queue == "Never":
            continue
        for server in servers.get(queue.name, []):
            if levels := _outranked(server, job, settings):
                yield Problem(
                    job.at("priorityClass"),
                    f"{levels}, and both are in cluster queue {queue.name} — serving would never get GPUs back from "
                    "training",
                    "Give the server a priorityClass of a higher value, "
                    "or set preemption: {withinClusterQueue: Never} if that is meant",
                )
                break


def usable_flavors(queue: ClusterQueue, workload: Workload, settings: Settings) -> list[Flavor]:
    """Flavors of the queue whose nodes the workload may run on; where the stack has no such pools, by what they say."""
    flavors = {flavor.name: flavor for flavor in _queues(settings).flavors}
    own = pools_of(workload, settings)
    names, accelerators = {pool.name for pool in own}, {_accelerator_name(pool) for pool in own}
    if isinstance(workload, JetStream | TpuBatch | Multislice):
        accelerators.add(_slice_name(workload_slice(workload, settings)))
    elif isinstance(workload, GpuWorkload) and workload.accelerator is not None:
        accelerators.add(workload.accelerator)
    usable = []
    for one in queue.flavors:
        flavor = flavors.get(one.flavor)
        if flavor is None:
            continue
        if flavor.accelerator is not None:
            # Which GPUs the machines of a compute class have, Kueue doesn't look at; a misspelt type is told elsewhere.
            open_to_all = getattr(workload, "compute_class", None) is not None or flavor.accelerator not in GPUS
            fits = open_to_all or flavor.accelerator in accelerators
        elif flavor.tpu is not None:
            fits = _slice_name(pool_slice(flavor.tpu)) in accelerators
        else:
            several = len(flavor.pools) > 1 and accelerators & {
                _accelerator_name(pool) for pool in flavor_pools(flavor, settings)
            }
            fits = not flavor.pools or bool(names & set(flavor.pools)) or bool(several)
        if fits:
            usable.append(flavor)
    return usable


@needs("gke-ai:serving", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:computeClasses")
def admitted_pods_have_time_to_be_ready(settings: Settings) -> Iterator[Problem]:
    """Kueue has one limit for all: it is no shorter than a server takes to load, or pods wait for their nodes."""
    queues = _queues(settings)
    limit = queues.pods_ready_timeout_seconds
    if not limit:
        return
    path = queues.at("podsReadyTimeoutSeconds")
    if where := next(waits_for_flex_start(settings), None):
        cause = f"flex-start nodes of {where} may come days after their pods were admitted. Kueue would evict the pods "
        cause += f"after {limit} s, again and again"
        yield Problem(path, cause, "Leave it out, or use capacity {mode: queuedFlexStart}")
        return
    queued = [server for server in settings.serving if server.queue is not None]
    slowest = max(queued, key=lambda server: server.ready_timeout_seconds, default=None)
    if slowest is not None and slowest.ready_timeout_seconds > limit:
        cause = f"server {slowest.name} may take {slowest.ready_timeout_seconds} s to load its model, and Kueue would "
        cause += f"evict it after {limit} s. It would never become ready"
        remedy = f"Set it to {slowest.ready_timeout_seconds} or more, or lower {slowest.at('readyTimeoutSeconds')}"
        yield Problem(path, cause, remedy)


RULES: tuple[Rule, ...] = (
    admitted_pods_have_time_to_be_ready,
    names_are_unique,
    flavors_are_of_pools,
    gpu_flavors_are_of_a_type,
    flavors_are_used,
    cluster_queues_have_flavors,
    quotas_are_of_resources,
    quota_can_be_derived,
    local_queues_lead_somewhere,
    priority_classes_are_kubernetes_classes,
    limits_are_of_a_cohort,
    what_serving_lends_comes_back,
    serving_goes_before_training,
)
