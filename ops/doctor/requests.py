"""Runs command lines, and calls Google's APIs with a credential."""

from __future__ import annotations

import json
import shlex
import subprocess
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

from ops.stack import Answer

NOT_THERE = 127  # what a shell says of a command that it doesn't find
SECONDS = 60  # the longest that one request may take


def call(request: str, body: Mapping[str, Any] | None = None, token: str = "", payer: str = "") -> Answer:
    """The answer to a command line, or to `GET URL` and `POST URL` with a body; `payer` is the project that it counts
    for."""
    method, _, url = request.partition(" ")
    if method in ("GET", "POST"):
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        return _ask_google(method, url, body, headers | ({"X-Goog-User-Project": payer} if payer else {}))
    try:
        done = subprocess.run(
            shlex.split(request),
            text=True,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return Answer(NOT_THERE)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Answer(1, error=type(error).__name__)
    return Answer(done.returncode, _parsed(done.stdout), done.stderr.strip())


def _ask_google(method: str, url: str, body: Mapping[str, Any] | None, headers: dict[str, str]) -> Answer:
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers, method=method), timeout=SECONDS) as got:
            return Answer(got.status, _parsed(got.read().decode()))
    except urllib.error.HTTPError as error:
        found = _parsed(error.read().decode(errors="replace"))
        return Answer(error.code, found, _message(found) or error.reason)
    except OSError as error:
        return Answer(0, error=str(getattr(error, "reason", error)))


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()


def _message(body: Any) -> str:
    error = body.get("error") if isinstance(body, dict) else None
    return str(error.get("message", "")) if isinstance(error, dict) else ""
