"""Reads a timeline: what a change does in the queue, to servers and to nodes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf

from catalog.objects import condition, holds
from forecast.clock import Clock, clock
from forecast.cluster import (
    accelerators,
    interrupted,
    is_server,
    leaves,
    nodes,
    pool_of,
    ready_steps,
    replicas,
    servers,
    waits_for_nodes,
)
from forecast.interruptions import interruptions
from forecast.model import Duration, Forecast, Lane
from forecast.names import owner_of
from forecast.queue import SERVER, Queue, queue
from forecast.quota import over_quota
from forecast.timeline import Histories, History, Timeline, histories

HORIZON_SECONDS = 1800
NODE_IDLE = "nodeIdle"


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
    queued = queue(objects, time)
    by_owner = {name: history for name, history in queued.workloads.values() if SERVER not in name}
    by_owner |= {str(owner_of(history.last).get("uid", "")): history for _, history in queued.workloads.values()}
    pods = interrupted(objects, by_owner)
    evictions, starts, ends = queued.evictions(), queued.starts(), queued.ends(pods)
    waits = (*queued.waits(), *waits_for_nodes(objects))
    new_waits = [wait for wait in waits if not wait.before]
    left = {uid: leaves(node, objects, time, idle) for uid, node in objects.get("Node", {}).items()}
    touched = {entry.workload for entries in (evictions, starts, new_waits, ends) for entry in entries}
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
        waits=tuple(sorted(waits)),
        ends=ends,
        interruptions=interruptions(objects, pods, time, timeline.ended),
        over_quota=over_quota(objects),
        nodes=nodes(objects),
        servers=servers(objects, time, timeline.ended),
        accelerators=accelerators(objects, time, timeline.ended, horizon, left),
        durations=durations,
        lanes=(*lanes(objects, queued, time, timeline.ended, touched), *node_lanes(objects, time, left)),
        notes=tuple(notes),
        snapshot=snapshot,
    )


def lanes(histories: Histories, queued: Queue, time: Clock, end: float, touched: set[str]) -> Iterator[Lane]:
    """Yields rows of the picture: runs that the change touches, and servers whose ready replicas change."""
    for name, history in queued.workloads.values():
        if name in touched and SERVER not in name:
            yield Lane("workload", name, _steps(time, _states(history)))
    for history in _by_name(histories, "Deployment"):
        if is_server(history.last):
            ready = [(at, f"{count} of {_wanted(history, at)}") for at, count in ready_steps(history, end)[:-1]]
            metadata = history.last["metadata"]
            if len({state for _, state in ready}) > 1:
                yield Lane("server", f"{metadata['namespace']}/{metadata['name']}", _steps(time, ready))


def node_lanes(histories: Histories, time: Clock, left: Mapping[str, float | None]) -> Iterator[Lane]:
    """Yields a row for each pool whose number of nodes changes. `left` has the second at which each node is deleted."""
    pools: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for uid, node in histories.get("Node", {}).items():
        ready = next((at for at, version in node.versions if holds(version, "Ready")), None)
        end = left[uid]
        pools[pool_of(node.last)].append(
            (
                time.exactly(max(node.first, 0.0)),
                time.exactly(max(ready, 0.0)) if ready is not None else inf,
                inf if end is None else end,
            )
        )
    for pool, spans in sorted(pools.items()):
        seconds = sorted({0.0} | {second for span in spans for second in span if second < inf})
        counts = [
            (
                round(second),
                f"{sum(ready <= second < end for _, ready, end in spans)} of "
                f"{sum(begin <= second < end for begin, _, end in spans)}",
            )
            for second in seconds
        ]
        if len({state for _, state in counts}) > 1:
            yield Lane("nodes", pool, _joined(counts))


def _states(history: History) -> list[tuple[float, str]]:
    """The states of a run: waiting, evicted, admitted, running, ended or gone."""
    states = [(max(at, 0.0), _state(history, index)) for index, (at, _) in enumerate(history.versions)]
    if history.gone is not None:
        states.append((history.gone, "gone"))
    return states


def _state(history: History, index: int) -> str:
    version = history.versions[index][1]
    if holds(version, "Finished"):
        return "ended"
    if holds(version, "Admitted") and not holds(version, "Evicted"):
        return "running" if condition(version, "PodsReady").get("status", "True") == "True" else "starting"
    evicted = any(holds(earlier, "Admitted") for _, earlier in history.versions[:index]) or holds(version, "Evicted")
    return "evicted" if evicted else "waiting"


def _wanted(history: History, second: float) -> int:
    version = history.at(second)
    return replicas(version) if version else 0


def _by_name(histories: Histories, kind: str) -> list[History]:
    def name(history: History) -> tuple[str, str]:
        metadata = history.last["metadata"]
        return metadata["namespace"], metadata["name"]

    return sorted(histories.get(kind, {}).values(), key=name)


def _steps(time: Clock, states: Iterable[tuple[float, str]]) -> tuple[tuple[int, str], ...]:
    return _joined((time.seconds(at), state) for at, state in states)


def _joined(states: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """The states with the seconds at which they begin, without repetitions; a later state at a second replaces it."""
    steps: list[tuple[int, str]] = []
    for second, state in states:
        if steps and steps[-1][0] == second:
            steps.pop()
        if not steps or steps[-1][1] != state:
            steps.append((second, state))
    return tuple(steps)
