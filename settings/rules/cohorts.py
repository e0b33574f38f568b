"""Rules of shared quota: borrowing and lending in a cohort, and preemption between servers and runs."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.nodes import NVIDIA_GPU
from catalog.quantities import parse_quantity
from catalog.tpus import GOOGLE_TPU
from settings.model import ClusterQueue, FlavorQuota, Server, Settings, Workload
from settings.plan import BUILT_IN_PRIORITIES, cluster_queue_of, lendable, lenders, priority, quota
from settings.problems import Problem, nearest
from settings.rules.common import Rule, needs, queues_of


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:queues.clusterQueues")
def limits_are_of_a_cohort(settings: Settings) -> Iterator[Problem]:
    """Borrowing and lending limits are for queues in a cohort, and for resources with quota.

    https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#cohort
    """
    for queue in queues_of(settings).cluster_queues:
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


def _outranked(server: Server, job: Workload, settings: Settings) -> str:
    """Describes the priorities if the server's is not higher; empty if it is, or if a class is unknown."""
    known = {
        None,
        *BUILT_IN_PRIORITIES,
        *(priority_class.name for priority_class in queues_of(settings).priority_classes),
    }
    mine, theirs = priority(job, settings), priority(server, settings)
    if mine < theirs or not {job.priority_class, server.priority_class} <= known:
        return ""
    return f"training {job.name} has priority {mine}, server {server.name} has {theirs}"


RULES: tuple[Rule, ...] = (
    limits_are_of_a_cohort,
    serving_reclaims_lent_quota,
    serving_outranks_training,
)
