"""Prices of machines by Google's public price catalog: the SKUs of a machine's parts, and what they add up to. Pure.

The form of an answer: https://cloud.google.com/billing/v1/how-tos/catalog-api and the method `services.skus.list` of
https://cloud.google.com/billing/docs/reference/rest/v1/services.skus/list. A SKU has no key for a machine type. So its
description, group, type of usage and unit must have an exact form that the catalog was seen with, each beside its
source: anything else is a gap. "DWS Defined Duration" is flex-start.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from gke_ai.catalog.machines.types import MACHINES
from gke_ai.ops.facts.advice import amount

# A month of a price per GiB and month: https://cloud.google.com/compute/disks-image-pricing
HOURS_A_MONTH = 730
# GPU machines: the words for their series and their GPU, as in the public mapping of
# https://github.com/Cyclenerd/google-cloud-pricing-cost-calculator/blob/dac31281f2a4575f0a8bff20ac04fc71a5ff2190/build/mapping.csv
SERIES: Mapping[str, tuple[str, str]] = {
    "nvidia-l4": ("G2", "Nvidia L4"),
    "nvidia-tesla-a100": ("A2", "Nvidia Tesla A100"),
    "nvidia-a100-80gb": ("A2", "Nvidia Tesla A100 80GB"),
    "nvidia-h100-80gb": ("A3", "Nvidia H100 80GB"),
}
# Usage, and the words for vCPUs, memory, GPUs and Local SSDs. Flex-start: https://zenn.dev/google_cloud_jp/articles/dws-flex-new-skus
GPU_FORMS: Mapping[str, tuple[str, str, str, str, str]] = {
    "onDemand": ("OnDemand", "{} Instance Core", "{} Instance Ram", "{} GPU", "SSD backed Local Storage"),
    "spot": (
        "Preemptible",
        "Spot Preemptible {} Instance Core",
        "Spot Preemptible {} Instance Ram",
        "{} GPU attached to Spot Preemptible VMs",
        "SSD backed Local Storage attached to Spot Preemptible VMs",
    ),
    "flexStart": (
        "OnDemand",
        "DWS Defined Duration {} Core",
        "DWS Defined Duration {} Ram",
        "{} GPU attached to DWS Defined Duration VMs",
        "DWS Defined Duration SSD backed Local Storage",
    ),
}
# TPU machines are billed by the chip. Seen in https://github.com/xbill9/gemma4-dev at 4cf2d8b9 (HARDWARE.md, v5e.md).
CHIPS = {"tpu-v5-lite-podslice": "V5e", "tpu-v5p-slice": "V5p", "tpu-v6e-slice": "V6e"}
CHIP_FORMS: Mapping[str, tuple[str, str]] = {
    "onDemand": ("OnDemand", "Tpu{}"),
    "spot": ("Preemptible", "Tpu{} attached to Spot Preemptible VMs"),
    "flexStart": ("OnDemand", "DWS Defined Duration {}"),
}
PLACE = re.compile(r" (?:running )?in [A-Z][A-Za-z .()-]*")


@dataclass(frozen=True)
class Part:
    """A part of a machine: how its SKU is called before the place, its group, its usage and its unit."""

    words: str
    group: str
    usage: str
    unit: str


def parts(machine_type: str, mode: str) -> Mapping[Part, Decimal]:
    """Returns the parts that a machine is billed by, with their amounts; none if no form of its SKUs was seen."""
    machine = MACHINES[machine_type]
    if machine.tpu in CHIPS and mode in CHIP_FORMS:
        usage, words = CHIP_FORMS[mode]
        return {Part(words.format(CHIPS[machine.tpu]), "TPU", usage, "h"): Decimal(machine.chips)}
    words_of_gpu = SERIES.get(machine.gpu or "")
    if words_of_gpu is None or mode not in GPU_FORMS or machine_type.endswith("-nolssd"):
        return {}
    (series, gpu), (usage, core, ram, of_gpu, disk) = words_of_gpu, GPU_FORMS[mode]
    own = {
        Part(core.format(series), "CPU", usage, "h"): Decimal(str(machine.vcpus)),
        Part(ram.format(series), "RAM", usage, "GiBy.h"): Decimal(str(machine.memory_gb)),
        Part(of_gpu.format(gpu), "GPU", usage, "h"): Decimal(machine.gpus),
        Part(disk, "LocalSSD", usage, "GiBy.mo"): Decimal(machine.local_ssds * machine.local_ssd_gib),
    }
    return {part: count for part, count in own.items() if count}


@dataclass
class Rates:
    """Prices per hour of parts in a region, as the pages of the catalog bring them."""

    wanted: frozenset[Part]
    region: str
    currency: str
    found: dict[Part, set[Decimal]] = field(default_factory=lambda: defaultdict(set))

    def read(self, skus: Iterable[Mapping[str, Any]]) -> None:
        """Takes the prices of wanted parts from a page. Raises an error of a lookup or a value if it is malformed."""
        by_form = {(part.words, part.group, part.usage): part for part in self.wanted}
        for sku in skus:
            description, category = sku["description"], sku["category"]
            place = PLACE.search(description)
            if place is None or place.end() != len(description) or self.region not in sku.get("serviceRegions", ()):
                continue
            form = (description[: place.start()], category["resourceGroup"], category["usageType"])
            if part := by_form.get(form):
                self.found[part].add(self._rate(sku, part))

    def of(self, machine_type: str, mode: str) -> tuple[Decimal | None, str]:
        """Returns the price of a machine per hour, or why there is none."""
        needed = parts(machine_type, mode)
        if not needed:
            return None, "this project knows no SKUs of it"
        for part in needed:
            rates = self.found.get(part, set())
            if len(rates) != 1 or not all(rates):
                what = f"has {len(rates)} prices" if len(rates) > 1 else "has no price"
                return None, f"the SKU {part.words} {what} there"
        return sum((count * min(self.found[part]) for part, count in needed.items()), Decimal(0)), ""

    def _rate(self, sku: Mapping[str, Any], part: Part) -> Decimal:
        """The price of a part for an hour; 0 if it depends on the amount, or is in another unit or currency."""
        expression = sku["pricingInfo"][-1]["pricingExpression"]  # the newest is the last one
        rates = expression["tieredRates"]
        (price, start) = (rates[0]["unitPrice"], rates[0].get("startUsageAmount", 0)) if len(rates) == 1 else ({}, 1)
        if start or expression["usageUnit"] != part.unit or price["currencyCode"] != self.currency:
            return Decimal(0)
        per_unit = max(Decimal(0), amount(price))
        return per_unit / HOURS_A_MONTH if part.unit == "GiBy.mo" else per_unit
