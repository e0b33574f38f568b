"""How long a budget lasts: what the registered machines cost per hour at most, and when the deletion must begin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import ROUND_UP, Decimal

from gke_ai.catalog.nodes.durations import CONTAINER_START, MODEL_LOAD, NODE_READY
from gke_ai.kube.values import value
from gke_ai.registered.pools import capacity_mode, node_bounds
from gke_ai.registered.types import NODE_POOL
from gke_ai.review.report.accelerators import accelerated, supplies, total
from gke_ai.review.report.changes import Resource
from gke_ai.terminal import Stop
from gke_ai.workspace.prices import Prices

CENT = Decimal("0.01")


@dataclass(frozen=True)
class Times:
    """How long the steps of a trial take at least, in seconds."""

    up: int
    verify: int
    down: int

    @property
    def all(self) -> int:
        """One of each."""
        return self.up + self.verify + self.down


# Assumptions: 10 minutes for a cluster, 3 for the requests of verify and smoke, 15 to delete everything.
ON_GOOGLE_CLOUD = Times(
    600 + max(step.seconds for step in NODE_READY.values()) + CONTAINER_START.seconds + MODEL_LOAD.seconds, 180, 900
)
# Less than on an idle machine with two cores: the emulator creates no machines.
ON_EMULATOR = Times(10, 5, 10)


@dataclass(frozen=True)
class Limit:
    """The limits of a trial.

    Attributes:
        hourly: Upper bound of the cost per hour.
        currency: Currency of costs and budget.
        budget: Maximum cost.
        seconds: Time from the start until everything is deleted.
        down: Time of these that is kept for the deletion.
    """

    hourly: Decimal
    currency: str
    budget: Decimal
    seconds: int
    down: int

    @property
    def until_down(self) -> int:
        """Seconds after the start at which the deletion begins at the latest."""
        return self.seconds - self.down

    def cost(self, seconds: float) -> Decimal:
        """The upper bound of the cost of a time, rounded up to cents."""
        return (self.hourly * Decimal(seconds) / 3600).quantize(CENT, ROUND_UP)


def limit(hourly: Decimal, currency: str, budget: Decimal, minutes: int, times: Times) -> Limit:
    """Returns the limits of a trial. Stops if one `up`, `verify` and `down` do not fit."""
    affordable = int(budget / hourly * 3600) if hourly else minutes * 60
    seconds = min(affordable, minutes * 60)
    if seconds < times.all:
        least = (hourly * times.all / 3600).quantize(CENT, ROUND_UP)
        raise Stop(
            f"The trial has {shown(seconds)}: the machines cost up to {hourly.quantize(CENT, ROUND_UP)} {currency} per "
            f"hour, and it was given {budget} {currency} and {minutes} minutes. Deploying, verifying and deleting "
            f"take {shown(times.all)}, so nothing was deployed. Use --budget {least} and --minutes "
            f"{-(-times.all // 60)}, or more."
        )
    return Limit(hourly, currency, budget, seconds, times.down)


def hourly_cost(resources: Mapping[str, Resource], prices: Prices) -> Decimal:
    """Returns the cost per hour of all machines at their maximum. Stops if a price is missing."""
    accelerators = total(supplies(resources), prices)
    cost, missing = accelerators.cost[1], [key for _, key in accelerators.unpriced]
    for pool in resources.values():
        if pool.type != NODE_POOL or accelerated(pool):
            continue
        machine, mode = str(value(pool.inputs, "nodeConfig", "machineType")), capacity_mode(pool.inputs)
        price = prices.of(machine, mode)
        missing += [f"{machine}/{mode}"] if price is None else []
        cost += (price or 0) * node_bounds(pool.inputs).maximum
    if missing:
        raise Stop(
            f"The price table has no price of {', '.join(sorted({*missing}))}, so the budget cannot be kept. Nothing "
            "was deployed. Add a line for each to `perHour`: docs/costs.md"
        )
    return cost


def shown(seconds: float) -> str:
    """A time for people: `1 h 05 min`, `4 min 10 s`, `50 s`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s" if minutes else f"{rest} s"
