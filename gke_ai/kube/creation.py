"""Pods and Jobs that controllers lack: how many, and why the API server refuses them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.values import mapping

EVENT = "Warning"
"""The kind under which a timeline has warnings."""
# Of the events of controllers, the beginnings of their reasons:
# https://github.com/kubernetes/kubernetes/blob/v1.36.1/pkg/controller/controller_utils.go
# https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/constants/constants.go
# https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/constant.go
FAILED = ("FailedCreate", "JobCreationFailed", "FailedToCreate")
OWN = ("Pod", "Job")
CREATORS = ("Deployment", "StatefulSet", "JobSet", "Job")
Present = Mapping[str, Iterable[Object]]
# What the API server says of an object for which a ResourceQuota has too little left:
# https://github.com/kubernetes/kubernetes/blob/v1.36.1/staging/src/k8s.io/apiserver/pkg/admission/plugin/resourcequota/controller.go
_EXCEEDED = re.compile(r"exceeded quota: (\S+), requested: (\S+), used: (\S+), limited: (\S+)")
_AMOUNT = re.compile(r"([^\s,=]+)=([^\s,=]+)")


@dataclass(frozen=True)
class Exceeded:
    """A ResourceQuota that refuses an object, with what it says of each resource, as quantities."""

    quota: str
    requested: Mapping[str, str]
    used: Mapping[str, str]
    limited: Mapping[str, str]

    @classmethod
    def of(cls, message: str) -> Exceeded | None:
        """Returns what a refusal says; None if it has another cause."""
        match = _EXCEEDED.search(message)
        return cls(match[1], *(dict(_AMOUNT.findall(text)) for text in match.groups()[1:])) if match else None


def creator(event: Object) -> WorkloadName | None:
    """Returns the controller that failed to create a pod or a Job; None if an event says something else."""
    if not str(event.get("reason")).startswith(FAILED):
        return None
    kind, namespace, name = (str(event["involvedObject"].get(key)) for key in ("kind", "namespace", "name"))
    is_set = kind == "ReplicaSet"
    return WorkloadName.of(namespace, "Deployment" if is_set else kind, name.rpartition("-")[0] if is_set else name)


def children(present: Present) -> Mapping[WorkloadName | str, list[Object]]:
    """Returns the pods and Jobs of each controller by its uid, and those of a Deployment by its name."""
    owned: dict[WorkloadName | str, list[Object]] = defaultdict(list)
    for kind in OWN:
        for item in present.get(kind, ()):
            by_set = kind == "Pod" and owner_of(item).get("kind") == "ReplicaSet"
            owned[WorkloadName.of_pod(item) if by_set else str(owner_of(item).get("uid", ""))].append(item)
    return owned


def missing(kind: str, item: Object, living: int) -> int:
    """Returns how many pods of its newest template, or Jobs of a JobSet, a controller still has to create."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    if item["metadata"].get("deletionTimestamp") or spec.get("suspend") or has_ended(item):
        return 0
    if kind == "Deployment":
        return max(0, replicas(item) - int(status.get("updatedReplicas") or 0))
    if kind == "JobSet":
        return max(0, sum(int(job.get("replicas", 1)) for job in spec.get("replicatedJobs") or []) - living)
    return max(0, (wanted_by_job(spec, status) if kind == "Job" else replicas(item)) - living)


def has_ended(run: Object) -> bool:
    """Whether a Job or a JobSet has ended."""
    return any(holds(run, name) for name in ("Complete", "Completed", "Failed"))


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


def refusals(events: Iterable[Object]) -> Mapping[str, str]:
    """Returns the newest reason why a pod or a Job could not be created, by the uid of the controller that wants it."""
    failed = (event for event in events if str(event.get("reason")).startswith(FAILED))
    in_order = sorted(failed, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
    return {str(mapping(event, "involvedObject").get("uid")): str(event.get("message", "")) for event in in_order}


def refused(
    deployments: Iterable[Object], jobs: Iterable[Object], events: Iterable[Object]
) -> Iterator[tuple[Object, str]]:
    """Yields the Deployments and Jobs that lack pods because their creation fails, with the newest reason."""
    for deployment in deployments:
        failure = condition(deployment, "ReplicaFailure")
        if failure.get("status") == "True":
            yield deployment, str(failure.get("message", ""))
    messages = refusals(events)
    for job in filter(lacks_pods, jobs):
        if message := messages.get(str(job["metadata"].get("uid"))):
            yield job, message


def lacks_pods(job: Object) -> bool:
    """Whether a Job that may run has fewer pods than it wants at once."""
    return missing("Job", job, int(mapping(job, "status").get("active") or 0)) > 0
