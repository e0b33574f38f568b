"""Follows a run: its place in the queue, why it waits, its pods and nodes, and its first log line."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from gke_ai.catalog.engines import fuse
from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.versions import KUEUE_API, VISIBILITY_API
from gke_ai.kube.client import ApiClient, list_objects, request, send
from gke_ai.kube.creation import refusals
from gke_ai.kube.objects import Object, condition, holds, label
from gke_ai.kube.pods import ended, waiting_containers
from gke_ai.kube.values import items, value
from gke_ai.ops.runs import logs
from gke_ai.ops.runs.command import JOB_LABEL, Run
from gke_ai.ops.status.workloads import EVICTED, WAITING, state_of

PAUSE = 1.0
FIRST_LINE = {"limitBytes": "4096"}


@dataclass(frozen=True)
class Observation:
    """A run at one moment."""

    run: Run
    workload: Object | None
    pods: list[Object] = field(default_factory=list)
    position: str = ""
    refused: str = ""
    """Why the cluster refuses its pods, as the newest event says; empty if it does not."""

    @property
    def queue(self) -> str:
        """Its local queue; empty without one."""
        return label(self.run.item, QUEUE_LABEL) if self.run.item else ""

    @property
    def state(self) -> str:
        """What Kueue says of the run, or that it has no queue."""
        if not self.queue:
            return "It has no queue."
        if self.workload is None:
            return f"Queue {self.queue}: Kueue has not seen the run yet."
        state, why = state_of(self.workload, {})
        reason = f", {why.rstrip('.')}" if why else ""
        return f"Queue {self.queue}: {self._flavored(state)}{reason}{self.position}."

    def _flavored(self, state: str) -> str:
        assigned = items(self.workload, "status", "admission", "podSetAssignments")
        flavors = dict.fromkeys(flavor for pod_set in assigned for flavor in (pod_set.get("flavors") or {}).values())
        return f"{state.lower()} on flavor {', '.join(flavors)}" if flavors else state.lower()

    @property
    def progress(self) -> str:
        """Its pods, with their nodes or with what they wait for; empty without any that is there or refused."""
        if not (self.pods or self.refused):
            return ""
        running = sum(pod.get("status", {}).get("phase") == "Running" for pod in self.pods)
        text = f"{running} of {self.run.wanted_pods} pods run"
        nodes = sorted({pod["spec"]["nodeName"] for pod in self.pods if pod["spec"].get("nodeName")})
        if running == self.run.wanted_pods:
            return f"{text} on {', '.join(nodes)}."
        refused = [f"the cluster refuses a pod: {self.refused}"] if self.refused else []
        why = dict.fromkeys([*refused, *(reason for pod in self.pods for reason in _waits(pod))])
        return f"{text}: {'; '.join(why) or 'the others start'}."


def _waits(pod: Object) -> Iterator[str]:
    """What a pod waits for: a node, or an image."""
    scheduled = condition(pod, "PodScheduled")
    if scheduled.get("status") == "False":
        yield str(scheduled.get("message", scheduled.get("reason", "")))
    for container, waiting in waiting_containers(pod):
        if waiting.get("reason") not in (None, "PodInitializing"):
            yield f"{waiting['reason']} {waiting.get('message', container.get('image', ''))}".strip()


def observe(api: ApiClient, run: Run) -> Observation:
    """Reads a run with its Workload and its pods."""
    answer = request(api, "GET", run.path)
    run = Run(run.name, run.namespace, run.kind, item=answer.body if answer.code == 200 else None)
    if run.item is None:
        return Observation(run, None)
    uid = run.item["metadata"]["uid"]
    workloads = list_objects(api, f"/apis/{KUEUE_API}/namespaces/{run.namespace}/workloads")
    owners = ((item, items(item, "metadata", "ownerReferences")) for item in workloads)
    workload = next((item for item, own in owners if any(owner["uid"] == uid for owner in own)), None)
    position = _position(api, workload) if workload else ""
    pods = [pod for pod in run.pods(api) if not ended(pod)]
    waits = run.end or len(pods) >= run.wanted_pods or (workload is not None and not holds(workload, "Admitted"))
    return Observation(run, workload, pods, position, "" if waits else _refused(api, run))


def _refused(api: ApiClient, run: Run) -> str:
    """The newest reason why a controller of the run could not create a pod; empty without one."""
    selector = run.selector if run.kind in ("JobSet", "TrainJob") else f"{JOB_LABEL}={run.name}"
    jobs = f"/apis/batch/v1/namespaces/{run.namespace}/jobs"
    owners = [run.item or {}, *list_objects(api, jobs, labelSelector=selector)]
    if cluster := str(value(run.item, "status", "rayClusterName") or ""):
        owners.append(request(api, "GET", Run(cluster, run.namespace, "RayCluster").path).body)
    events = list_objects(api, f"/api/v1/namespaces/{run.namespace}/events", fieldSelector="type=Warning")
    said = refusals(events)
    return next((said[uid] for owner in owners if (uid := value(owner, "metadata", "uid")) in said), "")


def _position(api: ApiClient, workload: Object) -> str:
    """The place of a waiting Workload in its queue, as the end of a sentence."""
    if not state_of(workload, {})[0].startswith((WAITING, EVICTED)):
        return ""
    metadata, queue = workload["metadata"], workload["spec"].get("queueName", "")
    path = f"/apis/{VISIBILITY_API}/namespaces/{metadata['namespace']}/localqueues/{queue}/pendingworkloads"
    answer = request(api, "GET", path)
    if answer.code >= 400:
        return f"; its place in the queue is not known (HTTP {answer.code})"
    pending = answer.body.get("items") or []
    own = next((item for item in pending if item["metadata"]["name"] == metadata["name"]), None)
    return f"; place {int(own.get('positionInLocalQueue') or 0) + 1} of {len(pending)} in the queue" if own else ""


def first_line(api: ApiClient, pods: list[Object]) -> str:
    """The first log line of the first pod that runs, with its name; empty while there is none."""
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["name"])):
        if pod.get("status", {}).get("phase") != "Running":
            continue
        for container in pod["spec"]["containers"]:
            if container["name"] == fuse.SIDECAR:
                continue
            answer = send(api, "GET", logs.path_of(pod), {"container": container["name"], **FIRST_LINE})
            if answer.code == 200 and (line := str(answer.body).partition("\n")[0].strip()):
                return f"First log line of {pod['metadata']['name']}: {line}"
    return ""


def follow(api: ApiClient, run: Run, show: Callable[[str], object], seconds: float = math.inf) -> int:
    """Shows what changes until the run has ended. Returns the exit code: 0 if it completed.

    Raises TimeoutError with the state of the run if it has not ended in time.
    """
    latest: dict[str, str] = {}
    latest_end = time.monotonic() + seconds
    while True:
        seen = observe(api, run)
        if seen.run.item is None:
            show(f"The {run.kind} {run} is gone.")
            return 1
        if seen.run.end:
            show(f"{seen.run.end}: {run}.")
            return 0 if seen.run.end == "Completed" else 1
        if time.monotonic() > latest_end:
            raise TimeoutError(f"{seen.state} {seen.progress}".strip())
        for kind, text in (("state", seen.state), ("progress", seen.progress)):
            if text and latest.get(kind) != text:
                latest[kind] = text
                show(text)
        if "log" not in latest and (line := first_line(api, seen.pods)):
            latest["log"] = line
            show(line)
        time.sleep(PAUSE)


def describe(api: ApiClient, run: Run) -> Iterator[str]:
    """Yields what is known of a run, one fact a line."""
    seen = observe(api, run)
    if seen.run.item is None:
        yield f"The {run.kind} {run} is gone."
        return
    yield f"{run.kind} {run}: {seen.run.state}, {seen.run.restarts} restarts"
    if not seen.run.end:
        yield from filter(None, (seen.state, seen.progress, first_line(api, seen.pods)))
    if run.checkpoints:
        yield logs.newest(run)
