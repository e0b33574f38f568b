"""Reads a timeline: what a change does in the queue, to servers and to nodes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from catalog.objects import condition, holds
from forecast.clock import Clock, clock
from forecast.cluster import (
    accelerators,
    interruptions,
    is_server,
    nodes,
    pool_of,
    ready_steps,
    replicas,
    servers,
    waits_for_nodes,
)
from forecast.model import Duration, Forecast, Lane
from forecast.names import owner_of
from forecast.queue import SERVER, Queue, queue
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
    evictions, starts, ends = queued.evictions(), queued.starts(), queued.ends()
    waits = (*queued.waits(), *waits_for_nodes(objects))
    new_waits = [wait for wait in waits if not wait.before]
    touched = {entry.workload for entries in (evictions, starts, new_waits, ends) for entry in entries}
    return Forecast(
        stack=stack,
        change=change,
        settled=timeline.settled,
        seconds=time.seconds(timeline.ended),
        horizon=horizon,
        applied=time.seconds(timeline.applied),
        compression=compression,
        evictions=evictions,
        starts=starts,
        waits=tuple(sorted(waits)),
        ends=ends,
        interruptions=interruptions(objects, by_owner, time),
        nodes=nodes(objects),
        servers=servers(objects, time, timeline.ended),
        accelerators=accelerators(objects, time, timeline.ended, horizon, idle),
        durations=durations,
        lanes=tuple(lanes(objects, queued, time, timeline.ended, touched)),
        notes=tuple(notes),
        snapshot=snapshot,
    )


def lanes(histories: Histories, queued: Queue, time: Clock, end: float, touched: set[str]) -> Iterator[Lane]:
    """Yields the rows of the picture: runs that the change touches, servers and pools whose numbers change."""
    for name, history in queued.workloads.values():
        if name in touched and SERVER not in name:
            yield Lane("workload", name, _steps(time, _states(history)))
    for history in _by_name(histories, "Deployment"):
        if is_server(history.last):
            ready = [(at, f"{count} of {_wanted(history, at)}") for at, count in ready_steps(history, end)[:-1]]
            metadata = history.last["metadata"]
            if len({state for _, state in ready}) > 1:
                yield Lane("server", f"{metadata['namespace']}/{metadata['name']}", _steps(time, ready))
    pools = sorted({pool_of(history.last) for history in histories.get("Node", {}).values()})
    for pool in pools:
        members = [history for history in histories["Node"].values() if pool_of(history.last) == pool]
        times = sorted({0.0} | {at for history in members for at in _moments(history) if at > 0})
        counts = [(at, _nodes_at(members, at)) for at in times]
        if len({state for _, state in counts}) > 1:
            yield Lane("nodes", pool, _steps(time, counts))


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


def _moments(history: History) -> Iterator[float]:
    """The seconds at which a node comes, becomes ready and goes."""
    yield history.first
    yield from (at for at, version in history.versions if holds(version, "Ready"))
    if history.gone is not None:
        yield history.gone


def _nodes_at(members: list[History], second: float) -> str:
    present = [version for history in members if (version := history.at(second))]
    ready = sum(holds(version, "Ready") for version in present)
    return f"{ready} of {len(present)}"


def _by_name(histories: Histories, kind: str) -> list[History]:
    def name(history: History) -> tuple[str, str]:
        metadata = history.last["metadata"]
        return metadata["namespace"], metadata["name"]

    return sorted(histories.get(kind, {}).values(), key=name)


def _steps(time: Clock, states: Iterable[tuple[float, str]]) -> tuple[tuple[int, str], ...]:
    """The states with the seconds at which they begin, without repetitions; a later state at a second replaces it."""
    steps: list[tuple[int, str]] = []
    for at, state in states:
        second = time.seconds(at)
        if steps and steps[-1][0] == second:
            steps.pop()
        if not steps or steps[-1][1] != state:
            steps.append((second, state))
    return tuple(steps)
