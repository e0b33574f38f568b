"""`make smoke` against stubs on this machine that speak the API server's proxy and the engines' APIs."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from kubernetes.client import ApiClient, Configuration

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.ops.smoke import answers
from gke_ai.ops.smoke import command as smoke
from gke_ai.terminal import Stop
from gke_ai.workspace.stack import Stack
from tests.support.replicas import replica

CREDENTIAL = "ya29.canary-credential"
# What a stub answers to a request: the status and the body (bytes as they stand, all else as JSON).
Answer = tuple[int, Any]
COMPLETION = {"choices": [{"text": "Jupiter, of hydrogen."}], "usage": {"completion_tokens": 6}}


@dataclass(frozen=True)
class Stream:
    """The events of a streamed answer, each after a pause. It may break off."""

    events: tuple[str, ...]
    pause: float = 0.0
    ends: bool = True


def completion(*tokens: str, usage: int | None = None, pause: float = 0.0) -> Stream:
    """A streamed completion, with OpenAI's last event, and the number of tokens if the engine counts them."""
    events: list[dict[str, Any]] = [{"choices": [{"index": 0, "text": token}]} for token in tokens]
    if usage is not None:
        events.append({"choices": [], "usage": {"completion_tokens": usage}})
    return Stream((*map(json.dumps, events), "[DONE]"), pause)


@dataclass
class Cluster:
    """An API server with one Deployment, and the servers behind its Service."""

    answer: Callable[[dict[str, Any]], Answer] = lambda _: (200, COMPLETION)
    replicas: int = 1
    ready: int = 1
    pods: tuple[dict[str, Any], ...] = ()
    deployment: str = "gemma"

    def __post_init__(self) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()

    def respond(self, method: str, path: str, body: dict[str, Any], credential: str | None) -> Answer:
        assert credential == f"Bearer {CREDENTIAL}"
        if path.startswith("/apis/apps/v1/namespaces/llm/deployments"):
            spec = {"replicas": self.replicas, "selector": {"matchLabels": {"app": "gemma"}}}
            status = {"readyReplicas": self.ready} if self.ready else {}
            return 200, {"items": [{"metadata": {"name": self.deployment}, "spec": spec, "status": status}]}
        if path == "/api/v1/namespaces/llm/pods?labelSelector=app%3Dgemma":
            return 200, {"items": list(self.pods)}
        if method == "POST" and "/proxy/" in path:
            with self.lock:
                self.requests.append((path, body))
                self.at_once += 1
                self.most_at_once = max(self.most_at_once, self.at_once)
            try:
                return self.answer(body)
            finally:
                with self.lock:
                    self.at_once -= 1
        return 404, {"kind": "Status", "message": f"the server could not find {path}"}


class Server(ThreadingHTTPServer):
    """Accepts a burst at once."""

    request_queue_size = 200
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Logs nothing if a client hangs up after its timeout."""


@contextmanager
def serving(cluster: Cluster) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.loads(sent) if sent else {}
            status, content = cluster.respond(self.command, self.path, body, self.headers.get("Authorization"))
            if status == 0:
                return  # hangs up without a word
            if isinstance(content, Stream):
                self.stream(content)
                return
            content = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def stream(self, content: Stream) -> None:
            self.protocol_version = "HTTP/1.1"
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream; charset=utf-8")
            self.send_header("Transfer-Encoding", "chunked")
            self.send_header("Connection", "close")  # as it does: otherwise a later request may take the connection
            self.end_headers()
            for text in content.events:
                time.sleep(content.pause)
                data = f"data: {text}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.write(b"0\r\n\r\n" if content.ends else b"ff\r\n")

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@dataclass(frozen=True)
class Deployed(Stack):
    """A deployed stack whose cluster has this address."""

    address: str = ""
    servers: tuple[dict[str, Any], ...] = ()

    def outputs(self) -> dict[str, Any]:
        return {"servers": list(self.servers)}

    def api(self, connections: int = 4) -> ApiClient | None:
        options = Configuration(host=self.address, api_key={"authorization": f"Bearer {CREDENTIAL}"})
        options.connection_pool_maxsize = connections
        options.retries = False
        return ApiClient(options)


def output(engine: str | None = "tgi") -> dict[str, Any]:
    common = {"name": "gemma", "namespace": "llm", "service": "llm-service", "port": 8080, "model": "google/gemma-2b"}
    return common | ({"engine": engine} if engine else {})


def run(cluster: Cluster, capsys: pytest.CaptureFixture[str], engine: str | None = "tgi") -> tuple[int, str]:
    """The exit code and the output of a check. Asserts that the output does not contain the credential."""
    with serving(cluster) as address:
        code = smoke.smoke(Deployed("dev", address=address, servers=(output(engine),)))
    captured = capsys.readouterr()
    text = " ".join((captured.out + captured.err).split())
    assert "canary" not in text
    return code, text


@pytest.mark.parametrize("engine", ENGINES)
def test_server_that_answers_passes_after_its_burst_at_once(engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    served_by = ENGINES[engine]
    arrived = threading.Barrier(served_by.burst, timeout=20)

    def together(_: dict[str, Any]) -> Answer:
        arrived.wait()  # nobody is answered before all have asked
        return 200, COMPLETION if served_by.form == "completions" else {"response": "Jupiter."}

    cluster = Cluster(together)
    code, printed = run(cluster, capsys, engine)
    assert code == 0
    assert cluster.most_at_once == served_by.burst == len(cluster.requests)
    path, body = cluster.requests[0]
    assert path == f"/api/v1/namespaces/llm/services/llm-service:8080/proxy{served_by.request_path}"
    assert body["prompt"]
    assert body["max_tokens"] > 0
    assert body.get("model", "google/gemma-2b") == "google/gemma-2b"
    assert ("pass" in printed, "fail" in printed) == (True, False)
    burst = served_by.burst
    assert (f"{6 * burst} tokens" if served_by.form == "completions" else f"{8 * burst} characters") in printed
    assert f"{burst} of {burst} ended" in printed


def test_each_adapter_of_a_server_is_asked_too(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(lambda _: (200, COMPLETION))
    with serving(cluster) as address:
        servers = ({**output("vllm"), "adapters": ["sql"]},)
        assert smoke.smoke(Deployed("dev", address=address, servers=servers)) == 0
    assert {body["model"] for _, body in cluster.requests} == {"google/gemma-2b", "sql"}
    assert "llm/gemma: sql" in capsys.readouterr().out


def test_one_server_that_fails_fails_the_check(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(lambda body: (200, COMPLETION) if body["model"] == "good" else (500, {}))
    with serving(cluster) as address:
        servers = tuple({**output("vllm"), "name": "gemma", "model": model} for model in ("good", "bad"))
        assert smoke.smoke(Deployed("dev", address=address, servers=servers)) == 1
    printed = capsys.readouterr().out
    assert ("pass" in printed, "fail" in printed) == (True, True)


ENDLESS = 'no endpoints available for service "llm-service"'


@pytest.mark.parametrize(
    ("answer", "problem", "remedy"),
    [
        ((503, {"kind": "Status", "message": ENDLESS}), f"HTTP 503: {ENDLESS}", "no pod behind the Service answers"),
        ((502, b"error trying to reach service"), "HTTP 502: error trying to reach service", "logs deployment/gemma"),
        ((429, {"error": "Model is overloaded", "error_type": "overloaded"}), "Model is overloaded", "add replicas"),
        ((422, {"error": {"message": "max_tokens is too large"}}), "HTTP 422: max_tokens is too large", "logs"),
        ((500, {"detail": "Internal Server Error"}), "HTTP 500: Internal Server Error", "logs"),
        ((404, {"detail": "Not Found"}), "HTTP 404: Not Found", "get service llm-service"),
        ((403, {"message": 'cannot create resource "services/proxy"'}), "HTTP 403", "permission to create"),
        ((200, b"<html>welcome</html>"), "not an answer of Text Generation Inference: <html>welcome</html>", "logs"),
        ((200, {"response": "Jupiter"}), "not an answer of Text Generation Inference", "logs"),
        ((200, {"choices": []}), "not an answer of Text Generation Inference", "logs"),
        ((200, [1]), "not an answer of Text Generation Inference", "logs"),
        ((200, b""), "empty response", "logs"),
        ((200, {"choices": [{"text": " "}]}), "the answer has no text", "logs"),
        ((500, f"who sent Bearer {CREDENTIAL}?".encode()), "who sent ***?", "logs"),
        ((0, None), "the connection to the cluster failed", "check the network path to the cluster"),
    ],
)
def test_wrong_answer_fails_with_its_text_and_the_next_step(
    answer: Answer, problem: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = run(Cluster(lambda _: answer), capsys)
    assert (code, f"{ENGINES['tgi'].burst} × " in printed, "Traceback" in printed) == (1, True, False)
    assert problem in printed
    assert remedy in printed.rpartition("→")[2]


def measured(printed: str) -> list[str]:
    """The cells of the only row of times and throughput, after the name of the server."""
    return printed.partition("requests/s")[2].partition("llm/gemma")[2].replace(" s", "s").split()[:8]


def seconds(cell: str) -> float:
    return float(cell.removesuffix("s"))


def test_streamed_answers_have_times_of_tokens_and_throughput(capsys: pytest.CaptureFixture[str]) -> None:
    stream = completion("Jupiter", ",", " of", " hydrogen", ".", pause=0.05)
    cluster = Cluster(lambda _: (200, stream))
    code, printed = run(cluster, capsys, "vllm")
    assert code == 0
    _, body = cluster.requests[0]
    assert (body["stream"], body["stream_options"]) == (True, {"include_usage": True})
    assert "llm/gemma vLLM 4 0 20 tokens pass" in printed
    answer, answer_max, first, first_max, per_token, per_token_max, tokens, requests = measured(printed)
    assert 0.25 <= seconds(answer) <= seconds(answer_max)
    assert 0.05 <= seconds(first) <= seconds(first_max) < seconds(answer_max)
    assert seconds(first) < seconds(answer)
    assert 0 < seconds(per_token) <= seconds(per_token_max)
    assert 0 < float(requests) * 5 == pytest.approx(float(tokens), rel=0.1)
    code, printed = run(Cluster(lambda _: (200, completion("Jupiter, of", " hydrogen.", usage=6))), capsys, "vllm")
    assert (code, "24 tokens" in printed) == (0, True)
    code, printed = run(Cluster(), capsys, "vllm")
    assert (code, measured(printed)[2:6]) == (0, ["–"] * 4)


def test_times_of_a_streamed_answer_are_those_of_its_events() -> None:
    now = 0.0

    def lines() -> Iterator[bytes]:
        nonlocal now
        for event in completion("Jupiter", ",", " of", " hydrogen", ".").events:
            now += 0.25
            yield f"data: {event}\n".encode()

    answer, _ = answers.streamed(lines(), ENGINES["vllm"], lambda: now, 60)
    assert answer is not None
    assert (answer.first_token, answer.last_token, answer.per_token, answer.seconds) == (0.25, 1.25, 0.25, 1.5)


def test_jetstream_is_not_asked_for_a_stream_and_the_output_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = Cluster(lambda _: (200, {"response": "Jupiter."}))
    code, printed = run(cluster, capsys, "jetstream")
    assert code == 0
    assert "stream" not in cluster.requests[0][1]
    assert measured(printed)[2:7] == ["–"] * 5
    assert "JetStream sends each answer in one piece: its tokens have no times and no count." in printed
    assert "one piece" not in run(Cluster(), capsys, "vllm")[1]


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (Stream((json.dumps({"error": {"message": "the engine died"}}),)), "not an answer of vLLM: the engine died"),
        (Stream(("Jupiter",)), "not an answer of vLLM: Jupiter"),
        (Stream(completion("Jupiter", " is").events[:2]), "the answer broke off after 2 tokens"),
        (Stream(completion("Jupiter").events[:1], ends=False), "the answer broke off after 1 token"),
        (completion(" "), "the answer has no text"),
        (completion(), "the answer has no text"),
    ],
    ids=["error", "no JSON", "no end", "lost connection", "blank", "empty"],
)
def test_wrong_stream_fails_with_its_text(stream: Stream, problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, printed = run(Cluster(lambda _: (200, stream)), capsys, "vllm")
    assert (code, "logs deployment/gemma" in printed, "Traceback" in printed) == (1, True, False)
    assert f"4 × {problem}" in printed or f"4 × this is {problem}" in printed


def test_some_errors_among_answers_fail_and_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    count = iter(range(100))

    def one_in_ten(_: dict[str, Any]) -> Answer:
        return (503, {"detail": "busy"}) if next(count) % 10 == 0 else (200, {"response": "Jupiter."})

    code, printed = run(Cluster(one_in_ten), capsys, "jetstream")
    assert code == 1
    assert re.search(r"llm/gemma JetStream 100 10 \d", printed)
    assert "10 × HTTP 503: busy" in printed
    assert "720 characters" in printed


@pytest.mark.parametrize("engine", ["tgi", "vllm"])
def test_slow_answer_and_endless_stream_name_the_time_limit(
    engine: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(answers.send_burst, "__defaults__", (0.2,))

    def slow(_: dict[str, Any]) -> Answer:
        time.sleep(0.6 if engine == "tgi" else 0)
        return 200, COMPLETION if engine == "tgi" else completion(*["on"] * 10, pause=0.05)

    code, printed = run(Cluster(slow), capsys, engine)
    assert (code, "no answer within 0.2 s" in printed) == (1, True)


def pod(node: str, **status: Any) -> dict[str, Any]:
    """A pod of the server, on a node or on none."""
    spec = {"containers": [], **({"nodeName": node} if node else {})}
    return {"metadata": {"name": "gemma-1", "namespace": "llm"}, "spec": spec, "status": status}


NOT_SCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
UNSCHEDULABLE = pod("", conditions=[NOT_SCHEDULED | {"message": "0/3 nodes"}])
WITHOUT_IMAGE = pod("a", containerStatuses=[{"name": "server", "state": {"waiting": {"reason": "ImagePullBackOff"}}}])


@pytest.mark.parametrize(
    ("cluster", "problem", "remedy"),
    [
        (Cluster(replicas=0, ready=0), "it is scaled to zero", "-n llm scale deployment/gemma --replicas=1"),
        (Cluster(ready=0), "no replica is ready: it has no pods", "make status"),
        (Cluster(deployment="other"), "it has no Deployment", "make up"),
        (Cluster(ready=0, pods=(UNSCHEDULABLE,)), "no replica is ready: Unschedulable: 0/3 nodes", "make status"),
        (Cluster(ready=0, pods=(WITHOUT_IMAGE,)), "server waits: ImagePullBackOff", "make status"),
    ],
)
def test_server_without_a_ready_replica_gets_no_request(
    cluster: Cluster, problem: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed = run(cluster, capsys)
    assert (code, cluster.requests) == (1, [])
    assert problem in printed
    assert remedy in printed


def test_outputs_of_an_earlier_release_suggest_an_up_and_a_stack_without_servers_is_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, printed = run(Cluster(), capsys, None)
    assert (code, "do not name its engine" in printed, "→ make up STACK=dev" in printed) == (1, True, True)
    assert smoke.smoke(Deployed("dev")) == 0
    assert capsys.readouterr().out == "dev has no servers: nothing to check.\n"


def test_cluster_that_refuses_connections_ends_without_a_traceback() -> None:
    with serving(Cluster()) as address:
        pass  # its port is closed again
    with pytest.raises(Stop, match="The cluster does not answer") as stopped:
        smoke.smoke(Deployed("dev", address=address, servers=(output(),)))
    assert CREDENTIAL not in str(stopped.value)


def test_the_median_is_the_lower_of_two_and_unknown_times_do_not_count() -> None:
    assert smoke.median_and_most([float(number) for number in range(100, 0, -1)]) == ("50.00 s", "100.00 s")
    assert smoke.median_and_most([3.0, None, 1.0, 2.0]) == ("2.00 s", "3.00 s")
    assert smoke.median_and_most([0.0123], 4) == ("0.0123 s", "0.0123 s")
    assert smoke.median_and_most([]) == smoke.median_and_most([None]) == ("–", "–")


LOG = b"INFO Loading weights took 3.60 seconds\nINFO torch.compile took 19.2 s in total\n"


@dataclass
class Started(Cluster):
    """A cluster with a pod whose log says what its engine did."""

    log: tuple[int, bytes] = (200, LOG)

    def respond(self, method: str, path: str, body: dict[str, Any], credential: str | None) -> Answer:
        if path == "/api/v1/namespaces/llm/pods":
            return 200, {"items": [replica("gemma-0", "00:00", "00:01", "00:09", "01:10")]}
        if path.startswith("/api/v1/namespaces/llm/pods/gemma-0/log?"):
            assert "limitBytes=" in path, "a log may have gigabytes"
            return self.log
        code, answer = super().respond(method, path, body, credential)
        if "/deployments" in path and isinstance(answer, dict):
            answer["items"][0]["metadata"]["namespace"] = "llm"
        return code, answer


def test_the_parts_of_the_newest_start_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    _, text = run(Started(), capsys)
    assert "Start of the newest replica; of the engine: weights, compilation" in text
    assert "llm/gemma 1 s 8 s 61 s 4 s 19 s 70 s" in text


def test_who_may_not_read_logs_sees_the_parts_that_the_pod_shows(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = run(Started(log=(403, b"forbidden")), capsys)
    assert code == 0
    assert "llm/gemma 1 s 8 s 61 s 70 s" in text
