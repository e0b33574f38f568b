"""The status of a pod whose containers are local processes, as a kubelet writes it.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]

SIGNALED = 128
"""Exit status of a process that a signal ended, less the signal's number."""
KILLED = SIGNALED + 9
CANNOT_START = 128
"""Exit status of a container whose command doesn't exist."""
FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 0.5, 10.0
"""Pauses before a restart. A kubelet's are 10 s to 5 minutes."""


def now() -> str:
    """The time in the form of Kubernetes' API."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def exit_status(returncode: int) -> int:
    """A container's exit status for a return code of `subprocess`, where a signal is negative."""
    return returncode if returncode >= 0 else SIGNALED - returncode


def restarts(policy: str, code: int) -> bool:
    """Whether a kubelet starts a container again that ended with this exit status."""
    return policy == "Always" or (policy == "OnFailure" and code != 0)


def backoff(restart: int) -> float:
    """Seconds before a container's restart of this number, from 0."""
    # The exponent is bounded, because a float has no power of 2 above 1,023.
    return float(min(FIRST_BACKOFF_SECONDS * 2 ** min(restart, 10), MAX_BACKOFF_SECONDS))


@dataclass
class ContainerState:
    """The state of one container: waiting until it has started, then running, then terminated."""

    name: str
    image: str
    waiting: Object | None = None
    started: str = ""
    terminated: Object | None = None
    last: Object | None = None
    restarts: int = 0

    def wait(self, reason: str, message: str = "") -> None:
        """The container doesn't run."""
        self.waiting = {"reason": reason} | ({"message": message} if message else {})

    def start(self) -> None:
        """The container runs."""
        self.waiting, self.terminated, self.started = None, None, now()

    def end(self, code: int, reason: str = "", message: str = "") -> None:
        """The container has ended."""
        self.waiting = None
        self.terminated = {
            "exitCode": code,
            "reason": reason or ("Error" if code else "Completed"),
            "startedAt": self.started or now(),
            "finishedAt": now(),
        }
        if message:
            self.terminated["message"] = message

    def restart(self, seconds: float) -> None:
        """The container has ended and will start again."""
        self.last, self.terminated = self.terminated, None
        self.restarts += 1
        self.wait("CrashLoopBackOff", f"back-off {seconds:g}s restarting failed container={self.name}")

    @property
    def running(self) -> bool:
        """Whether the container's process runs."""
        return bool(self.started) and self.waiting is None and self.terminated is None

    def status(self) -> Object:
        """The entry in the pod's `containerStatuses`."""
        if self.terminated:
            state: Object = {"terminated": self.terminated}
        elif self.running:
            state = {"running": {"startedAt": self.started}}
        else:
            state = {"waiting": self.waiting or {"reason": "ContainerCreating"}}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "ready": self.running,
            "started": self.running,
            "restartCount": self.restarts,
            "state": state,
            "lastState": {"terminated": self.last} if self.last else {},
        }


def pod_status(containers: Iterable[ContainerState], ended: bool) -> Object:
    """The changed part of a pod's status. `ended`: no container will start again."""
    states = list(containers)
    phase, reason = "Running", "ContainersNotReady"
    if ended:
        failed = any(state.terminated is None or state.terminated["exitCode"] for state in states)
        phase, reason = ("Failed", "PodFailed") if failed else ("Succeeded", "PodCompleted")
    elif not any(state.started for state in states):
        phase = "Pending"
    ready = not ended and all(state.running for state in states)
    condition = {"status": "True", "reason": None} if ready else {"status": "False", "reason": reason}
    conditions = [{"type": type, "lastTransitionTime": now(), **condition} for type in ("ContainersReady", "Ready")]
    return {"phase": phase, "conditions": conditions, "containerStatuses": [state.status() for state in states]}
