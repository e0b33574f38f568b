"""The result of one or more configurations and seeds: figures, tracks for the picture, unhappiest runs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from gke_ai.catalog.machines.capacity import title_of
from gke_ai.forecast.result.simulation import (
    LOCAL,
    POOL,
    QUEUE,
    VERSION,
    Configuration,
    Figure,
    ShareTrack,
    Simulation,
    Track,
)
from gke_ai.forecast.simulate.objects import Queues
from gke_ai.forecast.simulate.result import HOUR, Day, PoolDay, QueueDay, written_run
from gke_ai.forecast.simulate.run import Run, add_means, closed
from gke_ai.forecast.simulate.shares import QueueShare, overlap
from gke_ai.forecast.simulate.unhappiest import unhappiest, unit_of

# Lengths of a bin of the tracks, in minutes. The first one that needs at most MOST_BINS is used.
BIN_MINUTES = (1, 2, 5, 10, 15, 20, 30, 60, 120, 240, 480, 1440)
MOST_BINS = 120


Item = TypeVar("Item", QueueDay, PoolDay, QueueShare)


@dataclass(frozen=True)
class Side:
    """A configuration with its queues, and a day for each seed."""

    name: str
    queues: Queues
    days: Sequence[Day]


def _share(find: Callable[[list[float]], float]) -> Callable[[QueueDay], float | None]:
    return lambda queue: find(queue.use) / queue.quota if queue.quota and queue.use else None


def _waited(name: str) -> Callable[[QueueDay], float | None]:
    return lambda queue: queue.waited.get(name)


# The keys are those of gke_ai/forecast/render/measures.py.
QUEUE_FIGURES: Mapping[str, Callable[[QueueDay], float | None]] = {
    "quota": lambda queue: queue.quota,
    "runs": lambda queue: queue.submitted,
    "never_started": lambda queue: queue.never_started,
    "failed": lambda queue: queue.failed,
    **{f"wait_{name}": _waited(name) for name in ("p50", "p90", "p99", "longest")},
    "wait_for_nodes": lambda queue: queue.waited_for_nodes.get("p90"),
    "preemptions": lambda queue: queue.preemptions,
    "reclaims": lambda queue: queue.reclaims,
    "lost_hours": lambda queue: queue.all_lost_hours,
    "lost_cost": lambda queue: queue.lost_cost,
    "preemption_hours": lambda queue: queue.lost_hours,
    "least_lost_hours": lambda queue: queue.least_lost_hours,
    "used_hours": lambda queue: queue.used_hours,
    "use": _share(lambda use: sum(use) / len(use)),
    "busiest": _share(max),
}
POOL_FIGURES: Mapping[str, Callable[[PoolDay], float | None]] = {
    "paid_hours": lambda pool: pool.paid_hours,
    "used_hours": lambda pool: pool.used_hours,
    "idle_hours": lambda pool: pool.idle_hours,
    "starting_hours": lambda pool: pool.starting_hours,
    "nodes": lambda pool: sum(pool.nodes) / len(pool.nodes) if pool.nodes else 0.0,
    "most_nodes": lambda pool: max(pool.nodes, default=0.0),
    "reclaims": lambda pool: pool.reclaims,
    "refused": lambda pool: pool.refused,
    "stockout_hours": lambda pool: pool.stockout_hours,
    "cost": lambda pool: pool.cost,
    "idle_cost": lambda pool: pool.idle_cost,
}
MONEY = ("lost_cost", "cost", "idle_cost")
LOCAL_FIGURES: Mapping[str, Callable[[QueueShare], float | None]] = {
    "shared_hours": lambda share: share.hours,
    "part": lambda share: share.part,
    "weight": lambda share: share.weight,
    "by_weight": lambda share: share.by_weight,
}


def simulation(stack: str, trace: str, seeds: Sequence[int], sides: Sequence[Side], notes: Sequence[str]) -> Simulation:
    """Returns the result. Tracks and unhappiest runs are those of the first seed."""
    hours = max(side.days[0].hours for side in sides)
    length = bin_seconds(hours)
    configurations = tuple(_configuration(side, length, hours) for side in sides)
    currency = next((pool.currency for side in sides for day in side.days for pool in day.pools if pool.currency), "")
    return Simulation(
        VERSION, stack, trace, tuple(seeds), length, configurations, tuple(figures(sides)), tuple(notes), currency
    )


def written_days(sides: Sequence[Side], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yields each day of each configuration and seed as plain data, with every run."""
    for side in sides:
        for seed, day in zip(seeds, side.days, strict=True):
            runs = [written_run(run) for run in day.runs]
            queues, pools, shares = ([asdict(item) for item in items] for items in (day.queues, day.pools, day.shares))
            written = {"queues": queues, "pools": pools, "shares": shares, "runs": runs}
            yield {"configuration": side.name, "seed": seed, **written}


def figures(sides: Sequence[Side]) -> Iterator[Figure]:
    """Yields the figures of every queue and pool that a configuration has. Money only if there are prices."""
    of_queues = _figures(QUEUE, sides, lambda day: {queue.queue: queue for queue in day.queues}, QUEUE_FIGURES)
    of_pools = _figures(POOL, sides, lambda day: {pool_name(pool): pool for pool in day.pools}, POOL_FIGURES)
    for figure in (*of_queues, *of_pools):
        if figure.key not in MONEY or any(value is not None for values in figure.values for value in values):
            yield figure
    yield from _figures(LOCAL, sides, lambda day: {share.queue: share for share in day.shares}, LOCAL_FIGURES)


def _figures(
    kind: str,
    sides: Sequence[Side],
    find: Callable[[Day], Mapping[str, Item]],
    figures_of: Mapping[str, Callable[[Item], float | None]],
) -> Iterator[Figure]:
    items = [[find(day) for day in side.days] for side in sides]
    for name in dict.fromkeys(name for days in items for day in days for name in day):
        for key, value_of in figures_of.items():
            values = (tuple(_value(day.get(name), value_of) for day in days) for days in items)
            yield Figure(kind, name, key, tuple(values))


def _value(item: Item | None, value_of: Callable[[Item], float | None]) -> float | None:
    value = None if item is None else value_of(item)
    return None if value is None else round(float(value), 3)


def pool_name(pool: PoolDay) -> str:
    """The name of a pool's nodes of one machine and capacity mode."""
    return f"{pool.pool} ({pool.machine}, {title_of(pool.capacity)})"


def bin_seconds(hours: float) -> float:
    """The length of a bin of the tracks of a day with so many hours."""
    fits = (minutes for minutes in BIN_MINUTES if hours * 60 / minutes <= MOST_BINS)
    return 60.0 * next(fits, hours * 60 / MOST_BINS)


def _configuration(side: Side, length: float, hours: float) -> Configuration:
    first = side.days[0]
    late = sum(day.late for day in side.days)
    bins = max(1, int(-(-hours * HOUR // length)))
    tracks = tuple(track(name, first.runs, side.queues, length, bins) for name in side.queues.cluster_queues)
    shares = tuple(share_tracks(first, length, bins))
    return Configuration(side.name, first.hours, late, tracks, unhappiest(first.runs, side.queues), shares)


def share_tracks(day: Day, length: float, bins: int) -> Iterator[ShareTrack]:
    """Yields the local queues that share quota with others over time, in so many bins of a length in seconds."""
    for share in day.shares:
        held = [0.0] * bins
        for run in (run for run in day.runs if run.row.queue == share.queue):
            spans = overlap(closed(run.admitted, length * bins), share.windows)
            add_means(held, spans, length, run.accelerators)
        yield ShareTrack(share.queue, share.tree, _rounded(held))


def track(name: str, runs: Sequence[Run], queues: Queues, length: float, bins: int) -> Track:
    """Returns a cluster queue over time, in so many bins of a length in seconds."""
    own = [run for run in runs if run.cluster_queue == name]
    use, waiting, preempted = [0.0] * bins, [0.0] * bins, [0] * bins
    end = length * bins
    for run in own:
        add_means(use, closed(run.admitted, end), length, run.accelerators)
        add_means(waiting, run.waits(end), length, 1)
        for stop in run.evicted_at:
            preempted[min(bins - 1, int(stop // length))] += 1
    quota = queues.quota(name, queues.accelerator(name))
    return Track(name, unit_of(queues, name), quota, _rounded(use), _rounded(waiting), tuple(preempted))


def _rounded(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(round(value, 3) for value in values)
