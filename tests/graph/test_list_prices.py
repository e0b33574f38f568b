"""Dollars by default: list prices with their sources, a team's own table first, and gaps that are named."""

import re
from dataclasses import replace
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

from gke_ai.catalog.machines.capacity import MODES
from gke_ai.catalog.machines.list_prices import CURRENCY, LIST_PRICES
from gke_ai.catalog.machines.types import MACHINES
from gke_ai.catalog.machines.zones import ZONES
from gke_ai.review.report import page as pages
from gke_ai.review.report.accelerators import supplies
from gke_ai.review.report.changes import PlannedUpdate, Resource
from gke_ai.settings.calibration import Calibration
from gke_ai.terminal import Stop
from gke_ai.workspace import prices
from gke_ai.workspace.configuration_file import read_prices, read_region
from tests.support.recorder import ROOT, configuration, shared_record
from tests.support.registered import resources

NO_FIGURES = Calibration()
DEFAULT = prices.with_google(None, NO_FIGURES, "us-west4")
SPOT = {"machineType": "g2-standard-24", "region": "us-west4", "currency": "USD", "perHour": "1.5", "lowest": "1"}
SPOT |= {"highest": "2", "since": "2026-11-01", "askedOn": "2026-11-20"}


def table(currency: str = "USD", **more: Any) -> prices.Prices:
    """A team's own table, with Google's prices of us-west4."""
    content = {"currency": currency, "date": "2026-11-01", "perHour": {"g2-standard-24/onDemand": 2}, **more}
    return prices.with_google(prices.parse(content), NO_FIGURES, "us-west4")


def in_dollars(name: str, own: prices.Prices = DEFAULT) -> str:
    """The section of accelerators of a page that creates a stack."""
    record = shared_record(configuration(name), True)
    after = {resource.urn: resource for resource in resources(record)}
    section = pages.accelerators(PlannedUpdate("prod", {}, after, (), (), ()), own)
    return "\n\n".join(section.always)


# ---------------------------------------------------------------- the shipped table
@pytest.mark.parametrize(("region", "key"), LIST_PRICES)
def test_every_list_price_has_a_source_a_day_a_region_and_a_machine_that_google_offers_so(
    region: str, key: str
) -> None:
    price, (name, _, mode) = LIST_PRICES[region, key], key.partition("/")
    assert region in ZONES
    assert mode in MACHINES[name].modes & MODES.keys()
    assert price.per_hour > 0
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", price.date)
    assert re.fullmatch(r"https://(github\.com/[\w-]+/[\w-]+/blob/[0-9a-f]{40}|zenn\.dev)/\S+", price.source)
    assert price.derived
    assert CURRENCY == "USD"


def test_list_prices_of_machines_with_the_same_parts_agree() -> None:
    for (region, key), price in LIST_PRICES.items():
        name, _, mode = key.partition("/")
        machine = MACHINES[name]
        parts = (machine.vcpus, machine.memory_gb, machine.gpus, machine.chips)
        for other, of_other in ((other, of) for (at, other), of in LIST_PRICES.items() if at == region):
            peer = MACHINES[other.partition("/")[0]]
            shares = {
                Decimal(str(part)) / Decimal(str(of))
                for part, of in zip(parts, (peer.vcpus, peer.memory_gb, peer.gpus, peer.chips), strict=True)
                if of
            }
            if other.endswith(f"/{mode}") and peer.family == machine.family and len(shares) == 1 and not machine.tpu:
                assert price.per_hour == of_other.per_hour * shares.pop(), (key, other)
            if other.endswith(f"/{mode}") and machine.tpu and peer.tpu == machine.tpu:
                assert price.per_hour / machine.chips == of_other.per_hour / peer.chips, (key, other)


def test_list_prices_of_machines_with_one_gpu_grow_by_their_vcpus() -> None:
    for region, mode in product(("us-central1", "us-west4"), ("onDemand", "spot")):
        prices = {cpus: LIST_PRICES[region, f"g2-standard-{cpus}/{mode}"].per_hour for cpus in (4, 8, 12, 16, 32)}
        assert {(prices[cpus] - prices[4]) / (cpus - 4) for cpus in (8, 16, 32)} == {(prices[12] - prices[4]) / 8}


# ---------------------------------------------------------------- which price counts
def test_own_table_wins_over_google_s_answer_and_its_answer_over_the_list() -> None:
    asked = Calibration.model_validate({"spotPrices": [SPOT]})
    assert DEFAULT.of("g2-standard-24", "spot") == Decimal("1.352248")
    assert prices.with_google(None, asked, "us-west4").of("g2-standard-24", "spot") == Decimal("1.5")
    own = prices.parse({"currency": "USD", "date": "2026-11-01", "perHour": {"g2-standard-24/spot": 1}})
    assert prices.with_google(own, asked, "us-west4").of("g2-standard-24", "spot") == 1
    assert table().of("g2-standard-24", "onDemand") == 2
    assert table().of("g2-standard-12", "onDemand") == Decimal("1.12676882"), "what the own table lacks is listed"


def test_a_gap_is_named_and_neither_zero_nor_the_price_of_a_neighbor() -> None:
    assert DEFAULT.of("g2-standard-24", "flexStart") is None, "another mode"
    assert DEFAULT.of("ct6e-standard-4t", "spot") is None, "another region"
    assert DEFAULT.of("a2-highgpu-1g", "spot") is None, "another machine"
    gaps = DEFAULT.remarks([("", "g2-standard-24/flexStart"), ("us-east5", "g2-standard-24/spot")])
    assert gaps == [
        "Not in the sums: no price for g2-standard-24/spot in us-east5.",
        "Not in the sums: no price for g2-standard-24/flexStart in us-west4.",
    ]


def test_currencies_do_not_mix_and_the_gap_says_so() -> None:
    euro = table("EUR")
    assert euro.of("g2-standard-12", "onDemand") is None
    assert euro.remarks([("", "g2-standard-24/onDemand"), ("", "g2-standard-12/onDemand")]) == [
        "Prices in EUR per hour of g2-standard-24/onDemand: own table of 2026-11-01.",
        "Not in the sums: no price for g2-standard-12/onDemand in us-west4.",
        "Google's list prices are in USD, so none of them is added to prices in EUR.",
    ]


def test_a_table_of_another_region_does_not_count() -> None:
    assert table(region="us-west4").of("g2-standard-24", "onDemand") == 2
    assert table(region="us-central1").of("g2-standard-24", "onDemand") == Decimal("2.25353764")
    for bad in ("us-west99", ["us-west4"], 7):
        with pytest.raises(prices.BadPrices, match=r"region: .* is not a region"):
            prices.parse({"currency": "USD", "date": "d", "perHour": {}, "region": bad})


def test_a_pool_costs_what_its_own_region_costs_also_in_another_stack() -> None:
    moved = [
        Resource("u", "gcp:container/nodePool:NodePool", inputs={"location": place, "nodeCount": 1, **machine})
        for place in ("us-central1-a", "us-west4")
        for machine in [{"nodeLocations": ["z"], "nodeConfig": {"machineType": "g2-standard-24"}}]
    ]
    costs = [supply.cost(DEFAULT) for pool in moved for supply in supplies({"u": pool})]
    assert costs == [(Decimal(price), Decimal(price)) for price in ("2.000832574", "2.25353764")]


# ---------------------------------------------------------------- what they show
def test_the_report_of_prod_says_dollars_their_day_and_each_gap() -> None:
    text = in_dollars("Pulumi.prod.yaml")
    assert "| onDemand | `nvidia-l4` | 0 | **4 – 12** | 0.00 | 4.51 – 13.52 |" in text
    assert "| onDemand | `tpu-v5-lite-podslice` | 0 | **8 – 56** | 0.00 | 9.60 – 67.20 |" in text
    assert "| spot, else flexStart, else onDemand | `nvidia-l4` | 0 | **2** | 0.00 | no price |" in text
    assert "| **all** |  |  |  | **0.00** | **14.11 – 80.72, and 1 price missing** |" in text
    assert "in USD per hour: **0.00** before, **14.11, and 1 price missing** after" in text
    assert "g2-standard-24/onDemand: Google's list price in us-west4 on 2026-08-20." in text
    assert "ct5lp-hightpu-8t/onDemand: Google's list price in us-west4 on 2026-10-07." in text
    assert "- Not in the sums: no price for g2-standard-12/flexStart in us-west4.\n" in text
    assert "- The sums lack Deployment serving/llama." in text


def test_a_gap_in_every_sum_is_never_zero() -> None:
    text = in_dollars("Pulumi.dev.yaml", replace(DEFAULT, region="us-central1"))
    assert "**all** |  |  |  | **0.00** | **no price** |" in text
    assert "no price for nvidia-l4/onDemand in us-central1" in text
    assert "0.00** after" not in text


def test_idle_accelerators_cost_nothing_where_no_node_is_kept_whatever_its_price() -> None:
    text = in_dollars("examples/flex-start-tpu.yaml", table("EUR"))
    assert "in EUR per hour: **0.00** before, **0.00** after" in text
    assert "| **no price** |" in text


def test_the_region_of_a_configuration_is_that_of_its_cluster(tmp_path: Path) -> None:
    assert read_region(ROOT / "Pulumi.prod.yaml") == "us-west4"
    file = tmp_path / "stack.yaml"
    for cluster, region in (("{location: us-east5-b}", "us-east5"), ("{}", "us-central1"), ("7", "us-central1")):
        file.write_text(f"config: {{'gke-ai:cluster': {cluster}}}")
        assert read_region(file) == region


@pytest.mark.parametrize("text", ["{", "[1]", "currency: USD\nperHour: {g2-standard-24/spot: 1e999}", "- &a [*a]"])
def test_a_hostile_table_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    (tmp_path / "prices.yaml").write_text(text)
    with pytest.raises(Stop, match="price table"):
        read_prices(tmp_path / "prices.yaml")


@pytest.mark.parametrize("named", ["../prices.yaml", "/etc/prices.yaml"])
def test_a_configuration_of_somebody_else_names_no_price_table_outside_of_the_project(
    named: str, tmp_path: Path
) -> None:
    file = tmp_path / "Pulumi.other.yaml"
    file.write_text(yaml.safe_dump({"config": {"gke-ai:prices": named}}))
    with pytest.raises(Stop, match="is outside of the project"):
        read_prices(None, file)
