"""A forecast in words and tables, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal
from math import ceil

from forecast.model import Accelerators, Eviction, Forecast, Nodes, Server, Wait
from forecast.queue import SERVER
from forecast.reasons import why_evicted
from report.interruptions import join_names
from report.prices import Prices

Row = tuple[str, ...]
TableParts = tuple[str, Row, list[Row]]
# With more waits, the table lists only those that the change causes.
MAX_WAITS = 12
MODES = {"onDemand": "on-demand", "spot": "Spot", "flexStart": "flex-start", "queuedFlexStart": "queued flex-start"}


def sentence(forecast: Forecast) -> str:
    """Returns what merging the change does, in one sentence."""
    parts = [
        *_evictions(forecast.evictions),
        *(_degraded(server) for server in forecast.servers if is_degraded(server)),
        *_interruptions(forecast),
        *_waiting(forecast),
        *_asked(forecast.nodes),
    ]
    if not parts:
        return "Merging this changes nothing in the queue, and no server loses a ready replica."
    unsettled = "" if forecast.settled else f" The cluster had not settled after {minutes(forecast.seconds)}."
    return f"Merging this {join_names(parts)}.{unsettled}"


def _evictions(evictions: Sequence[Eviction]) -> Iterator[str]:
    runs = len({eviction.workload for eviction in evictions if SERVER not in eviction.workload})
    replicas = sum(eviction.count for eviction in evictions if SERVER in eviction.workload)
    if names := [plural(count, noun) for count, noun in ((runs, "run"), (replicas, "replica")) if count]:
        yield f"evicts {' and '.join(names)}"


def is_degraded(server: Server) -> bool:
    """Whether a server has fewer ready replicas meanwhile than both before and after need."""
    return server.below > 0


def _degraded(server: Server) -> str:
    name = server.name.rpartition("/")[2]
    needed = min(server.wanted_before, server.wanted_after)
    return f"keeps {server.fewest} of {needed} replicas of {name} for {minutes(server.below)}"


def _interruptions(forecast: Forecast) -> Iterator[str]:
    runs = {entry.workload for entry in forecast.interruptions if SERVER not in entry.workload}
    if runs:
        yield f"restarts {plural(len(runs), 'run')}"


def _waiting(forecast: Forecast) -> Iterator[str]:
    evicted = {eviction.workload for eviction in forecast.evictions}
    waiting = sum(wait.count for wait in forecast.waits if not wait.before and wait.workload not in evicted)
    if waiting:
        yield f"leaves {plural(waiting, 'workload')} waiting"


def _asked(pools: Sequence[Nodes]) -> Iterator[str]:
    by_mode: dict[str, int] = {}
    for pool in pools:
        by_mode[pool.capacity] = by_mode.get(pool.capacity, 0) + pool.came
    for mode, came in sorted(by_mode.items()):
        if came:
            yield f"asks for {plural(came, f'{MODES.get(mode, mode)} node')}"
    if (gone := sum(pool.went for pool in pools)) and not any(by_mode.values()):
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
            "Ended",
            ("workload", "how", "after"),
            [(named(e.workload, e.count), e.how, clock(e.seconds)) for e in forecast.ends],
        ),
        (
            "Interrupted",
            ("workload", "pods", "after", "why"),
            [(i.workload, str(i.pods), clock(i.seconds), i.cause) for i in forecast.interruptions],
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
                    MODES.get(n.capacity, n.capacity),
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
            MODES.get(entry.capacity, entry.capacity),
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
    return [line for line in (settled, f"{time}.", origin, others, *forecast.notes) if line]


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
    """Formats a time in whole minutes, rounded up: `1 minute`."""
    return plural(max(1, ceil(seconds / 60 - 0.2)), "minute")


def plural(count: int, noun: str) -> str:
    """Formats a count with its noun."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
