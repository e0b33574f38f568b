"""`gke-ai capacity` on a server of this machine. Its answers are written after Google's reference; both
they and the requests are compared with Google's API description."""

import datetime
import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from emulator.google import rest
from gke_ai.forecast.rehearse import command as rehearse
from gke_ai.forecast.rehearse import prepared
from gke_ai.forecast.rehearse.scratch import Scratch
from gke_ai.forecast.rehearse.sources import Configurations
from gke_ai.forecast.result import forecast as forecasts
from gke_ai.forecast.result.forecast import Accelerators, Forecast, Interruption, Nodes
from gke_ai.kube.client import Answer
from gke_ai.ops.doctor import requests
from gke_ai.ops.facts import advice, capacity
from gke_ai.settings import calibration
from gke_ai.settings.calibration import Calibration
from gke_ai.terminal import Stop
from gke_ai.workspace import prices
from gke_ai.workspace.stack import Stack
from tests.support import previews
from tests.support.commands import gke_ai
from tests.support.local_server import answering
from tests.support.repository import ROOT
from tests.support.timelines import named

Capture = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
PROJECT, TOKEN = "my-project", "not-a-token"
NOW = datetime.datetime(2026, 11, 23, 12, 30, tzinfo=datetime.UTC)
RECORDED = yaml.load((ROOT / "tests/data/recorded_answers/capacity.yaml").read_text(), yaml.CSafeLoader)
STACK: dict[str, Any] = RECORDED["stack"]
DAYS: list[dict[str, Any]] = RECORDED["days"]
PRICES, OFFER = RECORDED["prices"], RECORDED["offer"]
NO_OFFER = {"otherLocations": {"zones/us-central1-a": {"status": "NO_CAPACITY", "details": "No capacity."}}}


def windows(*offers: dict[str, Any]) -> dict[str, Any]:
    return {"recommendations": [{"recommendationsPerSpec": {"nodes": offer}} for offer in offers]}


def error(code: int, message: str, reason: str = "") -> tuple[int, dict[str, Any]]:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason}] if reason else []
    return code, {"error": {"code": code, "message": message, "details": details}}


def problems(schema: str, body: Any) -> list[str]:
    """What Google's API description has against a body."""
    found = rest.Body(rest.api("compute.v1"), schema, body, {}).problems("body")
    return [text for _, text in found if "is output-only" not in text]


class Compute:
    """Compute Engine's API: answers by method and history, each the same for all machine types."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {
            "PREEMPTION": (200, {"machineType": "g2-standard-24", "preemptionHistory": DAYS}),
            "PRICE": (200, {"machineType": "g2-standard-24", "priceHistory": PRICES}),
            "calendarMode": (200, windows({**OFFER, "startTime": "2027-01-01T00:00:00Z"}, OFFER, NO_OFFER)),
        }
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.address = "http://127.0.0.1:1"

    def answer(self, _: str, path: str, __: str, body: dict[str, Any]) -> tuple[int, Any]:
        self.requests.append((path, body))
        method = path.rpartition("/")[2]
        return self.answers[body["types"][0] if method == "capacityHistory" else method]


@pytest.fixture
def compute() -> Iterator[Compute]:
    compute = Compute()
    with answering(compute.answer) as address:
        compute.address = f"http://{address}"
        yield compute


def logged_in(request: str, body: Any = None, token: str = "", payer: str = "") -> Answer:
    """The commands of a person who is logged in; requests go to the server of the test."""
    if request.startswith("gcloud auth list"):
        return Answer(0, [{"account": "oncall@example.com"}])
    if request.startswith("gcloud auth application-default"):
        return Answer(0, TOKEN)
    assert (token, payer) == (TOKEN, PROJECT)
    return requests.call(request, body, token, payer)


def today() -> datetime.date:
    return datetime.datetime.now(datetime.UTC).date()


def run(compute: Compute, folder: Path, call: Any = logged_in, **changes: Any) -> tuple[int, Path]:
    """Runs the command. Returns its exit code and the calibration file."""
    config, file = folder / "prod.yaml", folder / "calibration.yaml"
    stack = {f"gke-ai:{key}": value for key, value in (STACK | changes).items() if value is not None}
    config.write_text(yaml.safe_dump({"config": {"gcp:project": PROJECT, **stack}}))
    return capacity.show(Stack("prod", config), file, compute.address, call), file


# ------------------------------------------------------------------------------------------------------------ answers
def test_googles_figures_are_in_the_file(compute: Compute, tmp_path: Path, capsys: Capture) -> None:
    before = today()
    code, file = run(compute, tmp_path)
    written = calibration.read(file)
    assert code == 0
    assert {(entry.machine_type, entry.zone) for entry in written.spot} == {
        *((name, f"us-central1-{letter}") for name in ("g2-standard-24", "a2-highgpu-1g") for letter in "abc"),
        ("a3-highgpu-8g", "us-central1-a"),
    }
    history = next(entry for entry in written.spot if entry.key == ("g2-standard-24", "us-central1-b"))
    assert (history.rate, history.max_rate, history.days) == (0.15, 0.4, 3)
    assert history.until == datetime.date(2026, 10, 23)
    assert history.asked_on is not None
    assert before <= history.asked_on <= today()
    price = next(entry for entry in written.spot_prices if entry.machine_type == "g2-standard-24")
    assert (price.region, price.currency, price.since) == ("us-central1", "USD", datetime.date(2026, 10, 1))
    assert (price.per_hour, price.lowest, price.highest) == (Decimal("1.05"), Decimal("0.47872"), Decimal("1.05"))
    window = next(entry for entry in written.windows if entry.machine_type == "a3-highgpu-8g")
    assert (window.nodes, window.zone) == (2, "us-central1-a")
    assert (window.start, window.end) == (datetime.date(2026, 12, 1), datetime.date(2026, 12, 8))
    assert [entry.nodes for entry in written.windows if entry.machine_type == "a2-highgpu-1g"] == [3]
    output = capsys.readouterr().out
    assert all(str(entry) in output for entry in (*written.spot, *written.spot_prices, *written.windows))
    assert TOKEN not in output + file.read_text()
    # What Google does not serve is named and left out.
    assert "v5e (ct5lp-hightpu-8t) is left out: Google publishes no Spot history of TPUs." in output
    assert "t4 (n1-standard-8) is left out: Google publishes no Spot history of N1 machines with GPUs." in output
    assert not re.search("n1-standard|ct5lp", json.dumps(compute.requests))


def test_answers_and_requests_have_the_form_of_google_s_description(compute: Compute, tmp_path: Path) -> None:
    run(compute, tmp_path)
    schemas = {"capacityHistory": "CapacityHistoryRequest", "calendarMode": "CalendarModeAdviceRequest"}
    for path, body in compute.requests:
        folder, _, method = path.rpartition("/")
        assert folder == f"/compute/v1/projects/{PROJECT}/regions/us-central1/advice"
        assert problems(schemas[method], body) == []
    assert {path.rpartition("/")[2] for path, _ in compute.requests} == schemas.keys()
    for name in ("PREEMPTION", "PRICE"):
        assert problems("CapacityHistoryResponse", compute.answers[name][1]) == []
    for answer in (compute.answers["calendarMode"][1], windows(NO_OFFER)):
        assert problems("CalendarModeAdviceResponse", answer) == []
    assert problems("CapacityHistoryRequest", {"machineType": "g2-standard-24"}) != []


def test_each_request_is_made_once_and_names_its_place(compute: Compute, tmp_path: Path) -> None:
    run(compute, tmp_path)
    bodies = [json.dumps(body, sort_keys=True) for _, body in compute.requests]
    assert len(bodies) == len(set(bodies)) == 7 + 3 + 2
    price = advice.history_request("g2-standard-24", "PRICE")
    assert "locationPolicy" not in price
    assert price["instanceProperties"]["scheduling"] == {"provisioningModel": "SPOT"}
    history = advice.history_request("g2-standard-24", "PREEMPTION", "us-central1-a")
    assert history["locationPolicy"] == {"location": "zones/us-central1-a"}
    spec = advice.window_request(advice.Nodes("a3-highgpu-8g", 2, ("us-central1-a",)), "us-central1", NOW)
    (nodes,) = spec["futureResourcesSpecs"].values()
    denied = {f"zones/us-central1-{letter}": {"preference": "DENY"} for letter in "bcf"}
    assert nodes["locationPolicy"] == {"locations": denied}
    start = {"startTimeNotEarlierThan": "2026-11-23T12:00:00Z", "startTimeNotLaterThan": "2027-01-22T12:00:00Z"}
    assert nodes["timeRangeSpec"] == start | {"minDuration": "86400s", "maxDuration": "604800s"}


def test_the_rate_of_the_current_day_does_not_count() -> None:
    today = {"interval": {"startTime": "2026-11-23T08:00:00Z", "endTime": "2026-11-24T08:00:00Z"}, "preemptionRate": 1}
    history = advice.preemptions({"preemptionHistory": [*DAYS, today]}, "g2-standard-24", "us-central1-a", NOW)
    assert history
    assert (history.days, history.max_rate) == (3, 0.4)
    assert advice.preemptions({"preemptionHistory": [today]}, "g2-standard-24", "us-central1-a", NOW) is None


@pytest.mark.parametrize(
    ("money", "expected"),
    [
        *(({"units": "3"}, "3"), ({"units": "100"}, "100"), ({}, "0"), ({"units": "12", "nanos": 1}, "12.000000001")),
        ({"nanos": "478720000"}, "0.47872"),  # gcloud prints it as text
    ],
)
def test_amounts_of_money_are_exact(money: dict[str, Any], expected: str) -> None:
    assert str(advice.amount(money)) == expected


def test_later_answers_replace_earlier_ones_and_measurements_stay(compute: Compute, tmp_path: Path) -> None:
    day = datetime.date(2026, 1, 1)
    old = {"machineType": "a3-highgpu-8g", "region": "us-central1", "nodes": 2, "days": 60, "askedOn": day}
    node = {"machineType": "g2-standard-24", "gpu": "nvidia-l4", "gpus": 2, "allocatable": {"cpu": "22"}, "nodes": 1}
    content = {"nodes": [{**node, "measuredOn": day, "gkeVersion": "1.36"}], "windows": [old, {**old, "nodes": 9}]}
    (tmp_path / "calibration.yaml").write_text(yaml.safe_dump(content))
    before = today()
    _, file = run(compute, tmp_path)
    written = calibration.read(file)
    assert [entry.machine_type for entry in written.nodes] == ["g2-standard-24"]
    asked = {entry.nodes: entry.asked_on for entry in written.windows if entry.machine_type == "a3-highgpu-8g"}
    assert asked.keys() == {2, 9}
    assert asked[9] == day < before <= asked[2] <= today()
    assert written.written() == file.read_text()


# ---------------------------------------------------------------------------------------------------- what is left out


def test_stack_without_gpus_asks_nothing(compute: Compute, tmp_path: Path, capsys: Capture) -> None:
    code, file = run(compute, tmp_path, gpuPools=None, computeClasses=None, serving=None)
    assert (code, compute.requests, file.exists()) == (0, [], False)
    output = capsys.readouterr().out
    assert "names no GPU machine type" in output
    assert "no calibration file was written" in output


def test_empty_answers_are_no_failure(compute: Compute, tmp_path: Path, capsys: Capture) -> None:
    compute.answers |= {"PREEMPTION": (200, {"machineType": "x"}), "PRICE": (200, {"priceHistory": []})}
    compute.answers["calendarMode"] = (200, windows(NO_OFFER))
    code, file = run(compute, tmp_path)
    written = calibration.read(file)
    assert (code, written.spot, written.spot_prices) == (0, [], [])
    assert {(entry.start, entry.zone) for entry in written.windows} == {(None, None)}
    output = capsys.readouterr().out
    assert "Spot g2-standard-24 in us-central1-a: Google has no figure" in output
    assert "Calendar mode cannot reserve 2 a3-highgpu-8g in us-central1 within 60 days" in output


def test_no_calendar_offer_is_no_failure(compute: Compute, tmp_path: Path, capsys: Capture) -> None:
    compute.answers["calendarMode"] = error(400, "Machine type is not supported in region us-central1.")
    code, file = run(compute, tmp_path)
    assert (code, calibration.read(file).windows) == (0, [])
    assert capsys.readouterr().out.count("answers 400: Machine type is not supported in region us-central1.") == 2


# ------------------------------------------------------------------------------------------------------------ refusals
REFUSALS: dict[str, tuple[tuple[int, Any], str]] = {
    "login": (error(401, "Invalid credentials."), "gcloud auth application-default login"),
    "API": (error(403, "Not used.", "SERVICE_DISABLED"), "gcloud services enable compute.googleapis.com --project"),
    "permission": (error(403, "Required permission."), "permission compute.advice.capacityHistory in my-project"),
    "limit": (error(429, "Quota exceeded."), "Run the command again in a minute"),
    "server": (error(503, "Unavailable."), "Run the command again later"),
    "form": ((200, {"preemptionHistory": [{"interval": {}}]}), "does not have the form"),
    "text": ((200, "<html>"), "does not have the form"),
    "range": ((200, {"preemptionHistory": [{**DAYS[0], "preemptionRate": 7}]}), "does not have the form"),
}


@pytest.mark.parametrize("refusal", REFUSALS)
def test_refusals_say_their_reason_and_a_remedy(
    compute: Compute, tmp_path: Path, capsys: Capture, refusal: str
) -> None:
    compute.answers["PREEMPTION"], remedy = REFUSALS[refusal]
    code, file = run(compute, tmp_path)
    output = capsys.readouterr().out
    assert code == 1
    (line,) = (line for line in output.splitlines() if remedy in line)
    assert line.startswith("Spot g2-standard-24 in us-central1-a: ")
    assert "Spot g2-standard-24 in us-central1-b: not asked." in output
    assert [path for path, _ in compute.requests if path.endswith("capacityHistory")] == [compute.requests[0][0]]
    assert TOKEN not in output
    written = calibration.read(file)
    assert written.windows, "the other method answers"
    assert not written.spot


def test_machine_that_a_place_lacks_stops_no_other_request(compute: Compute, tmp_path: Path, capsys: Capture) -> None:
    compute.answers["PREEMPTION"] = error(404, "The resource 'zones/us-central1-a' was not found.")
    code, file = run(compute, tmp_path)
    assert code == 1
    assert len(compute.requests) == 7 + 3 + 2
    assert calibration.read(file).spot_prices
    assert "was not found.. Check gcp:project, the location" not in (output := capsys.readouterr().out)
    assert output.count("Check gcp:project, the location of the cluster and its zones") == 7


def test_configured_file_is_written(compute: Compute, tmp_path: Path, capsys: Capture) -> None:
    file = tmp_path / "named.yaml"
    file.write_text(FIGURES.written())
    run(compute, tmp_path, calibration=str(file))
    capacity.show(Stack("prod", tmp_path / "prod.yaml"), None, compute.address, logged_in)
    assert len(calibration.read(file).windows) == 2
    assert "pulumi config set" not in capsys.readouterr().out


def test_missing_credentials_and_a_silent_server_are_named(compute: Compute, tmp_path: Path, capsys: Capture) -> None:
    with pytest.raises(Stop, match=r"Run: gcloud auth application-default login --project my-project"):
        run(compute, tmp_path, call=lambda *_: Answer(1, error="none"))
    assert compute.requests == []
    code, file = run(Compute(), tmp_path)
    assert (code, file.exists()) == (1, False)
    assert "does not respond" in capsys.readouterr().out


# ------------------------------------------------------------------------------------------------------------ the file
DAY = "2026-11-20"
SPOT = {"machineType": "g2-standard-24", "zone": "us-central1-a", "rate": 0.081, "maxRate": 0.31, "days": 30}
PRICE = {"machineType": "g2-standard-24", "region": "us-central1", "currency": "USD", "perHour": "0.47872"}
PRICE |= {"since": "2026-10-01", "lowest": "0.4", "highest": "0.6"}
WINDOW = {"machineType": "a3-highgpu-8g", "region": "us-central1", "nodes": 2, "days": 60, "zone": "us-central1-a"}
WINDOW |= {"start": "2026-12-01", "end": "2026-12-08"}
ENTRIES: dict[str, dict[str, Any]] = {"spot": {**SPOT, "until": DAY}, "spotPrices": PRICE, "windows": WINDOW}
FIGURES = Calibration.model_validate({key: [{**entry, "askedOn": DAY}] for key, entry in ENTRIES.items()})


def test_remarks_name_the_place_the_date_and_google() -> None:
    assert FIGURES.remarks("g2-standard-24", "spot") == [
        "Spot g2-standard-24 in us-central1-a: Google preempted 8% of the VMs that stopped, and 31% on the worst of "
        "the 30 days until 2026-11-20 (Google's capacity history).",
        "Spot g2-standard-24 in us-central1: 0.47872 USD per hour since 2026-10-01, 0.4 to 0.6 within a year (Google's "
        "list price on 2026-11-20).",
    ]
    for mode in ("reservation", "flexStart", "queuedFlexStart"):
        assert FIGURES.remarks("a3-highgpu-8g", mode) == [
            "Calendar mode can reserve 2 a3-highgpu-8g in us-central1-a from 2026-12-01 to 2026-12-08 (Google's answer "
            "on 2026-11-20)."
        ]
    assert FIGURES.remarks("g2-standard-24", "onDemand") == FIGURES.remarks("a3-highgpu-8g", "spot") == []


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        *(("spot", "rate", 1.5), ("spot", "zone", "](https://example.com)"), ("windows", "nodes", 0)),
        *(("spotPrices", "perHour", "-1"), ("spotPrices", "perHour", "NaN"), ("spotPrices", "currency", "dollars")),
    ],
)
def test_figures_read_as_they_were_written_and_impossible_ones_are_refused(
    tmp_path: Path, section: str, key: str, value: object
) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(FIGURES.written())
    assert calibration.read(file) == FIGURES
    content = yaml.safe_load(FIGURES.written())
    content[section][0][key] = value
    file.write_text(yaml.safe_dump(content))
    with pytest.raises(calibration.BadCalibration) as bad:
        calibration.read(file)
    ((where, _, remedy),) = bad.value.mistakes
    assert where == f"{section}[0].{key}"
    assert "gke-ai capacity" in remedy


# ------------------------------------------------------------------------------------------------ report and rehearsal
def planned(folder: Path, figures: Calibration = FIGURES, per_hour: dict[str, int] | None = None) -> str:
    """The page of a plan whose pool is Spot, by a configuration that names the figures."""
    recorded = previews.creation().written()
    machine = '"machineType": "g2-standard-24"'
    assert machine in recorded
    (folder / "spot.json").write_text(recorded.replace(machine, f'{machine}, "spot": true'))
    options = ["--from", str(folder / "spot.json"), "--graph", "none", "--output", str(folder / "page.md")]
    options += ["--config-file", str(configured(folder, figures))]
    if per_hour:
        options += ["--prices", str(table(folder, per_hour))]
    gke_ai("report", *options)
    return (folder / "page.md").read_text()


def configured(folder: Path, figures: Calibration, **keys: object) -> Path:
    """A configuration that names a calibration file with these figures."""
    file, measured = folder / "config.yaml", folder / "calibration.yaml"
    measured.write_text(figures.written())
    keys = {f"gke-ai:{key}": value for key, value in keys.items()}
    file.write_text(yaml.safe_dump({"config": {**keys, "gke-ai:calibration": str(measured)}}))
    return file


def table(folder: Path, per_hour: dict[str, int], currency: str = "USD") -> Path:
    """A price table."""
    file = folder / "prices.yaml"
    file.write_text(yaml.safe_dump({"currency": currency, "date": "2026-11-01", "perHour": per_hour}))
    return file


def test_report_names_what_google_said_of_the_machines_of_the_plan(tmp_path: Path) -> None:
    text = planned(tmp_path)
    section = text.partition("## Capacity")[2].partition("##")[0]
    assert section.count("\n- ") == 2
    assert "- Spot g2-standard-24 in us-central1-a: Google preempted 8% of the VMs that stopped" in section
    assert "a3-highgpu-8g" not in text, "the plan has no such machine"
    assert "## Capacity" not in planned(tmp_path, Calibration(spot=[]))


def test_report_uses_googles_price_where_the_table_has_none(tmp_path: Path) -> None:
    text = planned(tmp_path, per_hour={"g2-standard-48/spot": 3})
    assert "| spot | `nvidia-l4` | 0 | **6** | 0.00 | 1.44 |" in text
    assert "Prices in USD per hour of g2-standard-24/spot: Google's list price in us-central1 on 2026-11-20." in text
    own = planned(tmp_path, per_hour={"g2-standard-24/spot": 2})
    assert "| 0.00 | 6.00 |" in own
    assert "Google's list price in" not in own
    table_in_euro = prices.read(table(tmp_path, {"g2-standard-48/spot": 3}, "EUR"))
    in_euro = prices.with_google(table_in_euro, FIGURES, "us-central1")
    assert in_euro.of("g2-standard-24", "spot") is None, "a price in another currency is not used"


def test_rehearsal_names_what_google_said_and_uses_its_price(
    tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    pools = (
        Nodes("burst", "spot", "g2-standard-24", "nvidia-l4", 2, came=3, after=3),
        Nodes("h100", "flexStart", "a3-highgpu-8g", "nvidia-h100-80gb", 8, after=1),
        Nodes("gone", "queuedFlexStart", "a3-highgpu-8g", "nvidia-h100-80gb", 8, before=1, went=1),
    )
    used = (Accelerators("nvidia-l4", "spot", "g2-standard-24", 2, 0, 3, 0, 6, 0.0, 1.5),)
    forecast = Forecast("prod", "gpuPools", True, 600, 1800, nodes=pools, accelerators=used)
    monkeypatch.setenv("GKE_AI_STATE", str(tmp_path))
    monkeypatch.setattr(rehearse, "stop_at_signals", lambda: None)
    monkeypatch.setattr(rehearse, "scratch", lambda: nullcontext(Scratch(tmp_path)))
    monkeypatch.setattr(rehearse, "Recorder", lambda _: nullcontext())
    monkeypatch.setattr(Scratch, "kubeconfig", lambda _: "")
    monkeypatch.setattr(rehearse, "client_of", lambda *_: None)
    monkeypatch.setattr(rehearse, "request", lambda *_: Answer(404, ""))
    monkeypatch.setattr(Configurations, "bring_up", lambda *_: None)
    monkeypatch.setattr(Configurations, "restored", lambda *_: (None, []))
    monkeypatch.setattr(Scratch, "prepare", lambda *_: tmp_path)
    monkeypatch.setattr(rehearse, "_change", lambda *_: forecast)
    (tmp_path / "base.yaml").write_text(yaml.safe_dump({"config": {}}))
    options = ["--config", configured(tmp_path, FIGURES), "--base", tmp_path / "base.yaml"]
    options += ["--prices", table(tmp_path, {"g2-standard-48/spot": 3}), "--json", tmp_path / "out.json"]
    options += ["--markdown", tmp_path / "out.md"]
    gke_ai("rehearse", *options)
    remarks = [*FIGURES.remarks("a3-highgpu-8g", "flexStart"), *FIGURES.remarks("g2-standard-24", "spot")]
    assert list(forecasts.read(tmp_path / "out.json").notes) == remarks
    page = (tmp_path / "out.md").read_text()
    assert all(f"- {remark}" in page for remark in remarks)
    assert "| 0.00 → 1.44 |" in page
    assert "0.00 → 1.44" in capsys.readouterr().out


def test_rehearsal_without_flex_start_capacity_names_what_can_be_reserved_instead(tmp_path: Path) -> None:
    assert rehearse.google_remarks((), ("flexStart", "spot"), FIGURES) == FIGURES.remarks("a3-highgpu-8g", "flexStart")
    assert rehearse.google_remarks((), ("onDemand",), FIGURES) == []
    before = prepared.key("prod", configured(tmp_path, Calibration()), None)
    assert prepared.key("prod", configured(tmp_path, FIGURES), None) == before, "figures make no kept base stale"


def test_a_pool_that_loses_some_of_its_nodes_with_pods_says_that_gke_chooses_them() -> None:
    pool = Nodes("gpu", "onDemand", "g2-standard-12", before=3, went=1, after=2)
    drained = Interruption(named("llm/job/a"), "node pool gpu, despite its disruption budget", 1)
    shrinks = Forecast("s", "c", True, 1, 1, nodes=(pool,), interruptions=(drained,))
    note = "GKE chooses which nodes of pool gpu it removes, so other pods may end than here."
    assert [*rehearse.chosen_by_google(shrinks)] == [note]
    for quiet in (replace(shrinks, interruptions=()), replace(shrinks, nodes=(replace(pool, came=1, after=3),))):
        assert [*rehearse.chosen_by_google(quiet)] == []
