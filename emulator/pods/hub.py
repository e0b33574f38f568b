"""A stub of Hugging Face for the programs that fill buckets: a small model under every name.

It has the part of the API that they use: https://huggingface.co/docs/hub/api. The files are the same at each start.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

WEIGHTS = "model.safetensors"
# Owners whose models are gated. The stub accepts any token, and Hugging Face only one with access.
GATED = ("google", "meta-llama", "mistralai")
_API = re.compile(r"/api/models/(?P<model>[^/]+/[^/]+)/revision/(?P<revision>.+)")
# The models have one branch, and every commit.
_REVISION = re.compile(r"main|[0-9a-f]{40}")
_FILE = re.compile(r"/(?P<model>[^/]+/[^/]+)/resolve/(?P<commit>[0-9a-f]{40})/(?P<name>.+)")


def files(model: str) -> dict[str, bytes]:
    """The files of a model by name."""
    header = json.dumps({"weight": {"dtype": "BF16", "shape": [256, 64], "data_offsets": [0, 32768]}}).encode()
    return {
        "config.json": json.dumps({"_name_or_path": model, "model_type": "stub"}).encode(),
        "tokenizer.json": json.dumps({"version": "1.0"}).encode(),
        # https://github.com/huggingface/safetensors#format
        WEIGHTS: len(header).to_bytes(8, "little") + header + bytes(32768),
    }


def commit(model: str, revision: str) -> str:
    """The commit of a revision: itself, if it is one."""
    if re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    return hashlib.sha1(f"{model}@{revision}".encode()).hexdigest()


def description(model: str, revision: str) -> bytes:
    """The answer of the API, with sizes and checksums."""
    siblings = []
    for name, content in files(model).items():
        git = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        entry: dict[str, object] = {"rfilename": name, "size": len(content), "blobId": git}
        if name == WEIGHTS:
            entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134}
        siblings.append(entry)
    return json.dumps({"id": model, "sha": commit(model, revision), "siblings": siblings}).encode()


class Hub:
    """The server, in threads of this process."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        """Stops it."""
        self._server.shutdown()
        self._server.server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""

    def do_GET(self) -> None:
        """A description or a file."""
        path = unquote(urlsplit(self.path).path)
        match = _API.fullmatch(path) or _FILE.fullmatch(path)
        if match is None:
            self._send(404)
        elif match["model"].partition("/")[0] in GATED and not self.headers.get("Authorization"):
            self._send(401)
        elif match.re is _API and not _REVISION.fullmatch(match["revision"]):
            self._send(404)
        elif match.re is _API:
            self._send(200, description(match["model"], match["revision"]))
        elif (content := files(match["model"]).get(match["name"])) is None:
            self._send(404)
        else:
            start = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
            self._send(206 if start else 200, content[int(start[1]) if start else 0 :])

    def _send(self, status: int, body: bytes = b"") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
