"""The stubs serve the HTTP APIs of the real servers, and report the load that autoscaling acts on."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from emulator import stubs
from emulator.machine import processes
from emulator.machine.paths import ROOT
from emulator.stubs.load import TOKEN_SECONDS_VARIABLE, Load
from emulator.stubs.node import CHIPS_FILE, discovery
from emulator.stubs.server import ErrorAnswer, serve
from gke_ai.catalog.engines.engine import ENGINES

pytestmark = pytest.mark.slow

Object = dict[str, Any]
CHIPS = {"node": "n1", "count": 2, "memory": 1000, "labels": {"container": "engine", "namespace": "llm", "pod": "p"}}


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    """Starts a stub as the daemon does, and returns its port once it listens."""
    with ExitStack() as running:

        def start(kind: str, variables: Mapping[str, str] | None = None, **settings: object) -> int:
            _, port = running.enter_context(running_stub(kind, settings, variables or {}))
            return port

        yield start


@contextmanager
def running_stub(
    kind: str, settings: Mapping[str, object], variables: Mapping[str, str]
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = int(str(settings.get("port", 0))) or processes.free_ports(1)[0]
    command = stubs.command(kind, {**settings, "port": port})
    with subprocess.Popen(command, env={TOKEN_SECONDS_VARIABLE: "0.01", **variables}) as process:
        try:
            eventually(lambda: ask(port, "GET", "/health"))
            yield process, port
        finally:
            process.kill()


def running_vllm(**settings: object) -> AbstractContextManager[tuple[subprocess.Popen[bytes], int]]:
    return running_stub("server", {**VLLM, **settings}, {})


def eventually(check: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while True:
        with suppress(OSError):
            if check():
                return
        assert time.monotonic() < deadline, "not within 120 s"
        time.sleep(0.02)


def ask(port: int, method: str, path: str, body: object = None, chunked: bool = False) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    text = None if body is None else json.dumps(body).encode()
    connection.request(method, path, iter([text]) if text and chunked else text, JSON if text else {})
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
    file = str(sandbox / CHIPS_FILE)
    started("maxengine", port=engine, metrics_port=metrics, slots=slots, id="p", chips_file=file, chips=CHIPS)
    return started("jetstream_http", engine_port=engine), metrics


JSON = {"Content-Type": "application/json"}
LOAD = {"slots": 8, "models": ["m"]}
TGI = {**LOAD, "series": dict(ENGINES["tgi"].series)}
OF_VLLM = {
    "health_path": "/health",
    "request_path": "/v1/completions",
    "form": "completions",
    "metrics_path": "/metrics",
}
VLLM = {**LOAD, **OF_VLLM, "series": dict(ENGINES["vllm"].series)}
PROMPTS: dict[str, Object] = {
    "/v1/completions": {"prompt": "Who?"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Who?"}]},
}


ENGINE_OF_TEST = pytest.mark.parametrize(("kind", "settings"), [("tgi", TGI), ("server", VLLM)])


@ENGINE_OF_TEST
def test_answers_have_openais_form_and_name_the_stub(
    started: Callable[..., int], kind: str, settings: dict[str, Any]
) -> None:
    port = started(kind, **settings)
    for chunked in (False, True):
        body: Object = {"model": "m", "prompt": "Who?", "max_tokens": 3}
        status, text = ask(port, "POST", "/v1/completions", body, chunked)
        answer = json.loads(text)
        values = (status, answer["object"], answer["model"], answer["usage"]["completion_tokens"])
        assert values == (200, "text_completion", "m", 3)
        assert "stub" in answer["choices"][0]["text"]
    body = {"messages": [{"role": "user", "content": "Who?"}], "max_completion_tokens": 3}
    status, text = ask(port, "POST", "/v1/chat/completions", body)
    answer = json.loads(text)
    values = (status, answer["object"], answer["model"], answer["usage"]["completion_tokens"])
    assert values == (200, "chat.completion", "m", 3)
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": "A stub of"}


@ENGINE_OF_TEST
@pytest.mark.parametrize("path", PROMPTS)
@pytest.mark.parametrize("with_usage", [False, True])
def test_streams_send_tokens_one_by_one_and_vllm_some_of_them_together(
    started: Callable[..., int], kind: str, settings: dict[str, Any], path: str, with_usage: bool
) -> None:
    body: Object = {**PROMPTS[path], "max_tokens": 20, "stream": True}
    if with_usage:
        body["stream_options"] = {"include_usage": True}
    events, content_type = streamed(started(kind, **settings), path, body)
    assert content_type.startswith("text/event-stream")
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert len({chunk["id"] for chunk in chunks}) == 1
    if with_usage:
        last = chunks.pop()
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 20)
        assert {chunk.get("usage", "none") for chunk in chunks} == {None if kind == "tgi" else "none"}
    choices = [chunk["choices"][0] for chunk in chunks]
    if path == "/v1/chat/completions":
        assert choices.pop(0)["delta"] == {"role": "assistant", "content": ""}
        tokens = [choice["delta"]["content"] for choice in choices]
    else:
        tokens = [choice["text"] for choice in choices]
    assert len(tokens) == (20 if kind == "tgi" else 15)
    assert len("".join(tokens).split()) == 20
    assert "".join(tokens).startswith("A stub of the emulated cloud answers")
    assert [choice["finish_reason"] for choice in choices] == [None] * (len(tokens) - 1) + ["length"]


def streamed(port: int, path: str, body: object) -> tuple[list[str], str]:
    """The data of the events of an answer, and the type of the answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("POST", path, json.dumps(body), JSON)
    response = connection.getresponse()
    assert response.status == 200
    events = []
    while line := response.readline():
        if line != b"\n":
            events.append(line.decode().removeprefix("data: ").rstrip("\n"))
    connection.close()
    return events, response.headers["Content-Type"]


def test_models_are_listed_and_unknown_requests_are_refused(started: Callable[..., int]) -> None:
    vllm, tgi = started("server", **VLLM), started("tgi", **TGI)
    for port in (vllm, tgi):
        assert [model["id"] for model in json.loads(ask(port, "GET", "/v1/models")[1])["data"]] == ["m"]
    other = {"model": "other", "prompt": "Who?"}
    status, text = ask(vllm, "POST", "/v1/completions", other)
    assert (status, json.loads(text)["error"]["message"]) == (404, "The model `other` does not exist.")
    assert ask(tgi, "POST", "/v1/completions", other)[0] == 200
    assert [ask(tgi, "GET", path)[0] for path in ("/health", "/nothing")] == [200, 404]
    assert ask(tgi, "POST", "/v1/completions", {})[0] == 422
    assert ask(tgi, "POST", "/v1/chat/completions", {"prompt": "Who?"})[0] == 422
    assert ask(tgi, "POST", "/v1/completions", ["no object"])[0] == 400
    assert "stub" in json.loads(ask(tgi, "POST", "/generate", {"inputs": "Who?"})[1])["generated_text"]


def test_vllm_lists_its_adapters_and_answers_for_them(started: Callable[..., int]) -> None:
    port = started("server", **VLLM, adapters={"sql": "/models/my-team/sql/main"})
    model, adapter = json.loads(ask(port, "GET", "/v1/models")[1])["data"]
    assert (model["id"], model.get("parent")) == ("m", None)
    assert (adapter["id"], adapter["parent"], adapter["root"]) == ("sql", "m", "/models/my-team/sql/main")
    statuses = [ask(port, "POST", "/v1/completions", {"model": name, "prompt": "hi"})[0] for name in ("m", "sql", "x")]
    assert statuses == [200, 200, 404]


def test_a_client_that_leaves_a_stream_frees_its_slot(started: Callable[..., int]) -> None:
    port = started("server", **VLLM | {"slots": 1})
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps({"prompt": "x", "max_tokens": 100_000, "stream": True})
    connection.request("POST", "/v1/completions", body, JSON)
    assert connection.getresponse().readline().startswith(b"data: ")
    connection.close()
    assert ask(port, "POST", "/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200


def test_requests_beyond_the_slots_wait() -> None:
    load = Load(2)
    held = [load.slot() for _ in range(2)]
    for slot in held:
        slot.__enter__()
    with ThreadPoolExecutor(3) as crowd:
        later = [crowd.submit(load.text, 1) for _ in range(3)]
        eventually(lambda: (load.running, load.waiting, load.share) == (2, 3, 1))
        held.pop().__exit__(None, None, None)
        assert [text.result() for text in later] == ["A"] * 3
    assert (load.running, load.waiting) == (1, 0)


def test_one_connection_serves_several_requests(started: Callable[..., int]) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", started("server", **VLLM), timeout=60)
    for stream in (False, True, False):
        body = json.dumps({"prompt": "Who?", "max_tokens": 2, "stream": stream}).encode()
        connection.request("POST", "/v1/completions", iter([body]), JSON)
        response = connection.getresponse()
        assert response.status == 200
        assert response.read()
        assert not response.will_close
    connection.close()


def test_an_api_key_protects_the_paths_below_v1_alone() -> None:
    """https://docs.vllm.ai/en/stable/usage/security/"""
    server = serve(0, {"GET /v1/models": lambda _: "models", "GET /health": lambda _: ""}, api_key="secret")
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    answers = []
    for path, key in (("/v1/models", "secret"), ("/v1/models", "other"), ("/v1/models", ""), ("/health", "")):
        connection.request("GET", path, headers={"Authorization": f"Bearer {key}"} if key else {})
        response = connection.getresponse()
        response.read()
        answers.append(response.status)
    assert answers == [200, 401, 401, 200]
    server.shutdown()


def test_vllm_serves_paths_outside_of_its_api_without_the_key(started: Callable[..., int]) -> None:
    port = started("server", {"KEY": "secret"}, **VLLM, api_key_variable="KEY")
    prompt = {"prompt": "Who?"}
    assert ask(port, "POST", "/v1/completions", prompt)[0] == 401
    for path, body in (
        ("/invocations", prompt),
        ("/invocations", PROMPTS["/v1/chat/completions"]),
        ("/tokenize", prompt),
    ):
        assert ask(port, "POST", path, body)[0] == 200
    for path in ("/metrics", "/load", "/docs", "/openapi.json", "/health"):
        assert ask(port, "GET", path)[0] == 200


def test_stubs_import_no_other_part_of_the_project() -> None:
    code = "import sys; sys.path.insert(0, sys.argv[1]); import emulator.stubs.programs; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", code, str(ROOT)]
    modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    own = {name for name in modules if (ROOT / name.partition(".")[0]).is_dir()}
    assert {name for name in own if not name.startswith("emulator.stubs")} == {"emulator"}


WAITING = {
    "server": ("vllm:num_requests_waiting", "vllm:num_requests_running", '{model_name="m",engine="0"}'),
    "tgi": ("tgi_queue_size", "tgi_batch_current_size", "{}"),
}


@pytest.mark.parametrize(("kind", "settings"), [("server", VLLM), ("tgi", TGI)])
def test_burst_shows_in_the_metrics_of_the_engine_and_leaves_them(
    started: Callable[..., int], kind: str, settings: dict[str, Any]
) -> None:
    port = started(kind, **settings)
    waiting, running, labels = WAITING[kind]

    def now() -> dict[str, float]:
        of_load = tuple(settings["series"].values())
        every = samples(ask(port, "GET", "/metrics")[1])
        return {name: value for name, value in every.items() if name.startswith(of_load)}

    assert set(now().values()) == {0}
    body = {"model": "m", "prompt": "x", "max_tokens": 200}
    with ThreadPoolExecutor(20) as crowd:
        answers = [crowd.submit(ask, port, "POST", "/v1/completions", body) for _ in range(20)]
        eventually(lambda: now()[waiting + labels] == 12)
        assert now()[running + labels] == 8, "no more run at once than the engine has slots"
        if kind == "server":
            assert now()["vllm:kv_cache_usage_perc" + labels] == 1
        assert {answer.result()[0] for answer in answers} == {200}
    assert set(now().values()) == {0}


def test_a_burst_of_100_fills_the_slots_and_the_backlog_and_is_answered(
    started: Callable[..., int], tmp_path: Path
) -> None:
    front, metrics = jetstream(started, tmp_path, slots=8)
    device_plugin = started("device_plugin", sandboxes=str(tmp_path), node="n1")
    memory = 'memory_used{accelerator_id="1",container="engine",namespace="llm",pod="p"}'
    idle = samples(ask(device_plugin, "GET", "/metrics")[1])
    assert (idle[memory], idle[memory.replace("used", "total")]) == (250, 1000)
    elsewhere = started("device_plugin", sandboxes=str(tmp_path), node="n2")
    assert samples(ask(elsewhere, "GET", "/metrics")[1]) == {}, "it reports only the chips of its node"
    with ThreadPoolExecutor(100) as crowd:
        replies = [crowd.submit(ask, front, "POST", "/generate", {"prompt": "x", "max_tokens": 60}) for _ in range(100)]
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


def test_the_stub_of_a_metrics_api_serves_discovery_without_metrics() -> None:
    """The API only serves discovery. Namespaces can't be deleted while an aggregated API doesn't answer."""
    group = "external.metrics.k8s.io/v1beta1"
    expected = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []}
    assert discovery({"path": f"/apis/{group}"}) == expected
    with pytest.raises(ErrorAnswer, match="this is a stub of the Stackdriver adapter"):
        discovery({"path": f"/apis/{group}/namespaces/default/memory_used"})


def test_vllm_refuses_wrong_requests_with_400(started: Callable[..., int]) -> None:
    port = started("server", **VLLM, max_model_len=16)
    named: Object = {"model": "m"}
    wrong: list[object] = [named | {"prompt": "hi", "max_tokens": tokens} for tokens in (0, -1, 16)]
    for body in (*wrong, named, named | {"prompt": "word " * 20}, ["a list"]):
        assert ask(port, "POST", "/v1/completions", body)[0] == 400, body
    assert ask(port, "POST", "/v1/completions", named | {"prompt": "hi", "max_tokens": 15})[0] == 200
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/completions", json.dumps({"prompt": "hi"}), {"Content-Type": "text/plain"})
    assert connection.getresponse().status == 400


def test_vllm_lists_its_length_and_counts_its_tokens(started: Callable[..., int]) -> None:
    port = started("server", **VLLM, max_model_len=4096)
    assert json.loads(ask(port, "GET", "/v1/models")[1])["data"][0]["max_model_len"] == 4096
    ask(port, "POST", "/v1/completions", {"prompt": "hi", "max_tokens": 7})
    metrics = ask(port, "GET", "/metrics")[1]
    tokens = 'vllm:generation_tokens_total{model_name="m",engine="0"} 7'
    for text in (tokens, "# TYPE vllm:generation_tokens counter", "vllm:cache_config_info{"):
        assert text in metrics


def stream(port: int, tokens: int, timeout: float = 20) -> http.client.HTTPResponse:
    """A stream of which the first event has been read."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    body = json.dumps({"model": "m", "prompt": "hi", "max_tokens": tokens, "stream": True})
    connection.request("POST", "/v1/completions", body, JSON)
    response = connection.getresponse()
    assert response.readline().startswith(b"data: ")
    return response


def test_open_answers_finish_after_sigterm_and_new_requests_get_500() -> None:
    with running_vllm(shutdown_seconds=60) as (process, port):
        answer = stream(port, 200)
        process.terminate()
        eventually(lambda: ask(port, "POST", "/v1/completions", {"prompt": "hi"})[0] == 500)
        assert ask(port, "GET", "/health")[0] == 200
        *events, end = answer.read().decode().removesuffix("\n\n").split("\n\n")
        assert end == "data: [DONE]"
        texts = [json.loads(event.partition("data: ")[2])["choices"][0]["text"] for event in events if event]
        assert len("".join(texts).split()) == 199, "the first event had one token"
        assert process.wait(timeout=30) == 0


def test_answers_longer_than_the_shutdown_timeout_stop_for_good() -> None:
    with running_vllm(shutdown_seconds=1) as (process, port):
        answer = stream(port, 100_000, timeout=2)
        process.terminate()
        with pytest.raises(TimeoutError):
            answer.read()
        assert refuses_connections(port)
        assert process.poll() is None


def test_without_the_flag_open_answers_stop_for_good_and_without_open_answers_vllm_ends_at_once() -> None:
    with running_vllm() as (process, port):
        answer = stream(port, 100_000, timeout=2)
        process.terminate()
        eventually(lambda: refuses_connections(port))
        with pytest.raises(TimeoutError):
            answer.read()
        assert process.poll() is None
    with running_vllm() as (process, _):
        process.terminate()
        assert process.wait(timeout=30) == 0


def refuses_connections(port: int) -> bool:
    try:
        ask(port, "GET", "/health")
    except ConnectionRefusedError:
        return True
    return False
