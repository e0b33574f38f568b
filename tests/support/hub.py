"""A local HTTP server that plays Hugging Face: a model's API, its files, and their redirects to another host."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from tests.support.local_server import listening

COMMIT = "0123456789abcdef0123456789abcdef01234567"
MODEL = "example/tiny"


@dataclass(frozen=True)
class Request:
    """A request that the server got. `host` is the name by which the client called it."""

    path: str
    host: str
    token: str | None
    start: int


# What a fault does with a request for a file: a status with headers, the content to send, or None for the usual answer.
Fault = Callable[[Request, bytes], "tuple[int, dict[str, str]] | bytes | None"]


@dataclass
class FakeHub:
    """The model's files by name. The content of files in `large` is on another host, with a SHA-256 in the API."""

    files: dict[str, bytes]
    large: tuple[str, ...] = (".safetensors", ".bin")
    token: str | None = None
    faults: dict[str, Fault] = field(default_factory=dict)
    api_fault: Callable[[Request], tuple[int, dict[str, str]] | None] = lambda _: None
    ignores_ranges: bool = False
    requests: list[Request] = field(default_factory=list)
    # The server stops in the middle of a file until the test continues.
    hold_after: int | None = None
    held: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    """The address of the API, while the server runs."""

    def __enter__(self) -> FakeHub:
        self._listening = listening(self._handler())
        self.url = f"http://{self._listening.__enter__()}"
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._listening.__exit__(None, None, None)

    def of(self, name: str) -> list[Request]:
        """The requests for the content of a file, at the host that has it."""
        where = "/cdn/" if name.endswith(self.large) else "/resolve/"
        return [request for request in self.requests if where in request.path and request.path.endswith(name)]

    def api(self) -> bytes:
        """The answer of the model's API."""
        siblings = []
        for name, content in self.files.items():
            git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
            entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": git}
            if name.endswith(self.large):
                entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
            siblings.append(entry)
        return json.dumps({"id": MODEL, "sha": COMMIT, "siblings": siblings}).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, format: str, *args: object) -> None:
                """Prints nothing."""

            def do_GET(self) -> None:
                hub.answer(self)

        return Handler

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        start = int(handler.headers.get("Range", "bytes=0-").removeprefix("bytes=").rstrip("-"))
        path = unquote(urlsplit(handler.path).path)
        token = handler.headers.get("Authorization")
        request = Request(path, handler.headers["Host"].partition(":")[0], token, start)
        self.requests.append(request)
        if path.startswith("/cdn/"):
            self._send_file(handler, path.removeprefix("/cdn/"), request)
        elif self.token is not None and token != f"Bearer {self.token}":
            self._send(handler, 403 if token else 401, {"X-Error-Code": "GatedRepo"})
        elif path in (f"/api/models/{MODEL}/revision/main", f"/api/models/{MODEL}/revision/{COMMIT}"):
            status, headers = self.api_fault(request) or (200, {})
            self._send(handler, status, headers, self.api() if status == 200 else b"")
        elif path.startswith(f"/{MODEL}/resolve/{COMMIT}/"):
            name = path.removeprefix(f"/{MODEL}/resolve/{COMMIT}/")
            if name.endswith(self.large):
                other = self.url.replace("127.0.0.1", "localhost")
                self._send(handler, 302, {"Location": f"{other}/cdn/{name}?signature=secret"})
            else:
                self._send_file(handler, name, request)
        else:
            self._send(handler, 404, {})

    def _send_file(self, handler: BaseHTTPRequestHandler, name: str, request: Request) -> None:
        content = self.files[name]
        fault = self.faults[name](request, content) if name in self.faults else None
        if isinstance(fault, tuple):
            self._send(handler, *fault)
            return
        body = content if fault is None else fault
        start = 0 if self.ignores_ranges else request.start
        handler.send_response(206 if start else 200)
        if start:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        body = body[start:]
        try:
            if self.hold_after is not None and start + len(body) > self.hold_after >= start:
                handler.wfile.write(body[: self.hold_after - start])
                handler.wfile.flush()
                body = body[self.hold_after - start :]
                self.held.set()
                self.go_on.wait(60)
            handler.wfile.write(body)
        except OSError:
            return  # the client is gone
        if len(body) + start < len(content):
            handler.close_connection = True

    def _send(self, handler: BaseHTTPRequestHandler, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)
