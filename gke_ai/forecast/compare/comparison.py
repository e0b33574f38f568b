"""Reads what a change did from one later state of a cluster, and puts it beside a forecast. Pure.

A state shows less than a watch: conditions keep only their last transition, and objects that are gone leave nothing. So
only what the state can show is compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from gke_ai.forecast.outcome.outcome import outcome
from gke_ai.forecast.outcome.reasons import REFUSED
from gke_ai.forecast.outcome.timeline import Observation, Timeline
from gke_ai.forecast.result.forecast import Forecast
from gke_ai.kube.names import NO_WORKLOAD, WorkloadName
from gke_ai.kube.objects import Object, condition
from gke_ai.kube.values import items

EVICTED, STARTS, WAITS = "evicted", "starts", "waits"
AS_FORECAST, OTHERWISE, NOT_SEEN, NOT_FORECAST = "as forecast", "otherwise", "not seen", "not forecast"
# Conditions that were not true before their last transition.
_WATCHED = ("Admitted", "Evicted", "Preempted", "Finished")
_UNTIL_NOW = 1.0
ENDED = ("Succeeded", "Failed", "Deleted")


class Fact(NamedTuple):
    """What happens to a workload. `outcome` is evicted, starts, waits, Succeeded, Failed or Deleted."""

    workload: WorkloadName
    outcome: str
    preemptor: WorkloadName = NO_WORKLOAD
    flavor: str = ""

    def __str__(self) -> str:
        by = f" by {self.preemptor}" if self.preemptor else ""
        return f"{self.workload} {self.outcome}{by}{f' in {self.flavor}' if self.flavor else ''}"


@dataclass(frozen=True, order=True)
class Line:
    """The comparison for one workload or pool: what was forecast, and what happened.

    `verdict` is `as forecast`, `otherwise`, `not seen` (forecast, and nothing happened) or `not forecast`.
    """

    name: str
    verdict: str
    forecast: tuple[str, ...]
    happened: tuple[str, ...]


Facts = Mapping[Fact, int]


def facts(forecast: Forecast) -> Counter[Fact]:
    """Returns what happens to workloads that Kueue knows, with the number of replicas of servers.

    Without pods that the API server refuses: a state lacks the events that say so.
    """
    result: Counter[Fact] = Counter()
    for eviction in forecast.evictions:
        result[Fact(eviction.workload, EVICTED, eviction.preemptor, eviction.flavor)] += eviction.count
    for start in filter(lambda start: start.queue, forecast.starts):
        result[Fact(start.workload, STARTS, flavor=start.flavor)] += start.count
    for wait in filter(lambda wait: wait.reason != REFUSED, forecast.waits):
        result[Fact(wait.workload, WAITS)] += wait.count
    for end in forecast.ends:
        result[Fact(end.workload, end.how)] += end.count
    return result


def happened(objects: Mapping[str, Iterable[Object]], since: datetime, stack: str = "") -> Forecast:
    """Returns what happened since a time, from the objects of a cluster by kind."""
    observations = []
    for kind, listed in objects.items():
        for item in listed:
            if _moment(item["metadata"].get("creationTimestamp")) < since:
                observations.append(Observation(-1, kind, before(item, since) if kind == "Workload" else item))
            observations.append(Observation(_UNTIL_NOW, kind, item))
    return outcome(Timeline(tuple(observations), 0, _UNTIL_NOW, True), stack)


def before(workload: Object, since: datetime) -> Object:
    """Returns a Workload as it was at a time: conditions that became true later were not true then."""
    conditions: list[Object] = []
    evicted = condition(workload, "Evicted")
    was_evicted = evicted.get("status") == "True" and _moment(evicted.get("lastTransitionTime")) >= since
    for entry in items(workload, "status", "conditions"):
        later = entry["type"] in _WATCHED and _moment(entry.get("lastTransitionTime")) >= since
        if later and entry["status"] == "True":
            continue
        # Kueue evicts only what it has admitted.
        status = "True" if entry["type"] == "Admitted" and was_evicted else entry["status"]
        conditions.append({**entry, "status": status})
    return {**workload, "status": {**(workload.get("status") or {}), "conditions": conditions}}


def beside(forecast: Forecast, later: Forecast, workloads: Iterable[WorkloadName]) -> list[Line]:
    """Returns a line for each workload and pool of a forecast, and for each other workload that changed.

    `workloads` are the names of all workloads that exist later.
    """
    ours, theirs, present = facts(forecast), facts(later), set(workloads)
    names = sorted({fact.workload for fact in (*ours, *theirs)})
    # A snapshot has no messages, which name the preemptors.
    nameless = {entry.workload for entry in later.evictions if entry.reason == "Preempted" and not entry.preemptor}
    lines = [_line(name, ours, theirs, present, name not in nameless) for name in names]
    return [*lines, *_pools(forecast, later)]


def _line(name: WorkloadName, ours: Facts, theirs: Facts, present: set[WorkloadName], names_preemptors: bool) -> Line:
    expected = [fact for fact in ours if fact.workload == name]
    seen = [fact for fact in theirs if fact.workload == name]
    comparable = expected if names_preemptors else [fact._replace(preemptor=NO_WORKLOAD) for fact in expected]
    missing = [fact for fact in comparable if not any(_same(fact, other) for other in seen)]
    others = [fact for fact in seen if not any(_same(other, fact) for other in comparable)]
    if not expected:
        verdict = NOT_FORECAST
    elif any(_shows(fact, seen, present) for fact in missing) or any(fact.outcome not in ENDED for fact in others):
        verdict = OTHERWISE if seen or name in present else NOT_SEEN
    else:
        verdict = AS_FORECAST
    return Line(str(name), verdict, _texts(expected), _texts(seen))


def _shows(fact: Fact, seen: Iterable[Fact], present: set[WorkloadName]) -> bool:
    """Whether a later state would show a fact. What is gone leaves nothing, and an admission hides the eviction."""
    if fact.workload.has_replicas:  # evicted replicas are deleted, too
        return fact.outcome not in (EVICTED, *ENDED)
    if fact.outcome == EVICTED:
        return all(other.outcome != STARTS for other in seen)
    return fact.outcome not in ENDED or fact.workload in present


def _same(fact: Fact, other: Fact) -> bool:
    """Whether two facts agree. A later state no longer shows the flavor of an evicted workload."""
    return fact[:3] == other[:3] and (not other.flavor or fact.flavor == other.flavor)


def _pools(forecast: Forecast, later: Forecast) -> Iterator[Line]:
    now = {(pool.pool, pool.capacity, pool.machine): pool.after for pool in later.nodes}
    for pool in forecast.nodes:
        if pool.came or pool.went:
            count = now.get((pool.pool, pool.capacity, pool.machine), 0)
            verdict = AS_FORECAST if count == pool.after else OTHERWISE
            yield Line(f"pool {pool.pool} ({pool.capacity})", verdict, (f"{pool.after} nodes",), (f"{count} nodes",))


def _texts(stated: Iterable[Fact]) -> tuple[str, ...]:
    return tuple(str(fact).removeprefix(f"{fact.workload} ") for fact in sorted(stated))


def _moment(text: object) -> datetime:
    return datetime.fromisoformat(str(text)) if text else datetime.min.replace(tzinfo=UTC)
