"""Google's list prices of machines, by region. `list_prices.yaml` has each figure with its source and its date."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from gke_ai.catalog.tables import table

_TABLE = table("machines/list_prices.yaml")
CURRENCY: str = _TABLE["currency"]


@dataclass(frozen=True)
class ListPrice:
    """Price of a machine per hour, the day on which the source states it, the source, and how it adds up."""

    per_hour: Decimal
    date: str
    source: str
    derived: str


# By region, and machine type/capacity mode.
LIST_PRICES: Mapping[tuple[str, str], ListPrice] = {
    (region, key): ListPrice(Decimal(str(per_hour)), str(own["date"]), own["source"], own["derived"])
    for own in _TABLE["tables"]
    for region, prices in own["perHour"].items()
    for key, per_hour in prices.items()
}
