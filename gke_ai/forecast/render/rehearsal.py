"""A forecast in tables and remarks, for the terminal and for the report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from decimal import ROUND_HALF_UP, Decimal

from gke_ai.catalog.machines.capacity import title_of
from gke_ai.forecast.outcome.reasons import why_evicted
from gke_ai.forecast.render.measures import duration
from gke_ai.forecast.result import forecast as results
from gke_ai.forecast.result.forecast import Accelerators, Forecast, Stake, Wait
from gke_ai.formats.sentences import plural
from gke_ai.kube.blocks import block_rows
from gke_ai.kube.names import WorkloadName
from gke_ai.workspace.prices import Prices

Row = tuple[str, ...]
TableParts = tuple[str, Row, list[Row]]
# With more waits, the table lists only those that the change causes.
MAX_WAITS = 12
# As many workloads of one queue that wait for the same have a row each; more have one together.
MAX_ALIKE = 3
PASSES = "none: passes the queue"
OUT = "out at the end"


def tables(forecast: Forecast, prices: Prices | None = None) -> list[TableParts]:
    """Returns the tables that have rows: title, columns and rows."""
    nodes = [item for item in forecast.nodes if item.came or item.went or item.accelerator]
    everything: list[tuple[str, Row, Iterable[Row]]] = [
        ("Evicted", ("workload", "queue", "priority", "flavor", "after", "why"), map(_evicted, forecast.evictions)),
        ("Started", ("workload", "queue", "priority", "flavor", "after", "waited"), map(_started, forecast.starts)),
        ("Waiting at the end", ("workload", "queue", "priority", "since", "waits for"), _waits(shown_waits(forecast))),
        (
            "Over quota at the end",
            ("cluster queues", "flavor", "resource", "since", "used", "quota"),
            map(_over_quota, forecast.over_quota),
        ),
        ("Shares", ("queue or cohort", "weight", "Kueue's share", "lends", "owes"), map(_share, forecast.shares)),
        ("Ended", ("workload", "how", "after"), map(_ended, forecast.ends)),
        (
            "Interrupted",
            ("workload", "pods", "times", "first after", "for", "why"),
            map(_interrupted, forecast.interruptions),
        ),
        ("Servers", ("server", "queue", "replicas", "ready", "fewest ready", "for"), map(_server, forecast.servers)),
        ("Nodes", ("pool", "machine", "capacity", "before", "added", "removed", "after"), map(_nodes, nodes)),
        ("Blocks", ("block", "before", "pods before", "after", "pods after"), _blocks(forecast)),
        _accelerators(forecast.accelerators, prices, forecast.horizon),
        _stakes(forecast.stakes, prices),
    ]
    listed = ((title, columns, list(rows)) for title, columns, rows in everything)
    return [(title, columns, rows) for title, columns, rows in listed if rows]


def _evicted(item: results.Eviction) -> Row:
    why = why_evicted(item.reason, item.cause, item.preemptor)
    return named(item.workload, item.count), item.queue, str(item.priority), item.flavor, clock(item.seconds), why


def _started(item: results.Start) -> Row:
    queue, after, waited = item.queue or PASSES, clock(item.seconds), clock(item.waited)
    return named(item.workload, item.count), queue, str(item.priority), item.flavor, after, waited


def _over_quota(item: results.OverQuota) -> Row:
    since = "before the change" if item.before else "the change"
    return item.queues, item.flavor, item.resource, since, item.used, item.quota


def _share(item: results.Share) -> Row:
    weight, share = _moved(item.weight_before, item.weight_after), _moved(item.share_before, item.share_after)
    return item.name, weight, share, item.lends or "–", item.owes or "–"


def _ended(item: results.End) -> Row:
    return named(item.workload, item.count), item.how, clock(item.seconds)


def _interrupted(item: results.Interruption) -> Row:
    lasted = OUT if item.missing else clock(item.lasted)
    return str(item.workload), str(item.pods), str(item.times), clock(item.seconds), lasted, item.cause


def _server(item: results.Server) -> Row:
    replicas, ready = _moved(item.wanted_before, item.wanted_after), _moved(item.ready_before, item.ready_after)
    lasted = OUT if item.is_degraded and item.is_out else clock(item.below) if item.below else "–"
    return item.name, item.queue, replicas, ready, str(item.fewest), lasted


def _nodes(item: results.Nodes) -> Row:
    counts = map(str, (item.before, item.came, item.went, item.after))
    return item.pool, item.machine, title_of(item.capacity), *counts


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
        nodes = _moved(entry.nodes_before * entry.per_node, entry.nodes_after * entry.per_node)
        before, after = (round(of * entry.per_node, 1) for of in (entry.node_hours_before, entry.node_hours_after))
        used = _moved(entry.used_before, entry.used_after)
        row: Row = (entry.accelerator, title_of(entry.capacity), entry.machine, nodes, used, _moved(before, after))
        rows.append((*row, *_costs(entry, prices)) if prices else row)
    money = (f"{prices.currency} per hour", "of them idle") if prices else ()
    return "Accelerators", (*columns, *money), rows


def _costs(entry: Accelerators, prices: Prices) -> tuple[str, str]:
    """The cost per hour of the nodes, and of their accelerators that no pod uses, before and after."""
    price = prices.of(entry.machine, entry.capacity)
    if price is None:
        return prices.gap(f"{entry.machine}/{entry.capacity}"), "–"
    nodes = [(entry.nodes_before, entry.used_before), (entry.nodes_after, entry.used_after)]
    of_all = [_money(count * price) for count, _ in nodes]
    idle = [_money(max(Decimal(0), (count - Decimal(used) / entry.per_node) * price)) for count, used in nodes]
    return _moved(*of_all), _moved(*idle)


def _stakes(entries: Sequence[Stake], prices: Prices | None) -> TableParts:
    columns: Row = ("run", "accelerators", "capacity", "machine", "ran for", "accelerator-hours")
    rows = []
    for entry in entries:
        accelerators, hours = f"{entry.accelerators} {entry.accelerator}", f"{entry.hours:.2f}"
        row: Row = (str(entry.workload), accelerators, title_of(entry.capacity), entry.machine)
        row = (*row, duration(entry.seconds), hours)
        rows.append((*row, _cost(entry, prices)) if prices else row)
    return "Work that can be lost", (*columns, *((prices.currency,) if prices else ())), rows


def _cost(entry: Stake, prices: Prices) -> str:
    """What the accelerator-hours of a run cost."""
    price = prices.of(entry.machine, entry.capacity)
    if price is None:
        return prices.gap(f"{entry.machine}/{entry.capacity}")
    return _money(Decimal(str(entry.hours)) / entry.per_node * price)


def _money(amount: Decimal) -> str:
    return f"{amount.quantize(Decimal('0.01'), ROUND_HALF_UP):,}"


def remarks(forecast: Forecast, prices: Prices | None = None) -> list[str]:
    """Returns what a reader must know of the result: whether it settled, how time ran, what differs, and prices."""
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
    priced = [("", f"{entry.machine}/{entry.capacity}") for entry in forecast.accelerators]
    money = prices.remarks(priced) if prices else []
    lost = (
        "A run that stops keeps what its checkpoints hold, and loses the rest of its work." if forecast.stakes else ""
    )
    return [line for line in (refused, settled, f"{time}.", origin, others, lost, *forecast.notes, *money) if line]


def sources(forecast: Forecast) -> TableParts:
    """Returns the durations on Google Cloud that the rehearsal used."""
    rows: list[Row] = [(d.step, d.of or "–", clock(d.seconds), d.source) for d in forecast.durations]
    return "Durations on Google Cloud", ("step", "of", "takes", "source"), rows


def named(workload: WorkloadName, replicas: int) -> str:
    """Returns the name of a workload, with the number of its replicas."""
    return f"{workload} ({replicas} replicas)" if replicas > 1 else str(workload)


def _moved(before: object, after: object) -> str:
    return str(before) if before == after else f"{'–' if before == '' else before} → {'–' if after == '' else after}"


def clock(seconds: int) -> str:
    """Formats a time: `45 s`, `6 min`."""
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def minutes(seconds: int) -> str:
    """Formats a time in words, with the number that `clock` shows: `45 seconds`, `6 minutes`."""
    return plural(max(1, seconds), "second") if seconds < 120 else plural(round(seconds / 60), "minute")
