"""Kueue's admission as a pure model: cluster queues with quota, and runs that wait, start, end and are preempted.

Of Kueue's documentation it has: nominal quota, borrowing and lending limits in a flat cohort; flavors in their order;
priorities; StrictFIFO and BestEffortFIFO; preemption within a cluster queue and to reclaim quota of the cohort.
It leaves out: cohorts of cohorts, fair sharing, borrowWithinCohort, admission checks, topologies, partial admission.
https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/ and https://kueue.sigs.k8s.io/docs/concepts/preemption/
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import inf

# A flavor and a resource.
Cell = tuple[str, str]
Usage = tuple[tuple[Cell, float], ...]
_ROUNDING = 1e-6  # amounts are sums of floats
_MOST_CHOICES = 64  # of flavors for one run; Kueue tries 16 flavors in each of 16 groups at most
_ACCELERATOR = (".com/gpu", ".com/tpu")


@dataclass(frozen=True)
class Share:
    """Quota of a cluster queue for a flavor and a resource. Default: it borrows and lends without limit."""

    nominal: float
    borrowing: float = inf
    lending: float = inf

    @property
    def kept(self) -> float:
        """What it never lends."""
        return max(0.0, self.nominal - self.lending)


@dataclass(frozen=True)
class ClusterQueue:
    """A cluster queue.

    Attributes:
        name: Its name.
        shares: Its quota by flavor and resource, in the order of its flavors.
        groups: Resources that get the same flavor, with their flavors in order of preference.
        cohort: Name of its cohort. Empty: it shares its quota with nobody.
        strict: Whether a run that does not fit blocks later ones.
        within: Its policy `preemption.withinClusterQueue`.
        reclaim: Its policy `preemption.reclaimWithinCohort`.
        stopped: Whether it admits nobody.
    """

    name: str
    shares: Mapping[Cell, Share]
    groups: tuple[tuple[frozenset[str], tuple[str, ...]], ...]
    cohort: str = ""
    strict: bool = False
    within: str = "Never"
    reclaim: str = "Never"
    stopped: bool = False

    def choices(self, run: Run) -> list[Usage]:
        """Returns what a run would use with each choice of flavors, in order of preference. Accelerators come first."""
        parts = []
        for resources, flavors in self.groups:
            wanted = [(resource, run.needs[resource]) for resource in resources & run.needs.keys()]
            wanted.sort(key=lambda entry: (not entry[0].endswith(_ACCELERATOR), entry[0]))
            allowed = [flavor for flavor in flavors if flavor not in run.unsuitable]
            parts.append(
                [[((flavor, name), amount) for name, amount in wanted] for flavor in allowed] if wanted else [[]]
            )
        found = (tuple(cell for part in choice for cell in part) for choice in product(*parts))
        return [usage for usage, _ in zip(found, range(_MOST_CHOICES), strict=False)]


@dataclass(frozen=True, eq=False)
class Run:
    """A run as Kueue sees it: one Workload.

    Attributes:
        name: Stable name, such as training/job/finetune.
        queue: Name of its cluster queue.
        created: When it was submitted, in seconds. Kueue orders runs of one priority by it.
        needs: Requests of all its pods, by resource.
        priority: A higher one goes first.
        unsuitable: Flavors whose nodes it does not select.
        endless: Whether it runs until it is deleted, as a replica of a server.
        source: Local queue, as NAMESPACE/NAME.
    """

    name: str
    queue: str
    created: float
    needs: Mapping[str, float]
    priority: int = 0
    unsuitable: frozenset[str] = frozenset()
    endless: bool = False
    source: str = ""

    @property
    def order(self) -> tuple[int, float]:
        """Its order among the waiting runs of its queue."""
        return -self.priority, self.created

    @cached_property
    def shape(self) -> Hashable:
        """What decides whether it can start: runs of one shape start or wait alike."""
        return self.priority, frozenset(self.needs.items()), self.unsuitable


@dataclass(eq=False)
class Held:
    """Quota that a run holds.

    Attributes:
        run: The run.
        usage: What it uses, by flavor and resource.
        since: When it was admitted.
    """

    run: Run
    usage: Usage
    since: float


# A run that can start, what it would use, and the runs that Kueue evicts for it.
Head = tuple[Run, Usage, tuple[Held, ...]]


class Cohort:
    """The quota of cluster queues that share it, and how much is in use.

    The arithmetic is that of https://github.com/kubernetes-sigs/kueue/blob/v0.18.4/pkg/cache/scheduler/resource_node.go
    """

    def __init__(self, queues: Iterable[ClusterQueue]) -> None:
        self.queues = {queue.name: queue for queue in queues}
        self._used: dict[tuple[str, Cell], float] = {}
        self._shared: dict[Cell, float] = {}
        for queue in self.queues.values():
            for cell, share in queue.shares.items():
                self._shared[cell] = self._shared.get(cell, 0.0) + share.nominal - share.kept
        self.most = {
            (name, cell): self.available(name, cell) for name, queue in self.queues.items() for cell in queue.shares
        }

    def available(self, queue: str, cell: Cell) -> float:
        """Returns how much more a queue can use, with what it may borrow. Negative: it is above its quota."""
        share = self.queues[queue].shares.get(cell)
        if share is None:
            return 0.0
        used, kept = self._used.get((queue, cell), 0.0), share.kept
        if used < kept:
            return kept - used + min(self._shared[cell], share.nominal - kept + share.borrowing)
        return min(self._shared[cell], share.nominal - used + share.borrowing)

    def fits(self, queue: str, usage: Usage, borrow: bool = True) -> bool:
        """Whether a queue has room for a usage."""
        for cell, amount in usage:
            if amount > self.available(queue, cell) + _ROUNDING:
                return False
        return borrow or not self.borrows(queue, usage)

    def borrows(self, queue: str, more: Iterable[tuple[Cell, float]]) -> bool:
        """Whether a queue uses more than its own quota, with `more`, of the cells of `more`."""
        shares = self.queues[queue].shares
        return any(
            self._used.get((queue, cell), 0.0) + amount > (shares[cell].nominal if cell in shares else 0.0) + _ROUNDING
            for cell, amount in more
        )

    def use(self, queue: str, usage: Usage, sign: int = 1) -> None:
        """Adds a usage, or with the sign -1 takes it back."""
        shares = self.queues[queue].shares
        for cell, amount in usage:
            share = shares.get(cell)
            kept = share.kept if share else 0.0
            before = self._used.get((queue, cell), 0.0)
            after = self._used[queue, cell] = before + sign * amount
            self._shared[cell] = self._shared.get(cell, 0.0) - max(0.0, after - kept) + max(0.0, before - kept)


@dataclass
class Line:
    """Runs that wait and run in the cluster queues of a cohort, from one event to the next.

    Attributes:
        cohort: The quota.
        seconds: Returns for how long a run will run when it starts.
        now: The time.
        started: Every start, in order: the run, the time, its usage, and the runs that it preempted.
        ended: When runs ended.
    """

    cohort: Cohort
    seconds: Callable[[Run], float]
    now: float = 0.0
    started: list[tuple[Run, float, Usage, tuple[Run, ...]]] = field(default_factory=list)
    ended: dict[Run, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waiting: dict[str, list[Run]] = {name: [] for name in self.cohort.queues}
        self.running: dict[Run, Held] = {}
        self._ends: list[tuple[float, int, Held]] = []
        self._choices: dict[tuple[str, Hashable], list[Usage]] = {}

    def hold(self, held: Held, end: float) -> None:
        """Adds a run that already runs."""
        self.running[held.run] = held
        self.cohort.use(held.run.queue, held.usage)
        heapq.heappush(self._ends, (end, id(held), held))

    def add(self, run: Run) -> None:
        """Adds a run that waits."""
        insort(self.waiting[run.queue], run, key=_order)

    def go(self, arrivals: Iterable[tuple[float, Run]] = (), until: Run | None = None, horizon: float = inf) -> None:
        """Plays the events until a run starts, or until nothing more happens before the horizon."""
        coming = iter(arrivals)
        following = next(coming, None)
        self._admit()
        while until is None or until not in self.running:
            at_end, at_arrival = self._ends[0][0] if self._ends else inf, following[0] if following else inf
            if min(at_end, at_arrival) >= horizon:
                return
            self.now = min(at_end, at_arrival)
            if at_end <= at_arrival:
                held = heapq.heappop(self._ends)[2]
                if self.running.get(held.run) is held:  # else it was preempted meanwhile
                    self._release(held)
                    self.ended[held.run] = self.now
                    self._admit()
            elif following:
                self.add(following[1])
                self._admit(following[1])
                following = next(coming, None)

    def _release(self, held: Held) -> None:
        del self.running[held.run]
        self.cohort.use(held.run.queue, held.usage, -1)

    def _admit(self, newcomer: Run | None = None) -> None:
        """Admits what it can: those within their own quota first, then by priority and age.

        With a newcomer nothing has become free, so that only the newcomer may start.
        """
        position = {name: 0 for name, queue in self.cohort.queues.items() if not queue.stopped}
        self._failed: set[tuple[str, Hashable]] = set()
        if newcomer:
            index = self.waiting[newcomer.queue].index(newcomer)
            if newcomer.queue not in position or (index and self.cohort.queues[newcomer.queue].strict):
                return
            position = {newcomer.queue: index}
        while heads := [head for name in position if (head := self._head(name, position, newcomer))]:
            run, usage, victims = min(heads, key=lambda head: (self._borrows(head), *head[0].order))
            self._start(run, usage, victims, position)
            if newcomer:
                if victims:
                    self._admit()
                return

    def _borrows(self, head: Head) -> bool:
        return self.cohort.borrows(head[0].queue, head[1])

    def _head(self, name: str, position: dict[str, int], only: Run | None) -> Head | None:
        """The next waiting run of a queue that can start. Moves the position of the queue to it."""
        waiting, strict = self.waiting[name], self.cohort.queues[name].strict
        newest = self.cohort.queues[name].within == "LowerOrNewerEqualPriority"
        while position[name] < len(waiting):
            run = waiting[position[name]]
            # Within one pass there is less and less room, so what has failed fails again.
            key = name, run.created if newest else run.shape
            if key not in self._failed:
                for usage in self._choices_of(run):
                    if self.cohort.fits(name, usage):
                        return run, usage, ()
                for usage in self._choices_of(run):
                    if victims := self._victims(run, usage):
                        return run, usage, victims
                self._failed.add(key)
            position[name] = len(waiting) if strict or only else position[name] + 1
        return None

    def _choices_of(self, run: Run) -> list[Usage]:
        key = run.queue, run.shape
        if key not in self._choices:
            self._choices[key] = self.cohort.queues[run.queue].choices(run)
        return self._choices[key]

    def _start(self, run: Run, usage: Usage, victims: tuple[Held, ...], position: dict[str, int]) -> None:
        for victim in victims:
            self._release(victim)
            name = victim.run.queue
            self.add(victim.run)
            if name in position and self.waiting[name].index(victim.run) <= position[name]:
                position[name] += 1
        self.waiting[run.queue].remove(run)
        self.hold(Held(run, usage, self.now), self.now + self.seconds(run))
        self.started.append((run, self.now, usage, tuple(victim.run for victim in victims)))

    def _victims(self, run: Run, usage: Usage) -> tuple[Held, ...]:
        """The runs that Kueue evicts for a run: none if that is not allowed, or does not help."""
        queue = self.cohort.queues[run.queue]
        if queue.within == queue.reclaim == "Never":
            return ()
        cells, own, others = [(cell, 0.0) for cell, _ in usage], list[Held](), list[Held]()
        for held in self.running.values():
            other = held.run
            if other.queue == run.queue:
                if _may_evict(queue.within, run, other):
                    own.append(held)
            elif _may_evict(queue.reclaim, run, other) and self.cohort.borrows(other.queue, cells):
                others.append(held)
        # To take quota back from others, the queue must stay within its own.
        for candidates, borrow in (((others + own, False),) if others else ()) + (((own, True),) if own else ()):
            if victims := self._enough(run, usage, sorted(candidates, key=lambda each: _weakest(run, each)), borrow):
                return victims
        return ()

    def _enough(self, run: Run, usage: Usage, candidates: list[Held], borrow: bool) -> tuple[Held, ...]:
        """The first candidates that make room, without those that need not go."""
        cells, victims, cohort = [(cell, 0.0) for cell, _ in usage], list[Held](), self.cohort
        wanted = {cell for cell, _ in usage}
        for each in candidates:
            if wanted.isdisjoint(cell for cell, _ in each.usage):
                continue
            if each.run.queue == run.queue or cohort.borrows(each.run.queue, cells):
                cohort.use(each.run.queue, each.usage, -1)
                victims.append(each)
                if enough := cohort.fits(run.queue, usage, borrow):
                    break
        else:
            enough = False
        needed = []
        for each in reversed(victims):
            cohort.use(each.run.queue, each.usage)
            if enough and not cohort.fits(run.queue, usage, borrow):
                cohort.use(each.run.queue, each.usage, -1)
                needed.append(each)
        for each in needed:
            cohort.use(each.run.queue, each.usage)
        return tuple(needed)


def _order(run: Run) -> tuple[int, float]:
    return run.order


def _may_evict(policy: str, run: Run, other: Run) -> bool:
    if policy == "Never" or (policy == "LowerPriority" and other.priority >= run.priority):
        return False
    if other.priority < run.priority:
        return True
    newer = other.priority == run.priority and other.created > run.created
    return policy == "Any" or (policy == "LowerOrNewerEqualPriority" and newer)


def _weakest(run: Run, held: Held) -> tuple[bool, int, float]:
    """Kueue evicts runs of other queues first, then those of the lowest priority, then the newest."""
    return held.run.queue == run.queue, held.run.priority, -held.since
