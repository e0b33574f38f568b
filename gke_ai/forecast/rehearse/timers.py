"""Timers of Kubernetes and Kueue that a rehearsal leaves out, as remarks on its result. Pure.

A timer cannot run in real time beside Google's durations, which run 60 times as fast: whatever happens while both run
would come in another order than on Google Cloud. So the emulator skips them (emulator/cluster/stages.yaml), and the
result says what is not in its times.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from gke_ai.catalog.kueue.configuration import NO_LIMIT, limits_by_default
from gke_ai.forecast.outcome.interruptions import is_suspended
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.formats.sentences import join_names
from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.objects import holds
from gke_ai.kube.workloads import time_limit

# DefaultJobPodFailureBackOff and MaxJobPodFailureBackOff, and how failed pods count:
# https://github.com/kubernetes/kubernetes/blob/v1.36.1/pkg/controller/job/backoff_utils.go
FIRST_SECONDS, MOST_SECONDS = 10, 600
# Pods that fail within this time are counted together before the controller waits.
TOGETHER = 1.0
# The default of Kubernetes: https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination
GRACE_SECONDS = 30
MAX_NAMED = 3


def uncounted(histories: Histories) -> list[str]:
    """Returns a sentence for each timer that would run on Google Cloud and is not in the times."""
    return [*_grace(histories), *_backoffs(histories), *_limits(histories)]


def pods_ready(kueue: Mapping[str, Any] | None, release: str) -> list[str]:
    """Returns what a reader must know of the timeout of a release of Kueue, by the configuration of its manager."""
    by_default = limits_by_default(release)
    settings = kueue or {}
    wait = settings.get("waitForPodsReady", {} if by_default else None)
    is_off = kueue is None or wait is None or (settings.get("featureGates") or {}).get(NO_LIMIT)
    if is_off or not wait.get("enable", True):
        return []
    timeout = wait.get("timeout", "30m" if by_default else "5m")
    return [
        f"Kueue's waitForPodsReady ({timeout}) runs at its own speed here. On Google Cloud, Kueue evicts a run whose "
        "pods need longer to be ready, and queues it again."
    ]


def _grace(histories: Histories) -> Iterator[str]:
    """The longest grace period of the pods that end."""
    periods = [
        int(history.last["spec"].get("terminationGracePeriodSeconds", GRACE_SECONDS))
        for history in histories.get("Pod", {}).values()
        if history.last["spec"].get("nodeName") and _ended(history) is not None
    ]
    if longest := max(periods, default=0):
        yield f"Pods end at once here. On Google Cloud they may take their grace periods, up to {longest} s."


def _limits(histories: Histories) -> Iterator[str]:
    """How long each admitted run may run, by Kueue's limit or that of its Job, its JobSet or its pods."""
    names = {"Workload": lambda item: WorkloadName.of_workload(item, {}), "Pod": WorkloadName.of_pod}
    limits: dict[WorkloadName, int] = {}
    for kind in ("Workload", "JobSet", "Job", "Pod"):
        for history in histories.get(kind, {}).values():
            item, limit = history.after, time_limit(history.last)
            if item is None or limit is None or item["spec"].get("suspend"):
                continue
            name = names[kind](item) if kind in names else WorkloadName.of_run(kind, item)
            if kind != "Workload" or holds(item, "Admitted"):
                limits[name] = min(limit, limits.get(name, limit))
    named = [f"{name} {limit} s" for name, limit in sorted(limits.items(), key=lambda item: item[1])]
    if named:
        others = [f"{len(named) - MAX_NAMED} others later"] if len(named) > MAX_NAMED else []
        yield (
            "No run reaches its time limit here. On Google Cloud, Kueue or Kubernetes ends one that still runs so long "
            f"after it started: {join_names([*named[:MAX_NAMED], *others])}."
        )


def _ended(history: History) -> float | None:
    """The second after the change began at which a pod fails or is deleted."""
    for at, version in history.versions:
        if version["metadata"].get("deletionTimestamp") or (version.get("status") or {}).get("phase") == "Failed":
            return at if at > 0 else None
    return history.gone


def _backoffs(histories: Histories) -> Iterator[str]:
    """How long the Job controller waits before it creates failed pods again, by Job."""
    waits: dict[WorkloadName, int] = defaultdict(int)
    pods: dict[str, list[History]] = defaultdict(list)
    for history in histories.get("Pod", {}).values():
        if owner_of(history.last).get("kind") == "Job":
            pods[str(owner_of(history.last).get("uid", ""))].append(history)
    for uid, members in pods.items():
        job = histories.get("Job", {}).get(uid)
        ends = sorted(at for pod in members if (at := _ended(pod)) is not None and not is_suspended(job, at))
        for number, at in enumerate(ends, 1):
            last = number == len(ends) or ends[number] - at > TOGETHER
            if last and any(history.first >= at for history in members):
                waits[WorkloadName.of_pod(members[0].last)] += min(FIRST_SECONDS * 2 ** (number - 1), MOST_SECONDS)
    if waits:
        named = [f"{seconds} s for {name}" for name, seconds in sorted(waits.items(), key=lambda item: -item[1])]
        others = [f"less for {len(named) - MAX_NAMED} others"] if len(named) > MAX_NAMED else []
        yield (
            "Jobs create failed pods again at once here. On Google Cloud the Job controller waits 10 s after the first "
            f"failed pod, and twice as long after each further one: {join_names([*named[:MAX_NAMED], *others])}."
        )
