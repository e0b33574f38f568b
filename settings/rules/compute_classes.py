"""Rules of compute classes, and of what asks for nodes by one."""

from __future__ import annotations

from collections.abc import Iterator

from catalog.capacity import MAX_RUN_SECONDS
from catalog.machines import MACHINES, NOT_BUILT
from settings.model import ClassFlexStart, Reservation, Settings
from settings.plan import gpu_workloads, is_autopilot
from settings.problems import Problem, nearest, unknown
from settings.rules.common import Rule, needs, repeated
from settings.rules.pools import RESERVATION, not_built, offered
from settings.rules.workloads import noun_of

# GKE's own classes, and the prefixes that it keeps for them:
# https://cloud.google.com/kubernetes-engine/docs/concepts/about-built-in-compute-classes
_KEPT = ("autopilot", "gke")


def names_are_unique_and_free(settings: Settings) -> Iterator[Problem]:
    """No two classes of one name, and none of a name that GKE keeps for its own."""
    named = ((one, "name", one.name) for one in settings.compute_classes)
    yield from repeated(named, "compute class", "the second could not be created")
    for one in settings.compute_classes:
        if one.name.startswith(_KEPT):
            cause = f"{one.name} is a name that GKE keeps for its own classes — the class would be refused"
            yield Problem(one.at("name"), cause, f"Choose one that does not begin with {' or '.join(_KEPT)}")


def machines_are_known(settings: Settings) -> Iterator[Problem]:
    """Each choice names a machine of the catalogue that is no TPU machine, and a driver only where it has GPUs."""
    for one in settings.compute_classes:
        for index, priority in enumerate(one.priorities):
            path = one.at(f"priorities[{index}]")
            machine_type = MACHINES.get(priority.machine_type)
            if machine_type is None:
                cause = f"{priority.machine_type} is no machine type of the catalogue — GKE would make no node for it"
                candidates = [name for name, other in MACHINES.items() if other.tpu is None]
                yield Problem(f"{path}.machineType", cause, nearest(priority.machine_type, candidates))
            elif machine_type.tpu is not None:
                cause = f"{machine_type.name} has TPUs, and the choices of a class have GPUs or none — "
                cause += "GKE would make no node"
                yield Problem(f"{path}.machineType", cause, "Use a pool of gke-ai:tpuPools, or another machine")
            elif machine_type.name in NOT_BUILT:
                yield not_built(f"{path}.machineType", machine_type)
            elif priority.driver is not None and machine_type.gpu is None:
                cause = f"{machine_type.name} has no GPU, and driver is that of a GPU — the class would be refused"
                yield Problem(f"{path}.driver", cause, "Leave driver out, or choose a machine with GPUs")


def capacity_is_offered(settings: Settings) -> Iterator[Problem]:
    """Google offers the machine of each choice in the choice's capacity mode."""
    for one in settings.compute_classes:
        for index, priority in enumerate(one.priorities):
            machine_type = MACHINES.get(priority.machine_type)
            if machine_type is not None and machine_type.name not in NOT_BUILT and machine_type.tpu is None:
                path = one.at(f"priorities[{index}].capacity.mode")
                yield from offered(path, machine_type, priority.capacity.mode)


def choices_differ(settings: Settings) -> Iterator[Problem]:
    """A choice that stands further up already can add nothing."""
    for one in settings.compute_classes:
        for index, priority in enumerate(one.priorities):
            if priority in one.priorities[:index]:
                first = one.priorities.index(priority)
                cause = f"it is the same choice as priorities[{first}] — GKE would try in vain what it just tried"
                yield Problem(one.at(f"priorities[{index}]"), cause, "Leave it out, or change its machine or capacity")


def nodes_are_recycled_while_they_live(settings: Settings) -> Iterator[Problem]:
    """A flex-start node is older than nothing when its successor is looked for."""
    for one in settings.compute_classes:
        for index, priority in enumerate(one.priorities):
            capacity = priority.capacity
            if not isinstance(capacity, ClassFlexStart) or capacity.recycle_lead_time_seconds is None:
                continue
            lives = capacity.max_run_duration_seconds or MAX_RUN_SECONDS
            if capacity.recycle_lead_time_seconds >= lives:
                yield Problem(
                    one.at(f"priorities[{index}].capacity.recycleLeadTimeSeconds"),
                    f"a node lives for {lives} seconds, and {capacity.recycle_lead_time_seconds} before that is before "
                    "it is there — each would be replaced at once",
                    f"Set it below {lives}, for example 3600",
                )


def reservations_are_named(settings: Settings) -> Iterator[Problem]:
    """A reservation has the form of its name, or of its full path in another project."""
    for one in settings.compute_classes:
        for index, priority in enumerate(one.priorities):
            capacity = priority.capacity
            if isinstance(capacity, Reservation) and not RESERVATION.fullmatch(capacity.reservation):
                yield Problem(
                    one.at(f"priorities[{index}].capacity.reservation"),
                    f'"{capacity.reservation}" is no name of a reservation — GKE would make no node of it',
                    "Write its name, or projects/PROJECT/reservations/NAME for a shared one",
                )


@needs("gke-ai:cluster.mode")
def pools_are_made_by_someone(settings: Settings) -> Iterator[Problem]:
    """Without auto-creation a class needs pools with its label, which only an existing Standard cluster can have."""
    cluster = settings.cluster
    for one in settings.compute_classes:
        if not one.auto_create_pools and (cluster.mode != "existing" or is_autopilot(cluster)):
            cause = "no pool of the cluster belongs to the class, and GKE makes none — its pods would stay pending"
            yield Problem(one.at("autoCreatePools"), cause, "Leave it out, or use gke-ai:gpuPools without a class")


def classes_exist(settings: Settings) -> Iterator[Problem]:
    """The class that a workload names is one of this stack, and the only word on its nodes."""
    names = [one.name for one in settings.compute_classes]
    for workload in gpu_workloads(settings):
        if workload.compute_class is None:
            continue
        for key, other in (("pool", workload.pool), ("accelerator", workload.accelerator)):
            if other is not None:
                cause = (
                    f"the {noun_of(workload)} names a compute class and {key} {other} — the class says which nodes it "
                    "gets, and the two could disagree"
                )
                yield Problem(workload.at(key), cause, f"Leave out {key} or computeClass")
        yield from unknown(
            settings,
            workload.at("computeClass"),
            "gke-ai:computeClasses",
            "compute class",
            workload.compute_class,
            names,
            "the pods would stay pending",
        )


RULES: tuple[Rule, ...] = (
    names_are_unique_and_free,
    machines_are_known,
    capacity_is_offered,
    choices_differ,
    nodes_are_recycled_while_they_live,
    reservations_are_named,
    pools_are_made_by_someone,
    classes_exist,
)
