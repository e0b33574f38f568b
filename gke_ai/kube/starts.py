"""What the start of a pod took, part by part, as its status and the log of its engine show. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.values import items, mapping, value

# What vLLM prints: vllm/model_executor/model_loader, vllm/compilation/monitor.py and vllm/v1/worker/gpu_model_runner.py
_LOGGED = {
    "weights": re.compile(r"Loading weights took ([0-9.]+) s"),
    "compilation": re.compile(r"torch\.compile (?:takes|took) ([0-9.]+) s"),
    "CUDA graphs": re.compile(r"Graph capturing finished in ([0-9.]+) s"),
}
PARTS = ("quota and node", "container", "engine")
LOGGED = tuple(_LOGGED)


def seconds_between(since: Any, until: Any) -> float | None:
    """Returns the seconds between two times; None if a time is missing or the order is reversed."""
    if not isinstance(since, str) or not isinstance(until, str):
        return None
    seconds = (datetime.fromisoformat(until) - datetime.fromisoformat(since)).total_seconds()
    return seconds if seconds >= 0 else None


def container_start(pod: Object, container: str) -> str | None:
    """Returns when a container of a pod started. None if it does not run, or has restarted."""
    for status in items(pod, "status", "containerStatuses"):
        if status.get("name") == container and not status.get("restartCount"):
            started = value(status, "state", "running", "startedAt")
            return started if isinstance(started, str) else None
    return None


def load_seconds(pod: Object, container: str) -> float | None:
    """Returns the seconds from the start of a container until its pod is ready; None if the pod is not ready, or the
    container has restarted."""
    ready = condition(pod, "Ready")
    if ready.get("status") != "True":
        return None
    return seconds_between(container_start(pod, container), ready.get("lastTransitionTime"))


def parts_of(pod: Object, container: str) -> dict[str, float]:
    """Returns the seconds of each of `PARTS`: until the pod has a node, its container runs, and it is ready.

    Empty if one is unknown, as of a pod that is not ready, or whose container has restarted.
    """
    scheduled, started = condition(pod, "PodScheduled").get("lastTransitionTime"), container_start(pod, container)
    created = value(pod, "metadata", "creationTimestamp")
    times = (seconds_between(created, scheduled), seconds_between(scheduled, started), load_seconds(pod, container))
    known = [seconds for seconds in times if seconds is not None]
    return dict(zip(PARTS, known, strict=True)) if len(known) == len(PARTS) else {}


def newest_start(deployment: Object, pods: Iterable[Object]) -> tuple[Object | None, dict[str, float]]:
    """Returns the newest ready pod of a Deployment, and the parts of its start. Its first container is the engine."""
    namespace, wanted = deployment["metadata"].get("namespace"), mapping(deployment, "spec", "selector", "matchLabels")
    own = (pod for pod in pods if pod["metadata"].get("namespace") == namespace)
    ready = [pod for pod in own if wanted.items() <= mapping(pod, "metadata", "labels").items() and holds(pod, "Ready")]
    newest = max(ready, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)
    return newest, parts_of(newest, newest["spec"]["containers"][0]["name"]) if newest else {}


def logged(text: str) -> Iterator[tuple[str, float]]:
    """Yields each of `LOGGED` that an engine names in its log, with its seconds: of several processes the slowest."""
    for part, pattern in _LOGGED.items():
        if found := pattern.findall(text):
            yield part, max(float(seconds.rstrip(".")) for seconds in found)
