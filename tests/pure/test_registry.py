"""The doctor's question to a registry of images: a digest by tag, with a token for everybody, and nothing else."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from gke_ai.ops.doctor.registry import digest_of, parts
from tests.support.local_server import listening

DIGEST = "sha256:" + "a" * 64
TOKEN = "token-for-everybody"


class Handler(BaseHTTPRequestHandler):
    """A registry with one image, which wants a token, and the address that gives tokens."""

    def do_HEAD(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            realm = f"http://127.0.0.1:{self.server.server_port}/token"  # type: ignore[attr-defined]
            challenge = f'Bearer realm="{realm}",service="registry",scope="repository:team/app:pull"'
            if "file" in self.path:
                challenge = challenge.replace(realm, "file:///etc/passwd")
            return self._answer(401, {"WWW-Authenticate": challenge})
        is_there = self.path == "/v2/team/app/manifests/v1"
        return self._answer(200 if is_there else 404, {"Docker-Content-Digest": DIGEST} if is_there else {})

    def do_GET(self) -> None:
        assert self.path == "/token?service=registry&scope=repository%3Ateam%2Fapp%3Apull"
        self._answer(200, {}, json.dumps({"token": TOKEN}).encode())

    def _answer(self, code: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""


@pytest.fixture
def registry() -> Iterator[str]:
    with listening(Handler) as address:
        yield address


def test_the_digest_of_a_tag_is_that_of_the_registry_whatever_the_name_pins(registry: str) -> None:
    answer = digest_of(f"{registry}/team/app:v1@sha256:{'b' * 64}", "http")
    assert (answer.code, answer.body) == (200, DIGEST)
    assert digest_of(f"{registry}/team/app:v2", "http").code == 404
    assert digest_of(f"{registry}/team/file:v1", "http").code == 401, "no file is read as the address of a token"
    silent = digest_of("127.0.0.1:1/team/app:v1", "http")
    assert (silent.code, bool(silent.error)) == (0, True)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("vllm/vllm-openai:v0.11.0@sha256:0", ("registry-1.docker.io", "vllm/vllm-openai", "v0.11.0")),
        ("python", ("registry-1.docker.io", "library/python", "latest")),
        ("docker.io/library/python:3", ("registry-1.docker.io", "library/python", "3")),
        ("ghcr.io/huggingface/tgi:3.3.7", ("ghcr.io", "huggingface/tgi", "3.3.7")),
        ("localhost:5000/app", ("localhost:5000", "app", "latest")),
    ],
)
def test_names_of_images_have_a_host_a_path_and_a_tag(image: str, expected: tuple[str, str, str]) -> None:
    assert parts(image) == expected
