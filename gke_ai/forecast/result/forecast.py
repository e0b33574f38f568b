"""The result of a rehearsal: what a change does in the queue, to servers and to nodes. A versioned JSON file.

Names are stable: a workload is `namespace/kind/name` of the object that a user knows, such as
`llm/deployment/gemma` for every replica of a server. Times are seconds of Google Cloud since the change began.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

from pydantic import BeforeValidator

from gke_ai.forecast.result.result_file import ResultFile
from gke_ai.kube.blocks import BlockNode
from gke_ai.kube.names import NO_WORKLOAD, WorkloadName

VERSION = 2
# A name, which is a text in the file.
Name = Annotated[WorkloadName, BeforeValidator(WorkloadName.parse)]


@dataclass(frozen=True, order=True)
class Eviction:
    """Kueue evicts a workload.

    `reason` is that of the condition Evicted, such as Preempted or PodsReadyTimeout. For a preemption `cause` is that
    of the condition Preempted, such as InClusterQueue or InCohortReclamation, and `preemptor` is the workload it makes
    room for. `count` is the number of replicas of a server.
    """

    workload: Name
    queue: str
    priority: int
    reason: str
    cause: str = ""
    preemptor: Name = NO_WORKLOAD
    flavor: str = ""
    seconds: int = 0
    count: int = 1


@dataclass(frozen=True, order=True)
class Start:
    """Kueue admits a workload, `waited` seconds after it was created, evicted, or the change began."""

    workload: Name
    queue: str
    priority: int
    flavor: str
    seconds: int = 0
    waited: int = 0
    count: int = 1


@dataclass(frozen=True, order=True)
class Wait:
    """A workload that waits at the end.

    `reason` is a word of Kueue's or the scheduler's, `text` says in plain words what it waits for. `before` is whether
    it waited already before the change, for the same reason, and `otherwise` whether it waited then for another one.
    `never` is whether it can't start however much of the quota is free, such as after its local queue is deleted.
    """

    workload: Name
    queue: str
    priority: int
    reason: str
    text: str
    before: bool = False
    count: int = 1
    never: bool = False
    otherwise: bool = False


@dataclass(frozen=True, order=True)
class End:
    """A workload that ends: `how` is Succeeded, Failed or Deleted."""

    workload: Name
    how: str
    seconds: int = 0
    count: int = 1


@dataclass(frozen=True, order=True)
class Interruption:
    """Pods of an admitted workload that end although Kueue does not evict it.

    `cause` is `rollout`, `node pool NAME`, `preempted by the scheduler` or `deleted`. `seconds` is when the first of
    them ends, and `times` how often fewer pods than before were ready because of it. `lasted` is for how long together,
    until the end at most, and `missing` how many pods are still missing then.
    """

    workload: Name
    cause: str
    pods: int
    seconds: int = 0
    times: int = 1
    lasted: int = 0
    missing: int = 0


@dataclass(frozen=True, order=True)
class Stake:
    """What a run that stops loses at most: the work of its pods since they became ready, `seconds` ago.

    `hours` are accelerator-hours. The run keeps what its checkpoints hold, which a cluster does not show.
    """

    workload: Name
    accelerator: str
    capacity: str
    machine: str
    per_node: int
    accelerators: int
    seconds: int
    hours: float


@dataclass(frozen=True, order=True)
class OverQuota:
    """Admitted workloads that use more than the quota at the end: Kueue lets them run, and admits no others.

    `queues` is a cluster queue, or those of a cohort. `before` is whether it was so before the change.
    """

    queues: str
    flavor: str
    resource: str
    used: str
    quota: str
    before: bool = False


@dataclass(frozen=True, order=True)
class Share:
    """A cluster queue or cohort under fair sharing: its weight, and Kueue's figure of what it borrows by weight.

    Empty where fair sharing is off. `lends` and `owes` are amounts at the end.
    """

    name: str
    weight_before: str
    weight_after: str
    share_before: str
    share_after: str
    lends: str = ""
    owes: str = ""


@dataclass(frozen=True, order=True)
class Nodes:
    """The nodes of a pool: how many there are before and after, and how many come and go meanwhile."""

    pool: str
    capacity: str
    machine: str
    accelerator: str = ""
    per_node: int = 0
    before: int = 0
    came: int = 0
    went: int = 0
    after: int = 0


@dataclass(frozen=True, order=True)
class Server:
    """Replicas of a server.

    `wanted` are before and after the change. `fewest` is the smallest number of ready replicas meanwhile, and
    `below` the seconds with fewer ready replicas than both before and after need.
    """

    name: str
    queue: str
    wanted_before: int
    wanted_after: int
    ready_before: int
    ready_after: int
    fewest: int
    below: int = 0

    @property
    def needed(self) -> int:
        """Replicas that both configurations need."""
        return min(self.wanted_before, self.wanted_after)

    @property
    def is_degraded(self) -> bool:
        """Whether it has fewer ready replicas meanwhile than it had, and than are needed."""
        return self.fewest < min(self.ready_before, self.needed)

    @property
    def is_out(self) -> bool:
        """Whether it has too few ready replicas at the end, so that nobody knows for how long."""
        return self.ready_after < self.needed


@dataclass(frozen=True, order=True)
class Accelerators:
    """Accelerators of one machine type and capacity mode: on nodes and used by pods, before and after.

    `node_hours` are those of the nodes during the horizon, without and with the change.
    """

    accelerator: str
    capacity: str
    machine: str
    per_node: int
    nodes_before: int
    nodes_after: int
    used_before: int
    used_after: int
    node_hours_before: float
    node_hours_after: float


@dataclass(frozen=True, order=True)
class Duration:
    """How long a step takes on Google Cloud, in seconds, and where the figure comes from."""

    step: str
    of: str
    seconds: int
    source: str


class Count(NamedTuple):
    """Replicas or nodes that are ready, of those that there are to be."""

    ready: int
    wanted: int

    def __str__(self) -> str:
        return f"{self.ready} of {self.wanted}"


@dataclass(frozen=True, order=True)
class Lane:
    """A row of the timeline: states of a workload, ready replicas of a server, or ready nodes of a pool.

    `steps` are the seconds at which each state or count begins, with the state or count.
    """

    group: str
    name: str
    steps: tuple[tuple[int, str | Count], ...]


@dataclass(frozen=True)
class Forecast:
    """What a change does.

    `settled` is whether nothing changed any more when the watch ended, `seconds` after the change began. `applied` is
    when Pulumi had applied the change. A rehearsal runs Google's durations `compression` times as fast, and Kueue and
    the scheduler at their own speed. `notes` are differences between the rehearsed and the real cluster. `refused` is
    why the update failed, after a part of it was applied. `upgrade` is whether the change is an upgrade of GKE or of a
    release, not a changed configuration. `placed_before` and `placed_after` are the nodes of all blocks with their
    pods, or none if the change moves no pod there.
    """

    stack: str
    change: str
    settled: bool
    seconds: int
    horizon: int
    applied: int = 0
    compression: float = 1.0
    evictions: tuple[Eviction, ...] = ()
    starts: tuple[Start, ...] = ()
    waits: tuple[Wait, ...] = ()
    ends: tuple[End, ...] = ()
    interruptions: tuple[Interruption, ...] = ()
    stakes: tuple[Stake, ...] = ()
    over_quota: tuple[OverQuota, ...] = ()
    shares: tuple[Share, ...] = ()
    nodes: tuple[Nodes, ...] = ()
    placed_before: tuple[BlockNode, ...] = ()
    placed_after: tuple[BlockNode, ...] = ()
    servers: tuple[Server, ...] = ()
    accelerators: tuple[Accelerators, ...] = ()
    durations: tuple[Duration, ...] = ()
    lanes: tuple[Lane, ...] = ()
    notes: tuple[str, ...] = ()
    snapshot: str = ""
    refused: str = ""
    upgrade: bool = False
    terminating: tuple[str, ...] = ()
    version: int = VERSION

    def written(self) -> str:
        """Returns the JSON text of the file, the same for the same forecast."""
        return json.dumps(self, indent=1, default=_plain) + "\n"


def _plain(part: object) -> str | dict[str, Any]:
    """A part of the file as JSON has it: a name as its text."""
    return str(part) if isinstance(part, WorkloadName) else vars(part)


FILE = ResultFile(Forecast, VERSION, "rehearse", "evictions")
parse, read = FILE.parse, FILE.read
