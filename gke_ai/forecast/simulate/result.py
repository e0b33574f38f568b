"""What a simulated day shows: waiting, preemptions, lost work, the use of quota and of nodes. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal

from gke_ai.forecast.simulate.availability import Capacity
from gke_ai.forecast.simulate.fleet import EXPIRED, RECLAIMED, Group
from gke_ai.forecast.simulate.giving_way import least_lost
from gke_ai.forecast.simulate.nodes import NodeKind, Nodes
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.run import Run, Span, add_means, closed
from gke_ai.forecast.simulate.shares import QueueShare, shares
from gke_ai.workspace.prices import Prices

HOUR = 3600.0
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True)
class QueueDay:
    """The day of a cluster queue. Percentiles are by name: `p50`, `p90`, `p99`, `longest`; empty if no run started.

    Attributes:
        queue: Name of the cluster queue.
        submitted: Runs that were submitted.
        never_started: Runs that still wait after everything else has ended.
        failed: Runs that were given up, as they lost their nodes again and again without reaching a checkpoint.
        unplaced: Admitted runs that no nodes can hold. They keep their quota.
        waited: Seconds from submission to first start: percentiles.
        waited_for_quota: Seconds without quota, after evictions too, of runs that started: percentiles.
        waited_for_nodes: Seconds with quota but without all nodes, of runs that started: percentiles.
        preemptions: Times that Kueue evicted a run.
        reclaims: Times that a Spot reclaim stopped a run, or delayed its start.
        expiries: Times that the end of a flex-start node's life stopped a run, or delayed its start.
        lost_hours: Accelerator-hours of work that evictions lost.
        least_lost_hours: What they would have lost with the victims of the newest checkpoints: not what Kueue does.
        lost_with_nodes_hours: Accelerator-hours of work that were lost with nodes.
        used_hours: Accelerator-hours that runs worked, lost work included.
        held_hours: Accelerator-hours of quota that runs held, waiting for nodes included.
        quota: Accelerators of the nominal quota.
        use: For each hour from the first submission: mean number of accelerators of admitted runs.
        lost_cost: Cost of the lost accelerator-hours. None if the queue's accelerators have no price, or several.
    """

    queue: str
    submitted: int
    never_started: int
    failed: int
    unplaced: int
    waited: dict[str, float]
    waited_for_quota: dict[str, float]
    waited_for_nodes: dict[str, float]
    preemptions: int
    reclaims: int
    expiries: int
    lost_hours: float
    least_lost_hours: float
    lost_with_nodes_hours: float
    used_hours: float
    held_hours: float
    quota: float
    use: list[float]
    lost_cost: float | None = None

    @property
    def all_lost_hours(self) -> float:
        """Accelerator-hours of work that were lost, to evictions and with nodes."""
        return self.lost_hours + self.lost_with_nodes_hours


@dataclass(frozen=True)
class PoolDay:
    """The day of the nodes of one pool, or of one machine and capacity mode of a compute class or of Autopilot.

    `paid_hours` is the sum of `used_hours`, `idle_hours` and `starting_hours`. All are accelerator-hours.

    Attributes:
        pool: Name of the pool or compute class; `autopilot` for nodes that GKE creates for pods.
        machine: Machine type of the nodes.
        accelerator: GPU type, or TPU accelerator as in the node label. Empty for nodes without accelerators.
        capacity: Capacity mode: `onDemand`, `spot`, `reservation`, `flexStart` or `queuedFlexStart`.
        per_node: Accelerators of a node.
        nodes: For each hour from the beginning: mean number of nodes, starting ones included.
        paid_hours: From the creation of the nodes to their deletion.
        used_hours: Held by runs, those that wait for further nodes included.
        idle_hours: Of Ready nodes, held by no run.
        starting_hours: From the creation of the nodes until they are Ready.
        node_hours: Hours of all nodes, which are paid.
        reclaims: Nodes that a Spot reclaim took.
        expired: Nodes that ended with their maximum run duration.
        refused: Nodes that were asked for while there was no capacity.
        stockout_hours: Hours of the day in which a new node could not be had.
        cost: Cost of the nodes. None if there is no price.
        currency: Currency of the cost. Empty if there is no price.
    """

    pool: str
    machine: str
    accelerator: str
    capacity: str
    per_node: int
    nodes: list[float]
    paid_hours: float
    used_hours: float
    idle_hours: float
    starting_hours: float
    node_hours: float
    reclaims: int
    expired: int
    refused: int
    stockout_hours: float
    cost: float | None = None
    currency: str = ""

    @property
    def idle_cost(self) -> float | None:
        """Cost of the idle accelerator-hours. None if there is no price."""
        return self.cost and round(self.cost * self.idle_hours / self.paid_hours, 2) if self.paid_hours else self.cost


@dataclass(frozen=True)
class Day:
    """A simulated day.

    Attributes:
        hours: Hours from the beginning of the trace to the last end.
        late: Decisions of Kueue that came after the simulated clock had moved on. More than 0: their times are wrong.
        queues: The cluster queues, in the order of the configuration.
        pools: The pools, in the order of the configuration. Empty if nodes were not simulated.
        runs: What became of each submission.
        shares: The local queues that share quota with others.
    """

    hours: float
    late: int
    queues: list[QueueDay]
    pools: list[PoolDay]
    runs: Sequence[Run]
    shares: Sequence[QueueShare] = ()


def written_run(run: Run) -> dict[str, object]:
    """Returns what became of a run, as plain data."""
    return {
        **asdict(run.row),
        "clusterQueue": run.cluster_queue,
        "admitted": run.admitted,
        "ran": run.spans,
        "waitedForQuota": round(run.waited_for_quota, 3),
        "waitedForNodes": round(run.waited_for_nodes, 3),
        "evictions": run.evictions,
        "reclaims": run.reclaims,
        "expiries": run.expiries,
        "lost": run.lost,
        "lostWithNodes": run.lost_with_nodes,
        "failed": run.failed,
        "unplaced": run.unplaced,
    }


def end_of(runs: Iterable[Run]) -> float:
    """When the last run stopped: the end of the day."""
    return max((end for run in runs for _, end in (*run.spans, *run.admitted) if end is not None), default=0.0)


def day(
    queues: Queues,
    runs: Sequence[Run],
    late: int = 0,
    pools: Sequence[PoolDay] = (),
    end: float | None = None,
    prices: Prices | None = None,
) -> Day:
    """Returns the result of a replay. By default, the day ends when the last run stops."""
    end = end_of(runs) if end is None else end
    days = []
    for name in queues.cluster_queues:
        own = [run for run in runs if run.cluster_queue == name]
        of_queue = queue_day(name, queues.quota(name, queues.accelerator(name)), own, end)
        rate = queue_rate(queues, name, prices) if prices else None
        cost = None if rate is None else round(of_queue.all_lost_hours * float(rate), 2)
        days.append(replace(of_queue, lost_cost=cost))
    return Day(round(end / HOUR, 3), late, days, [*pools], runs, shares(runs, queues, end))


def queue_day(name: str, quota: float, runs: Sequence[Run], end: float) -> QueueDay:
    """Returns the day of a cluster queue with these runs, until a time of the simulated clock."""
    started = [run for run in runs if run.spans]
    return QueueDay(
        queue=name,
        submitted=len(runs),
        never_started=len(runs) - len(started),
        failed=sum(run.failed for run in runs),
        unplaced=sum(bool(run.unplaced) for run in runs),
        waited=percentiles(run.spans[0][0] - run.row.time for run in started),
        waited_for_quota=percentiles(run.waited_for_quota for run in started),
        waited_for_nodes=percentiles(run.waited_for_nodes for run in started),
        preemptions=sum(run.evictions for run in runs),
        reclaims=sum(run.reclaims for run in runs),
        expiries=sum(run.expiries for run in runs),
        lost_hours=round(sum(run.lost * run.accelerators for run in runs) / HOUR, 3),
        least_lost_hours=round(least_lost(runs) / HOUR, 3),
        lost_with_nodes_hours=round(sum(run.lost_with_nodes * run.accelerators for run in runs) / HOUR, 3),
        used_hours=round(sum(_hours(run.spans, end) * run.accelerators for run in runs), 3),
        held_hours=round(sum(_hours(run.admitted, end) * run.accelerators for run in runs), 3),
        quota=quota,
        use=[round(mean, 3) for mean in by_hour(((run.admitted, run.accelerators) for run in runs), end)],
    )


def queue_rate(queues: Queues, name: str, prices: Prices) -> Decimal | None:
    """Returns the price of an accelerator-hour of a cluster queue; None if it has none, or several."""
    nodes = Nodes(queues.stack)
    kinds = [kind for quota in queues.cluster_queues[name].quotas for kind in nodes.of(quota.section.flavor)]
    rates = {_rate(kind, prices) for kind in kinds if kind.accelerator}
    return rates.pop() if len(rates) == 1 else None


def _rate(kind: NodeKind, prices: Prices) -> Decimal | None:
    price, per_node = prices.of(kind.machine, kind.mode), int(kind.room.accelerators)
    return price / per_node if price is not None and per_node else prices.of(kind.accelerator, kind.mode)


def pool_day(group: Group, capacity: Capacity, end: float, prices: Prices | None = None) -> PoolDay:
    """Returns the day of nodes of one kind, until its end."""
    kind = group.kind
    units = [unit for unit in (*group.gone, *group.units) if unit.created < end]
    spans = [(max(0.0, unit.created), unit.gone) for unit in units]
    starting = sum(
        (min(unit.ready, end if unit.gone is None else unit.gone) - unit.created) * unit.accelerators
        for unit in units
        if unit.created >= 0
    )
    node_hours = sum(_hours([span], end) for span in spans) * kind.hosts
    paid = node_hours * kind.room.accelerators
    price = prices.of(kind.machine, kind.mode) if prices else None
    by_accelerator = prices.of(kind.accelerator, kind.mode) if prices else None
    cost = node_hours * float(price) if price is not None else None
    if cost is None and by_accelerator is not None:
        cost = paid * float(by_accelerator)
    return PoolDay(
        pool=kind.pool,
        machine=kind.machine,
        accelerator=kind.accelerator,
        capacity=kind.mode,
        per_node=kind.room.accelerators,
        nodes=[round(mean, 3) for mean in by_hour((((span,), kind.hosts) for span in spans), end)],
        paid_hours=round(paid, 3),
        used_hours=round(sum(unit.used for unit in units) / HOUR, 3),
        idle_hours=round(sum(unit.idle for unit in units) / HOUR, 3),
        starting_hours=round(starting / HOUR, 3),
        node_hours=round(node_hours, 3),
        reclaims=sum(unit.reason == RECLAIMED for unit in group.gone if unit.gone == unit.ends) * kind.hosts,
        expired=sum(unit.reason == EXPIRED for unit in group.gone if unit.gone == unit.ends) * kind.hosts,
        refused=group.refused,
        stockout_hours=round(capacity.stock_out(kind.machine, kind.mode, kind.zones, end) / HOUR, 3),
        cost=None if cost is None else round(cost, 2),
        currency=prices.currency if prices and cost is not None else "",
    )


def percentiles(values: Iterable[float]) -> dict[str, float]:
    """Returns the percentiles of the result by name, and the largest value. Empty without values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    named = {f"p{percent}": percentile(ordered, percent) for percent in PERCENTILES}
    return {name: round(value, 3) for name, value in {**named, "longest": ordered[-1]}.items()}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """Returns the smallest value that at least so many percent of the values do not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def by_hour(weighted: Iterable[tuple[Sequence[Span], float]], end: float) -> list[float]:
    """Returns the mean weight of the spans in each hour until the end of the day."""
    hours = [0.0] * math.ceil(end / HOUR)
    for spans, weight in weighted:
        add_means(hours, closed(spans, end), HOUR, weight)
    return hours


def _hours(spans: Sequence[Span], end: float) -> float:
    return sum(stop - start for start, stop in closed(spans, end)) / HOUR
