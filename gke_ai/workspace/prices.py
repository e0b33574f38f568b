"""Prices per hour: those of a team's own table, else Google's list prices of the region.

A team's own table is a YAML file:

    currency: EUR
    date: 2026-11-20            # date of the prices, which every output shows
    region: us-west4            # optional: the prices are those of this region, and of no other
    perHour:
      g2-standard-24/spot: 0    # price of one machine per hour, by machine type and capacity mode
      nvidia-l4/onDemand: 0     # price of one accelerator per hour, if GKE chooses the machine (Autopilot)

Capacity modes are those of a pool: `onDemand`, `spot`, `reservation`, `flexStart`, `queuedFlexStart`. A price that the
table lacks is Google's answer to gke-ai capacity (Spot), else a list price of `gke_ai.catalog.machines.list_prices`, if
its currency is the same. What none of them has is a gap: no other region, mode or machine stands in for it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import InvalidDocument, Reader, read_file
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.list_prices import CURRENCY, LIST_PRICES
from gke_ai.catalog.machines.tpus import VERSIONS
from gke_ai.catalog.machines.types import GPUS, MACHINES
from gke_ai.catalog.machines.zones import ZONES
from gke_ai.settings.calibration import Calibration

KEYS = ("currency", "date", "perHour")
OPTIONAL = ("region",)
PRICED = (*MACHINES, *GPUS, *(version.accelerator for version in VERSIONS.values()))


class BadPrices(ValueError):
    """An invalid price table; the message lists all mistakes."""


@dataclass(frozen=True)
class GooglePrice:
    """A list price of Google per hour, and the day on which it was read."""

    per_hour: Decimal
    date: str


@dataclass(frozen=True)
class Prices:
    """Prices per hour, by `machine type or accelerator/capacity mode`.

    `per_hour` are a team's own, of `own_region` or of any region. `google` has those of Google by region and key.
    `region` is that of the stack.
    """

    currency: str
    date: str
    per_hour: Mapping[str, Decimal] = field(default_factory=dict)
    own_region: str = ""
    google: Mapping[tuple[str, str], GooglePrice] = field(default_factory=dict)
    region: str = ""

    def of(self, name: str, capacity: str, region: str = "") -> Decimal | None:
        """Returns the price of a machine or accelerator per hour in a region, or None. Default: that of the stack."""
        return self.at(f"{name}/{capacity}", region)

    def at(self, key: str, region: str = "") -> Decimal | None:
        """Returns the price of a key per hour, or None."""
        region = region or self.region
        if self._is_own(key, region):
            return self.per_hour[key]
        listed = self.google.get((region, key))
        return listed.per_hour if listed else None

    def date_of(self, key: str, region: str = "") -> str:
        """Returns the date of the price of a key."""
        region = region or self.region
        return self.date if self._is_own(key, region) else self.google[region, key].date

    def remarks(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        """Says of regions and keys (`machine/mode`) what their prices are and of which day, and names each gap."""
        origins: dict[str, list[str]] = {}
        for region, key in sorted({(region or self.region, key) for region, key in keys}):
            if self._is_own(key, region):
                origin = f"own table of {self.date}"
            elif listed := self.google.get((region, key)):
                origin = f"Google's list price in {region} on {listed.date}"
            else:
                origin = ""
            origins.setdefault(origin, []).append(key if origin else self.gap(key, region))
        gaps = origins.pop("", [])
        lines = [f"Prices in {self.currency} per hour of {', '.join(of)}: {origin}." for origin, of in origins.items()]
        lines += [f"Not in the sums: {gap}." for gap in gaps]
        other = f"Google's list prices are in {CURRENCY}, so none of them is added to prices in {self.currency}."
        return [*lines, *([other] if gaps and self.currency != CURRENCY else [])]

    def gap(self, key: str, region: str = "") -> str:
        """Says which price is missing."""
        place = region or self.region
        return f"no price for {key}{f' in {place}' if place else ''}"

    def _is_own(self, key: str, region: str) -> bool:
        return key in self.per_hour and self.own_region in ("", region)


def read(path: Path) -> Prices:
    """Reads a price table from a file. Raises BadPrices."""
    try:
        return parse(next(iter(read_file(path, Reader.PULUMI)), None))
    except (OSError, InvalidDocument) as error:
        raise BadPrices(f"{path}: the price table cannot be read: {error}") from None
    except BadPrices as bad:
        raise BadPrices(f"{path} is not a valid price table:\n{bad}") from None


def parse(content: Any) -> Prices:
    """Returns the price table of parsed YAML. Raises BadPrices."""
    mistakes = list(problems(content))
    if mistakes:
        raise BadPrices("\n".join(f"  - {mistake}" for mistake in mistakes))
    per_hour = {key: Decimal(str(price)) for key, price in content["perHour"].items()}
    return Prices(str(content["currency"]), str(content["date"]), per_hour, str(content.get("region") or ""))


def with_google(own: Prices | None, measured: Calibration, region: str) -> Prices:
    """Adds Google's prices in the currency of a team's own table: the answers of a calibration file, and list prices.

    Without a table, the currency is that of the list prices.
    """
    prices = own or Prices(CURRENCY, "")
    listed = {at: GooglePrice(price.per_hour, price.date) for at, price in LIST_PRICES.items()}
    asked = {
        (price.region, f"{price.machine_type}/spot"): GooglePrice(price.per_hour, str(price.asked_on))
        for price in measured.spot_prices
        if price.currency == prices.currency
    }
    return replace(prices, google={**(listed if prices.currency == CURRENCY else {}), **asked}, region=region)


def problems(content: Any) -> Iterator[str]:
    """Yields all mistakes of a price table."""
    if not isinstance(content, Mapping):
        yield f"it has no keys. Add {', '.join(KEYS)}."
        return
    for key in content.keys() - {*KEYS, *OPTIONAL}:
        yield f"{key}: there is no such key. It has no effect. Use {', '.join((*KEYS, *OPTIONAL))}."
    if (region := content.get("region")) is not None and str(region) not in ZONES:
        yield f"region: {region!r} is not a region of the catalog. No price would count. Use one such as us-west4."
    for key in KEYS:
        if content.get(key) in (None, ""):
            yield f"{key} is missing. Sums are meaningless without it. Add it."
    prices = content.get("perHour")
    if prices and not isinstance(prices, Mapping):
        yield "perHour: this is not a mapping. Write lines such as g2-standard-24/spot: 0."
        return
    for key, price in (prices or {}).items():
        name, _, capacity = str(key).partition("/")
        if capacity not in MODES:
            yield f"perHour.{key}: {capacity or '(empty)'} is not a capacity mode. Use one of {', '.join(MODES)}."
        if name not in PRICED:
            near = ", ".join(difflib.get_close_matches(name, PRICED, n=3))
            hint = f"Did you mean {near}?" if near else "Use a name such as g2-standard-24 or nvidia-l4."
            yield f"perHour.{key}: {name} is not a machine type or accelerator. {hint}"
        if not is_price(price):
            yield f"perHour.{key}: {price!r} is not a price. Use a number of 0 or more, without a currency."


def is_price(price: object) -> bool:
    """Whether a value is a finite number of 0 or more."""
    try:
        return not isinstance(price, bool) and Decimal(str(price)).is_finite() and Decimal(str(price)) >= 0
    except InvalidOperation:
        return False
