"""A forecast in tables and remarks, for the terminal and for the report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import TypeVar

from gke_ai.catalog.machines.capacity import title_of
from gke_ai.forecast.outcome.reasons import why_evicted
from gke_ai.forecast.result.forecast import (
    Accelerators,
    End,
    Eviction,
    Forecast,
    Interruption,
    Nodes,
    OverQuota,
    Server,
    Start,
    Wait,
)
from gke_ai.formats.sentences import plural
from gke_ai.kube.blocks import block_rows
from gke_ai.kube.names import WorkloadName
from gke_ai.workspace.prices import Prices

Item = TypeVar("Item")
Row = tuple[str, ...]
TableParts = tuple[str, Row, list[Row]]
# With more waits, the table lists only those that the change causes.
MAX_WAITS = 12
# As many workloads of one queue that wait for the same have a row each; more have one together.
MAX_ALIKE = 3
PASSES = "none: passes the queue"
OUT = "out at the end"


# The columns of a table, each with its text for an item.
_EVICTED: Mapping[str, Callable[[Eviction], str]] = {
    "workload": lambda item: named(item.workload, item.count),
    "queue": lambda item: item.queue,
    "priority": lambda item: str(item.priority),
    "flavor": lambda item: item.flavor,
    "after": lambda item: clock(item.seconds),
    "why": lambda item: why_evicted(item.reason, item.cause, item.preemptor),
}
_STARTED: Mapping[str, Callable[[Start], str]] = {
    "workload": lambda item: named(item.workload, item.count),
    "queue": lambda item: item.queue or PASSES,
    "priority": lambda item: str(item.priority),
    "flavor": lambda item: item.flavor,
    "after": lambda item: clock(item.seconds),
    "waited": lambda item: clock(item.waited),
}
_OVER_QUOTA: Mapping[str, Callable[[OverQuota], str]] = {
    "cluster queues": lambda item: item.queues,
    "flavor": lambda item: item.flavor,
    "resource": lambda item: item.resource,
    "since": lambda item: "before the change" if item.before else "the change",
    "used": lambda item: item.used,
    "quota": lambda item: item.quota,
}
_ENDED: Mapping[str, Callable[[End], str]] = {
    "workload": lambda item: named(item.workload, item.count),
    "how": lambda item: item.how,
    "after": lambda item: clock(item.seconds),
}
_INTERRUPTED: Mapping[str, Callable[[Interruption], str]] = {
    "workload": lambda item: str(item.workload),
    "pods": lambda item: str(item.pods),
    "times": lambda item: str(item.times),
    "first after": lambda item: clock(item.seconds),
    "for": lambda item: OUT if item.missing else clock(item.lasted),
    "why": lambda item: item.cause,
}
_SERVERS: Mapping[str, Callable[[Server], str]] = {
    "server": lambda item: item.name,
    "queue": lambda item: item.queue,
    "replicas": lambda item: _moved(item.wanted_before, item.wanted_after),
    "ready": lambda item: _moved(item.ready_before, item.ready_after),
    "fewest ready": lambda item: str(item.fewest),
    "for": lambda item: OUT if item.is_degraded and item.is_out else clock(item.below) if item.below else "–",
}
_NODES: Mapping[str, Callable[[Nodes], str]] = {
    "pool": lambda item: item.pool,
    "machine": lambda item: item.machine,
    "capacity": lambda item: title_of(item.capacity),
    "before": lambda item: str(item.before),
    "come": lambda item: str(item.came),
    "go": lambda item: str(item.went),
    "after": lambda item: str(item.after),
}


def tables(forecast: Forecast, prices: Prices | None = None) -> list[TableParts]:
    """Returns the tables that have rows: title, columns and rows."""
    waits, blocks = list(_waits(shown_waits(forecast))), list(_blocks(forecast))
    nodes = [item for item in forecast.nodes if item.came or item.went or item.accelerator]
    all_tables: list[TableParts] = [
        _table("Evicted", _EVICTED, forecast.evictions),
        _table("Started", _STARTED, forecast.starts),
        ("Waiting at the end", ("workload", "queue", "priority", "since", "waits for"), waits),
        _table("Over quota at the end", _OVER_QUOTA, forecast.over_quota),
        _table("Ended", _ENDED, forecast.ends),
        _table("Interrupted", _INTERRUPTED, forecast.interruptions),
        _table("Servers", _SERVERS, forecast.servers),
        _table("Nodes", _NODES, nodes),
        ("Blocks", ("block", "before", "pods before", "after", "pods after"), blocks),
        _accelerators(forecast.accelerators, prices, forecast.horizon),
    ]
    return [(title, columns, rows) for title, columns, rows in all_tables if rows]


def _table(title: str, columns: Mapping[str, Callable[[Item], str]], items: Sequence[Item]) -> TableParts:
    return title, tuple(columns), [tuple(text(item) for text in columns.values()) for item in items]


def _blocks(forecast: Forecast) -> Iterator[Row]:
    """A row per block: its nodes in text and the pods of each run, before and after."""
    before, after = ({row[0]: row for row in block_rows(of)} for of in (forecast.placed_before, forecast.placed_after))
    empty = ("", "", "", "–")
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name, empty), after.get(name, empty)
        yield name, old[1], old[3], new[1], new[3]


def _waits(waits: Sequence[Wait]) -> Iterator[Row]:
    """The rows of waits: those that can never start first, and many of a queue with one reason in one row."""
    groups: dict[tuple[object, ...], list[Wait]] = defaultdict(list)
    for wait in sorted(waits, key=lambda wait: not wait.never):
        namespace = wait.workload.namespace
        groups[namespace, wait.queue, wait.reason, wait.text, wait.before, wait.otherwise, wait.never].append(wait)
    for group in groups.values():
        together = [group] if len(group) > MAX_ALIKE else [[wait] for wait in group]
        for members in together:
            first, *more = members
            name = named(first.workload, first.count) + (f" and {len(more)} more" if more else "")
            numbers = [wait.priority for wait in members]
            priorities = "–".join(map(str, sorted({min(numbers), max(numbers)})))
            text = f"{first.text}; can never start" if first.never else first.text
            yield name, first.queue, priorities, _since(first), text


def _since(wait: Wait) -> str:
    if wait.before:
        return "before the change"
    return "before, for another reason" if wait.otherwise else "the change"


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
    still = "still waits" if hidden == 1 else "still wait"
    others = f"{plural(hidden, 'more workload')} waited before the change and {still}." if hidden else ""
    refused = f"The change is refused: {forecast.refused}" if forecast.refused else ""
    return [line for line in (refused, settled, f"{time}.", origin, others, *forecast.notes) if line]


def sources(forecast: Forecast) -> TableParts:
    """Returns the durations on Google Cloud that the rehearsal used."""
    rows: list[Row] = [(d.step, d.of or "–", clock(d.seconds), d.source) for d in forecast.durations]
    return "Durations on Google Cloud", ("step", "of", "takes", "source"), rows


def named(workload: WorkloadName, replicas: int) -> str:
    """Returns the name of a workload, with the number of its replicas."""
    return f"{workload} ({replicas} replicas)" if replicas > 1 else str(workload)


def _moved(before: object, after: object) -> str:
    return str(before) if before == after else f"{before} → {after}"


def clock(seconds: int) -> str:
    """Formats a time: `45 s`, `6 min`."""
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def minutes(seconds: int) -> str:
    """Formats a time in words, with the number that `clock` shows: `45 seconds`, `6 minutes`."""
    return plural(max(1, seconds), "second") if seconds < 120 else plural(round(seconds / 60), "minute")
