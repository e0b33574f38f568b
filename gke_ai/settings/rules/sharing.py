"""Rules of cohort trees and shares: each cohort has a place and a purpose, and each key an effect."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from gke_ai.catalog.kueue.cohort_tree import Cell, Member, cycle
from gke_ai.catalog.quantities import format_quantity, parse_quantities, parse_quantity
from gke_ai.settings.model import ClusterQueue, Cohort, CohortQuota, LocalQueue
from gke_ai.settings.model.sharing import USAGE_BASED
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules import common
from gke_ai.settings.rules.common import join_names, needs, rule

# Kueue takes a smaller one for 0: validateFairSharing in
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/webhooks/common.go
_SMALLEST_WEIGHT = Fraction(1, 10**9)
_OF_QUEUES = ("gke-ai:queues.clusterQueues", "gke-ai:queues.cohorts")


@needs(*_OF_QUEUES)
@rule
def cohorts_form_trees(stack: ResolvedStack) -> Iterator[Problem]:
    """The parent of a cohort exists, and is not below the cohort.

    Kueue takes an unknown parent for a cohort without limits, and disables all members of a cycle:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/cohort_types.go
    """
    cohorts = stack.queues.cohorts
    parents = {cohort.name: cohort.parent for cohort in cohorts if cohort.parent}
    seen: set[str] = set()
    for cohort in cohorts:
        if cohort.parent is None or cohort.name in seen:
            continue
        if way := cycle(cohort.name, parents):
            seen |= {*way}
            cause = f"the parents form a cycle: {' → '.join(way)}. Kueue would admit nothing in these cohorts"
            yield Problem(cohort.at("parent"), cause, "Remove the parent of one of them, which becomes the root")
        elif stack.queues.kueue == "install":  # otherwise the cluster may have it
            consequence = "Kueue would take it for a cohort without limits"
            yield from common.COHORTS.unknown(stack, cohort.at("parent"), cohort.parent, consequence)


@needs(*_OF_QUEUES)
@rule
def cohorts_have_members(stack: ResolvedStack) -> Iterator[Problem]:
    """A cohort has a cluster queue below it. One that is not here may be of an existing Kueue."""
    if stack.queues.kueue == "existing":
        return
    for cohort in stack.queues.cohorts:
        member = stack.cohorts[cohort.name]
        if not [*member.queues] and not _below_cycle(stack, member):
            cause = f"no cluster queue is in cohort {cohort.name} or below it. It would have no effect"
            remedy = f"Set cohort: {cohort.name} in a cluster queue, or remove the cohort"
            yield Problem(cohort.at("name"), cause, remedy)


def _below_cycle(stack: ResolvedStack, member: Member) -> bool:
    """Whether a member hangs on a cycle of parents, which is reported: there it has no parent."""
    root = member.root.name
    return any(cohort.name == root and cohort.parent for cohort in stack.queues.cohorts)


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:queues.flavors", *_OF_QUEUES)
@rule
def quotas_of_cohorts_are_used(stack: ResolvedStack) -> Iterator[Problem]:
    """The quota of a cohort is for a flavor that exists, once, and a cluster queue can use it."""
    for cohort in stack.queues.cohorts:
        member = stack.cohorts[cohort.name]
        for index, quota in enumerate(cohort.flavors):
            path = cohort.at(f"flavors[{index}].flavor")
            consequence = "no workload could use its quota"
            unknown = list(common.FLAVORS.unknown(stack, path, quota.flavor, consequence))
            yield from unknown
            if quota.flavor in [other.flavor for other in cohort.flavors[:index]]:
                cause = f"flavor {quota.flavor} is in cohort {cohort.name} twice. Kueue would refuse it"
                yield Problem(path, cause, "Remove one of them")
            elif not unknown and stack.queues.kueue == "install" and not _below_cycle(stack, member):
                yield from _unused(cohort, member, index, quota)


def _unused(cohort: Cohort, member: Member, index: int, quota: CohortQuota) -> Iterator[Problem]:
    """Problems of quota with which no queue of the tree may use more than without it."""
    queues = [*member.root.queues]
    for resource, amount in parse_quantities(quota.quota).items():
        cell = (quota.flavor, resource)
        if amount and not any(_gains(queue, member, cell) for queue in queues):
            path = cohort.at(f'flavors[{index}].quota["{resource}"]')
            having = [queue.name for queue in queues if cell in queue.nominal]
            if having:
                cause = f"limits keep {join_names(having)} from it. Nobody could use this quota"
                remedy = f"Raise the borrowingLimit of a queue or the lendingLimit of {cohort.name}"
            else:
                cause = f"no cluster queue of the tree has quota for {resource} in flavor {quota.flavor}. "
                cause += "Nobody could use this quota"
                remedy = f'Give a cluster queue the flavor, with {resource}: "0" if it has none of its own'
            yield Problem(path, cause, remedy)


def _gains(queue: Member, cohort: Member, cell: Cell) -> bool:
    """Whether a queue may use more of a resource because a cohort has it."""
    if cell not in queue.nominal:
        return False
    stated = cohort.nominal
    most = queue.most(cell)
    cohort.nominal = {**stated, cell: Fraction(0)}
    without = queue.most(cell)
    cohort.nominal = stated
    return most > without


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools", *_OF_QUEUES)
@rule
def limits_of_cohorts_limit(stack: ResolvedStack) -> Iterator[Problem]:
    """Limits of a cohort need a parent, and are within what it has to lend and what the parent has for it."""
    for cohort in stack.queues.cohorts if stack.queues.kueue == "install" else ():
        member = stack.cohorts[cohort.name]
        for index, quota in enumerate(cohort.flavors):
            for key, limits in (("lendingLimit", quota.lending_limit), ("borrowingLimit", quota.borrowing_limit)):
                for resource, text in limits.items():
                    path = cohort.at(f'flavors[{index}].{key}["{resource}"]')
                    if cohort.parent is None:
                        cause = f"cohort {cohort.name} has no parent. Kueue would refuse the limit"
                        yield Problem(path, cause, "Set parent, or remove the limit")
                    elif resource not in quota.quota:
                        cause = f"cohort {cohort.name} states no quota for {resource} in flavor {quota.flavor}. "
                        cause += "Kueue has no place for the limit"
                        yield Problem(path, cause, f'Add {resource}: "0" to the quota, or remove the limit')
                    else:
                        yield from _contradicts(path, member, (quota.flavor, resource), parse_quantity(text))


def _contradicts(path: str, member: Member, cell: Cell, limit: Fraction) -> Iterator[Problem]:
    """A problem of a limit above what there is to lend or to borrow."""
    resource, parent = cell[1], member.parent
    if parent is None:  # a cycle
        return
    lends = "lendingLimit" in path
    most = member.quota(cell) if lends else parent.most(cell) - member.lends(cell)
    if limit > most:
        amount = format_quantity(resource, most)
        has = f"cohort {member.name} has {amount}" if lends else f"{parent.name} has {amount} for it beside its own"
        cause = f"{has} of {resource}, less than the limit. The limit would have no effect"
        yield Problem(path, cause, f"Write at most {amount}, or remove it")


@needs("gke-ai:queues")
@rule
def one_strategy_preempts(stack: ResolvedStack) -> Iterator[Problem]:
    """Fair sharing has one preemption strategy.

    With both, two queues can preempt each other forever: https://github.com/kubernetes-sigs/kueue/issues/14543
    """
    sharing = stack.queues.fair_sharing
    if sharing is not None and len(sharing.preemption_strategies) > 1:
        cause = "both strategies together can preempt workloads of two queues forever (kubernetes-sigs/kueue#14543)"
        if len({*sharing.preemption_strategies}) == 1:
            cause = "the strategy is there twice. Kueue would not start"
        yield Problem(sharing.at("preemptionStrategies"), cause, "Keep one, by default LessThanInitialShare")


@needs("gke-ai:queues")
@rule
def no_queue_preempts_its_own(stack: ResolvedStack) -> Iterator[Problem]:
    """A queue with shares does not preempt its own workloads, with which Kueue can preempt forever.

    Kueue counts them as preempted when it compares shares, and then gives them their place back:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/preemption/preemption.go (fairPreemptions).
    tests/nightly/test_endless_preemption.py shows it with either strategy, and that it ends with Never.
    Past usage goes before priority, so a preempted workload can be the next one to start:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/cache/queue/cluster_queue.go (queueOrderingFunc)
    """
    fair = stack.queues.fair_sharing is not None
    for queue in stack.queues.cluster_queues:
        by_usage = queue.admission_mode == USAGE_BASED
        if queue.preemption.within_cluster_queue != "Never" and (by_usage or (fair and queue.cohort)):
            way = "past usage goes before priority, so" if by_usage else "with fairSharing,"
            cause = f"{way} cluster queue {queue.name} can preempt the same workloads again and again"
            remedy = (
                "Write withinClusterQueue: Never, and give work that goes first a cluster queue with quota of its own"
            )
            yield Problem(queue.at("preemption.withinClusterQueue"), cause, remedy)


@needs("gke-ai:queues")
@rule
def shares_have_an_effect(stack: ResolvedStack) -> Iterator[Problem]:
    """Fair sharing needs a cohort; weights need fair sharing and siblings; its rules replace `borrowWithinCohort`."""
    queues, ours = stack.queues, stack.queues.kueue == "install"
    fair, by_usage = queues.fair_sharing is not None, queues.admission_fair_sharing is not None
    in_cohorts = [queue for queue in queues.cluster_queues if queue.cohort]
    if queues.fair_sharing and not in_cohorts and ours:
        cause = "no cluster queue is in a cohort, so there is nothing to share"
        yield Problem(queues.at("fairSharing"), cause, "Set cohort in the cluster queues, or remove fairSharing")
    for queue in queues.cluster_queues:
        preemption = queue.preemption
        if preemption.borrow_within_cohort:
            yield from _borrowing(queue, fair)
        if queue.fair_sharing:
            yield from _weight(queue, queue.cohort, "cohort", fair or not ours)
        if queue.admission_mode == USAGE_BASED and not by_usage and ours:
            cause = f"Kueue counts no usage, so cluster queue {queue.name} would order by priority alone"
            yield Problem(queue.at("admissionMode"), cause, "Add admissionFairSharing: {} to gke-ai:queues")
        if queue.flavor_fungibility and len(queue.flavors) == 1:
            cause = f"cluster queue {queue.name} has one flavor, so there is no next one. It would have no effect"
            yield Problem(queue.at("flavorFungibility"), cause, "Remove it, or add a flavor")
    for cohort in queues.cohorts:
        if cohort.fair_sharing:
            yield from _weight(cohort, cohort.parent, "parent", fair or not ours)
    modes = {queue.name: queue.admission_mode == USAGE_BASED for queue in queues.cluster_queues}
    for local in queues.local_queues:
        if local.fair_sharing and not modes.get(local.cluster_queue, not ours):
            cause = f"cluster queue {local.cluster_queue} does not order by usage. The weight would have no effect"
            remedy = "Set admissionMode: UsageBasedAdmissionFairSharing there, or remove the weight"
            yield Problem(local.at("fairSharing"), cause, remedy)
    if queues.admission_fair_sharing and not any(modes.values()) and ours:
        cause = "no cluster queue orders by usage, so it would have no effect"
        remedy = "Set admissionMode: UsageBasedAdmissionFairSharing in a cluster queue, or remove it"
        yield Problem(queues.at("admissionFairSharing"), cause, remedy)


def _borrowing(queue: ClusterQueue, fair: bool) -> Iterator[Problem]:
    """Problems of preemption in order to borrow.

    Kueue ignores it with fair sharing, and refuses it without reclaiming:
    https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/clusterqueue_types.go
    """
    path = queue.at("preemption.borrowWithinCohort")
    if fair:
        cause = "Kueue ignores it with fairSharing, whose weights decide who gives way"
        yield Problem(path, cause, "Remove it, or remove fairSharing")
    elif queue.cohort is None:
        cause = f"cluster queue {queue.name} has no cohort to borrow from. It would have no effect"
        yield Problem(path, cause, "Set cohort, or remove it")
    elif queue.preemption.reclaim_within_cohort == "Never":
        cause = "Kueue refuses it beside reclaimWithinCohort: Never"
        yield Problem(path, cause, "Write reclaimWithinCohort: LowerPriority, or remove it")


def _weight(section: ClusterQueue | Cohort, parent: str | None, key: str, fair: bool) -> Iterator[Problem]:
    """Problems of a weight that nothing reads."""
    path, noun = section.at("fairSharing"), section.noun.partition(" ")[2]
    if not fair:
        cause = "weights count only with fair sharing, which gke-ai:queues does not have"
        yield Problem(path, cause, "Add fairSharing: {} to gke-ai:queues, or remove the weight")
    elif parent is None:
        cause = f"{noun} {section.name} has no {key}, so it has no siblings to share with"
        yield Problem(path, cause, f"Set {key}, or remove the weight")


@rule
def weights_are_meant(stack: ResolvedStack) -> Iterator[Problem]:
    """A weight is 0 with the key that says what that means, or one that Kueue can count with."""
    queues = stack.queues
    sections: list[ClusterQueue | Cohort | LocalQueue] = [*queues.cluster_queues, *queues.cohorts, *queues.local_queues]
    for section in sections:
        weight = section.fair_sharing
        amount = parse_quantity(weight.weight) if weight else Fraction(1)
        if weight is None:
            continue
        if amount == 0 and not weight.only_idle:
            cause = f"with weight 0, {section.name} never preempts while it borrows, and gives back before all others"
            yield Problem(
                section.at("fairSharing.weight"),
                cause,
                "Add onlyIdle: true if this is meant, or write a weight above 0",
            )
        elif amount and weight.only_idle:
            cause = f"with weight {weight.weight}, {section.name} has a share, and not only what is idle"
            yield Problem(section.at("fairSharing.onlyIdle"), cause, 'Write weight: "0", or remove it')
        elif 0 < amount <= _SMALLEST_WEIGHT:
            cause = f"{weight.weight} is too small to count with. Kueue would refuse it"
            yield Problem(section.at("fairSharing.weight"), cause, "Write weights such as 1, 2 and 3")


@needs("gke-ai:queues", "gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools")
@rule
def usage_is_counted(stack: ResolvedStack) -> Iterator[Problem]:
    """Past usage is sampled within its half-life, and counts at least one resource that has quota."""
    usage = stack.queues.admission_fair_sharing
    if usage is None:
        return
    if usage.usage_sampling_seconds > usage.usage_half_life_seconds:
        cause = (
            "usage would be sampled more rarely than it is halved, so most of it would be forgotten before it counts"
        )
        yield Problem(usage.at("usageSamplingSeconds"), cause, "Write at most usageHalfLifeSeconds")
    counted = stack.counted
    for resource, weight in usage.resource_weights.items():
        path = usage.at(f'resourceWeights["{resource}"]')
        if weight < 0:
            yield Problem(path, f"{weight:g} is below zero. Kueue would not start", "Write 0 or more")
        elif resource not in counted:
            cause = f"no cluster queue has quota for {resource}. The weight would have no effect"
            yield Problem(path, cause, nearest(resource, counted) or "Remove it")
    chief = {resource for resource in counted if "/" in resource} or {"cpu"}
    if all(usage.resource_weights.get(resource, float(resource in chief)) == 0 for resource in counted | chief):
        cause = "every resource has weight 0, so no usage would count"
        yield Problem(usage.at("resourceWeights"), cause, "Give accelerators a weight above 0")
