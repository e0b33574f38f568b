"""Serves requests to a port of this machine during a block."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

Object = dict[str, Any]


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Yields host and port. The server ends with the block, however that ends: a closed socket would keep it busy."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@contextmanager
def answering(answer: Callable[[str, str, str, Object], tuple[int, Object] | None]) -> Iterator[str]:
    """Serves JSON. Yields host and port.

    `answer` gets method, path, query and body, and gives status and body; None breaks the connection.
    """

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
            path, _, query = self.path.partition("?")
            answered = answer(self.command, path, query, body)
            if answered is None:
                self.close_connection = True
                return
            text = json.dumps(answered[1]).encode()
            self.send_response(answered[0])
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PATCH = do_DELETE = _serve

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with listening(Handler) as address:
        yield address
