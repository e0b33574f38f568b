"""Price tables for the report. You supply the prices; this project contains none.

A price table is a YAML file:

    currency: EUR
    date: 2026-11-20            # date of the prices, which the report shows
    perHour:
      g2-standard-24/spot: 0    # price of one machine per hour, by machine type and capacity mode
      nvidia-l4/onDemand: 0     # price of one accelerator per hour, if GKE chooses the machine (Autopilot)

Capacity modes are those of a pool: `onDemand`, `spot`, `reservation`, `flexStart`, `queuedFlexStart`. A Spot price that
the table lacks is Google's list price, if gke-ai capacity has asked for it and its currency is the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

from gke_ai.catalog.documents import InvalidDocument, Reader, read_file
from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.tpus import VERSIONS
from gke_ai.catalog.machines.types import GPUS, MACHINES
from gke_ai.settings.calibration import Calibration

KEYS = ("currency", "date", "perHour")
PRICED = (*MACHINES, *GPUS, *(version.accelerator for version in VERSIONS.values()))


class BadPrices(ValueError):
    """An invalid price table; the message lists all mistakes."""


@dataclass(frozen=True)
class Prices:
    """Prices per hour, by `machine type or accelerator/capacity mode`. `google` has the sources of Google's prices."""

    currency: str
    date: str
    per_hour: Mapping[str, Decimal] = field(default_factory=dict)
    google: Mapping[str, str] = field(default_factory=dict)

    def of(self, name: str, capacity: str) -> Decimal | None:
        """Returns the price of a machine or accelerator per hour, or None."""
        return self.per_hour.get(f"{name}/{capacity}")


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
    return Prices(str(content["currency"]), str(content["date"]), per_hour)


def with_google(prices: Prices | None, measured: Calibration) -> Prices | None:
    """Adds the Spot prices of a calibration file that a price table lacks, if they have its currency."""
    if prices is None:
        return None
    spot = {f"{price.machine_type}/spot": price for price in measured.spot_prices if price.currency == prices.currency}
    lacking = {key: price for key, price in spot.items() if key not in prices.per_hour}
    return replace(
        prices,
        per_hour={**prices.per_hour, **{key: price.per_hour for key, price in lacking.items()}},
        google={key: f"in {price.region} on {price.asked_on}" for key, price in lacking.items()},
    )


def problems(content: Any) -> Iterator[str]:
    """Yields all mistakes of a price table."""
    if not isinstance(content, Mapping):
        yield f"it has no keys. Add {', '.join(KEYS)}."
        return
    for key in content.keys() - set(KEYS):
        yield f"{key}: there is no such key. It has no effect. Use {', '.join(KEYS)}."
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
