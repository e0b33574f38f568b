"""What runs can lose at most: the work of pods that end before their run does."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime

from gke_ai.catalog.nodes.shape import INSTANCE_TYPE
from gke_ai.forecast.outcome.clock import Clock
from gke_ai.forecast.outcome.cluster import capacity_of
from gke_ai.forecast.outcome.interruptions import end_of
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import Stake
from gke_ai.kube.names import WorkloadName
from gke_ai.kube.nodes import accelerator_type
from gke_ai.kube.objects import condition, holds, label
from gke_ai.kube.pods import accelerator_count, accelerators_on


def stakes(histories: Histories, stopped: Collection[WorkloadName], clock: Clock, began: datetime) -> tuple[Stake, ...]:
    """Returns the accelerator-hours that pods of stopped runs worked since they became ready, before the change.

    A run keeps what its checkpoints hold, which a cluster does not show. `began` is the time of second 0.
    """
    nodes = {history.last["metadata"]["name"]: history.last for history in histories.get("Node", {}).values()}
    worked: dict[tuple[WorkloadName, str, str, str, int], list[tuple[int, float]]] = defaultdict(list)
    for history in histories.get("Pod", {}).values():
        name, count = WorkloadName.of_pod(history.last), accelerator_count(history.last["spec"])
        node = nodes.get(str(history.last["spec"].get("nodeName")))
        seconds = _worked(history, clock, began)
        if name in stopped and not name.has_replicas and count and node and seconds is not None:
            machine = (accelerator_type(node), capacity_of(node), label(node, INSTANCE_TYPE), accelerators_on(node))
            worked[name, *machine].append((count, seconds))
    return tuple(
        Stake(
            *key,
            sum(count for count, _ in pods),
            round(max(seconds for _, seconds in pods)),
            round(sum(count * seconds for count, seconds in pods) / 3600, 3),
        )
        for key, pods in sorted(worked.items())
    )


def _worked(pod: History, clock: Clock, began: datetime) -> float | None:
    """The seconds for which a pod was ready until it ends; None if it was not when the change began, or stays."""
    end, before = end_of(pod), pod.before
    if end is None or before is None or not holds(before, "Ready"):
        return None
    since = datetime.fromisoformat(condition(before, "Ready")["lastTransitionTime"])
    return max((began - since).total_seconds(), 0.0) + clock.exactly(end)
