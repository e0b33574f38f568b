"""`gke-ai prices` on a server of this machine, which answers in the form of Google's price catalog."""

import copy
import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import yaml

from emulator.google import rest
from gke_ai.catalog.machines.list_prices import LIST_PRICES
from gke_ai.kube.client import Answer
from gke_ai.ops.doctor import requests
from gke_ai.ops.facts import prices as command
from gke_ai.ops.facts.price_catalog import Rates, parts
from gke_ai.terminal import Stop
from gke_ai.workspace import prices
from gke_ai.workspace.stack import Stack
from tests.support.local_server import answering
from tests.support.repository import ROOT

Capture = pytest.CaptureFixture[str]
Sku = dict[str, Any]
PROJECT, TOKEN = "my-project", "not-a-token"


def sku(words: str, group: str, usage: str, unit: str, units: str, nanos: int, regions: list[str]) -> Sku:
    money = {"currencyCode": "USD", "units": units, "nanos": nanos}
    expression = {"usageUnit": unit, "displayQuantity": 1, "tieredRates": [{"startUsageAmount": 0, "unitPrice": money}]}
    old = {**expression, "tieredRates": [{"unitPrice": {**money, "units": "99"}}]}
    family = {"serviceDisplayName": "Compute Engine", "resourceFamily": "Compute"}
    return {
        "name": "services/6F81-5844-456A/skus/0000-0000-0000",
        "description": words,
        "category": {**family, "resourceGroup": group, "usageType": usage},
        "serviceRegions": regions,
        "pricingInfo": [{"summary": "", "pricingExpression": of} for of in (old, expression)],
    }


FILE = yaml.load((ROOT / "tests/data/recorded_answers/prices.yaml").read_text(), yaml.CSafeLoader)
SKUS = [sku(*row) for row in FILE["skus"]]


class Catalog:
    """The Cloud Billing Catalog API: pages of SKUs, or another answer."""

    def __init__(self) -> None:
        self.pages: dict[str, list[Any]] = {"": SKUS[:5], "a/b&c": SKUS[5:11], "last": SKUS[11:]}
        self.other: tuple[int, Any] | None = None
        self.asked: list[tuple[str, str]] = []
        self.address = "http://127.0.0.1:1"

    def answer(self, _: str, path: str, query: str, __: object) -> tuple[int, Any]:
        token = parse_qs(query, keep_blank_values=True)["pageToken"][0]
        self.asked.append((path, query))
        tokens = [*self.pages, ""]
        return self.other or (200, {"skus": self.pages[token], "nextPageToken": tokens[tokens.index(token, 0) + 1]})


@pytest.fixture
def catalog() -> Iterator[Catalog]:
    found = Catalog()
    with answering(found.answer) as address:
        found.address = f"http://{address}"
        yield found


def logged_in(request: str, body: Any = None, token: str = "", payer: str = "") -> Answer:
    if request.startswith("gcloud auth list"):
        return Answer(0, [{"account": "oncall@example.com"}])
    if request.startswith("gcloud auth application-default"):
        return Answer(0, TOKEN)
    assert (token, payer) == (TOKEN, PROJECT)
    return requests.call(request, body, token, payer)


STACK: dict[str, Any] = {
    "cluster": {"name": "ai", "mode": "standard", "location": "us-west4"},
    "gpuPools": [
        {"name": "l4", "machineType": "g2-standard-24", "zones": ["us-west4-a"], "autoscaling": {"maxNodes": 4}}
    ],
    "tpuPools": [{"name": "v5e", "version": "v5e", "topology": "2x4", "zones": ["us-west4-a"], "nodesPerZone": 1}],
    "computeClasses": [
        {
            "name": "less",
            "priorities": [
                {"machineType": "g2-standard-12", "capacity": {"mode": "spot"}},
                {"machineType": "g2-standard-12", "capacity": {"mode": "flexStart"}},
            ],
        }
    ],
}


def run(catalog: Catalog, folder: Path, call: Any = logged_in, **changes: Any) -> tuple[int, Path]:
    config, file = folder / "prod.yaml", folder / "prices.yaml"
    stack = {f"gke-ai:{key}": value for key, value in (STACK | changes).items() if value is not None}
    config.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, **stack}}))
    return command.show(Stack("prod", config), file, catalog.address, call), file


# ------------------------------------------------------------------------------------------------------------- answers
def test_machines_cost_what_their_parts_cost_on_all_pages(catalog: Catalog, tmp_path: Path, capsys: Capture) -> None:
    code, file = run(catalog, tmp_path)
    table = prices.read(file)
    assert code == 0
    assert dict(table.per_hour) == {
        "ct5lp-hightpu-8t/onDemand": Decimal("9.6"),
        "g2-standard-12/spot": Decimal("0.676052"),
        "g2-standard-24/onDemand": Decimal("2.25354"),
    }
    assert (table.currency, table.own_region) == ("USD", "us-west4")
    assert table.date == datetime.datetime.now(datetime.UTC).date().isoformat()
    output = capsys.readouterr().out
    gap = "no price for g2-standard-12/flexStart in us-west4: the SKU DWS Defined Duration G2 Core has no price there."
    assert gap in output
    assert TOKEN not in output + file.read_text()
    tokens = [parse_qs(query, keep_blank_values=True)["pageToken"][0] for _, query in catalog.asked]
    assert tokens == [*catalog.pages]


def test_prices_of_the_catalog_are_about_those_of_the_shipped_table(catalog: Catalog, tmp_path: Path) -> None:
    _, file = run(catalog, tmp_path)
    for key, price in prices.read(file).per_hour.items():
        assert abs(price / LIST_PRICES["us-west4", key].per_hour - 1) < Decimal("0.001"), key


def test_requests_and_answers_have_the_form_of_google_s_description(catalog: Catalog, tmp_path: Path) -> None:
    run(catalog, tmp_path)
    assert {path for path, _ in catalog.asked} == {"/v1/services/6F81-5844-456A/skus"}
    api = rest.api("cloudbilling.v1")
    for page in catalog.pages.values():
        assert [text for _, text in rest.Body(api, "ListSkusResponse", {"skus": page}, {}).problems("body")] == []


def test_local_ssds_are_billed_by_the_month_of_730_hours() -> None:
    rates = Rates(frozenset(parts("a3-highgpu-8g", "flexStart")), "us-central1", "USD")
    rates.read(SKUS)
    price, reason = rates.of("a3-highgpu-8g", "flexStart")
    assert reason == ""
    assert price is not None
    assert abs(price - LIST_PRICES["us-central1", "a3-highgpu-8g/flexStart"].per_hour) < Decimal("0.0001")


def test_machines_whose_skus_were_never_seen_have_no_price() -> None:
    for machine, mode in (
        ("a4-highgpu-8g", "spot"),
        ("tpu7x-standard-4t", "onDemand"),
        ("g2-standard-4", "reservation"),
    ):
        assert parts(machine, mode) == {}
        assert Rates(frozenset(), "us-west4", "USD").of(machine, mode)[0] is None


CORE = next(item for item in SKUS if item["description"].startswith("G2 Instance Core"))


def changed(**expression: Any) -> Sku:
    """The SKU of a vCPU with another price."""
    other = copy.deepcopy(CORE)
    other["pricingInfo"][-1]["pricingExpression"] |= expression
    return other


USD = {"currencyCode": "USD", "units": "0", "nanos": 5}
UNUSABLE: dict[str, list[Sku]] = {
    "two prices": [CORE, changed(tieredRates=[{"unitPrice": {**USD, "units": "1"}}])],
    "price by amount": [changed(tieredRates=[{"unitPrice": USD}, {"startUsageAmount": 9, "unitPrice": USD}])],
    "free amount": [changed(tieredRates=[{"startUsageAmount": 9, "unitPrice": USD}])],
    "zero": [changed(tieredRates=[{"unitPrice": {"currencyCode": "USD"}}])],
    "below zero": [changed(tieredRates=[{"unitPrice": {**USD, "units": "-7"}}])],
    "unit": [changed(usageUnit="mo")],
    "currency": [changed(tieredRates=[{"unitPrice": {**USD, "currencyCode": "EUR"}}])],
    "region": [{**CORE, "serviceRegions": ["us-west1"]}],
    "usage": [{**CORE, "category": {**CORE["category"], "usageType": "Commit1Yr"}}],
    "group": [{**CORE, "category": {**CORE["category"], "resourceGroup": "GPU"}}],
    "longer description": [{**CORE, "description": f"Reserved {CORE['description']}"}],
    "no SKU": [],
}


@pytest.mark.parametrize("of_core", UNUSABLE.values(), ids=UNUSABLE)
def test_a_price_that_is_not_certain_is_a_gap(catalog: Catalog, tmp_path: Path, of_core: list[Sku]) -> None:
    catalog.pages[""] = [item for item in SKUS[:5] if item is not CORE] + of_core
    code, file = run(catalog, tmp_path)
    assert code == 0
    assert "g2-standard-24/onDemand" not in prices.read(file).per_hour


# ----------------------------------------------------------------------------------------------------- hostile answers
HOSTILE: dict[str, Any] = {
    "text": "<html>",
    "list": [1],
    "no list": {"skus": {"a": 1}},
    "no object": {"skus": ["a"]},
    "no description": {"skus": [{}]},
    "number": {"skus": [{**CORE, "description": 7}]},
    "no price": {"skus": [{**CORE, "pricingInfo": []}]},
    "amount": {"skus": [changed(tieredRates=[{"unitPrice": {**USD, "nanos": "many"}}])]},
    "token": {"skus": [], "nextPageToken": 7},
    "endless": {"skus": [], "nextPageToken": "again"},
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
def test_a_malformed_answer_stops_the_command_and_writes_nothing(catalog: Catalog, tmp_path: Path, body: Any) -> None:
    catalog.other = (200, body)
    with pytest.raises(Stop, match="does not have the form of its reference"):
        run(catalog, tmp_path)
    assert not (tmp_path / "prices.yaml").exists()
    assert len(catalog.asked) <= 2


def disabled() -> tuple[int, Any]:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED"}]
    return 403, {"error": {"code": 403, "message": "Not used.", "details": details}}


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (disabled(), "gcloud services enable cloudbilling.googleapis.com --project my-project"),
        ((401, {"error": {"message": "Invalid."}}), "gcloud auth application-default login"),
        ((503, {"error": {"message": "Unavailable."}}), "Run the command again where Google can be reached"),
    ],
)
def test_a_refusal_is_one_error_with_its_remedy(
    catalog: Catalog, tmp_path: Path, answer: tuple[int, Any], remedy: str
) -> None:
    catalog.other = answer
    with pytest.raises(Stop) as stop:
        run(catalog, tmp_path)
    assert remedy in str(stop.value)
    assert str(stop.value).startswith("Google's price catalog cannot be read: ")


def test_without_a_network_there_is_one_error_with_its_remedy(tmp_path: Path) -> None:
    with pytest.raises(Stop, match=r"does not respond: .* Run the command again where Google can be reached"):
        run(Catalog(), tmp_path)


# ------------------------------------------------------------------------------------------------------------ the file
def test_a_table_of_a_person_is_never_replaced_and_the_command_s_own_is(catalog: Catalog, tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("currency: USD\ndate: 2026-01-01\nperHour: {g2-standard-24/onDemand: 1}\n")
    before = file.read_text()
    with pytest.raises(Stop, match="was not written by gke-ai prices"):
        run(catalog, tmp_path)
    assert (file.read_text(), catalog.asked) == (before, [])
    file.unlink()
    run(catalog, tmp_path)
    assert run(catalog, tmp_path)[0] == 0


def test_a_stack_without_machines_of_accelerators_asks_nothing(
    catalog: Catalog, tmp_path: Path, capsys: Capture
) -> None:
    code, file = run(catalog, tmp_path, gpuPools=None, tpuPools=None, computeClasses=None)
    assert (code, catalog.asked, file.exists()) == (0, [], False)
    assert "names no machine type with accelerators" in capsys.readouterr().out
