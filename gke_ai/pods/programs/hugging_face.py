"""Hugging Face's API: the files of a model, their checksums and contents. Standard library only."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import random
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any, NoReturn

TIMEOUT_SECONDS = 60.0
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 1.0, 60.0
# Failures in a row, without a byte in between.
MAX_FAILURES = 8
BLOCK = 4 * 2**20
# Formats that a server does not read if the repository has safetensors, which most repositories have besides.
OTHER_WEIGHTS = (".bin", ".pt", ".pth", ".h5", ".msgpack", ".onnx", ".onnx_data", ".gguf", ".tflite", ".ot")
# Names in the folder of a model that are not files of the model.
MARKER, FILLING = "COMPLETE", ".filling"
RESERVED = (MARKER, FILLING)
# Limits of file systems, and of Cloud Storage with the folder of the model: https://cloud.google.com/storage/docs/objects
MAX_NAME_BYTES, MAX_PATH_BYTES = 255, 768


class FillError(Exception):
    """The bucket can't be filled. If `refused`, another try would fail too."""

    def __init__(self, message: str, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class Interrupted(Exception):
    """A request failed for a reason that may pass. `pause`: seconds that the server asks to wait."""

    def __init__(self, reason: str, pause: float = 0) -> None:
        super().__init__(reason)
        self.pause = pause


@dataclass(frozen=True)
class ModelFile:
    """A file of the model: Hugging Face has the SHA-256 of large files, and the Git hash of small ones."""

    name: str
    size: int
    algorithm: str
    digest: str

    def checksum(self) -> Any:
        """A checksum of the file's kind, before the first byte. A Git hash begins with the size."""
        if self.algorithm == "sha256":
            return hashlib.sha256()
        return hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)

    def recorded(self) -> dict[str, Any]:
        """The file in the marker."""
        return {"bytes": self.size, self.algorithm: self.digest}


def origin(url: str) -> tuple[str, str]:
    """Scheme and host of a URL."""
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.netloc


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects. Another host, such as that of the files, does not get the token."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        """The redirected request."""
        redirected = super().redirect_request(req, fp, code, msg, headers, newurl)
        if redirected is not None and origin(newurl) != origin(req.full_url):
            redirected.remove_header("Authorization")
            if origin(req.full_url)[0] == "https" and origin(newurl)[0] != "https":
                raise FillError(f"{origin(req.full_url)[1]} redirects to a URL without encryption.", refused=True)
        return redirected


class Hub:
    """Hugging Face, or a mirror with the same API. The token is sent to it alone, and never printed."""

    def __init__(self, endpoint: str, model: str, token: str) -> None:
        self._endpoint, self._model, self._token = endpoint.rstrip("/"), model, token
        self._opener = urllib.request.build_opener(Redirects())

    def files(self, revision: str) -> tuple[str, list[ModelFile]]:
        """The commit of a revision, and its files: https://huggingface.co/docs/hub/api"""
        path = f"/api/models/{self._model}/revision/{urllib.parse.quote(revision, safe='')}?blobs=true"
        answer = json.loads(self._retried(lambda: self._read(path)))
        return str(answer["sha"]), [model_file(entry) for entry in answer["siblings"]]

    def content(self, name: str, commit: str, start: int) -> Iterator[bytes]:
        """The content of a file from byte `start`. Raises Interrupted."""
        path = f"/{self._model}/resolve/{commit}/{urllib.parse.quote(name)}"
        with self._open(path, {"Range": f"bytes={start}-"} if start else {}) as response:
            # A server that ignores the range sends the file from its beginning.
            skip = start if response.status != 206 else 0
            with interruptions():
                while block := response.read(BLOCK):
                    yield block[skip:]
                    skip = max(0, skip - len(block))

    def _read(self, path: str) -> bytes:
        with self._open(path, {}) as response, interruptions():
            content: bytes = response.read()
            return content

    def _open(self, path: str, headers: Mapping[str, str]) -> Any:
        request = urllib.request.Request(self._endpoint + path, headers={"User-Agent": "gke-ai", **headers})
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        with interruptions():
            try:
                return self._opener.open(request, timeout=TIMEOUT_SECONDS)
            except urllib.error.HTTPError as error:
                error.close()
                self._explain(error)

    def _explain(self, error: urllib.error.HTTPError) -> NoReturn:
        """Raise the error of an answer: Interrupted if it may pass."""
        elsewhere = origin(error.url or self._endpoint) != origin(self._endpoint)
        code, pause = error.code, error.headers.get("Retry-After", "")
        # A signed URL of another host expires: the next request gets a new one.
        if code in (408, 425, 429) or code >= 500 or (elsewhere and code in (401, 403, 404, 410)):
            raise Interrupted(f"HTTP {code}", float(pause) if pause.isdecimal() else 0)
        page = f"{self._endpoint}/{self._model}"
        if code in (401, 403):
            token = "the token" if self._token else "a request without a token"
            raise FillError(
                f"{page} refuses {token} (HTTP {code}). The model may be gated, or its name wrong. Accept its license "
                "there with the account of the token, and set the token: pulumi config set --secret gke-ai:hfToken",
                refused=True,
            )
        if code == 404:
            raise FillError(f"{page} does not have the model, revision or file. Check their names.", refused=True)
        raise FillError(f"{page} answers HTTP {code}.", refused=True)

    def _retried(self, request: Any) -> Any:
        for failures in range(1, MAX_FAILURES + 1):
            try:
                return request()
            except Interrupted as error:
                rest(error, failures)
        raise FillError(f"{self._endpoint} did not answer {MAX_FAILURES} times. The Job tries again.")


@contextlib.contextmanager
def interruptions() -> Iterator[None]:
    """Raises Interrupted for errors of the network."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise Interrupted(f"{type(error).__name__}: {getattr(error, 'reason', None) or error}") from None


def rest(error: Interrupted, failures: int) -> None:
    """Waits before the next request: longer after each failure, and as long as the server asks."""
    pause = min(FIRST_PAUSE_SECONDS * 2 ** (failures - 1), MAX_PAUSE_SECONDS) * random.uniform(0.5, 1)
    pause = max(pause, min(error.pause, 5 * MAX_PAUSE_SECONDS))
    print(f"{error}: trying again in {pause:.0f} s", flush=True)
    time.sleep(pause)


def model_file(entry: Mapping[str, Any]) -> ModelFile:
    """A file of the model in the answer of Hugging Face."""
    name, large = str(entry["rfilename"]), entry.get("lfs")
    if not can_be_stored(name):
        raise FillError(f"The model has a file {name!r}, which can't be stored under this name.", refused=True)
    if large:
        return ModelFile(name, int(large["size"]), "sha256", str(large["sha256"]))
    return ModelFile(name, int(entry["size"]), "git", str(entry["blobId"]))


def can_be_stored(name: str) -> bool:
    """Whether a name is a path of printable names in the model's folder, and none of this program's own."""
    # Printable characters are no surrogates, which have no encoding.
    if not name.isprintable() or len(name.encode()) > MAX_PATH_BYTES:
        return False
    parts = name.split("/")
    if parts[0] in RESERVED or {"", ".", ".."} & set(parts):
        return False
    return all(len(part.encode()) <= MAX_NAME_BYTES for part in parts)


def needed(files: list[ModelFile]) -> list[ModelFile]:
    """The files that servers read, the largest first: safetensors instead of other formats, if there are any.

    Engines read the weights that `model.safetensors.index.json` names, which lie beside it. Folders such as `original`
    have other copies.
    """
    weights = [file.name for file in files if file.name.endswith(".safetensors")]
    if weights:
        files = [file for file in files if not file.name.endswith(OTHER_WEIGHTS)]
    if any("/" not in name for name in weights):
        files = [file for file in files if "/" not in file.name or not file.name.endswith(".safetensors")]
    return sorted(files, key=lambda file: -file.size)
