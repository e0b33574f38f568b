"""The prices that a report may count with: the user's own, as there are none in this project.

A price table is a YAML file:

    currency: EUR
    date: 2026-11-20            # of the prices, so that a reader knows how old they are
    perHour:
      g2-standard-24/spot: 0    # one machine for an hour, by machine type and capacity mode
      nvidia-l4/onDemand: 0     # one accelerator for an hour, where Google chooses the machine (Autopilot)

Capacity modes are those of a pool: `onDemand`, `spot`, `reservation`, `flexStart`, `queuedFlexStart`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import yaml

from catalog.capacity import MODES
from catalog.machines import GPUS, MACHINES
from catalog.tpus import VERSIONS

KEYS = ("currency", "date", "perHour")
PRICED = (*MACHINES, *GPUS, *(version.accelerator for version in VERSIONS.values()))


class BadPrices(ValueError):
    """A price table that can't be counted with; the message says every reason."""


@dataclass(frozen=True)
class Prices:
    """Prices of an hour, by `machine type or accelerator/capacity mode`."""

    currency: str
    date: str
    per_hour: Mapping[str, Decimal] = field(default_factory=dict)

    def of(self, what: str, capacity: str) -> Decimal | None:
        """The price of one machine or accelerator for an hour; None where the table has none."""
        return self.per_hour.get(f"{what}/{capacity}")


def read(path: Path) -> Prices:
    """The price table in a file; raises BadPrices."""
    try:
        return parse(yaml.safe_load(path.read_text()))
    except (OSError, yaml.YAMLError) as error:
        raise BadPrices(f"{path} can't be read as a price table: {error}") from None
    except BadPrices as bad:
        raise BadPrices(f"{path} is no price table:\n{bad}") from None


def parse(content: Any) -> Prices:
    """A price table from its YAML; raises BadPrices."""
    found = list(problems(content))
    if found:
        raise BadPrices("\n".join(f"  - {one}" for one in found))
    per_hour = {key: Decimal(str(price)) for key, price in content["perHour"].items()}
    return Prices(str(content["currency"]), str(content["date"]), per_hour)


def problems(content: Any) -> Iterator[str]:
    """Everything that is wrong with a price table."""
    if not isinstance(content, Mapping):
        yield f"it has no keys. Write {', '.join(KEYS)}."
        return
    for key in content.keys() - set(KEYS):
        yield f"{key}: there is no such key — nothing would read it. Write {', '.join(KEYS)}."
    for key in KEYS:
        if content.get(key) in (None, ""):
            yield f"{key} is missing — a sum without it says nothing. Add it."
    prices = content.get("perHour")
    if prices and not isinstance(prices, Mapping):
        yield "perHour: this is no mapping. Write lines such as g2-standard-24/spot: 0."
        return
    for key, price in (prices or {}).items():
        what, _, capacity = str(key).partition("/")
        if capacity not in MODES:
            yield f"perHour.{key}: {capacity or 'nothing'} is no capacity mode. Write one of {', '.join(MODES)}."
        if what not in PRICED:
            near = ", ".join(difflib.get_close_matches(what, PRICED, n=3))
            hint = f"Did you mean {near}?" if near else "Write one such as g2-standard-24, or nvidia-l4."
            yield f"perHour.{key}: {what} is no machine type or accelerator. {hint}"
        if not is_price(price):
            yield f"perHour.{key}: {price!r} is no price. Write a number, not below 0, without a currency."


def is_price(price: object) -> bool:
    """Whether it is a number that one can pay."""
    try:
        return not isinstance(price, bool) and Decimal(str(price)).is_finite() and Decimal(str(price)) >= 0
    except InvalidOperation:
        return False
