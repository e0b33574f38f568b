"""Pods and Jobs that a controller wants and the API server refuses: those of a rollout, a run or a server. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gke_ai.forecast.timeline import Histories
from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.objects import Object, holds
from gke_ai.kube.pods import ended

EVENT = "Warning"
"""The kind under which a timeline has warnings."""
# https://github.com/kubernetes/kubernetes/blob/v1.36.1/pkg/controller/controller_utils.go
# https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/constants/constants.go
_REASONS = ("FailedCreate", "JobCreationFailed")
_OWN = ("Pod", "Job")
CREATORS = ("Deployment", "StatefulSet", "JobSet", "Job")
Present = Mapping[str, Iterable[Object]]


class Refused(NamedTuple):
    """A controller that lacks pods, with how many and why, and those that it has."""

    kind: str
    item: Object
    missing: int
    message: str
    living: Sequence[Object]
    before: bool


def creator(event: Object) -> WorkloadName | None:
    """Returns the controller that failed to create a pod or a Job; None if an event says something else."""
    if event.get("reason") not in _REASONS:
        return None
    kind, namespace, name = (str(event["involvedObject"].get(key)) for key in ("kind", "namespace", "name"))
    is_set = kind == "ReplicaSet"
    return WorkloadName.of(namespace, "Deployment" if is_set else kind, name.rpartition("-")[0] if is_set else name)


def refused(histories: Histories) -> Iterator[Refused]:
    """Yields the controllers that lack pods at the end because their creation failed."""
    seen = (entry for history in histories.get(EVENT, {}).values() for entry in history.versions)
    events = sorted(seen, key=lambda entry: entry[0])
    messages = {creator(event): str(event.get("message", "")) for _, event in events}
    early = {creator(event) for at, event in events if at <= 0}
    owned = children(
        {kind: [pod.last for pod in histories.get(kind, {}).values() if pod.gone is None] for kind in _OWN}
    )
    for kind in CREATORS:
        for history in histories.get(kind, {}).values():
            item, name = history.last, WorkloadName.of_object(kind, history.last)
            living = [child for child in owned[key_of(kind, item)] if not ended(child)]
            if history.gone is None and name in messages and (lacking := missing(kind, item, len(living))):
                before = history.before is not None and name in early
                yield Refused(kind, item, lacking, messages[name], living, before)


def children(present: Present) -> Mapping[str, list[Object]]:
    """Returns the pods and Jobs of each controller, by `key_of`."""
    owned: dict[str, list[Object]] = defaultdict(list)
    for kind in _OWN:
        for item in present.get(kind, ()):
            by_set = kind == "Pod" and owner_of(item).get("kind") == "ReplicaSet"
            owned[WorkloadName.of_pod(item) if by_set else str(owner_of(item).get("uid", ""))].append(item)
    return owned


def key_of(kind: str, item: Object) -> str:
    """What identifies a controller for its children: its uid. ReplicaSets stand between a Deployment and its pods."""
    return WorkloadName.of_object(kind, item) if kind == "Deployment" else str(item["metadata"].get("uid"))


def missing(kind: str, item: Object, living: int) -> int:
    """Returns how many pods of its newest template, or Jobs of a JobSet, a controller still has to create."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if item["metadata"].get("deletionTimestamp") or spec.get("suspend"):
        return 0
    if any(holds(item, name) for name in ("Complete", "Completed", "Failed")):
        return 0
    if kind == "Deployment":
        return max(0, replicas(item) - int(status.get("updatedReplicas") or 0))
    if kind == "JobSet":
        return max(0, sum(int(job.get("replicas", 1)) for job in spec.get("replicatedJobs") or []) - living)
    return max(0, (wanted_by_job(spec, status) if kind == "Job" else replicas(item)) - living)


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
