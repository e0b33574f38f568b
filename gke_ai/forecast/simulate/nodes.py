"""The nodes that a configuration offers to the runs of a simulated day: pools, compute classes, and GKE's own. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from functools import cached_property
from math import inf

from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS, MODES, capacity_until
from gke_ai.catalog.machines.tpus import GOOGLE_TPU, Slice
from gke_ai.catalog.machines.types import MACHINES, Machine
from gke_ai.catalog.machines.zones import node_zones
from gke_ai.catalog.nodes.durations import (
    CONTAINER_START,
    CONTAINER_START_PRELOADED,
    CONTAINER_START_STREAMED,
    NODE_READY,
)
from gke_ai.catalog.nodes.shape import MAX_PODS, NVIDIA_GPU, autopilot_machine, bare_shape, smallest_machine
from gke_ai.catalog.quantities import parse_quantity
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.settings.model.compute_classes import ClassFlexStart, ComputeClass
from gke_ai.settings.resolved import NodePool, ResolvedStack, ResourceFlavor

# The name of nodes that GKE creates for pods, as on Autopilot, in results.
AUTOPILOT = "autopilot"


@dataclass(frozen=True)
class Amounts:
    """Accelerators, thousandths of a core, bytes of memory, and pods."""

    accelerators: int
    cpu: int
    memory: int
    pods: int = 1

    def plus(self, other: Amounts, times: int) -> Amounts:
        """Returns the sum with a multiple of other amounts."""
        return Amounts(
            self.accelerators + times * other.accelerators,
            self.cpu + times * other.cpu,
            self.memory + times * other.memory,
            self.pods + times * other.pods,
        )

    def holds(self, pod: Amounts) -> int:
        """How many such pods fit."""
        wanted = (pod.accelerators, pod.cpu, pod.memory, pod.pods)
        have = (self.accelerators, self.cpu, self.memory, self.pods)
        return max(0, min(had // want for had, want in zip(have, wanted, strict=True) if want))


def pod_of(row: Submission) -> Amounts:
    """Returns what each pod of a submission requests, as `workload` writes it."""
    return Amounts(row.accelerators, round(row.cpu * 1000), round(row.memory * 2**30))


@dataclass(frozen=True)
class NodeKind:
    """Nodes of one pool, or of one choice of a compute class or of GKE.

    Attributes:
        pool: Name of the pool or compute class.
        machine: Machine type.
        accelerator: GPU type or TPU accelerator. Empty without accelerators.
        mode: Capacity mode.
        zones: Zones of the nodes.
        room: What a node has for pods of workloads.
        hosts: Nodes of a unit, which GKE creates and deletes together: those of a multi-host TPU slice, else 1.
        minimum: Minimum number of nodes.
        maximum: Maximum number of nodes, if there is one besides the quota.
        max_seconds: Lifetime of a node, if it is limited.
        ready_seconds: From capacity to a Ready node.
        container_seconds: From a Ready new node to its first container.
        shared: Whether a node can have several pods. Otherwise each has one pod, and a unit has pods of one run.
        ends: When Google deletes all of them with their reservation, in seconds of the day. Infinite: not at all.
    """

    pool: str
    machine: str
    accelerator: str
    mode: str
    zones: tuple[str, ...]
    room: Amounts
    hosts: int
    minimum: int
    maximum: int | None
    max_seconds: float | None
    ready_seconds: float
    container_seconds: float
    shared: bool = True
    ends: float = inf

    @property
    def key(self) -> tuple[str, str, str]:
        """Identifies the nodes: pool, machine type and capacity mode."""
        return self.pool, self.machine, self.mode

    @property
    def is_spot(self) -> bool:
        """Whether Google may reclaim a node."""
        return self.mode == "spot"

    @property
    def is_queued(self) -> bool:
        """Whether all nodes of a request are created together, for the run that asks for them."""
        return self.mode == "queuedFlexStart"

    def pods(self, pod: Amounts) -> int:
        """How many such pods fit on an empty unit."""
        each = self.room.holds(pod)
        return self.hosts * (each if self.shared else min(each, 1))

    def most_pods(self, pod: Amounts, wanted: int) -> int:
        """How many of the wanted pods fit on all nodes at the maximum."""
        return wanted if self.maximum is None and self.pods(pod) else self.pods(pod) * (self.maximum or 0) // self.hosts


@dataclass(frozen=True)
class Nodes:
    """The nodes that a configuration offers, on a day that begins at a time. Without it, no reservation ends."""

    stack: ResolvedStack
    begin: datetime | None = None

    @cached_property
    def _flavors(self) -> dict[str, ResourceFlavor]:
        return {flavor.section.name: flavor for flavor in self.stack.flavors}

    @cached_property
    def _pools(self) -> dict[str, NodeKind]:
        return {pool.section.name: self._of_pool(pool) for pool in self.stack.node_pools}

    def fixed(self, flavors: frozenset[str]) -> list[NodeKind]:
        """Nodes of the pools of flavors, in the order of the configuration."""
        names = {name for flavor in flavors for name in self.pools_of(flavor)}
        return [kind for name, kind in self._pools.items() if name in names]

    def pools_of(self, flavor: str) -> frozenset[str]:
        """Names of the pools and compute classes of a flavor. Flavors with common ones share nodes."""
        return frozenset(kind.pool for kind in self.of(flavor)) or frozenset({AUTOPILOT})

    def of(self, flavor: str) -> tuple[NodeKind, ...]:
        """Nodes of a flavor, in order of preference. Empty: GKE creates nodes for pods."""
        return self._kinds_of(self._flavors[flavor]) if flavor in self._flavors else ()

    def choices(self, flavor: str, row: Submission) -> tuple[tuple[NodeKind, ...], str]:
        """Returns the nodes for a run with a flavor, in order of preference; if there are none, the reason."""
        pod, kinds = pod_of(row), self.of(flavor)
        if not kinds:
            return self._of_pods(self._flavors.get(flavor), row)
        allowed = [kind for kind in kinds if row.spot or not kind.is_spot]
        if not allowed:
            return (), f"flavor {flavor} has only Spot nodes, and the run does not tolerate Spot"
        fitting = tuple(kind for kind in allowed if kind.pods(pod))
        if not fitting:
            names = ", ".join(dict.fromkeys(kind.machine for kind in allowed))
            return (), f"a pod is larger than what a node has for pods: {names}"
        most = sum(kind.most_pods(pod, row.pods) for kind in fitting)
        if most < row.pods:
            return (), f"{row.pods} pods are more than fit on all nodes of flavor {flavor} at their maximum: {most}"
        return fitting, ""

    def _kinds_of(self, flavor: ResourceFlavor) -> tuple[NodeKind, ...]:
        """Nodes of a flavor's pools; of a flavor for any node, those of all pools; else those of compute classes.

        Empty: GKE creates nodes for pods.
        """
        section = flavor.section
        if flavor.pools:
            return tuple(self._pools[pool.section.name] for pool in flavor.pools)
        if section.tpu is not None:
            return (self._of_slice(section.tpu.slice, section.tpu.capacity),)
        if section.accelerator is None:
            return tuple(self._pools.values())
        return tuple(
            kind
            for compute_class in self.stack.settings.compute_classes
            for kind in self._of_class(compute_class)
            if kind.accelerator == section.accelerator
        )

    def _of_pool(self, pool: NodePool) -> NodeKind:
        section = pool.section
        most = pool.max_nodes
        end = capacity_until(section.node_labels)
        start = CONTAINER_START_STREAMED if section.image_streaming else CONTAINER_START
        return NodeKind(
            section.name,
            section.node_machine_type,
            _accelerator(MACHINES[section.node_machine_type]) or section.accelerator_type,
            section.capacity.mode,
            pool.zones,
            _room(pool.room),
            section.slice.hosts if section.slice else 1,
            section.bounds[0] if section.grows else most,
            most,
            _lifetime(section.capacity.mode, getattr(section.capacity, "max_run_duration_seconds", None)),
            self._ready_seconds(section.node_machine_type, section.capacity.mode),
            (CONTAINER_START_PRELOADED if section.preloads_images else start).seconds,
            shared=not section.is_one_slice,
            ends=(end - self.begin).total_seconds() if end and self.begin else inf,
        )

    def _of_class(self, compute_class: ComputeClass) -> Iterator[NodeKind]:
        for priority in compute_class.priorities:
            capacity = priority.capacity
            limit = capacity.max_run_duration_seconds if isinstance(capacity, ClassFlexStart) else None
            machine = MACHINES[priority.machine_type]
            yield self._of_gke(compute_class.name, machine, capacity.mode, limit=limit, shared=True)

    def _of_slice(self, tpu_slice: Slice, mode: str) -> NodeKind:
        return self._of_gke(AUTOPILOT, MACHINES[tpu_slice.machine_type], mode, hosts=tpu_slice.hosts)

    def _of_pods(self, flavor: ResourceFlavor | None, row: Submission) -> tuple[tuple[NodeKind, ...], str]:
        """Nodes that GKE creates for pods of this size, one for each: Spot first, if the run tolerates it."""
        gpu = flavor.section.accelerator if flavor and row.accelerators else None
        choose = autopilot_machine if self.stack.cluster.is_autopilot else smallest_machine
        try:
            machine = choose(gpu, row.accelerators, Fraction(str(row.cpu)), Fraction(str(row.memory)) * 2**30)
        except LookupError as error:
            return (), str(error)
        modes = [mode for mode in ("spot", "onDemand") if mode in machine.modes and (row.spot or mode != "spot")]
        if not modes:
            return (), f"Google offers {machine.name} only on Spot, which the run does not tolerate"
        return tuple(self._of_gke(AUTOPILOT, machine, mode) for mode in modes), ""

    def _of_gke(
        self, pool: str, machine: Machine, mode: str, *, hosts: int = 1, limit: int | None = None, shared: bool = False
    ) -> NodeKind:
        """Nodes of a pool that GKE creates itself, with as many nodes as the quota allows."""
        zones = node_zones(self.stack.cluster.location)
        texts = self.stack.measured.room(bare_shape(machine))
        room = {resource: parse_quantity(text) for resource, text in texts.items()}
        return NodeKind(
            pool,
            machine.name,
            _accelerator(machine),
            mode,
            zones,
            _room(room),
            hosts,
            0,
            None,
            _lifetime(mode, limit),
            self._ready_seconds(machine.name, mode),
            CONTAINER_START.seconds,
            shared=shared,
        )

    def _ready_seconds(self, machine: str, mode: str) -> float:
        """From capacity to a Ready node: measured on the stack's cluster, else the catalog's figure."""
        measured = self.stack.measured.duration("nodeReady", machine)
        return (measured or NODE_READY[mode]).seconds


def _accelerator(machine: Machine) -> str:
    return machine.gpu or machine.tpu or ""


def _lifetime(mode: str, limit: int | None) -> float | None:
    return (limit or MAX_RUN_SECONDS) if MODES[mode].provisioning == "flex-start" else None


def _room(room: Mapping[str, Fraction]) -> Amounts:
    accelerators = room.get(NVIDIA_GPU, Fraction(0)) + room.get(GOOGLE_TPU, Fraction(0))
    pods = room.get("pods", Fraction(MAX_PODS))
    return Amounts(int(accelerators), int(room["cpu"] * 1000), int(room["memory"]), int(pods))
