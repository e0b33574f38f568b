"""Runs command lines, and calls Google's APIs with a credential."""

from __future__ import annotations

import json
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from gke_ai.kube import client
from gke_ai.kube.client import Answer, ApiClient
from gke_ai.ops.doctor.registry import digest_of

NOT_FOUND = 127  # exit code of a shell for an unknown command
ACCESS_API = "authorization.k8s.io/v1"
SECONDS = 60  # maximum time of one request


def call(request: str, body: Mapping[str, Any] | None = None, token: str = "", payer: str = "") -> Answer:
    """Runs a command line, sends `GET URL` or `POST URL` with a body, or asks a registry by `DIGEST IMAGE`.

    `payer` is the quota project.
    """
    method, _, url = request.partition(" ")
    if method == "DIGEST":
        return digest_of(url)
    if method in ("GET", "POST"):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return _call_google(method, url, body, headers | ({"X-Goog-User-Project": payer} if payer else {}))
    try:
        done = subprocess.run(
            shlex.split(request), text=True, capture_output=True, timeout=SECONDS, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError:
        return Answer(NOT_FOUND)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(1, error=type(error).__name__)
    return Answer(done.returncode, _parsed(done.stdout), done.stderr.strip())


def _call_google(method: str, url: str, body: Mapping[str, Any] | None, headers: dict[str, str]) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=SECONDS) as got:
            return Answer(got.status, _parsed(got.read().decode()))
    except urllib.error.HTTPError as error:
        response_body = _parsed(error.read().decode(errors="replace"))
        return Answer(error.code, response_body, _message(response_body) or error.reason)
    except OSError as error:
        return Answer(0, error=str(getattr(error, "reason", error)))


def own_access(api: ApiClient, attributes: Mapping[str, str]) -> Answer:
    """Asks a cluster whether the user may do something."""
    body = {"apiVersion": ACCESS_API, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": attributes}}
    return client.request(api, "POST", f"/apis/{ACCESS_API}/selfsubjectaccessreviews", body=body)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""
