"""Pods that a controller wants and the API server refuses: by a quota, a policy or Pod Security."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.values import mapping

# Of the events of controllers, the beginnings of their reasons:
# https://github.com/kubernetes/kubernetes/blob/v1.36.1/pkg/controller/controller_utils.go
# https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/constants/constants.go
# https://github.com/ray-project/kuberay/blob/v1.6.2/ray-operator/controllers/ray/utils/constant.go
FAILED = ("FailedCreate", "JobCreationFailed", "FailedToCreate")


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
    spec, status = mapping(job, "spec"), mapping(job, "status")
    over = spec.get("suspend") or holds(job, "Complete") or holds(job, "Failed")
    left = spec.get("completions", spec.get("parallelism", 1)) - (status.get("succeeded") or 0)
    return not over and (status.get("active") or 0) < min(spec.get("parallelism", 1), left)
