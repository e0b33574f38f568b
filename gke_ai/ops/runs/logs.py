"""`gke-ai logs RUN`: prints the logs of a run's pods, its restarts and its newest checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gke_ai.catalog.engines import fuse
from gke_ai.kube.client import Answer, ApiClient, send
from gke_ai.kube.objects import Object, label
from gke_ai.kube.values import items, mapping
from gke_ai.ops.runs import command as runs
from gke_ai.ops.runs.command import INDEX_LABEL, Run
from gke_ai.terminal import echo
from gke_ai.workspace.emulation import COMMAND, on_emulator
from gke_ai.workspace.stack import Stack

LINES = 100  # of each container, by default
SECONDS = 60


def show(stack: Stack, name: str, lines: int = LINES) -> None:
    """Prints the logs of the run `name`."""
    api, found = runs.read(stack)
    for line in report(api, runs.find(stack, found, name), lines):
        echo(line)


def report(api: ApiClient, found: Run, lines: int) -> Iterator[str]:
    """Yields the log lines, each with the name of its pod, and then a summary of the run."""
    pods = found.pods(api)
    for pod in sorted(pods, key=order):
        for container in _with_logs(pod):
            yield from of_container(api, pod, container, lines)
    yield from summary(found, pods)


def _with_logs(pod: Object) -> Iterator[str]:
    """Yields the names of the containers with logs: of an init container, why it failed."""
    for status in items(pod, "status", "initContainerStatuses"):
        if mapping(status, "state", "terminated").get("exitCode"):
            yield str(status["name"])
    yield from (name for container in pod["spec"]["containers"] if (name := container["name"]) != fuse.SIDECAR)


def summary(found: Run, pods: Sequence[Object]) -> Iterator[str]:
    """Yields the state of a run and its newest checkpoint, and without pods where their logs are."""
    running = f"{found.running(pods)} of {found.wanted_pods} pods run"
    yield f"{found.kind} {found}: {found.state}, {running}, {found.restarts} restarts"
    yield newest(found)
    if not pods:
        yield "It has no pods now. " + of_deleted_pods(found)


def newest(found: Run) -> str:
    """The newest complete checkpoint of a run, as a line."""
    name, step = runs.saved(found)
    return f"newest complete checkpoint: {name}" + (f", step {step}" if step != "–" else "")


def order(pod: Object) -> tuple[int, str]:
    """The number of a pod in its Job, then its name. Anyone may write the label, so it may be no number."""
    index = label(pod, INDEX_LABEL)
    return int(index) if index.isdecimal() else 0, pod["metadata"]["name"]


def of_container(api: ApiClient, pod: Object, container: str, lines: int) -> Iterator[str]:
    """Yields the last log lines of a container, each with the name of its pod."""
    name = pod["metadata"]["name"]
    answer = read(api, pod, container, tailLines=str(lines))
    if answer.code == 200:
        yield from (f"{name}: {line}" for line in str(answer.body).splitlines())
        return
    why = refused(answer.code) if answer.code else f"the cluster does not answer ({answer.error})"
    yield f"{name}: no log: {why}"


def path_of(pod: Object) -> str:
    """The path of a pod's logs in the API."""
    metadata = pod["metadata"]
    return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/log"


def read(api: ApiClient, pod: Object, container: str, **query: str) -> Answer:
    """Asks for the log of a container."""
    return send(api, "GET", path_of(pod), {"container": container, **query}, seconds=SECONDS)


def refused(code: int) -> str:
    """Why there is no log, for the HTTP status of the answer."""
    return "a simulated pod writes none" if on_emulator() else f"the cluster refuses it (HTTP {code})"


def of_deleted_pods(found: Run) -> str:
    """Where the logs of deleted pods are."""
    if on_emulator():
        return f"Logs of deleted pods:  {COMMAND} logs {found.name} -n {found.namespace}"
    # https://docs.cloud.google.com/logging/docs/view/logging-query-language
    query = f'resource.labels.namespace_name="{found.namespace}" resource.labels.pod_name:"{found.name}"'
    return f"Logs of deleted pods:  gcloud logging read 'resource.type=\"k8s_container\" {query}'"
