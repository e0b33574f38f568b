"""Reads a timeline: what a change does in the queue, to servers and to nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from gke_ai.forecast.outcome import cluster
from gke_ai.forecast.outcome.clock import Clock, clock
from gke_ai.forecast.outcome.cluster import Owners, controllers, ready_steps, replicas
from gke_ai.forecast.outcome.interruptions import by_workload, interrupted, interruptions, serves
from gke_ai.forecast.outcome.queue import Queue, queue
from gke_ai.forecast.outcome.quota import over_quota, shares
from gke_ai.forecast.outcome.stakes import stakes
from gke_ai.forecast.outcome.timeline import Histories, History, Timeline, histories
from gke_ai.forecast.outcome.waits import lacks_node, waits
from gke_ai.forecast.result.forecast import Count, Duration, Forecast, Lane
from gke_ai.kube.names import WorkloadName, owner_of
from gke_ai.kube.nodes import pool_of
from gke_ai.kube.objects import Object, holds
from gke_ai.kube.pods import ended
from gke_ai.kube.workloads import is_server

HORIZON_SECONDS = 1800
NODE_IDLE = "nodeIdle"
RUNNING = "running"


def outcome(
    timeline: Timeline,
    stack: str = "",
    change: str = "",
    compression: float = 1.0,
    horizon: int = HORIZON_SECONDS,
    durations: Iterable[Duration] = (),
    notes: Iterable[str] = (),
    snapshot: str = "",
) -> Forecast:
    """Returns what happened in a timeline.

    Args:
        timeline: The observations.
        stack: Name of the stack.
        change: The change in a few words.
        compression: How many times as fast Google's durations ran.
        horizon: Seconds of Google Cloud that accelerator-hours count.
        durations: The durations on Google Cloud that were used.
        notes: Differences between this cluster and the real one.
        snapshot: What the cluster was brought to, in a few words.
    """
    objects, durations = histories(timeline), tuple(sorted(durations))
    idle = next((duration.seconds for duration in durations if duration.step == NODE_IDLE), 0)
    time = clock(objects, compression)
    queued = queue(objects, time, timeline.restored)
    by_owner = _by_owner(queued)
    pods = interrupted(objects, by_owner, queued.replaced())
    evictions, starts, ends = queued.evictions(), queued.starts(), queued.ends(pods)
    interrupts = interruptions(objects, pods, by_owner, time, timeline.ended)
    waiting = waits(objects, queued, by_owner)
    new_waits = [wait for wait in waiting if not wait.before]
    left = {uid: cluster.leaves(node, objects, time, idle) for uid, node in objects.get("Node", {}).items()}
    stopped = {entry.workload for entries in (evictions, interrupts) for entry in entries}
    stopped |= {entry.workload for entry in ends if entry.how == "Deleted"}
    touched = {entry.workload for entries in (evictions, starts, new_waits, ends, interrupts) for entry in entries}
    return Forecast(
        stack=stack,
        change=change,
        settled=timeline.settled,
        seconds=max(
            time.seconds(timeline.ended), *(round(second) for second in left.values() if second is not None), 0
        ),
        horizon=horizon,
        applied=time.seconds(timeline.applied),
        compression=compression,
        evictions=evictions,
        starts=starts,
        waits=waiting,
        ends=ends,
        interruptions=interrupts,
        stakes=stakes(objects, stopped, time, timeline.began) if timeline.began else (),
        over_quota=over_quota(objects),
        shares=shares(objects),
        nodes=cluster.nodes(objects),
        servers=cluster.servers(objects, time, timeline.ended),
        accelerators=cluster.accelerators(objects, time, timeline.ended, horizon, left),
        durations=durations,
        lanes=(*lanes(objects, queued, time, timeline.ended, touched), *node_lanes(objects, time, left)),
        notes=tuple(notes),
        snapshot=snapshot,
        terminating=terminating(objects),
    )


def terminating(histories: Histories) -> tuple[str, ...]:
    """Returns the queues and flavors that are deleted and stay, because Kueue still needs them."""
    return tuple(
        sorted(
            f"{kind} {history.last['metadata']['name']}"
            for kind in ("ClusterQueue", "ResourceFlavor")
            for history in histories.get(kind, {}).values()
            if history.gone is None and history.last["metadata"].get("deletionTimestamp")
        )
    )


def _by_owner(queued: Queue) -> Owners:
    """The Workloads by the uid of their owner, and by stable name unless each replica of a server has its own."""
    owned = [(owner_of(history.last), name, history) for name, history in queued.workloads.values()]
    by_name: dict[WorkloadName | str, History] = {
        name: history for owner, name, history in owned if not (owner.get("kind") == "Pod" and name.has_replicas)
    }
    return by_name | {str(owner.get("uid", "")): history for owner, _, history in owned}


def lanes(histories: Histories, queued: Queue, time: Clock, end: float, touched: set[WorkloadName]) -> Iterator[Lane]:
    """Yields rows of the picture: runs that the change touches, and servers whose ready replicas change."""
    pods = by_workload(histories)
    for name, history in queued.workloads.values():
        if name in touched and not name.has_replicas:
            yield Lane("workload", str(name), _steps(time, _states(history, pods.get(name, []))))
    for name, history in sorted(controllers(histories).items(), key=lambda item: (item[0].namespace, item[0].name)):
        if is_server(history.last):
            ready = [(at, Count(count, replicas(history.at(at)))) for at, count in ready_steps(history, end)[:-1]]
            if len({state for _, state in ready}) > 1:
                yield Lane("server", f"{name.namespace}/{name.name}", _steps(time, ready))


def node_lanes(histories: Histories, time: Clock, left: Mapping[str, float | None]) -> Iterator[Lane]:
    """Yields a row for each pool whose number of nodes changes. `left` has the second at which each node is deleted."""
    pools: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for uid, node in histories.get("Node", {}).items():
        ready = next((at for at, version in node.versions if holds(version, "Ready")), None)
        end = left[uid]
        begins, is_ready = time.exactly(max(node.first, 0.0)), inf if ready is None else time.exactly(max(ready, 0.0))
        pools[pool_of(node.last)].append((begins, is_ready, inf if end is None else end))
    for pool, spans in sorted(pools.items()):
        seconds = sorted({0.0} | {second for span in spans for second in span if second < inf})
        counts = [(round(second), _count(spans, second)) for second in seconds]
        if len({state for _, state in counts}) > 1:
            yield Lane("nodes", pool, _joined(counts))


def _count(spans: Iterable[tuple[float, float, float]], second: float) -> Count:
    """The nodes that are Ready and that exist at a time, by the times at which each begins, is Ready and ends."""
    present = [ready for begin, ready, end in spans if begin <= second < end]
    return Count(sum(ready <= second for ready in present), len(present))


def _states(history: History, pods: list[History]) -> Iterator[tuple[float, str]]:
    """Yields the states of a run: waiting, evicted, admitted and without nodes, running, interrupted, ended or gone."""
    changes = {at for watched in (history, *pods) for at, _ in watched.versions}
    changes |= {pod.gone for pod in pods if pod.gone is not None}
    was_admitted, most = False, 0
    for at in sorted(at for at in changes if at >= history.first and (history.gone is None or at < history.gone)):
        workload = history.at(at)
        if workload is None:
            continue
        state = _state(workload, was_admitted)
        if state == RUNNING and pods:
            present = [pod for pod in (other.at(at) for other in pods) if pod]
            state = _of_pods(present, most)
            most = max(most, sum(map(serves, present))) if state == RUNNING or most else 0
        elif state != RUNNING:
            most = 0
        was_admitted = was_admitted or holds(workload, "Admitted")
        yield max(at, 0.0), state
    if history.gone is not None:
        yield history.gone, "gone"


def _state(workload: Object, was_admitted: bool) -> str:
    if holds(workload, "Finished"):
        return "ended"
    if holds(workload, "Admitted") and not holds(workload, "Evicted"):
        return RUNNING
    return "evicted" if was_admitted or holds(workload, "Evicted") else "waiting"


def _of_pods(pods: list[Object], most: int) -> str:
    """The state of an admitted run by its pods. `most` have run at a time since it was admitted."""
    if any(lacks_node(pod) for pod in pods):
        return "no nodes"
    alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp") and not ended(pod)]
    ready = sum(map(serves, pods))
    if ready >= max(most, 1) and all(map(serves, alive)):
        return RUNNING
    return "interrupted" if most else "starting"


def _steps(time: Clock, states: Iterable[tuple[float, str | Count]]) -> tuple[tuple[int, str | Count], ...]:
    return _joined((time.seconds(at), state) for at, state in states)


def _joined(states: Iterable[tuple[int, str | Count]]) -> tuple[tuple[int, str | Count], ...]:
    """The states with the seconds at which they begin, without repetitions; a later state at a second replaces it."""
    steps: list[tuple[int, str | Count]] = []
    for second, state in states:
        if steps and steps[-1][0] == second:
            steps.pop()
        if not steps or steps[-1][1] != state:
            steps.append((second, state))
    return tuple(steps)
