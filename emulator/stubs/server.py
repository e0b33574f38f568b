"""The HTTP server of the stubs, with event streams and Prometheus' text format."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Object = dict[str, Any]

# An engine reads the whole prompt before its first token. The API server's proxy needs this pause: if a stream begins
# before the proxy has noticed the end of the request, it breaks off. https://github.com/golang/go/issues/40747
PREFILL_SECONDS = 0.1


# Paths for which vLLM requires its key: vllm/entrypoints/serve/middleware/authenticate.py
GUARDED = ("/v1", "/v2", "/inference", "/cohere")
# Types of errors by status, as vLLM names those of a request whose form is right.
TYPES = {400: "BadRequestError", 404: "NotFoundError", 500: "InternalServerError"}
# Its web framework finds a wrong form first.
WRONG_FORM = "Bad Request"


class ErrorAnswer(Exception):
    """An error that the stub answers with: HTTP status and text, and for vLLM the wrong parameter and the type.

    With a `location`, it sends its client there.
    """

    def __init__(self, status: int, cause: str, param: str | None = None, kind: str = "", location: str = "") -> None:
        super().__init__(cause)
        self.location = location
        self.status, self.param, self.kind = status, param, kind

    @property
    def body(self) -> Object:
        """The error in the form of OpenAI's API."""
        kind = self.kind or TYPES.get(self.status, "StubError")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.status}}


# The result of a route: a string is plain text, an object becomes JSON, a generator a stream of server-sent events.
Answer = str | Object | Generator[Object, None, None]
Route = Callable[[Object], Answer]


class StubServer(ThreadingHTTPServer):
    """A server that knows the clients of its open requests (POST), and can refuse new ones."""

    daemon_threads = True
    # Length of the accept queue. With the default of 5, some connections of a burst would be refused.
    request_queue_size = 1024
    refusing = False

    def __init__(self, address: tuple[str, int], routes: Mapping[str, Route], api_key: str, strict: bool) -> None:
        super().__init__(address, Handler)
        self.routes, self.api_key, self.strict = routes, api_key, strict
        self._open: set[socket.socket] = set()
        self._changing = threading.Lock()

    @contextmanager
    def request(self, client: socket.socket) -> Iterator[None]:
        """Counts an open request."""
        with self._changing:
            self._open.add(client)
        try:
            yield
        finally:
            with self._changing:
                self._open.discard(client)

    @property
    def clients(self) -> int:
        """How many clients wait for an answer and have not left."""
        with self._changing:
            return sum(not has_left(client) for client in self._open)


def has_left(client: socket.socket) -> bool:
    """Whether a client has closed its connection."""
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


class Handler(BaseHTTPRequestHandler):
    """Answers requests by the routes of its server."""

    server: StubServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        if self._authorized():
            self._answer({})

    def do_POST(self) -> None:
        with self.server.request(self.connection):
            body = self._body()
            if self._authorized():
                self._post(body)

    def _post(self, body: bytes) -> None:
        wrong = None
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                wrong = ErrorAnswer(400, "the request is not a JSON object", "body", WRONG_FORM)
        except ValueError:
            wrong = ErrorAnswer(400, "the request is not JSON", "body.0", WRONG_FORM)
        kind = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if self.server.refusing:
            wrong = ErrorAnswer(500, "the engine is shutting down")
        elif self.server.strict and kind != "application/json":
            wrong = ErrorAnswer(400, "the content type is not application/json", None, WRONG_FORM)
        if wrong is None:
            self._answer(request)
        else:
            self._reply(wrong.status, wrong.body)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()  # the empty line after the last chunk
        return body

    def _answer(self, request: Object) -> None:
        path = self.path.partition("?")[0]
        route = self.server.routes.get(f"{self.command} {path}") or self.server.routes.get(self.command)
        try:
            if route is None:
                self._reply(*self._unknown(path))
                return
            answer = route(request | {"path": path})
        except ErrorAnswer as failure:
            self._reply(failure.status, failure.body, failure.location)
            return
        try:
            if isinstance(answer, str | dict):
                self._reply(200, answer)
            else:
                self._stream(answer)
        except ConnectionError:
            self.close_connection = True  # the client left

    def _unknown(self, path: str) -> tuple[int, Object]:
        """The answer on a path that the stub doesn't serve, or not with this method."""
        if not self.server.strict:
            failure = ErrorAnswer(404, f"this stub doesn't serve {self.command} {path}")
            return 404, failure.body
        known = any(listed.endswith(f" {path}") for listed in self.server.routes)
        return (405, {"detail": "Method Not Allowed"}) if known else (404, {"detail": "Not Found"})

    def _authorized(self) -> bool:
        """Whether the request has the key, if it needs one. If not, the answer says so."""
        scheme, _, key = self.headers.get("Authorization", "").partition(" ")
        required = self.server.api_key if self.path.startswith(GUARDED) else ""
        if not required or (scheme.lower() == "bearer" and key == required):
            return True
        self._reply(401, {"error": "Unauthorized"})
        return False

    def _reply(self, status: int, answer: str | Object, location: str = "") -> None:
        text = isinstance(answer, str)
        body = (answer if isinstance(answer, str) else json.dumps(answer)).encode()
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        if body:
            self.send_header("Content-Type", "text/plain; version=0.0.4" if text else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, events: Generator[Object, None, None]) -> None:
        """https://html.spec.whatwg.org/multipage/server-sent-events.html, with the last event of OpenAI's API."""
        chunked = self.request_version != "HTTP/1.0"
        time.sleep(PREFILL_SECONDS)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        self.send_header(*(("Transfer-Encoding", "chunked") if chunked else ("Connection", "close")))
        self.end_headers()
        with closing(events):  # frees the slot of the engine if the client leaves
            for text in event_texts(events):
                data = f"data: {text}\n\n".encode()
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data) if chunked else data)
        if chunked:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing: a line per probe and scrape would be noise."""


def serve(
    port: int, routes: Mapping[str, Route], tls: ssl.SSLContext | None = None, api_key: str = "", strict: bool = False
) -> StubServer:
    """Listens, and answers from other threads.

    Args:
        port: Local port. 0 selects a free one.
        routes: Routes by method and path (`GET /health`), or by method for all other paths. A route gets the request's
            JSON, with the path as `path`.
        tls: Context for HTTPS. Default: HTTP.
        api_key: Key that clients must send for the paths that vLLM guards. Default: none.
        strict: Refuse requests of another content type than JSON, and on unknown paths, as vLLM does.
    """
    server = StubServer(("127.0.0.1", port), routes, api_key, strict)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def event_texts(events: Iterator[Object]) -> Iterator[str]:
    """The data of the events of a stream."""
    for event in events:
        yield json.dumps(event)
    yield "[DONE]"


def metric(name: str, about: str, samples: Mapping[str, float], kind: str = "gauge") -> str:
    """Formats a metric in Prometheus' text format. `samples` are by labels (`id="x"`)."""
    family = name.removesuffix("_total") if kind == "counter" else name
    lines = [f"# HELP {family} {about}", f"# TYPE {family} {kind}"]
    lines += [f"{name}{{{labels}}} {value}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"
