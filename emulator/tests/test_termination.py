"""Pods of stubs end and restart as those of a kubelet: after preStop, SIGTERM and SIGKILL, and if a probe fails."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import httpx
import pytest

from emulator.cloud.folder import Folder
from emulator.cloud.records import ClusterRecord
from emulator.machine import paths, processes
from emulator.pods import controllers, termination
from emulator.pods.controllers import ContainerProcess, Controllers
from emulator.pods.programs import Program
from emulator.pods.sandbox import Container

Object = dict[str, Any]
RECORD = ClusterRecord("c", "proj", "us-west4", "standard", ["us-west4-a"], "1.36.1-gke.1")
PORT = 8000
# Writes when it listens and when it gets SIGTERM, and ends once the test allows it.
# It waits for the signal: Python can miss one with a handler that comes just before the main thread sleeps.
WAITS = """
import pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
(folder / "listening").touch()
signal.sigwait({signal.SIGTERM})
(folder / "terminating").touch()
while not (folder / "may end").exists():
    time.sleep(0.02)
(folder / "ended").touch()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setattr(paths, "CLUSTERS", tmp_path)
    created = Folder("c")
    created.log.mkdir(parents=True)
    created.pki.mkdir(parents=True)
    (created.pki / "ca.crt").write_text("ca")
    created.write(RECORD, "127.0.0.1:1", ready=True)
    return created


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """The only program that the emulator knows."""

    async def command(container: Container) -> list[str]:
        container.sandbox.port(PORT)
        return [sys.executable, "-c", WAITS, str(tmp_path)]

    stub = Program("i", command)
    monkeypatch.setattr(controllers, "known", lambda _: stub)
    return stub


def pod(pre_stop: float = 0, grace: int = 60) -> Object:
    container = {"name": "a", "image": "i", "lifecycle": {"preStop": {"sleep": {"seconds": pre_stop}}}}
    metadata = {"namespace": "llm", "name": "p", "uid": "u1", "annotations": {}}
    status = {"phase": "Running", "podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]}
    spec = {"nodeName": "n1", "containers": [container], "terminationGracePeriodSeconds": grace}
    return {"metadata": metadata, "spec": spec, "status": status}


class Cluster:
    """The pods of a cluster with one pod, and the controllers that run it."""

    def __init__(self, folder: Folder, api: httpx.AsyncClient, running: Object, patches: list[Object]) -> None:
        self.patches = patches
        self.pods = Mock(objects={("llm", "p"): running}, synced=asyncio.Event())
        self.pods.synced.set()
        none = Mock(objects={})
        self.controllers = Controllers(folder, api, self.pods, none, none, Mock())
        self.changed = asyncio.Event()

    def change(self, **metadata: object) -> None:
        """Changes the pod's metadata, as the API server does."""
        before = self.pods.objects["llm", "p"]
        self.pods.objects["llm", "p"] = before | {"metadata": before["metadata"] | metadata}
        self.changed.set()

    async def delete_once_it_runs(self, folder: Path) -> None:
        """Deletes the pod, once its program listens, and returns once the program gets SIGTERM."""
        await until(lambda: (folder / "listening").exists() and held(self.patches))
        self.change(annotations={termination.ANNOTATION: termination.STUB})
        self.change(deletionTimestamp="2026-01-01T00:00:00Z", deletionGracePeriodSeconds=60)
        await until((folder / "terminating").exists)


def rehearsed(folder: Folder, running: Object, steps: Callable[[Cluster], Any]) -> list[Object]:
    """Runs the controllers while `steps` acts. Returns the changes of the pod."""
    patches: list[Object] = []

    def respond(request: httpx.Request) -> httpx.Response:
        patches.append(json.loads(request.content))
        return httpx.Response(200, json={})

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.MockTransport(respond), base_url="http://c") as api:
            cluster = Cluster(folder, api, running, patches)
            task = asyncio.create_task(cluster.controllers.run(cluster.changed))
            await steps(cluster)
            task.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    return patches


async def until(check: Callable[[], object]) -> None:
    while not check():
        await asyncio.sleep(0.02)


def held(patches: list[Object]) -> bool:
    return {termination.ANNOTATION: termination.STUB} in [patch["metadata"].get("annotations") for patch in patches]


def ends(patches: list[Object]) -> list[str]:
    return [patch["status"]["phase"] for patch in patches if "status" in patch]


@pytest.mark.usefixtures("program")
def test_a_deleted_pod_exists_and_is_reached_until_its_process_has_ended(folder: Folder, tmp_path: Path) -> None:
    async def steps(cluster: Cluster) -> None:
        await cluster.delete_once_it_runs(tmp_path)
        cluster.changed.set()
        assert not ends(cluster.patches)
        assert PORT in cluster.controllers.served()["u1"]
        (tmp_path / "may end").touch()
        await until(lambda: ends(cluster.patches))
        assert (tmp_path / "ended").exists()
        await until(lambda: not cluster.controllers.served())

    patches = rehearsed(folder, pod(), steps)
    assert ends(patches)[0] == "Failed"
    assert patches[-1]["status"]["conditions"] == [{"type": "Ready", "status": "False", "reason": "PodFailed"}]
    assert patches[-1]["metadata"] == {"uid": "u1"}, "another pod with this name stays as it is"


@pytest.mark.usefixtures("program")
def test_a_pod_that_is_deleted_by_force_loses_its_process_at_once(folder: Folder, tmp_path: Path) -> None:
    async def steps(cluster: Cluster) -> None:
        await cluster.delete_once_it_runs(tmp_path)
        cluster.pods.objects.clear()
        cluster.changed.set()
        await until(lambda: not processes.of(folder.path))

    rehearsed(folder, pod(), steps)
    assert not (tmp_path / "ended").exists()


@pytest.mark.usefixtures("program")
def test_a_deleted_pod_whose_process_ended_with_an_earlier_daemon_ends(folder: Folder) -> None:
    lost = pod()
    lost["metadata"] |= {"annotations": {termination.ANNOTATION: termination.STUB}, "deletionTimestamp": "2026"}

    async def steps(cluster: Cluster) -> None:
        await until(lambda: ends(cluster.patches))

    assert set(ends(rehearsed(folder, lost, steps))) == {"Failed"}


@pytest.mark.parametrize(("pre_stop", "grace"), [(600, 0), (0, 1)])
def test_a_process_is_killed_at_the_end_of_the_grace_period(
    folder: Folder, program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pre_stop: float, grace: int
) -> None:
    monkeypatch.setattr(termination, "MIN_GRACE_SECONDS", 0.1)

    async def run() -> None:
        whole = pod(pre_stop, grace)
        (spec,) = whole["spec"]["containers"]
        process = ContainerProcess(folder, Mock(), Mock(), whole, spec, program, {}, Mock())
        await until((tmp_path / "listening").exists)
        await process.end(grace)
        assert not processes.of(folder.path)

    asyncio.run(asyncio.wait_for(run(), 60))
    assert not (tmp_path / "ended").exists()


def test_a_pre_stop_hook_comes_before_sigterm_and_is_part_of_the_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setenv(termination.PRE_STOP_VARIABLE, "20")
    assert asyncio.run(termination.after_pre_stop(15, 120)) == 105
    # The kubelet gives a hook that takes the whole grace period two more seconds.
    assert asyncio.run(termination.after_pre_stop(30, 18)) == termination.MIN_GRACE_SECONDS == 2
    monkeypatch.delenv(termination.PRE_STOP_VARIABLE)
    # The emulator cuts a long hook short, and gives the process no more time for it.
    assert asyncio.run(termination.after_pre_stop(15, 120)) == 105
    assert slept == [15, 18, termination.PRE_STOP_SECONDS]


PROBE = {"httpGet": {"path": "/healthz", "port": "health"}, "periodSeconds": 0.1, "failureThreshold": 2}
PORTS = [{"name": "health", "containerPort": 8081}]
# As a Kueue whose first manager has ended: the program runs on, and nothing listens any more.
HANGS = """
import http.server, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[2]))
        self.end_headers()
print("started", flush=True)
with http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler) as server:
    for _ in range(int(sys.argv[3])):
        server.handle_request()
time.sleep(600)
"""


async def starts(folder: Folder, seconds: float, answers: int, status: int, **spec: Any) -> int:
    """Runs a controller that answers some probes. Returns how often it was started: at most twice, after a time."""

    async def command(container: Container) -> list[str]:
        return [sys.executable, "-c", HANGS, str(container.sandbox.port(8081)), str(status), str(answers)]

    transport = httpx.MockTransport(lambda _: httpx.Response(201, json={"status": {"token": "t"}}))
    metadata = {"namespace": "kueue-system", "name": "p", "uid": "u"}
    pod = {"metadata": metadata, "spec": {"serviceAccountName": "k", "nodeName": "n"}, "status": {}}
    container = {"name": "manager", "ports": PORTS, **spec}
    log = folder.log / "kueue-system_p_manager.log"
    deadline = time.monotonic() + seconds
    async with httpx.AsyncClient(transport=transport, base_url="http://c") as client:
        program = Program("i", command, managed=True)
        process = ContainerProcess(folder, client, Mock(), pod, container, program, {}, Mock())
        while (count := log.read_text().count("started") if log.exists() else 0) < 2 and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        await process.end(1)
    assert processes.of(folder.path) == []
    return count


@pytest.mark.parametrize(
    ("answers", "status", "spec", "count"),
    [
        (3, 200, {"livenessProbe": PROBE}, 2),
        (1000, 500, {"livenessProbe": PROBE}, 2),
        (1000, 200, {"livenessProbe": PROBE}, 1),
        (0, 200, {}, 1),
        (0, 200, {"livenessProbe": {"exec": {"command": ["true"]}}}, 1),
    ],
    ids=["hangs", "is unhealthy", "is healthy", "without a probe", "another probe"],
)
def test_only_a_controller_that_hangs_or_is_unhealthy_is_restarted(
    folder: Folder, answers: int, status: int, spec: Object, count: int
) -> None:
    assert asyncio.run(starts(folder, 60 if count == 2 else 3, answers, status, **spec)) == count
