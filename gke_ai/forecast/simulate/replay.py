"""Replays a trace on a simulated clock: submits and ends Workloads, and waits until Kueue has decided on each event.

Cluster queues that share neither quota nor nodes have clocks of their own, so they wait for Kueue at the same time. A
clock moves to its next event only once Kueue is at rest: its own counts agree with the Workloads, and it is about to
try none. Events of nodes don't concern Kueue, so they cost no real time.

After an end or an eviction, Kueue tries waiting workloads again: its release a second later (`requeueBatchPeriod`), the
build for simulations a millisecond later. Kueue's log says when that was. The figures are in
docs/decisions/0016-simulated-time.md.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import count
from typing import Protocol

from gke_ai.forecast.simulate import objects
from gke_ai.forecast.simulate.availability import Capacity
from gke_ai.forecast.simulate.fleet import RECLAIMED, Fleet, Group
from gke_ai.forecast.simulate.kueue import Counts, Log
from gke_ai.forecast.simulate.nodes import Nodes
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.trace import Trace
from gke_ai.kube.objects import holds
from gke_ai.terminal import Stop

# For how long to wait until Kueue tries waiting workloads again, if it does not log that: it moved none.
REQUEUE_SECONDS = 3.0
# For how long to wait until Kueue's log says that it has tried them, before its counts are read.
LOG_SECONDS = 1.0
# Kueue tries the head of a StrictFIFO queue again and again. One attempt may be older than the event.
STRICT_ATTEMPTS = 2
# For how long to wait for the admission that an eviction has overtaken, if it is never seen: a watch was interrupted.
OVERTAKEN_SECONDS = 1.0
POLL_SECONDS, MOST_POLL_SECONDS = 0.005, 0.05
STUCK_SECONDS = 120.0
ENDS, STARTS = 0, 1  # at the same time, ends come first
# A run that loses its nodes so often in a row without reaching a checkpoint never would. It counts as failed.
MOST_FRUITLESS = 20
# If no run works, and none starts to within so long, none ever will.
LONGEST_WAIT = 30 * 86_400.0


class Decider(Protocol):
    """What a replay needs of Kueue."""

    def write(self, puts: Iterable[objects.Object], deletes: Iterable[objects.Object]) -> None:
        """Writes and deletes Workloads, but for those that changed since they were read."""

    def log(self) -> Log:
        """Returns what Kueue's log says by now."""

    def counts(self) -> Counts:
        """Returns Kueue's own counts. They cost far more time than its log."""

    def sample(self, second: float, interval: float) -> None:
        """Sets Kueue's clock of past usage, and waits until it has counted the usage until then."""

    def changes(self, seconds: float) -> Iterator[objects.Object]:
        """Yields the Workloads that changed since the last call."""


class Clock:
    """The clock of cluster queues that share quota or nodes: their events, and whether Kueue decided on the last."""

    def __init__(
        self,
        names: frozenset[str],
        runs: list[Run],
        queues: objects.Queues,
        stamps: Iterator[int],
        fleet: Fleet | None,
        until: Collection[int] = (),
        horizon: float = math.inf,
    ) -> None:
        self.names = names
        self.fleet = fleet
        self.now = 0.0
        self._worked = 0.0
        self.ended = 0
        self.late = 0
        self.waiting: dict[str, set[int]] = {name: set() for name in names}
        self.admitted: dict[str, set[int]] = {name: set() for name in names}
        self._queues = queues
        self._strict = frozenset(filter(queues.is_strict, names))
        self._preempts = queues.can_preempt(names, {queues.priorities[run.row.priority] for run in runs})
        self._stamps = stamps
        self._events: list[tuple[float, int, int, int]] = []
        self._runs = {run.number: run for run in runs}
        self._until = [run for run in runs if run.number in until]
        self._horizon = horizon
        for run in self._runs.values():
            heapq.heappush(self._events, (run.row.time, STARTS, run.number, 0))
        self._new: dict[int, str] = {}
        self._evicted: set[int] = set()
        self._overtaken: dict[int, tuple[float, objects.Object]] = {}
        self._freed: set[str] = set()
        self._agreed: float | None = None
        self._attempts = 0
        self._before: Log | None = Log()
        self._tried = False
        self._expected: set[int] = set()
        self._advanced = time.monotonic()

    @property
    def done(self) -> bool:
        """Whether nothing is to come for any run, or all runs until which it goes have started, or waited too long."""
        if self._until and (self.now > self._horizon or all(run.spans for run in self._until)):
            return True
        fleet = self.fleet
        return not self._events and not (fleet and fleet.pending and fleet.next < self._worked + LONGEST_WAIT)

    # ----------------------------------------------------------------------------------------------------------- Kueue
    def may_rest(self, log: Log, now: float) -> bool:
        """Whether it is worth to read Kueue's counts."""
        return self._has_tried(log) or now - self._advanced > LOG_SECONDS

    def _has_tried(self, log: Log) -> bool:
        """Whether Kueue has tried again all who wait where quota is free. It is never idle with a StrictFIFO queue."""
        before = self._before or log
        moved = all(log.moved.get(tree, 0) > before.moved.get(tree, 0) for tree in self._to_move)
        return moved and (log.idle or self._strict_waits)

    @property
    def _strict_waits(self) -> bool:
        return any(self.waiting[name] for name in self._strict)

    @property
    def _to_move(self) -> set[str]:
        return {self._queues.trees[name] for name in self.names - self._strict if self.waiting[name]} & self._freed

    def at_rest(self, counts: Counts, log: Log, now: float) -> bool:
        """Whether Kueue has decided on everything that it knows."""
        if differing := [name for name in sorted(self.names) if not self._agrees(name, counts)]:
            if now - self._advanced > STUCK_SECONDS:
                raise Stop(
                    f"Kueue does not come to rest at second {self.now:.0f} of the trace: "
                    f"{'; '.join(self._difference(name, counts) for name in differing)}. "
                    "Run the simulation again, on a machine that is less busy."
                )
            return False
        if self._agreed is None:
            self._agreed, self._attempts, self._tried = now, counts.attempts, False
        if not self._strict_waits and not self._to_move:
            return True
        tried = self._has_tried(log)
        if self._strict_waits:
            # The counts of one moment are not read at once, so the next ones decide.
            attempted = counts.attempts >= self._attempts + STRICT_ATTEMPTS
            tried, self._tried = self._tried, tried and attempted
        return tried or now - self._agreed >= REQUEUE_SECONDS

    def pause(self, now: float) -> float:
        """Seconds until it is worth to look at Kueue again: a quarter of the time that has passed."""
        return min(max(POLL_SECONDS, (now - self._advanced) / 4), MOST_POLL_SECONDS)

    def _agrees(self, name: str, counts: Counts) -> bool:
        active, inadmissible = counts.active.get(name, 0), counts.inadmissible.get(name, 0)
        if name in self._strict:
            active, inadmissible = 0, active + inadmissible
        expected = (0, len(self.waiting[name]), len(self.admitted[name]))
        return (active, inadmissible, counts.reserving.get(name, 0)) == expected

    def _difference(self, name: str, counts: Counts) -> str:
        return (
            f"it counts {counts.active.get(name, 0)} to try, {counts.inadmissible.get(name, 0)} waiting and "
            f"{counts.reserving.get(name, 0)} admitted in {name}, where {len(self.waiting[name])} wait and "
            f"{len(self.admitted[name])} are admitted by its decisions"
        )

    def see(self, item: objects.Object, run: Run) -> objects.Object | None:
        """Takes note of a change of a Workload. Returns the Workload as it is to be written, if at all.

        Kueue's scheduler writes in parallel: it can evict a Workload that it is still admitting. The admission then
        overwrites the eviction, and Kueue evicts it again, unless its quota was released in between.
        """
        if run.ended or run.failed:
            return None
        admitted = "admission" in item.get("status", {})
        preempted = admitted and holds(item, "Evicted")
        if preempted and not run.holds_quota and run.number not in self._evicted:
            self._overtaken[run.number] = (time.monotonic(), item)
            return None
        self._overtaken.pop(run.number, None)
        (self._evicted.add if preempted else self._evicted.discard)(run.number)
        if preempted or not admitted:
            if run.holds_quota:
                self._evict(run)
            return objects.evicted(item) if preempted else None
        if not holds(item, "Admitted") or run.holds_quota:
            return None
        held = run.number not in self.waiting[run.cluster_queue]  # from the start, with a time of its own
        self.late += not held and run.number not in self._expected
        flavor = objects.flavor_of(item) or self._queues.first_flavor(run.cluster_queue)
        run.admit(self.now, objects.pods_by_node(item), flavor)
        self.waiting[run.cluster_queue].discard(run.number)
        self.admitted[run.cluster_queue].add(run.number)
        self._new[run.number] = flavor
        return objects.stamped(item, next(self._stamps)) if self._preempts and not held else None

    def _evict(self, run: Run) -> None:
        run.evict(self.now)
        self._new.pop(run.number, None)
        self._release(run)
        self.waiting[run.cluster_queue].add(run.number)
        self._free(run.cluster_queue)

    def overtaken(self, now: float) -> Iterator[objects.Object]:
        """Yields evicted Workloads as they are to be written whose admission should have been seen by now."""
        for number, (since, item) in [*self._overtaken.items()]:
            if now - since >= OVERTAKEN_SECONDS:
                del self._overtaken[number]
                self._evicted.add(number)
                yield objects.evicted(item)

    # ---------------------------------------------------------------------------------------------------------- events
    def settle(self) -> None:
        """Gives nodes to the runs that Kueue has admitted since the last event. Kueue's order has no effect on it."""
        new, self._new = sorted(self._new.items()), {}
        for number, flavor in new:
            run = self._runs[number]
            if self.fleet:
                self.fleet.admit(run, flavor, self._queues.priorities[run.row.priority])
            else:
                self._start(run)
        self._place()

    def remember(self, log: Log) -> None:
        """Remembers Kueue's log of before the next write, if that is to free quota."""
        if self._before is None:
            self._before = log

    def advance(
        self, puts: list[objects.Object], deletes: list[objects.Object], make: Callable[[Run], objects.Object]
    ) -> None:
        """Moves to the next event on which Kueue decides, and adds what to write for all until then."""
        self._freed, self._agreed, self._expected = set(), None, set()
        self._advanced = time.monotonic()
        while not self.done:
            if self.fleet and self.fleet.next < (self._events[0][0] if self._events else math.inf):
                self.now = self.fleet.next
                removed = self._step(self.fleet)
            else:
                self.now, kind, number, span = heapq.heappop(self._events)
                run = self._runs[number]
                if kind == STARTS and run.admitted:  # from the start
                    continue
                if kind == STARTS:
                    self._worked = self.now
                    puts.append(make(run))
                    self.waiting[run.cluster_queue].add(number)
                    self._expected = {number}
                    return
                if not run.runs or len(run.spans) != span:
                    continue  # it was stopped meanwhile
                run.end(self.now)
                self._worked = self.now
                self.ended += 1
                removed = [run]
            for run in removed:
                self._release(run)
                deletes.append(make(run))
                self._free(run.cluster_queue)
            if self._expected:
                return
            self._place()

    def _step(self, fleet: Fleet) -> list[Run]:
        """Processes an event of a node. Returns the runs that are given up."""
        started, lost = fleet.step()
        for run in started:
            self._start(run)
        for run, reason in lost:
            run.lose_nodes(self.now, reclaimed=reason == RECLAIMED)
        given_up = [run for run, _ in lost if run.fruitless >= MOST_FRUITLESS]
        for run in given_up:
            run.give_up(self.now)
        return given_up

    def _start(self, run: Run) -> None:
        ends = run.start(self.now)
        heapq.heappush(self._events, (ends, ENDS, run.number, len(run.spans)))

    def _place(self) -> None:
        for run in self.fleet.settle(self.now) if self.fleet else ():
            self._start(run)

    def _release(self, run: Run) -> None:
        """Takes the nodes and the quota of a run."""
        self.admitted[run.cluster_queue].discard(run.number)
        if self.fleet:
            self.fleet.release(run, self.now)

    def _free(self, name: str) -> None:
        """Kueue will try every waiting workload again that shares quota with a cluster queue."""
        tree = self._queues.trees[name]
        sharing = [other for other in self.names if self._queues.trees[other] == tree]
        if waiting := {number for other in sharing for number in self.waiting[other]}:
            self._freed.add(tree)
            self._expected |= waiting
            self._agreed = self._before = None


class Replay:
    """A replay of a trace. `run` returns what became of each submission."""

    def __init__(
        self,
        kueue: Decider,
        queues: objects.Queues,
        trace: Trace,
        capacity: Capacity | None = None,
        make: Callable[[Run], objects.Object] | None = None,
        until: Collection[int] = (),
        horizon: float = math.inf,
    ) -> None:
        """Without capacity, nodes are not simulated: work starts once Kueue admits a run.

        `make` returns the Workload of a run, by default one of the submission's pods. A clock with a run of `until`
        goes until that run has started, or until the horizon, in seconds.
        """
        nodes = Nodes(queues.stack, capacity.begin) if capacity else None
        self._kueue = kueue
        self._queues = queues
        self._make = make or self._object
        stamps = count(len(trace) + 1)
        self.runs = [Run(number, row, queues.by_local[row.queue]) for number, row in enumerate(trace)]
        self.clocks = [
            Clock(
                names,
                [run for run in self.runs if run.cluster_queue in names],
                queues,
                stamps,
                Fleet(nodes, capacity, queues.flavors(names)) if nodes and capacity else None,
                until,
                horizon,
            )
            for names in queues.groups(nodes)
        ]
        self._by_name = {objects.name_of(run.number): run for run in self.runs}
        self._clock_of = {name: clock for clock in self.clocks for name in clock.names}

    def run(self, progress: Callable[[float, int], None] = lambda _now, _ended: None) -> list[Run]:
        """Replays the trace. `progress` gets the time of the clock that is furthest behind, and the number of ends."""
        active = [clock for clock in self.clocks if not clock.done]
        while active:
            now = time.monotonic()
            pause = min(clock.pause(now) for clock in active)
            puts = [written for item in self._kueue.changes(pause) if (written := self._see(item))]
            puts += [written for clock in active for written in clock.overtaken(now)]
            deletes: list[objects.Object] = []
            log = self._kueue.log()  # before the counts, which then show at least as much
            if not puts and (ready := [clock for clock in active if clock.may_rest(log, now)]):
                counts, now = self._kueue.counts(), time.monotonic()
                for clock in [clock for clock in ready if clock.at_rest(counts, log, now)]:
                    clock.settle()
                    if clock.done:
                        active.remove(clock)
                    else:
                        clock.advance(puts, deletes, self._make)
                        if self._queues.usage:
                            self._kueue.sample(clock.now, self._queues.usage.usage_sampling_seconds)
            for clock in active:
                clock.remember(log)
            if puts or deletes:
                self._kueue.write(puts, deletes)
            progress(min((clock.now for clock in active), default=0.0), sum(clock.ended for clock in self.clocks))
        return self.runs

    def groups(self, end: float) -> list[Group]:
        """The nodes until the end of the day: those of pools in their order, then those that GKE creates itself."""
        fleets = [clock.fleet for clock in self.clocks if clock.fleet]
        for fleet in fleets:
            fleet.close(end)
        groups = {key: group for fleet in fleets for key, group in fleet.groups.items()}
        fixed = [kind.key for fleet in fleets for kind in fleet.fixed]
        return [groups[key] for key in (*fixed, *sorted(groups.keys() - {*fixed}))]

    @property
    def late(self) -> int:
        """Decisions that came after the clock had moved on. Their time is that of the next event."""
        return sum(clock.late for clock in self.clocks)

    def _object(self, run: Run) -> objects.Object:
        accelerator = self._queues.accelerator(run.cluster_queue)
        return objects.workload(run.number, run.row, self._queues.priorities[run.row.priority], accelerator)

    def _see(self, item: objects.Object) -> objects.Object | None:
        run = self._by_name.get(str(item["metadata"]["name"]))
        return self._clock_of[run.cluster_queue].see(item, run) if run else None
