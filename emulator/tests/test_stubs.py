"""The stubs serve the HTTP APIs of the real servers, and report the load that autoscaling acts on."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from emulator.cluster import processes, stubs

Object = dict[str, Any]
CHIPS = {"node": "n1", "count": 2, "memory": 1000, "labels": {"container": "engine", "namespace": "llm", "pod": "p"}}


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    """Starts a stub as the daemon does, and returns its port once it listens."""
    running: list[subprocess.Popen[bytes]] = []

    def start(kind: str, **settings: object) -> int:
        settings.setdefault("port", processes.free_ports(1)[0])
        command = [sys.executable, "-I", "-S", stubs.__file__, kind, json.dumps(settings)]
        running.append(subprocess.Popen(command, env={stubs.TOKEN_SECONDS_VARIABLE: "0.01"}))
        port = int(str(settings["port"]))
        eventually(lambda: ask(port, "GET", "/health"))
        return port

    yield start
    for process in running:
        process.terminate()
        process.wait()


def eventually(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            if check():
                return
        except OSError:
            pass
        assert time.monotonic() < deadline, "not within 30 s"
        time.sleep(0.02)


def ask(port: int, method: str, path: str, body: object = None, chunked: bool = False) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    text = None if body is None else json.dumps(body).encode()
    connection.request(method, path, iter([text]) if text and chunked else text)
    response = connection.getresponse()
    answer = response.status, response.read().decode()
    connection.close()
    return answer


def samples(text: str) -> dict[str, float]:
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def jetstream(started: Callable[..., int], tmp_path: Path, slots: int) -> tuple[int, int]:
    """A pod of JetStream: the port of its HTTP front and that of its metrics."""
    sandbox = tmp_path / "uid" / "engine"
    sandbox.mkdir(parents=True)
    engine, metrics = processes.free_ports(2)
    file = str(sandbox / stubs.CHIPS_FILE)
    started("maxengine", port=engine, metrics_port=metrics, slots=slots, id="p", chips_file=file, chips=CHIPS)
    return started("jetstream_http", engine_port=engine), metrics


VLLM = {"health_path": "/health", "request_path": "/v1/completions", "form": "completions"}


@pytest.mark.parametrize(("kind", "settings"), [("tgi", {}), ("server", VLLM)])
@pytest.mark.parametrize("chunked", [False, True])
def test_completions_have_openais_form_and_name_the_stub(
    started: Callable[..., int], kind: str, settings: dict[str, str], chunked: bool
) -> None:
    body = {"model": "m", "prompt": "Who?", "max_tokens": 3}
    status, text = ask(started(kind, **settings), "POST", "/v1/completions", body, chunked)
    answer = json.loads(text)
    assert (status, answer["object"], answer["model"], answer["usage"]["completion_tokens"]) == (
        200,
        "text_completion",
        "m",
        3,
    )
    assert "stub" in answer["choices"][0]["text"]


def test_unknown_requests_are_refused(started: Callable[..., int]) -> None:
    port = started("tgi")
    assert ask(port, "GET", "/health")[0] == 200
    assert ask(port, "GET", "/nothing")[0] == 404
    assert ask(port, "POST", "/v1/completions", {})[0] == 422
    assert ask(port, "POST", "/v1/completions", ["no object"])[0] == 400
    assert "stub" in json.loads(ask(port, "POST", "/generate", {"inputs": "Who?"})[1])["generated_text"]


def test_a_burst_of_100_fills_the_slots_and_the_backlog_and_is_answered(
    started: Callable[..., int], tmp_path: Path
) -> None:
    front, metrics = jetstream(started, tmp_path, slots=8)
    device_plugin = started("device_plugin", sandboxes=str(tmp_path), node="n1")
    memory = 'memory_used{accelerator_id="1",container="engine",namespace="llm",pod="p"}'
    idle = samples(ask(device_plugin, "GET", "/metrics")[1])
    assert idle[memory] == 250
    assert idle[memory.replace("used", "total")] == 1000

    with ThreadPoolExecutor(100) as crowd:
        replies = [crowd.submit(ask, front, "POST", "/generate", {"prompt": "x", "max_tokens": 20}) for _ in range(100)]
        eventually(lambda: samples(ask(metrics, "GET", "/")[1])['jetstream_prefill_backlog_size{id="p"}'] > 50)
        busy = samples(ask(metrics, "GET", "/")[1])
        used = samples(ask(device_plugin, "GET", "/metrics")[1])[memory]
        answers = [reply.result() for reply in replies]
    assert busy['jetstream_slots_used_percentage{id="p",idx="0"}'] == 1
    assert used == 900
    assert {status for status, _ in answers} == {200}
    assert set(json.loads(answers[0][1])) == {"response"}
    after = samples(ask(metrics, "GET", "/")[1])
    assert set(after.values()) == {0}


def test_the_front_answers_503_while_its_engine_does_not_answer(started: Callable[..., int]) -> None:
    front = started("jetstream_http", engine_port=processes.free_ports(1)[0])
    assert ask(front, "POST", "/generate", {"prompt": "x"})[0] == 503


def test_the_device_plugin_reports_only_the_chips_of_its_node(started: Callable[..., int], tmp_path: Path) -> None:
    jetstream(started, tmp_path, slots=1)
    elsewhere = started("device_plugin", sandboxes=str(tmp_path), node="n2")
    assert samples(ask(elsewhere, "GET", "/metrics")[1]) == {}


def test_the_stub_of_a_metrics_api_serves_discovery_without_metrics() -> None:
    """The API only serves discovery. Namespaces can't be deleted while an aggregated API doesn't answer."""
    answer = stubs.discovery({"path": "/apis/external.metrics.k8s.io/v1beta1"})
    assert answer == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "external.metrics.k8s.io/v1beta1",
        "resources": [],
    }
    with pytest.raises(stubs.ErrorAnswer, match="this is a stub of the Stackdriver adapter"):
        stubs.discovery({"path": "/apis/external.metrics.k8s.io/v1beta1/namespaces/default/memory_used"})
