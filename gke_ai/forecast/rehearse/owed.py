"""What controllers still owe: objects for which one will act, although nothing has changed for a while. Pure.

It counts the pods that exist against what a spec wants. A status is late: a Job says `active: 4` while two of its pods
have failed and wait for the backoff of the Job controller.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from gke_ai.kube.creation import CREATORS, Present, children, missing, replicas, wanted_by_job
from gke_ai.kube.names import REVISION_HASH, WorkloadName
from gke_ai.kube.objects import Object, annotation, holds, key_of, label
from gke_ai.kube.pods import ended
from gke_ai.workspace.emulation import LEAVING, PASSES_TIME, READY_AFTER, UPGRADED

_JOB_CONTROLLER = "kubernetes.io/job-controller"
_RESTART = "jobset.sigs.k8s.io/restart-attempt"
# https://github.com/kubernetes-sigs/jobset/blob/v0.12.0/pkg/webhooks/pod_webhook.go
_EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def owed(present: Present, now: datetime, refused: Collection[WorkloadName] = ()) -> list[str]:
    """Returns the objects for which a controller will still act, as kubectl names them.

    `refused` are the controllers whose newest attempt to create a pod failed after anything changed: another fails too.
    """
    owners = children(present)
    return sorted(
        f"{kind} {'/'.join(filter(None, key_of(item)))}"
        for kind, items in present.items()
        for item in items
        if not (refused and kind in CREATORS and WorkloadName.of_object(kind, item) in refused)
        and _is_owed(kind, item, owners, now)
    )


def _is_owed(kind: str, item: Object, owners: Mapping[WorkloadName | str, list[Object]], now: datetime) -> bool:
    metadata = item["metadata"]
    if kind == "Pod":  # the kubelet, or the pod garbage collector, ends it
        return bool(metadata.get("deletionTimestamp"))
    if metadata.get("deletionTimestamp"):
        return False
    if kind == "Node":
        starts = bool(annotation(item, READY_AFTER)) and not holds(item, "Ready")
        return starts or bool(annotation(item, LEAVING)) or annotation(item, UPGRADED) in PASSES_TIME
    if kind == "Workload":  # Kueue queues it again at this time
        again = ((item.get("status") or {}).get("requeueState") or {}).get("requeueAt")
        return bool(again) and not holds(item, "Finished") and datetime.fromisoformat(str(again)) > now
    own = owners[str(metadata.get("uid"))]
    if kind == "Job":
        return _job(item, own)
    if kind == "JobSet":
        return _job_set(item, own)
    if kind == "StatefulSet":
        return not _is_seen(item) or _stateful_set(item, own)
    if kind == "Deployment":
        living = _living(owners[WorkloadName.of_object(kind, item)])
        rolls = all(holds(pod, "Ready") for pod in living) and not (item.get("spec") or {}).get("paused")
        return not _is_seen(item) or len(living) < replicas(item) or (rolls and missing(kind, item, 0) > 0)
    return False


def _is_seen(item: Object) -> bool:
    """Whether the controller has seen the newest spec."""
    seen = int((item.get("status") or {}).get("observedGeneration") or 0)
    return seen >= int(item["metadata"].get("generation") or 0)


def _living(pods: Iterable[Object]) -> list[Object]:
    """The pods that have not ended. Kubernetes replaces the others."""
    return [pod for pod in pods if not ended(pod)]


def _job(job: Object, pods: list[Object]) -> bool:
    """Whether the Job controller will create or delete pods, for example after its backoff of 10 s to 10 minutes."""
    spec = job.get("spec") or {}
    if holds(job, "Complete") or holds(job, "Failed") or spec.get("managedBy", _JOB_CONTROLLER) != _JOB_CONTROLLER:
        return False
    living = _living(pods)
    if annotation(job, _EXCLUSIVE) and any(not pod["spec"].get("nodeName") for pod in living):
        return False  # JobSet refuses the other pods of a slice until the first one has a node, maybe forever
    return len(living) != (0 if spec.get("suspend") else wanted_by_job(spec, job.get("status") or {}))


def _job_set(job_set: Object, jobs: list[Object]) -> bool:
    """Whether JobSet will create or delete Jobs, as after a restart of all."""
    spec, status = job_set.get("spec") or {}, job_set.get("status") or {}
    if holds(job_set, "Completed") or holds(job_set, "Failed"):
        return False
    attempt = str(status.get("restarts") or 0)
    if any(job["metadata"].get("deletionTimestamp") or label(job, _RESTART) not in ("", attempt) for job in jobs):
        return True
    replicated = spec.get("replicatedJobs") or []
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    if in_order or any(entry.get("dependsOn") for entry in replicated):
        return False  # a Job may wait for others that never start
    return not spec.get("suspend") and len(jobs) < sum(int(entry.get("replicas", 1)) for entry in replicated)


def _stateful_set(item: Object, pods: list[Object]) -> bool:
    """Whether its controller will create, delete or replace pods. By default it waits until all others are Ready."""
    spec, status = item.get("spec") or {}, item.get("status") or {}
    living, wanted = _living(pods), replicas(item)
    if len(living) != len(pods) or len(living) > wanted:
        return True
    is_ready = all(holds(pod, "Ready") for pod in living)
    if spec.get("podManagementPolicy") != "Parallel" and not is_ready:
        return False
    strategy = spec.get("updateStrategy") or {}
    newest = str(status.get("updateRevision") or "")
    old = [pod for pod in living if newest and label(pod, REVISION_HASH) not in ("", newest)]
    partition = int((strategy.get("rollingUpdate") or {}).get("partition") or 0)
    return len(living) < wanted or (strategy.get("type") != "OnDelete" and is_ready and len(old) > partition)
