"""Pods of servers as an API server returns them."""

from typing import Any


def replica(name: str, created: str, *times: str, restarts: int = 0, labels: str = "gemma") -> dict[str, Any]:
    """A pod with the times when it got a node, its container started, and it was ready."""
    scheduled, started, ready = (f"2026-11-29T10:{time}Z" for time in times)
    container = {"name": "server", "restartCount": restarts, "state": {"running": {"startedAt": started}}}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": time}
        for kind, time in (("PodScheduled", scheduled), ("Ready", ready))
    ]
    return {
        "metadata": {
            "name": name,
            "namespace": "llm",
            "labels": {"app": labels},
            "creationTimestamp": f"2026-11-29T10:{created}Z",
        },
        "spec": {"containers": [{"name": "server"}]},
        "status": {"conditions": conditions, "containerStatuses": [container]},
    }
