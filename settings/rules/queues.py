"""Rules of Kueue: flavors, cluster queues, local queues and priority classes."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.machines import GPUS, NOT_BUILT, machines_with
from catalog.nodes import NVIDIA_GPU
from catalog.quantities import parse_quantity
from catalog.tpus import GOOGLE_TPU
from settings.model import (
    ClusterQueue,
    Flavor,
    FlavorQuota,
    Queues,
    Server,
    Settings,
    Workload,
)
from settings.plan import (
    BUILT_IN_PRIORITIES,
    cluster_queue_of,
    flavor_pools,
    is_autopilot,
    lendable,
    lenders,
    pools_of,
    priority,
    quota,
    waits_for_flex_start,
)
from settings.problems import Problem, nearest, unknown
from settings.rules.common import Rule, join_names, needs, repeated
from settings.rules.pools import not_built

# Resources with quota, besides extended resources of other vendors.
_KNOWN = ("cpu", "memory", NVIDIA_GPU, GOOGLE_TPU, "ephemeral-storage")


def _queues(settings: Settings) -> Queues:
    return settings.queues or Queues()


def names_are_unique(settings: Settings) -> Iterator[Problem]:
    """Names of Kueue objects are unique by kind; those of local queues by namespace."""
    queues = _queues(settings)
    consequence = "the second could not be created"
    yield from repeated(((flavor, "name", flavor.name) for flavor in queues.flavors), "flavor", consequence)
    yield from repeated(
        ((cluster_queue, "name", cluster_queue.name) for cluster_queue in queues.cluster_queues),
        "cluster queue",
        consequence,
    )
    locals_ = (
        (local_queue, "name", f"{local_queue.namespace}/{local_queue.name}") for local_queue in queues.local_queues
    )
    yield from repeated(locals_, "local queue", consequence)
    yield from repeated(
        ((priority_class, "name", priority_class.name) for priority_class in queues.priority_classes),
        "priority class",
        consequence,
    )


def flavors_are_of_pools(settings: Settings) -> Iterator[Problem]:
    """The pools of a flavor are in this stack and have the same accelerator, as its labels name only one."""
    known = [pool.name for pool in settings.pools]
    without = is_autopilot(settings.cluster) and not known and not settings.unparsed.overlaps("gke-ai:cluster.mode")
    for flavor in _queues(settings).flavors:
        if flavor.pools and without:
            cause = "the cluster is Autopilot and has no pools. No node would belong to this flavor"
            yield Problem(flavor.at("pools"), cause, "Remove pools, and set accelerator (for GPUs) or tpu")
            continue
        for index, name in enumerate(flavor.pools):
            consequence = "no node would belong to this flavor"
            path = flavor.at(f"pools[{index}]")
            if not settings.unparsed.may_contain("gke-ai:tpuPools", name):
                section = "gke-ai:gpuPools" if settings.gpu_pools or not settings.tpu_pools else "gke-ai:tpuPools"
                yield from unknown(settings, path, section, "pool", name, known, consequence)
        accelerators = dict.fromkeys(pool.hardware_name for pool in flavor_pools(flavor, settings))
        if len(accelerators) > 1:
            yield Problem(
                flavor.at("pools"),
                f"the pools of flavor {flavor.name} have different accelerators ({join_names(accelerators)}). "
                "Their nodes share no label that Kueue could use",
                "Define a flavor for each accelerator",
            )


def gpu_flavors_are_of_a_type(settings: Settings) -> Iterator[Problem]:
    """The GPU type of a flavor exists, and such a flavor has no pools and no slice."""
    for flavor in _queues(settings).flavors:
        if flavor.accelerator is None:
            continue
        if flavor.pools or flavor.tpu is not None:
            other = "pools" if flavor.pools else "tpu"
            cause = f"flavor {flavor.name} has {other} and an accelerator. They could contradict each other"
            yield Problem(flavor.at("accelerator"), cause, f"Remove accelerator or {other}")
        elif flavor.accelerator not in GPUS:
            cause = f"{flavor.accelerator} is not a GPU type of the catalog. No node would belong to this flavor"
            yield Problem(flavor.at("accelerator"), cause, nearest(flavor.accelerator, GPUS))
        else:
            for unbuilt in (
                machine_type for machine_type in machines_with(flavor.accelerator) if machine_type.name in NOT_BUILT
            ):
                yield not_built(flavor.at("accelerator"), unbuilt)


@needs("gke-ai:queues")
def flavors_are_used(settings: Settings) -> Iterator[Problem]:
    """Every flavor has quota in some cluster queue."""
    queues = _queues(settings)
    used = {flavor_quota.flavor for queue in queues.cluster_queues for flavor_quota in queue.flavors}
    for flavor in queues.flavors:
        if flavor.name not in used:
            cause = f"no cluster queue has quota for flavor {flavor.name}. Nothing could run on it"
            yield Problem(flavor.at("name"), cause, "Add quota for it to a cluster queue, or remove it")


def cluster_queues_have_flavors(settings: Settings) -> Iterator[Problem]:
    """The flavors of a cluster queue exist, occur once, and have quota for the same resources."""
    queues = _queues(settings)
    known = [flavor.name for flavor in queues.flavors]
    for queue in queues.cluster_queues:
        for index, flavor_quota in enumerate(queue.flavors):
            path = queue.at(f"flavors[{index}].flavor")
            consequence = f"cluster queue {queue.name} would admit nothing"
            yield from unknown(
                settings, path, "gke-ai:queues.flavors", "flavor", flavor_quota.flavor, known, consequence
            )
            if flavor_quota.flavor in [other.flavor for other in queue.flavors[:index]]:
                cause = f"flavor {flavor_quota.flavor} is in cluster queue {queue.name} twice. Kueue would refuse it"
                yield Problem(path, cause, "Remove one of them")
        # Another rule reports quotas that cannot be derived.
        covered = [set(amounts) for flavor_quota in queue.flavors if (amounts := quota(flavor_quota, settings))]
        if any(resources != covered[0] for resources in covered):
            yield Problem(
                queue.at("flavors"),
                f"the flavors of cluster queue {queue.name} have quota for different resources. Kueue would refuse it",
                f"Set quota for {join_names(sorted(set().union(*covered)))} in each of them",
            )


def quotas_are_of_resources(settings: Settings) -> Iterator[Problem]:
    """Quota is for resources that pods request; accelerators are whole numbers."""
    for queue in _queues(settings).cluster_queues:
        for index, flavor_quota in enumerate(queue.flavors):
            path = queue.at(f"flavors[{index}].quota")
            if isinstance(flavor_quota.quota, str):
                continue
            if not flavor_quota.quota:
                cause = f"the quota of flavor {flavor_quota.flavor} is empty. Nothing would ever be admitted"
                yield Problem(path, cause, f"Write quota: derive, or amounts of {join_names(_KNOWN)}")
            for resource, text in flavor_quota.quota.items():
                if "/" not in resource and resource not in (*_KNOWN, "pods"):
                    cause = f"{resource} is not a Kubernetes resource. No pod would request it"
                    meant = NVIDIA_GPU if "gpu" in resource.lower() else None
                    remedy = f"Did you mean {meant}?" if meant else nearest(resource, _KNOWN)
                    yield Problem(f'{path}["{resource}"]', cause, remedy)
                elif "/" in resource and parse_quantity(text).denominator != 1:
                    cause = f"{text} of {resource} is not a whole number. Kubernetes assigns only whole GPUs"
                    yield Problem(f'{path}["{resource}"]', cause, "Write a whole number")


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools")
def quota_can_be_derived(settings: Settings) -> Iterator[Problem]:
    """`derive` needs a flavor with pools, whose nodes it adds up."""
    flavors = {flavor.name: flavor for flavor in _queues(settings).flavors}
    for queue in _queues(settings).cluster_queues:
        for index, flavor_quota in enumerate(queue.flavors):
            flavor = flavors.get(flavor_quota.flavor)
            if flavor_quota.quota != "derive" or flavor is None:
                continue
            path = queue.at(f"flavors[{index}].quota")
            if is_autopilot(settings.cluster):
                cause = "quota cannot be derived, as the cluster is Autopilot and has no pools to add up"
                amounts = "google.com/tpu: '8'" if flavor.tpu else "cpu: '24', memory: 96Gi, nvidia.com/gpu: '2'"
                yield Problem(path, cause, f"Write the amounts, for example {{{amounts}}}")
            elif not flavor.pools:
                cause = f"quota cannot be derived, as flavor {flavor.name} names no pools"
                yield Problem(path, cause, f"Name them in {flavor.at('pools')}, or write the amounts")


def local_queues_have_a_cluster_queue(settings: Settings) -> Iterator[Problem]:
    """The cluster queue of a local queue exists."""
    known = [queue.name for queue in _queues(settings).cluster_queues]
    for local in _queues(settings).local_queues:
        yield from unknown(
            settings,
            local.at("clusterQueue"),
            "gke-ai:queues.clusterQueues",
            "cluster queue",
            local.cluster_queue,
            known,
            f"workloads in {local.name} would wait forever",
        )


def priority_classes_are_kubernetes_classes(settings: Settings) -> Iterator[Problem]:
    """At most one priority class is the global default, and none has a reserved name."""
    defaults = [
        priority_class for priority_class in _queues(settings).priority_classes if priority_class.global_default
    ]
    for priority_class in defaults[1:]:
        cause = f"{defaults[0].name} and {priority_class.name} are both the global default. "
        cause += "Kubernetes would refuse the second"
        yield Problem(priority_class.at("globalDefault"), cause, "Set it in one of them only")
    for priority_class in _queues(settings).priority_classes:
        if priority_class.name.startswith("system-"):
            cause = f"{priority_class.name} begins with system-, which is reserved. Kubernetes would refuse it"
            yield Problem(priority_class.at("name"), cause, "Choose another name")


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:queues.clusterQueues")
def limits_are_of_a_cohort(settings: Settings) -> Iterator[Problem]:
    """Borrowing and lending limits are for queues in a cohort, and for resources with quota.

    https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#cohort
    """
    for queue in _queues(settings).cluster_queues:
        for index, flavor_quota in enumerate(queue.flavors):
            for key, limit, verb in (
                ("borrowingLimit", flavor_quota.borrowing_limit, "borrow from"),
                ("lendingLimit", flavor_quota.lending_limit, "lend to"),
            ):
                if limit:
                    yield from _limits(
                        queue, flavor_quota, limit, (queue.at(f"flavors[{index}].{key}"), verb), settings
                    )


def _limits(
    queue: ClusterQueue, flavor_quota: FlavorQuota, limit: dict[str, str], shown: tuple[str, str], settings: Settings
) -> Iterator[Problem]:
    path, verb = shown
    key = path.rpartition(".")[2]
    if queue.cohort is None:
        cause = f"cluster queue {queue.name} has no cohort, so it has no queue to {verb}. Kueue would refuse it"
        yield Problem(path, cause, f"Set the same {queue.at('cohort')} in another queue, or remove {key}")
        return
    if not lenders(queue, flavor_quota, settings):
        cause = f"no other queue of cohort {queue.cohort} has quota for flavor {flavor_quota.flavor}. "
        cause += f"{queue.name} has no queue to {verb}"
        yield Problem(path, cause, f"Use the same cohort and flavor in another cluster queue, or remove {key}")
        return
    nominal = quota(flavor_quota, settings)
    for resource, text in limit.items():
        place = f'{path}["{resource}"]'
        if resource not in nominal and nominal:
            cause = f"cluster queue {queue.name} has no quota for {resource} in flavor {flavor_quota.flavor}. "
            cause += "The limit would have no effect"
            yield Problem(place, cause, nearest(resource, nominal))
        elif "/" in resource and parse_quantity(text).denominator != 1:
            cause = f"{text} of {resource} is not a whole number. Kubernetes assigns only whole accelerators"
            yield Problem(place, cause, "Write a whole number")
        elif key == "lendingLimit" and nominal and parse_quantity(text) > parse_quantity(nominal[resource]):
            cause = f"{text} of {resource} is more than the quota, {nominal[resource]}. Kueue would refuse it"
            yield Problem(place, cause, f"Write at most {nominal[resource]}, or remove it to lend the whole quota")


@needs("gke-ai:queues", "gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools")
def serving_reclaims_lent_quota(settings: Settings) -> Iterator[Problem]:
    """Training that borrows quota from a server's queue has a lower priority, or the queue reclaims from any."""
    lending = [
        (server, queue)
        for server in settings.serving
        if (queue := cluster_queue_of(server, settings)) and queue.preemption.reclaim_within_cohort == "LowerPriority"
    ]
    for job in settings.training:
        queue = cluster_queue_of(job, settings)
        if queue is None:
            continue
        for server, lender in lending:
            if (levels := _outranked(server, job, settings)) and _may_borrow(queue, lender, settings):
                yield Problem(
                    job.at("priorityClass"),
                    f"{levels}, and {lender.name} lends its quota to {queue.name}. Serving could not reclaim the quota "
                    "that training borrows",
                    f"Set a priorityClass of a higher value for the server, or set {lender.at('preemption')}: "
                    "{reclaimWithinCohort: Any}",
                )
                break


def _outranked(server: Server, job: Workload, settings: Settings) -> str:
    """Describes the priorities if the server's is not higher; empty if it is, or if a class is unknown."""
    known = {
        None,
        *BUILT_IN_PRIORITIES,
        *(priority_class.name for priority_class in _queues(settings).priority_classes),
    }
    mine, theirs = priority(job, settings), priority(server, settings)
    if mine < theirs or not {job.priority_class, server.priority_class} <= known:
        return ""
    return f"training {job.name} has priority {mine}, server {server.name} has {theirs}"


def _may_borrow(borrower: ClusterQueue, lender: ClusterQueue, settings: Settings) -> bool:
    """Whether one queue may borrow accelerators from the other."""
    for own in borrower.flavors:
        for lent in lenders(borrower, own, settings):
            for resource in (NVIDIA_GPU, GOOGLE_TPU) if lent in lender.flavors else ():
                limit = own.borrowing_limit.get(resource)
                if lendable(lent, resource, settings) and (limit is None or parse_quantity(limit)):
                    return True
    return False


@needs("gke-ai:queues")
def serving_outranks_training(settings: Settings) -> Iterator[Problem]:
    """In a cluster queue that preempts by priority, servers have a higher priority than runs."""
    servers: dict[str, list[Server]] = {}  # by cluster queue, collected once, as a large stack has many pairs
    for candidate in settings.serving:
        if shared := cluster_queue_of(candidate, settings):
            servers.setdefault(shared.name, []).append(candidate)
    for job in settings.training:
        queue = cluster_queue_of(job, settings)
        if queue is None or queue.preemption.within_cluster_queue == "Never":
            continue
        for server in servers.get(queue.name, []):
            if levels := _outranked(server, job, settings):
                yield Problem(
                    job.at("priorityClass"),
                    f"{levels}, and both are in cluster queue {queue.name}. Serving could never reclaim GPUs from "
                    "training",
                    "Set a priorityClass of a higher value for the server, or set preemption: "
                    "{withinClusterQueue: Never} if this is intended",
                )
                break


def usable_flavors(queue: ClusterQueue, workload: Workload, settings: Settings) -> list[Flavor]:
    """Flavors of the queue that the workload may run on, by pools or else by accelerator."""
    flavors = {flavor.name: flavor for flavor in _queues(settings).flavors}
    own = pools_of(workload, settings)
    names, accelerators = {pool.name for pool in own}, workload.hardware_names(settings.pools)
    usable = []
    for flavor_quota in queue.flavors:
        flavor = flavors.get(flavor_quota.flavor)
        if flavor is None:
            continue
        if flavor.accelerator is not None:
            # Kueue ignores the GPUs of a compute class. Another rule reports a misspelled type.
            open_to_all = workload.named_class is not None or flavor.accelerator not in GPUS
            fits = open_to_all or flavor.accelerator in accelerators
        elif flavor.tpu is not None:
            fits = " ".join(flavor.tpu.labels.values()) in accelerators
        else:
            several = len(flavor.pools) > 1 and accelerators & {
                pool.hardware_name for pool in flavor_pools(flavor, settings)
            }
            fits = not flavor.pools or bool(names & set(flavor.pools)) or bool(several)
        if fits:
            usable.append(flavor)
    return usable


@needs("gke-ai:serving", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:computeClasses")
def admitted_pods_have_time_to_be_ready(settings: Settings) -> Iterator[Problem]:
    """Kueue's limit for pods to be ready is not shorter than a server's start or a wait for nodes."""
    queues = _queues(settings)
    limit = queues.pods_ready_timeout_seconds
    if not limit:
        return
    path = queues.at("podsReadyTimeoutSeconds")
    if where := next(waits_for_flex_start(settings), None):
        cause = f"flex-start nodes of {where} may start days after Kueue admits their pods. Kueue would evict the pods "
        cause += f"after {limit} s, again and again"
        yield Problem(path, cause, "Remove it, or use capacity {mode: queuedFlexStart}")
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
    local_queues_have_a_cluster_queue,
    priority_classes_are_kubernetes_classes,
    limits_are_of_a_cohort,
    serving_reclaims_lent_quota,
    serving_outranks_training,
)
