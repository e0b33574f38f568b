"""`make smoke` of servers that require an API key: through their gateway, with the key."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from gke_ai.catalog.engines.gateways import tenant_api_key
from gke_ai.formats.console import new_console
from gke_ai.ops.smoke import command as smoke
from gke_ai.ops.smoke.routes import checked_routes, through_gateway
from gke_ai.workspace.stack import Stack
from tests.support.local_server import listening

KEY = "0123456789abcdef0123"
Gateway = tuple[str, list[dict[str, Any]]]
# Requests to a host that the gateway can't pass on yet.
UNPROGRAMMED = {"new.example.com": 4, "partly-new.example.com": 2, "broken.example.com": 1000}


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A gateway in front of a server that checks the key: its address, and the requests that it gets."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append({"path": self.path, "host": self.headers["Host"], **body})
            allowed = self.headers["Authorization"] == f"Bearer {KEY}"
            answer: Any = {"choices": [{"text": "Jupiter"}], "usage": {"completion_tokens": 2}}
            content = json.dumps(answer if allowed else {"error": f"Unauthorized: {self.headers['Authorization']}"})
            status = 200 if allowed else 401
            if len(requests) <= UNPROGRAMMED.get(self.headers["Host"], 0):
                status, content = 500, ""
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content.encode())

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    with listening(Handler) as address:
        yield f"http://{address}", requests


def outputs(url: str, *, api_key: bool = True, host: str = "") -> dict[str, Any]:
    servers = [{"server": "gemma", "weight": 90}, {"server": "gemma-next", "weight": 0}]
    route = {"name": "gemma", "namespace": "llm", "host": host, "model": "google/gemma", "servers": servers}
    return {
        "servers": [{"name": name, "namespace": "llm", "engine": "vllm"} for name in ("gemma", "gemma-next", "other")],
        "gateways": [{"url": url, "apiKey": api_key, "routes": [route]}],
    }


def result(url: str, host: str = "") -> smoke.Result:
    (route,) = checked_routes(outputs(url, host=host))
    return smoke.check_route(route, Stack("dev"), new_console())


def test_servers_with_a_key_are_checked_through_their_gateway_with_that_of_their_tenant(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, requests = gateway
    monkeypatch.setenv("GATEWAY_API_KEY", KEY)
    checked = result(url, "llm.example.com")
    assert checked.passed, checked
    asked = {(request["path"], request["host"], request["model"]) for request in requests}
    assert asked == {("/v1/completions", "llm.example.com", "google/gemma")}
    monkeypatch.setenv("GATEWAY_API_KEY", "key-of-the-whole-stack")
    monkeypatch.setattr(f"{__name__}.KEY", tenant_api_key("key-of-the-whole-stack", "llm"))
    (route,) = checked_routes({**outputs(gateway[0]), "tenants": [{"namespace": "llm"}]})
    assert smoke.check_route(route, Stack("dev"), new_console()).passed


@pytest.mark.parametrize("host", ["new.example.com", "partly-new.example.com"])
def test_new_gateway_is_asked_again_until_it_reaches_its_servers(
    host: str, gateway: Gateway, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEWAY_API_KEY", KEY)
    monkeypatch.setattr(smoke, "PAUSE_SECONDS", 0.01)
    checked = result(gateway[0], host)
    assert checked.passed, checked
    assert len(gateway[1]) == 8
    shown = " ".join(capsys.readouterr().out.split())
    assert "the gateway does not reach its servers yet (HTTP 500: empty response): asking again" in shown


def test_gateway_that_never_reaches_its_servers_fails(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_API_KEY", KEY)
    monkeypatch.setattr(smoke, "PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(smoke, "PROGRAMMED_SECONDS", 0.1)
    checked = result(gateway[0], "broken.example.com")
    assert not checked.passed
    assert {reply.problem for reply in checked.replies} == {"HTTP 500: empty response"}


def test_wrong_key_fails_and_is_never_shown_and_a_missing_one_is_named(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GATEWAY_API_KEY", "wrong-key-of-somebody")
    checked = result(gateway[0])
    assert (checked.passed, "HTTP 401" in checked.replies[0].problem) == (False, True)
    assert "wrong-key" not in str(checked)
    assert checked.replies[0].remedy.startswith("set GATEWAY_API_KEY to the key of the stack")
    monkeypatch.delenv("GATEWAY_API_KEY")
    checked = result("http://192.0.2.1")
    assert not checked.passed
    assert "pulumi config get gke-ai:gatewayApiKey --stack dev" in checked.remedy


def test_other_servers_are_checked_through_the_api_server() -> None:
    assert through_gateway(outputs("http://192.0.2.1")) == {("llm", "gemma"), ("llm", "gemma-next")}
    unprotected = outputs("http://192.0.2.1", api_key=False)
    assert not through_gateway(unprotected)
    assert not list(checked_routes(unprotected))


def test_a_server_that_sleeps_is_checked_through_its_gateway_without_a_key(gateway: Gateway) -> None:
    sleeping = outputs(gateway[0], api_key=False)
    sleeping["autoscalers"] = [{"namespace": "llm", "server": "gemma", "minReplicas": 0}]
    (route,) = checked_routes(sleeping)
    checked = smoke.check_route(route, Stack("dev"), new_console())
    assert "HTTP 401: Unauthorized: None" in checked.replies[0].problem, "it has sent no key"


def test_each_model_and_adapter_of_a_route_is_asked_at_its_address(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, requests = gateway
    monkeypatch.setenv("GATEWAY_API_KEY", KEY)
    exported = outputs(url)
    exported["gateways"][0]["routes"][0]["models"] = ["google/gemma", "sql"]
    results = [smoke.check_route(route, Stack("dev"), new_console()) for route in checked_routes(exported)]
    passed = {checked.server: checked.passed for checked in results}
    assert passed == {"llm/gemma (route): google/gemma": True, "llm/gemma (route): sql": True}
    assert {request["model"] for request in requests} == {"google/gemma", "sql"}
