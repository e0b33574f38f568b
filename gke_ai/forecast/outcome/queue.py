"""What happens to Kueue's Workloads: evictions, starts, waits and ends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeVar

from gke_ai.catalog.kueue.namespaces import is_system
from gke_ai.forecast.outcome.clock import Clock
from gke_ai.forecast.outcome.reasons import preemptor_of
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import End, Eviction, Start, Wait
from gke_ai.kube.names import NO_WORKLOAD, WORKLOAD, WorkloadName, owner_of
from gke_ai.kube.objects import Object, annotation, condition, holds
from gke_ai.kube.values import items, mapping

# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobs/statefulset/statefulset_reconciler.go
ON_HOLD = "OnHold"
# How a run has ended, by the reason of its Workload's condition Finished. Deleted and replaced runs have other reasons:
# https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/apis/kueue/v1beta2/workload_types.go
ENDS = {"Succeeded": "Succeeded", "Failed": "Failed", "FailedToStart": "Failed"}


@dataclass(frozen=True)
class Queue:
    """The Workloads of a timeline with their stable names, and its pods and Jobs, by uid.

    Replicas of a server have the same name. `restored` is that of the timeline.
    """

    workloads: Mapping[str, tuple[WorkloadName, History]]
    clock: Clock
    pods: Mapping[str, History]
    jobs: Mapping[str, History]
    restored: float = 0.0

    def evictions(self) -> tuple[Eviction, ...]:
        """Returns the evictions, those of replicas of a server as one."""
        return together(self._evictions())

    def starts(self) -> tuple[Start, ...]:
        """Returns the admissions, those of replicas of a server as one, and new runs that pass the queue.

        Kueue may admit a replica that is already being deleted, before it deletes the Workload. That is no start.
        """
        return together([*self._starts(), *self._passing()])

    def ends(self, interrupted: Collection[str] = ()) -> tuple[End, ...]:
        """Returns the workloads that end or are deleted.

        Without replicas that their server creates again: evicted ones, and those whose pods, by uid, are interrupted.
        """
        again = {uid for uid, (_, run) in self.workloads.items() if owner_of(run.last).get("uid") in interrupted}
        entries = [*self._ends(), *self._deleted()]
        return together((uid, entry) for uid, entry in entries if uid not in again)

    def replaced(self) -> set[WorkloadName]:
        """Returns the names of admitted runs whose Workload Kueue deletes, because they changed: ensureOneWorkload in

        https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/controller/jobframework/reconciler.go
        """
        return {
            name
            for name, history in self.workloads.values()
            if history.gone is not None and holds(history.last, "Admitted") and not holds(history.last, "Finished")
        }

    def _evictions(self) -> Iterator[tuple[str, Eviction]]:
        for uid, (name, history) in self.workloads.items():
            for at, version, earlier in _changes(history):
                if not holds(version, "Evicted") or (earlier and _same_condition("Evicted", version, earlier)):
                    continue
                reason, cause, preemptor = str(condition(version, "Evicted")["reason"]), "", NO_WORKLOAD
                if reason == "Preempted":
                    cause = str(condition(version, "Preempted").get("reason", ""))
                    preemptor = self._named(*preemptor_of(version))
                eviction = Eviction(name, queue_of(version), priority_of(version), reason, cause, preemptor)
                flavor, now = _last_flavor(history, at), self.clock.seconds(at)
                yield uid, replace(eviction, flavor=flavor, seconds=now, count=replicas_of(name, version))

    def _starts(self) -> Iterator[tuple[str, Start]]:
        for uid, (name, history) in self.workloads.items():
            queued, age = max(history.first, 0.0), max(_age(history) - round(self.restored), 0)
            pod = self.pods.get(str(owner_of(history.last).get("uid")))
            deleted = pod.deleted if pod and history.gone is not None else None
            for at, version, earlier in _changes(history):
                if deleted is not None and at >= deleted:
                    break
                if holds(version, "Admitted") and not (earlier and holds(earlier, "Admitted")):
                    now = self.clock.seconds(at)
                    waited = now - self.clock.seconds(queued) + (age if queued == 0 else 0)
                    start = Start(name, queue_of(version), priority_of(version), flavor_of(version), now, waited)
                    yield uid, replace(start, count=replicas_of(name, version))
                elif earlier and holds(earlier, "Admitted") and not holds(version, "Admitted"):
                    queued = at

    def _ends(self) -> Iterator[tuple[str, End]]:
        living = {name for name, history in self.workloads.values() if history.gone is None}
        for uid, (name, history) in self.workloads.items():
            if history.before is not None and holds(history.before, "Finished"):
                continue
            server = name.has_replicas
            finished = next((at for at, version in history.versions if at > 0 and holds(version, "Finished")), None)
            how = ENDS.get(str(condition(history.last, "Finished").get("reason")))
            if finished is not None and how and not server:
                yield uid, End(name, how, self.clock.seconds(finished))
                continue
            at = next((at for at in (finished, history.gone) if at is not None), None)
            # Kueue deletes evicted pods, and replaces the Workload of a changed Job by another one with the same owner.
            evicted = owner_of(history.last).get("kind") == "Pod" and holds(history.last, "Evicted")
            replaced = not server and name in living
            if at is not None and not evicted and not replaced:
                yield uid, End(name, "Deleted", self.clock.seconds(at), replicas_of(name, history.last))

    def _unqueued(self) -> Mapping[WorkloadName, list[History]]:
        """The pods of runs that Kueue does not know, by name."""
        queued = {name for name, _ in self.workloads.values()}
        runs: dict[WorkloadName, list[History]] = defaultdict(list)
        for history in self.pods.values():
            name, kind = WorkloadName.of_pod(history.last), owner_of(history.last).get("kind")
            known = name in queued or annotation(history.last, WORKLOAD) or name.has_replicas
            if not known and kind not in ("DaemonSet", "Node") and not is_system(history.last["metadata"]["namespace"]):
                runs[name].append(history)
        return runs

    def _passing(self) -> Iterator[tuple[str, Start]]:
        for name, members in self._unqueued().items():
            begun = [at for pod in members for at, version in pod.versions if _is_running(version)]
            if begun and min(pod.first for pod in members) > 0:
                yield str(name), Start(name, "", priority_of(members[0].last), "", self.clock.seconds(min(begun)))

    def _deleted(self) -> Iterator[tuple[str, End]]:
        for name, members in self._unqueued().items():
            jobs = [self.jobs.get(str(owner_of(pod.last).get("uid"))) for pod in members]
            ran = any(pod.before is not None and _is_running(pod.before) for pod in members)
            if ran and all(item.gone is not None for item in (*members, *filter(None, jobs))):
                yield str(name), End(name, "Deleted", self.clock.seconds(max(pod.gone or 0.0 for pod in members)))

    def _named(self, uid: str, owner_uid: str) -> WorkloadName:
        """The name of the Workload with a uid, or of an owner with a uid."""
        if uid in self.workloads:
            return self.workloads[uid][0]
        for name, history in self.workloads.values():
            if owner_of(history.last).get("uid") == owner_uid:
                return name
        return NO_WORKLOAD


def queue(histories: Histories, clock: Clock, restored: float = 0.0) -> Queue:
    """Returns the Workloads of a timeline."""
    pods = histories.get("Pod", {})
    latest = {uid: history.last for uid, history in pods.items()}
    workloads = histories.get("Workload", {}).items()
    named = {uid: (WorkloadName.of_workload(history.last, latest), history) for uid, history in workloads}
    ordered = dict(sorted(named.items(), key=lambda item: item[1][0]))
    return Queue(ordered, clock, pods, histories.get("Job", {}), restored)


def _is_running(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running"


def flavor_of(workload: Object) -> str:
    """Returns the flavors of an admitted workload, separated by commas."""
    pod_sets = items(workload, "status", "admission", "podSetAssignments")
    return ", ".join(sorted({str(flavor) for pod_set in pod_sets for flavor in mapping(pod_set, "flavors").values()}))


def replicas_of(name: WorkloadName, workload: Object) -> int:
    """Returns the replicas of a server that a Workload stands for: one of a Deployment, all of a StatefulSet."""
    pod_sets = workload["spec"].get("podSets") or [] if name.has_replicas else []
    return sum(int(pod_set.get("count", 1)) for pod_set in pod_sets) or 1


def _age(history: History) -> int:
    """The seconds for which a Workload had waited when the change began, by its first admission after it."""
    admitted = next((version for at, version in history.versions if at > 0 and holds(version, "Admitted")), None)
    if history.before is None or admitted is None:
        return 0
    at = next(at for at, version in history.versions if version is admitted)
    evicted = condition(history.before, "Evicted")
    since = evicted.get("lastTransitionTime") if evicted.get("status") == "True" else None
    since = since or history.before["metadata"].get("creationTimestamp")
    until = condition(admitted, "Admitted").get("lastTransitionTime")
    if not since or not until:
        return 0
    waited = datetime.fromisoformat(until) - datetime.fromisoformat(since)
    return max(round(waited.total_seconds() - at), 0)


def _changes(history: History) -> Iterator[tuple[float, Object, Object | None]]:
    """The versions after the change begins, each with the version before it."""
    earlier = history.before
    for at, version in history.versions:
        if at > 0:
            yield at, version, earlier
            earlier = version


def _same_condition(condition_type: str, one: Object, other: Object) -> bool:
    """Whether a condition has not become true again between two versions."""
    first, second = condition(one, condition_type), condition(other, condition_type)
    return all(first.get(key) == second.get(key) for key in ("status", "lastTransitionTime"))


def is_queued(workload: Object) -> bool:
    """Whether a Workload waits. One on hold belongs to a server without replicas."""
    on_hold = condition(workload, "QuotaReserved").get("reason") == ON_HOLD
    return not holds(workload, "Admitted") and not holds(workload, "Finished") and not on_hold


def _last_flavor(history: History, second: float) -> str:
    """The flavor that a workload had before it was evicted."""
    flavors = [flavor_of(version) for at, version in history.versions if at <= second]
    return next((flavor for flavor in reversed(flavors) if flavor), "")


def queue_of(workload: Object) -> str:
    """Returns the local queue of a Workload."""
    return str(workload["spec"].get("queueName", ""))


def priority_of(workload: Object) -> int:
    """Returns the priority of a Workload or a pod."""
    return int(workload["spec"].get("priority") or 0)


Entry = TypeVar("Entry", Eviction, Start, Wait, End)


def together(entries: Iterable[tuple[str, Entry]]) -> tuple[Entry, ...]:
    """Entries of Workloads, by uid, that differ only in time as one: with the earliest time and the longest wait.

    Counts the replicas of each Workload once, also if the same happens to it again.
    """
    result: dict[Entry, Entry] = {}
    counts: dict[Entry, dict[str, int]] = {}
    for uid, entry in entries:
        key = _timeless(entry)
        known = result.get(key)
        counts.setdefault(key, {})[uid] = entry.count
        result[key] = replace(entry if known is None else _joined(known, entry), count=sum(counts[key].values()))
    return tuple(sorted(result.values()))


def _timeless(entry: Entry) -> Entry:
    zero: dict[str, Any] = {name: 0 for name in ("seconds", "waited", "count") if hasattr(entry, name)}
    return replace(entry, **zero)


def _joined(one: Entry, other: Entry) -> Entry:
    times = (("seconds", min), ("waited", max))
    joined: dict[str, Any] = {
        name: choose(getattr(one, name), getattr(other, name)) for name, choose in times if hasattr(one, name)
    }
    return replace(one, **joined)
