"""`gke-ai smoke`: sends requests to every server of a stack, as its users do, and prints pass or fail.

Requests go through the API server to the Service (https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/).
No port must be open; the user needs only the permission to `create services/proxy`. Servers that require an API key are
checked through their gateway, with the key in the variable GATEWAY_API_KEY.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median_low
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from gke_ai.catalog.engines.engine import ENGINES
from gke_ai.formats.console import new_console, new_progress, new_table
from gke_ai.kube.client import ApiClient, list_objects
from gke_ai.kube.objects import Object
from gke_ai.kube.pods import waiting_containers
from gke_ai.ops.smoke import starts
from gke_ai.ops.smoke.answers import Reply, Server, send_burst
from gke_ai.ops.smoke.routes import ModelRoute, api_key, checked_routes, through_gateway, with_key
from gke_ai.ops.status import command as status
from gke_ai.workspace.stack import Stack, kubectl

# A changed gateway may take minutes until it sends requests to its servers:
# https://cloud.google.com/kubernetes-engine/docs/how-to/deploying-gateways
PROGRAMMED_SECONDS, PAUSE_SECONDS = 120.0, 2.0


@dataclass(frozen=True)
class Result:
    """The result of a server's check: the replies to a burst that took `seconds`. With a `problem`, none was sent."""

    server: str
    engine: str = ""
    replies: list[Reply] = field(default_factory=list)
    seconds: float = 0
    streams: bool = True
    problem: str = ""
    remedy: str = ""

    @property
    def failed(self) -> list[Reply]:
        """Requests without an answer."""
        return [reply for reply in self.replies if reply.problem]

    @property
    def good(self) -> list[Reply]:
        """Requests with an answer."""
        return [reply for reply in self.replies if not reply.problem]

    @property
    def passed(self) -> bool:
        """Whether the server answered every request."""
        return bool(self.replies) and not self.failed


def smoke(stack: Stack) -> int:
    """Checks every server of `stack`. Returns the exit code."""
    console, outputs = new_console(), stack.outputs()
    results = check_servers(stack, outputs, console)
    if not results:
        print(f"{stack.name} has no servers: nothing to check.")
        return 0
    console.print()
    console.print(table(results))
    if any(result.good for result in results):
        console.print()
        console.print(measures(results))
    if found := [*starts.starts(stack.cluster(), outputs["servers"])]:
        console.print()
        console.print(starts.table(found))
    for line in (*without_stream(results), *failures(results)):
        console.print(escape(line), soft_wrap=True)
    return 0 if all(result.passed for result in results) else 1


def check_servers(stack: Stack, outputs: Mapping[str, Any], console: Console) -> list[Result]:
    """Checks every server of the outputs, some of them through their routes. Returns nothing if there is none."""
    servers = outputs.get("servers") or []
    if not servers:
        return []
    api, through = stack.cluster(connections=max(engine.burst for engine in ENGINES.values())), through_gateway(outputs)
    results = [
        check(api, stack, output, console, adapter)
        for output in servers
        if (output["namespace"], output["name"]) not in through
        for adapter in ["", *output.get("adapters", [])]
    ]
    return [*results, *(check_route(route, stack, console) for route in checked_routes(outputs))]


def check(api: ApiClient, stack: Stack, output: Mapping[str, Any], console: Console, adapter: str = "") -> Result:
    """Sends the burst of its engine to one server, if it has a ready replica: for its model, or for an adapter."""
    name = f"{output['namespace']}/{output['name']}" + (f": {adapter}" if adapter else "")
    engine = ENGINES.get(output.get("engine", ""))
    if engine is None:
        return Result(name, problem="the outputs of the stack do not name its engine", remedy=stack.next("up"))
    port, model = int(output["port"]), adapter or output["model"]
    server = Server(output["name"], output["namespace"], output["service"], port, engine, model)
    if obstacle := unready(api, stack, server):
        problem, remedy = obstacle
        return Result(name, engine.title, problem=problem, remedy=remedy)
    began = time.perf_counter()
    with counting(console, name, engine.burst) as answered:
        replies = send_burst(api, server, answered)
    return Result(name, engine.title, replies, time.perf_counter() - began, engine.streams)


def check_route(route: ModelRoute, stack: Stack, console: Console) -> Result:
    """Sends the burst of its engine through a route."""
    key = api_key() if route.keyed else ""
    if route.keyed and not key:
        problem = "its servers require an API key, and none is set"
        return Result(str(route), route.engine.title, problem=problem, remedy=with_key(stack.next("smoke"), stack.name))
    end = time.monotonic() + PROGRAMMED_SECONDS
    while True:
        with counting(console, str(route), route.engine.burst) as answered:
            replies, seconds = route.send(key, answered)
        problem = next((reply.problem for reply in replies if is_unprogrammed(reply)), "")
        if not problem or time.monotonic() > end:
            return Result(str(route), route.engine.title, replies, seconds, route.engine.streams)
        console.print(escape(f"{route}: the gateway does not reach its servers yet ({problem}): asking again …"))
        time.sleep(PAUSE_SECONDS)


def is_unprogrammed(reply: Reply) -> bool:
    """Whether a reply is that of a gateway that has no route, no endpoint picker or no server yet.

    A load balancer is programmed part by part, so other replies of the same burst can be good.
    """
    return re.match(r"HTTP (404|50[0234])\b", reply.problem) is not None


def unready(api: ApiClient, stack: Stack, server: Server) -> tuple[str, str] | None:
    """Returns why a server has no ready replica, and the remedy; None if it has one."""
    path = f"/apis/apps/v1/namespaces/{server.namespace}/deployments"
    by_name = {deployment["metadata"]["name"]: deployment for deployment in list_objects(api, path)}
    deployment = by_name.get(server.name)
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
    for _, why in status.waiting_rows(status.ClusterObjects(pods=pods)):
        return why
    for pod in pods:
        for container, waiting in waiting_containers(pod):
            return f"{container['name']} waits: {waiting.get('reason', '')} {waiting.get('message', '')}".strip()
    return "its containers run and do not answer yet: the model may still be loading" if pods else "it has no pods"


@contextmanager
def counting(console: Console, name: str, total: int) -> Iterator[Callable[[], None]]:
    """Shows how many requests have ended: a bar on a terminal, a line per quarter in a log."""
    done = 0

    with new_progress(console) as progress:
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


def median_and_most(seconds: Iterable[float | None], digits: int = 2) -> tuple[str, str]:
    """Formats the median (the lower one of two) and the maximum of the known times."""
    known = [time for time in seconds if time is not None]
    return (f"{median_low(known):.{digits}f} s", f"{max(known):.{digits}f} s") if known else ("–", "–")


def amount(replies: list[Reply]) -> str:
    """Formats the length of all answers: tokens if the engine counts them, else characters."""
    counts = [reply.tokens for reply in replies]
    if counts and None not in counts:
        return f"{sum(filter(None, counts))} tokens"
    return f"{sum(len(reply.text) for reply in replies)} characters"


def table(results: list[Result]) -> Table:
    """Returns a table with a row per server."""
    rows = []
    for result in results:
        counts = str(len(result.replies)), str(len(result.failed))
        answered = amount(result.good) if result.good else "–"
        passed = "pass" if result.passed else "fail"
        rows.append((result.server, result.engine or "–", *counts, answered, passed))
    return new_table(("server", "engine", "requests", "errors", "answered", "result"), rows, "Servers")


def measures(results: list[Result]) -> Table:
    """Returns a table of times (median and maximum) and throughput, with a row per server that answered."""
    columns = ("answer p50", "max", "first token p50", "max", "per token p50", "max", "tokens/s", "requests/s")
    rows = []
    for result in results:
        if good := result.good:
            times = [
                *median_and_most(reply.seconds for reply in good),
                *median_and_most(reply.first_token for reply in good),
                *median_and_most((reply.per_token for reply in good), 4),
            ]
            counts = [reply.tokens for reply in good]
            tokens = "–" if None in counts else f"{sum(filter(None, counts)) / result.seconds:.1f}"
            rows.append((result.server, *times, tokens, f"{len(good) / result.seconds:.1f}"))
    return new_table(("server", *columns), rows, "Times and throughput")


def without_stream(results: list[Result]) -> Iterator[str]:
    """Yields why times of tokens are missing."""
    for engine in dict.fromkeys(result.engine for result in results if result.good and not result.streams):
        yield f"{engine} sends each answer in one piece: its tokens have no times and no count."


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
