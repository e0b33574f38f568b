"""Requests to the advice of Compute Engine's API, and its answers as figures of the calibration file. Pure.

Reference: https://docs.cloud.google.com/compute/docs/reference/rest/v1/advice/capacityHistory and
https://docs.cloud.google.com/compute/docs/reference/rest/v1/advice/calendarMode. What the figures mean:
https://docs.cloud.google.com/compute/docs/instances/view-spot-preemption-price
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from math import ceil
from typing import Any, Literal

from gke_ai.catalog.machines.capacity import MAX_RUN_SECONDS
from gke_ai.catalog.machines.types import MACHINES, machine
from gke_ai.catalog.machines.zones import ZONES, node_zones
from gke_ai.settings import ResolvedStack
from gke_ai.settings.calibration import RESERVABLE, CalendarWindow, SpotHistory, SpotPrice

# Calendar mode shows GPU VMs up to 60 days in advance, and reserves them for 1 to 90 days.
# https://docs.cloud.google.com/compute/docs/instances/future-reservations-calendar-mode-overview
CALENDAR_DAYS, MIN_RESERVED_SECONDS = 60, 86_400
# The key of the one specification in a request to Calendar mode; the caller chooses it.
SPEC = "nodes"


@dataclass(frozen=True)
class Nodes:
    """Nodes to reserve: so many of a machine type, in one of these zones."""

    machine_type: str
    count: int
    zones: tuple[str, ...]


@dataclass
class Needs:
    """Machine types with their zones, nodes to reserve, and what Google does not serve."""

    spot: dict[str, tuple[str, ...]] = field(default_factory=dict)
    nodes: list[Nodes] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def add(self, machine_type: str, gpus: int, mode: str, count: int, zones: tuple[str, ...], user: str) -> None:
        """Adds nodes of a pool or a compute class. On-demand nodes may become Spot, so their history is wanted too."""
        known = MACHINES.get(machine_type)
        if known is None or not (known.gpu or known.tpu or gpus):
            return
        if known.gpu is None:
            kind = "TPUs" if known.tpu else "N1 machines with GPUs"
            self.left_out.append(f"{user} ({machine_type}) is left out: Google publishes no Spot history of {kind}.")
            return
        self.spot[machine_type] = tuple(sorted({*self.spot.get(machine_type, ()), *zones}))
        nodes = Nodes(machine_type, count, zones)
        if mode in RESERVABLE and count and nodes not in self.nodes:
            self.nodes.append(nodes)


def needs_of(stack: ResolvedStack) -> Needs:
    """Returns the GPU machines of a stack's pools and compute classes, each pool at its maximum size."""
    result = Needs()
    for pool in stack.node_pools:
        own = pool.section
        result.add(own.node_machine_type, pool.shape.gpus, own.capacity.mode, pool.max_nodes, pool.zones, own.name)
    zones = node_zones(stack.cluster.location)
    for compute_class in stack.settings.compute_classes:
        users = [user for user in stack.gpu_workloads if user.section.compute_class == compute_class.name]
        gpus = sum(user.accelerators * user.max_pods for user in users)
        for priority in compute_class.priorities:
            per_node = machine(priority.machine_type).gpus
            count = ceil(gpus / per_node) if per_node else 0
            result.add(priority.machine_type, 0, priority.capacity.mode, count, zones, compute_class.name)
    return result


def history_request(machine_type: str, history: Literal["PREEMPTION", "PRICE"], zone: str = "") -> dict[str, Any]:
    """A request for the history of a Spot machine type: of a zone, or of the region. Prices are those of a region."""
    properties = {"machineType": machine_type, "scheduling": {"provisioningModel": "SPOT"}}
    location = {"locationPolicy": {"location": f"zones/{zone}"}} if zone else {}
    return {"instanceProperties": properties, **location, "types": [history]}


def window_request(nodes: Nodes, region: str, now: datetime.datetime) -> dict[str, Any]:
    """A request for the next time at which nodes can be reserved, for as long as a flex-start run may take at most."""
    others = [zone for zone in ZONES.get(region, ()) if zone not in nodes.zones]
    machines = {"machineType": nodes.machine_type, "instanceCount": str(nodes.count)}
    spec: dict[str, Any] = {
        "targetResources": {"specificSkuResources": machines},
        "timeRangeSpec": {
            "startTimeNotEarlierThan": f"{now:%Y-%m-%dT%H:00:00Z}",
            "startTimeNotLaterThan": f"{now + datetime.timedelta(days=CALENDAR_DAYS):%Y-%m-%dT%H:00:00Z}",
            "minDuration": f"{MIN_RESERVED_SECONDS}s",
            "maxDuration": f"{MAX_RUN_SECONDS}s",
        },
    }
    if others:  # a zone that is not named is allowed
        spec["locationPolicy"] = {"locations": {f"zones/{zone}": {"preference": "DENY"} for zone in others}}
    return {"futureResourcesSpecs": {SPEC: spec}}


def preemptions(answer: Mapping[str, Any], machine_type: str, zone: str, now: datetime.datetime) -> SpotHistory | None:
    """The daily preemption rates in an answer; None if it has none. The rate of the current day still changes."""
    rates = {
        end: float(record.get("preemptionRate", 0))
        for record in answer.get("preemptionHistory", [])
        if (end := moment(record["interval"]["endTime"])) <= now
    }
    if not rates:
        return None
    return SpotHistory(
        machine_type=machine_type,
        zone=zone,
        rate=round(sum(rates.values()) / len(rates), 4),
        max_rate=round(max(rates.values()), 4),
        days=len(rates),
        until=max(rates).date(),
        asked_on=now.date(),
    )


def price(answer: Mapping[str, Any], machine_type: str, region: str, now: datetime.datetime) -> SpotPrice | None:
    """The present price of an answer; None if it has none."""
    history = {
        moment(record["interval"]["startTime"]): record["listPrice"]
        for record in answer.get("priceHistory", [])
        if "listPrice" in record
    }
    if not history:
        return None
    newest = history[max(history)]
    amounts = [amount(money) for money in history.values() if money["currencyCode"] == newest["currencyCode"]]
    return SpotPrice(
        machine_type=machine_type,
        region=region,
        currency=newest["currencyCode"],
        per_hour=amount(newest),
        since=max(history).date(),
        lowest=min(amounts),
        highest=max(amounts),
        asked_on=now.date(),
    )


def window(answer: Mapping[str, Any], nodes: Nodes, region: str, now: datetime.datetime) -> CalendarWindow:
    """The earliest recommendation of an answer. Without a location, Google recommends nothing."""
    offers = [
        offer
        for recommendation in answer.get("recommendations", [])
        for offer in recommendation.get("recommendationsPerSpec", {}).values()
        if offer.get("location")
    ]
    first = min(offers, key=lambda offer: moment(offer["startTime"]), default=None)
    return CalendarWindow(
        machine_type=nodes.machine_type,
        region=region,
        nodes=nodes.count,
        days=CALENDAR_DAYS,
        zone=first["location"].rpartition("/")[2] if first else None,
        start=moment(first["startTime"]).date() if first else None,
        end=moment(first["endTime"]).date() if first else None,
        asked_on=now.date(),
    )


def amount(money: Mapping[str, Any]) -> Decimal:
    """The exact amount of `google.type.Money`: whole units, and billionths of a unit."""
    return (Decimal(money.get("units", 0)) + Decimal(money.get("nanos", 0)) / 10**9).normalize() + 0


def moment(text: str) -> datetime.datetime:
    """Parses a time of the API."""
    return datetime.datetime.fromisoformat(text)
