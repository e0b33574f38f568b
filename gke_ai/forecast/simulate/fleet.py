"""The nodes of a simulated day: which exist, which runs hold them, and what happens to them. Pure.

A run gets nodes once all its pods have a place: on nodes that exist, then on new ones. It takes none while only some of
its pods have one, so two runs never wait for each other's nodes. Its work starts once the last of its nodes is Ready
and its containers have started. `step` moves to the next event of a node, which costs no real time.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from gke_ai.catalog.nodes.durations import NODE_IDLE
from gke_ai.forecast.simulate.availability import Capacity
from gke_ai.forecast.simulate.nodes import Amounts, NodeKind, Nodes, pod_of
from gke_ai.forecast.simulate.run import Run

RECLAIMED, EXPIRED = "reclaimed", "expired"


@dataclass(eq=False)
class Unit:
    """A node, or the nodes of a multi-host TPU slice. It exists from `created` until `gone`.

    Attributes:
        kind: Its pool, machine type and capacity mode.
        number: Its ordinal among the units of its kind.
        zone: Its zone.
        created: When Google creates it, and payment begins.
        ends: When a reclaim, or the end of its lifetime, deletes it.
        reason: Which of the two.
        pods: Pods on it, by the number of their run.
        free: What a node has left.
        idle_since: Since when it has no pods, if so.
        gone: When it was deleted.
        used, idle: Accelerator-seconds of the Ready unit with and without pods, until `counted`.
    """

    kind: NodeKind
    number: int
    zone: str
    created: float
    ends: float
    reason: str
    free: Amounts
    idle_since: float | None
    pods: dict[int, int] = field(default_factory=dict)
    gone: float | None = None
    used: float = 0.0
    idle: float = 0.0
    counted: float = 0.0

    @property
    def ready(self) -> float:
        """When it is Ready."""
        return self.created + self.kind.ready_seconds

    @property
    def starts(self) -> float:
        """From when containers run on it at once, as their image has been pulled."""
        return self.ready + self.kind.container_seconds

    @property
    def accelerators(self) -> int:
        """Accelerators of the unit."""
        return self.kind.hosts * self.kind.room.accelerators

    def holds(self, pod: Amounts) -> int:
        """How many more such pods fit."""
        if self.kind.is_queued:  # GKE binds it to the request that it was created for
            return 0
        if self.kind.shared:
            return self.free.holds(pod)
        return 0 if self.pods else self.kind.pods(pod)

    def add(self, run: int, pod: Amounts, pods: int, now: float) -> None:
        """Adds pods of a run, or removes them if negative."""
        self.count(now)
        if self.kind.shared:
            self.free = self.free.plus(pod, -pods)
        self.pods[run] = self.pods.get(run, 0) + pods
        if not self.pods[run]:
            del self.pods[run]
        self.idle_since = None if self.pods else max(now, self.ready)

    def count(self, until: float) -> None:
        """Counts what was used and idle since the last change."""
        seconds = max(0.0, until - max(self.counted, self.ready))
        taken = self.kind.room.accelerators - self.free.accelerators
        if self.pods and not self.kind.shared:
            taken = self.accelerators
        self.used += seconds * taken
        self.idle += seconds * (self.accelerators - taken)
        self.counted = max(self.counted, until)


@dataclass(eq=False)
class Group:
    """The units of a kind, existing and gone.

    Attributes:
        kind: Their pool, machine type and capacity mode.
        units: Those that exist or were asked for.
        gone: Those that were deleted.
        numbers: Ordinals of further units.
        refused: Nodes that were asked for without capacity.
    """

    kind: NodeKind
    units: list[Unit] = field(default_factory=list)
    gone: list[Unit] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=count)
    refused: int = 0

    @property
    def left(self) -> float:
        """How many more units the maximum allows."""
        return math.inf if self.kind.maximum is None else self.kind.maximum // self.kind.hosts - len(self.units)


@dataclass(eq=False)
class Request:
    """A run with quota, and the units that it holds.

    Attributes:
        run: The run.
        pod: What each pod requests.
        choices: Nodes that it can have, in order of preference.
        order: Its place among the runs that wait for nodes.
        units: Pods by unit.
        missing: Pods without a place.
        starts: When its work starts or started, if all pods have a place.
        attempt: How often it has asked for nodes.
        works: Whether its work has started.
    """

    run: Run
    pod: Amounts
    choices: tuple[NodeKind, ...]
    order: tuple[int, int]
    missing: int
    units: dict[Unit, int] = field(default_factory=dict)
    starts: float | None = None
    attempt: int = 0
    works: bool = False


class Fleet:
    """The nodes of cluster queues that share a clock."""

    def __init__(self, nodes: Nodes, capacity: Capacity, flavors: frozenset[str]) -> None:
        self._nodes = nodes
        self._capacity = capacity
        self._events: list[tuple[float, int, int, Unit | Request, float]] = []
        self._numbers = count()
        self._requests: dict[int, Request] = {}
        self.groups: dict[tuple[str, str, str], Group] = {}
        self.fixed = nodes.fixed(flavors)
        for kind in self.fixed:
            group = self._group(kind)
            # The minimum has been there for long: Ready, and with the images.
            for _ in range(kind.minimum // kind.hosts if kind.ends > 0 else 0):
                self._create(group, -kind.ready_seconds - kind.container_seconds, "minimum")

    @property
    def next(self) -> float:
        """When the next event is. Infinite: none."""
        return self._events[0][0] if self._events else math.inf

    @property
    def pending(self) -> bool:
        """Whether a run has quota but does not work yet, and can."""
        return any(not request.works for request in self._requests.values())

    def admit(self, run: Run, flavor: str, priority: int) -> None:
        """Takes note of a run with quota. `settle` gives it nodes."""
        choices, run.unplaced = self._nodes.choices(flavor, run.row)
        if choices:
            order = (-priority, run.number)
            self._requests[run.number] = Request(run, pod_of(run.row), choices, order, run.row.pods)

    def release(self, run: Run, now: float) -> None:
        """Takes the nodes of a run that has ended, or that Kueue has evicted."""
        if request := self._requests.pop(run.number, None):
            for unit in [*request.units]:
                self._leave(request, unit, now)

    def settle(self, now: float) -> list[Run]:
        """Gives nodes to runs that wait for them, highest priority first. Returns the runs whose work starts now."""
        started = []
        for request in sorted(self._requests.values(), key=lambda request: request.order):
            if not request.works and self._place(request, now) and request.starts is not None:
                if request.starts <= now:
                    request.works = True
                    started.append(request.run)
                else:
                    self._push(request.starts, request, request.starts)
        return started

    def step(self) -> tuple[list[Run], list[tuple[Run, str]]]:
        """Processes the events of the next moment. Returns the runs that start, and those that lose nodes, with why."""
        now, started, lost = self.next, list[Run](), list[tuple[Run, str]]()
        while self.next == now:
            _, _, _, item, value = heapq.heappop(self._events)
            if isinstance(item, Request):
                # An event of an earlier attempt has another value.
                if item.starts == value and not item.works and self._requests.get(item.run.number) is item:
                    item.works = True
                    started.append(item.run)
            elif item.gone is None:
                lost += self._expire(item, value, now)
        return started, lost

    def _expire(self, unit: Unit, value: float, now: float) -> list[tuple[Run, str]]:
        """Deletes a unit whose time has ended, or that has been idle for long. Returns the runs that lose it."""
        group = self.groups[unit.kind.key]
        is_idle = unit.idle_since == value and len(group.units) > unit.kind.minimum // unit.kind.hosts
        lost = [*self._lose(unit)] if value == unit.ends else []
        if value == unit.ends or is_idle:
            self._delete(group, unit, now)
        return lost

    def close(self, end: float) -> None:
        """Processes what happens to nodes until the end of the day, and counts until then."""
        while self.next <= end:
            self.step()
        for group in self.groups.values():
            for unit in group.units:
                unit.count(end)

    # ------------------------------------------------------------------------------------------------------- placement
    def _place(self, request: Request, now: float) -> bool:
        """Gives all missing pods a place, if there is one for all. Returns whether that changes when work starts."""
        if request.missing:
            plan = [*self._on_units(request, request.missing, now)]
            rest = request.missing - sum(pods for _, pods in plan)
            if rest > self._room_for_new(request, now):
                return False
            plan += self._on_new_units(request, rest, now)
            request.attempt += 1
        else:
            plan = self._earlier(request, now)
            if not plan:
                return False
        for unit, pods in plan:
            self._add(request, unit, pods, now)
        request.missing = 0
        request.starts = max(now, max(unit.starts for unit in request.units))
        return True

    def _on_units(
        self, request: Request, wanted: int, now: float, *, existing: bool = False
    ) -> Iterator[tuple[Unit, int]]:
        """Yields places for pods on units that exist or were asked for: Ready ones first, of these the fullest."""
        for kind in request.choices:
            units = [unit for unit in self._group(kind).units if unit.created <= now or not existing]
            for unit in sorted(units, key=lambda unit: (max(now, unit.starts), unit.free.accelerators, unit.free.cpu)):
                if not wanted:
                    return
                if pods := min(wanted, unit.holds(request.pod)):
                    yield unit, pods
                    wanted -= pods

    def _room_for_new(self, request: Request, now: float) -> float:
        """How many pods fit on new units, below the maximum of each choice that has not ended."""
        return sum(self._group(kind).left * kind.pods(request.pod) for kind in request.choices if now < kind.ends)

    def _on_new_units(self, request: Request, wanted: int, now: float) -> Iterator[tuple[Unit, int]]:
        """Asks for units until the pods have places, and yields these."""
        for index in count():
            if wanted <= 0:
                return
            unit = self._ask(request, index, now)
            pods = min(wanted, unit.kind.pods(request.pod))
            yield unit, pods
            wanted -= pods

    def _earlier(self, request: Request, now: float) -> list[tuple[Unit, int]]:
        """Moves pods from units that Google has not created yet to units that exist, if there is room for all."""
        waiting = [unit for unit in request.units if unit.created > now]
        moved = sum(request.units[unit] for unit in waiting)
        plan = [*self._on_units(request, moved, now, existing=True)] if waiting else []
        if not plan or sum(pods for _, pods in plan) < moved:
            return []
        for unit in waiting:
            self._leave(request, unit, now)
        return plan

    def _add(self, request: Request, unit: Unit, pods: int, now: float) -> None:
        request.units[unit] = request.units.get(unit, 0) + pods
        unit.add(request.run.number, request.pod, pods, now)

    def _leave(self, request: Request, unit: Unit, now: float) -> None:
        """Removes the pods of a run from a unit. The unit becomes idle; it is canceled if it was not created yet."""
        unit.add(request.run.number, request.pod, -request.units.pop(unit), now)
        if unit.pods:
            return
        if unit.created > now:
            self.groups[unit.kind.key].units.remove(unit)
            unit.gone = unit.created
        else:
            self._push_idle(unit)

    # ----------------------------------------------------------------------------------------------------------- units
    def _group(self, kind: NodeKind) -> Group:
        return self.groups.setdefault(kind.key, Group(kind))

    def _ask(self, request: Request, index: int, now: float) -> Unit:
        """Asks for a unit of the first choice with capacity, or else of the choice that has capacity first."""
        asked, offers = now, list[tuple[float, int, Group, str]]()
        for kind in request.choices:
            group = self._group(kind)
            if group.left < 1 or now >= kind.ends:
                continue
            name = f"{kind.machine}/{request.run.number}/{request.attempt}/{0 if kind.is_queued else index}"
            wait, (at, zone) = self._capacity.wait(kind.mode, name), self._offer(group, asked)
            patience = self._capacity.flex_start_seconds
            if at == asked and wait <= patience:
                return self._create(group, at + wait, zone)
            group.refused += kind.hosts if at > asked else 0
            offers.append((at + wait, len(offers), group, zone))
            asked += min(wait, patience)
        created, _, group, zone = min(offers, key=lambda offer: offer[:2])
        return self._create(group, created, zone)

    def _offer(self, group: Group, asked: float) -> tuple[float, str]:
        """When GKE gets a unit, and in which zone: it tries the zones in turn, and takes the first with capacity."""
        kind = group.kind
        first = len(group.units) % len(kind.zones)
        zones = [*kind.zones[first:], *kind.zones[:first]]
        times = [self._capacity.available(kind.machine, kind.mode, zone, asked) for zone in zones]
        return min(times), zones[times.index(min(times))]

    def _create(self, group: Group, created: float, zone: str) -> Unit:
        kind, number = group.kind, next(group.numbers)
        expires = min(created + (kind.max_seconds or math.inf), max(created, kind.ends))
        reclaim = math.inf
        if kind.is_spot:
            reclaim = self._capacity.reclaim(kind.machine, zone, f"{kind.pool}/{number}", created, kind.hosts)
        reason = RECLAIMED if reclaim < expires else EXPIRED
        unit = Unit(kind, number, zone, created, min(expires, reclaim), reason, kind.room, created + kind.ready_seconds)
        group.units.append(unit)
        if unit.ends < math.inf:
            self._push(unit.ends, unit, unit.ends)
        return unit

    def _lose(self, unit: Unit) -> Iterator[tuple[Run, str]]:
        """Takes a unit from the runs on it. Each asks for a new place for its pods."""
        for number in [*unit.pods]:
            request = self._requests[number]
            if not request.missing:  # else it waits already
                yield request.run, unit.reason
            request.missing += request.units.pop(unit)
            request.starts, request.works = None, False

    def _delete(self, group: Group, unit: Unit, now: float) -> None:
        unit.count(now)
        unit.gone = now
        group.units.remove(unit)
        group.gone.append(unit)
        # GKE keeps the minimum.
        if now < group.kind.ends and len(group.units) < group.kind.minimum // group.kind.hosts:
            at, zone = self._offer(group, now)
            group.refused += group.kind.hosts if at > now else 0
            self._push_idle(self._create(group, at, zone))

    def _push_idle(self, unit: Unit) -> None:
        assert unit.idle_since is not None
        self._push(unit.idle_since + NODE_IDLE.seconds, unit, unit.idle_since)

    def _push(self, at: float, item: Unit | Request, value: float) -> None:
        number = next(self._numbers)
        heapq.heappush(self._events, (at, 0 if isinstance(item, Unit) else 1, number, item, value))
