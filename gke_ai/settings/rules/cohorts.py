"""Rules of shared quota: limits of what a queue borrows and lends, and preemption between servers and runs."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.settings.model import AnyServer, Queues, Run, TpuBatch, Workload
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import BUILT_IN_PRIORITIES, Placed, Queue, Quota, ResolvedStack
from gke_ai.settings.rules.common import each, needs


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:queues.clusterQueues")
@each(lambda stack: stack.cluster_queues)
def limits_are_of_a_cohort(queue: Queue) -> Iterator[Problem]:
    """Borrowing and lending limits are for queues in a cohort, and for resources with quota.

    https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#cohort
    """
    for index, quota in enumerate(queue.quotas):
        for key, limit, verb in (
            ("borrowingLimit", quota.section.borrowing_limit, "borrow from"),
            ("lendingLimit", quota.section.lending_limit, "lend to"),
        ):
            if limit:
                yield from _limits(queue, quota, limit, (queue.section.at(f"flavors[{index}].{key}"), verb))


def _limits(queue: Queue, quota: Quota, limit: dict[str, str], shown: tuple[str, str]) -> Iterator[Problem]:
    path, verb = shown
    key, name, cohort, flavor = path.rpartition(".")[2], queue.section.name, queue.section.cohort, quota.section.flavor
    if cohort is None:
        cause = f"cluster queue {name} has no cohort, so it has no queue to {verb}. Kueue would refuse it"
        yield Problem(path, cause, f"Set the same {queue.section.at('cohort')} in another queue, or remove {key}")
        return
    if not _is_shared(queue, quota):
        cause = f"no other queue of cohort {cohort} has quota for flavor {flavor}. {name} has no queue to {verb}"
        yield Problem(path, cause, f"Use the same cohort and flavor in another cluster queue, or remove {key}")
        return
    for resource, text in limit.items():
        place = f'{path}["{resource}"]'
        if resource not in quota.texts and quota.texts:
            cause = f"cluster queue {name} has no quota for {resource} in flavor {flavor}. "
            cause += "The limit would have no effect"
            yield Problem(place, cause, nearest(resource, quota.texts))
        elif "/" in resource and parse_quantity(text).denominator != 1:
            cause = f"{text} of {resource} is not a whole number. Kubernetes assigns only whole accelerators"
            yield Problem(place, cause, "Write a whole number")
        elif key == "lendingLimit" and quota.texts and parse_quantity(text) > quota.amounts[resource]:
            cause = f"{text} of {resource} is more than the quota, {quota.texts[resource]}. Kueue would refuse it"
            yield Problem(place, cause, f"Write at most {quota.texts[resource]}, or remove it to lend the whole quota")


def _is_shared(queue: Queue, quota: Quota) -> bool:
    """Whether the tree of the queue has more quota for the flavor."""
    others = (member for member in queue.member.root.below if member is not queue.member)
    return any(flavor == quota.section.flavor for member in others for flavor, _ in member.nominal)


@needs("gke-ai:queues", "gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools")
def serving_reclaims_lent_quota(stack: ResolvedStack) -> Iterator[Problem]:
    """Training that borrows quota from a server's queue has a lower priority, or the queue reclaims from any."""
    lending = [
        (server, server.queue)
        for server in stack.servers
        if server.queue and server.queue.section.preemption.reclaim_within_cohort == "LowerPriority"
    ]
    for job in _training_runs(stack):
        for server, lender in lending if job.queue else ():
            if (levels := _outranked(server, job, stack.queues)) and job.queue and _may_borrow(job.queue, lender):
                yield Problem(
                    job.section.at("priorityClass"),
                    f"{levels}, and {lender.section.name} lends its quota to {job.queue.section.name}. Serving could "
                    "not reclaim the quota that training borrows",
                    f"Set a priorityClass of a higher value for the server, or set {lender.section.at('preemption')}: "
                    "{reclaimWithinCohort: Any}",
                )
                break


def _training_runs(stack: ResolvedStack) -> list[Placed[Run]]:
    """The runs, without batch Jobs."""
    return [run for run in stack.placed_runs if not isinstance(run.section, TpuBatch)]


def _may_borrow(borrower: Queue, lender: Queue) -> bool:
    """Whether one queue may borrow accelerators from the other: each on the way to their common cohort lets it."""
    above, lending = [*borrower.member.path], [*lender.member.path]
    common = next((cohort for cohort in above if cohort in lending), None)
    if common is None or borrower is lender:
        return False
    takes, gives = above[: above.index(common)], lending[: lending.index(common)]
    return any(
        all(member.borrowing.get(cell, 1) for member in takes) and all(member.lends(cell) for member in gives)
        for cell in borrower.member.nominal.keys() & lender.member.nominal.keys()
        if cell[1] in (NVIDIA_GPU, GOOGLE_TPU)
    )


@needs("gke-ai:queues")
def serving_outranks_training(stack: ResolvedStack) -> Iterator[Problem]:
    """In a cluster queue that preempts by priority, servers have a higher priority than runs."""
    by_queue: dict[str, list[Placed[AnyServer]]] = {}  # collected once, as a large stack has many pairs
    for candidate in stack.servers:
        if candidate.queue:
            by_queue.setdefault(candidate.queue.section.name, []).append(candidate)
    for job in _training_runs(stack):
        if job.queue is None or job.queue.section.preemption.within_cluster_queue == "Never":
            continue
        name = job.queue.section.name
        for server in by_queue.get(name, []):
            if levels := _outranked(server, job, stack.queues):
                yield Problem(
                    job.section.at("priorityClass"),
                    f"{levels}, and both are in cluster queue {name}. Serving could never reclaim GPUs from training",
                    "Set a priorityClass of a higher value for the server, or set preemption: "
                    "{withinClusterQueue: Never} if this is intended",
                )
                break


def _outranked(server: Placed[Workload], job: Placed[Workload], queues: Queues) -> str:
    """Describes the priorities if the server's is not higher; empty if it is, or if a class is unknown."""
    known = {None, *BUILT_IN_PRIORITIES, *(priority_class.name for priority_class in queues.priority_classes)}
    classes = {job.section.priority_class, server.section.priority_class}
    if job.priority < server.priority or not classes <= known:
        return ""
    return (
        f"training {job.section.name} has priority {job.priority}, server {server.section.name} has {server.priority}"
    )
