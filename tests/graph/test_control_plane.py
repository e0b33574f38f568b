"""An update waits until the control plane answers before it calls the cluster. A preview does not."""

import asyncio
import ssl
import threading
from base64 import b64decode, b64encode
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pytest

from emulator.tests.gateway_objects import certificate
from gke_ai.components.cluster import control_plane
from gke_ai.components.support import polling
from tests.support.recorder import configuration, run_program


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Any]:
    """An HTTPS server on this machine with its `host`, its `authority` and the `status` that it returns."""
    files = certificate("control plane")["data"]
    pem = tmp_path / "server.pem"
    pem.write_bytes(b64decode(files["tls.crt"]) + b64decode(files["tls.key"]))
    stub = SimpleNamespace(status=200, asked=[], authority=files["tls.crt"])

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            stub.asked.append(self.path)
            self.send_response(stub.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    listening.socket = context.wrap_socket(listening.socket, server_side=True)
    threading.Thread(target=listening.serve_forever, args=(0.01,), daemon=True).start()
    stub.host = f"127.0.0.1:{listening.server_port}"
    yield stub
    listening.shutdown()
    listening.server_close()


@pytest.mark.parametrize(("status", "answers"), [(200, True), (401, True), (403, True), (500, False), (503, False)])
def test_a_control_plane_that_requires_a_login_answers_without_a_proxy(
    server: Any, status: int, answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")  # unused for this machine
    server.status = status
    assert (control_plane.failure(server.host, server.authority) is None) == answers
    assert server.asked == ["/healthz"]


@pytest.mark.parametrize("host", ["127.0.0.1:9", "no-such-host.invalid"])
def test_unreachable_host_is_a_failure(host: str) -> None:
    assert control_plane.failure(host, None)


def test_unknown_or_invalid_certificate_authority_is_a_failure(server: Any) -> None:
    assert "certificate" in (control_plane.failure(server.host, None) or "")
    for authority in ("!", b64encode(b"no certificate").decode()):
        assert control_plane.failure(server.host, authority)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A clock that advances only in pauses, the failures of the next tries, and the logged messages."""
    state = SimpleNamespace(now=0.0, reasons=[], said=[], warned=[])

    async def sleep(seconds: float) -> None:
        state.now += seconds

    async def in_thread(*_: object) -> str | None:
        return state.reasons.pop(0) if state.reasons else None

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(polling, "time", SimpleNamespace(monotonic=lambda: state.now))
    monkeypatch.setattr(control_plane, "in_thread", in_thread)
    monkeypatch.setattr(pulumi.log, "info", state.said.append)
    monkeypatch.setattr(pulumi.log, "warn", state.warned.append)
    return state


def wait() -> None:
    loop = asyncio.new_event_loop()
    loop.run_until_complete(control_plane.wait_for_control_plane("192.0.2.1", None))
    loop.close()


def test_a_wait_is_logged_once_with_its_reason(clock: Any) -> None:
    wait()
    assert (clock.now, clock.said, clock.warned) == (0, [], []), "it answers at once"
    clock.reasons = ["connection refused"] * 20
    wait()
    assert 30 < clock.now < 120
    assert clock.said == ["Waiting until the control plane answers at https://192.0.2.1: connection refused"]
    assert clock.warned == []


def test_a_wait_ends_after_five_minutes_with_a_warning(clock: Any) -> None:
    clock.reasons = ["timed out"] * 1000
    wait()
    assert 300 <= clock.now <= 305
    (warning,) = clock.warned
    assert "timed out" in warning
    assert "authorizedNetworks" in warning


@pytest.mark.parametrize("preview", [True, False])
def test_an_update_waits_and_a_preview_does_not(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[tuple[str, str | None]] = []

    async def answered(host: str, authority: str | None) -> None:
        requests.append((host, authority))

    config = configuration("examples/mixed-training-inference.yaml")
    record = run_program(config, preview, monkeypatch, control_plane=answered)
    assert requests == ([] if preview else [("192.0.2.1", "Q0E=")])
    assert preview or "192.0.2.1" in record.outputs["kubeconfig"]
