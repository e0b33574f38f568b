"""The figures of a simulation: their titles, their units, and how they are written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class Unit(Enum):
    """What a figure counts."""

    SECONDS = "seconds"
    COUNT = "count"
    HOURS = "hours"
    SHARE = "share"
    MONEY = "money"
    PART = "part"


@dataclass(frozen=True)
class Measure:
    """A figure: its title in a table, and its unit.

    `rare` figures are left out of a table in which they are 0 everywhere. `given` ones are no results, so they are not
    compared. `certain` ones are decided by quotas and not by chance: one run more is a difference.
    """

    title: str
    unit: Unit
    rare: bool = False
    given: bool = False
    certain: bool = False


Measures = Mapping[str, Measure]
WAITING: Measures = {
    "runs": Measure("runs", Unit.COUNT, given=True),
    "never_started": Measure("never started", Unit.COUNT, certain=True),
    "failed": Measure("given up", Unit.COUNT, rare=True),
    "wait_p50": Measure("waits p50", Unit.SECONDS),
    "wait_p90": Measure("waits p90", Unit.SECONDS),
    "wait_p99": Measure("waits p99", Unit.SECONDS),
    "wait_longest": Measure("longest wait", Unit.SECONDS),
    "wait_for_nodes": Measure("for nodes p90", Unit.SECONDS, rare=True),
}
WORK: Measures = {
    "quota": Measure("quota", Unit.COUNT, given=True),
    "use": Measure("quota in use", Unit.SHARE),
    "busiest": Measure("busiest hour", Unit.SHARE),
    "used_hours": Measure("accelerator-hours", Unit.HOURS),
    "lost_hours": Measure("lost", Unit.HOURS),
    "lost_cost": Measure("cost of the lost", Unit.MONEY),
    "preemptions": Measure("preemptions", Unit.COUNT),
    "reclaims": Measure("Spot reclaims", Unit.COUNT, rare=True),
}
GIVING_WAY: Measures = {
    "preemption_hours": Measure("lost by preemption", Unit.HOURS, rare=True, given=True),
    "least_lost_hours": Measure("by the newest checkpoints (not what Kueue does)", Unit.HOURS, rare=True, given=True),
}
SHARES: Measures = {
    "shared_hours": Measure("accelerator-hours", Unit.HOURS, given=True),
    "part": Measure("part", Unit.PART, given=True),
    "weight": Measure("weight", Unit.COUNT, given=True),
    "by_weight": Measure("part by weight", Unit.PART, given=True),
}
NODES: Measures = {
    "nodes": Measure("nodes", Unit.COUNT),
    "most_nodes": Measure("busiest hour", Unit.COUNT),
    "paid_hours": Measure("accelerator-hours paid", Unit.HOURS),
    "used_hours": Measure("used", Unit.HOURS),
    "idle_hours": Measure("idle", Unit.HOURS),
    "starting_hours": Measure("starting", Unit.HOURS),
    "reclaims": Measure("Spot reclaims", Unit.COUNT, rare=True),
    "refused": Measure("refused nodes", Unit.COUNT, rare=True),
    "stockout_hours": Measure("hours of stock-out", Unit.HOURS, rare=True),
    "cost": Measure("cost", Unit.MONEY),
    "idle_cost": Measure("of it idle", Unit.MONEY),
}


def written(value: float | None, unit: Unit) -> str:
    """Formats a value in its unit. None, if there is no value, is a dash."""
    if value is None:
        return "–"
    if unit is Unit.SECONDS:
        return duration(value)
    if unit is Unit.SHARE:
        return f"{value:.0%}"
    if unit is Unit.PART:
        return f"{value:.1%}"
    if unit is Unit.COUNT:
        return f"{value:,.1f}".removesuffix(".0")
    return f"{value:,.2f}" if unit is Unit.MONEY else f"{value:,.1f}"


def change(value: float, unit: Unit) -> str:
    """Formats a difference with its sign."""
    sign = "+" if value > 0 else "−" if value < 0 else "±"
    text = f"{abs(value) * 100:.0f} points" if unit is Unit.SHARE else written(abs(value), unit)
    return f"{sign}{text}"


def duration(seconds: float) -> str:
    """Formats a duration in the unit that suits it."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def times(count: float) -> str:
    """Formats how often something happened."""
    return "once" if count == 1 else "twice" if count == 2 else f"{written(count, Unit.COUNT)} times"
