"""What runs can lose at most: the work of pods that end before their run does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

from gke_ai.forecast.outcome.clock import Clock
from gke_ai.forecast.outcome.cluster import Machine, machine_of
from gke_ai.forecast.outcome.interruptions import end_of
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import Stake
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.objects import condition, holds
from gke_ai.kube.pods import accelerator_count
from gke_ai.kube.starts import seconds_between


def stakes(histories: Histories, stopped: Collection[WorkloadName], clock: Clock, began: datetime) -> tuple[Stake, ...]:
    """Returns the accelerator-hours that pods of stopped runs worked since they became ready, before the change.

    A run keeps what its checkpoints hold, which a cluster does not show. `began` is the time of second 0.
    """
    nodes = {history.last["metadata"]["name"]: history.last for history in histories.get("Node", {}).values()}
    worked: dict[tuple[WorkloadName, Machine], list[tuple[int, float]]] = defaultdict(list)
    for history in histories.get("Pod", {}).values():
        name, count = WorkloadName.of_pod(history.last), accelerator_count(history.last["spec"])
        node = nodes.get(str(history.last["spec"].get("nodeName")))
        seconds = _worked(history, clock, began)
        if name in stopped and not name.has_replicas and count and node and seconds is not None:
            worked[name, machine_of(node)].append((count, seconds))
    return tuple(
        Stake(
            name,
            *machine,
            sum(count for count, _ in pods),
            round(max(seconds for _, seconds in pods)),
            round(sum(count * seconds for count, seconds in pods) / 3600, 3),
        )
        for (name, machine), pods in sorted(worked.items())
    )


def _worked(pod: History, clock: Clock, began: datetime) -> float | None:
    """The seconds for which a pod was ready until it ends; None if it was not when the change began, or stays.

    Also None if the pod does not say since when it is ready.
    """
    end, before = end_of(pod), pod.before
    if end is None or before is None or not holds(before, "Ready"):
        return None
    seconds = seconds_between(condition(before, "Ready").get("lastTransitionTime"), began.isoformat())
    return None if seconds is None else seconds + clock.exactly(end)
