"""Rules of compute classes, and of the workloads that use them."""

from __future__ import annotations

from collections.abc import Iterator

from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS
from gke_ai.catalog.machines.types import MACHINES, ONLY_IN_POOLS
from gke_ai.settings.model import ClassFlexStart, ComputeClass
from gke_ai.settings.problems import Problem
from gke_ai.settings.resolved import ResolvedStack
from gke_ai.settings.rules.common import CLASSES, each, needs, repeated, rule
from gke_ai.settings.rules.pools import is_a_reservation, offered, only_in_pools, unknown_machine

# Prefixes that GKE reserves for its own classes:
# https://cloud.google.com/kubernetes-engine/docs/concepts/about-built-in-compute-classes
_RESERVED = ("autopilot", "gke")


@rule
def names_are_unique_and_free(stack: ResolvedStack) -> Iterator[Problem]:
    """Class names are unique, and GKE does not reserve them."""
    named = ((compute_class, "name", compute_class.name) for compute_class in stack.settings.compute_classes)
    yield from repeated(named, "compute class", "the second could not be created")
    for compute_class in stack.settings.compute_classes:
        if compute_class.name.startswith(_RESERVED):
            cause = f"GKE reserves the name {compute_class.name} for its own classes. It would refuse the class"
            remedy = f"Choose a name that does not begin with {' or '.join(_RESERVED)}"
            yield Problem(compute_class.at("name"), cause, remedy)


@each(lambda stack: stack.settings.compute_classes)
def machines_are_known(compute_class: ComputeClass) -> Iterator[Problem]:
    """Each choice names a known machine type without TPUs, and a driver only for a machine with GPUs."""
    for index, priority in enumerate(compute_class.priorities):
        path = compute_class.at(f"priorities[{index}]")
        machine_type = MACHINES.get(priority.machine_type)
        if machine_type is None:
            candidates = [name for name, other in MACHINES.items() if other.tpu is None]
            consequence = "GKE would create no node"
            yield unknown_machine(f"{path}.machineType", priority.machine_type, candidates, consequence)
        elif machine_type.tpu is not None:
            # GKE has them, by `tpu` of a priority: https://github.com/GoogleCloudPlatform/compute-class-api (types.go).
            cause = f"{machine_type.name} has TPUs, and this program does not write TPUs into compute classes yet. "
            cause += "GKE would create no node"
            remedy = "Use a pool of gke-ai:tpuPools, tpu of a workload where GKE manages the nodes, or another machine"
            yield Problem(f"{path}.machineType", cause, remedy)
        elif machine_type.name in ONLY_IN_POOLS:
            yield only_in_pools(f"{path}.machineType", machine_type)
        elif priority.driver is not None and machine_type.gpu is None:
            cause = f"{machine_type.name} has no GPU, and driver is for GPUs. GKE would refuse the class"
            yield Problem(f"{path}.driver", cause, "Remove driver, or choose a machine with GPUs")


@each(lambda stack: stack.settings.compute_classes)
def capacity_is_offered(compute_class: ComputeClass) -> Iterator[Problem]:
    """Google offers the machine of each choice in its capacity mode."""
    for index, priority in enumerate(compute_class.priorities):
        machine_type = MACHINES.get(priority.machine_type)
        if machine_type is not None and machine_type.name not in ONLY_IN_POOLS and machine_type.tpu is None:
            path = compute_class.at(f"priorities[{index}].capacity.mode")
            yield from offered(path, machine_type, priority.capacity.mode)


@each(lambda stack: stack.settings.compute_classes)
def choices_differ(compute_class: ComputeClass) -> Iterator[Problem]:
    """No choice repeats an earlier one."""
    for index, priority in enumerate(compute_class.priorities):
        if priority in compute_class.priorities[:index]:
            first = compute_class.priorities.index(priority)
            cause = f"it is the same choice as priorities[{first}]. GKE would try the same capacity again"
            remedy = "Remove it, or change its machine type or capacity"
            yield Problem(compute_class.at(f"priorities[{index}]"), cause, remedy)


@each(lambda stack: stack.settings.compute_classes)
def nodes_are_recycled_while_they_live(compute_class: ComputeClass) -> Iterator[Problem]:
    """The lead time for recycling a flex-start node is shorter than its lifetime."""
    for index, priority in enumerate(compute_class.priorities):
        capacity = priority.capacity
        if not isinstance(capacity, ClassFlexStart) or capacity.recycle_lead_time_seconds is None:
            continue
        lives = capacity.max_run_duration_seconds or MAX_RUN_SECONDS
        if capacity.recycle_lead_time_seconds >= lives:
            cause = f"a node lives for {lives} seconds, and its recycling would begin "
            cause += f"{capacity.recycle_lead_time_seconds} seconds before its end. Each node would be replaced at once"
            remedy = f"Set it below {lives}, for example 3600"
            yield Problem(compute_class.at(f"priorities[{index}].capacity.recycleLeadTimeSeconds"), cause, remedy)


@each(lambda stack: stack.settings.compute_classes)
def reservations_are_named(compute_class: ComputeClass) -> Iterator[Problem]:
    """A reservation is a valid name, or its full path in another project, with or without a block."""
    for index, priority in enumerate(compute_class.priorities):
        path = compute_class.at(f"priorities[{index}].capacity.reservation")
        yield from is_a_reservation(path, priority.capacity.reservation_name, "create no node")


@needs("gke-ai:cluster.mode")
def classes_without_auto_creation_have_pools(stack: ResolvedStack) -> Iterator[Problem]:
    """A class without auto-creation needs pools with its label, which only an existing Standard cluster has."""
    for compute_class in stack.settings.compute_classes:
        if not compute_class.auto_create_pools and (stack.cluster.mode != "existing" or stack.cluster.is_autopilot):
            cause = "no pool of the cluster belongs to the class, and GKE creates none. Its pods would stay pending"
            remedy = "Remove it, or use gke-ai:gpuPools without a class"
            yield Problem(compute_class.at("autoCreatePools"), cause, remedy)


@rule
def classes_exist(stack: ResolvedStack) -> Iterator[Problem]:
    """A workload's compute class exists, and the workload names no pool or accelerator beside it."""
    for workload in (placed.section for placed in stack.gpu_workloads):
        if workload.compute_class is None:
            continue
        for key, other in (("pool", workload.pool), ("accelerator", workload.accelerator)):
            if other is not None:
                cause = f"the {workload.short_noun} names a compute class and {key} {other}. The class already decides "
                cause += "which nodes it gets"
                yield Problem(workload.at(key), cause, f"Remove {key} or computeClass")
        path = workload.at("computeClass")
        yield from CLASSES.unknown(stack, path, workload.compute_class, "the pods would stay pending")
