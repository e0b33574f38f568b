"""What happens to servers, nodes and pods: ready replicas, added and removed nodes, interruptions, waits for nodes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise

from catalog.capacity import MODES
from catalog.nodes import (
    GKE_ACCELERATOR,
    GKE_NODEPOOL,
    GKE_PROVISIONING,
    GKE_TPU_ACCELERATOR,
    INSTANCE_TYPE,
    NVIDIA_GPU,
    POOL,
)
from catalog.objects import condition, holds, label
from catalog.quota import QUEUE_LABEL
from catalog.tpus import GOOGLE_TPU
from forecast.clock import FORCED, UPGRADED, Clock
from forecast.model import Accelerators, Nodes, Server, Wait
from forecast.names import TEMPLATE_HASH, owner_of, pod_name
from forecast.queue import SERVER
from forecast.reasons import NO_NODE
from forecast.timeline import Histories, History, Object, annotation

ACCELERATORS = (NVIDIA_GPU, GOOGLE_TPU)
PREEMPTED = "preempted by the scheduler"
DESPITE = ", despite its disruption budget"
PoolKey = tuple[str, str, str]
# A node that loses its pods within this time of its own end is drained, not idle.
DRAINED_SECONDS = 5.0


def accelerators_of(spec: Object) -> int:
    """Returns the GPUs or TPU chips that a pod with this spec requests."""
    limits = [((container.get("resources") or {}).get("limits") or {}) for container in spec.get("containers") or []]
    requests = [
        ((container.get("resources") or {}).get("requests") or {}) for container in spec.get("containers") or []
    ]
    return sum(
        int(limit.get(resource) or request.get(resource) or 0)
        for limit, request in zip(limits, requests, strict=True)
        for resource in ACCELERATORS
    )


# ------------------------------------------------------------------------------------------------------------ servers
def is_server(deployment: Object) -> bool:
    """Whether a Deployment has a queue or accelerators."""
    template = deployment["spec"]["template"]
    queued = (template.get("metadata", {}).get("labels") or {}).get(QUEUE_LABEL)
    return bool(queued or label(deployment, QUEUE_LABEL) or accelerators_of(template.get("spec") or {}))


def servers(histories: Histories, clock: Clock, ended: float) -> tuple[Server, ...]:
    """Returns the replicas of each server, before, meanwhile and after."""
    deployments = histories.get("Deployment", {}).values()
    return tuple(sorted(_server(history, clock, ended) for history in deployments if is_server(history.last)))


def _server(history: History, clock: Clock, ended: float) -> Server:
    metadata, template = history.last["metadata"], history.last["spec"]["template"]
    before = history.before
    wanted_before = replicas(before) if before else 0
    wanted_after = replicas(history.last) if history.gone is None else 0
    ready_before = ready_replicas(before) if before else 0
    steps = ready_steps(history, ended)
    needed = min(wanted_before, wanted_after)
    below = sum(
        clock.exactly(end) - clock.exactly(begin) for (begin, ready), (end, _) in pairwise(steps) if ready < needed
    )
    return Server(
        f"{metadata['namespace']}/{metadata['name']}",
        str((template.get("metadata", {}).get("labels") or {}).get(QUEUE_LABEL, ""))
        or label(history.last, QUEUE_LABEL),
        wanted_before,
        wanted_after,
        ready_before,
        ready_replicas(history.last) if history.gone is None else 0,
        min(ready for _, ready in steps),
        round(below),
    )


def ready_steps(history: History, ended: float) -> list[tuple[float, int]]:
    """Returns the seconds at which the ready replicas of a server change, with their number; the last is the end."""
    before = history.before
    steps = [(0.0, ready_replicas(before) if before else 0)]
    steps += [(at, ready_replicas(version)) for at, version in history.versions if at > 0]
    if history.gone is not None:
        steps.append((history.gone, 0))
    return [*steps, (max(ended, steps[-1][0]), steps[-1][1])]


def replicas(deployment: Object) -> int:
    """Returns the replicas that a Deployment asks for."""
    stated = deployment["spec"].get("replicas")
    return 1 if stated is None else int(stated)


def ready_replicas(deployment: Object) -> int:
    """Returns the ready replicas of a Deployment."""
    return int((deployment.get("status") or {}).get("readyReplicas") or 0)


# -------------------------------------------------------------------------------------------------------------- nodes
def pool_of(node: Object) -> str:
    """Returns the name of a node's pool: the stable one of this program, else GKE's."""
    return label(node, POOL) or label(node, GKE_NODEPOOL)


def capacity_of(node: Object) -> str:
    """Returns the capacity mode of a node, from its labels."""
    return next(
        (
            name
            for name, mode in MODES.items()
            if mode.labels and all(label(node, key) == text for key, text in mode.labels.items())
        ),
        "onDemand" if label(node, GKE_PROVISIONING) in ("", "standard") else label(node, GKE_PROVISIONING),
    )


def accelerators_on(node: Object) -> int:
    """Returns the GPUs or TPU chips of a node."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return sum(int(allocatable.get(resource) or 0) for resource in ACCELERATORS)


def accelerator_type(node: Object) -> str:
    """Returns GKE's name of a node's accelerator, or an empty text."""
    return label(node, GKE_ACCELERATOR) or label(node, GKE_TPU_ACCELERATOR)


def nodes(histories: Histories) -> tuple[Nodes, ...]:
    """Returns the pools with nodes that are added, removed or kept."""
    pools: dict[PoolKey, list[History]] = defaultdict(list)
    for history in histories.get("Node", {}).values():
        pools[pool_of(history.last), capacity_of(history.last), label(history.last, INSTANCE_TYPE)].append(history)
    return tuple(_nodes(key, pools[key]) for key in sorted(pools))


def _nodes(key: PoolKey, members: list[History]) -> Nodes:
    before = sum(history.before is not None for history in members)
    came = sum(history.first > 0 for history in members)
    went = sum(history.gone is not None for history in members)
    last = members[0].last
    per_node = accelerators_on(last)
    return Nodes(*key, accelerator_type(last), per_node, before, came, went, before + came - went)


def accelerators(
    histories: Histories, clock: Clock, ended: float, horizon: int, left: Mapping[str, float | None]
) -> tuple[Accelerators, ...]:
    """Returns the accelerators on nodes and in use, before and after, by machine type and capacity mode.

    Nodes at the end stay until the horizon. `left` has the second at which each node is deleted, by uid.
    """
    groups: dict[tuple[str, str, str, int], list[History]] = defaultdict(list)
    for history in histories.get("Node", {}).values():
        if count := accelerators_on(history.last):
            node = history.last
            groups[accelerator_type(node), capacity_of(node), label(node, INSTANCE_TYPE), count].append(history)
    used_before, used_after = used_on_nodes(histories, 0.0), used_on_nodes(histories, ended)
    result = []
    for (accelerator, capacity, machine, per_node), members in sorted(groups.items()):
        names = [history.last["metadata"]["name"] for history in members]
        before = sum(history.before is not None for history in members)
        entry = Accelerators(
            accelerator,
            capacity,
            machine,
            per_node,
            before,
            sum(history.gone is None for history in members),
            sum(used_before[name] for name in names),
            sum(used_after[name] for name in names),
            round(before * horizon / 3600, 3),
            round(sum(_node_seconds(history, clock, horizon, left) for history in members) / 3600, 3),
        )
        result.append(entry)
    return tuple(result)


def _node_seconds(node: History, clock: Clock, horizon: int, left: Mapping[str, float | None]) -> float:
    begin, end = clock.exactly(max(node.first, 0.0)), left[node.last["metadata"]["uid"]]
    return max(0.0, (horizon if end is None else min(end, horizon)) - begin)


def leaves(node: History, histories: Histories, clock: Clock, idle: int) -> float | None:
    """Returns the second of Google Cloud at which a node is deleted. Idle ones stay `idle` seconds after their pods."""
    if node.gone is None:
        return None
    end = clock.exactly(node.gone)
    pods = [pod for pod in histories.get("Pod", {}).values() if _runs_on(pod.last, node.last)]
    if all(pod.gone is not None and pod.gone < node.gone - DRAINED_SECONDS for pod in pods):
        # The emulator waited for a part of the time, during which the clock may have run at its own speed.
        end = max(end, clock.exactly(max((pod.gone or 0.0 for pod in pods), default=max(node.first, 0.0))) + idle)
    return end


def _runs_on(pod: Object, node: Object) -> bool:
    """Whether a pod keeps a node in use."""
    return pod["spec"].get("nodeName") == node["metadata"]["name"] and owner_of(pod).get("kind") != "DaemonSet"


def used_on_nodes(histories: Histories, second: float) -> Counter[str]:
    """Returns the accelerators that pods use at a time, by node."""
    used: Counter[str] = Counter()
    for history in histories.get("Pod", {}).values():
        pod = history.at(second)
        if pod and pod["spec"].get("nodeName") and not ended(pod):
            used[pod["spec"]["nodeName"]] += accelerators_of(pod["spec"])
    return used


# --------------------------------------------------------------------------------------------------------------- pods
def ended(pod: Object) -> bool:
    """Whether a pod has run to its end."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def waits_for_nodes(histories: Histories) -> tuple[Wait, ...]:
    """Returns the workloads whose pods no node fits at the end, with the reason of the autoscaler or the scheduler."""
    waiting: dict[tuple[str, bool], list[Object]] = defaultdict(list)
    for history in histories.get("Pod", {}).values():
        if history.gone is None and _has_no_node(history.last) and _is_of_interest(history.last):
            waited_before = history.before is not None and _has_no_node(history.before)
            waiting[pod_name(history.last), waited_before].append(history.last)
    events = [history.last for history in histories.get("Event", {}).values()]
    return tuple(
        Wait(
            name,
            label(pods[0], QUEUE_LABEL),
            int(pods[0]["spec"].get("priority") or 0),
            NO_NODE,
            f"a node: {_why_no_node(pods, events)}",
            waited_before,
            len(pods) if SERVER in name else 1,
        )
        for (name, waited_before), pods in sorted(waiting.items())
    )


def _has_no_node(pod: Object) -> bool:
    deleted = pod["metadata"].get("deletionTimestamp")
    scheduled = condition(pod, "PodScheduled")
    return not deleted and not ended(pod) and scheduled.get("reason") == "Unschedulable"


def _is_of_interest(pod: Object) -> bool:
    return bool(label(pod, QUEUE_LABEL) or accelerators_of(pod["spec"]))


def _why_no_node(pods: list[Object], events: list[Object]) -> str:
    """The autoscaler's newest reason for one of the pods, else the scheduler's."""
    uids = {pod["metadata"]["uid"] for pod in pods}
    own = [event for event in events if (event.get("involvedObject") or {}).get("uid") in uids]
    refused = [event for event in own if event.get("reason") == "NotTriggerScaleUp"]
    if refused:
        newest = max(refused, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
        return str(newest.get("message", "")).removeprefix("pod didn't trigger scale-up: ")
    return str(condition(pods[0], "PodScheduled").get("message", ""))


def interrupted(histories: Histories, workloads: Mapping[str, History]) -> dict[str, tuple[str, float]]:
    """Returns the pods of workloads that end although Kueue does not evict them: cause and second by uid.

    `workloads` are the Workloads by the uid of their pod, and by the stable name of their Job or JobSet.
    """
    result = {}
    for uid, history in histories.get("Pod", {}).items():
        at = _end_of(history)
        if at is None or not history.last["spec"].get("nodeName") or not _is_of_interest(history.last):
            continue
        owner = workloads.get(uid) or workloads.get(pod_name(history.last))
        if owner is not None and _leaves_queue(owner, at):
            continue
        if cause := _cause(history, at, histories):
            result[uid] = cause, at
    return result


def _end_of(history: History) -> float | None:
    """The second after the change began at which a running pod is deleted or fails."""
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


def _cause(history: History, second: float, histories: Histories) -> str:
    """Why a pod ends: a drained node, a rollout, or a deletion. Empty if its owner wants fewer pods."""
    pod = history.last
    node = next(
        (
            other
            for other in histories.get("Node", {}).values()
            if other.last["metadata"]["name"] == pod["spec"]["nodeName"]
        ),
        None,
    )
    if node is not None and node.last["spec"].get("unschedulable"):
        forced = annotation(node.at(second) or node.last, UPGRADED) == FORCED
        return f"node pool {pool_of(node.last)}{DESPITE if forced else ''}"
    if condition(pod, "DisruptionTarget").get("reason") == "PreemptionByScheduler":
        return PREEMPTED
    if owner_of(pod).get("kind") != "ReplicaSet":
        return "deleted" if owner_of(pod).get("kind") == "Job" and not _job_is_gone(pod, histories, second) else ""
    return "rollout" if _is_replaced(pod, histories) else ""


def _is_replaced(pod: Object, histories: Histories) -> bool:
    """Whether its server creates pods with another template meanwhile, one of which exists at the end."""
    return any(
        history.first > 0
        and history.gone is None
        and pod_name(history.last) == pod_name(pod)
        and label(history.last, TEMPLATE_HASH) != label(pod, TEMPLATE_HASH)
        for history in histories.get("Pod", {}).values()
    )


def _job_is_gone(pod: Object, histories: Histories, second: float) -> bool:
    """Whether the Job of a pod was deleted or suspended by then."""
    job = histories.get("Job", {}).get(str(owner_of(pod).get("uid", "")))
    if job is None:
        return False
    version = job.at(second)
    return version is None or bool(version["metadata"].get("deletionTimestamp") or version["spec"].get("suspend"))
