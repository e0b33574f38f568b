"""What a stack expects of a cluster that exists: controllers of somebody else, and objects that it uses by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from gke_ai.catalog.kueue.configuration import Demand
from gke_ai.catalog.kueue.operators import Operator

Labels = Mapping[str, str]
# Priority classes of Kubernetes and GKE begin so. No workload of a stack may have them.
PRIORITIES_OF_THE_SYSTEM = ("system-", "gmp-", "gke-")


@dataclass(frozen=True)
class Named:
    """An object of the cluster that the stack uses and neither creates, changes nor deletes."""

    at: Callable[[str], str]
    """Path of a key of the section that names it, such as `gke-ai:queues.flavors[0].name`."""
    name: str


@dataclass(frozen=True)
class NamedFlavor(Named):
    """A ResourceFlavor, with the nodes that it must select."""

    pools: Mapping[str, Sequence[Labels]]
    """Labels of the nodes of each pool, by zone. The flavor's labels must be among them."""
    accelerator: Labels
    """Labels of the accelerator, where the stack has no pool. The flavor's labels must not contradict them."""
    tolerated: Sequence[str] = ()
    """Keys of taints that the workloads of the flavor tolerate by themselves."""


@dataclass(frozen=True)
class NamedQueue(Named):
    """A LocalQueue, with the cluster queue to which it must lead."""

    namespace: str
    cluster_queue: str


@dataclass(frozen=True)
class NamedPriority(Named):
    """A PriorityClass, with what it must say."""

    value: int
    preemption: str
    global_default: bool


@dataclass(frozen=True)
class Expected:
    """What a stack expects of a cluster that exists. False if it expects nothing."""

    kueue: Demand | None = None
    """What it needs of a Kueue that it does not install; None if it installs one, or needs none."""
    jobset: str = ""
    """A workload that needs a JobSet that the stack does not install; empty if none does."""
    operators: Mapping[str, Operator] = field(default_factory=dict)
    """Controllers of further kinds, by the key that expects each."""
    tenants: bool = False
    """Whether it has tenants, whose pods may receive no credential of a controller."""
    namespaces: Sequence[Named] = ()
    flavors: Sequence[NamedFlavor] = ()
    local_queues: Sequence[NamedQueue] = ()
    priority_classes: Sequence[NamedPriority] = ()

    def __bool__(self) -> bool:
        objects = (*self.namespaces, *self.flavors, *self.local_queues, *self.priority_classes)
        return self.kueue is not None or bool(self.jobset or self.operators or objects)
