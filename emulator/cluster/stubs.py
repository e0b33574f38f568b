"""Stubs of programs that can't run here: model servers, the TPU device plugin, the Stackdriver adapter.

    python stubs.py STUB SETTINGS

SETTINGS is a JSON object with the keyword arguments of STUB. A stub serves the part of the real program's HTTP API that
this product uses, on 127.0.0.1; no model answers. It imports only the standard library and nothing of this project:
every replica has a process, so starting one must be cheap.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Object = dict[str, Any]
ANSWER = "A stub of the emulated cloud answers: no model runs here."
# Seconds per token of a model server. The container or the emulator's environment can set it.
TOKEN_SECONDS_VARIABLE = "GKE_AI_STUB_TOKEN_SECONDS"
TOKEN_SECONDS = 0.002
DEFAULT_TOKENS = 16
# File in a container's private folder: the chips that it holds and their used memory.
CHIPS_FILE = "chips.json"


class ErrorAnswer(Exception):
    """An error that the stub answers with: HTTP status and text."""

    def __init__(self, status: int, cause: str) -> None:
        super().__init__(cause)
        self.status = status


# The result of a route: a string is plain text, an object becomes JSON.
Answer = str | Object
Route = Callable[[Object], Answer]


def serve(port: int, routes: Mapping[str, Route], tls: ssl.SSLContext | None = None) -> ThreadingHTTPServer:
    """Listens, and answers from other threads.

    Args:
        port: Local port. 0 selects a free one.
        routes: Routes by method and path (`GET /health`), or by method for all other paths. A route gets the request's
            JSON, with the path as `path`.
        tls: Context for HTTPS. Default: HTTP.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer({})

        def do_POST(self) -> None:
            try:
                request = json.loads(self._body())
            except ValueError:
                request = None
            if isinstance(request, dict):
                self._answer(request)
            else:
                self._reply(400, {"error": "the request is not a JSON object"})

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            return body

        def _answer(self, request: Object) -> None:
            path = self.path.partition("?")[0]
            route = routes.get(f"{self.command} {path}") or routes.get(self.command)
            try:
                if route is None:
                    raise ErrorAnswer(404, f"this stub doesn't serve {self.command} {path}")
                self._reply(200, route(request | {"path": path}))
            except ErrorAnswer as failure:
                self._reply(failure.status, {"error": str(failure)})

        def _reply(self, status: int, answer: Answer) -> None:
            text = isinstance(answer, str)
            body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4" if text else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing: a line per probe and scrape would be noise."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        # Length of the accept queue. With the default of 5, some connections of a burst would be refused.
        request_queue_size = 1024

    server = Server(("127.0.0.1", port), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def metric(name: str, about: str, samples: Mapping[str, float]) -> str:
    """Formats a gauge in Prometheus' text format. `samples` are by labels (`id="x"`)."""
    lines = [f"# HELP {name} {about}", f"# TYPE {name} gauge"]
    lines += [f"{name}{{{labels}}} {value}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


# --------------------------------------------------------------------------------------------------------- GPU servers
def tgi(port: int) -> None:
    """https://huggingface.co/docs/text-generation-inference/reference/api_reference"""

    def generate(request: Object) -> Answer:
        if "inputs" not in request:
            raise ErrorAnswer(422, "inputs is missing")
        _spend_tokens(request.get("parameters", {}).get("max_new_tokens"))
        return {"generated_text": ANSWER}

    serve(port, {"GET /health": lambda _: "", "POST /generate": generate, "POST /v1/completions": _completions})


def server(port: int, health_path: str, request_path: str, form: str) -> None:
    """A server of any engine in the catalog, which describes its paths and the form of a request."""
    serve(port, {f"GET {health_path}": lambda _: "", f"POST {request_path}": FORMS[form]})


def _completions(request: Object) -> Answer:
    if "prompt" not in request:
        raise ErrorAnswer(422, "prompt is missing")
    tokens = _spend_tokens(request.get("max_tokens"))
    return {
        "id": f"stub-{time.time_ns()}",
        "object": "text_completion",
        "created": int(time.time()),
        "model": request.get("model", "stub"),
        "choices": [{"index": 0, "text": ANSWER, "logprobs": None, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 0, "completion_tokens": tokens, "total_tokens": tokens},
    }


def _generate(request: Object) -> Answer:
    if "prompt" not in request:
        raise ErrorAnswer(422, "prompt is missing")
    _spend_tokens(request.get("max_tokens"))
    return {"response": ANSWER}


# The answer to a request, by its form in `catalog.engines`.
FORMS: Mapping[str, Route] = {"completions": _completions, "generate": _generate}


def _spend_tokens(tokens: object) -> int:
    """Sleeps for the time of this many tokens and returns the number."""
    count = tokens if isinstance(tokens, int) else DEFAULT_TOKENS
    time.sleep(count * float(os.environ.get(TOKEN_SECONDS_VARIABLE) or TOKEN_SECONDS))
    return count


# ----------------------------------------------------------------------------------------------------------- JetStream
class Engine:
    """Decoding slots. A request waits in the prefill queue while no slot is free.

    Args:
        slots: Number of slots.
        changed: Called with the share of used slots whenever it changes.
    """

    def __init__(self, slots: int, changed: Callable[[float], None]) -> None:
        self.slots = slots
        self.used = 0
        self.backlog: deque[threading.Event] = deque()
        self._changed = changed
        self._lock = threading.Lock()
        self._use(0)

    def generate(self, tokens: object) -> None:
        """Waits for a slot and holds it for the time of the tokens."""
        turn = threading.Event()
        with self._lock:
            if self.used < self.slots:
                self._use(1)
                turn.set()
            else:
                self.backlog.append(turn)
        turn.wait()
        try:
            _spend_tokens(tokens)
        finally:
            with self._lock:
                if self.backlog:
                    self.backlog.popleft().set()  # the next request gets the slot directly
                else:
                    self._use(-1)

    def _use(self, more: int) -> None:
        self.used += more
        self._changed(self.used / self.slots)

    def metrics(self, pod: str) -> str:
        """https://github.com/AI-Hypercomputer/JetStream, jetstream/core/metrics/prometheus.py"""
        used = {f'id="{pod}",idx="0"': self.used / self.slots}
        return metric(
            "jetstream_prefill_backlog_size", "Requests that wait", {f'id="{pod}"': len(self.backlog)}
        ) + metric("jetstream_slots_used_percentage", "Share of decoding slots in use, 0 to 1", used)


# Shares of the chips' memory: used by the model, and added by full slots.
MODEL_MEMORY, SLOTS_MEMORY = 0.25, 0.65


def maxengine(port: int, metrics_port: int | None, slots: int, id: str, chips_file: str, chips: Object) -> None:
    """JetStream's engine.

    The real engine serves gRPC on `port`, which only the HTTP front in its pod calls.
    """

    def write_memory(share: float) -> None:
        used = int(chips["memory"] * (MODEL_MEMORY + SLOTS_MEMORY * share))
        fresh = f"{chips_file}.new"
        Path(fresh).write_text(json.dumps(chips | {"used": used}))
        os.replace(fresh, chips_file)

    engine = Engine(slots, write_memory)

    def generate(request: Object) -> Answer:
        engine.generate(request.get("max_tokens"))
        return {"response": ANSWER}

    serve(port, {"POST /generate": generate})
    if metrics_port:
        serve(metrics_port, {"GET": lambda _: engine.metrics(id)})


def jetstream_http(port: int, engine_port: int) -> None:
    """The HTTP front of JetStream, which forwards requests to the engine in its pod.

    https://cloud.google.com/kubernetes-engine/docs/tutorials/serve-gemma-tpu-jetstream
    """

    def generate(request: Object) -> Answer:
        if "prompt" not in request:
            raise ErrorAnswer(422, "prompt is missing")
        connection = http.client.HTTPConnection("127.0.0.1", engine_port)
        try:
            connection.request("POST", "/generate", json.dumps(request))
            answer: Object = json.load(connection.getresponse())
        except OSError as error:
            raise ErrorAnswer(503, f"the engine doesn't answer: {error}") from error
        finally:
            connection.close()
        return answer

    healthy = {path: lambda _: "" for path in ("GET /", "GET /health", "GET /healthcheck")}
    serve(port, {**healthy, "POST /generate": generate})


# -------------------------------------------------------------------------------------------------------- node, metrics
def device_plugin(port: int, sandboxes: str, node: str) -> None:
    """GKE's TPU device plugin: reports the memory of its node's chips, by the containers that hold them.

    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus#metrics
    """

    def metrics(_: Object) -> Answer:
        used, total = {}, {}
        for chips in _chips_on(Path(sandboxes), node):
            labels = ",".join(f'{name}="{value}"' for name, value in chips["labels"].items())
            for chip in range(chips["count"]):
                used[f'accelerator_id="{chip}",{labels}'] = chips["used"]
                total[f'accelerator_id="{chip}",{labels}'] = chips["memory"]
        return metric("memory_used", "Bytes in use of a chip", used) + metric("memory_total", "Bytes of a chip", total)

    serve(port, {"GET": metrics})


def _chips_on(sandboxes: Path, node: str) -> list[Object]:
    result = []
    for file in sorted(sandboxes.glob(f"*/*/{CHIPS_FILE}")):
        try:
            result.append(json.loads(file.read_text()))
        except FileNotFoundError:
            continue  # its pod has just ended
    return [chips for chips in result if chips["node"] == node]


def metrics_api(port: int, certificate: str, key: str) -> None:
    """A metrics API without metrics, in place of the Stackdriver adapter, which needs Cloud Monitoring."""

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    serve(port, {"GET /healthz": lambda _: "ok", "GET": discovery}, tls)


def discovery(request: Object) -> Answer:
    """Discovery of an aggregated API without resources."""
    empty, apis, *group_version = request["path"].split("/")
    if (empty, apis, len(group_version)) != ("", "apis", 2):
        raise ErrorAnswer(404, "no metrics: this is a stub of the Stackdriver adapter")
    group = "/".join(group_version)
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []}


STUBS = {stub.__name__: stub for stub in (tgi, server, maxengine, jetstream_http, device_plugin, metrics_api)}

if __name__ == "__main__":
    STUBS[sys.argv[1]](**json.loads(sys.argv[2]))
    threading.Event().wait()
