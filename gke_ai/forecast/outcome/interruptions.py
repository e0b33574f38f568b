"""Which workloads are interrupted, why, how often, and for how long they have fewer ready pods than before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from itertools import accumulate
from math import inf

from gke_ai.catalog.kueue.namespaces import PUBLIC
from gke_ai.forecast.outcome.clock import Clock
from gke_ai.forecast.outcome.cluster import Owners, controllers, is_of_interest, replicas, workload_of
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import Interruption
from gke_ai.kube.names import REVISION_HASH, TEMPLATE_HASH, WorkloadName, owner_of
from gke_ai.kube.nodes import pool_of
from gke_ai.kube.objects import Object, annotation, condition, holds, label
from gke_ai.kube.values import items
from gke_ai.workspace.emulation import FORCED, UPGRADED

PREEMPTED = "preempted by the scheduler"
CHANGED, SUSPENDED = "its pods changed, so Kueue stops it and queues it again", "suspended"
DESPITE = ", despite its disruption budget"
# By how many seconds the watch of one kind may lag behind that of another.
LAG = 0.5
# The label that differs between pods of two templates, by the kind of their owner.
_TEMPLATES = {"ReplicaSet": TEMPLATE_HASH, "StatefulSet": REVISION_HASH}


def interruptions(
    histories: Histories, pods: Mapping[str, tuple[str, float]], workloads: Owners, clock: Clock, end: float
) -> tuple[Interruption, ...]:
    """Returns the interrupted pods, those of a workload as one, in order of their first end.

    `pods` are the cause and the second of each interrupted pod's end, by uid. `end` is the last second of the watch.
    """
    members = by_workload(histories)
    ends: dict[tuple[WorkloadName, str], list[float]] = defaultdict(list)
    for uid, (cause, at) in pods.items():
        ends[WorkloadName.of_pod(histories["Pod"][uid].last), cause].append(at)
    result = []
    for (name, cause), times in ends.items():
        first = min(times)
        workload = workloads.get(name)
        lacks = list(_lacks(members[name], first, _wanted(histories, name, workload), _ended(workload)))
        lasted = sum(clock.exactly(end if until is None else until) - clock.exactly(since) for since, until, _ in lacks)
        often = sum(any(since <= at and (until is None or at <= until) for at in times) for since, until, _ in lacks)
        missing = sum(count for _, until, count in lacks if until is None)
        entry = Interruption(name, cause, len(times), clock.seconds(first), max(often, 1), round(lasted), missing)
        result.append(entry)
    return tuple(sorted(result, key=lambda entry: (entry.seconds, entry)))


def by_workload(histories: Histories) -> Mapping[WorkloadName, list[History]]:
    """Returns the pods by the stable name of their workload."""
    members: dict[WorkloadName, list[History]] = defaultdict(list)
    for history in histories.get("Pod", {}).values():
        members[WorkloadName.of_pod(history.last)].append(history)
    return members


def _ended(workload: History | None) -> float:
    """The second at which a workload ends or is deleted."""
    if workload is None:
        return inf
    finished = (at for at, version in workload.versions if holds(version, "Finished"))
    return next(finished, inf if workload.gone is None else workload.gone)


def _lacks(
    members: list[History], first: float, wanted: int | None, ended: float
) -> Iterator[tuple[float, float | None, int]]:
    """Yields the times from `first` on at which fewer pods are ready than before it, or than are wanted at the end.

    Each with how many pods are missing in the end, and no end if they still are. A workload lacks none once it `ended`.
    """
    changes = sorted(change for member in members for change in _changes(member))
    before = sum(change for at, change in changes if at < first)
    needed = before if wanted is None else min(before, wanted)
    later = [(at, change) for at, change in changes if first <= at < ended]
    counts = list(accumulate((change for _, change in later), initial=before))[1:]
    since = None
    for (at, _), ready in zip(later, counts, strict=True):
        if ready < needed and since is None:
            since = at
        elif ready >= needed and since is not None:
            yield since, at, 0
            since = None
    if since is not None and ended < inf:
        yield since, ended, 0
    elif since is not None:
        yield since, None, needed - counts[-1]


def _changes(pod: History) -> Iterator[tuple[float, int]]:
    """Yields the seconds at which a pod becomes ready (1) or stops being so (-1)."""
    was_ready = False
    for at, version in pod.versions:
        if (is_ready := serves(version)) != was_ready:
            yield at, 1 if is_ready else -1
        was_ready = is_ready
    if was_ready and pod.gone is not None:
        yield pod.gone, -1


def serves(pod: Object) -> bool:
    """Whether a pod is ready, or has done its work."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    phase = (pod.get("status") or {}).get("phase")
    return phase == "Succeeded" or (holds(pod, "Ready") and phase != "Failed")


def _wanted(histories: Histories, name: WorkloadName, workload: History | None) -> int | None:
    """The pods that a server or a run in a queue asks for at the end; None for another run."""
    if (history := controllers(histories).get(name)) is not None:
        return replicas(history.after)
    pod_sets = items(workload.last, "spec", "podSets") if workload else []
    return sum(int(pods.get("count", 1)) for pods in pod_sets) or None


# --------------------------------------------------------------------------------------------------------------- causes
def interrupted(
    histories: Histories, workloads: Owners, replaced: Collection[WorkloadName]
) -> dict[str, tuple[str, float]]:
    """Returns the pods of workloads that end although Kueue does not evict them: cause and second by uid.

    `workloads` are the Workloads by the uid of their pod, and by the stable name of their Job or JobSet. `replaced` are
    the names of runs whose Workload Kueue replaces.
    """
    result = {}
    members, servers = by_workload(histories), controllers(histories)
    for uid, history in histories.get("Pod", {}).items():
        at, pod = end_of(history), history.last
        job = histories.get("Job", {}).get(str(owner_of(pod).get("uid", "")))
        counts = is_of_interest(pod, workloads) or (job and pod["metadata"]["namespace"] not in PUBLIC)
        if at is None or not pod["spec"].get("nodeName") or not counts:
            continue
        owner = workload_of(pod, workloads)
        if owner is not None and _leaves_queue(owner, at):
            continue
        name = WorkloadName.of_pod(pod)
        siblings = members[name]
        if is_suspended(job, at) and history.before and (owner is None or name in replaced):
            result[uid] = (SUSPENDED if owner is None else CHANGED), at
        elif _goes_on(job or servers.get(name), at, siblings) and (cause := _cause(pod, at, histories, siblings)):
            result[uid] = cause, at
    return result


def end_of(history: History) -> float | None:
    """The second after the change began at which a pod that has run is deleted or fails."""
    if not any((version.get("status") or {}).get("phase") == "Running" for _, version in history.versions):
        return None
    for at, version in history.versions:
        failed = (version.get("status") or {}).get("phase") == "Failed"
        if version["metadata"].get("deletionTimestamp") or failed:
            return at if at > 0 else None
        if (version.get("status") or {}).get("phase") == "Succeeded":
            return None
    return history.gone


def _leaves_queue(workload: History, second: float) -> bool:
    """Whether Kueue evicts the workload at about this time, or it has ended.

    The Workload of a single pod, such as a server's replica, ends because its pod does.
    """
    later = [version for at, version in workload.versions if at <= second + 1]
    ends = ("Evicted",) if owner_of(workload.last).get("kind") == "Pod" else ("Evicted", "Finished")
    return bool(later) and any(holds(later[-1], name) for name in ends)


def is_suspended(job: History | None, second: float) -> bool:
    """Whether a Job is suspended at about this time, maybe only for a moment, and is not being deleted."""
    if job is None or (now := job.at(second + LAG)) is None or now["metadata"].get("deletionTimestamp"):
        return False
    versions = [job.at(second - LAG), *(version for at, version in job.versions if abs(at - second) <= LAG)]
    return any(version["spec"].get("suspend") for version in versions if version)


def _goes_on(owner: History | None, second: float, siblings: list[History]) -> bool:
    """Whether the Job or the server of a pod outlives it, and creates it again if it is itself deleted later."""
    if owner is None:
        return True
    version = owner.at(second)
    if version is None or version["metadata"].get("deletionTimestamp") or version["spec"].get("suspend"):
        return False
    # A JobSet that restarts replaces its Jobs.
    return owner.gone is None or any(other.first > second for other in siblings)


def _cause(pod: Object, second: float, histories: Histories, siblings: list[History]) -> str:
    """Why a pod ends, by the state at that time: a drained node, a rollout, or a deletion.

    Empty if its owner wants fewer pods then.
    """
    if condition(pod, "DisruptionTarget").get("reason") == "PreemptionByScheduler":
        return PREEMPTED
    if drained := _drained(pod, second, histories):
        return drained
    kind = str(owner_of(pod).get("kind", ""))
    if template := _TEMPLATES.get(kind):
        return "rollout" if _is_replaced(pod, template, siblings) else ""
    return "deleted" if kind == "Job" else ""


def _drained(pod: Object, second: float, histories: Histories) -> str:
    """The pool whose node was drained when the pod ended; empty if its node stayed."""
    name = pod["spec"]["nodeName"]
    nodes = (node for node in histories.get("Node", {}).values() if node.last["metadata"]["name"] == name)
    node = max((node for node in nodes if node.first <= second), key=lambda node: node.first, default=None)
    if node is None:
        return ""
    version = node.at(second + LAG) or node.last
    if not version["spec"].get("unschedulable"):
        return ""
    return f"node pool {pool_of(version)}{DESPITE if annotation(version, UPGRADED) == FORCED else ''}"


def _is_replaced(pod: Object, template: str, siblings: list[History]) -> bool:
    """Whether its server creates pods with another template meanwhile, one of which exists at the end."""
    return any(
        other.first > 0 and other.gone is None and label(other.last, template) != label(pod, template)
        for other in siblings
    )
