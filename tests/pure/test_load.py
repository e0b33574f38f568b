"""`gke-ai load` against a stub of a gateway: how requests end, and at which rate the objective breaks."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import click
import pytest

from gke_ai.cli.verbs import gke_ai
from gke_ai.ops.load.command import Options, chosen, load, sentences
from gke_ai.ops.load.picture import drawn
from gke_ai.ops.load.requests import Step, percentile, prompt
from gke_ai.ops.smoke.answers import Reply
from gke_ai.ops.smoke.routes import model_routes
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.local_server import Object, answering

OPTIONS = Options("", (200.0,), 0.1, 0, 10, 4, 2.0, 10.0)
GOOD = Reply(1.0, "Jupiter", 5, first_token=0.5, last_token=0.9)


class Routed(Stack):
    """A stack whose gateway has this address."""

    address: str
    keyed = False

    def outputs(self) -> dict[str, Any]:
        routed = {"servers": [{"server": "gemma", "weight": 1}], "name": "gemma", "namespace": "llm"}
        route = {**routed, "host": "", "model": "google/gemma"}
        gateway = {"url": f"http://{self.address}", "apiKey": self.keyed, "routes": [route]}
        return {"servers": [{"name": "gemma", "namespace": "llm", "engine": "vllm"}], "gateways": [gateway]}


def of(address: str, keyed: bool = False) -> Routed:
    stack = Routed("dev")
    object.__setattr__(stack, "address", address)
    object.__setattr__(stack, "keyed", keyed)
    return stack


def step(rate: float, *replies: Reply) -> Step:
    return Step(rate, 1.0, replies)


def problem(text: str) -> Reply:
    return Reply(1.0, problem=text)


def test_requests_are_counted_by_their_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    number = count()

    def answer(method: str, path: str, query: str, body: Object) -> tuple[int, Object] | None:
        assert (method, path, query, body["model"], body["max_tokens"]) == (
            "POST",
            "/v1/completions",
            "",
            "google/gemma",
            4,
        )
        good = {"choices": [{"text": "Jupiter"}], "usage": {"completion_tokens": 2}}
        at = next(number)
        return (200, good) if at < 17 else (429, {"error": "full"}) if at < 19 else (503, {"error": "late"})

    file = tmp_path / "load.json"
    with answering(answer) as address:
        options = replace(OPTIONS, json=file, picture=tmp_path / "load.svg")
        assert load(of(address), options) == 0
    (written,) = json.loads(file.read_text())
    assert (written["rate"], written["kinds"]) == (200.0, {"200": 17, "429": 2, "503": 1})
    ET.fromstring((tmp_path / "load.svg").read_text())
    assert "breaks at or below 200 requests a second" in " ".join(capsys.readouterr().out.split())


def test_an_end_that_no_page_names_is_named_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(lambda *_: (500, {"error": "the picker has ended"})) as address:
        assert load(of(address), OPTIONS) == 1
    assert "Answers that no page names: 500." in " ".join(capsys.readouterr().out.split())


def test_a_route_with_a_key_needs_it_and_sends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GATEWAY_API_KEY", raising=False)
    with pytest.raises(Stop, match="requires an API key"):
        load(of("192.0.2.1", keyed=True), OPTIONS)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([step(1, GOOD), step(2, GOOD)], "breaks above 2 requests a second"),
        ([step(1, GOOD), step(2, problem("HTTP 429: full"))], "breaks between 1 and 2 requests a second"),
        ([step(1, problem("HTTP 503: late")), step(2, GOOD)], "At 1 it broke too, before replicas were ready"),
        (
            [step(1, Reply(9.0, "Jupiter", 5, first_token=8.0, last_token=9.0))],
            "breaks at or below 1 requests a second",
        ),
        ([step(float("inf"), GOOD)], "Kept: a first token within 2 s"),
    ],
)
def test_the_rate_at_which_the_objective_breaks_is_named(steps: list[Step], expected: str) -> None:
    assert expected in " ".join(sentences(steps, 2.0))


def test_an_error_counts_against_the_objective() -> None:
    mixed = [GOOD] * 94 + [problem("HTTP 429: full")] * 6
    assert not step(1, *mixed).keeps(2.0, 0.95)
    assert step(1, *mixed[:-1], GOOD).keeps(2.0, 0.95)


def test_percentiles_are_values_that_occur() -> None:
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.5) == 2.0
    assert percentile([3.0, 1.0, 2.0, 4.0], 0.95) == 4.0
    assert percentile([], 0.5) is None


def test_prompts_have_their_length_and_no_common_prefix() -> None:
    assert [len(prompt(words, 7).split()) for words in (1, 2, 100)] == [1, 2, 100]
    assert prompt(100, 1).split()[0] != prompt(100, 2).split()[0]


def test_the_picture_says_the_verdict_and_has_a_bar_for_each_end() -> None:
    steps = [step(1, GOOD), step(8, GOOD, problem("HTTP 429: full"), problem("HTTP 500: gone"))]
    picture = drawn("llm/gemma", steps, 2.0, sentences(steps, 2.0))
    ET.fromstring(picture)
    assert "breaks between 1 and 8 requests a second" in picture
    assert picture.count("<rect") == 1 + 4 + 4, "the page, the bars and the legend"


def test_a_route_is_named_where_there_are_several() -> None:
    stack = of("192.0.2.1")
    outputs = stack.outputs()
    outputs["gateways"][0]["routes"].append({**outputs["gateways"][0]["routes"][0], "name": "llama"})
    routes = list(model_routes(outputs))
    assert chosen(routes, "llama", stack).name == "llama"
    with pytest.raises(Stop, match=r"several routes\. Name one: gemma and llama"):
        chosen(routes, "", stack)
    with pytest.raises(Stop, match=r"no route qwen\. Its routes: gemma and llama"):
        chosen(routes, "qwen", stack)
    with pytest.raises(Stop, match="A load goes through a gateway"):
        chosen([], "", stack)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "0", "-1", "1001"])
def test_rates_that_nobody_can_send_are_refused(text: str) -> None:
    rates = next(option.type for option in gke_ai.commands["load"].params if option.name == "rates")
    with pytest.raises(click.BadParameter, match="is no list of rates"):
        rates.convert(text, None, None)
    assert rates.convert("0.5,1000", None, None) == (0.5, 1000.0)
