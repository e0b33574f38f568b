"""`make smoke STACK=…`: sends requests to every server of a stack, as its users do, and prints pass or fail.

Requests go through the API server to the Service (https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/).
No port must be open; the user needs only the permission to `create services/proxy`.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from catalog.engines import ENGINES, Engine
from ops import status
from ops.stack import Object, Stack, Stop, arguments, kubectl, list_objects, run
from ops.terminal import new_console

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

PROMPT = "Name the largest planet of the solar system, and say in one sentence what it is made of."
MAX_TOKENS = 64
ANSWER_SECONDS = 300  # a burst waits in the engine's queue, and a large model answers slowly
MAX_CHARACTERS = 160  # of a response that is shown in an error


@dataclass(frozen=True)
class Server:
    """A server, as the outputs of the stack name it."""

    name: str
    namespace: str
    service: str
    port: int
    engine: Engine
    model: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Reply:
    """The result of one request: an answer, or a problem with its remedy."""

    seconds: float
    text: str = ""
    tokens: int | None = None
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Result:
    """The result of a server's check. With a `problem`, no request was sent."""

    server: str
    engine: str = ""
    replies: list[Reply] = field(default_factory=list)
    problem: str = ""
    remedy: str = ""

    @property
    def failed(self) -> list[Reply]:
        """Requests without an answer."""
        return [reply for reply in self.replies if reply.problem]

    @property
    def passed(self) -> bool:
        """Whether the server answered every request."""
        return bool(self.replies) and not self.failed


def main() -> None:
    """Sends requests to each server of the stack through the API server, and prints latencies, errors, and pass or
    fail."""
    sys.exit(smoke(arguments(main.__doc__ or "")))


def smoke(stack: Stack) -> int:
    """Checks every server of `stack`. Returns the exit code."""
    servers = stack.outputs().get("servers") or []
    if not servers:
        print(f"{stack.name} has no servers: nothing to check.")
        return 0
    api = stack.api(connections=max(engine.burst for engine in ENGINES.values()))
    if api is None:
        raise Stop(f"{stack.name} has no cluster yet. Next: {stack.next('up')}")
    console = new_console()
    results = [check(api, stack, output, console) for output in servers]
    console.print()
    console.print(table(results))
    for line in failures(results):
        console.print(escape(line), soft_wrap=True)
    return 0 if all(result.passed for result in results) else 1


def check(api: ApiClient, stack: Stack, output: Mapping[str, Any], console: Console) -> Result:
    """Sends the burst of its engine to one server, if the server has a ready replica."""
    name = f"{output['namespace']}/{output['name']}"
    engine = ENGINES.get(output.get("engine", ""))
    if engine is None:
        return Result(name, problem="the outputs of the stack do not name its engine", remedy=stack.next("up"))
    server = Server(
        output["name"], output["namespace"], output["service"], int(output["port"]), engine, output["model"]
    )
    if obstacle := unready(api, stack, server):
        problem, remedy = obstacle
        return Result(name, engine.title, problem=problem, remedy=remedy)
    with counting(console, name, engine.burst) as answered:
        return Result(name, engine.title, send_burst(api, server, answered))


def unready(api: ApiClient, stack: Stack, server: Server) -> tuple[str, str] | None:
    """Returns why a server has no ready replica, and the remedy; None if it has one."""
    path = f"/apis/apps/v1/namespaces/{server.namespace}/deployments"
    deployment = next(
        (deployment for deployment in list_objects(api, path) if deployment["metadata"]["name"] == server.name), None
    )
    if deployment is None:
        return "it has no Deployment", stack.next("up")
    if not deployment["spec"].get("replicas", 1):
        return "it is scaled to zero", f"{kubectl()} -n {server.namespace} scale deployment/{server.name} --replicas=1"
    if deployment.get("status", {}).get("readyReplicas", 0):
        return None
    selector = ",".join(f"{key}={value}" for key, value in deployment["spec"]["selector"]["matchLabels"].items())
    pods = list_objects(api, f"/api/v1/namespaces/{server.namespace}/pods", labelSelector=selector)
    return f"no replica is ready: {why_unready(pods)}", stack.next("status")


def why_unready(pods: list[Object]) -> str:
    """Returns why the first of these pods is not ready, as far as its status says."""
    for _, why in status.waiting_rows(status.Snapshot(pods=pods)):
        return why
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses") or []:
            if waiting := container.get("state", {}).get("waiting"):
                return f"{container['name']} waits: {waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    return "its containers run and do not answer yet: the model may still be loading" if pods else "it has no pods"


def send_burst(
    api: ApiClient, server: Server, answered: Callable[[], None], seconds: float = ANSWER_SECONDS
) -> list[Reply]:
    """Sends all requests of the burst at once, and calls `answered` at the end of each."""
    path = f"/api/v1/namespaces/{server.namespace}/services/{server.service}:{server.port}/proxy"
    request = api.param_serialize(
        "POST",
        f"{path}{server.engine.request_path}",
        header_params={"Content-Type": "application/json", "Accept": "application/json"},
        body=server.engine.body(server.model, PROMPT, MAX_TOKENS),
        auth_settings=["BearerToken"],
    )
    count = server.engine.burst
    with ThreadPoolExecutor(count) as threads:
        waiting = [threads.submit(reply, api, request, server, seconds) for _ in range(count)]
        replies = []
        for done in as_completed(waiting):
            replies.append(done.result())
            answered()
    return replies


def reply(api: ApiClient, request: tuple[Any, ...], server: Server, seconds: float) -> Reply:
    """Sends one request. Never retries, because a retry would hide what users see."""
    from urllib3.exceptions import HTTPError, TimeoutError

    call: Callable[..., Any] = api.call_api
    logs = f"{kubectl()} -n {server.namespace} logs deployment/{server.name} --all-containers --tail=50"
    began = time.perf_counter()
    try:
        response = call(*request, _request_timeout=seconds)
        body = response.read().decode(errors="replace")
    except TimeoutError:
        return Reply(time.perf_counter() - began, problem=f"no answer within {seconds:g} s", remedy=logs)
    except HTTPError as error:
        problem = f"the connection to the cluster failed ({type(error).__name__})"
        return Reply(time.perf_counter() - began, problem=problem, remedy="check the network path to the cluster")
    took = time.perf_counter() - began
    if response.status != 200:
        problem = f"HTTP {response.status}: {shortened(message_in(body), api)}"
        return Reply(took, problem=problem, remedy=remedy(response.status, server, logs))
    try:
        answer = json.loads(body)
        text = server.engine.text(answer)
    except (ValueError, KeyError, IndexError, TypeError):
        problem = f"this is not an answer of {server.engine.title}: {shortened(body, api)}"
        return Reply(took, problem=problem, remedy=logs)
    if not text.strip():
        return Reply(took, problem="the answer has no text", remedy=logs)
    return Reply(took, text, (answer.get("usage") or {}).get("completion_tokens"))


def remedy(status_code: int, server: Server, logs: str) -> str:
    """Returns the remedy for an HTTP error."""
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


@contextmanager
def counting(console: Console, name: str, total: int) -> Iterator[Callable[[], None]]:
    """Shows how many requests have ended: a bar on a terminal, a line per quarter in a log."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    done = 0

    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(escape(name), total=total)
        if not console.is_terminal:
            console.print(f"{name}: {total} requests at once …")

        def answered() -> None:
            nonlocal done
            done += 1
            progress.advance(task)
            if not console.is_terminal and done * 4 // total > (done - 1) * 4 // total:
                console.print(f"{name}: {done} of {total} ended")

        yield answered


def percentile(seconds: list[float], percent: int) -> str:
    """Formats a percentile of latencies (nearest rank)."""
    return f"{sorted(seconds)[ceil(len(seconds) * percent / 100) - 1]:.2f} s" if seconds else "–"


def amount(replies: list[Reply]) -> str:
    """Formats the length of all answers: tokens if the engine counts them, else characters."""
    counts = [reply.tokens for reply in replies]
    if counts and None not in counts:
        return f"{sum(filter(None, counts))} tokens"
    return f"{sum(len(reply.text) for reply in replies)} characters"


def table(results: list[Result]) -> Table:
    """Returns a table with a row per server."""
    shown = Table(title="Servers", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in ("server", "engine", "requests", "errors", "p50", "p90", "p99", "answered", "result"):
        shown.add_column(column, no_wrap=True)
    for result in results:
        good = [reply for reply in result.replies if not reply.problem]
        times = [reply.seconds for reply in good]
        shown.add_row(
            result.server,
            result.engine or "–",
            str(len(result.replies)),
            str(len(result.failed)),
            *(percentile(times, percent) for percent in (50, 90, 99)),
            amount(good) if good else "–",
            "pass" if result.passed else "fail",
        )
    return shown


def failures(results: list[Result]) -> Iterator[str]:
    """Yields the three most frequent problems of each failed server, each with its remedy."""
    for result in results:
        if result.problem:
            yield f"\n{result.server}: {result.problem}"
            yield f"→ {result.remedy}"
        problems = Counter((reply.problem, reply.remedy) for reply in result.failed)
        for number, ((problem, step), count) in enumerate(problems.most_common(3)):
            yield f"{'' if number else chr(10)}{result.server}: {count} × {problem}"
            yield f"→ {step}"


if __name__ == "__main__":
    run(main)
