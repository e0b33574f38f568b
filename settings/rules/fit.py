"""Rules of size: a workload's pods fit a node, its pools and its queue.

Kubernetes would accept a workload that breaks one of these rules, and it would then wait forever.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from catalog.machines import GPUS, MACHINES, Machine
from catalog.nodes import NVIDIA_GPU, NodeShape, autopilot_machine, smallest_machine
from catalog.quantities import parse_quantity, readable
from catalog.tpus import GOOGLE_TPU
from settings.model import Pool, Settings, Workload
from settings.plan import (
    cluster_queue_of,
    gpu_workloads,
    is_autopilot,
    limits,
    node_request,
    pods_at_once,
    pool_of_slice,
    pools_of,
    queued_request,
    workloads,
)
from settings.problems import Problem
from settings.rules.common import Rule, join_names, needs
from settings.rules.flavors import usable_flavors

Amounts = dict[str, Fraction]


def _key(workload: Workload, resource: str) -> str:
    if resource == workload.accelerator_resource:
        return workload.accelerators_key
    return {"cpu": "resources.cpu", "memory": "resources.memory"}.get(resource, "resources.ephemeralStorage")


def _amount(resource: str, amount: Fraction) -> str:
    text = readable(resource, amount)
    if resource == NVIDIA_GPU:
        return f"{text} GPU{'' if text == '1' else 's'}"
    if resource == GOOGLE_TPU:
        return f"{text} TPU chip{'' if text == '1' else 's'}"
    return f"{text} of {resource}" if resource != "cpu" else f"{text} CPU"


def _free(pool: Pool, settings: Settings) -> Amounts:
    node = pool.shape(pool.zones_in(settings.cluster)[0])
    return {resource: parse_quantity(text) for resource, text in settings.measured.room(node).items()}


def _missing(request: Amounts, left: Amounts) -> list[str]:
    return [resource for resource, amount in request.items() if amount > left.get(resource, Fraction(0))]


def _larger(request: Amounts, gpu: str | None) -> str:
    """Suggests a machine type that is large enough, as the end of a sentence; empty if none is."""
    if gpu is None:
        return ""
    try:
        machine_type = smallest_machine(
            gpu, int(request.get(NVIDIA_GPU, 0)), request.get("cpu", Fraction(0)), request.get("memory", Fraction(0))
        )
    except LookupError:
        return ""
    return f", or use a pool of {machine_type.name}"


@needs("gke-ai:cluster")
def pods_fit_a_node_of_their_pool(settings: Settings) -> Iterator[Problem]:
    """One pod, including its FUSE sidecar, fits one node of a pool that it may run on."""
    for workload in workloads(settings):
        pools = pools_of(workload, settings)
        request = node_request(workload, settings)
        gaps = [(len(_missing(request, _free(pool, settings))), pool) for pool in pools]
        if not gaps or min(gap for gap, _ in gaps) == 0:
            continue
        pool = min(gaps, key=lambda gap: gap[0])[1]
        left = _free(pool, settings)
        for resource in _missing(request, left):
            with_sidecar = workload.sidecar is not None and resource != workload.accelerator_resource
            noun = f"{workload.pod_noun} with its FUSE sidecar" if with_sidecar else workload.pod_noun
            larger = _larger(request, pool.shape("").gpu) if resource != "ephemeral-storage" else ", or a larger disk"
            yield Problem(
                workload.at(_key(workload, resource)),
                f"{noun} requests {_amount(resource, request[resource])}, and a node of pool {pool.name} "
                f"({pool.shape('').machine_type}) has {_amount(resource, left.get(resource, Fraction(0)))} for pods. "
                "It would stay pending",
                f"Request less{larger}",
            )


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools")
def pods_fit_a_machine(settings: Settings) -> Iterator[Problem]:
    """Where the stack has no pools, some machine with the GPU type holds the pod."""
    for workload in gpu_workloads(settings):
        if workload.accelerator not in GPUS or workload.pool is not None or pools_of(workload, settings):
            continue
        if settings.cluster.mode == "standard":
            continue
        request = node_request(workload, settings)
        count = int(request[NVIDIA_GPU])
        find = autopilot_machine if is_autopilot(settings.cluster) else smallest_machine
        try:
            find(workload.accelerator, count, request.get("cpu", Fraction(0)), request.get("memory", Fraction(0)))
        except LookupError as error:
            key = _key(workload, NVIDIA_GPU)
            yield Problem(
                workload.at(key), f"{error}. The pods would stay pending", "Request less, or another accelerator"
            )


@needs("gke-ai:computeClasses")
def choices_hold_a_pod(settings: Settings) -> Iterator[Problem]:
    """Each pod fits some machine of its compute class, and each machine fits some pod.

    GKE chooses the boot disk of such a node, so ephemeral storage is not compared.
    """
    for compute_class in settings.compute_classes:
        users = [workload for workload in gpu_workloads(settings) if workload.compute_class == compute_class.name]
        machine_types = [MACHINES.get(priority.machine_type) for priority in compute_class.priorities]
        if not users or any(machine_type is None or machine_type.tpu for machine_type in machine_types):
            continue
        left = [_free_of(machine_type, settings) for machine_type in machine_types if machine_type is not None]
        gaps = [[_missing(_of_machine(user, settings), amounts) for amounts in left] for user in users]
        for workload, of_choices in zip(users, gaps, strict=True):
            if all(of_choices):
                nearest = min(range(len(left)), key=lambda index: len(of_choices[index]))
                resource = of_choices[nearest][0]
                amount = _amount(resource, node_request(workload, settings)[resource])
                has = _amount(resource, left[nearest].get(resource, Fraction(0)))
                yield Problem(
                    workload.at(_key(workload, resource)),
                    f"{workload.pod_noun} requests {amount}, and no choice of compute class {compute_class.name} has "
                    f"as much: {compute_class.priorities[nearest].machine_type} has {has} for pods. "
                    "It would stay pending",
                    f"Request less, or add a larger machine to {compute_class.at('priorities')}",
                )
        if any(all(of_choices) for of_choices in gaps):
            continue
        for index, priority in enumerate(compute_class.priorities):
            short = [of_choices[index] for of_choices in gaps]
            if all(short):
                resource = short[0][0]
                has = _amount(resource, left[index].get(resource, Fraction(0)))
                yield Problem(
                    compute_class.at(f"priorities[{index}].machineType"),
                    f"{priority.machine_type} has {has} for pods, less than any workload of the class requests. "
                    "GKE would never use this choice",
                    "Remove it, or choose a larger machine",
                )


def _of_machine(workload: Workload, settings: Settings) -> Amounts:
    request = node_request(workload, settings)
    return {resource: amount for resource, amount in request.items() if resource != "ephemeral-storage"}


def _free_of(machine_type: Machine, settings: Settings) -> Amounts:
    node = NodeShape(
        "", machine_type.name, machine_type.gpu, machine_type.gpus, "default", "onDemand", "", 100, {}, True
    )
    return {resource: parse_quantity(text) for resource, text in settings.measured.room(node).items()}


@needs("gke-ai:cluster")
def pools_hold_what_must_run_at_once(settings: Settings) -> Iterator[Problem]:
    """All pods of a run, or one replica of a server, fit the pool at its maximum size.

    `tpu_workloads` checks that a Multislice run has a pool for each slice.
    """
    for workload in workloads(settings):
        pools = pools_of(workload, settings) if not workload.has_pool_per_slice else []
        request = node_request(workload, settings)
        fits = [(pool, _pods_per_node(request, _free(pool, settings))) for pool in pools]
        if not fits or not any(count for _, count in fits) or any(not pool.has_size for pool in pools):
            continue
        room = sum(count * pool.max_nodes(settings.cluster) for pool, count in fits)
        wanted = pods_at_once(workload, settings)
        if room < wanted:
            nodes = join_names(f"{pool.name}: at most {pool.max_nodes(settings.cluster)} nodes" for pool in pools)
            path = workload.at(workload.pods_key)
            noun = f"the {workload.object_kind} runs" if workload.ends else f"the {workload.short_noun} needs"
            yield Problem(
                path,
                f"{noun} {wanted} pod{'s' if wanted > 1 else ''} at once, and the pool has room for {room} ({nodes}). "
                "It would wait forever",
                "Make the pool larger, or request fewer pods" if wanted > 1 else "Add a node to the pool",
            )


def _pods_per_node(request: Amounts, left: Amounts) -> int:
    return int(min(left.get(resource, Fraction(0)) // amount for resource, amount in request.items() if amount))


@needs("gke-ai:cluster", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:queues")
def queues_hold_what_must_run_at_once(settings: Settings) -> Iterator[Problem]:
    """Some flavor of the queue has quota for all pods of a run, or for one replica of a server."""
    if not _queues_are_sound(settings):
        return
    for workload in workloads(settings):
        queue = cluster_queue_of(workload, settings)
        if queue is None:
            continue
        pools = pools_of(workload, settings)
        if not pools and (workload.named_pools or settings.cluster.mode == "standard"):
            continue
        usable = {flavor.name for flavor in usable_flavors(queue, workload, settings)}
        quotas = [amounts for flavor, amounts in limits(queue, settings) if flavor in usable]
        if pool_of_slice(workload, settings):
            quotas = [_sum(quotas)] if quotas else []  # Kueue assigns a flavor to each slice separately
        noun = f"{workload.short_noun} {workload.name}"
        if not quotas:
            where = f"pool {join_names(pool.name for pool in pools)}" if pools else "the nodes"
            yield Problem(
                workload.at("queue"),
                f"cluster queue {queue.name} has no quota for a flavor of {where}, where {noun} runs. "
                "Kueue would never admit it",
                f"Add the pool to a flavor of cluster queue {queue.name}, or choose a pool of such a flavor",
            )
            continue
        pods = pods_at_once(workload, settings)
        request = {resource: amount * pods for resource, amount in queued_request(workload, settings).items()}
        if pods == 0 or any(not _missing(request, amounts) for amounts in quotas):
            continue
        best = min(quotas, key=lambda amounts: len(_missing(request, amounts)))
        for resource in _missing(request, best):
            if resource not in best:
                yield Problem(
                    queue.at("flavors[0].quota"),
                    f"cluster queue {queue.name} has no quota for {resource}, which {noun} requests. "
                    "Kueue would never admit it",
                    f"Add {resource} to the quota, or write quota: derive",
                )
                continue
            together = f"the {pods} pods of {noun} together request" if pods > 1 else f"one pod of {noun} requests"
            yield Problem(
                workload.at(workload.pods_key if pods > 1 else _key(workload, resource)),
                f"{together} {_amount(resource, request[resource])}, and cluster queue {queue.name} has at most "
                f"{_amount(resource, best[resource])}. Kueue would never admit it",
                f"Request less, or raise the quota at {queue.at('flavors')}",
            )


def _sum(quotas: list[Amounts]) -> Amounts:
    return {
        resource: sum((amounts.get(resource, Fraction(0)) for amounts in quotas), Fraction(0)) for resource in quotas[0]
    }


def _queues_are_sound(settings: Settings) -> bool:
    """Whether quotas can be added up. If not, other rules report why."""
    queues = settings.queues
    if queues is None:
        return False
    flavors = {flavor.name: flavor for flavor in queues.flavors}
    names = {pool.name for pool in settings.pools if pool.has_size}
    for queue in queues.cluster_queues:
        for flavor_quota in queue.flavors:
            flavor = flavors.get(flavor_quota.flavor)
            if (
                flavor is None
                or not set(flavor.pools) <= names
                or (flavor_quota.quota == "derive" and not flavor.pools)
            ):
                return False
    return True


RULES: tuple[Rule, ...] = (
    pods_fit_a_node_of_their_pool,
    pods_fit_a_machine,
    choices_hold_a_pod,
    pools_hold_what_must_run_at_once,
    queues_hold_what_must_run_at_once,
)
