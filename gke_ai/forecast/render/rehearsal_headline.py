"""The first sentence of a rehearsal's result: every kind of event that its tables list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from gke_ai.catalog.machines.capacity import title_of
from gke_ai.forecast.outcome.interruptions import CHANGED
from gke_ai.forecast.outcome.reasons import NO_NODE
from gke_ai.forecast.render.rehearsal import minutes
from gke_ai.forecast.result import forecast as results
from gke_ai.forecast.result.forecast import Forecast, Server
from gke_ai.formats.sentences import join_names, plural
from gke_ai.kube.names import WorkloadName

Change = results.Eviction | results.Start | results.Wait | results.End


def sentence(forecast: Forecast) -> str:
    """Returns what merging the change does, in one sentence with every kind of event that the tables list."""
    servers = forecast.servers
    parts = [
        *_removed([server for server in servers if server.wanted_before and not server.wanted_after]),
        *_never(forecast.waits),
        *_evictions(forecast),
        *(_degraded(server) for server in servers if server.is_degraded),
        *_ends(forecast),
        *_interruptions(forecast),
        *_waiting(forecast),
        *_over_quota(forecast.over_quota),
        *([f"leaves {join_names([*forecast.terminating])} terminating"] if forecast.terminating else []),
        *_starts(forecast),
        *(_added(server) for server in servers if server.wanted_after and not server.wanted_before),
        *(part for server in servers if server.wanted_before and server.wanted_after for part in _scaled(server)),
    ]
    # Only workloads without a queue use other accelerators without one of these parts.
    parts += [] if parts else _used(forecast.accelerators)
    parts += _asked(forecast.nodes)
    merged = join_names(parts) or "changes nothing in the queue, and no server loses a ready replica"
    unsettled = "" if forecast.settled else f" The cluster had not settled after {minutes(forecast.seconds)}."
    if forecast.refused:
        return f"The change is refused when a part of it is applied already: that part {merged}.{unsettled}"
    subject = f"T{forecast.change[1:]}" if forecast.upgrade else "Merging this"
    return f"{subject} {merged}.{unsettled}"


def _counted(runs: int, replicas: int) -> str:
    return " and ".join(plural(count, noun) for count, noun in ((runs, "run"), (replicas, "replica")) if count)


def _runs(entries: Iterable[Change | results.Interruption]) -> set[WorkloadName]:
    return {entry.workload for entry in entries if not entry.workload.has_replicas}


def _counts(entries: Iterable[Change]) -> Counter[WorkloadName]:
    counts: Counter[WorkloadName] = Counter()
    for entry in entries:
        counts[entry.workload] += entry.count
    return counts


def _replicas(entries: Iterable[Change]) -> Counter[WorkloadName]:
    return _counts(entry for entry in entries if entry.workload.has_replicas)


def _replaced(forecast: Forecast) -> Counter[WorkloadName]:
    """Replicas that a rollout or a drain replaces: they are interrupted and ready again, or end while others start."""
    interrupted: Counter[WorkloadName] = Counter()
    for entry in forecast.interruptions:
        interrupted[entry.workload] += entry.pods - entry.missing if entry.workload.has_replicas else 0
    started = _replicas(forecast.starts) - _replicas(forecast.evictions)
    return interrupted | (started & _replicas(forecast.ends))


def _removed(servers: Sequence[Server]) -> Iterator[str]:
    if servers:
        names = f"{'server' if len(servers) == 1 else 'servers'} {join_names([_short(server) for server in servers])}"
        ready = sum(server.ready_before for server in servers)
        yield f"removes {names} ({plural(ready, 'ready replica')})"


def _never(waits: Sequence[results.Wait]) -> Iterator[str]:
    never = [wait for wait in waits if wait.never and not wait.before]
    if counted := _counted(len(_runs(never)), _replicas(never).total()):
        yield f"means that {counted} can never start"


def _evictions(forecast: Forecast) -> Iterator[str]:
    evictions = forecast.evictions
    if evicted := _counted(len(_runs(evictions)), _replicas(evictions).total()):
        waiting = (_counts(_new(forecast)) & _counts(evictions)).total()
        wait = f" ({waiting} {'waits' if waiting == 1 else 'wait'} at the end)" if waiting else ""
        yield f"evicts {evicted}{wait}"


def _new(forecast: Forecast) -> list[results.Wait]:
    """The workloads that wait for quota because of the change, and can start later."""
    return [w for w in forecast.waits if not (w.before or w.otherwise or w.never or w.reason == NO_NODE)]


def _degraded(server: Server) -> str:
    lasted = f"({server.ready_after} at the end)" if server.is_out else f"for {minutes(server.below)}"
    return f"keeps {server.fewest} of {server.needed} replicas of {_short(server)} {lasted}"


def _ends(forecast: Forecast) -> Iterator[str]:
    kinds = sorted({end.how for end in forecast.ends})
    ends = {how: _runs(end for end in forecast.ends if end.how == how) for how in kinds}
    replicas = (_replicas(forecast.ends) - _replaced(forecast)).total()
    if deleted := _counted(len(ends.pop("Deleted", ())), replicas):
        yield f"deletes {deleted}"
    yield from (f"ends {plural(len(runs), 'run')} ({how.lower()})" for how, runs in ends.items() if runs)


def _interruptions(forecast: Forecast) -> Iterator[str]:
    evicted = _runs(forecast.evictions)  # it counts as evicted alone
    out = _runs(entry for entry in forecast.interruptions if entry.missing) - evicted
    if runs := _runs(forecast.interruptions) - out - evicted:
        often = sum(entry.times for entry in forecast.interruptions if entry.workload in runs)
        yield f"restarts {plural(len(runs), 'run')}{f' ({often} times)' if often > len(runs) else ''}"
    if out:
        yield f"interrupts {plural(len(out), 'run')} (out at the end)"
    if replicas := _replaced(forecast).total():
        yield f"replaces {plural(replicas, 'replica')}"


def _waiting(forecast: Forecast) -> Iterator[str]:
    evicted = _counts(forecast.evictions)
    if waiting := (_counts(_new(forecast)) - evicted).total():
        yield f"leaves {plural(waiting, 'workload')} waiting"
    if otherwise := sum(wait.count for wait in forecast.waits if wait.otherwise and not wait.never):
        yield f"makes {plural(otherwise, 'waiting workload')} wait for another reason"
    pending = (wait for wait in forecast.waits if wait.reason == NO_NODE and not wait.before)
    if count := sum(wait.count for wait in pending):
        yield f"leaves {plural(count, 'workload')} waiting for nodes"


def _over_quota(entries: Sequence[results.OverQuota]) -> Iterator[str]:
    if queues := sorted({entry.queues for entry in entries if not entry.before}):
        yield f"leaves {join_names(queues)} over the quota"


def _starts(forecast: Forecast) -> Iterator[str]:
    stopped: dict[WorkloadName, int] = {}
    stops = [(entry.workload, entry.seconds) for entry in forecast.evictions]
    stops += [(entry.workload, entry.seconds) for entry in forecast.interruptions if entry.cause == CHANGED]
    for workload, seconds in stops:
        stopped[workload] = min(seconds, stopped.get(workload, seconds))
    again = _runs(start for start in forecast.starts if start.seconds >= stopped.get(start.workload, start.seconds + 1))
    past = _runs(start for start in forecast.starts if not start.queue)
    replicas = (_replicas(forecast.starts) - _replaced(forecast)).total()
    if started := _counted(len(_runs(forecast.starts) - again - past), replicas):
        yield f"starts {started}"
    if past:
        yield f"starts {plural(len(past), 'run')} past the queue"
    if again := again & _runs(forecast.evictions):  # the others restart
        yield f"starts {plural(len(again), 'evicted run')} again"


def _added(server: Server) -> str:
    return f"adds server {_short(server)} ({server.ready_after} of {plural(server.wanted_after, 'replica')} ready)"


def _scaled(server: Server) -> Iterator[str]:
    if server.wanted_before != server.wanted_after:
        ready = f" ({server.ready_after} ready)" if server.ready_after < server.wanted_after else ""
        moved = f"from {server.wanted_before} to {plural(server.wanted_after, 'replica')}"
        yield f"scales {_short(server)} {moved}{ready}"
    elif server.ready_before != server.ready_after and not server.is_degraded:
        yield f"changes the ready replicas of {_short(server)} from {server.ready_before} to {server.ready_after}"


def _short(server: Server) -> str:
    return server.name.rpartition("/")[2]


def _used(entries: Sequence[results.Accelerators]) -> Iterator[str]:
    for entry in entries:
        if entry.used_before != entry.used_after:
            place = f"{entry.accelerator}, {title_of(entry.capacity)}, {entry.machine}"
            yield f"changes the accelerators in use from {entry.used_before} to {entry.used_after} ({place})"


def _asked(pools: Sequence[results.Nodes]) -> Iterator[str]:
    by_mode: Counter[tuple[str, str]] = Counter()
    for pool in pools:
        by_mode[pool.capacity, "" if pool.accelerator else " without accelerators"] += pool.came
    for (mode, without), came in sorted(by_mode.items()):
        if came:
            yield f"asks for {plural(came, f'{title_of(mode)} node')}{without}"
    if gone := sum(pool.went for pool in pools):
        yield f"gives back {plural(gone, 'node')}"
