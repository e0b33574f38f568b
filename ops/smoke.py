"""`make smoke STACK=…`: asks every server of a stack as its users would, and says pass or fail.

Requests go through the API server to the Service (https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/),
so that no port needs to be open: all that it takes is the right to `create services/proxy`.
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

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

PROMPT = "Name the largest planet of the solar system, and say in one sentence what it is made of."
MAX_TOKENS = 64
ANSWER_SECONDS = 300  # a burst waits in the engine's queue, and a large model takes its time
SHOWN = 160  # characters of what a server said that are worth reading


@dataclass(frozen=True)
class Server:
    """A server as the stack's outputs name it."""

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
    """What became of one request: an answer, or a problem with what to do about it."""

    seconds: float
    text: str = ""
    tokens: int | None = None
    problem: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Result:
    """What became of a server's check; `problem` is why it was not asked at all."""

    server: str
    engine: str = ""
    replies: list[Reply] = field(default_factory=list)
    problem: str = ""
    remedy: str = ""

    @property
    def failed(self) -> list[Reply]:
        """The requests without an answer."""
        return [reply for reply in self.replies if reply.problem]

    @property
    def passed(self) -> bool:
        """Whether every request was answered."""
        return bool(self.replies) and not self.failed


def main() -> None:
    """Asks each server of the stack through the API server, and prints latencies, errors, and pass or fail."""
    sys.exit(smoke(arguments(main.__doc__ or "")))


def smoke(stack: Stack) -> int:
    """Checks every server of `stack`; the exit code."""
    named = stack.outputs().get("servers") or []
    if not named:
        print(f"{stack.name} has no servers: nothing to ask.")
        return 0
    api = stack.api(connections=max(engine.burst for engine in ENGINES.values()))
    if api is None:
        raise Stop(f"{stack.name} has no cluster yet. Next: {stack.next('up')}")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else status.LOG_WIDTH)
    results = [check(api, stack, output, console) for output in named]
    console.print()
    console.print(table(results))
    for line in failures(results):
        console.print(escape(line), soft_wrap=True)
    return 0 if all(result.passed for result in results) else 1


def check(api: ApiClient, stack: Stack, output: Mapping[str, Any], console: Console) -> Result:
    """Asks one server as many times at once as its engine's burst, if it has a replica to ask."""
    name = f"{output['namespace']}/{output['name']}"
    engine = ENGINES.get(output.get("engine", ""))
    if engine is None:
        return Result(name, problem="the stack's outputs don't say which engine it has", remedy=stack.next("up"))
    server = Server(
        output["name"], output["namespace"], output["service"], int(output["port"]), engine, output["model"]
    )
    if found := unready(api, stack, server):
        return Result(name, engine.title, problem=found[0], remedy=found[1])
    with counting(console, name, engine.burst) as answered:
        return Result(name, engine.title, send_burst(api, server, answered))


def unready(api: ApiClient, stack: Stack, server: Server) -> tuple[str, str] | None:
    """Why a server has no replica that could answer, and what to do; nothing where it has one."""
    path = f"/apis/apps/v1/namespaces/{server.namespace}/deployments"
    deployment = next((one for one in list_objects(api, path) if one["metadata"]["name"] == server.name), None)
    if deployment is None:
        return "its Deployment is not there", stack.next("up")
    if not deployment["spec"].get("replicas", 1):
        return "it is scaled to zero", f"{kubectl()} -n {server.namespace} scale deployment/{server.name} --replicas=1"
    if deployment.get("status", {}).get("readyReplicas", 0):
        return None
    chosen = ",".join(f"{key}={value}" for key, value in deployment["spec"]["selector"]["matchLabels"].items())
    pods = list_objects(api, f"/api/v1/namespaces/{server.namespace}/pods", labelSelector=chosen)
    return f"no replica is ready: {why_unready(pods)}", stack.next("status")


def why_unready(pods: list[Object]) -> str:
    """What keeps the first of some pods from being ready, as far as its status tells."""
    for _, why in status.waiting_rows(status.Snapshot(pods=pods)):
        return why
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses") or []:
            if waiting := container.get("state", {}).get("waiting"):
                return f"{container['name']} waits: {waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    return "its containers run and don't answer yet: the model may still be loading" if pods else "it has no pods"


def send_burst(
    api: ApiClient, server: Server, answered: Callable[[], None], seconds: float = ANSWER_SECONDS
) -> list[Reply]:
    """Sends the burst, all of it at once; `answered` is called at the end of each request."""
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
    """One request and what became of it; nothing is tried twice, as a retry would hide what users see."""
    from urllib3.exceptions import HTTPError, TimeoutError

    call: Callable[..., Any] = api.call_api
    logs = f"{kubectl()} -n {server.namespace} logs deployment/{server.name} --all-containers --tail=50"
    began = time.perf_counter()
    try:
        response = call(*request, _request_timeout=seconds)
        said = response.read().decode(errors="replace")
    except TimeoutError:
        return Reply(time.perf_counter() - began, problem=f"no answer within {seconds:g} s", remedy=logs)
    except HTTPError as error:
        problem = f"the connection to the cluster failed ({type(error).__name__})"
        return Reply(time.perf_counter() - began, problem=problem, remedy="see whether the cluster can be reached")
    took = time.perf_counter() - began
    if response.status != 200:
        problem = f"HTTP {response.status}: {shortened(message_in(said), api)}"
        return Reply(took, problem=problem, remedy=remedy(response.status, server, logs))
    try:
        answer = json.loads(said)
        text = server.engine.text(answer)
    except (ValueError, KeyError, IndexError, TypeError):
        problem = f"this is no answer of {server.engine.title}: {shortened(said, api)}"
        return Reply(took, problem=problem, remedy=logs)
    if not text.strip():
        return Reply(took, problem="the answer has no text", remedy=logs)
    return Reply(took, text, (answer.get("usage") or {}).get("completion_tokens"))


def remedy(status_code: int, server: Server, logs: str) -> str:
    """What to do next about an HTTP error."""
    match status_code:
        case 401 | 403:
            return f"give yourself the right to create services/proxy in namespace {server.namespace}, then try again"
        case 404:
            return f"compare with {kubectl()} -n {server.namespace} get service {server.service} -o yaml; {logs}"
        case 429:
            return "the server takes no more at once: add replicas, or give it an autoscaler"
        case 502 | 503 | 504:
            return f"no pod behind the Service answers; {logs}"
    return logs


def message_in(said: str) -> str:
    """The message in an error's body: of Kubernetes (`message`), TGI and vLLM (`error`) or JetStream (`detail`)."""
    try:
        found = json.loads(said)
    except ValueError:
        return said
    for key in ("message", "error", "detail"):
        if isinstance(found, dict) and found.get(key):
            return message_in(json.dumps(found[key])) if isinstance(found[key], dict) else str(found[key])
    return said


def shortened(said: str, api: ApiClient) -> str:
    """What a server said, in one short line, without the credential that the request carried."""
    for value in api.configuration.api_key.values():
        for secret in filter(None, (value, value.removeprefix("Bearer "))):
            said = said.replace(secret, "***")
    said = " ".join(said.split()) or "nothing was said"
    return said if len(said) <= SHOWN else f"{said[:SHOWN]}…"


@contextmanager
def counting(console: Console, name: str, total: int) -> Iterator[Callable[[], None]]:
    """Shows how many requests have ended: a bar on a terminal, in a log a line at each quarter."""
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
    """The time within which that many percent of requests were answered (nearest rank)."""
    return f"{sorted(seconds)[ceil(len(seconds) * percent / 100) - 1]:.2f} s" if seconds else "–"


def amount(replies: list[Reply]) -> str:
    """How much was answered: tokens where the engine counts them, else characters."""
    counts = [reply.tokens for reply in replies]
    if counts and None not in counts:
        return f"{sum(filter(None, counts))} tokens"
    return f"{sum(len(reply.text) for reply in replies)} characters"


def table(results: list[Result]) -> Table:
    """One row a server."""
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
    """Each different problem of each server that failed, the most frequent first, and what to do next."""
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
