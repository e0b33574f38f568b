"""When a run that waits starts: replays of the queue from now on by the real Kueue, with drawn durations and arrivals.

Each replay has copies of the queues of its own, so all of them are replayed at once on one control plane.
"""

from __future__ import annotations

import copy
import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from math import inf
from typing import Any

from gke_ai.catalog.versions import KUEUE_API
from gke_ai.forecast.rehearse.graft import complete
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.simulate.kueue import started
from gke_ai.forecast.simulate.nodes import Nodes
from gke_ai.forecast.simulate.objects import Object, Queues, new_object, numbered, second
from gke_ai.forecast.simulate.replay import LONGEST_WAIT, Decider, Replay
from gke_ai.forecast.simulate.run import Run
from gke_ai.forecast.simulate.trace import Submission
from gke_ai.forecast.snapshot.format import Snapshot
from gke_ai.forecast.when.answer import roots, sharing
from gke_ai.forecast.when.durations import Arrivals, Durations, Record, records
from gke_ai.kube.objects import holds, key_of
from gke_ai.kube.queues import flavors_of
from gke_ai.kube.values import mapping
from gke_ai.settings import ResolvedStack, Settings

# The interval is from the first to the last of these starts. Of 20 equally likely starts and one more, that one is
# within the others in 19 of 21 cases, if the durations are known.
REPLAYS = 20
MOST_ARRIVALS = 400
# A replay ends here, in seconds: further events cost minutes and say little more than that it takes long.
HORIZON = 6 * 3600.0


@dataclass(frozen=True)
class Future:
    """A run of a replay: its Workload, for how long it has run, and which replay it belongs to."""

    workload: Mapping[str, Any]
    replay: int
    elapsed: float = 0.0


@dataclass(frozen=True)
class Copies(Queues):
    """Copies of cluster queues of a snapshot, and of those that share quota with them, for each replay.

    Admission checks and topologies are left out, because no nodes are simulated.
    """

    snapshot: Snapshot
    asked: tuple[str, ...]
    replays: int

    @cached_property
    def shared(self) -> dict[str, list[str]]:
        """The cluster queues that share quota with each queue that is asked about, and itself."""
        of_queues, _ = roots(self.snapshot.of("ClusterQueue"), self.snapshot.of("Cohort"))
        return {queue: sharing(queue, of_queues) for queue in self.asked}

    @cached_property
    def members(self) -> dict[str, Object]:
        """These cluster queues by name."""
        names = {name for shared in self.shared.values() for name in shared}
        named = {item["metadata"]["name"]: item for item in self.snapshot.of("ClusterQueue")}
        return {name: item for name, item in named.items() if name in names}

    @cached_property
    def local(self) -> dict[str, Object]:
        """The local queues of these, by NAMESPACE/NAME."""
        queues = self.snapshot.of("LocalQueue")
        return {"/".join(key_of(item)): item for item in queues if item["spec"].get("clusterQueue") in self.members}

    @cached_property
    def by_local(self) -> dict[str, str]:
        return {
            f"{namespace}/{_copied(number, name)}": _copied(number, item["spec"]["clusterQueue"])
            for number in range(self.replays)
            for item in self.local.values()
            for namespace, name in [key_of(item)]
        }

    @cached_property
    def priorities(self) -> dict[str, int]:
        """The priorities of the runs, by their text."""
        return {}

    @cached_property
    def trees(self) -> dict[str, str]:
        of_queues, _ = roots(self.members.values(), self.snapshot.of("Cohort"))
        return {
            _copied(number, name): f"cohort/{_copied(number, root)}" if root else f"queue/{_copied(number, name)}"
            for number in range(self.replays)
            for name, root in of_queues.items()
        }

    def groups(self, nodes: Nodes | None = None) -> list[frozenset[str]]:
        """The cluster queues of each replay that share quota."""
        assert nodes is None
        shared = {frozenset(names) for names in self.shared.values()}
        return [
            frozenset(_copied(number, name) for name in names) for number in range(self.replays) for names in shared
        ]

    def is_strict(self, name: str) -> bool:
        return self._spec(name).get("queueingStrategy") == "StrictFIFO"

    def policies(self, name: str) -> tuple[str, ...]:
        preemption = self._spec(name).get("preemption") or {}
        return tuple(preemption.get(key, "Never") for key in ("withinClusterQueue", "reclaimWithinCohort"))

    def first_flavor(self, name: str) -> str:
        return flavors_of({"spec": self._spec(name)})[0][0]

    def _spec(self, name: str) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.members[name.partition("-")[2]]["spec"]
        return spec

    @property
    def pools(self) -> list[Object]:
        return []

    @property
    def manager(self) -> Mapping[str, Any]:
        """What the cluster's Kueue is configured to, where it decides the order of admissions."""
        stated = self.snapshot.kueue or {}
        kept = {key: stated[key] for key in stated if key in ("admissionFairSharing", "fairSharing", "featureGates")}
        if "fairSharing" in kept:
            # The former configuration has a key for it. In the one that is written, the section is enough.
            fair = dict(kept.pop("fairSharing"))
            kept |= {"fairSharing": fair} if fair.pop("enable", True) else {}
        return kept

    def objects(self) -> Iterator[tuple[str, Object]]:
        kueue = f"/apis/{KUEUE_API}"
        for namespace in sorted({name.partition("/")[0] for name in self.local}):
            yield "/api/v1/namespaces", new_object("Namespace", namespace, version="v1")
        for flavor in self.snapshot.of("ResourceFlavor"):
            spec = {key: value for key, value in (flavor.get("spec") or {}).items() if key != "topologyName"}
            yield f"{kueue}/resourceflavors", new_object("ResourceFlavor", flavor["metadata"]["name"], spec)
        for number in range(self.replays):
            for cohort in self.snapshot.of("Cohort"):
                name = _copied(number, cohort["metadata"]["name"])
                yield f"{kueue}/cohorts", new_object("Cohort", name, _renamed(number, cohort.get("spec") or {}))
            for name, item in self.members.items():
                spec = {**_renamed(number, item["spec"]), "namespaceSelector": {}}
                yield f"{kueue}/clusterqueues", new_object("ClusterQueue", _copied(number, name), spec)
            for item in self.local.values():
                yield f"{kueue}/namespaces/{item['metadata']['namespace']}/localqueues", _local_queue(number, item)


def _copied(number: int, name: str) -> str:
    return f"r{number}-{name}"


def _local_queue(number: int, item: Object) -> Object:
    """Returns a copy of a local queue, with its weight and what it consumed in the past."""
    (namespace, name), spec = key_of(item), item["spec"]
    weight = {"fairSharing": spec["fairSharing"]} if spec.get("fairSharing") else {}
    copied = new_object(
        "LocalQueue",
        _copied(number, name),
        {"clusterQueue": _copied(number, spec["clusterQueue"]), **weight},
        namespace,
    )
    if past := mapping(item, "status", "fairSharing", "admissionFairSharingStatus"):
        identity = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{namespace}/{_copied(number, name)}"))
        copied["metadata"] |= {"uid": identity, "generation": 1, "creationTimestamp": second(0)}
        copied["status"] = {"fairSharing": {"weightedShare": 0, "admissionFairSharingStatus": past}}
    return copied


def _renamed(number: int, spec: Object) -> Object:
    left_out = ("admissionChecksStrategy", "stopPolicy")
    names = {key: _copied(number, spec[key]) for key in ("cohortName", "parentName") if spec.get(key)}
    return {**{key: value for key, value in spec.items() if key not in left_out}, **names}


class Futures:
    """The runs of all replays: those that run, those that wait, each run that is asked about, and drawn arrivals.

    Args:
        snapshot: The state from which each replay begins.
        asked: Workloads that are asked about, each with its cluster queue. No two queues share quota.
        seed: Seed of the drawn durations and arrivals.
        replays: Number of replays.
    """

    def __init__(
        self, snapshot: Snapshot, asked: Sequence[tuple[str, Mapping[str, Any]]], seed: int = 1, replays: int = REPLAYS
    ) -> None:
        stack = ResolvedStack(Settings.model_validate({}))
        self.queues = Copies(stack, snapshot, tuple(queue for queue, _ in asked), replays)
        self._now = snapshot.taken_at.timestamp()
        runs = records(snapshot.of("Workload"), [*snapshot.of("Job"), *snapshot.of("JobSet")])
        known = [record for record in runs if record.source in self.queues.local]
        rows: list[tuple[Submission, Future]] = []
        for number, (queue, own) in enumerate(asked):
            of_queue = [record for record in known if self._queue(record) in self.queues.shared[queue]]
            for replay in range(replays):
                chance = random.Random(f"{seed} {number} {replay}")
                rows += self._rows(replay, of_queue, Record(own, self._now), chance)
        rows.sort(key=lambda pair: pair[0].time)  # stable, so those of the snapshot keep their order
        self.trace = tuple(row for row, _ in rows)
        self._futures = [future for _, future in rows]
        workloads = [future.workload for future in self._futures]
        self._targets = [[n for n, workload in enumerate(workloads) if workload is own] for _, own in asked]
        self.queues.priorities.update((row.priority, int(row.priority)) for row in self.trace)

    def _rows(
        self, replay: int, known: Sequence[Record], own: Record, chance: random.Random
    ) -> Iterator[tuple[Submission, Future]]:
        """Yields the runs of a replay of the queues that share quota with a run's."""
        durations = {source: Durations(source, known, self._now) for source in {own.source, *(r.source for r in known)}}

        def row(time: float, record: Record, elapsed: float = 0.0) -> Submission:
            namespace, _, local = record.source.partition("/")
            priority = str(record.workload["spec"].get("priority") or 0)
            seconds = LONGEST_WAIT if record.is_endless else durations[record.source].draw(chance, elapsed)
            seconds = max(elapsed, min(seconds, record.limit))
            return Submission(time, f"{namespace}/{_copied(replay, local)}", priority, 1, 0, 0.0, 0.0, seconds)

        running = [record for record in known if record.started is not None and record.ended is None]
        for record in sorted(running, key=lambda record: record.started or 0.0):
            elapsed = record.seconds(self._now)
            yield row(0.0, record, elapsed), Future(record.workload, replay, elapsed)
        waiting = [record for record in known if record.started is None and not self.is_stopped(record)]
        for record in (*sorted(waiting, key=lambda record: record.created), own):
            yield row(0.0, record), Future(record.workload, replay)
        for time, record in islice(Arrivals(known, self._now).draw(chance), MOST_ARRIVALS):
            yield row(time, record), Future({**record.workload, "status": {}}, replay)

    def replay(self, kueue: Decider) -> list[list[float]]:
        """Returns the seconds until each run starts in each replay, in order. Infinite beyond the horizon."""
        until = {number for numbers in self._targets for number in numbers}
        replay = Replay(kueue, self.queues, self.trace, make=self.make, until=until, horizon=HORIZON)
        for run, future in zip(replay.runs, self._futures, strict=True):
            run.kept = future.elapsed
        replay.run()
        return [sorted(_start(replay.runs[number]) for number in numbers) for numbers in self._targets]

    @property
    def held(self) -> list[Object]:
        """The Workloads that have their quota when the replays begin."""
        made = [self.make(Run(number, row, "")) for number, row in enumerate(self.trace)]
        return [item for item in made if "status" in item]

    def make(self, run: Run) -> Object:
        """Returns the Workload of a run. One that ran in the snapshot has its quota."""
        future = self._futures[run.number]
        source, metadata = future.workload, future.workload["metadata"]
        kept = ("podSets", "priority", "priorityClassRef")
        spec = {key: value for key, value in source["spec"].items() if key in kept}
        spec["queueName"] = _copied(future.replay, source["spec"]["queueName"])
        item = numbered(run.number, metadata["namespace"], spec)
        admission = (source.get("status") or {}).get("admission")
        if admission and holds(source, "QuotaReserved"):
            item["status"] = self._status(future.replay, admission, run.number)
        return complete("Workload", copy.deepcopy(item))

    @staticmethod
    def _status(number: int, admission: Mapping[str, Any], at: int) -> Object:
        sets = [
            {key: value for key, value in item.items() if key not in ("topologyAssignment", "delayedTopologyRequest")}
            for item in admission["podSetAssignments"]
        ]
        conditions = [
            {"type": name, "status": "True", "reason": name, "message": "", "lastTransitionTime": second(at)}
            for name in ("QuotaReserved", "Admitted")
        ]
        held = {"clusterQueue": _copied(number, admission["clusterQueue"]), "podSetAssignments": sets}
        return {"admission": held, "conditions": conditions}

    def _queue(self, record: Record) -> str:
        return str(self.queues.local[record.source]["spec"]["clusterQueue"])

    def is_stopped(self, record: Record) -> bool:
        """Whether the local queue or the cluster queue of a run is stopped."""
        local = self.queues.local[record.source]
        both = (local, self.queues.members[self._queue(record)])
        return any(item["spec"].get("stopPolicy", "None") != "None" for item in both)


def _start(run: Run) -> float:
    return run.admitted[0][0] if run.admitted and run.admitted[0][0] <= HORIZON else inf


def starts(emulator: Scratch, snapshot: Snapshot, queue: str, own: Mapping[str, Any], seed: int = 1) -> list[float]:
    """Returns the seconds until a run starts in each replay, in order: infinite if late, none of a stopped queue."""
    futures = Futures(snapshot, [(queue, own)], seed)
    if futures.is_stopped(Record(own, 0.0)):
        return []
    with started(emulator, futures.queues, futures.held) as kueue:
        (waits,) = futures.replay(kueue)
        return waits
