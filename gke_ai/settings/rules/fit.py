"""Rules of size: a workload's pods fit a node, its pools and its queue.

Kubernetes would accept a workload that breaks one of these rules, and it would then wait forever.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import ceil

from gke_ai.catalog.fabric.nvlink import NODES, has_domain
from gke_ai.catalog.machines.tpus import GOOGLE_TPU
from gke_ai.catalog.machines.types import GPUS, MACHINES, ONLY_IN_POOLS
from gke_ai.catalog.nodes.shape import NVIDIA_GPU, NotOffered, autopilot_machine, bare_shape, smallest_machine
from gke_ai.catalog.quantities import readable
from gke_ai.settings.model import AnyServer, Cluster, ComputeClass, FineTune, GpuServer, Pool, TrainingRun, Workload
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import Placed, Queue, ResolvedStack
from gke_ai.settings.rules.common import each, join_names, needs
from gke_ai.settings.rules.queues import usable_flavors

Amounts = Mapping[str, Fraction]


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


def missing(request: Amounts, left: Amounts) -> list[str]:
    """Returns the resources of which less is left than requested."""
    return [resource for resource, amount in request.items() if amount > left.get(resource, Fraction(0))]


def _gap(request: Amounts, left: Amounts) -> tuple[int, Fraction]:
    """By how much a request exceeds what is left: the number of resources, then the sum of the shares that lack."""
    short = missing(request, left)
    return len(short), sum((1 - left.get(resource, Fraction(0)) / request[resource] for resource in short), Fraction(0))


def _lacking(shorts: list[list[str]], index: int) -> str:
    """A resource that one of several lacks, preferably one that all of them lack."""
    return next((name for name in shorts[index] if all(name in short for short in shorts)), shorts[index][0])


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
@each(lambda stack: stack.placed)
def pods_fit_a_node_of_their_pool(placed: Placed[Workload]) -> Iterator[Problem]:
    """One pod, including its FUSE sidecar, fits one node of a pool that it may run on."""
    workload, request = placed.section, placed.node_request
    pool = min(placed.pools, key=lambda pool: _gap(request, pool.room), default=None)
    if pool is None:
        return
    for resource in missing(request, pool.room):
        with_sidecar = workload.sidecar is not None and resource != workload.accelerator_resource
        noun = f"{workload.pod_noun} with its FUSE sidecar" if with_sidecar else workload.pod_noun
        larger = _larger(request, pool.shape.gpu) if resource != "ephemeral-storage" else ", or a larger disk"
        cause = f"{noun} requests {_amount(resource, request[resource])}, and a node of pool {pool.section.name} "
        cause += f"({pool.shape.machine_type}) has {_amount(resource, pool.room.get(resource, Fraction(0)))} for pods. "
        cause += "It would stay pending"
        yield Problem(workload.at(_key(workload, resource)), cause, f"Request less{larger}")


@needs("gke-ai:cluster.mode", "gke-ai:gpuPools")
def pods_fit_a_machine(stack: ResolvedStack) -> Iterator[Problem]:
    """Where the stack has no pools, some machine with the GPU type holds the pod, and Google offers it."""
    for placed in stack.gpu_workloads:
        yield from _without_a_machine(placed, stack.cluster)


def _without_a_machine(placed: Placed[GpuServer | FineTune | TrainingRun], cluster: Cluster) -> Iterator[Problem]:
    workload, request = placed.section, placed.node_request
    if workload.accelerator not in GPUS or workload.pool is not None or placed.pools or cluster.mode == "standard":
        return
    find = autopilot_machine if cluster.is_autopilot else smallest_machine
    try:
        find(
            workload.accelerator,
            int(request[NVIDIA_GPU]),
            request.get("cpu", Fraction(0)),
            request.get("memory", Fraction(0)),
        )
    except NotOffered as error:
        name = error.machine_type.name
        if name in ONLY_IN_POOLS:
            return  # workloads reports it
        yield Problem(
            workload.at("accelerator"),
            f"{error}, and GKE takes no other mode for a pod without a compute class. The pods would stay pending",
            f"Define a compute class with machineType: {name} and capacity: {{mode: spot}} or {{mode: flexStart}}, and "
            "set computeClass instead of accelerator",
        )
    except LookupError as error:
        key = _key(workload, NVIDIA_GPU)
        yield Problem(workload.at(key), f"{error}. The pods would stay pending", "Request less, or another accelerator")


@needs("gke-ai:computeClasses", "gke-ai:cluster.mode")
def choices_hold_a_pod(stack: ResolvedStack) -> Iterator[Problem]:
    """Each pod fits some machine of its compute class, and each machine fits some pod.

    On Autopilot, GKE chooses a boot disk that is large enough (`autopilot_disk` of `gke_ai.catalog.nodes.shape`).
    """
    for compute_class in stack.settings.compute_classes:
        yield from _misfits(compute_class, stack)


def _misfits(compute_class: ComputeClass, stack: ResolvedStack) -> Iterator[Problem]:
    users = [user for user in stack.gpu_workloads if user.section.compute_class == compute_class.name]
    machine_types = [MACHINES.get(priority.machine_type) for priority in compute_class.priorities]
    if not users or any(machine_type is None or machine_type.tpu for machine_type in machine_types):
        return
    left = [stack.measured.room(bare_shape(machine_type)) for machine_type in machine_types if machine_type is not None]
    disks = {"ephemeral-storage"} if stack.cluster.is_autopilot else set()
    requests = [{name: amount for name, amount in user.node_request.items() if name not in disks} for user in users]
    gaps = [
        (user, [missing(request, amounts) for amounts in left]) for user, request in zip(users, requests, strict=True)
    ]
    for (user, of_choices), request in zip(gaps, requests, strict=True):
        if all(of_choices):
            nearest = min(range(len(left)), key=lambda index: _gap(request, left[index]))
            resource, workload = _lacking(of_choices, nearest), user.section
            enough = "has as much" if all(resource in short for short in of_choices) else "holds it"
            amount = _amount(resource, user.node_request[resource])
            has = _amount(resource, left[nearest].get(resource, Fraction(0)))
            of_disk = resource == "ephemeral-storage"
            larger = (
                ", or mount a bucket" if of_disk else f", or add a larger machine to {compute_class.at('priorities')}"
            )
            cause = f"{workload.pod_noun} requests {amount}, and no choice of compute class {compute_class.name} "
            cause += f"{enough}: {compute_class.priorities[nearest].machine_type} has {has} for pods. It would stay "
            cause += "pending"
            yield Problem(workload.at(_key(workload, resource)), cause, f"Request less{larger}")
    if any(all(of_choices) for _, of_choices in gaps):
        return
    for index, priority in enumerate(compute_class.priorities):
        short = [of_choices[index] for _, of_choices in gaps]
        if all(short):
            resource = _lacking(short, 0)
            has = _amount(resource, left[index].get(resource, Fraction(0)))
            cause = f"{priority.machine_type} has {has} for pods, less than any workload of the class requests. "
            cause += "GKE would never use this choice"
            remedy = "Remove it, or choose a larger machine"
            yield Problem(compute_class.at(f"priorities[{index}].machineType"), cause, remedy)


@needs("gke-ai:cluster")
@each(lambda stack: stack.placed)
def pools_hold_what_must_run_at_once(placed: Placed[Workload]) -> Iterator[Problem]:
    """All pods of a run, or one replica of a server, fit the pool at its maximum size.

    `runs` checks that a Multislice run has a pool for each slice.
    """
    workload = placed.section
    pools = placed.pools if not workload.has_pool_per_slice else ()
    fits = [(pool, _pods_per_node(placed.node_request, pool.room)) for pool in pools]
    if not fits or not any(count for _, count in fits) or any(not pool.section.has_size for pool in pools):
        return
    room = sum(count * pool.max_nodes for pool, count in fits)
    wanted = placed.pods_at_once
    if room < wanted:
        nodes = join_names(f"{pool.section.name}: at most {pool.max_nodes} nodes" for pool in pools)
        noun = f"the {workload.object_kind} runs" if workload.ends else f"the {workload.short_noun} needs"
        remedy = "Make the pool larger, or request fewer pods" if wanted > 1 else "Add a node to the pool"
        if any(has_domain(pool.section.node_machine_type) for pool in pools) and wanted > 1:
            remedy = f"Request fewer pods: a run is in one NVLink domain, which is a pool of at most {NODES} nodes"
        cause = f"{noun} {wanted} pod{'s' if wanted > 1 else ''} at once, and the pool has room for {room} ({nodes}). "
        cause += "It would wait forever"
        yield Problem(workload.at(workload.pods_key), cause, remedy)


@needs("gke-ai:cluster", "gke-ai:gpuPools", "gke-ai:tpuPools")
def pools_hold_their_servers(stack: ResolvedStack) -> Iterator[Problem]:
    """All replicas of the servers on the same pools fit these pools at their maximum size.

    A server with an autoscaler counts as one replica. Servers that share only some of their pools are not compared, nor
    are those in a queue: Kueue lets their other replicas wait.
    """
    of_pools: dict[tuple[str, ...], list[Placed[AnyServer]]] = {}
    for placed in (placed for placed in stack.servers if placed.queue is None):
        of_pools.setdefault(tuple(pool.section.name for pool in placed.pools), []).append(placed)
    for sharing in of_pools.values():
        pools = sharing[0].pools
        nodes = sum(pool.max_nodes for pool in pools)
        if not nodes or any(not pool.section.has_size or pool.section.is_one_slice for pool in pools):
            continue  # other rules report these
        room = {resource: max(pool.room.get(resource, Fraction(0)) for pool in pools) for resource in pools[0].room}
        fitting = [placed for placed in sharing if not missing(placed.node_request, room)]
        pods: list[Amounts] = []
        for index, placed in enumerate(fitting):
            pods += [placed.node_request] * placed.section.replicas
            needed, resource = max((_nodes_at_least(pods, resource, room[resource]), resource) for resource in room)
            if needed > nodes:
                count = f"{len(pods)} replica{'s' if len(pods) > 1 else ''}"
                names = join_names(pool.section.name for pool in pools)
                amount, node = placed.node_request[resource], room[resource]
                cause = f"{count} of {join_names(other.section.name for other in fitting[: index + 1])} need at least "
                cause += f"{needed} nodes, and pool {names} has at most {nodes}: a replica of {placed.section.name} "
                cause += f"requests {_amount(resource, amount)}, and a node has {_amount(resource, node)} for pods. "
                cause += f"{needed - nodes} or more would stay pending"
                yield Problem(placed.section.at("replicas"), cause, "Make the pool larger, or request less")
                break


def _nodes_at_least(pods: list[Amounts], resource: str, room: Fraction) -> int:
    """Nodes that pods need for one resource, counted from below. Two that request over half a node need two nodes."""
    amounts = [pod.get(resource, Fraction(0)) for pod in pods]
    return max(sum(2 * amount > room for amount in amounts), ceil(sum(amounts) / room) if room else 0)


def _pods_per_node(request: Amounts, left: Amounts) -> int:
    return int(min(left.get(resource, Fraction(0)) // amount for resource, amount in request.items() if amount))


@needs("gke-ai:cluster", "gke-ai:gpuPools", "gke-ai:tpuPools", "gke-ai:queues")
def queues_hold_what_must_run_at_once(stack: ResolvedStack) -> Iterator[Problem]:
    """Some flavor of the queue has quota for all pods of a run, or for one replica of a server."""
    if not _quotas_are_known(stack.cluster_queues, stack.pools):
        return
    for workload in stack.placed:
        if workload.pools or not (workload.section.named_pools or stack.cluster.mode == "standard"):
            yield from _fits_its_queue(workload)


def _fits_its_queue(placed: Placed[Workload]) -> Iterator[Problem]:
    queue, workload = placed.queue, placed.section
    if queue is None:
        return
    name = queue.section.name
    usable = {flavor.name for flavor in usable_flavors(queue, placed)}
    quotas = {str(quota.section.flavor): amounts for quota, amounts in queue.limits() if quota.section.flavor in usable}
    if placed.pool_of_slice and quotas:
        quotas = {"": _sum([*quotas.values()])}  # Kueue assigns a flavor to each slice separately
    noun = f"{workload.short_noun} {workload.name}"
    if not quotas:
        own = join_names(pool.section.name for pool in placed.pools)
        where = f"pool {own}" if placed.pools else "the nodes"
        cause = f"cluster queue {name} has no quota for a flavor of {where}, where {noun} runs. Kueue would never "
        cause += "admit it"
        remedy = f"Add the pool to a flavor of cluster queue {name}, or choose a pool of such a flavor"
        yield Problem(workload.at("queue"), cause, remedy)
        return
    pods = placed.pods_at_once
    request = {resource: amount * pods for resource, amount in placed.queued_request.items()}
    if pods == 0 or any(not missing(request, amounts) for amounts in quotas.values()):
        return
    nearest = min(quotas, key=lambda flavor: _gap(request, quotas[flavor]))
    for resource in missing(request, quotas[nearest]):
        amounts = [amounts.get(resource) for amounts in quotas.values()]
        most = max((amount for amount in amounts if amount is not None), default=None)
        if most is None:
            cause = f"cluster queue {name} has no quota for {resource}, which {noun} requests. Kueue would never admit "
            cause += "it"
            remedy = f"Add {resource} to the quota, or write quota: derive"
            yield Problem(queue.section.at("flavors[0].quota"), cause, remedy)
            continue
        is_elsewhere = most >= request[resource]  # in a flavor that lacks more of another resource
        has = quotas[nearest].get(resource, Fraction(0)) if is_elsewhere else most
        where = f"flavor {nearest} of cluster queue {name}" if is_elsewhere else f"cluster queue {name}"
        together = f"the {pods} pods of {noun} together request" if pods > 1 else f"one pod of {noun} requests"
        cause = f"{together} {_amount(resource, request[resource])}, and {where} has at most "
        cause += f"{_amount(resource, has)}. Kueue would never admit it"
        remedy = f"Request less, or raise the quota at {queue.section.at('flavors')}"
        yield Problem(workload.at(workload.pods_key if pods > 1 else _key(workload, resource)), cause, remedy)


def _sum(quotas: list[dict[str, Fraction]]) -> dict[str, Fraction]:
    return {
        resource: sum((amounts.get(resource, Fraction(0)) for amounts in quotas), Fraction(0)) for resource in quotas[0]
    }


def _quotas_are_known(cluster_queues: list[Queue], pools: list[Pool]) -> bool:
    """Whether quotas can be added up. If not, other rules report why."""
    sized = {pool.name for pool in pools if pool.has_size}
    quotas = [quota for queue in cluster_queues for quota in queue.quotas]
    return all(
        quota.flavor is not None
        and set(quota.flavor.section.pools) <= sized
        and (quota.section.quota != "derive" or bool(quota.flavor.section.pools))
        for quota in quotas
    )
