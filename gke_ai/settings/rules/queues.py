"""Rules of resource flavors, cluster queues, their quota, local queues and priority classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.machines.types import GPUS
from gke_ai.catalog.nodes.shape import NVIDIA_GPU
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.settings.model import ClusterQueue, Cohort, CohortQuota, Flavor, FlavorQuota, Workload
from gke_ai.settings.problems import Problem, nearest
from gke_ai.settings.resolved import Placed, Queue, ResolvedStack, ResourceFlavor
from gke_ai.settings.resolved.needs import waits_for_flex_start
from gke_ai.settings.rules import common
from gke_ai.settings.rules.pools import gpu_type_is_supported

# Resources with quota, besides extended resources of other vendors.
_KNOWN = ("cpu", "memory", NVIDIA_GPU, GOOGLE_TPU, "ephemeral-storage")


@common.rule
def flavors_are_of_pools(stack: ResolvedStack) -> Iterator[Problem]:
    """The pools of a flavor are in this stack and have the same accelerator, as its labels name only one."""
    unresolved = stack.unresolved
    known = [pool.name for pool in stack.pools]
    without = stack.cluster.is_autopilot and not known and not unresolved.overlaps("gke-ai:cluster.mode")
    for resolved in stack.flavors:
        flavor = resolved.section
        if flavor.pools and without:
            cause = "the cluster is Autopilot and has no pools. No node would belong to this flavor"
            yield Problem(flavor.at("pools"), cause, "Remove pools, and set accelerator (for GPUs) or tpu")
            continue
        for index, name in enumerate(flavor.pools):
            if not unresolved.may_contain(common.TPU_POOLS.section, name):
                only_tpus = stack.settings.tpu_pools and not stack.settings.gpu_pools
                pools = common.Named(
                    (common.TPU_POOLS if only_tpus else common.GPU_POOLS).section, "pool", lambda _: known
                )
                consequence = "no node would belong to this flavor"
                yield from pools.unknown(stack, flavor.at(f"pools[{index}]"), name, consequence)
        accelerators = dict.fromkeys(pool.section.hardware_name for pool in resolved.pools)
        if len(accelerators) > 1:
            cause = f"the pools of flavor {flavor.name} have different accelerators "
            cause += f"({common.join_names(accelerators)}). Their nodes share no label that Kueue could use"
            yield Problem(flavor.at("pools"), cause, "Define a flavor for each accelerator")


@common.each(lambda stack: stack.flavors)
def gpu_flavors_are_of_a_type(resolved: ResourceFlavor) -> Iterator[Problem]:
    """The GPU type of a flavor exists, and such a flavor has no pools and no slice."""
    flavor = resolved.section
    if flavor.accelerator is None:
        return
    if flavor.pools or flavor.tpu is not None:
        other = "pools" if flavor.pools else "tpu"
        cause = f"flavor {flavor.name} has {other} and an accelerator. They could contradict each other"
        yield Problem(flavor.at("accelerator"), cause, f"Remove accelerator or {other}")
    else:
        consequence = "No node would belong to this flavor"
        yield from gpu_type_is_supported(flavor.at("accelerator"), flavor.accelerator, consequence)


@common.needs("gke-ai:queues")
def flavors_are_used(stack: ResolvedStack) -> Iterator[Problem]:
    """Every flavor has quota in some cluster queue. For one that exists, that may be one of the cluster."""
    used = {flavor_quota.flavor for queue in stack.queues.cluster_queues for flavor_quota in queue.flavors}
    for flavor in stack.queues.flavors:
        if flavor.name not in used and flavor.mode == "create":
            cause = f"no cluster queue has quota for flavor {flavor.name}. Nothing could run on it"
            yield Problem(flavor.at("name"), cause, "Add quota for it to a cluster queue, or remove it")


def usable_flavors(queue: Queue, placed: Placed[Workload]) -> list[Flavor]:
    """Flavors of the queue that the workload may run on, by pools or else by accelerator."""
    names, accelerators = {pool.section.name for pool in placed.pools}, placed.section.hardware_names(placed.nodes)
    usable = []
    for resolved in (quota.flavor for quota in queue.quotas if quota.flavor is not None):
        flavor = resolved.section
        if flavor.accelerator is not None:
            # Kueue ignores the GPUs of a compute class. Another rule reports a misspelled type.
            open_to_all = placed.section.named_class is not None or flavor.accelerator not in GPUS
            fits = open_to_all or flavor.accelerator in accelerators
        elif flavor.tpu is not None:
            fits = " ".join(flavor.tpu.labels.values()) in accelerators
        else:
            own = {pool.section.hardware_name for pool in resolved.pools}
            several = len(flavor.pools) > 1 and accelerators & own
            fits = not flavor.pools or bool(names & set(flavor.pools)) or bool(several)
        if fits:
            usable.append(flavor)
    return usable


@common.needs("gke-ai:serving", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:computeClasses")
def admitted_pods_have_time_to_be_ready(stack: ResolvedStack) -> Iterator[Problem]:
    """Kueue's limit for pods to be ready is not shorter than a server's start or a wait for nodes."""
    limit = stack.queues.pods_ready_timeout_seconds
    if not limit:
        return
    path = stack.queues.at("podsReadyTimeoutSeconds")
    if waits := waits_for_flex_start(stack):
        cause = f"flex-start nodes of {waits[0]} may start days after Kueue admits their pods. Kueue would evict the "
        cause += f"pods after {limit} s, again and again"
        yield Problem(path, cause, "Remove it, or use capacity {mode: queuedFlexStart}")
        return
    queued = [server for server in stack.settings.serving if server.queue is not None]
    slowest = max(queued, key=lambda server: server.ready_timeout_seconds, default=None)
    if slowest is not None and slowest.ready_timeout_seconds > limit:
        cause = f"server {slowest.name} may take {slowest.ready_timeout_seconds} s to load its model, and Kueue would "
        cause += f"evict it after {limit} s. It would never become ready"
        remedy = f"Set it to {slowest.ready_timeout_seconds} or more, or lower {slowest.at('readyTimeoutSeconds')}"
        yield Problem(path, cause, remedy)


@common.rule
def names_are_unique(stack: ResolvedStack) -> Iterator[Problem]:
    """Names of Kueue objects are unique by kind; those of local queues by namespace."""
    queues = stack.queues
    for noun, items in (
        ("flavor", [(flavor, flavor.name) for flavor in queues.flavors]),
        ("cluster queue", [(queue, queue.name) for queue in queues.cluster_queues]),
        ("cohort", [(cohort, cohort.name) for cohort in queues.cohorts]),
        ("local queue", [(queue, f"{queue.namespace}/{queue.name}") for queue in queues.local_queues]),
        ("priority class", [(priority, priority.name) for priority in queues.priority_classes]),
    ):
        yield from common.repeated(
            ((item, "name", name) for item, name in items), noun, "the second could not be created"
        )


@common.rule
def cluster_queues_have_flavors(stack: ResolvedStack) -> Iterator[Problem]:
    """The flavors of a cluster queue exist, occur once, and have quota for the same resources."""
    for resolved in stack.cluster_queues:
        queue = resolved.section
        for index, flavor_quota in enumerate(queue.flavors):
            path = queue.at(f"flavors[{index}].flavor")
            consequence = f"cluster queue {queue.name} would admit nothing"
            yield from common.FLAVORS.unknown(stack, path, flavor_quota.flavor, consequence)
            if flavor_quota.flavor in [other.flavor for other in queue.flavors[:index]]:
                cause = f"flavor {flavor_quota.flavor} is in cluster queue {queue.name} twice. Kueue would refuse it"
                yield Problem(path, cause, "Remove one of them")
        # Another rule reports quotas that cannot be derived.
        covered = [set(quota.texts) for quota in resolved.quotas if quota.texts]
        if any(resources != covered[0] for resources in covered):
            cause = f"the flavors of cluster queue {queue.name} have quota for different resources. Kueue would refuse "
            cause += "it"
            remedy = f"Set quota for {common.join_names(sorted(set().union(*covered)))} in each of them"
            yield Problem(queue.at("flavors"), cause, remedy)


@common.rule
def quotas_are_of_resources(stack: ResolvedStack) -> Iterator[Problem]:
    """Quota of queues and cohorts is for resources that pods request; accelerators are whole numbers."""
    sections: list[ClusterQueue | Cohort] = [*stack.queues.cluster_queues, *stack.queues.cohorts]
    for section in sections:
        quotas: Sequence[FlavorQuota | CohortQuota] = section.flavors
        for index, flavor_quota in enumerate(quotas):
            if not isinstance(flavor_quota.quota, str):
                yield from _quota(section.at(f"flavors[{index}].quota"), flavor_quota.flavor, flavor_quota.quota)


def _quota(path: str, flavor: str, quota: dict[str, str]) -> Iterator[Problem]:
    if not quota:
        cause = f"the quota of flavor {flavor} is empty. Nothing would ever be admitted"
        yield Problem(path, cause, f"Write quota: derive, or amounts of {common.join_names(_KNOWN)}")
    for resource, text in quota.items():
        if "/" not in resource and resource not in (*_KNOWN, "pods"):
            cause = f"{resource} is not a Kubernetes resource. No pod would request it"
            meant = NVIDIA_GPU if "gpu" in resource.lower() else None
            remedy = f"Did you mean {meant}?" if meant else nearest(resource, _KNOWN)
            yield Problem(f'{path}["{resource}"]', cause, remedy)
        elif "/" in resource and parse_quantity(text).denominator != 1:
            cause = f"{text} of {resource} is not a whole number. Kubernetes assigns only whole GPUs"
            yield Problem(f'{path}["{resource}"]', cause, "Write a whole number")


@common.needs("gke-ai:cluster.mode", "gke-ai:gpuPools", "gke-ai:tpuPools")
def quota_can_be_derived(stack: ResolvedStack) -> Iterator[Problem]:
    """`derive` needs a flavor with pools, whose nodes it adds up."""
    flavors = {flavor.name: flavor for flavor in stack.queues.flavors}
    for queue in stack.queues.cluster_queues:
        for index, flavor_quota in enumerate(queue.flavors):
            flavor = flavors.get(flavor_quota.flavor)
            if flavor_quota.quota != "derive" or flavor is None:
                continue
            path = queue.at(f"flavors[{index}].quota")
            if stack.cluster.is_autopilot:
                cause = "quota cannot be derived, as the cluster is Autopilot and has no pools to add up"
                amounts = "google.com/tpu: '8'" if flavor.tpu else "cpu: '24', memory: 96Gi, nvidia.com/gpu: '2'"
                yield Problem(path, cause, f"Write the amounts, for example {{{amounts}}}")
            elif not flavor.pools:
                cause = f"quota cannot be derived, as flavor {flavor.name} names no pools"
                yield Problem(path, cause, f"Name them in {flavor.at('pools')}, or write the amounts")


@common.rule
def local_queues_have_a_cluster_queue(stack: ResolvedStack) -> Iterator[Problem]:
    """The cluster queue of a local queue exists. One that is not here may be of an existing Kueue."""
    if stack.queues.kueue == "existing":
        return
    for local in stack.queues.local_queues:
        consequence = f"workloads in {local.name} would wait forever"
        yield from common.CLUSTER_QUEUES.unknown(stack, local.at("clusterQueue"), local.cluster_queue, consequence)


@common.rule
def priority_classes_are_kubernetes_classes(stack: ResolvedStack) -> Iterator[Problem]:
    """At most one priority class is the global default, and none has a reserved name."""
    defaults = [priority_class for priority_class in stack.queues.priority_classes if priority_class.global_default]
    for priority_class in defaults[1:]:
        cause = f"{defaults[0].name} and {priority_class.name} are both the global default. "
        cause += "Kubernetes would refuse the second"
        yield Problem(priority_class.at("globalDefault"), cause, "Set it in one of them only")
    for priority_class in stack.queues.priority_classes:
        if priority_class.name.startswith("system-"):
            cause = f"{priority_class.name} begins with system-, which is reserved. Kubernetes would refuse it"
            yield Problem(priority_class.at("name"), cause, "Choose another name")
