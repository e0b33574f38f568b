"""What the start of a pod took, part by part, as its status and the log of its engine show. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from gke_ai.kube.kueue import selects
from gke_ai.kube.objects import Object, condition, holds
from gke_ai.kube.values import items, mapping, value

# What vLLM prints, in vllm/model_executor/model_loader, vllm/compilation/monitor.py and
# vllm/v1/worker/gpu_model_runner.py. Each process begins its lines with its name.
_NUMBER = r"(\d+(?:\.\d+)?) s"
_LOGGED = {
    part: re.compile(rf"^(\([^)\n]*\))?.*{text} {_NUMBER}", re.M)
    for part, text in (
        ("weights", "Loading weights took"),
        ("compilation", r"torch\.compile(?: and initial profiling run)? (?:takes|took)"),
        ("CUDA graphs", "Graph capturing finished in"),
    )
}
PARTS = ("quota and node", "container", "engine")
LOGGED = tuple(_LOGGED)
# The kubelet probes and reports later than the probe states.
_PROBED_LATE = 60


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


def startup_limit(container: Object) -> int | None:
    """Returns how long a container may take to start by its startup probe, in seconds. None without such a probe.

    https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/
    """
    probe = mapping(container, "startupProbe")
    failures, period = int(probe.get("failureThreshold", 3)), int(probe.get("periodSeconds", 10))
    return int(probe.get("initialDelaySeconds", 0)) + failures * period if probe else None


def load_seconds(pod: Object, container: str) -> float | None:
    """Returns the seconds from the start of a container until its pod is ready. None if the pod is not ready, the
    container has restarted, or the pod was not ready again later than its startup probe allows."""
    ready = condition(pod, "Ready")
    seconds = seconds_between(container_start(pod, container), ready.get("lastTransitionTime"))
    if ready.get("status") != "True" or seconds is None:
        return None
    named = (item for item in items(pod, "spec", "containers") if item.get("name") == container)
    limit = next(map(startup_limit, named), None)
    return seconds if limit is None or seconds <= limit + _PROBED_LATE else None


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
    selector, namespace = mapping(deployment, "spec", "selector"), deployment["metadata"].get("namespace")
    own = (pod for pod in pods if pod["metadata"].get("namespace") == namespace and selects(selector, _labels(pod)))
    ready = [pod for pod in own if holds(pod, "Ready")]
    newest = max(ready, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)
    return newest, parts_of(newest, newest["spec"]["containers"][0]["name"]) if newest else {}


def _labels(pod: Object) -> dict[str, str]:
    return dict(mapping(pod, "metadata", "labels"))


def logged(text: str) -> Iterator[tuple[str, float]]:
    """Yields each of `LOGGED` that an engine names in its log, with its seconds.

    A process loads one model after the other, such as a draft model, and processes work at the same time.
    """
    for part, pattern in _LOGGED.items():
        by_process: dict[str, float] = defaultdict(float)
        for process, seconds in pattern.findall(text):
            by_process[process] += float(seconds)
        if by_process:
            yield part, max(by_process.values())
