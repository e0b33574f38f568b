"""What happens to servers and nodes: ready replicas, added and removed nodes, accelerators in use."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise

from gke_ai.catalog.nodes.quota import QUEUE_LABEL
from gke_ai.catalog.nodes.shape import INSTANCE_TYPE
from gke_ai.forecast.outcome.clock import Clock
from gke_ai.forecast.outcome.timeline import Histories, History
from gke_ai.forecast.result.forecast import Accelerators, Nodes, Server
from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.nodes import accelerator_type, capacity_mode, pool_of
from gke_ai.kube.objects import Object, annotation, label
from gke_ai.kube.pods import accelerator_count, accelerators_on, ended, wanted_pods
from gke_ai.kube.values import value
from gke_ai.kube.workloads import SERVERS, is_server
from gke_ai.workspace.emulation import CAPACITY

PoolKey = tuple[str, str, str]
Machine = tuple[str, str, str, int]
# Workloads by the uid of their owner, and by stable name.
Owners = Mapping[WorkloadName | str, History]
# A node that loses its pods within this time of its own end is drained, not idle.
DRAINED_SECONDS = 5.0


# ------------------------------------------------------------------------------------------------------------ servers
def controllers(histories: Histories) -> dict[WorkloadName, History]:
    """Returns the Deployments and StatefulSets by stable name; of those with the same name the newest one."""
    return {
        WorkloadName.of_object(kind, history.last): history
        for kind in SERVERS
        for history in sorted(histories.get(kind, {}).values(), key=lambda history: history.first)
    }


def servers(histories: Histories, clock: Clock, ended: float) -> tuple[Server, ...]:
    """Returns the replicas of each server, before, meanwhile and after."""
    found = controllers(histories).values()
    return tuple(sorted(_server(history, clock, ended) for history in found if is_server(history.last)))


def _server(history: History, clock: Clock, ended: float) -> Server:
    metadata, template = history.last["metadata"], history.last["spec"]["template"]
    before, after = history.before, history.after
    steps = ready_steps(history, ended)
    needed = min(replicas(before), replicas(after))
    below = sum(
        clock.exactly(end) - clock.exactly(begin) for (begin, ready), (end, _) in pairwise(steps) if ready < needed
    )
    queue = label(template, QUEUE_LABEL) or label(history.last, QUEUE_LABEL)
    counts = (replicas(before), replicas(after), ready_replicas(before), ready_replicas(after))
    name, fewest = f"{metadata['namespace']}/{metadata['name']}", min(ready for _, ready in steps)
    return Server(name, queue, *counts, fewest, round(below))


def ready_steps(history: History, ended: float) -> list[tuple[float, int]]:
    """Returns the seconds at which the ready replicas of a server change, with their number; the last is the end."""
    steps = [(0.0, ready_replicas(history.before))]
    steps += [(at, ready_replicas(version)) for at, version in history.versions if at > 0]
    if history.gone is not None:
        steps.append((history.gone, 0))
    return [*steps, (max(ended, steps[-1][0]), steps[-1][1])]


def replicas(deployment: Object | None) -> int:
    """Returns the replicas that a Deployment asks for; 0 if there is none."""
    return wanted_pods(deployment) if deployment else 0


def ready_replicas(deployment: Object | None) -> int:
    """Returns the ready replicas of a Deployment; 0 if there is none."""
    return int(value(deployment, "status", "readyReplicas") or 0)


# -------------------------------------------------------------------------------------------------------------- nodes
def capacity_of(node: Object) -> str:
    """Returns the capacity mode of a node; of one that the emulator simulates, that of its pool."""
    return annotation(node, CAPACITY) or capacity_mode(node)


def machine_of(node: Object) -> Machine:
    """Returns the accelerator of a node, its capacity mode, its machine type, and how many accelerators it has."""
    return accelerator_type(node), capacity_of(node), label(node, INSTANCE_TYPE), accelerators_on(node)


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
    groups: dict[Machine, list[History]] = defaultdict(list)
    for history in histories.get("Node", {}).values():
        if accelerators_on(history.last):
            groups[machine_of(history.last)].append(history)
    used_before, used_after = used_on_nodes(histories, 0.0), used_on_nodes(histories, ended)
    result = []
    for key, members in sorted(groups.items()):
        names = [history.last["metadata"]["name"] for history in members]
        before = sum(history.before is not None for history in members)
        after = sum(history.gone is None for history in members)
        used = (sum(used_before[name] for name in names), sum(used_after[name] for name in names))
        paid = sum(_node_seconds(history, clock, horizon, left) for history in members)
        hours = (round(before * horizon / 3600, 3), round(paid / 3600, 3))
        result.append(Accelerators(*key, before, after, *used, *hours))
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
            used[pod["spec"]["nodeName"]] += accelerator_count(pod["spec"])
    return used


# --------------------------------------------------------------------------------------------------------------- pods
def workload_of(pod: Object, workloads: Owners) -> History | None:
    """Returns the Workload of a pod, from those by the uid of their owner and by stable name."""
    return workloads.get(pod["metadata"]["uid"]) or workloads.get(WorkloadName.of_pod(pod))


def is_of_interest(pod: Object, workloads: Owners) -> bool:
    """Whether a pod belongs to a queue or uses accelerators. Pods of Jobs lack the label of the queue."""
    queued = label(pod, QUEUE_LABEL) or workload_of(pod, workloads)
    return bool(queued or accelerator_count(pod["spec"]))
