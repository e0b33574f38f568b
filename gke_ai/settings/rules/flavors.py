"""Rules of resource flavors."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.machines.types import GPUS
from gke_ai.settings.model import Flavor, Workload
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed, Queue, ResolvedStack, ResourceFlavor
from gke_ai.settings.rules.common import GPU_POOLS, TPU_POOLS, Named, each, join_names, needs, rule
from gke_ai.settings.rules.pools import gpu_type_is_supported


@rule
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
            if not unresolved.may_contain(TPU_POOLS.section, name):
                only_tpus = stack.settings.tpu_pools and not stack.settings.gpu_pools
                pools = Named((TPU_POOLS if only_tpus else GPU_POOLS).section, "pool", lambda _: known)
                consequence = "no node would belong to this flavor"
                yield from pools.unknown(stack, flavor.at(f"pools[{index}]"), name, consequence)
        accelerators = dict.fromkeys(pool.section.hardware_name for pool in resolved.pools)
        if len(accelerators) > 1:
            yield Problem(
                flavor.at("pools"),
                f"the pools of flavor {flavor.name} have different accelerators ({join_names(accelerators)}). "
                "Their nodes share no label that Kueue could use",
                "Define a flavor for each accelerator",
            )


@each(lambda stack: stack.flavors)
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


@needs("gke-ai:queues")
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
