"""A forecast in words and tables, for the terminal and for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal

from catalog.capacity import title_of
from forecast.model import Accelerators, End, Eviction, Forecast, Interruption, Nodes, OverQuota, Server, Start, Wait
from forecast.queue import SERVER
from forecast.reasons import NO_NODE, why_evicted
from report.interruptions import join_names
from report.prices import Prices

Row = tuple[str, ...]
TableParts = tuple[str, Row, list[Row]]
# With more waits, the table lists only those that the change causes.
MAX_WAITS = 12
# How the change is called if it is an upgrade (rehearse/upgrades.py).
UPGRADE = "the upgrade of "


def sentence(forecast: Forecast) -> str:
    """Returns what merging the change does, in one sentence with every kind of event that the tables list."""
    servers = forecast.servers
    parts = [
        *_removed([server for server in servers if server.wanted_before and not server.wanted_after]),
        *_evictions(forecast.evictions),
        *(_degraded(server) for server in servers if is_degraded(server)),
        *_ends(forecast),
        *_interruptions(forecast),
        *_waiting(forecast),
        *_over_quota(forecast.over_quota),
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
    subject = f"T{forecast.change[1:]}" if is_upgrade(forecast) else "Merging this"
    return f"{subject} {merged}.{unsettled}"


def is_upgrade(forecast: Forecast) -> bool:
    """Whether an upgrade was rehearsed, not a changed configuration."""
    return forecast.change.startswith(UPGRADE)


def _counted(runs: int, replicas: int) -> str:
    return " and ".join(plural(count, noun) for count, noun in ((runs, "run"), (replicas, "replica")) if count)


def _runs(entries: Iterable[Eviction | Start | End | Interruption]) -> set[str]:
    return {entry.workload for entry in entries if SERVER not in entry.workload}


def _counts(entries: Iterable[Eviction | Start | End | Wait]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for entry in entries:
        counts[entry.workload] += entry.count
    return counts


def _replicas(entries: Iterable[Eviction | Start | End]) -> Counter[str]:
    return _counts(entry for entry in entries if SERVER in entry.workload)


def _replaced(forecast: Forecast) -> Counter[str]:
    """Replicas that a rollout or a drain replaces: those that are interrupted, or that end while others start."""
    interrupted: Counter[str] = Counter()
    for entry in forecast.interruptions:
        interrupted[entry.workload] += entry.pods if SERVER in entry.workload else 0
    started = _replicas(forecast.starts) - _replicas(forecast.evictions)
    return interrupted | (started & _replicas(forecast.ends))


def _removed(servers: Sequence[Server]) -> Iterator[str]:
    if servers:
        names = f"{'server' if len(servers) == 1 else 'servers'} {join_names([_short(server) for server in servers])}"
        ready = sum(server.ready_before for server in servers)
        yield f"removes {names} ({plural(ready, 'ready replica')})"


def _evictions(evictions: Sequence[Eviction]) -> Iterator[str]:
    if evicted := _counted(len(_runs(evictions)), _replicas(evictions).total()):
        yield f"evicts {evicted}"


def is_degraded(server: Server) -> bool:
    """Whether a server has fewer ready replicas meanwhile than it had, and than both before and after need."""
    return server.fewest < min(server.ready_before, server.wanted_before, server.wanted_after)


def _degraded(server: Server) -> str:
    needed = min(server.wanted_before, server.wanted_after)
    lasting = f" ({server.ready_after} at the end)" if server.ready_after < needed else ""
    return f"keeps {server.fewest} of {needed} replicas of {_short(server)} for {minutes(server.below)}{lasting}"


def _ends(forecast: Forecast) -> Iterator[str]:
    ends = {
        how: _runs(end for end in forecast.ends if end.how == how) for how in sorted({e.how for e in forecast.ends})
    }
    replicas = (_replicas(forecast.ends) - _replaced(forecast)).total()
    if deleted := _counted(len(ends.pop("Deleted", ())), replicas):
        yield f"deletes {deleted}"
    yield from (f"ends {plural(len(runs), 'run')} ({how.lower()})" for how, runs in ends.items() if runs)


def _interruptions(forecast: Forecast) -> Iterator[str]:
    if runs := _runs(forecast.interruptions):
        often = sum(entry.times for entry in forecast.interruptions if entry.workload in runs)
        yield f"restarts {plural(len(runs), 'run')}{f' ({often} times)' if often > len(runs) else ''}"
    if replicas := _replaced(forecast).total():
        yield f"replaces {plural(replicas, 'replica')}"


def _waiting(forecast: Forecast) -> Iterator[str]:
    caused = [wait for wait in forecast.waits if not wait.before]
    queued = _counts(wait for wait in caused if wait.reason != NO_NODE)
    evicted = _counts(forecast.evictions) - _counts(forecast.starts)
    if waiting := (queued - evicted).total():
        yield f"leaves {plural(waiting, 'workload')} waiting"
    if pending := sum(wait.count for wait in caused if wait.reason == NO_NODE):
        yield f"leaves {plural(pending, 'workload')} waiting for nodes"


def _over_quota(entries: Sequence[OverQuota]) -> Iterator[str]:
    if queues := sorted({entry.queues for entry in entries if not entry.before}):
        yield f"leaves {join_names(queues)} over the quota"


def _starts(forecast: Forecast) -> Iterator[str]:
    evicted: dict[str, int] = {}
    for eviction in forecast.evictions:
        evicted[eviction.workload] = min(eviction.seconds, evicted.get(eviction.workload, eviction.seconds))
    again = _runs(start for start in forecast.starts if start.seconds >= evicted.get(start.workload, start.seconds + 1))
    replicas = (_replicas(forecast.starts) - _replaced(forecast)).total()
    if started := _counted(len(_runs(forecast.starts) - again), replicas):
        yield f"starts {started}"
    if again:
        yield f"starts {plural(len(again), 'evicted run')} again"


def _added(server: Server) -> str:
    return f"adds server {_short(server)} ({server.ready_after} of {plural(server.wanted_after, 'replica')} ready)"


def _scaled(server: Server) -> Iterator[str]:
    if server.wanted_before != server.wanted_after:
        ready = f" ({server.ready_after} ready)" if server.ready_after < server.wanted_after else ""
        moved = f"from {server.wanted_before} to {plural(server.wanted_after, 'replica')}"
        yield f"scales {_short(server)} {moved}{ready}"
    elif server.ready_before != server.ready_after and not is_degraded(server):
        yield f"changes the ready replicas of {_short(server)} from {server.ready_before} to {server.ready_after}"


def _short(server: Server) -> str:
    return server.name.rpartition("/")[2]


def _used(entries: Sequence[Accelerators]) -> Iterator[str]:
    for entry in entries:
        if entry.used_before != entry.used_after:
            place = f"{entry.accelerator}, {title_of(entry.capacity)}, {entry.machine}"
            yield f"changes the accelerators in use from {entry.used_before} to {entry.used_after} ({place})"


def _asked(pools: Sequence[Nodes]) -> Iterator[str]:
    by_mode: Counter[tuple[str, str]] = Counter()
    for pool in pools:
        by_mode[pool.capacity, "" if pool.accelerator else " without accelerators"] += pool.came
    for (mode, without), came in sorted(by_mode.items()):
        if came:
            yield f"asks for {plural(came, f'{title_of(mode)} node')}{without}"
    if gone := sum(pool.went for pool in pools):
        yield f"gives back {plural(gone, 'node')}"


def tables(forecast: Forecast, prices: Prices | None = None) -> list[TableParts]:
    """Returns the tables that have rows: title, columns and rows."""
    all_tables: list[TableParts] = [
        (
            "Evicted",
            ("workload", "queue", "priority", "flavor", "after", "why"),
            [
                (
                    named(e.workload, e.count),
                    e.queue,
                    str(e.priority),
                    e.flavor,
                    clock(e.seconds),
                    why_evicted(e.reason, e.cause, e.preemptor),
                )
                for e in forecast.evictions
            ],
        ),
        (
            "Started",
            ("workload", "queue", "priority", "flavor", "after", "waited"),
            [
                (named(s.workload, s.count), s.queue, str(s.priority), s.flavor, clock(s.seconds), clock(s.waited))
                for s in forecast.starts
            ],
        ),
        (
            "Waiting at the end",
            ("workload", "queue", "priority", "since", "waits for"),
            [
                (
                    named(w.workload, w.count),
                    w.queue,
                    str(w.priority),
                    "before the change" if w.before else "the change",
                    w.text,
                )
                for w in shown_waits(forecast)
            ],
        ),
        (
            "Over quota at the end",
            ("cluster queues", "flavor", "resource", "since", "used", "quota"),
            [
                (q.queues, q.flavor, q.resource, "before the change" if q.before else "the change", q.used, q.quota)
                for q in forecast.over_quota
            ],
        ),
        (
            "Ended",
            ("workload", "how", "after"),
            [(named(e.workload, e.count), e.how, clock(e.seconds)) for e in forecast.ends],
        ),
        (
            "Interrupted",
            ("workload", "pods", "times", "first after", "for", "why"),
            [
                (i.workload, str(i.pods), str(i.times), clock(i.seconds), clock(i.lasted), i.cause)
                for i in forecast.interruptions
            ],
        ),
        (
            "Servers",
            ("server", "queue", "replicas", "ready", "fewest ready", "for"),
            [
                (
                    s.name,
                    s.queue,
                    _moved(s.wanted_before, s.wanted_after),
                    _moved(s.ready_before, s.ready_after),
                    str(s.fewest),
                    clock(s.below) if s.below else "–",
                )
                for s in forecast.servers
            ],
        ),
        (
            "Nodes",
            ("pool", "machine", "capacity", "before", "come", "go", "after"),
            [
                (
                    n.pool,
                    n.machine,
                    title_of(n.capacity),
                    str(n.before),
                    str(n.came),
                    str(n.went),
                    str(n.after),
                )
                for n in forecast.nodes
                if n.came or n.went or n.accelerator
            ],
        ),
        _accelerators(forecast.accelerators, prices, forecast.horizon),
    ]
    return [(title, columns, rows) for title, columns, rows in all_tables if rows]


def shown_waits(forecast: Forecast) -> list[Wait]:
    """Returns the waits that the table lists: all if they are few, else those that the change causes."""
    if len(forecast.waits) <= MAX_WAITS:
        return list(forecast.waits)
    return [wait for wait in forecast.waits if not wait.before]


def _accelerators(entries: Sequence[Accelerators], prices: Prices | None, horizon: int) -> TableParts:
    hours = f"accelerator-hours in {minutes(horizon)}"
    columns: Row = ("accelerator", "capacity", "machine", "on nodes", "in use", hours)
    rows = []
    for entry in entries:
        row: Row = (
            entry.accelerator,
            title_of(entry.capacity),
            entry.machine,
            _moved(entry.nodes_before * entry.per_node, entry.nodes_after * entry.per_node),
            _moved(entry.used_before, entry.used_after),
            _moved(
                round(entry.node_hours_before * entry.per_node, 1), round(entry.node_hours_after * entry.per_node, 1)
            ),
        )
        rows.append((*row, _cost(entry, prices)) if prices else row)
    return "Accelerators", (*columns, f"{prices.currency} per hour") if prices else columns, rows


def _cost(entry: Accelerators, prices: Prices) -> str:
    price = prices.of(entry.machine, entry.capacity)
    if price is None:
        return "no price"
    before, after = (
        (nodes * price).quantize(Decimal("0.01"), ROUND_HALF_UP) for nodes in (entry.nodes_before, entry.nodes_after)
    )
    return _moved(f"{before:,}", f"{after:,}")


def remarks(forecast: Forecast) -> list[str]:
    """Returns what a reader must know of the result: whether it settled, how time ran, and what differs."""
    settled = (
        f"Settled {minutes(forecast.seconds)} after the change began."
        if forecast.settled
        else f"Not settled {minutes(forecast.seconds)} after the change began: this is an intermediate state."
    )
    time = "Time is that of Google Cloud"
    if forecast.compression != 1:
        time += (
            f": its durations ran {forecast.compression:g} times as fast, and Kueue and the scheduler decided at "
            "their own speed"
        )
    origin = f"The cluster was brought to the state of {forecast.snapshot}." if forecast.snapshot else ""
    hidden = sum(wait.count for wait in forecast.waits) - sum(wait.count for wait in shown_waits(forecast))
    others = f"{plural(hidden, 'more workload')} waited before the change and still wait." if hidden else ""
    refused = f"The change is refused: {forecast.refused}" if forecast.refused else ""
    return [line for line in (refused, settled, f"{time}.", origin, others, *forecast.notes) if line]


def sources(forecast: Forecast) -> TableParts:
    """Returns the durations on Google Cloud that the rehearsal used."""
    rows: list[Row] = [(d.step, d.of or "–", clock(d.seconds), d.source) for d in forecast.durations]
    return "Durations on Google Cloud", ("step", "of", "takes", "source"), rows


def named(workload: str, replicas: int) -> str:
    """Returns the name of a workload, with the number of its replicas."""
    return f"{workload} ({replicas} replicas)" if replicas > 1 else workload


def _moved(before: object, after: object) -> str:
    return str(before) if before == after else f"{before} → {after}"


def clock(seconds: int) -> str:
    """Formats a time: `45 s`, `6 min`."""
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def minutes(seconds: int) -> str:
    """Formats a time in words, with the number that `clock` shows: `45 seconds`, `6 minutes`."""
    return plural(max(1, seconds), "second") if seconds < 120 else plural(round(seconds / 60), "minute")


def plural(count: int, noun: str) -> str:
    """Formats a count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
