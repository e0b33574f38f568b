"""Sends requests to a model server through the API server, and measures its answers.

The API server passes on each token at once (https://pkg.go.dev/net/http/httputil#ReverseProxy, FlushInterval).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from gke_ai.catalog.engines.engine import Engine
from gke_ai.kube.client import ApiClient
from gke_ai.kube.objects import Object
from gke_ai.workspace.stack import kubectl

PROMPT = "Name the largest planet of the solar system, and say in one sentence what it is made of."
MAX_TOKENS = 64
ANSWER_SECONDS = 300  # a burst waits in the engine's queue, and a large model answers slowly
MAX_CHARACTERS = 160  # of a response that is shown in an error
EVENT_STREAM = "text/event-stream"
ACCEPTED = f"application/json, {EVENT_STREAM}"
# What the answer of any engine raises if it is JSON of another form.
WRONG_FORM = (ValueError, KeyError, IndexError, TypeError)


@dataclass(frozen=True)
class Server:
    """A server, as the outputs of the stack name it. Without `service`, it answers through a gateway."""

    name: str
    namespace: str
    service: str
    port: int
    engine: Engine
    model: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class BrokenOff(Exception):
    """A stream ended before its last event, after `tokens`."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"the answer broke off after {tokens} token{'s' * (tokens != 1)}")


@dataclass(frozen=True)
class Reply:
    """The result of one request: an answer, or a problem with its remedy.

    `first_token` and `last_token` are seconds after the request, known for a streamed answer.
    """

    seconds: float
    text: str = ""
    tokens: int | None = None
    first_token: float | None = None
    last_token: float | None = None
    problem: str = ""
    remedy: str = ""

    @property
    def per_token(self) -> float | None:
        """Seconds per token after the first one."""
        if self.first_token is None or self.last_token is None or not self.tokens or self.tokens < 2:
            return None
        return (self.last_token - self.first_token) / (self.tokens - 1)


def send_burst(
    api: ApiClient,
    server: Server,
    answered: Callable[[], None],
    seconds: float = ANSWER_SECONDS,
    *,
    path: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> list[Reply]:
    """Sends all requests of the burst at once, and calls `answered` at the end of each.

    Args:
        api: The API server, or another server with `path`.
        server: The server that answers.
        answered: Called at the end of each request.
        seconds: Time for an answer.
        path: Path before that of the engine. Default: the proxy of the server's Service.
        headers: Further headers of each request.
    """
    request = request_of(api, server, PROMPT, MAX_TOKENS, path=path, headers=headers)
    count = server.engine.burst
    with ThreadPoolExecutor(count) as threads:
        waiting = [threads.submit(reply, api, request, server, seconds) for _ in range(count)]
        replies = []
        for done in as_completed(waiting):
            replies.append(done.result())
            answered()
    return replies


def request_of(
    api: ApiClient,
    server: Server,
    prompt: str,
    tokens: int,
    *,
    path: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> tuple[Any, ...]:
    """A request for a prompt's answer of so many tokens. `path` and `headers` are those of `send_burst`."""
    if path is None:
        path = f"/api/v1/namespaces/{server.namespace}/services/{server.service}:{server.port}/proxy"
    request: tuple[Any, ...] = api.param_serialize(
        "POST",
        f"{path}{server.engine.request_path}",
        header_params={"Content-Type": "application/json", "Accept": ACCEPTED, **(headers or {})},
        body={**server.engine.body(server.model, prompt, tokens), **streaming(server.engine)},
        auth_settings=["BearerToken"],
    )
    return request


def streaming(engine: Engine) -> Object:
    """What a request contains so that the answer comes token by token. Empty if the engine cannot."""
    return {"stream": True, "stream_options": {"include_usage": True}} if engine.streams else {}


def reply(api: ApiClient, request: tuple[Any, ...], server: Server, seconds: float) -> Reply:
    """Sends one request. Never retries, because a retry would hide what users see."""
    from urllib3.exceptions import HTTPError, TimeoutError

    call: Callable[..., Any] = api.call_api
    logs = f"{kubectl()} -n {server.namespace} logs deployment/{server.name} --all-containers --tail=50"
    began = time.perf_counter()

    def elapsed() -> float:
        return time.perf_counter() - began

    def failed(problem: str, remedy: str = logs) -> Reply:
        return Reply(elapsed(), problem=problem, remedy=remedy)

    try:
        response = call(*request, _request_timeout=seconds)
        if response.status != 200:
            body = response.read().decode(errors="replace")
            problem = f"HTTP {response.status}: {shortened(message_in(body), api)}"
            return failed(problem, remedy(response.status, server, logs))
        if EVENT_STREAM in (response.getheader("Content-Type") or ""):
            answer, body = streamed(iter(response.response), server.engine, elapsed, seconds)
        else:
            answer, body = whole(response.read().decode(errors="replace"), server.engine, elapsed)
    except TimeoutError:
        return failed(f"no answer within {seconds:g} s")
    except BrokenOff as error:
        return failed(str(error))
    except HTTPError as error:
        problem = f"the connection to the cluster failed ({type(error).__name__})"
        return failed(problem, "check the network path to the cluster")
    if answer is None:
        return failed(f"this is not an answer of {server.engine.title}: {shortened(message_in(body), api)}")
    return answer if answer.text.strip() else failed("the answer has no text")


def whole(body: str, engine: Engine, elapsed: Callable[[], float]) -> tuple[Reply | None, str]:
    """Returns an answer that comes in one piece, or None if it is none, and the body of the response."""
    try:
        answer = json.loads(body)
        return Reply(elapsed(), engine.text(answer), (answer.get("usage") or {}).get("completion_tokens")), body
    except WRONG_FORM:
        return None, body


def streamed(
    lines: Iterator[bytes], engine: Engine, elapsed: Callable[[], float], seconds: float
) -> tuple[Reply | None, str]:
    """Returns a streamed answer, or None and the wrong event if it is none. Raises BrokenOff and TimeoutError.

    An engine that does not count its tokens sends one per event.
    """
    from urllib3.exceptions import ProtocolError, TimeoutError

    texts: list[str] = []
    first = last = 0.0
    tokens: int | None = None
    while True:
        try:
            line = next(lines)
        except (StopIteration, ProtocolError):
            raise BrokenOff(len(texts)) from None
        if elapsed() > seconds:
            raise TimeoutError
        data = line.decode(errors="replace").strip().removeprefix("data:").strip()
        if data == "[DONE]":
            return Reply(elapsed(), "".join(texts), tokens or len(texts), first or None, last or None), ""
        if not data or data.startswith(":"):
            continue
        try:
            event = json.loads(data)
            text = engine.text(event) if event.get("choices") or "usage" not in event else ""
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        except (AttributeError, *WRONG_FORM):
            return None, data
        if text:
            last = elapsed()
            first = first or last
            texts.append(text)


def remedy(status_code: int, server: Server, logs: str) -> str:
    """Returns the remedy for an HTTP error."""
    if not server.service:
        key = "set GATEWAY_API_KEY to the key of the stack: pulumi config get gke-ai:gatewayApiKey"
        return key if status_code == 401 else logs
    match status_code:
        case 401 | 403:
            return f"get the permission to create services/proxy in namespace {server.namespace}, then try again"
        case 404:
            return f"compare with {kubectl()} -n {server.namespace} get service {server.service} -o yaml; {logs}"
        case 429:
            return "the server accepts no more requests at once: add replicas or an autoscaler"
        case 502 | 503 | 504:
            return f"no pod behind the Service answers; {logs}"
    return logs


def message_in(body: str) -> str:
    """Returns the message of an error: of Kubernetes (`message`), TGI and vLLM (`error`) or JetStream (`detail`)."""
    try:
        content = json.loads(body)
    except ValueError:
        return body
    for key in ("message", "error", "detail"):
        if isinstance(content, dict) and content.get(key):
            return message_in(json.dumps(content[key])) if isinstance(content[key], dict) else str(content[key])
    return body


def shortened(text: str, api: ApiClient) -> str:
    """Returns a response as one short line, without the credential of the request."""
    for value in api.configuration.api_key.values():
        for secret in filter(None, (value, value.removeprefix("Bearer "))):
            text = text.replace(secret, "***")
    text = " ".join(text.split()) or "empty response"
    return text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]}…"
