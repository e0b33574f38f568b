"""Rules of resource flavors."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.machines import GPUS, NOT_BUILT, machines_with
from settings.model import ClusterQueue, Flavor, Settings, Workload
from settings.plan import flavor_pools, is_autopilot, pools_of
from settings.problems import Problem, nearest, unknown
from settings.rules.common import Rule, each, join_names, needs, queues_of
from settings.rules.pools import not_built


def flavors_are_of_pools(settings: Settings) -> Iterator[Problem]:
    """The pools of a flavor are in this stack and have the same accelerator, as its labels name only one."""
    known = [pool.name for pool in settings.pools]
    without = is_autopilot(settings.cluster) and not known and not settings.unparsed.overlaps("gke-ai:cluster.mode")
    for flavor in queues_of(settings).flavors:
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


@each(lambda settings: queues_of(settings).flavors)
def gpu_flavors_are_of_a_type(flavor: Flavor) -> Iterator[Problem]:
    """The GPU type of a flavor exists, and such a flavor has no pools and no slice."""
    if flavor.accelerator is None:
        return
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
    queues = queues_of(settings)
    used = {flavor_quota.flavor for queue in queues.cluster_queues for flavor_quota in queue.flavors}
    for flavor in queues.flavors:
        if flavor.name not in used:
            cause = f"no cluster queue has quota for flavor {flavor.name}. Nothing could run on it"
            yield Problem(flavor.at("name"), cause, "Add quota for it to a cluster queue, or remove it")


def usable_flavors(queue: ClusterQueue, workload: Workload, settings: Settings) -> list[Flavor]:
    """Flavors of the queue that the workload may run on, by pools or else by accelerator."""
    flavors = {flavor.name: flavor for flavor in queues_of(settings).flavors}
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


RULES: tuple[Rule, ...] = (
    flavors_are_of_pools,
    gpu_flavors_are_of_a_type,
    flavors_are_used,
)
