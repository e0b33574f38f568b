"""Pods and Jobs that a controller wants and the API server refuses: those of a rollout, a run or a server. Pure.

The events of controllers say it: https://github.com/kubernetes/kubernetes/blob/v1.36.1/pkg/controller/controller_utils.go
and https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/constants/constants.go
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import NamedTuple

from gke_ai.forecast.timeline import Histories, History
from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.objects import Object, holds
from gke_ai.kube.pods import ended, requests

EVENT = "Warning"
"""The kind under which a timeline has warnings."""
_REASONS = ("FailedCreate", "JobCreationFailed")
CREATORS = ("Deployment", "StatefulSet", "JobSet", "Job")


class Refused(NamedTuple):
    """A controller that lacks pods, with how many and the newest message. `own` is what its living pods request."""

    kind: str
    item: Object
    missing: int
    message: str
    own: dict[str, Fraction]
    before: bool


def creator(event: Object) -> WorkloadName | None:
    """Returns the controller that failed to create a pod or a Job; None if an event says something else."""
    involved = event.get("involvedObject") or {}
    if event.get("reason") not in _REASONS:
        return None
    kind, name = str(involved.get("kind")), str(involved.get("name"))
    if kind == "ReplicaSet":
        kind, name = "Deployment", name.rpartition("-")[0]
    return WorkloadName.of(str(involved.get("namespace")), kind, name)


def refused(histories: Histories) -> Iterator[Refused]:
    """Yields the controllers that lack pods at the end because their creation failed."""
    messages: dict[WorkloadName, str] = {}
    early: set[WorkloadName] = set()
    events = (entry for history in histories.get(EVENT, {}).values() for entry in history.versions)
    for at, event in sorted(events, key=lambda entry: entry[0]):
        if name := creator(event):
            messages[name] = str(event.get("message", ""))
            early |= {name} if at <= 0 else set()
    children: dict[str, list[History]] = defaultdict(list)
    for kind in ("Pod", "Job"):
        for history in histories.get(kind, {}).values():
            children[str(owner_of(history.last).get("uid", ""))].append(history)
            if kind == "Pod" and owner_of(history.last).get("kind") == "ReplicaSet":
                children[WorkloadName.of_pod(history.last)].append(history)

    def living(kind: str, item: Object, version: Callable[[History], Object | None]) -> list[Object]:
        key = WorkloadName.of_object(kind, item) if kind == "Deployment" else str(item["metadata"]["uid"])
        return [child for child in map(version, children[key]) if child and not ended(child)]

    for kind in CREATORS:
        for history in histories.get(kind, {}).values():
            item, earlier = history.after, history.before
            if item is None or (message := messages.get(WorkloadName.of_object(kind, item))) is None:
                continue
            now = living(kind, item, lambda child: child.after)
            own: Counter[str] = Counter({"pods": len(now)})
            for pod in now if kind != "JobSet" else ():
                own.update(requests(pod["spec"]))
            if lacking := missing(kind, item, now):
                lacked = earlier and missing(kind, earlier, living(kind, earlier, lambda child: child.before))
                early_too = bool(lacked) and WorkloadName.of_object(kind, item) in early
                yield Refused(kind, item, lacking, message, {key: Fraction(own[key]) for key in own}, early_too)


def missing(kind: str, item: Object, children: Iterable[Object]) -> int:
    """Returns how many pods of its newest template, or Jobs of a JobSet, a controller still has to create."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if item["metadata"].get("deletionTimestamp") or spec.get("suspend"):
        return 0
    if any(holds(item, name) for name in ("Complete", "Completed", "Failed")):
        return 0
    if kind == "Deployment":
        return max(0, replicas(item) - int(status.get("updatedReplicas") or 0))
    wanted = wanted_by_job(spec, status) if kind == "Job" else replicas(item)
    if kind == "JobSet":
        wanted = sum(int(entry.get("replicas", 1)) for entry in spec.get("replicatedJobs") or [])
    return max(0, wanted - len(list(children)))


def replicas(item: Object) -> int:
    """Returns how many pods a server asks for."""
    return int((item.get("spec") or {}).get("replicas", 1))


def wanted_by_job(spec: Object, status: Object) -> int:
    """Returns how many pods of a Job should run."""
    parallelism, completions = int(spec.get("parallelism", 1)), spec.get("completions")
    succeeded = int(status.get("succeeded") or 0)
    if completions is None:  # a work queue: no more pods once one has succeeded
        return 0 if succeeded else parallelism
    return max(0, min(parallelism, int(completions) - succeeded - _indexes(str(status.get("failedIndexes") or ""))))


def _indexes(text: str) -> int:
    """How many indexes a text such as `1,3-5` names."""
    spans = (span.partition("-") for span in filter(None, text.split(",")))
    return sum(int(last or first) - int(first) + 1 for first, _, last in spans)
